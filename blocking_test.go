package sluice_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/internal/testkit/synclog"
	"github.com/sluice-go/sluice/limits"
	"github.com/sluice-go/sluice/pacer"
	"github.com/sluice-go/sluice/semaphore"
)

func TestQueue_Acquire_InOrderAndOnlyTheFirstAsks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &bucket{capacity: 2, interval: 100 * ms}
		b, l := sluice.NewQueue(m), synclog.New()
		for i, n := range []int64{1, 1, 2, 1, 0} {
			l.Call(i, func() error { return b.Acquire(bg, n) })
		}
		if b.TryAcquire(1) || b.Waiting() != 2 || m.asks() != 3 {
			t.Errorf("%d wait and the bucket was asked %d times", b.Waiting(), m.asks())
		}
		time.Sleep(time.Minute)
		l.Want(t, synclog.At(0, 0), synclog.At(1, 0), synclog.At(4, 0), synclog.At(2, 200*ms), synclog.At(3, 300*ms))
		// 0 and 1 at once; 2 twice, 3 twice.
		if m.asks() != 6 {
			t.Errorf("the bucket was asked %d times, want 6", m.asks())
		}
		if !b.TryAcquire(2) || b.TryAcquire(1) || !b.TryAcquire(0) {
			t.Error("TryAcquire does not return what the bucket answers")
		}
	})
}

func TestQueue_Acquire_CancelAndDeadlines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &bucket{capacity: 1, interval: time.Second}
		b, l := sluice.NewQueue(m), synclog.New()
		b.TryAcquire(1)
		ctx, cancel := context.WithCancel(bg)
		short, cancelShort := context.WithTimeout(bg, 300*ms)
		defer cancelShort()
		within := func(d time.Duration) func() error {
			return func() error { return b.AcquireWithin(bg, 1, d) }
		}
		l.Call(0, within(999*ms)) // it is first in the queue, so it fails at once
		l.Call(1, func() error { return b.Acquire(short, 1) })
		l.Call(2, func() error { return b.Acquire(ctx, 1) })   // first in the queue from now on
		l.Call(3, within(0))                                   // another call waits
		l.Call(4, within(500*ms))                              // 2 has 1 s to wait, and leaves first
		l.Call(5, func() error { return b.Acquire(short, 1) }) // likewise
		l.Call(6, within(1000*ms))                             // exactly in time, when 2 is gone
		l.Call(7, within(2000*ms))
		l.Call(8, within(2999*ms))
		time.Sleep(600 * ms)
		cancel()
		time.Sleep(time.Minute)
		var wait *limits.WaitError
		for _, left := range l.Sofar() {
			switch left.Caller {
			case 0, 1, 3, 4, 5, 8:
				if !errors.As(left.Err, &wait) {
					t.Errorf("caller %d: %v, want a WaitError", left.Caller, left.Err)
				}
			}
		}
		l.Want(t,
			synclog.Failed(0, 0, context.DeadlineExceeded),
			synclog.Failed(1, 0, context.DeadlineExceeded),
			synclog.Failed(3, 0, context.DeadlineExceeded),
			synclog.Failed(4, 0, context.DeadlineExceeded),
			synclog.Failed(5, 0, context.DeadlineExceeded),
			synclog.Failed(2, 600*ms, context.Canceled),
			synclog.At(6, 1000*ms),
			synclog.At(7, 2000*ms),
			synclog.Failed(8, 2000*ms, context.DeadlineExceeded),
		)
		if b.Waiting() != 0 {
			t.Errorf("%d wait", b.Waiting())
		}
		done, cancel := context.WithCancel(bg)
		cancel()
		asked := m.asks()
		if err := b.Acquire(done, 1); err != context.Canceled || m.asks() != asked {
			t.Errorf("done before the call: %v", err)
		}
		if err := b.Acquire(done, 0); err != context.Canceled {
			t.Errorf("done before the call of nothing: %v", err)
		}
	})
}

