package sluice_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/internal/testkit/synclog"
)

// herd is a rate so high that it spaces nothing: without any rate a gate starts
// slowly after each refusal.
var herd = sluice.Rate{Count: 1e9, Per: time.Second}

// each is a policy that waits d before each retry, whatever the failure.
func each(d time.Duration) sluice.RetryPolicy {
	return sluice.RetryPolicy{Backoff: sluice.Constant(d), Throttled: sluice.Constant(d)}
}

func TestRetryValue_ReturnsTheResultOfTheFunction(t *testing.T) {
	type key struct{}
	ctx := context.WithValue(bg, key{}, "value")
	g := mustGate(t, sluice.Config{})
	got, err := sluice.RetryValue(ctx, g, sluice.RetryPolicy{}, func(ctx context.Context) (string, error) {
		return ctx.Value(key{}).(string), nil
	})
	if got != "value" || err != nil {
		t.Errorf("Call = %q, %v", got, err)
	}
	var called string
	err = sluice.Retry(ctx, g, sluice.RetryPolicy{}, func(ctx context.Context) error {
		called = ctx.Value(key{}).(string)
		return nil
	})
	if called != "value" || err != nil {
		t.Errorf("Do = %v, called with %q", err, called)
	}
	if s := g.Stats(); s.Granted != 2 || s.InFlight != 0 {
		t.Errorf("afterwards: %+v", s)
	}
}

func TestRetryValue_ReturnsTheZeroValueOnFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := mustGate(t, sluice.Config{Concurrency: 1})
		partly := func(context.Context) (int, error) { return 42, sluice.Permanent(errDown) }
		if got, err := sluice.RetryValue(bg, g, sluice.RetryPolicy{}, partly); got != 0 || err == nil {
			t.Errorf("permanent: %d, %v", got, err)
		}
		partly = func(context.Context) (int, error) { return 42, errDown }
		if got, err := sluice.RetryValue(bg, g, sluice.RetryPolicy{Attempts: 2}, partly); got != 0 || err == nil {
			t.Errorf("no attempts left: %d, %v", got, err)
		}
		partly = func(context.Context) (int, error) { g.Close(); return 42, errDown }
		if got, err := sluice.RetryValue(bg, g, sluice.RetryPolicy{}, partly); got != 0 || err == nil {
			t.Errorf("closed: %d, %v", got, err)
		}
		if got, err := sluice.RetryValue(bg, g, sluice.RetryPolicy{}, partly); got != 0 || err == nil {
			t.Errorf("refused: %d, %v", got, err)
		}
	})
}

func TestRetry_EveryAttemptPassesTheGate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, s := mustGate(t, sluice.Config{Rate: sluice.Rate{Count: 1, Per: 10 * time.Second}}), newServer(down)
		err := sluice.Retry(bg, g, each(time.Second), s.call)
		s.want(t, 0, 10*time.Second, 20*time.Second, 30*time.Second)
		s.wantStop(t, err, stop{last: errDown, why: sluice.ErrAttempts, attempts: 4, at: 30 * time.Second, elapsed: 30 * time.Second})
		if s := g.Stats(); s.Granted != 4 || s.InFlight != 0 {
			t.Errorf("afterwards: %+v", s)
		}
	})
}

func TestRetry_AnAttemptCostsOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := mustGate(t, sluice.Config{ConcurrencyUnit: sluice.Cost, Rate: sluice.Rate{Count: 1, Per: time.Second}, RateUnit: sluice.Cost})
		s := newServer(down, down, func(context.Context) error {
			if got := g.Stats().InFlight; got != 1 {
				t.Errorf("%d in flight", got)
			}
			return nil
		})
		if err := sluice.Retry(bg, g, each(ms), s.call); err != nil {
			t.Error(err)
		}
		s.want(t, 0, time.Second, 2*time.Second)
	})
}

