package sluice_test

import (
	"context"
	"errors"
	"math"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/internal/testkit/queued"
	"github.com/sluice-go/sluice/internal/testkit/synclog"
	"github.com/sluice-go/sluice/leaky"
	"github.com/sluice-go/sluice/limits"
	"github.com/sluice-go/sluice/semaphore"
	"github.com/sluice-go/sluice/window"
)

func TestConfig_Limits_GrantTogetherOrNotAtAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		minute := &bucket{capacity: 6, interval: 10 * time.Second}
		second := &bucket{capacity: 2, interval: 500 * ms}
		g := mustGate(t, sluice.Config{
			Name: "api", Rate: tenPerSecond, Concurrency: 10,
			Limits: []sluice.Limit{{Name: "minute", Limiter: minute}, {Name: "second", Limiter: second}},
		})
		l := synclog.New()
		for i := range 8 {
			l.Call(i, enter(g, bg))
		}
		if m, s := minute.missing(), second.missing(); m != 1 || s != 1 {
			t.Errorf("after one call %d and %d tokens are gone", m, s)
		}
		time.Sleep(90 * ms)
		if s := g.Stats(); s.Pacing != 7 {
			t.Errorf("%+v", s)
		}
		time.Sleep(time.Hour)
		l.Want(t,
			synclog.At(0, 0),
			synclog.At(1, 100*ms), // the rate
			synclog.At(2, 500*ms), // two in a second at most
			synclog.At(3, 1000*ms),
			synclog.At(4, 1500*ms),
			synclog.At(5, 2000*ms),
			synclog.At(6, 10*time.Second), // six in a minute
			synclog.At(7, 20*time.Second),
		)
	})
}

func TestConfig_Limits_IfOneRefusesNoneIsCharged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first := &bucket{capacity: 100, interval: time.Hour}
		second := &bucket{capacity: 10, interval: time.Second}
		third := &bucket{capacity: 100, interval: time.Hour}
		g := mustGate(t, sluice.Config{
			Name: "api", Rate: tenPerSecond, Concurrency: 10,
			Limits: []sluice.Limit{{Name: "a", Limiter: first}, {Name: "b", Limiter: second}, {Name: "c", Limiter: third, Unit: sluice.Calls}},
		})
		untouched := func(when string, want int64) {
			t.Helper()
			if a, c := first.missing(), third.missing(); a != want*5 || c != want || g.Stats().InFlight != want {
				t.Errorf("%s: %d, %d tokens are gone and %d in flight, want %d calls of 5", when, a, c, g.Stats().InFlight, want)
			}
		}
		acquire := func(ctx context.Context, n int64, d time.Duration) error {
			_, err := g.AcquireWithin(ctx, n, d)
			return err
		}
		g.Acquire(bg, 5)
		time.Sleep(time.Second)
		untouched("one call", 1)

		if _, ok := g.TryAcquire(7); ok {
			t.Error("TryAcquire took 7 of 6")
		}
		untouched("TryAcquire", 1)
		var wait *limits.WaitError
		if err := acquire(bg, 7, 999*ms); !errors.As(err, &wait) || wait.Need != time.Second || wait.By != "api" {
			t.Errorf("AcquireWithin: %v", err)
		}
		untouched("AcquireWithin", 1)
		if err := acquire(bg, 11, time.Hour); !errors.Is(err, limits.ErrTooLarge) || err.Error() != "sluice: api: limit b: request is larger than the limit" {
			t.Errorf("11 of 10: %v", err)
		}
		untouched("too large", 1)

		l := synclog.New()
		ctx, cancel := context.WithCancel(bg)
		l.Call(0, func() error { return acquire(ctx, 9, time.Hour) })
		l.Call(1, func() error { return acquire(bg, 5, time.Hour) })
		time.Sleep(100 * ms)
		cancel()
		l.Want(t, synclog.Failed(0, 100*ms, context.Canceled), synclog.At(1, 100*ms)) // moved up, and fits
		untouched("cancelled", 2)

		second.err = errors.New("away")
		if err := acquire(bg, 1, time.Hour); !errors.Is(err, second.err) {
			t.Errorf("a quota that cannot be asked: %v", err)
		}
		untouched("error", 2)
		if s := g.Stats(); s.Unreturned != 0 || s.Rejected.Other != 1 {
			t.Errorf("%+v", s)
		}
	})
}

