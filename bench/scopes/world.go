package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sluice-go/sluice/sluicehttp"
)

// A world is a server and what its client does.
type world struct {
	name   string
	server func() handler
	calls  int                                     // 0: as many as workers make within lasts
	every  time.Duration                           // from the start of one call to that of the next
	call   func(i int) (method, path, kind string) // i is the number of the call, or of the worker
	lasts  time.Duration
	works  int  // workers, if there are no calls
	knocks bool // alone, the client would be refused without end
}

// A handler answers a request at now. It is called under a lock.
type handler func(r *http.Request, now time.Time) answer

type answer struct {
	status int // 0 means 200
	header map[string]string
	body   string
	work   time.Duration
}

type client struct {
	name string
	make func(base http.RoundTripper) http.RoundTripper
}

var clients = []client{
	{"alone", func(base http.RoundTripper) http.RoundTripper { return base }},
	{"no configuration", with(sluicehttp.Config{})},
	{"ByRoute", with(sluicehttp.Config{Key: sluicehttp.ByRoute})},
}

func with(cfg sluicehttp.Config) func(base http.RoundTripper) http.RoundTripper {
	return func(base http.RoundTripper) http.RoundTripper {
		t, err := sluicehttp.New(base, cfg)
		if err != nil {
			panic(err)
		}
		return t
	}
}

// A result is how a client fared.
type result struct {
	done, lost, refused int
	took                time.Duration
	kinds               map[string]*kind
	perSecond           bool
}

type kind struct {
	done  int
	last  time.Duration
	least int // done in a run, of several
}

// mean returns the mean of runs.
func mean(runs []*result) *result {
	sum := *runs[0]
	for _, r := range runs[1:] {
		sum.done, sum.lost, sum.refused = sum.done+r.done, sum.lost+r.lost, sum.refused+r.refused
		for name, k := range r.kinds {
			of := sum.kinds[name]
			if of.least == 0 {
				of.least = of.done
			}
			of.done, of.least = of.done+k.done, min(of.least, k.done)
		}
	}
	n := len(runs)
	sum.done, sum.lost, sum.refused = sum.done/n, sum.lost/n, sum.refused/n
	for _, k := range sum.kinds {
		k.done /= n
	}
	return &sum
}

func (r *result) row(world, client string) string {
	var notes []string
	for _, name := range slices.Sorted(maps.Keys(r.kinds)) {
		k := r.kinds[name]
		if r.perSecond {
			note := fmt.Sprintf("%s %.4g/s", name, float64(k.done)/r.took.Seconds())
			if k.least > 0 {
				note += fmt.Sprintf(" (%.4g)", float64(k.least)/r.took.Seconds())
			}
			notes = append(notes, note)
		} else {
			notes = append(notes, fmt.Sprintf("%s %d by %v", name, k.done, k.last.Round(100*time.Millisecond)))
		}
	}
	return fmt.Sprintf("| %s | %s | %d | %d | %d | %v | %s |", world, client, r.done, r.lost, r.refused, r.took.Round(100*time.Millisecond), strings.Join(notes, ", "))
}

// network is the way to a server: each request and each response takes 8 to 22 ms.
type network struct {
	mu      sync.Mutex
	random  *rand.Rand
	handle  handler
	refused int
}

// RoundTrip implements http.RoundTripper.
func (n *network) RoundTrip(r *http.Request) (*http.Response, error) {
	n.mu.Lock()
	way := time.Duration(8+n.random.IntN(15)) * time.Millisecond
	n.mu.Unlock()
	if err := sleep(r, way); err != nil {
		return nil, err
	}
	n.mu.Lock()
	a := n.handle(r, time.Now())
	if a.status >= 400 {
		n.refused++
	}
	n.mu.Unlock()
	if err := sleep(r, a.work+way); err != nil {
		return nil, err
	}
	resp := &http.Response{
		StatusCode: cmp.Or(a.status, 200), ProtoMajor: 1, ProtoMinor: 1, Header: http.Header{},
		Body: io.NopCloser(strings.NewReader(a.body)), ContentLength: int64(len(a.body)), Request: r,
	}
	for k, v := range a.header {
		resp.Header.Set(k, v)
	}
	return resp, nil
}

func sleep(r *http.Request, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-r.Context().Done():
		return r.Context().Err()
	}
}

// play plays w with a seed in a bubble.
func (w *world) play(c client, seed uint64) *result {
	n := &network{random: rand.New(rand.NewPCG(seed, 2)), handle: w.server()}
	http := &http.Client{Transport: c.make(n)}
	r := &result{kinds: map[string]*kind{}, perSecond: w.calls == 0}
	var mu sync.Mutex
	var all sync.WaitGroup
	began := time.Now()
	one := func(i int) {
		method, path, name := w.call(i)
		err := get(http, method, path)
		mu.Lock()
		defer mu.Unlock()
		k := r.kinds[name]
		if k == nil {
			k = new(kind)
			r.kinds[name] = k
		}
		k.last = time.Since(began)
		if err != nil {
			r.lost++
			return
		}
		r.done++
		k.done++
	}
	for i := range w.calls {
		all.Go(func() {
			time.Sleep(time.Duration(i) * w.every)
			one(i)
		})
	}
	for i := range w.works {
		all.Go(func() {
			for n := 0; time.Since(began) < w.lasts; n++ {
				before := time.Now()
				if one(i + n*w.works); time.Since(before) == 0 {
					time.Sleep(time.Second) // it fails immediately
				}
			}
		})
	}
	all.Wait()
	r.took, r.refused = time.Since(began), n.refused
	if w.calls == 0 {
		r.took = w.lasts
	}
	return r
}

func get(c *http.Client, method, path string) error {
	req, err := http.NewRequest(method, "https://api.example.com"+path, nil)
	if err != nil {
		return err
	}
	resp, err := c.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	if err == nil && resp.StatusCode != 200 {
		err = fmt.Errorf("status %d", resp.StatusCode)
	}
	return err
}
