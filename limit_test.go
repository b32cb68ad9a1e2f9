package sluice_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/internal/testkit/synclog"
	"github.com/sluice-go/sluice/limits"
	"github.com/sluice-go/sluice/semaphore"
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
		if s := g.Stats(); s.Stranded != 0 || s.Refused.Other != 1 {
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
		if s := g.Stats(); near.missing() != 0 || far.missing() != 0 || s.Stranded != 0 || s.InFlight != 0 {
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
		if s := g.Stats(); s.Stranded != 2 {
			t.Errorf("%d stranded, want 2", s.Stranded)
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