// If a caller cancels while a quota far away is being asked, what was taken from others
// before is given back, although its context is done.
func TestConfig_Limits_CancelDuringARoundTrip(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near := &bucket{capacity: 10, interval: time.Hour}
		far := &bucket{capacity: 10, interval: time.Hour, trip: 20 * ms}
		g := mustGate(t, sluice.Config{Limits: []sluice.Limit{{Name: "near", Limiter: near}, {Name: "far", Limiter: far}}})
		ctx, cancel := context.WithCancel(bg)
		l := synclog.New()
		l.Call(0, enter(g, ctx))
		time.Sleep(10 * ms)
		cancel()
		l.Want(t, synclog.Failed(0, 10*ms, context.Canceled))
		if s := g.Stats(); near.missing() != 0 || far.missing() != 0 || s.Unreturned != 0 || s.InFlight != 0 {
			t.Errorf("%d and %d tokens gone, %+v", near.missing(), far.missing(), s)
		}
	})
}

// lossy is a limiter whose refunds fail.
type lossy struct{ bucket }

func (l *lossy) Adjust(context.Context, int64, time.Duration) error { return errors.New("no way back") }

func TestConfig_Limits_FailedRefundsAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := mustGate(t, sluice.Config{Limits: []sluice.Limit{
			{Name: "a", Limiter: &lossy{bucket{capacity: 10, interval: time.Hour}}},
			{Name: "b", Limiter: &bucket{capacity: 1, interval: time.Hour}},
		}})
		p, _ := g.Acquire(bg, 1)
		g.TryAcquire(1) // b refuses, a keeps what it took
		p.Settle(0)
		if s := g.Stats(); s.Unreturned != 2 {
			t.Errorf("%d stranded, want 2", s.Unreturned)
		}
	})
}

func TestConfig_Limits_SettleChangesCostLimitsOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cost, calls := &bucket{capacity: 100, interval: time.Minute}, &bucket{capacity: 100, interval: time.Minute}
		g := mustGate(t, sluice.Config{Rate: tenPerSecond, Limits: []sluice.Limit{
			{Name: "tokens", Limiter: cost}, {Name: "requests", Limiter: calls, Unit: sluice.Calls},
		}})
		p, _ := g.Acquire(bg, 40)
		q, _ := g.Acquire(bg, 40)
		p.Settle(10)
		q.Release()
		q.Settle(500) // debt beyond the capacity
		if cost.missing() != 510 || calls.missing() != 2 {
			t.Errorf("%d of cost and %d calls are gone", cost.missing(), calls.missing())
		}
		if d := time.Until(g.Stats().NextSlot); d != 100*ms {
			t.Errorf("the rate counts calls, and the next slot is in %v", d)
		}
	})
}

// A pause that comes while a quota far away is being asked holds the call all
// the same, and the quota gets back what it gave.
func TestConfig_Limits_PauseDuringARoundTrip(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		far := &bucket{capacity: 10, interval: time.Hour, trip: 20 * ms}
		g := mustGate(t, sluice.Config{Rate: tenPerSecond, Limits: []sluice.Limit{{Name: "far", Limiter: far}}})
		l := synclog.New()
		l.Call(0, enter(g, bg))
		time.Sleep(10 * ms)
		g.PauseUntil(time.Now().Add(time.Second), "")
		time.Sleep(100 * ms)
		if n := far.missing(); n != 0 {
			t.Errorf("%d tokens gone while the gate is paused", n)
		}
		time.Sleep(time.Minute)
		l.Want(t, synclog.At(0, 1030*ms))
	})
}

// If a gate is closed while a call asks a quota far away, the call ends and takes
// nothing.
func TestConfig_Limits_CloseDuringARoundTrip(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		far := &bucket{capacity: 1, interval: time.Hour, trip: 20 * ms}
		g := mustGate(t, sluice.Config{Limits: []sluice.Limit{{Name: "far", Limiter: far}}})
		l := synclog.New()
		l.Call(0, enter(g, bg))
		l.Call(1, enter(g, bg))
		time.Sleep(10 * ms)
		g.Close()
		time.Sleep(time.Minute)
		l.Want(t, synclog.Failed(1, 10*ms, limits.ErrClosed), synclog.Failed(0, 10*ms, limits.ErrClosed))
		if n, s := far.missing(), g.Stats(); n != 0 || s.InFlight != 0 {
			t.Errorf("%d tokens gone and %d in flight", n, s.InFlight)
		}
	})
}

