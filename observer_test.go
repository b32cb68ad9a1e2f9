package sluice_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/leaky"
	"github.com/sluice-go/sluice/limits"
)

// A diary is an observer that writes events down in words.
type diary struct {
	began time.Time

	mu    sync.Mutex
	lines []string
}

func newDiary() *diary { return &diary{began: time.Now()} }

func (d *diary) Observe(e sluice.Event) {
	d.mu.Lock()
	defer d.mu.Unlock()
	line := fmt.Sprint(time.Since(d.began), " ", e.Gate, " ", e.Kind)
	if e.N != 0 {
		line += fmt.Sprint(" n=", e.N)
	}
	if e.Wait != 0 {
		line += fmt.Sprint(" wait=", e.Wait)
	}
	if e.LimitedBy != "" {
		line += fmt.Sprint(" for=", e.LimitedBy)
	}
	if e.Held != 0 {
		line += fmt.Sprint(" held=", e.Held)
	}
	if e.Reason != "" {
		line += fmt.Sprint(" ", e.Reason)
	}
	if e.Attempt != 0 {
		line += fmt.Sprint(" attempt=", e.Attempt)
	}
	if e.Err != nil {
		line += fmt.Sprint(" err=", e.Err)
	}
	if e.Why != "" {
		line += fmt.Sprint(" why=", e.Why)
	}
	d.lines = append(d.lines, line)
}

// sort puts lines of one instant in an order.
func (d *diary) sort() {
	d.mu.Lock()
	defer d.mu.Unlock()
	slices.Sort(d.lines)
}

// want compares what was written since the last call.
func (d *diary) want(t *testing.T, lines ...string) {
	t.Helper()
	d.mu.Lock()
	defer d.mu.Unlock()
	if !slices.Equal(d.lines, lines) {
		t.Errorf("got\n\t%s\nwant\n\t%s", strings.Join(d.lines, "\n\t"), strings.Join(lines, "\n\t"))
	}
	d.lines = nil
}

func TestObserver_Calls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDiary()
		g := mustGate(t, sluice.Config{Name: "g", Concurrency: 2, Rate: tenPerSecond, Observer: d.Observe})
		g.Do(bg, func(context.Context) error { time.Sleep(ms); return nil })
		d.want(t, "0s g granted n=1", "1ms g released n=1 held=1ms")

		p, _ := g.Acquire(bg, 3)
		time.Sleep(ms)
		p.Release()
		p.Release()
		d.want(t,
			"1ms g queued n=3 wait=99ms for=rate why=10/s",
			"100ms g granted n=3 wait=99ms",
			"101ms g released n=3 held=1ms")

		g.TryAcquire(1)
		d.want(t, "101ms g refused n=1 busy")
		time.Sleep(99 * ms)
		if p, ok := g.TryAcquire(2); ok {
			p.Settle(7)
			p.Release()
		}
		d.want(t, "200ms g granted n=2", "200ms g released n=2")

		g.AcquireWithin(bg, 1, 0)
		d.want(t, "200ms g refused n=1 deadline err=sluice: g: would have to wait 100ms for the rate of 10/s, 0s were allowed")

		g.Acquire(bg, 0) // takes nothing
		d.want(t)
	})
}

// The context of a call comes with its events, however it had to wait, and to the observer
// of a parent, too.
func TestEvent_Context(t *testing.T) {
	type key struct{}
	synctest.Test(t, func(t *testing.T) {
		var got []string
		observe := func(e sluice.Event) {
			if e.Kind != sluice.EventReleased {
				got = append(got, fmt.Sprint(e.Gate, " ", e.Kind, " ", e.Context.Value(key{})))
			}
		}
		want := func(lines ...string) {
			t.Helper()
			if !slices.Equal(got, lines) {
				t.Errorf("got %q, want %q", got, lines)
			}
			got = nil
		}
		limit := limits.Must(leaky.New(tenPerSecond))
		parent := mustGate(t, sluice.Config{Name: "p", Rate: tenPerSecond, Observer: observe})
		for _, cfg := range []sluice.Config{
			{Rate: tenPerSecond},
			{Concurrency: 5, Limits: []sluice.Limit{{Limiter: limit}}}, // asks
		} {
			cfg.Name, cfg.Observer = "g", observe
			g := mustGate(t, cfg)
			ctx := context.WithValue(bg, key{}, "v")
			g.Do(ctx, nothing)
			g.Do(ctx, nothing)
			want("g granted v", "g queued v", "g granted v")
			g.AcquireWithin(ctx, 1, 0)
			want("g refused v")
			g.TryAcquire(1)
			want("g refused <nil>")
			g.Close()
			g.Do(ctx, nothing)
			want("g refused v")
		}
		g := mustGate(t, sluice.Config{Name: "g", Concurrency: 1, Parent: parent, Observer: observe})
		ctx := context.WithValue(bg, key{}, "w")
		g.Do(ctx, nothing)
		g.Do(ctx, nothing)
		want("p granted w", "g granted w", "p queued w", "p granted w", "g granted w")
	})
}

