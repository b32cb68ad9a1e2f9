package queue

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// rung is held without a hold: the clock rings at each slot.
func rung(interval time.Duration) *Queue { return held(interval, 0, Config{Exact: true}) }

// Queues with different intervals share a clock, which rings each at its slots. When none
// waits it has nothing left.
func TestClock_ManyQueues(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, start := &clock{began: time.Now()}, time.Now()
		time.Sleep(ms) // the queues are not as old as the clock
		var callers sync.WaitGroup
		for i := range 20 {
			q := rung(time.Duration(i+1) * ms)
			q.clock = c
			for k := range 7 {
				callers.Go(func() {
					_, _, err := q.Acquire(context.Background(), Request{N: 1, Max: Forever})
					if got := time.Since(start) - ms; err != nil || got%(time.Duration(i+1)*ms) != 0 || got > time.Duration(6*(i+1))*ms {
						t.Errorf("queue %d, caller %d left at %v, %v", i, k, got, err)
					}
				})
			}
		}
		callers.Wait()
		synctest.Wait()
		if len(c.queues) > 0 || c.ringing {
			t.Errorf("%d queues are to be rung, ringing %v", len(c.queues), c.ringing)
		}
	})
}

// A clock that few ask serves none.
func TestClock_OnlyIfManyAsk(t *testing.T) {
	const while = 2 * ms
	for name, asks := range map[string]struct {
		at   []time.Duration
		last bool
	}{
		"few":                 {[]time.Duration{0, 0, ms}, false},
		"many":                {[]time.Duration{0, 0, ms, ms}, true},
		"slowly":              {[]time.Duration{0, ms, 3 * ms, 4 * ms, 6 * ms, 7 * ms}, false},
		"many a while before": {[]time.Duration{0, 0, ms, ms, while + 1}, true},
		"many long before":    {[]time.Duration{0, 0, ms, ms, 2*while + 1}, false},
	} {
		c, got := &clock{least: 3}, false
		for _, at := range asks.at {
			got = c.serves(at)
		}
		if got != asks.last {
			t.Errorf("%s: %v", name, got)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		q := rung(ms)
		q.clock.least = 1000
		if got, want := leave(q, Request{N: 1, Max: Forever}, 0, 0, 0), []time.Duration{0, ms, 2 * ms}; !slices.Equal(got, want) || q.clock.timer != nil {
			t.Errorf("left at %v, want %v, without the clock", got, want)
		}
	})
}

// What has no part in an ordinary slot has a timer of its own.
func TestClock_NotFor(t *testing.T) {
	for name, f := range map[string]func(q *Queue, r *Request){
		"a bubble":         func(q *Queue, _ *Request) { q.fine = false },
		"exact wake-ups":   func(q *Queue, _ *Request) { q.cfg.Fine = func() bool { return true } },
		"far away":         func(q *Queue, _ *Request) { q.rule.(*slots).interval = near + 1 },
		"bounds and Exact": func(q *Queue, r *Request) { q.cfg.Exact, r.Max = false, 50*ms },
		"no Hold":          func(q *Queue, _ *Request) { q.cfg.Hold = nil },
	} {
		synctest.Test(t, func(t *testing.T) {
			q, r := rung(ms), Request{N: 1, Max: Forever}
			f(q, &r)
			t1 := q.rule.(*slots).interval
			if got, want := leave(q, r, 0, 0, 0), []time.Duration{0, t1, 2 * t1}; !slices.Equal(got, want) || q.clock.timer != nil {
				t.Errorf("%s: left at %v, want %v, without the clock", name, got, want)
			}
		})
	}
}

