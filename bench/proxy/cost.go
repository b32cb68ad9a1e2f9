package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"time"
)

// A figure is what was measured of one front.
type figure struct {
	front     *front
	path      string
	took      []time.Duration // one at a time
	rates     []float64       // calls per second
	processor float64         // share of a core at pace
	memory    int             // KiB, after all that
}

// pace is how many calls per second the share of a core is measured at.
const pace = 150

// workers is the number of clients of the throughput.
const workers = 32

// cost measures all fronts in turns, so that what else the machine does meets all of them.
func (o *options) cost(dir, binary string) error {
	server := httptest.NewServer(http.HandlerFunc(answer))
	defer server.Close()
	defer server.CloseClientConnections() // some calls still wait
	figures := []*figure{{front: &front{name: "no proxy", base: server.URL + "/"}}}
	for _, start := range []func() (*front, error){
		func() (*front, error) { return startBare(server.URL) },
		func() (*front, error) { return startNginx(dir, server.URL) },
		func() (*front, error) { return startSluice(binary, server.URL) },
	} {
		f, err := start()
		if errors.Is(err, errNoNginx) {
			fmt.Println(err)
			continue
		}
		if err != nil {
			return err
		}
		defer f.close()
		figures = append(figures, &figure{front: f})
	}
	sluice := figures[len(figures)-1]
	sluice.path = "api/"
	late := lateness()
	c := newClient()
	defer c.CloseIdleConnections()
	if err := o.inTurns(c, figures); err != nil {
		return err
	}
	for _, f := range figures[1:] {
		f.memory = f.front.memory()
	}
	print(figures)
	err := o.withWaiting(c, sluice, binary, server.URL)
	fmt.Printf("\nMeanwhile sleeping goroutines were woken %v late (99th percentile).\n", late().Round(10*time.Microsecond))
	return err
}

func newClient() *http.Client {
	return &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 2 * workers}}
}

// answer is the server: a small response, or none on /hold.
func answer(w http.ResponseWriter, r *http.Request) {
	if strings.HasPrefix(r.URL.Path, "/hold") {
		_, _ = io.Copy(io.Discard, r.Body) // then net/http notices when the connection ends
		<-r.Context().Done()
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = io.WriteString(w, `{"id":1,"full_name":"a/b"}`)
}

// inTurns measures the p50, the throughput and the share of a core.
func (o *options) inTurns(c *http.Client, figures []*figure) error {
	for range o.calls {
		for _, f := range figures {
			d, err := get(c, f.front.base+f.path)
			if err != nil {
				return fmt.Errorf("%s: %w", f.front.name, err)
			}
			f.took = append(f.took, d)
		}
	}
	for range o.rounds {
		for _, f := range figures {
			rate, err := throughput(c, f.front.base+f.path, o.calls)
			if err != nil {
				return fmt.Errorf("%s: %w", f.front.name, err)
			}
			f.rates = append(f.rates, rate)
		}
	}
	for _, f := range figures[1:] {
		before, began := f.front.processor(), time.Now()
		if err := paced(c, f.front.base+f.path, o.paced); err != nil {
			return fmt.Errorf("%s: %w", f.front.name, err)
		}
		f.processor = (f.front.processor() - before).Seconds() / time.Since(began).Seconds()
	}
	return nil
}

// get makes one call.
func get(c *http.Client, url string) (time.Duration, error) {
	began := time.Now()
	resp, err := c.Get(url)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		return 0, err
	}
	if resp.StatusCode != http.StatusOK {
		return 0, errors.New(resp.Status)
	}
	return time.Since(began), nil
}

// throughput makes n calls, some at a time, and returns how many there were in a second.
func throughput(c *http.Client, url string, n int) (float64, error) {
	var all sync.WaitGroup
	errs := make([]error, workers)
	began := time.Now()
	for i := range workers {
		all.Go(func() {
			for range n / workers {
				if _, err := get(c, url); err != nil {
					errs[i] = err
				}
			}
		})
	}
	all.Wait()
	return float64(n/workers*workers) / time.Since(began).Seconds(), errors.Join(errs...)
}

// paced makes calls at the pace, whether or not those before have ended.
func paced(c *http.Client, url string, lasts time.Duration) error {
	var all sync.WaitGroup
	var mu sync.Mutex
	var failed error
	tick := time.NewTicker(time.Second / pace)
	defer tick.Stop()
	for end := time.Now().Add(lasts); time.Now().Before(end); {
		<-tick.C
		all.Go(func() {
			if _, err := get(c, url); err != nil {
				mu.Lock()
				failed = err
				mu.Unlock()
			}
		})
	}
	all.Wait()
	return failed
}

