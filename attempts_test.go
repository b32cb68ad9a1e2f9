package sluice_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice"
)

// byHand is Retry, but its permits are held for hold after the answer has come.
func byHand(ctx context.Context, g *sluice.Gate, p sluice.RetryPolicy, n int64, hold time.Duration, f func(context.Context) error) error {
	a := sluice.NewRetryLoop(g, p)
	for {
		permit, err := a.Next(ctx, n)
		if err != nil {
			return err
		}
		again, err := a.Done(ctx, f(ctx))
		if err == nil && !again {
			time.AfterFunc(hold, permit.Release)
			return nil
		}
		permit.Release()
		if err != nil {
			return err
		}
	}
}

func TestAttempts_AreThoseOfRetry(t *testing.T) {
	policy := sluice.RetryPolicy{
		Attempts: 3, MaxServerWait: time.Minute, MaxElapsed: 10 * time.Minute,
		Backoff: sluice.Constant(2 * time.Second), ThrottleBackoff: sluice.Constant(5 * time.Second),
	}
	for name, answers := range map[string][]answer{
		"fine":             {fine},
		"down twice":       {down, down, fine},
		"down":             {down},
		"gone":             {gone},
		"busy":             {busy, busy, fine},
		"with a time":      {retryAfter(7 * time.Second), retryAfter(3 * time.Second), down, fine},
		"with a long time": {retryAfter(time.Hour)},
		"late":             {after(time.Second, late), fine},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cfg := sluice.Config{Name: "api", Concurrency: 1, Rate: sluice.Rate{Count: 1, Per: time.Second}}
				g, h := mustGate(t, cfg), mustGate(t, cfg)
				ctx, cancel := context.WithTimeout(bg, 5*time.Minute)
				defer cancel()

				one := newServer(answers...)
				want := sluice.Retry(ctx, g, one.call, policy)
				two := newServer(answers...)
				got := byHand(ctx, h, policy, 1, 0, two.call)

				two.want(t, one.attempts()...)
				synctest.Wait() // the permit is released by a timer
				switch {
				case (got == nil) != (want == nil):
					t.Errorf("got %v, want %v", got, want)
				case name == "gone": // permanent at once: the error is returned unwrapped
					if got != want {
						t.Errorf("got %v, want %v", got, want)
					}
				case got != nil:
					var a, b *sluice.RetryError
					if !errors.As(got, &a) || !errors.As(want, &b) || a.Why.Error() != b.Why.Error() || a.Attempts != b.Attempts ||
						a.Elapsed != b.Elapsed || a.RetryAt.IsZero() != b.RetryAt.IsZero() {
						t.Errorf("got %+v, want %+v", got, want)
					}
				}
				if a, b := h.Stats(), g.Stats(); a.RetryTokens != b.RetryTokens || a.InFlight != 0 {
					t.Errorf("%d tokens are left and %d in flight, want %d and none", a.RetryTokens, a.InFlight, b.RetryTokens)
				}
			})
		})
	}
}

func TestAttempts_Next_PermitMayOutliveTheAttempts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := mustGate(t, sluice.Config{Concurrency: 10, ConcurrencyUnit: sluice.Cost})
		policy := sluice.RetryPolicy{Backoff: sluice.Constant(time.Second)}
		s := newServer(down, fine, fine)
		if err := byHand(bg, g, policy, 7, time.Minute, s.call); err != nil {
			t.Fatal(err)
		}
		if got := g.Stats().InFlight; got != 7 {
			t.Errorf("%d in flight while the answer is read, want 7", got)
		}
		if err := byHand(bg, g, policy, 4, 0, s.call); err != nil {
			t.Fatal(err)
		}
		s.want(t, 0, time.Second, time.Minute+time.Second) // 4 have room when 7 are back
	})
}

func TestAttempts_NextIn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := mustGate(t, sluice.Config{Concurrency: 1})
		a := sluice.NewRetryLoop(g, sluice.RetryPolicy{Backoff: sluice.Constant(time.Second)})
		var first, second, third struct{ permit sluice.Permit }
		if err := a.NextIn(bg, 1, &first.permit); err != nil {
			t.Fatal(err)
		}
		if again, err := a.Done(bg, errors.New("down")); !again {
			t.Fatalf("no other attempt: %v", err)
		}
		if n := g.Stats().InFlight; n != 1 {
			t.Errorf("%d in flight, want 1", n)
		}
		first.permit.Release()
		if err := a.NextIn(bg, 1, &second.permit); err != nil {
			t.Fatal(err)
		}
		first.permit.Release() // has no effect any more
		refused := sluice.NewRetryLoop(g, sluice.RetryPolicy{})
		ctx, cancel := context.WithTimeout(bg, time.Second)
		defer cancel()
		if err := refused.NextIn(ctx, 1, &third.permit); err != context.DeadlineExceeded {
			t.Errorf("got %v, want DeadlineExceeded", err)
		}
		third.permit.Release() // is no permit
		if n := g.Stats().InFlight; n != 1 {
			t.Errorf("%d in flight, want 1", n)
		}
		second.permit.Release()
		if n := g.Stats().InFlight; n != 0 {
			t.Errorf("%d in flight after the last release", n)
		}
	})
}