// The driver need not be the same when the clock rings, nor its slot.
func TestClock_OtherThanExpected(t *testing.T) {
	bg := context.Background()
	for name, f := range map[string]func(t *testing.T, q *Queue, left func(after time.Duration)){
		// The second waits behind a reservation, drives, and drives again after it.
		"a reservation is attended": func(t *testing.T, q *Queue, left func(time.Duration)) {
			q.Reserve(Request{N: 1})
			w, _, _ := q.Reserve(Request{N: 1})
			go func() {
				q.Acquire(bg, Request{N: 1, Max: Forever})
				left(20 * ms)
			}()
			time.Sleep(ms)
			if err := q.Attend(bg, w); err != nil {
				t.Error(err)
			}
			left(10 * ms)
		},
		"the driver gives up": func(t *testing.T, q *Queue, left func(time.Duration)) {
			q.Acquire(bg, Request{N: 1, Max: Forever})
			ctx, cancel := context.WithCancel(bg)
			go q.Acquire(ctx, Request{N: 1, Max: Forever})
			time.Sleep(ms)
			time.AfterFunc(5*ms, cancel)
			q.Acquire(bg, Request{N: 1, Max: Forever})
			left(10 * ms)
			q.Acquire(bg, Request{N: 1, Max: Forever})
			left(20 * ms)
		},
		"later": func(t *testing.T, q *Queue, left func(time.Duration)) {
			q.Acquire(bg, Request{N: 1, Max: Forever})
			time.AfterFunc(5*ms, func() { q.Change(func(time.Duration) { q.rule.(*slots).next = 30 * ms }) })
			q.Acquire(bg, Request{N: 1, Max: Forever})
			left(30 * ms)
		},
		"earlier": func(t *testing.T, q *Queue, left func(time.Duration)) {
			q.Acquire(bg, Request{N: 1, Max: Forever})
			time.AfterFunc(5*ms, func() { q.Change(func(time.Duration) { q.rule.(*slots).next = 7 * ms }) })
			q.Acquire(bg, Request{N: 1, Max: Forever})
			left(7 * ms)
		},
		"only a change helps": func(t *testing.T, q *Queue, left func(time.Duration)) {
			w := &witness{slots: slots{interval: 10 * ms}}
			q.rule = w
			q.Acquire(bg, Request{N: 1, Max: Forever})
			time.AfterFunc(5*ms, func() {
				q.Lock()
				defer q.Unlock()
				w.full = true
			})
			time.AfterFunc(15*ms, func() { q.Change(func(time.Duration) { w.full, w.next = false, 18*ms }) })
			q.Acquire(bg, Request{N: 1, Max: Forever})
			left(18 * ms)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				f(t, rung(10*ms), func(want time.Duration) {
					if got := time.Since(start); got != want {
						t.Errorf("left at %v, want %v", got, want)
					}
				})
				time.Sleep(50 * ms) // also for those that wait beside
			})
		})
	}
}

// On the real clock, with callers that give up at any instant, all waits end.
func TestClock_Stress(t *testing.T) {
	var callers sync.WaitGroup
	var granted, gaveUp atomic.Int64
	for i := range 40 {
		q := new(Queue)
		q.Init(&slots{interval: time.Duration(i+1) * 50 * time.Microsecond}, Config{
			Exact: true, Hold: func() time.Duration { return time.Duration(i%3) * ms / 2 },
		})
		for k := range 4 {
			callers.Go(func() {
				r := rand.New(rand.NewPCG(uint64(i), uint64(k)))
				for range 50 {
					ctx, cancel := context.WithCancel(context.Background())
					if r.IntN(3) == 0 {
						time.AfterFunc(time.Duration(r.Int64N(int64(2*ms))), cancel)
					}
					if r.IntN(5) == 0 {
						if w, _, err := q.Reserve(Request{N: 1}); err == nil && w != nil && r.IntN(2) == 0 {
							_ = q.Attend(ctx, w)
						}
					}
					switch _, _, err := q.Acquire(ctx, Request{N: 1, Max: Forever}); {
					case err == nil:
						granted.Add(1)
					case errors.Is(err, context.Canceled):
						gaveUp.Add(1)
					default:
						t.Error(err)
					}
					cancel()
				}
			})
		}
	}
	callers.Wait()
	if n := granted.Load() + gaveUp.Load(); n != 40*4*50 || granted.Load() == 0 {
		t.Errorf("%d waits ended, %d of them well", n, granted.Load())
	}
}
