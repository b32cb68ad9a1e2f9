package main

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// tenants is the number of credentials that the calls of hour have in turns.
const tenants = 20

// hour makes calls through the proxy at the pace for long, half of them with a body and at most workers at a
// time, and prints each minute what the process has: a leak shows there. The heap and the goroutines are those
// that its runtime traces.
func (o *options) hour(binary string) error {
	server := httptest.NewServer(http.HandlerFunc(answer))
	defer server.Close()
	cmd := exec.Command(binary, "proxy", "-listen", "127.0.0.1:0", "-route", "/api="+server.URL)
	cmd.Env = append(os.Environ(), "GODEBUG=gctrace=1,scheddetail=1,schedtrace=10000")
	stderr, err := cmd.StderrPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	var told runtimeTrace
	base := make(chan string, 1)
	go told.read(stderr, base)
	f := &front{name: "sluice proxy", base: <-base, cmd: cmd}
	defer f.close()

	c := newClient()
	defer c.CloseIdleConnections()
	var made, failed atomic.Int64
	var all sync.WaitGroup
	errs := make(chan error, 1) // the first one
	free := make(chan struct{}, workers)
	began, used, calls := time.Now(), f.processor(), int64(0)
	fmt.Printf("\n| minute | calls | failed | memory | heap after a collection | goroutines | files | share of a core |\n| ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n")
	next, minute := began.Add(time.Minute), 1
	for n := 0; time.Since(began) < o.long; n++ {
		time.Sleep(time.Until(began.Add(time.Duration(n) * time.Second / pace)))
		free <- struct{}{} // if the machine stalls, calls wait here instead of running all at the same time
		all.Go(func() {
			defer func() { <-free }()
			made.Add(1)
			if err := call(c, f.base+"api/", n); err != nil {
				failed.Add(1)
				select {
				case errs <- err:
				default:
				}
			}
		})
		if now := time.Now(); now.After(next) {
			p, m := f.processor(), made.Load()
			fmt.Printf("| %d | %d | %d | %.1f MB | %d MB | %d | %d | %.3f |\n", minute, m-calls, failed.Load(), float64(f.memory())*1024/1e6,
				told.heap.Load(), told.goroutines.Load(), f.files(), (p-used).Seconds()/(now.Sub(next)+time.Minute).Seconds())
			used, calls, minute, next = p, m, minute+1, now.Add(time.Minute)
		}
	}
	all.Wait()
	if n := failed.Load(); n > 0 {
		return fmt.Errorf("%d calls failed, the first with: %w", n, <-errs)
	}
	return nil
}

// call makes the n-th call of hour.
func call(c *http.Client, url string, n int) error {
	method, body := http.MethodGet, io.Reader(nil)
	if n%2 == 1 {
		method, body = http.MethodPost, strings.NewReader(strings.Repeat("x", 1000))
	}
	req, err := http.NewRequest(method, url, body)
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", fmt.Sprintf("Bearer %d", n%tenants))
	resp, err := c.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s", resp.Status)
	}
	return nil
}

// A runtimeTrace is what the runtime of a process writes with gctrace=1 and scheddetail=1.
type runtimeTrace struct {
	heap       atomic.Int64 // MB that were reachable at the last collection
	goroutines atomic.Int64 // of those at the last trace of the scheduler
}

var (
	collected = regexp.MustCompile(`^gc \d+ @.* \d+->\d+->(\d+) MB`)
	goroutine = regexp.MustCompile(`^  G\d+: status=(\d+)`)
)

// dead is the status of a goroutine that has ended and whose memory is kept for another one.
const dead = "6"

// read reads it, and sends the URL at which the process listens.
func (t *runtimeTrace) read(stderr io.Reader, base chan<- string) {
	lines, now := bufio.NewScanner(stderr), int64(0)
	for lines.Scan() {
		line := lines.Text()
		if m := collected.FindStringSubmatch(line); m != nil {
			var heap int64
			fmt.Sscan(m[1], &heap)
			t.heap.Store(heap)
		} else if m := goroutine.FindStringSubmatch(line); m != nil {
			if m[1] != dead {
				now++
			}
		} else if strings.HasPrefix(line, "SCHED") {
			t.goroutines.Store(now)
			now = 0
		} else if url := listens.FindString(line); url != "" {
			base <- url
		}
	}
}
