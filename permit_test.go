package sluice_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/internal/testkit/synclog"
	"github.com/sluice-go/sluice/leaky"
	"github.com/sluice-go/sluice/limits"
	"github.com/sluice-go/sluice/semaphore"
)

// Acquire makes a permit for each call: beyond 64 bytes it takes a quarter longer.
func TestPermit_IsSmall(t *testing.T) {
	if unsafe.Sizeof(uintptr(0)) != 8 {
		t.Skip("its layout is for 64 bits")
	}
	if size := unsafe.Sizeof(sluice.Permit{}); size > 64 {
		t.Errorf("it takes %d bytes", size)
	}
}

// A caller that releases before it looks at the error loses nothing.
func TestPermit_Release_OfNilDoesNothing(t *testing.T) {
	g := mustGate(t, sluice.Config{Concurrency: 1})
	p, _ := g.Acquire(bg, 1)
	q, ok := g.TryAcquire(1)
	q.Release()
	if s := g.Stats(); ok || s.InFlight != 1 {
		t.Errorf("%v, %+v", ok, s)
	}
	p.Release()
}

func TestPermit_ReleaseAndSettleCountOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := mustGate(t, sluice.Config{Concurrency: 10, ConcurrencyUnit: sluice.Cost, Rate: tenPerSecond, RateUnit: sluice.Cost})
		p, _ := g.Acquire(bg, 4)
		q, _ := g.Acquire(bg, 2) // at 400 ms
		p.Release()
		p.Release()
		if s := g.Stats(); s.InFlight != 2 {
			t.Errorf("released twice: %d in flight, want 2", s.InFlight)
		}
		slot := func() time.Duration { return time.Until(g.Stats().NextSlot) }
		if got := slot(); got != 200*ms {
			t.Errorf("next slot in %v", got)
		}
		q.Settle(12) // debt, beyond the limit of 10 in flight, too
		q.Settle(1)
		if s := g.Stats(); s.InFlight != 12 || slot() != 1200*ms {
			t.Errorf("settled upwards: %d in flight, next slot in %v", s.InFlight, slot())
		}
		p.Settle(1) // after Release: 3 too many were taken
		if s := g.Stats(); s.InFlight != 12 || slot() != 900*ms {
			t.Errorf("settled downwards: %d in flight, next slot in %v", s.InFlight, slot())
		}
		q.Release()
		if s := g.Stats(); s.InFlight != 0 {
			t.Errorf("%d in flight after all was released", s.InFlight)
		}
	})
}

// # Permits of a semaphore

// shared is a semaphore as if it were on another machine.
type shared struct {
	*semaphore.Weighted
	lost chan struct{}
}

func (s shared) Acquire(ctx context.Context, n int64, longest time.Duration) (limits.Lease, error) {
	if err := s.AcquireWithin(ctx, n, longest); err != nil {
		return nil, err
	}
	return lease{s, n}, nil
}

type lease struct {
	shared
	n int64
}

func (l lease) Release()              { l.Weighted.Release(l.n) }
func (l lease) Lost() <-chan struct{} { return l.lost }

func TestConfig_Semaphore_Remote(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sem := shared{semaphore.NewWeighted(2), nil}
		g := mustGate(t, sluice.Config{Name: "api", Semaphore: sem, Rate: tenPerSecond})
		l := synclog.New()
		for i := range 3 {
			l.Call(i, func() error { return hold(g, time.Second) })
		}
		if _, ok := g.TryAcquire(1); ok {
			t.Error("overtook")
		}
		if _, err := g.AcquireWithin(bg, 1, 500*ms); !errors.Is(err, limits.ErrTimeout) {
			t.Errorf("AcquireWithin: %v", err)
		}
		// A permit in time, but then the slot is too late: the permit goes back.
		g.PauseUntil(time.Now().Add(time.Hour), "")
		sem.SetLimit(10)
		var wait *limits.WaitError
		if _, err := g.AcquireWithin(bg, 1, time.Second); !errors.As(err, &wait) {
			t.Errorf("AcquireWithin of a paused gate: %v", err)
		}
		g.Resume()
		time.Sleep(time.Minute)
		l.Want(t, synclog.At(0, time.Second), synclog.At(1, 1100*ms), synclog.At(2, 1500*ms))
		if sem.InFlight() != 0 {
			t.Errorf("%d permits lost", sem.InFlight())
		}
	})
}