func TestConfig_Limits_ChangesReachWaiters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		plenty := &bucket{capacity: 100, interval: time.Second}
		g := mustGate(t, sluice.Config{
			Rate: sluice.Rate{Count: 1, Per: 10 * time.Second}, Concurrency: 2,
			Limits: []sluice.Limit{{Name: "plenty", Limiter: plenty}},
		})
		l := synclog.New()
		for i := range 4 {
			l.Call(i, enter(g, bg))
		}
		time.Sleep(time.Second)
		g.SetRate(sluice.Rate{Count: 1000, Per: time.Second})
		time.Sleep(time.Second)
		g.SetConcurrency(3)
		time.Sleep(time.Second)
		g.PauseUntil(time.Now().Add(time.Hour), "")
		g.SetConcurrency(0)
		time.Sleep(time.Second)
		g.Resume()
		time.Sleep(time.Second)
		l.Want(t, synclog.At(0, 0), synclog.At(1, time.Second), synclog.At(2, 2*time.Second), synclog.At(3, 4*time.Second))
	})
}

// A released permit wakes the caller that waits for it, also in a gate with limits.
func TestConfig_Limits_ReleaseReachesWaiters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := mustGate(t, sluice.Config{Concurrency: 1, Limits: []sluice.Limit{{Name: "q", Limiter: &bucket{capacity: 100, interval: time.Second}}}})
		l := synclog.New()
		for i := range 3 {
			l.Call(i, func() error { return hold(g, time.Second) })
		}
		l.Call(9, func() error { _, err := g.AcquireWithin(bg, 1, 500*ms); return err })
		time.Sleep(time.Minute)
		l.Want(t, synclog.Failed(9, 500*ms, limits.ErrTimeout), synclog.At(0, time.Second), synclog.At(1, 2*time.Second), synclog.At(2, 3*time.Second))
		if _, err := g.AcquireWithin(bg, 1, 0); err != nil {
			t.Error(err)
		}
		if _, err := g.AcquireWithin(bg, 1, 100*ms); !errors.Is(err, limits.ErrTimeout) {
			t.Errorf("first in the queue of a full gate: %v", err)
		}
	})
}

func TestConfig_Limits_AnswerAfterCancel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		deaf := answering(func(context.Context, int64) (time.Duration, error) {
			time.Sleep(20 * ms) // whatever becomes of ctx
			return 0, nil
		})
		behind := &bucket{capacity: 1, interval: time.Hour}
		g := mustGate(t, sluice.Config{Limits: []sluice.Limit{{Name: "b", Limiter: behind}, {Name: "q", Limiter: deaf}}})
		ctx, cancel := context.WithCancel(bg)
		time.AfterFunc(10*ms, cancel)
		_, err := g.Acquire(ctx, 1)
		if err != context.Canceled || g.Stats().InFlight != 0 || behind.missing() != 0 {
			t.Errorf("%v, %d in flight, %d tokens gone", err, g.Stats().InFlight, behind.missing())
		}
	})
}

func TestConfig_Limits_PanicLeaksNothing(t *testing.T) {
	sem, first := semaphore.NewWeighted(1), &bucket{capacity: 10, interval: time.Hour}
	g := mustGate(t, sluice.Config{Semaphore: shared{sem, nil}, Limits: []sluice.Limit{
		{Name: "first", Limiter: first},
		{Name: "second", Limiter: answering(func(context.Context, int64) (time.Duration, error) { panic("mine") })},
	}})
	func() {
		defer func() {
			if recover() != "mine" {
				t.Error("the panic did not propagate")
			}
		}()
		g.Acquire(bg, 1)
	}()
	if sem.InFlight() != 0 || first.missing() != 0 || g.Stats().Pacing != 0 {
		t.Errorf("%d permits and %d tokens are gone", sem.InFlight(), first.missing())
	}
}

// # Limits that report changes

var (
	_ notifier = (*leaky.Bucket)(nil)
	_ notifier = (*window.Counter)(nil)
)

type notifier interface {
	limits.Limiter
	OnChange(f func()) (stop func())
}