func TestObserver_Refusals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDiary()
		g := mustGate(t, sluice.Config{
			Name: "g", Concurrency: 1, ConcurrencyUnit: sluice.Cost, MaxWaiting: 1, Observer: d.Observe,
			Limits: []sluice.Limit{{Limiter: failing{errors.New("quota is away")}}},
		})
		g.Acquire(bg, 1)
		d.want(t, "0s g refused n=1 other err=sluice: g: limit: quota is away")
		g.Acquire(bg, 2)
		d.want(t, "0s g refused n=2 too_large err=sluice: g: request is larger than the limit")

		g.PauseUntil(time.Now().Add(time.Hour), "")
		ctx, cancel := context.WithCancel(bg)
		go g.Acquire(ctx, 1)
		synctest.Wait()
		d.want(t, "0s g paused wait=1h0m0s", "0s g queued n=1 wait=1h0m0s for=pause")
		g.Acquire(bg, 1)
		d.want(t, "0s g refused n=1 queue_full err=sluice: g: too many callers are waiting")
		cancel()
		synctest.Wait()
		d.want(t, "0s g refused n=1 cancelled err=context canceled")
		g.Acquire(ctx, 1)
		d.want(t, "0s g refused n=1 cancelled err=context canceled")
		g.Acquire(ctx, 0)
		d.want(t, "0s g refused cancelled err=context canceled")
		g.Close()
		g.Acquire(bg, 0)
		d.want(t, "0s g refused closed err=sluice: g: closed")
	})
}

// failing is a quota that answers with an error.
type failing struct{ err error }

func (f failing) Admit(context.Context, int64) (time.Duration, error) { return 0, f.err }
func (f failing) Adjust(context.Context, int64, time.Duration) error  { return f.err }

func TestObserver_Pauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDiary()
		g := fixedGate(t, sluice.Config{Name: "g", Observer: d.Observe})
		in := func(d time.Duration) time.Time { return time.Now().Add(d) }
		g.Resume()
		g.PauseUntil(in(-time.Second), "over")
		d.want(t)
		g.PauseUntil(in(time.Second), "one")
		g.PauseUntil(in(time.Second), "no longer")
		g.PauseUntil(in(2*time.Second), "two")
		d.want(t, "0s g paused wait=1s why=one", "0s g paused wait=2s why=two")
		time.Sleep(time.Second)
		g.Resume()
		g.Resume()
		d.want(t, "1s g resumed")
		g.PauseUntil(in(time.Second), "three")
		time.Sleep(time.Second) // it ends by itself
		g.Resume()
		time.Sleep(time.Second)
		g.PauseUntil(in(-ms), "over, but later than the one before")
		d.want(t, "1s g paused wait=1s why=three")

		// While the call with the server wait is in flight.
		g.Do(bg, func(context.Context) error { return sluice.RetryAfter(errors.New("429"), time.Second) })
		d.want(t, "3s g granted n=1", "3s g paused wait=1s why=429", "3s g released n=1")
	})
}