func TestConfig_Semaphore_LostLeaseEndsTheCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sem := shared{semaphore.NewWeighted(2), make(chan struct{})}
		g := mustGate(t, sluice.Config{Semaphore: sem})
		call := func(ctx context.Context) error {
			<-ctx.Done()
			return context.Cause(ctx)
		}
		var errDo, errCall error
		var wg sync.WaitGroup
		wg.Go(func() { errDo = g.Do(bg, call) })
		wg.Go(func() { errCall = sluice.Retry(bg, g, call, sluice.RetryPolicy{Attempts: 1}) })
		synctest.Wait()
		close(sem.lost)
		wg.Wait()
		if errDo != limits.ErrLeaseLost || !errors.Is(errCall, limits.ErrLeaseLost) {
			t.Errorf("Gate.Do: %v, Do: %v", errDo, errCall)
		}
		// A call that is done leaves no goroutine that waits for the loss.
		sem.lost = make(chan struct{})
		g = mustGate(t, sluice.Config{Semaphore: sem})
		if err := g.Do(bg, func(context.Context) error { return nil }); err != nil {
			t.Error(err)
		}
	})
}

// What a call waited for its permit counts for AcquireWithin.
func TestConfig_Semaphore_WaitIsPartOfAcquireWithin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sem := semaphore.NewWeighted(1)
		g := mustGate(t, sluice.Config{Rate: sluice.Rate{Count: 1, Per: 12 * time.Second}, Semaphore: shared{sem, nil}})
		hold(g, 0)
		sem.TryAcquire(1)
		time.AfterFunc(6*time.Second, func() { sem.Release(1) })
		start := time.Now()
		_, err := g.AcquireWithin(bg, 1, 10*time.Second)
		var wait *limits.WaitError
		if !errors.As(err, &wait) || wait.Need != 6*time.Second || wait.Have != 4*time.Second || time.Since(start) != 6*time.Second {
			t.Errorf("%v after %v", err, time.Since(start))
		}
		if sem.InFlight() != 0 {
			t.Error("the permit was not given back")
		}
	})
}

// # Costs

// tokensAnd returns a gate with a bucket of 100 tokens and one of 10 of another unit, which
// both need an hour for one more.
func tokensAnd(t testing.TB, cfg sluice.Config) (g *sluice.Gate, tokens, other *leaky.Bucket) {
	t.Helper()
	tokens = limits.Must(leaky.New(sluice.Rate{Count: 1, Per: time.Hour, Burst: 100}))
	other = limits.Must(leaky.New(sluice.Rate{Count: 1, Per: time.Hour, Burst: 10}))
	cfg.Limits = append(cfg.Limits,
		sluice.Limit{Name: "tokens", Unit: "tokens", Limiter: tokens}, sluice.Limit{Name: "other", Unit: "other", Limiter: other})
	return mustGate(t, cfg), tokens, other
}

func wantLeft(t testing.TB, b *leaky.Bucket, want int64) {
	t.Helper()
	if got := b.Take(0).Remaining; got != want {
		t.Errorf("%d remain, want %d", got, want)
	}
}

func TestWithCosts_TakesOfEachUnitOrOfNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, tokens, other := tokensAnd(t, sluice.Config{})
		ctx := sluice.WithCosts(t.Context(), sluice.Costs{"tokens": 60, "other": 6})
		if _, err := g.Acquire(ctx, 1); err != nil {
			t.Fatal(err)
		}
		wantLeft(t, tokens, 40)
		wantLeft(t, other, 4)
		// The second unit refuses, so nothing of the first is taken.
		small := sluice.WithCosts(t.Context(), sluice.Costs{"tokens": 1, "other": 5})
		var wait *limits.WaitError
		if _, err := g.AcquireWithin(small, 1, time.Minute); !errors.As(err, &wait) || wait.For != "limit other" || wait.Need != time.Hour {
			t.Errorf("refused with %v", err)
		}
		// A call takes nothing of a unit that it does not name, and does not wait for it.
		if _, err := g.AcquireWithin(sluice.WithCosts(ctx, sluice.Costs{"tokens": 40}), 7, 0); err != nil {
			t.Error(err)
		}
		if _, err := g.AcquireWithin(t.Context(), 7, 0); err != nil {
			t.Error(err)
		}
		wantLeft(t, tokens, 0)
		wantLeft(t, other, 4)
		// More than the limit can never be had.
		if _, err := g.Acquire(sluice.WithCosts(ctx, sluice.Costs{"other": 11}), 1); !errors.Is(err, limits.ErrTooLarge) {
			t.Errorf("11 of 10: %v", err)
		}
	})
}