func made[T any](t *testing.T) func(v T, err error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// emptyLimiters returns limiters of 1000 an hour that have nothing left, and how to give back
// 900 by hand.
func emptyLimiters(t *testing.T) map[string]struct {
	limiter  limits.Limiter
	giveBack func()
} {
	type row = struct {
		limiter  limits.Limiter
		giveBack func()
	}
	adjust := func(m limits.Limiter) row {
		return row{m, func() { m.Adjust(context.Background(), -900, time.Second) }}
	}
	quota := limits.Rate{Count: 1000, Per: time.Hour, Burst: 1000}
	an := window.Quota{Limit: 1000, Window: time.Hour}
	bucket, log, counter := limits.Must(leaky.New(limits.Rate{Count: 1000, Per: time.Hour, Burst: 1000})), limits.Must(window.NewSliding(window.Quota{Limit: 1000, Window: time.Hour})), limits.Must(window.NewFixed(window.Quota{Limit: 1000, Window: time.Hour}))
	buckets := made[*leaky.Keyed[string]](t)(leaky.NewKeyed[string](quota))
	logs := made[*window.Keyed[string]](t)(window.NewKeyedSliding[string](an))
	counters := made[*window.Keyed[string]](t)(window.NewKeyedFixed[string](an))
	tables := map[string]row{
		"bucket":                   adjust(limits.Must(leaky.New(limits.Rate{Count: 1000, Per: time.Hour, Burst: 1000}))),
		"bucket returned":          {bucket, func() { bucket.Adjust(context.Background(), -900, 0) }},
		"log":                      adjust(limits.Must(window.NewSliding(window.Quota{Limit: 1000, Window: time.Hour}))),
		"log returned":             {log, func() { log.Adjust(context.Background(), -900, 0) }},
		"counter":                  adjust(limits.Must(window.NewFixed(window.Quota{Limit: 1000, Window: time.Hour}))),
		"limit of a counter grows": {counter, func() { counter.SetQuota(window.Quota{Limit: 2000, Window: time.Hour}) }},
		"keyed bucket":             adjust(buckets.On("a")),
		"keyed log":                adjust(logs.On("a")),
		"keyed counter":            adjust(counters.On("a")),
		"keyed limit grows":        {logs.On("b"), func() { logs.SetQuota(window.Quota{Limit: 2000, Window: time.Hour}) }},
		"quotas grow": {buckets.On("c"), func() {
			buckets.SetRate(limits.Rate{Count: 2000, Per: time.Hour, Burst: 2000})
		}},
		"limits grow": {counters.On("c"), func() { counters.SetQuota(window.Quota{Limit: 2000, Window: time.Hour}) }},
	}
	grows, larger := limits.Must(leaky.New(limits.Rate{Count: 1000, Per: time.Hour, Burst: 1000})), limits.Must(window.NewSliding(window.Quota{Limit: 1000, Window: time.Hour}))
	tables["quota grows"] = row{grows, func() { grows.SetRate(limits.Rate{Count: 2000, Per: time.Hour, Burst: 2000}) }}
	tables["limit grows"] = row{larger, func() { larger.SetQuota(window.Quota{Limit: 2000, Window: time.Hour}) }}
	for name, r := range tables {
		if wait, err := r.limiter.Admit(t.Context(), 1000); wait > 0 || err != nil {
			t.Fatal(name, wait, err)
		}
	}
	return tables
}

// A call that waits for a limiter of this process, in a gate, its parent or a Queue, leaves
// at the instant at which enough is given back by hand.
func TestNotifier_ReturnLetsTheNextLeave(t *testing.T) {
	for name := range emptyLimiters(t) {
		for way, waits := range map[string]func(m limits.Limiter) func(ctx context.Context, n int64) error{
			"gate": func(m limits.Limiter) func(context.Context, int64) error {
				return acquireOf(sluice.Config{Limits: []sluice.Limit{{Limiter: m}}})
			},
			"with a rate": func(m limits.Limiter) func(context.Context, int64) error {
				return acquireOf(sluice.Config{Rate: sluice.Rate{Count: 1000, Per: time.Second}, Concurrency: 3, Limits: []sluice.Limit{{Limiter: limits.Must(leaky.New(limits.Rate{Count: 1, Per: time.Hour, Burst: 5000}))}, {Limiter: m}}})
			},
			"of the parent": func(m limits.Limiter) func(context.Context, int64) error {
				p, _ := sluice.New(sluice.Config{Limits: []sluice.Limit{{Limiter: m}}})
				return acquireOf(sluice.Config{Parent: p})
			},
			"beside a parent": func(m limits.Limiter) func(context.Context, int64) error {
				p, _ := sluice.New(sluice.Config{Concurrency: 7})
				return acquireOf(sluice.Config{Parent: p, Limits: []sluice.Limit{{Limiter: m}}})
			},
			"of the grandparent": func(m limits.Limiter) func(context.Context, int64) error {
				p, _ := sluice.New(sluice.Config{Limits: []sluice.Limit{{Limiter: m}}})
				q, _ := sluice.New(sluice.Config{Parent: p, Limits: []sluice.Limit{{Limiter: limits.Must(leaky.New(limits.Rate{Count: 1, Per: time.Hour, Burst: 5000}))}}})
				return acquireOf(sluice.Config{Parent: q})
			},
			"block": func(m limits.Limiter) func(context.Context, int64) error { return queued.For(m).Acquire },
		} {
			t.Run(way+"/"+name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					r := emptyLimiters(t)[name]
					wait, began := waits(r.limiter), time.Now()
					go func() {
						time.Sleep(10*time.Second + 1)
						r.giveBack()
					}()
					if err := wait(t.Context(), 500); err != nil {
						t.Fatal(err)
					}
					if d := time.Since(began); d != 10*time.Second+1 {
						t.Errorf("left after %v", d)
					}
				})
			})
		}
	}
}