func TestObserver_Retries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDiary()
		g := fixedGate(t, sluice.Config{Name: "g", Observer: d.Observe})
		policy := sluice.RetryPolicy{Backoff: sluice.Constant(time.Second)}
		attempts := 0
		err := sluice.Retry(bg, g, policy, func(context.Context) error {
			switch attempts++; attempts {
			case 1:
				return errors.New("500")
			case 2:
				return sluice.RetryAfter(errors.New("429"), time.Minute)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		d.want(t,
			"0s g granted n=1",
			"0s g released n=1",
			"0s g retried wait=1s attempt=1 err=500",
			"1s g granted n=1",
			"1s g paused wait=1m0s why=429",
			"1s g released n=1",
			"1s g retried wait=1m0s attempt=2 err=429",
			"1s g queued n=1 wait=1m0s for=pause why=429",
			"1m1s g granted n=1 wait=1m0s",
			"1m1s g released n=1",
		)
		if n := g.Stats().Retried; n != 2 {
			t.Errorf("%d retries", n)
		}
		sluice.Retry(bg, g, policy, func(context.Context) error { return sluice.Permanent(errors.New("404")) })
		d.want(t, "1m1s g granted n=1", "1m1s g released n=1")

		ctx, cancel := context.WithCancel(bg)
		time.AfterFunc(ms, g.Close)
		sluice.Retry(ctx, g, policy, func(context.Context) error { return errors.New("500") })
		cancel()
		d.want(t,
			"1m1s g granted n=1",
			"1m1s g released n=1",
			"1m1s g retried wait=1s attempt=1 err=500",
			"1m1.001s g refused n=1 closed err=sluice: g: closed",
		)
	})
}

// Each gate reports what it counts, the parent first, however long the wait was in
// which queue.
func TestObserver_OfAParent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDiary()
		all := mustGate(t, sluice.Config{Name: "all", Concurrency: 1, Observer: d.Observe})
		silent := mustGate(t, sluice.Config{Name: "silent", Parent: all})
		a := mustGate(t, sluice.Config{Name: "a", Rate: sluice.Rate{Count: 1, Per: time.Second}, Parent: silent, Observer: d.Observe})

		p, _ := a.Acquire(bg, 1)
		d.want(t, "0s all granted n=1", "0s a granted n=1")
		done := make(chan struct{})
		go func() {
			defer close(done)
			p, _ := a.Acquire(bg, 2)
			time.Sleep(500 * ms)
			p.Release()
		}()
		time.Sleep(1500 * ms) // the rate of a is over, all is full
		d.want(t, "0s a queued n=2 wait=2s for=rate why=1/s", "1s all queued n=2 for=concurrency why=1")
		if _, ok := a.TryAcquire(1); ok {
			t.Error("overtook")
		}
		d.want(t, "1.5s a refused n=1 busy")
		p.Release()
		synctest.Wait()
		d.sort() // two calls at one instant
		d.want(t,
			"1.5s a granted n=2 wait=1.5s",
			"1.5s a released n=1 held=1.5s",
			"1.5s all granted n=2 wait=500ms",
			"1.5s all released n=1 held=1.5s")
		<-done
		d.want(t,
			"2s all released n=2 held=500ms",
			"2s a released n=2 held=500ms")

		p, _ = all.Acquire(bg, 1)
		d.want(t, "2s all granted n=1")
		time.Sleep(time.Second)
		a.AcquireWithin(bg, 1, time.Second)
		d.want(t,
			"3s all queued n=1 for=concurrency why=1",
			"4s all refused n=1 deadline err=sluice: all: waited for the concurrency of 1 as long as allowed",
			"4s a refused n=1 deadline err=sluice: a: silent: all: waited for the concurrency of 1 as long as allowed")
		a.TryAcquire(1) // asks for the room of all, and does not wait
		d.want(t,
			"4s all refused n=1 deadline err=sluice: all: waited for the concurrency of 1 as long as allowed",
			"4s a refused n=1 busy")
		p.Release()
		d.want(t, "4s all released n=1 held=2s")
		if n := silent.Stats(); n.Granted != 2 || n.Refused.Deadline != 2 {
			t.Errorf("silent: %+v", n)
		}
	})
}

