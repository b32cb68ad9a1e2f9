package live_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/leaky"
	"github.com/sluice-go/sluice/limits"
	"github.com/sluice-go/sluice/observe/live"
	"github.com/sluice-go/sluice/sluicehttp"
)

const token = "0123456789abcdef"

func rate(count int64) sluice.Rate { return sluice.Rate{Count: count, Per: time.Second} }

// A crowd makes calls until the test ends.
type crowd struct {
	t    *testing.T
	ctx  context.Context
	wait sync.WaitGroup
}

func newCrowd(t *testing.T) *crowd {
	ctx, cancel := context.WithCancel(context.Background())
	c := &crowd{t: t, ctx: ctx}
	t.Cleanup(func() { cancel(); c.wait.Wait() })
	return c
}

// calls makes calls through a gate by so many goroutines.
func (c *crowd) calls(n int, f func()) {
	for range n {
		c.wait.Go(func() {
			for c.ctx.Err() == nil {
				f()
			}
		})
	}
}

func (c *crowd) sleep(d time.Duration) {
	select {
	case <-time.After(d):
	case <-c.ctx.Done():
	}
}

// gates are real gates, one for each thing that can delay calls, with calls that take time
// instead of servers.
func (c *crowd) gates() []*sluice.Gate {
	var all []*sluice.Gate
	gate := func(cfg sluice.Config) *sluice.Gate {
		g := limits.Must(sluice.New(cfg))
		all = append(all, g)
		return g
	}
	takes := func(g *sluice.Gate, d time.Duration) func() {
		return func() { _ = g.Do(c.ctx, func(context.Context) error { c.sleep(d); return nil }) }
	}

	c.calls(12, takes(gate(sluice.Config{Name: "https://api.github.com", Rate: rate(9), Concurrency: 8}), 200*time.Millisecond))
	c.calls(12, takes(gate(sluice.Config{Name: "https://slow.example.com", Concurrency: 4}), 900*time.Millisecond))

	steady := gate(sluice.Config{Name: "https://cdn.example.net", Rate: rate(50)})
	c.calls(1, func() { takes(steady, 50*time.Millisecond)(); c.sleep(40 * time.Millisecond) })

	held := gate(sluice.Config{Name: "https://billing.example.com", Rate: rate(5)})
	held.PauseUntil(time.Now().Add(10*time.Minute), "429 Too Many Requests")
	c.calls(3, takes(held, 0))

	full := gate(sluice.Config{Name: "https://search.example.org", Rate: rate(3), MaxWaiting: 2})
	c.calls(3, func() { takes(full, 0)(); c.sleep(300 * time.Millisecond) })

	tokens := limits.Must(leaky.New(limits.Rate{Count: 60_000, Per: time.Minute, Burst: 2000}))
	llm := gate(sluice.Config{Name: "llm", Limits: []sluice.Limit{{Name: "tokens", Limiter: tokens}}})
	c.calls(4, func() {
		if p, err := llm.Acquire(c.ctx, 400); err == nil {
			p.Release()
		}
	})

	// A server that admits 20 calls per second and says nothing but no.
	bucket := limits.Must(leaky.New(limits.Rate{Count: 20, Per: time.Second, Burst: 5}))
	unknown := gate(sluice.Config{Name: "https://unknown.example.io", Adaptive: sluice.Adaptive{Search: true}})
	c.calls(12, func() {
		_ = sluice.Retry(c.ctx, unknown, func(context.Context) error {
			c.sleep(20 * time.Millisecond)
			if r := bucket.Take(1); !r.Allowed() {
				return sluice.ThrottledFor(errors.New("429"), 0)
			}
			return nil
		})
	})

	broken := gate(sluice.Config{Name: "https://broken.example.com", RetryBudget: 10})
	c.calls(4, func() {
		_ = sluice.Retry(c.ctx, broken, func(context.Context) error {
			c.sleep(10 * time.Millisecond)
			return errors.New("500 Internal Server Error")
		}, sluice.RetryPolicy{Backoff: sluice.Constant(50 * time.Millisecond)})
	})
	gate(sluice.Config{Name: "https://user:secret@idle.example.com/v1?key=secret", Concurrency: 8, Rate: rate(100)})
	return all
}

// transport makes requests to a server that publishes its limits.
func (c *crowd) transport() *sluicehttp.Transport {
	left := 5000
	var mu sync.Mutex
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		left--
		w.Header().Set("X-RateLimit-Limit", "5000")
		w.Header().Set("X-RateLimit-Remaining", text(left))
		w.Header().Set("X-RateLimit-Reset", text(int(time.Now().Add(40*time.Minute).Unix())))
	}))
	base := http.DefaultTransport.(*http.Transport).Clone()
	t := limits.Must(sluicehttp.New(base, sluicehttp.Config{Gate: sluice.Config{Rate: rate(6)}}))
	client := &http.Client{Transport: t}
	c.t.Cleanup(func() { base.CloseIdleConnections(); server.Close() })
	c.calls(3, func() {
		req := limits.Must(http.NewRequestWithContext(c.ctx, "GET", server.URL+"/items", nil))
		if resp, err := client.Do(req); err == nil {
			resp.Body.Close()
		}
	})
	return t
}

// serve serves the page of all of them.
func serve(t *testing.T, change func(page *live.Handler)) (url string) {
	c := newCrowd(t)
	page := live.New(live.FromGates(c.gates()...), live.FromTransport(c.transport()))
	change(page)
	s := httptest.NewServer(page)
	t.Cleanup(func() { page.Close(); s.Close() })
	return s.URL + "/debug/gates"
}
