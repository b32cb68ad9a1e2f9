package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/limits"
	"github.com/sluice-go/sluice/sluiceredis"
)

// A worker is its own process. It gets its order in one line of JSON, says that it is ready, begins
// when it is told "go", and ends with its observations, in JSON.

// workerEnv makes this program, or its test, a worker.
const workerEnv = "SLUICE_SHARED_WORKER"

func isWorker() bool { return os.Getenv(workerEnv) != "" }

// An order is the task of a worker.
type order struct {
	Redis, Prefix, URL, Kind string
	Goroutines               int
	Rate                     int64
	For, Late                time.Duration
}

// burst is the number of calls that the leaky bucket holds. It must last for longer than
// callers need to notice that there is room; 50 ms at the rate.
func burst(rate int64) int64 { return max(1, rate/20) }

// A seen has the observations of a worker.
type seen struct {
	Departures []int64 // ns since 1970, by this machine's clock
	Scripts    []script
	Other      int // scripts of other kinds than that of the limit
	Stats      sluiceredis.Stats
	Errors     []string // the first few
	Failed     int
}

// work is the worker; it returns the exit status.
func work(in io.Reader, out io.Writer) int {
	lines := bufio.NewReader(in)
	var o order
	line, err := lines.ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, &o)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "worker:", err)
		return 1
	}
	w, err := newWorker(o)
	if err != nil {
		fmt.Fprintln(os.Stderr, "worker:", err)
		return 1
	}
	defer w.client.Close()
	fmt.Fprintln(out, "ready")
	if _, err := lines.ReadString('\n'); err != nil {
		return 1 // nobody wants it any more
	}
	if err := json.NewEncoder(out).Encode(w.run()); err != nil {
		return 1
	}
	return 0
}

type worker struct {
	order
	client  *redis.Client
	wire    *wire
	store   *sluiceredis.Store
	acquire func(ctx context.Context) error
	http    *http.Client
}

func newWorker(o order) (*worker, error) {
	w := &worker{order: o}
	w.client = redis.NewClient(&redis.Options{Addr: o.Redis, ContextTimeoutEnabled: true, DisableIdentity: true})
	adapter, err := sluiceredis.NewGoRedis(w.client)
	if err != nil {
		return nil, err
	}
	w.wire = &wire{Topology: adapter.(sluiceredis.Topology), kind: o.Kind}
	if w.store, err = sluiceredis.New(w.wire, sluiceredis.Config{Prefix: o.Prefix}); err != nil {
		return nil, err
	}
	switch o.Kind {
	case "pacer":
		p, err := w.store.Pacer("shared", limits.Rate{Count: o.Rate, Per: time.Second}, sluiceredis.PacerConfig{MaxLateness: o.Late})
		if err != nil {
			return nil, err
		}
		w.acquire = func(ctx context.Context) error { return p.Acquire(ctx, 1) }
	case "leaky":
		l, err := w.store.Bucket("shared", limits.Rate{Burst: burst(o.Rate), Count: o.Rate, Per: time.Second})
		if err != nil {
			return nil, err
		}
		gate, err := sluice.New(sluice.Config{Limits: []sluice.Limit{{Limiter: l.On("all")}}})
		if err != nil {
			return nil, err
		}
		w.acquire = gate.Wait
	default:
		return nil, fmt.Errorf("no limit of kind %q", o.Kind)
	}
	base := http.DefaultTransport.(*http.Transport).Clone()
	base.MaxIdleConns, base.MaxIdleConnsPerHost = o.Goroutines, o.Goroutines
	w.http = &http.Client{Transport: base}
	return w, w.call() // the way is open, and there is a first connection
}

// call calls the server.
func (w *worker) call() error {
	resp, err := w.http.Get(w.URL)
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, resp.Body)
	_ = resp.Body.Close()
	return err
}

// run has all goroutines call, through the limit, until the time is up. Nobody is
// canceled then: who waits goes once more.
func (w *worker) run() seen {
	var mu sync.Mutex
	var s seen
	end := time.Now().Add(w.For)
	var wg sync.WaitGroup
	for range w.Goroutines {
		wg.Go(func() {
			for time.Now().Before(end) {
				err := w.acquire(context.Background())
				left := time.Now().UnixNano()
				if err == nil {
					mu.Lock()
					s.Departures = append(s.Departures, left)
					mu.Unlock()
					err = w.call()
				}
				if err != nil {
					mu.Lock()
					if s.Failed++; len(s.Errors) < 3 {
						s.Errors = append(s.Errors, err.Error())
					}
					mu.Unlock()
					time.Sleep(10 * time.Millisecond)
				}
			}
		})
	}
	wg.Wait()
	w.http.CloseIdleConnections()
	s.Stats = w.store.Stats()
	s.Scripts, s.Other = w.wire.recorded()
	return s
}
