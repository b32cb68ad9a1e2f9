package sluice_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/leaky"
	"github.com/sluice-go/sluice/limits"
)

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