// acquireOf returns how to wait in a gate of cfg, and keep the permit.
func acquireOf(cfg sluice.Config) func(ctx context.Context, n int64) error {
	g, err := sluice.New(cfg)
	return func(ctx context.Context, n int64) error {
		if err != nil {
			return err
		}
		_, err := g.Acquire(ctx, n)
		return err
	}
}

// What one gate settles lets callers leave in another gate that has the same limiter.
func TestNotifier_SettleReachesOtherGates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := limits.Must(leaky.New(limits.Rate{Count: 1000, Per: time.Hour, Burst: 1000}))
		one := made[*sluice.Gate](t)(sluice.New(sluice.Config{Limits: []sluice.Limit{{Limiter: m}}}))
		p := made[*sluice.Permit](t)(one.Acquire(t.Context(), 1000))
		began := time.Now()
		go func() {
			time.Sleep(3 * time.Second)
			p.Settle(100)
		}()
		if err := acquireOf(sluice.Config{Limits: []sluice.Limit{{Limiter: m}}})(t.Context(), 500); err != nil {
			t.Fatal(err)
		}
		if d := time.Since(began); d != 3*time.Second {
			t.Errorf("left after %v", d)
		}
	})
}

// If less than the first call needs is given back, it waits on, and what is given back
// later reaches it, too.
func TestNotifier_TooLittleReturned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := limits.Must(window.NewSliding(window.Quota{Limit: 1000, Window: time.Hour}))
		m.Take(1000)
		began := time.Now()
		go func() {
			for range 5 {
				time.Sleep(time.Second)
				m.Adjust(context.Background(), -100, 0)
			}
		}()
		if err := queued.For(m).Acquire(t.Context(), 500); err != nil {
			t.Fatal(err)
		}
		if d := time.Since(began); d != 5*time.Second {
			t.Errorf("left after %v", d)
		}
	})
}

// An askedLimiter is a bucket that counts the calls that wait for it and how often it is
// asked.
type askedLimiter struct {
	*leaky.Bucket
	waiting, asked atomic.Int64
}

func (m *askedLimiter) Admit(ctx context.Context, n int64) (time.Duration, error) {
	m.asked.Add(1)
	return m.Bucket.Admit(ctx, n)
}

func (m *askedLimiter) OnChange(f func()) (stop func()) {
	m.waiting.Add(1)
	end := m.Bucket.OnChange(f)
	return func() {
		m.waiting.Add(-1)
		end()
	}
}