func TestQueue_Acquire_ReturnsErrorsOfTheLimiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &bucket{capacity: 3, interval: time.Second}
		b := sluice.NewQueue(m)
		if err := b.Acquire(bg, 4); err != limits.ErrTooLarge {
			t.Errorf("4 of 3: %v", err)
		}
		broken := errors.New("away")
		m.err = broken
		if err := b.Acquire(bg, 1); err != broken || b.TryAcquire(1) {
			t.Errorf("a limit that cannot be asked: %v", err)
		}
		m.err = nil
		if !b.TryAcquire(3) {
			t.Error("something was taken")
		}
	})
}

// A limit may take its time to answer. Meanwhile callers queue, cancel, and
// the lock of the queue is free.
func TestQueue_Acquire_SlowLimiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &bucket{capacity: 1, interval: 100 * ms, trip: 10 * ms}
		b, l := sluice.NewQueue(m), synclog.New()
		ctx, cancel := context.WithCancel(bg)
		l.Call(0, func() error { return b.Acquire(bg, 1) })
		l.Call(1, func() error { return b.Acquire(ctx, 1) })
		l.Call(2, func() error { return b.Acquire(bg, 1) })
		if b.Waiting() != 3 {
			t.Errorf("%d wait while the first asks", b.Waiting())
		}
		time.Sleep(15 * ms) // 0 is through, 1 asks
		cancel()
		time.Sleep(time.Minute)
		l.Want(t,
			synclog.At(0, 10*ms),
			synclog.Failed(1, 15*ms, context.Canceled),
			synclog.At(2, 120*ms), // asked from 15 to 25, refused until 110, asked again
		)
	})
}

type panicking struct{}

func (panicking) Admit(context.Context, int64) (time.Duration, error) { panic("mine") }
func (panicking) Adjust(context.Context, int64, time.Duration) error  { return nil }

func TestQueue_Acquire_LimiterPanics(t *testing.T) {
	b := sluice.NewQueue(panicking{})
	for range 2 {
		for name, f := range map[string]func(){
			"Acquire":    func() { b.Acquire(bg, 1) },
			"TryAcquire": func() { b.TryAcquire(1) },
			"Wait":       func() { b.Wait(bg) },
		} {
			func() {
				defer func() {
					if recover() != "mine" {
						t.Errorf("%s: the panic did not propagate", name)
					}
				}()
				f()
			}()
		}
	}
	if b.Waiting() != 0 {
		t.Errorf("%d wait", b.Waiting())
	}
}

// If only a change can make a limiter let the first call through, calls that queue
// behind it do not ask the limiter again.
func TestQueue_Acquire_NewcomersDoNotMakeTheFirstAskAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asks := 0
		b := sluice.NewQueue(answering(func(context.Context, int64) (time.Duration, error) {
			asks++
			return limits.Never, nil
		}))
		ctx, cancel := context.WithCancel(bg)
		var wg sync.WaitGroup
		for range 100 {
			wg.Go(func() { b.Acquire(ctx, 1) })
			synctest.Wait()
			b.TryAcquire(1)
		}
		if asks != 1 {
			t.Errorf("asked %d times", asks)
		}
		cancel()
		wg.Wait()
	})
}

func TestQueue_TryAcquire_ZeroIsGrantedAtOnce(t *testing.T) {
	asks := 0
	q := sluice.NewQueue(answering(func(context.Context, int64) (time.Duration, error) {
		asks++
		return limits.Never, nil
	}))
	if !q.TryAcquire(0) || q.Acquire(bg, 0) != nil || q.AcquireWithin(bg, 0, 0) != nil || asks > 0 {
		t.Errorf("nothing is refused, or was asked for %d times", asks)
	}
}

// # Contexts of callers that wait

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
			p := limits.Must(pacer.New(sluice.Rate{Count: 1, Per: time.Hour}))
			return spot{func(ctx context.Context) (func(), error) { return none, p.Acquire(ctx, 1) }, func() int64 { p.Waiting(); return 0 }}
		},
		"reservation": func() spot {
			p := limits.Must(pacer.New(sluice.Rate{Count: 1, Per: time.Hour}))
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
