package sluice_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/limits"
	"github.com/sluice-go/sluice/pacer"
	"github.com/sluice-go/sluice/semaphore"
)

// mute is a context that breaks its contract: its Done is closed while Err is nil, as
// of one that embeds another and overrides Done alone.
type mute struct {
	context.Context
	done chan struct{}
}

func (m mute) Done() <-chan struct{} { return m.done }

// nosy is a context whose methods call a function of the caller's.
type nosy struct {
	context.Context
	ask func()
}

func (c nosy) Deadline() (time.Time, bool) { c.ask(); return c.Context.Deadline() }
func (c nosy) Err() error                  { c.ask(); return c.Context.Err() }
func (c nosy) Value(key any) any           { c.ask(); return c.Context.Value(key) }

// A spot is where callers wait: two acquire from it, and the second must wait.
type spot struct {
	acquire func(ctx context.Context) (release func(), err error)
	look    func() (inFlight int64) // takes the lock
}

// spots returns all kinds of them.
func spots(t *testing.T) map[string]func() spot {
	gate := func(cfgs ...sluice.Config) func() spot {
		return func() spot {
			g := generations(t, cfgs...)
			return spot{
				func(ctx context.Context) (func(), error) {
					p, err := g.Acquire(ctx, 1)
					if err != nil {
						return nil, err
					}
					return p.Release, nil
				},
				func() int64 { return g.Stats().InFlight },
			}
		}
	}
	plenty := []sluice.Limit{{Limiter: &bucket{capacity: 1e6, interval: ms}}}
	far := []sluice.Limit{{Limiter: &bucket{capacity: 1e6, interval: ms, trip: ms}}}
	none := func() {}
	hourly := sluice.Rate{Count: 1, Per: time.Hour} // no call leaves by accident
	return map[string]func() spot{
		"gate":            gate(sluice.Config{Concurrency: 1}),
		"gate, cost":      gate(sluice.Config{Concurrency: 1, ConcurrencyUnit: sluice.Cost}),
		"gate, rate":      gate(sluice.Config{Rate: hourly}),
		"gate, quota":     gate(sluice.Config{Concurrency: 1, Limits: plenty}),
		"gate, far quota": gate(sluice.Config{Concurrency: 1, Limits: far}),
		"gate, parent":    gate(sluice.Config{}, sluice.Config{Concurrency: 1}),
		"full parent":     gate(sluice.Config{Concurrency: 1}, sluice.Config{}),
		"grandparent":     gate(sluice.Config{Rate: hourly}, sluice.Config{}, sluice.Config{Limits: plenty}),
		"permits":         gate(sluice.Config{Rate: hourly, Semaphore: shared{semaphore.NewWeighted(9), nil}}),
		"permits, full":   gate(sluice.Config{Semaphore: shared{semaphore.NewWeighted(1), nil}}),
		"semaphore": func() spot {
			s := semaphore.NewWeighted(1)
			return spot{func(ctx context.Context) (func(), error) { return func() { s.Release(1) }, s.Acquire(ctx, 1) }, s.InFlight}
		},
		"semaphore, within": func() spot {
			s := semaphore.NewWeighted(1)
			return spot{func(ctx context.Context) (func(), error) {
				return func() { s.Release(1) }, s.AcquireWithin(ctx, 1, time.Hour)
			}, s.InFlight}
		},
		"pacer": func() spot {
			p := limits.Must(pacer.New(sluice.Rate{Count: 1, Per: time.Hour}, pacer.Config{}))
			return spot{func(ctx context.Context) (func(), error) { return none, p.Acquire(ctx, 1) }, func() int64 { p.Waiting(); return 0 }}
		},
		"reservation": func() spot {
			p := limits.Must(pacer.New(sluice.Rate{Count: 1, Per: time.Hour}, pacer.Config{}))
			return spot{func(ctx context.Context) (func(), error) { return none, p.Reserve(1).Wait(ctx) }, func() int64 { p.Waiting(); return 0 }}
		},
		"block": func() spot {
			b := sluice.NewQueue(&bucket{capacity: 1, interval: time.Hour})
			return spot{func(ctx context.Context) (func(), error) { return none, b.Acquire(ctx, 1) }, func() int64 { b.Waiting(); return 0 }}
		},
	}
}

// A context whose Done is closed counts as cancelled even if its Err is nil: its caller
// gets nothing, and other callers get what they are due.
func TestContext_DoneWithoutErrorGetsNothing(t *testing.T) {
	for name, makeOne := range spots(t) {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := makeOne()
				release, err := p.acquire(bg)
				if err != nil {
					t.Fatal(err)
				}
				ctx := mute{bg, make(chan struct{})}
				time.AfterFunc(10*ms, func() { close(ctx.done) })
				for _, when := range []string{"while it waits", "before"} {
					if _, err := p.acquire(ctx); !errors.Is(err, context.Canceled) {
						t.Errorf("done %s: %v", when, err)
					}
				}
				release()
				if n := p.look(); n != 0 {
					t.Errorf("%d in flight", n)
				}
				for range 3 {
					release, err := p.acquire(bg)
					if err != nil {
						t.Fatal(err)
					}
					release()
				}
			})
		})
	}
}

func TestContext_DoneWithoutErrorEndsShutdown(t *testing.T) {
	g := mustGate(t, sluice.Config{})
	p, _ := g.Acquire(bg, 1)
	ctx := mute{bg, make(chan struct{})}
	close(ctx.done)
	if err := g.Shutdown(ctx); err != context.Canceled {
		t.Errorf("a call is in flight: %v", err)
	}
	p.Release()
}

// The methods of a context are the caller's own code. They may use the gate that the
// caller waits for, or need a mutex whose holder uses it. (This test hangs if it fails.)
func TestContext_MethodsMayUseTheGate(t *testing.T) {
	for name, makeOne := range spots(t) {
		t.Run(name, func(t *testing.T) {
			p := makeOne()
			release, err := p.acquire(bg)
			if err != nil {
				t.Fatal(err)
			}
			var mu sync.Mutex
			for _, ask := range []func(){
				func() { p.look() },
				func() {
					locked := make(chan struct{})
					go func() {
						mu.Lock()
						defer mu.Unlock()
						close(locked)
						p.look()
					}()
					<-locked
					mu.Lock()
					defer mu.Unlock()
				},
			} {
				ctx, cancel := context.WithCancel(bg)
				time.AfterFunc(ms, cancel)
				if _, err := p.acquire(nosy{ctx, ask}); !errors.Is(err, context.Canceled) {
					t.Errorf("cancelled: %v", err)
				}
				if _, err := p.acquire(nosy{ctx, ask}); !errors.Is(err, context.Canceled) {
					t.Errorf("cancelled before: %v", err)
				}
				ctx, cancel = context.WithTimeout(bg, 10*ms)
				if _, err := p.acquire(nosy{ctx, ask}); !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("a deadline: %v", err)
				}
				cancel()
			}
			release()
		})
	}
}