// Two gates that ask two limiters in opposite order do not wake each other with what they
// give back.
func TestNotifier_OppositeOrdersDoNotWakeEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := &askedLimiter{Bucket: limits.Must(leaky.New(limits.Rate{Count: 1, Per: time.Hour, Burst: 100}))}, &askedLimiter{Bucket: limits.Must(leaky.New(limits.Rate{Count: 1, Per: time.Hour, Burst: 100}))}
		a.Take(90)
		b.Take(90)
		ctx, cancel := context.WithTimeout(t.Context(), 1000*time.Hour)
		defer cancel()
		ended := make(chan error, 2)
		units := func(first, second limits.Limiter) []sluice.Limit {
			return []sluice.Limit{{Limiter: first, Unit: sluice.Calls}, {Limiter: second}}
		}
		for _, q := range [][]sluice.Limit{units(a, b), units(b, a)} {
			go func() {
				g, _ := sluice.New(sluice.Config{Limits: q})
				_, err := g.AcquireWithin(ctx, 12, 900*time.Hour)
				ended <- err
			}()
		}
		synctest.Wait()
		if n := a.asked.Load() + b.asked.Load(); n > 16 {
			t.Errorf("asked %d times at once", n)
		}
		a.Adjust(context.Background(), -20, 0)
		b.Adjust(context.Background(), -20, 0)
		synctest.Wait()
		for range 2 {
			select {
			case err := <-ended:
				if err != nil {
					t.Error(err)
				}
			default:
				t.Error("a call waits although both limiters have enough")
			}
		}
		if n := a.waiting.Load() + b.waiting.Load(); n != 0 {
			t.Errorf("the limiters still have %d listeners", n)
		}
	})
}

// A limiter has no listener of a call whose wait is over, however it ended.
func TestNotifier_OnlyWaitersAreRegistered(t *testing.T) {
	for name, end := range map[string]struct {
		end  func(g *sluice.Gate, m *askedLimiter, cancel func())
		want error
	}{
		"granted":   {func(g *sluice.Gate, m *askedLimiter, cancel func()) { m.Adjust(context.Background(), math.MinInt64, 0) }, nil},
		"in time":   {func(g *sluice.Gate, m *askedLimiter, cancel func()) { time.Sleep(2 * time.Hour) }, nil},
		"cancelled": {func(g *sluice.Gate, m *askedLimiter, cancel func()) { cancel() }, context.Canceled},
		"closed":    {func(g *sluice.Gate, m *askedLimiter, cancel func()) { g.Close() }, limits.ErrClosed},
		"shut down": {func(g *sluice.Gate, m *askedLimiter, cancel func()) { g.Shutdown(context.Background()) }, limits.ErrClosed},
		"too small": {func(g *sluice.Gate, m *askedLimiter, cancel func()) {
			m.SetRate(limits.Rate{Count: 1, Per: time.Hour, Burst: 5})
		}, limits.ErrTooLarge},
		"paused": {func(g *sluice.Gate, m *askedLimiter, cancel func()) {
			g.PauseUntil(time.Now().Add(time.Minute), "")
			m.Adjust(context.Background(), math.MinInt64, 0)
			time.Sleep(time.Minute)
		}, nil},
		"not enough": {func(g *sluice.Gate, m *askedLimiter, cancel func()) {
			m.Adjust(context.Background(), -1, 0)
			time.Sleep(time.Second)
			m.Adjust(context.Background(), -9, 0)
		}, nil},
	} {
		for _, parent := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					m := &askedLimiter{Bucket: limits.Must(leaky.New(limits.Rate{Count: 10, Per: time.Hour, Burst: 10}))}
					m.Take(10)
					quotas := []sluice.Limit{{Limiter: m}}
					cfg := sluice.Config{Limits: quotas}
					if parent {
						p, _ := sluice.New(cfg)
						cfg = sluice.Config{Parent: p, Limits: []sluice.Limit{{Limiter: limits.Must(leaky.New(limits.Rate{Count: 1, Per: time.Hour, Burst: 100}))}}}
					}
					g, _ := sluice.New(cfg)
					ctx, cancel := context.WithCancel(t.Context())
					defer cancel()
					ended := make(chan error, 1)
					go func() {
						_, err := g.Acquire(ctx, 10)
						ended <- err
					}()
					synctest.Wait()
					if n := m.waiting.Load(); n != 1 {
						t.Fatalf("%d noted", n)
					}
					end.end(g, m, cancel)
					synctest.Wait()
					if err := <-ended; !errors.Is(err, end.want) {
						t.Errorf("got %v, want %v", err, end.want)
					}
					synctest.Wait()
					if n := m.waiting.Load(); n != 0 {
						t.Errorf("%d still noted", n)
					}
				})
			})
		}
	}
}

// What is given back after the answer and before the call listens is not missed.
type returnsOnChange struct{ *leaky.Bucket }