// A quota holds the first call up, which learns of it by asking; the next call waits
// without asking.
func TestObserver_OfALimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDiary()
		g := mustGate(t, sluice.Config{Name: "g", Observer: d.Observe, Limits: []sluice.Limit{
			{Name: "q", Limiter: &bucket{capacity: 1, interval: time.Second}},
		}})
		var calls sync.WaitGroup
		for n := range int64(3) {
			calls.Go(func() {
				time.Sleep(time.Duration(n) * ms)
				g.Acquire(bg, 1)
			})
		}
		calls.Wait()
		d.want(t,
			"0s g granted n=1",
			"1ms g queued n=1 wait=999ms for=limit q",
			"2ms g queued n=1 wait=998ms for=limit q",
			"1s g granted n=1 wait=999ms",
			"2s g granted n=1 wait=1.998s")
	})
}

func TestObserver_OfASemaphore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDiary()
		g := mustGate(t, sluice.Config{Name: "g", Rate: tenPerSecond, Observer: d.Observe, Semaphore: slowPermits{time.Second}})
		for range 2 {
			p, _ := g.Acquire(bg, 1)
			p.Release()
		}
		// While its permits are lent the slot of the second has passed. To give
		// them back takes a second too, in which the call is not in flight.
		d.want(t,
			"1s g granted n=1 wait=1s", "2s g released n=1",
			"3s g granted n=1 wait=1s", "4s g released n=1")
	})
}

// slowPermits take their time.
type slowPermits struct{ d time.Duration }

func (s slowPermits) Acquire(context.Context, int64, time.Duration) (limits.Lease, error) {
	time.Sleep(s.d)
	return s, nil
}
func (s slowPermits) Release()              { time.Sleep(s.d) }
func (s slowPermits) Lost() <-chan struct{} { return nil }

// An observer that takes a minute delays the call of the event, but no call behind or
// beside it.
func TestObserver_SlowOneDelaysItsCallOnly(t *testing.T) {
	for _, slow := range []sluice.EventKind{sluice.EventQueued, sluice.EventGranted, sluice.EventRefused, sluice.EventReleased} {
		t.Run(string(slow), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var reported atomic.Bool
				g := mustGate(t, sluice.Config{Rate: tenPerSecond, Concurrency: 2, Observer: func(e sluice.Event) {
					if e.Kind == slow && reported.CompareAndSwap(false, true) {
						time.Sleep(time.Minute)
					}
				}})
				began := time.Now()
				call := func() error { return g.Do(bg, func(context.Context) error { return nil }) }
				go call()
				synctest.Wait()
				go call()
				go g.AcquireWithin(bg, 1, 50*ms)
				synctest.Wait()
				if err := call(); err != nil || time.Since(began) > 200*ms {
					t.Errorf("after %v: %v", time.Since(began), err)
				}
				time.Sleep(2 * time.Minute)
				if s := g.Stats(); !reported.Load() || s.Granted != 3 || s.InFlight != 0 {
					t.Errorf("reported: %v, %+v", reported.Load(), s)
				}
			})
		})
	}
}

func TestObserver_MakesNoGarbage(t *testing.T) {
	var events atomic.Int64
	g := mustGate(t, sluice.Config{Observer: func(sluice.Event) { events.Add(1) }})
	nothing := func(context.Context) error { return nil }
	if n := testing.AllocsPerRun(100, func() { g.Do(bg, nothing) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
	if n := events.Load(); n != 202 {
		t.Errorf("%d events of 101 calls", n)
	}
}

// EventLearned has the reason apart, for metrics and for logs that leave similar lines out.
func TestObserver_Learned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var learned []sluice.Event
		g, err := sluice.New(sluice.Config{Name: "g", Observer: func(e sluice.Event) {
			if e.Kind == sluice.EventLearned {
				learned = append(learned, e)
			}
		}})
		if err != nil {
			t.Fatal(err)
		}
		for i := range 20 {
			g.Do(t.Context(), func(context.Context) error {
				time.Sleep(100 * time.Millisecond)
				if i == 19 {
					return sluice.RetryAfter(errors.New("429"), time.Second)
				}
				return nil
			})
		}
		l := g.Stats().Learned
		want := []sluice.Event{{Kind: sluice.EventLearned, Gate: "g", Reason: l.Why, Why: l.String()}}
		if !slices.Equal(learned, want) || l.Why == "" {
			t.Errorf("%+v, want %+v", learned, want)
		}
	})
}
