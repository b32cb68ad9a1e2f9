package sluice_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice"
)

// README: when a server is down, a gate makes at most twenty retries at first, ten after timeouts,
// and then few. Of calls in flight that the server throttles together only one pays; 100 callers
// with 20 calls in flight then make fewer than 100 retries in 10 min.
func TestRetry_BudgetWhenAServerIsDown(t *testing.T) {
	fails, busy := func() error { return errDown }, busyFor(0)
	for name, c := range map[string]struct {
		answers      []func() error // in turn
		first, later int            // most retries in the first minute, and in 10 min
	}{
		"500":                            {[]func() error{fails}, 20, 20},
		"timeouts":                       {[]func() error{func() error { return context.DeadlineExceeded }}, 10, 10},
		"503":                            {[]func() error{busy}, 60, 99},
		"503, Retry-After":               {[]func() error{busyFor(time.Second)}, 60, 99},
		"500 and 503":                    {[]func() error{fails, busy}, 80, 99},
		"500 and 503, Retry-After":       {[]func() error{fails, busyFor(time.Second)}, 60, 99},
		"500 and 503, short Retry-After": {[]func() error{busyFor(ms), fails}, 60, 99},
	} {
		for kind, adaptive := range map[string]sluice.Adaptive{"": {}, ", adaptive off": {Off: true}} {
			t.Run(name+kind, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					g := mustGate(t, sluice.Config{Concurrency: 20, Adaptive: adaptive})
					ctx, cancel := context.WithCancel(bg)
					var mu sync.Mutex
					n := 0
					answer := func(context.Context) error {
						time.Sleep(50 * ms)
						mu.Lock()
						defer mu.Unlock()
						n++
						return c.answers[n%len(c.answers)]()
					}
					var callers sync.WaitGroup
					for range 100 {
						callers.Go(func() {
							for ctx.Err() == nil {
								_ = sluice.Retry(ctx, g, sluice.RetryPolicy{}, answer)
								time.Sleep(time.Second)
							}
						})
					}
					time.Sleep(time.Minute)
					first := g.Stats().Retried
					time.Sleep(9 * time.Minute)
					later := g.Stats().Retried
					if first > uint64(c.first) || later > uint64(c.later) {
						t.Errorf("%d retries in a minute, %d in 10 min, want at most %d and %d", first, later, c.first, c.later)
					}
					if first < 5 {
						t.Errorf("only %d retries", first)
					}
					cancel()
					callers.Wait()
				})
			})
		}
	}
}