func (m returnsOnChange) OnChange(f func()) func() {
	m.Adjust(context.Background(), -1, 0)
	return m.Bucket.OnChange(f)
}

func TestNotifier_ReturnBeforeRegistration(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := returnsOnChange{limits.Must(leaky.New(limits.Rate{Count: 1, Per: time.Hour, Burst: 1}))}
		m.Take(1)
		began := time.Now()
		if err := acquireOf(sluice.Config{Limits: []sluice.Limit{{Limiter: m}}})(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
		if d := time.Since(began); d != 0 {
			t.Errorf("left after %v", d)
		}
	})
}

// A limiter whose OnChange panics does not stall other calls.
type panicsOnChange struct{ *leaky.Bucket }

func (panicsOnChange) OnChange(func()) func() { panic("no") }

func TestNotifier_OnChangePanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := panicsOnChange{limits.Must(leaky.New(limits.Rate{Count: 1, Per: time.Second, Burst: 1}))}
		b := queued.For(m)
		m.Take(1)
		func() {
			defer func() {
				if recover() == nil {
					t.Error("no panic")
				}
			}()
			b.Acquire(t.Context(), 1)
		}()
		if n := b.Waiting(); n != 0 {
			t.Errorf("%d wait", n)
		}
		time.Sleep(time.Second)
		if err := b.Acquire(t.Context(), 1); err != nil {
			t.Error(err)
		}
	})
}

// # Limits of this process

// However many calls race for the places and the slots of a gate, of a parent and of their limits,
// the limits have given exactly what left.
func TestGate_LimitsOfThisProcess_GaveWhatLeft(t *testing.T) {
	const most = 1 << 20
	yield := func(context.Context) error { // others find its place taken
		runtime.Gosched()
		return nil
	}
	for _, withParent := range []bool{false, true} {
		own := limits.Must(window.NewFixed(window.Quota{Limit: most, Window: 100 * time.Hour}))
		above := limits.Must(window.NewFixed(window.Quota{Limit: most, Window: 100 * time.Hour}))
		cfg := sluice.Config{
			Concurrency: 3, Rate: sluice.Rate{Count: 1e6, Per: time.Second},
			Limits: []sluice.Limit{{Name: "own", Limiter: own}},
		}
		if withParent {
			cfg.Parent = mustGate(t, sluice.Config{Concurrency: 2, Limits: []sluice.Limit{{Name: "above", Limiter: above}}})
		}
		g := mustGate(t, cfg)
		var callers sync.WaitGroup
		for i := range 16 {
			callers.Go(func() {
				for range 500 {
					if i%4 == 0 {
						if p, ok := g.TryAcquire(1); ok {
							p.Release()
						}
					} else if err := g.Do(bg, yield); err != nil {
						t.Error(err)
					}
				}
			})
		}
		callers.Wait()
		left := int64(g.Stats().Admitted)
		if took := most - own.Take(0).Remaining; took != left {
			t.Errorf("parent %v: %d calls left, and their limit gave %d", withParent, left, took)
		}
		if took := most - above.Take(0).Remaining; withParent && took != left {
			t.Errorf("%d calls left, and the limit of the parent gave %d", left, took)
		}
		if got := g.Stats().InFlight; got != 0 {
			t.Errorf("parent %v: %d in flight", withParent, got)
		}
	}
}

// A call that the limits of its gate and of its parent let leave does not queue, so that nothing
// is allocated for a place in one.
func TestGate_LimitsOfThisProcess_NoQueue(t *testing.T) {
	bucket := limits.Must(leaky.New(sluice.Rate{Count: 1e6, Per: time.Second, Burst: 1e6}))
	limit := []sluice.Limit{{Name: "bucket", Limiter: bucket}}
	parent := mustGate(t, sluice.Config{Limits: limit})
	for name, cfg := range map[string]sluice.Config{
		"own":            {Limits: limit},
		"of the parent":  {Parent: parent},
		"own and parent": {Parent: parent, Limits: limit},
	} {
		g := mustGate(t, cfg)
		most := 0.
		if cfg.Parent != nil {
			most = 1 // the permit of the parent
		}
		if got := testing.AllocsPerRun(100, func() { _ = g.Do(bg, nothing) }); got > most {
			t.Errorf("%s: %v allocations for a call, want %v", name, got, most)
		}
	}
}