func print(figures []*figure) {
	fmt.Printf("\n| | p50, one at a time | calls/s, %d at a time | share of a core at %d/s | memory |\n| --- | ---: | ---: | ---: | ---: |\n", workers, pace)
	for _, f := range figures {
		share, memory := "", ""
		if f.memory > 0 {
			share, memory = fmt.Sprintf("%.3f", f.processor), fmt.Sprintf("%.1f MB", float64(f.memory)*1024/1e6)
		}
		fmt.Printf("| %s | %v | %.0f | %s | %s |\n", f.front.name, quantile(f.took, .5).Round(time.Microsecond), median(f.rates), share, memory)
	}
	bare, sluice := figures[1], figures[len(figures)-1]
	fmt.Printf("\nsluice proxy beside the bare ReverseProxy: p50 %v more, %.2f of its calls/s\n",
		(quantile(sluice.took, .5) - quantile(bare.took, .5)).Round(time.Microsecond), median(sluice.rates)/median(bare.rates))
}

func median(all []float64) float64 {
	slices.Sort(all)
	return all[len(all)/2]
}

// withWaiting measures the throughput of another proxy, in which many calls wait at another route, each
// on a connection of its own, in turns with that of idle.
func (o *options) withWaiting(c *http.Client, idle *figure, binary, server string) error {
	if o.waiting == 0 {
		return nil
	}
	held := strings.Replace(server, "127.0.0.1", "localhost", 1) // another server, as far as limits are concerned
	f, err := startSluice(binary, server, "-route", "/held="+held+" concurrency=1")
	if err != nil {
		return err
	}
	defer f.close()
	if _, err := throughput(c, f.base+"api/", o.calls); err != nil { // as idle has had
		return err
	}
	memory := f.memory()
	conns := make([]net.Conn, 0, o.waiting)
	defer func() {
		for _, conn := range conns {
			_ = conn.Close()
		}
	}()
	host := strings.TrimSuffix(strings.TrimPrefix(f.base, "http://"), "/")
	body := strings.Repeat("x", 100)
	for range o.waiting {
		conn, err := net.Dial("tcp", host)
		if err != nil {
			return fmt.Errorf("%d calls wait: %w", len(conns), err)
		}
		conns = append(conns, conn)
		fmt.Fprintf(conn, "POST /held/hold HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer key\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", host, len(body), body)
	}
	if err := untilWaiting(c, f.base, o.waiting); err != nil {
		return err
	}
	grown := f.memory() - memory
	var rates, without []float64
	for range o.rounds {
		for _, r := range []struct {
			url  string
			into *[]float64
		}{{f.base + "api/", &rates}, {idle.front.base + idle.path, &without}} {
			rate, err := throughput(c, r.url, o.calls)
			if err != nil {
				return err
			}
			*r.into = append(*r.into, rate)
		}
	}
	fmt.Printf("With %d calls that wait, on %d connections: %.0f calls/s, %.2f of one in which none waits; %.1f kB of memory for each, its connection included\n",
		o.waiting, o.waiting, median(rates), median(rates)/median(without), float64(grown)*1.024/float64(o.waiting))
	return nil
}

// untilWaiting waits until the proxy has n calls under way.
func untilWaiting(c *http.Client, base string, n int) error {
	for range 600 {
		calls, err := metric(c, base, "sluice_proxy_calls")
		if err != nil {
			return err
		}
		if int(calls) >= n {
			return nil
		}
		time.Sleep(100 * time.Millisecond)
	}
	return errors.New("the calls do not get to the proxy")
}

// metric returns the sum of the samples of a metric of the proxy that have all the labels.
func metric(c *http.Client, base, name string, labels ...string) (sum float64, err error) {
	resp, err := c.Get(base + "metrics")
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	for line := range strings.Lines(string(text)) {
		series, value, ok := strings.Cut(strings.TrimSpace(line), " ")
		is, set, _ := strings.Cut(series, "{")
		if !ok || is != name || slices.ContainsFunc(labels, func(l string) bool { return !strings.Contains(set, l) }) {
			continue
		}
		var v float64
		if _, err := fmt.Sscan(value, &v); err != nil {
			return 0, fmt.Errorf("%s: %w", line, err)
		}
		sum += v
	}
	return sum, err
}