// If the observer panics, the permit is given back, and only once, although its owner has it.
func TestAttempts_NextIn_ObserverPanics(t *testing.T) {
	for name, cfg := range map[string]sluice.Config{
		"alone":         {},
		"with a parent": {Parent: mustGate(t, sluice.Config{Concurrency: 2})},
		"cost":          {ConcurrencyUnit: sluice.Cost},
	} {
		t.Run(name, func(t *testing.T) {
			armed := false
			cfg.Concurrency = 2
			cfg.Observer = func(e sluice.Event) {
				if e.Kind == sluice.EventAdmitted && armed {
					panic("mine")
				}
			}
			g := mustGate(t, cfg)
			held := must(g.Acquire(bg, 1))
			armed = true
			a := sluice.NewRetryLoop(g, sluice.RetryPolicy{})
			var p sluice.Permit
			func() {
				defer func() {
					if recover() != "mine" {
						t.Error("the panic did not propagate")
					}
				}()
				_ = a.NextIn(bg, 1, &p)
			}()
			armed = false
			p.Release()
			for gate, of := g, "gate"; gate != nil; gate, of, cfg.Parent = cfg.Parent, "parent", nil {
				if n := gate.Stats().InFlight; n != 1 {
					t.Errorf("the %s has %d in flight, want the one of another call", of, n)
				}
			}
			held.Release()
		})
	}
}

func TestAttempts_NextIn_Allocations(t *testing.T) {
	g := mustGate(t, sluice.Config{Concurrency: 1000})
	var permits [200]sluice.Permit
	next := 0
	if n := testing.AllocsPerRun(100, func() {
		a := sluice.NewRetryLoop(g, sluice.RetryPolicy{})
		if a.NextIn(bg, 1, &permits[next]) != nil {
			t.Fatal("refused")
		}
		next++
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestAttempts_Next_HoldsNoPermitDuringBackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := mustGate(t, sluice.Config{Concurrency: 1})
		s := newServer(down, fine)
		done := make(chan error)
		go func() { done <- byHand(bg, g, sluice.RetryPolicy{Backoff: sluice.Constant(time.Minute)}, 1, 0, s.call) }()
		time.Sleep(time.Second)
		if p, ok := g.TryAcquire(1); !ok {
			t.Error("no room while the only call waits for its backoff")
		} else {
			p.Release()
		}
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func TestAttempts_Ended_PausesTheGateBeforeRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := mustGate(t, sluice.Config{Concurrency: 1})
		start := time.Now()
		a := sluice.NewRetryLoop(g, sluice.RetryPolicy{})
		p, err := a.Next(bg, 1)
		if err != nil {
			t.Fatal(err)
		}
		next := make(chan time.Duration)
		go func() {
			p, err := g.Acquire(bg, 1)
			if err != nil {
				t.Error(err)
			} else {
				p.Release()
			}
			next <- time.Since(start)
		}()
		synctest.Wait()
		if again, err := a.Done(bg, sluice.ThrottledFor(errBusy, time.Minute)); !again {
			t.Error(err)
		}
		p.Release()
		if got := <-next; got != time.Minute {
			t.Errorf("the next call left at %v, want 1m", got)
		}
	})
}

func TestAttempts_Next_SleepsOncePerFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := mustGate(t, sluice.Config{})
		a := sluice.NewRetryLoop(g, sluice.RetryPolicy{Backoff: sluice.Constant(time.Second)})
		start := time.Now()
		mustNext := func() {
			t.Helper()
			if _, err := a.Next(bg, 0); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Hour) // before the first attempt; does not count
		mustNext()
		if again, err := a.Done(bg, errDown); !again {
			t.Fatal(err)
		}
		mustNext()
		mustNext()
		if got := time.Since(start); got != time.Hour+time.Second {
			t.Errorf("at %v, want 1h0m1s", got)
		}
	})
}

func TestAttempts_Charge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := mustGate(t, sluice.Config{RetryBudget: 12})
		policy := sluice.RetryPolicy{Backoff: sluice.Constant(time.Minute)}
		start := time.Now()
		call := func(s answer) error {
			a := sluice.NewRetryLoop(g, policy)
			a.ChargeRetry()
			p, err := a.Next(bg, 1)
			if err != nil {
				return err
			}
			defer p.Release()
			_, err = a.Done(bg, sluice.Permanent(s(bg)))
			return err
		}
		want := func(tokens int, spacing, at time.Duration) {
			t.Helper()
			if s := g.Stats(); s.RetryTokens != tokens || s.Spacing != spacing || time.Since(start) != at {
				t.Errorf("%d tokens, spacing %v at %v; want %d, %v, %v", s.RetryTokens, s.Spacing, time.Since(start), tokens, spacing, at)
			}
		}
		if err := call(fine); err != nil {
			t.Error(err)
		}
		want(12, 0, 0) // 5 paid and, since it was a retry, 5 back
		for range 2 {
			if err := call(down); !errors.Is(err, sluice.ErrPermanent) {
				t.Error(err)
			}
		}
		want(2, 0, 0)
		// Nothing left to pay with: it goes ahead, but those after it are spaced.
		if err := call(down); !errors.Is(err, sluice.ErrPermanent) {
			t.Error(err)
		}
		// The 30 s that it waited have halved the spacing and put a token back, and its
		// answer has halved the spacing once more.
		want(3, 7500*ms, 30*time.Second)
	})
}