func TestRetry_HoldsNoPermitDuringBackoff(t *testing.T) {
	for name, a := range map[string]answer{"plain": down, "throttle": busy, "timeout": late} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g, l := mustGate(t, sluice.Config{Concurrency: 1, Rate: herd}), synclog.New()
				s := newServer(after(time.Second, a), fine)
				l.Call(0, func() error { return sluice.Retry(bg, g, each(10*time.Second), s.call) })
				// Others wait already, and come in the middle of the backoff.
				l.Call(1, func() error { return hold(g, 3*time.Second) })
				time.Sleep(5 * time.Second)
				if s := g.Stats(); s.InFlight != 0 || s.Waiting != 0 || s.Pacing != 0 {
					t.Errorf("during the backoff: %+v", s)
				}
				l.Call(2, func() error { return hold(g, 8*time.Second) })
				time.Sleep(time.Minute)
				l.Want(t, synclog.At(1, 4*time.Second), synclog.At(2, 13*time.Second), synclog.At(0, 13*time.Second))
				s.want(t, 0, 13*time.Second)
			})
		})
	}
}

func TestRetry_JoinsTheTailOfTheQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, l := mustGate(t, sluice.Config{Rate: sluice.Rate{Count: 1, Per: time.Second}}), synclog.New()
		s := newServer(down, fine)
		l.Call(0, func() error { return sluice.Retry(bg, g, each(1500*ms), s.call) })
		for i := 1; i <= 3; i++ {
			l.Call(i, enter(g, bg))
		}
		time.Sleep(1500*ms + 1)
		l.Call(4, enter(g, bg))
		time.Sleep(time.Minute)
		l.Want(t,
			synclog.At(1, 1*time.Second),
			synclog.At(2, 2*time.Second),
			synclog.At(3, 3*time.Second),
			synclog.At(0, 4*time.Second), // came back at 1.5 s
			synclog.At(4, 5*time.Second),
		)
		s.want(t, 0, 4*time.Second)
	})
}

func TestPermanent_IsNotRetried(t *testing.T) {
	for name, a := range map[string]answer{
		"marked":           gone,
		"of a call within": func(ctx context.Context) error { return &sluice.RetryError{Last: gone(ctx), Why: sluice.ErrPermanent} },
		"wrapped":          func(ctx context.Context) error { return fmt.Errorf("get /items/7: %w", gone(ctx)) },
		"joined":           func(ctx context.Context) error { return errors.Join(errDown, gone(ctx)) },
		"outer mark":       always(sluice.Permanent(sluice.RetryAfter(os.ErrNotExist, 0))),
		"inner mark":       always(sluice.RetryAfter(sluice.Permanent(os.ErrNotExist), 0)),
		"and late":         always(sluice.Permanent(errors.Join(os.ErrNotExist, os.ErrDeadlineExceeded))),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g, s := mustGate(t, sluice.Config{}), newServer(down, a)
				p := each(time.Second)
				p.Retryable = func(error) bool { return true }
				err := sluice.Retry(bg, g, p, s.call)
				s.want(t, 0, time.Second)
				s.wantStop(t, err, stop{last: os.ErrNotExist, why: sluice.ErrPermanent, attempts: 2, at: time.Second, elapsed: time.Second})
				if got := g.Stats().RetryTokens; got != 95 {
					t.Errorf("%d tokens left", got)
				}
			})
		})
	}
}