// A call that is cancelled while it waits for one unit gives back what it took of others,
// and the next one in the queue comes first.
func TestWithCosts_CancelGivesBackInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		parent, _, parents := tokensAnd(t, sluice.Config{Name: "parent"})
		g, tokens, _ := tokensAnd(t, sluice.Config{Name: "gate", Parent: parent})
		parents.Take(10)
		ctx, cancel := context.WithCancel(sluice.WithCosts(t.Context(), sluice.Costs{"tokens": 90, "other": 1}))
		first, second := make(chan error, 1), make(chan error, 1)
		go func() {
			_, err := g.Acquire(ctx, 1)
			first <- err
		}()
		synctest.Wait()
		go func() {
			_, err := g.Acquire(sluice.WithCosts(t.Context(), sluice.Costs{"tokens": 100}), 1)
			second <- err
		}()
		synctest.Wait()
		if len(first)+len(second) > 0 {
			t.Fatal("a call ended before the cancel")
		}
		wantLeft(t, tokens, 100)
		cancel()
		synctest.Wait()
		if len(first)+len(second) < 2 {
			t.Fatal("a call still waits")
		}
		if err := <-first; !errors.Is(err, context.Canceled) {
			t.Errorf("first: %v", err)
		}
		if err := <-second; err != nil {
			t.Errorf("second: %v", err)
		}
		wantLeft(t, tokens, 0)
	})
}

func TestWithCosts_PanicsForNegativeAmounts(t *testing.T) {
	g, _, _ := tokensAnd(t, sluice.Config{})
	p, _ := g.TryAcquire(1)
	for name, f := range map[string]func(){
		"WithCosts":   func() { sluice.WithCosts(bg, sluice.Costs{"tokens": -1}) },
		"SettleCosts": func() { p.SettleCosts(sluice.Costs{"tokens": -1}) },
	} {
		func() {
			defer func() {
				if got := recover(); got != "sluice: tokens < 0: -1" {
					t.Errorf("%s: panic %v", name, got)
				}
			}()
			f()
		}()
	}
}

// What is given back reaches the caller that waits, at once, also if the limit does not
// report it.
func TestPermit_SettleCosts_WakesThoseWhoWait(t *testing.T) {
	for name, hide := range map[string]func(l limits.Limiter) limits.Limiter{
		"notifier": func(l limits.Limiter) limits.Limiter { return l },
		"other":    func(l limits.Limiter) limits.Limiter { return struct{ limits.Limiter }{l} },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tokens := limits.Must(leaky.New(sluice.Rate{Count: 1, Per: time.Hour, Burst: 100}))
				parent := mustGate(t, sluice.Config{Limits: []sluice.Limit{{Unit: "tokens", Limiter: hide(tokens)}}})
				g := mustGate(t, sluice.Config{Parent: parent})
				p, err := g.Acquire(sluice.WithCosts(t.Context(), sluice.Costs{"tokens": 100}), 1)
				if err != nil {
					t.Fatal(err)
				}
				time.AfterFunc(time.Second, func() { p.SettleCosts(sluice.Costs{"tokens": 30}) })
				began := time.Now()
				if _, err := g.Acquire(sluice.WithCosts(t.Context(), sluice.Costs{"tokens": 70}), 1); err != nil {
					t.Error(err)
				}
				if d := time.Since(began); d != time.Second {
					t.Errorf("left after %v", d)
				}
			})
		})
	}
}

func TestPermit_SettleCosts_CountsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cost := limits.Must(leaky.New(sluice.Rate{Count: 1, Per: time.Hour, Burst: 100}))
		g, tokens, other := tokensAnd(t, sluice.Config{Limits: []sluice.Limit{{Limiter: cost}}})
		p, err := g.Acquire(sluice.WithCosts(t.Context(), sluice.Costs{"tokens": 60}), 20)
		if err != nil {
			t.Fatal(err)
		}
		p.Release()
		// Before and after Release are the same. One that was not estimated is debt.
		p.SettleCosts(sluice.Costs{"tokens": 70, "other": 12, sluice.Cost: 5, sluice.Calls: 9, "unknown": 3})
		for range 2 {
			wantLeft(t, tokens, 30)
			wantLeft(t, other, 0)
			wantLeft(t, cost, 95)
			p.SettleCosts(sluice.Costs{"tokens": 0, sluice.Cost: 0})
			p.Settle(0)
		}
		if wait := other.Take(1).RetryAfter; wait != 3*time.Hour {
			t.Errorf("one more after %v, want 3 h", wait)
		}
		nothing, err := g.Acquire(sluice.WithCosts(t.Context(), sluice.Costs{"tokens": 60}), 0)
		if err != nil {
			t.Fatal(err)
		}
		nothing.SettleCosts(sluice.Costs{"tokens": 1})
		wantLeft(t, tokens, 30)
	})
}

// A retry takes its costs anew.
func TestWithCosts_EachAttemptTakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, tokens, _ := tokensAnd(t, sluice.Config{})
		n := 0
		err := sluice.Retry(sluice.WithCosts(t.Context(), sluice.Costs{"tokens": 20}), g, func(context.Context) error {
			if n++; n < 3 {
				return errors.New("again")
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		wantLeft(t, tokens, 40)
	})
}