func TestPermanent_FirstErrorIsReturnedUnwrapped(t *testing.T) {
	never := sluice.RetryPolicy{Retryable: func(error) bool { return false }}
	cause := errors.New("550 no such user")
	for name, c := range map[string]struct {
		policy sluice.RetryPolicy
		err    error
		same   bool
	}{
		"marked":        {sluice.RetryPolicy{}, sluice.Permanent(cause), true},
		"wrapped":       {sluice.RetryPolicy{}, fmt.Errorf("send: %w", sluice.Permanent(cause)), true},
		"and throttled": {sluice.RetryPolicy{}, sluice.Permanent(sluice.RetryAfter(cause, time.Hour)), true},
		"Policy.Retry":  {never, cause, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			for how, do := range map[string]func(g *sluice.Gate, f func(context.Context) error) error{
				"Do":       func(g *sluice.Gate, f func(context.Context) error) error { return sluice.Retry(bg, g, c.policy, f) },
				"Attempts": func(g *sluice.Gate, f func(context.Context) error) error { return byHand(bg, g, c.policy, 1, 0, f) },
			} {
				g := mustGate(t, sluice.Config{Name: "smtp"})
				err := do(g, always(c.err))
				if err.Error() != c.err.Error() || !errors.Is(err, cause) || !errors.Is(err, sluice.ErrPermanent) || c.same && err != c.err {
					t.Errorf("%s, %s: %v", name, how, err)
				}
				var stopped *sluice.RetryError
				if errors.As(err, &stopped) {
					t.Errorf("%s, %s: %v", name, how, err)
				}
				// An outer Retry must not retry it either.
				n := 0
				outer := sluice.Retry(bg, mustGate(t, sluice.Config{}), sluice.RetryPolicy{}, func(context.Context) error { n++; return err })
				if n != 1 || outer != err {
					t.Errorf("%s, %s: %d attempts, %v", name, how, n, outer)
				}
			}
			// After a retry there is something to say.
			err := sluice.Retry(bg, mustGate(t, sluice.Config{}), sluice.RetryPolicy{Retryable: func(err error) bool { return err == errDown }}, newServer(down, always(c.err)).call)
			var stopped *sluice.RetryError
			if !errors.As(err, &stopped) || stopped.Why != sluice.ErrPermanent || stopped.Attempts != 2 {
				t.Errorf("%s: %v", name, err)
			}
		})
	}
}

// A permanent error of an inner Retry is not retried by an outer one.
func TestPermanent_OfACallWithinIsPermanent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all, host := mustGate(t, sluice.Config{Name: "all"}), mustGate(t, sluice.Config{Name: "host"})
		s := newServer(gone)
		err := sluice.Retry(bg, all, sluice.RetryPolicy{}, func(ctx context.Context) error {
			return sluice.Retry(ctx, host, sluice.RetryPolicy{}, s.call)
		})
		s.want(t, 0)
		if !errors.Is(err, os.ErrNotExist) || !errors.Is(err, sluice.ErrPermanent) || err.Error() != os.ErrNotExist.Error() {
			t.Error(err)
		}
	})
}

// Everything together, on the real scheduler: nothing is lost, and nothing remains.
func TestRetry_Stress(t *testing.T) {
	g := fixedGate(t, sluice.Config{Concurrency: 8, Rate: herd, RetryBudget: -1})
	p := sluice.RetryPolicy{Attempts: -1, Backoff: sluice.Constant(ms), Throttled: sluice.Constant(ms), AttemptTimeout: time.Minute}
	var inFlight, most, attempts atomic.Int64
	var calls sync.WaitGroup
	for i := range 200 {
		calls.Go(func() {
			tries := 0
			got, err := sluice.RetryValue(bg, g, p, func(context.Context) (int, error) {
				attempts.Add(1)
				n := inFlight.Add(1)
				defer inFlight.Add(-1)
				for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
				}
				runtime.Gosched()
				switch tries++; {
				case tries == 1 && i%3 == 0:
					return 0, errDown
				case tries == 1 && i%3 == 1:
					return 0, sluice.RetryAfter(errBusy, ms)
				case tries == 2 && i%3 == 1:
					return 0, sluice.RetryAt(errBusy, time.Now().Add(-1))
				}
				return i, nil
			})
			if got != i || err != nil {
				t.Errorf("call %d: %d, %v", i, got, err)
			}
		})
	}
	calls.Wait()
	if got := most.Load(); got > 8 {
		t.Errorf("%d in flight", got)
	}
	if s := g.Stats(); s.InFlight != 0 || s.Waiting != 0 || s.Pacing != 0 || s.Granted != uint64(attempts.Load()) || attempts.Load() != 200+67+2*67 {
		t.Errorf("%d attempts, afterwards: %+v", attempts.Load(), s)
	}
}
