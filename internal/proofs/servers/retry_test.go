package servers_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/internal/testkit/synclog"
	"github.com/sluice-go/sluice/limits"
)

// herd is a rate so high that it spaces nothing: without any rate a gate starts
// slowly after each refusal.
var herd = sluice.Rate{Count: 1e9, Per: time.Second}

// each is a policy that waits d before each retry, whatever the failure.
func each(d time.Duration) sluice.RetryPolicy {
	return sluice.RetryPolicy{Backoff: sluice.Constant(d), ThrottleBackoff: sluice.Constant(d)}
}

func TestRetryValue_ReturnsTheResultOfTheFunction(t *testing.T) {
	type key struct{}
	ctx := context.WithValue(bg, key{}, "value")
	g := mustGate(t, sluice.Config{})
	got, err := sluice.RetryValue(ctx, g, func(ctx context.Context) (string, error) {
		return ctx.Value(key{}).(string), nil
	})
	if got != "value" || err != nil {
		t.Errorf("Call = %q, %v", got, err)
	}
	var called string
	err = sluice.Retry(ctx, g, func(ctx context.Context) error {
		called = ctx.Value(key{}).(string)
		return nil
	})
	if called != "value" || err != nil {
		t.Errorf("Do = %v, called with %q", err, called)
	}
	if s := g.Stats(); s.Admitted != 2 || s.InFlight != 0 {
		t.Errorf("afterwards: %+v", s)
	}
}

func TestRetryValue_ReturnsTheZeroValueOnFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := mustGate(t, sluice.Config{Concurrency: 1})
		partly := func(context.Context) (int, error) { return 42, sluice.Permanent(errDown) }
		if got, err := sluice.RetryValue(bg, g, partly); got != 0 || err == nil {
			t.Errorf("permanent: %d, %v", got, err)
		}
		partly = func(context.Context) (int, error) { return 42, errDown }
		if got, err := sluice.RetryValue(bg, g, partly, sluice.RetryPolicy{Attempts: 2}); got != 0 || err == nil {
			t.Errorf("no attempts left: %d, %v", got, err)
		}
		partly = func(context.Context) (int, error) { g.Close(); return 42, errDown }
		if got, err := sluice.RetryValue(bg, g, partly); got != 0 || err == nil {
			t.Errorf("closed: %d, %v", got, err)
		}
		if got, err := sluice.RetryValue(bg, g, partly); got != 0 || err == nil {
			t.Errorf("refused: %d, %v", got, err)
		}
	})
}

func TestRetry_EveryAttemptPassesTheGate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, s := mustGate(t, sluice.Config{Rate: sluice.Rate{Count: 1, Per: 10 * time.Second}}), newServer(down)
		err := sluice.Retry(bg, g, s.call, each(time.Second))
		s.want(t, 0, 10*time.Second, 20*time.Second, 30*time.Second)
		s.wantStop(t, err, stop{last: errDown, why: sluice.ErrAttempts, attempts: 4, at: 30 * time.Second, elapsed: 30 * time.Second})
		if s := g.Stats(); s.Admitted != 4 || s.InFlight != 0 {
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
		if err := sluice.Retry(bg, g, s.call, each(ms)); err != nil {
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
				l.Call(0, func() error { return sluice.Retry(bg, g, s.call, each(10*time.Second)) })
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
		l.Call(0, func() error { return sluice.Retry(bg, g, s.call, each(1500*ms)) })
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
		"outer mark":       always(sluice.Permanent(sluice.ThrottledFor(os.ErrNotExist, 0))),
		"inner mark":       always(sluice.ThrottledFor(sluice.Permanent(os.ErrNotExist), 0)),
		"and late":         always(sluice.Permanent(errors.Join(os.ErrNotExist, os.ErrDeadlineExceeded))),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g, s := mustGate(t, sluice.Config{}), newServer(down, a)
				p := each(time.Second)
				p.Retryable = func(error) bool { return true }
				err := sluice.Retry(bg, g, s.call, p)
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
		"and throttled": {sluice.RetryPolicy{}, sluice.Permanent(sluice.ThrottledFor(cause, time.Hour)), true},
		"Policy.Retry":  {never, cause, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			for how, do := range map[string]func(g *sluice.Gate, f func(context.Context) error) error{
				"Do":       func(g *sluice.Gate, f func(context.Context) error) error { return sluice.Retry(bg, g, f, c.policy) },
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
				outer := sluice.Retry(bg, mustGate(t, sluice.Config{}), func(context.Context) error { n++; return err })
				if n != 1 || outer != err {
					t.Errorf("%s, %s: %d attempts, %v", name, how, n, outer)
				}
			}
			// After a retry there is something to say.
			err := sluice.Retry(bg, mustGate(t, sluice.Config{}), newServer(down, always(c.err)).call, sluice.RetryPolicy{Retryable: func(err error) bool { return err == errDown }})
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
		err := sluice.Retry(bg, all, func(ctx context.Context) error {
			return sluice.Retry(ctx, host, s.call)
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
	p := sluice.RetryPolicy{Attempts: -1, Backoff: sluice.Constant(ms), ThrottleBackoff: sluice.Constant(ms), AttemptTimeout: time.Minute}
	var inFlight, most, attempts atomic.Int64
	var calls sync.WaitGroup
	for i := range 200 {
		calls.Go(func() {
			tries := 0
			got, err := sluice.RetryValue(bg, g, func(context.Context) (int, error) {
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
					return 0, sluice.ThrottledFor(errBusy, ms)
				case tries == 2 && i%3 == 1:
					return 0, sluice.ThrottledFor(errBusy, -1)
				}
				return i, nil
			}, p)
			if got != i || err != nil {
				t.Errorf("call %d: %d, %v", i, got, err)
			}
		})
	}
	calls.Wait()
	if got := most.Load(); got > 8 {
		t.Errorf("%d in flight", got)
	}
	if s := g.Stats(); s.InFlight != 0 || s.Waiting != 0 || s.Pacing != 0 || s.Admitted != uint64(attempts.Load()) || attempts.Load() != 200+67+2*67 {
		t.Errorf("%d attempts, afterwards: %+v", attempts.Load(), s)
	}
}

// # The place of a refused call

// An inLine is a gate with a rate of 10/s, and the order in which calls leave it.
type inLine struct {
	*synclog.Log
	gate *sluice.Gate

	mu   sync.Mutex
	left []int
}

// call has a caller make a call, whose answers take takes and are answers, one after the other, and
// then successes.
func (l *inLine) call(ctx context.Context, caller int, takes time.Duration, answers ...func() error) {
	l.Call(caller, func() error {
		return sluice.Retry(ctx, l.gate, func(context.Context) (err error) {
			l.mu.Lock()
			l.left = append(l.left, caller)
			l.mu.Unlock()
			time.Sleep(takes)
			if len(answers) > 0 {
				err, answers = answers[0](), answers[1:]
			}
			return err
		}, sluice.RetryPolicy{Backoff: sluice.Constant(ms)})
	})
}

func busyFor(d time.Duration) func() error {
	return func() error { return sluice.ThrottledFor(errBusy, d) }
}

func (l *inLine) want(t *testing.T, left ...int) {
	t.Helper()
	time.Sleep(time.Hour)
	l.mu.Lock()
	defer l.mu.Unlock()
	if !slices.Equal(l.left, left) {
		t.Errorf("left in the order\n\t%v, want\n\t%v", l.left, left)
	}
}

// A call that the server has refused goes behind as many as it was refused times, and there among
// the refused ones in the order in which they left first.
func TestRetry_PlaceOfARefusedCall(t *testing.T) {
	busy, fails := busyFor(time.Second), func() error { return errDown }
	for name, c := range map[string]struct {
		calls func(l *inLine)
		want  []int
	}{
		"one": {func(l *inLine) {
			l.call(bg, 0, 50*ms, busy)
		}, []int{0, 3, 0, 4, 5, 6, 7, 8}},
		"two, answered in their order": {func(l *inLine) {
			l.call(bg, 0, 150*ms, busy)
			l.call(bg, 1, 150*ms, busy)
		}, []int{0, 1, 3, 0, 1, 4, 5, 6, 7, 8}},
		"two, answered in the other order": {func(l *inLine) {
			l.call(bg, 0, 400*ms, busy)
			l.call(bg, 1, 10*ms, busy)
		}, []int{0, 1, 3, 0, 1, 4, 5, 6, 7, 8}},
		"one, answered late": {func(l *inLine) {
			l.call(bg, 0, 350*ms, busy)
		}, []int{0, 3, 4, 5, 6, 0, 7, 8}},
		"one, three times": {func(l *inLine) {
			l.call(bg, 0, 50*ms, busy, busy, busy)
		}, []int{0, 3, 0, 4, 5, 0, 6, 7, 8, 0}},
		"one that also fails": {func(l *inLine) {
			l.call(bg, 0, 50*ms, fails)
		}, []int{0, 3, 4, 5, 6, 7, 8, 0}},
		"one that is refused and then fails": {func(l *inLine) {
			l.call(bg, 0, 50*ms, busy, fails)
		}, []int{0, 3, 0, 4, 5, 6, 7, 8, 0}},
	} {
		for level, parent := range map[string]sluice.Config{"": {}, " in a parent": {Rate: tenPerSecond}} {
			t.Run(name+level, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					cfg := sluice.Config{Rate: tenPerSecond, Adaptive: sluice.Adaptive{Disabled: true}}
					if level != "" {
						cfg.Rate, cfg.Parent = sluice.Rate{}, mustGate(t, parent)
					}
					l := &inLine{Log: synclog.New(), gate: mustGate(t, cfg)}
					c.calls(l)
					for caller := 3; caller < 9; caller++ {
						l.call(bg, caller, 10*ms)
					}
					l.want(t, c.want...)
				})
			})
		}
	}
}

// With a deadline a refused call keeps its place. It waited behind all others, and failed with the
// refusal when that would have taken too long.
func TestRetry_ARefusedCallWithADeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(bg, time.Minute)
		defer cancel()
		l := &inLine{Log: synclog.New(), gate: fixedGate(t, sluice.Config{Rate: tenPerSecond})}
		for caller := range 600 { // the last slot before the deadline is taken, too
			var answers []func() error
			if caller%100 == 50 {
				answers = []func() error{busyFor(10 * ms)}
			}
			l.call(ctx, caller, ms, answers...)
		}
		time.Sleep(time.Minute)
		for _, left := range l.Sofar() {
			if left.Err != nil && left.Caller%100 == 50 {
				t.Errorf("call %d, which was refused, at %v: %v", left.Caller, left.At, left.Err)
			}
		}
	})
}

// Those that a refused call goes ahead of fail at once if they are too late by that.
func TestRetry_ARefusedCallDelaysOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &inLine{Log: synclog.New(), gate: fixedGate(t, sluice.Config{Rate: tenPerSecond})}
		l.call(bg, 0, 50*ms, busyFor(50*ms)) // its wait is over at its next slot
		l.call(bg, 1, ms)
		l.Call(2, func() error {
			_, err := l.gate.AcquireWithin(bg, 1, 250*ms)
			return err
		})
		l.want(t, 0, 1, 0)
		for _, left := range l.Sofar() {
			if left.Caller == 2 && (left.At != 50*ms || !errors.Is(left.Err, context.DeadlineExceeded)) {
				t.Errorf("the call behind it ended at %v with %v, want at 50ms", left.At, left.Err)
			}
		}
	})
}

// # What ends retries

func TestRetry_Cancel_BeforeTheFirstAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, s := mustGate(t, sluice.Config{Name: "api", Rate: tenPerSecond}), newServer(fine)
		ctx, cancel := context.WithCancel(bg)
		cancel()
		if err := sluice.Retry(ctx, g, s.call); err != context.Canceled {
			t.Errorf("cancelled: %v", err)
		}
		ctx, cancel = context.WithTimeout(bg, -1)
		defer cancel()
		if err := sluice.Retry(ctx, g, s.call); err != context.DeadlineExceeded {
			t.Errorf("too late: %v", err)
		}
		s.want(t)
		if _, ok := g.TryAcquire(1); !ok || g.Stats().Admitted != 1 {
			t.Error("the slot was taken")
		}
	})
}

func TestRetry_Cancel_DuringTheAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := mustGate(t, sluice.Config{})
		ctx, cancel := context.WithCancel(bg)
		stubborn := func(context.Context) error {
			time.Sleep(time.Second)
			cancel()
			time.Sleep(time.Second)
			return errDown
		}
		s := newServer(down, stubborn)
		err := sluice.Retry(ctx, g, s.call, each(time.Second))
		s.want(t, 0, time.Second)
		s.wantStop(t, err, stop{last: errDown, why: context.Canceled, attempts: 2, at: 3 * time.Second, elapsed: 3 * time.Second})
		if got := g.Stats(); got.RetryTokens != 95 || got.InFlight != 0 {
			t.Errorf("afterwards: %+v", got)
		}

		ctx, cancel = context.WithCancel(bg)
		got, err := sluice.RetryValue(ctx, g, func(context.Context) (int, error) {
			cancel()
			return 42, nil
		})
		if got != 42 || err != nil {
			t.Errorf("a call that succeeds all the same: %d, %v", got, err)
		}
	})
}

func TestRetry_Cancel_DuringBackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, s := mustGate(t, sluice.Config{}), newServer(down)
		ctx, cancel := context.WithCancel(bg)
		time.AfterFunc(4*time.Second, cancel)
		err := sluice.Retry(ctx, g, s.call, each(10*time.Second))
		s.want(t, 0)
		s.wantStop(t, err, stop{last: errDown, why: context.Canceled, attempts: 1, at: 4 * time.Second, elapsed: 4 * time.Second})
	})
}

func TestRetry_Cancel_InTheQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, l := mustGate(t, sluice.Config{Name: "api", Rate: sluice.Rate{Count: 1, Per: time.Minute}}), synclog.New()
		ctx, cancel := context.WithCancel(bg)
		s := newServer(down)
		l.Call(0, func() error { return sluice.Retry(ctx, g, s.call, each(time.Second)) }) // queues for a retry
		l.Call(1, func() error { return sluice.Retry(ctx, g, s.call, each(time.Second)) }) // for its first attempt
		time.Sleep(30 * time.Second)
		if got := g.Stats(); got.Pacing != 2 {
			t.Errorf("%d wait for their turn", got.Pacing)
		}
		cancel()
		left := l.Sofar()
		if len(left) != 2 {
			t.Fatalf("%v", left)
		}
		s.wantStop(t, left[0].Err, stop{last: errDown, why: context.Canceled, attempts: 1, at: 30 * time.Second, elapsed: 30 * time.Second})
		if left[1].Err != context.Canceled {
			t.Errorf("before the first attempt: %v", left[1].Err)
		}
		s.want(t, 0)
		if got := g.Stats(); got.Pacing != 0 || got.Waiting != 0 {
			t.Errorf("afterwards: %+v", got)
		}
	})
}

func TestRetry_Cancel_DuringAServerWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, s := mustGate(t, sluice.Config{}), newServer(retryAfter(time.Minute))
		ctx, cancel := context.WithCancel(bg)
		time.AfterFunc(4*time.Second, cancel)
		err := sluice.Retry(ctx, g, s.call)
		s.want(t, 0)
		s.wantStop(t, err, stop{last: errBusy, why: context.Canceled, attempts: 1, at: 4 * time.Second, elapsed: 4 * time.Second})
	})
}

func TestRetry_Deadline_BackoffBeyondItIsNotBegun(t *testing.T) {
	for _, d := range []time.Duration{time.Minute, 10 * time.Second} { // at the deadline is too late
		synctest.Test(t, func(t *testing.T) {
			g, s := mustGate(t, sluice.Config{Name: "api"}), newServer(down)
			ctx, cancel := context.WithTimeout(bg, 10*time.Second)
			defer cancel()
			err := sluice.Retry(ctx, g, s.call, each(d))
			s.want(t, 0)
			s.wantStop(t, err, stop{last: errDown, why: context.DeadlineExceeded, attempts: 1, retryAt: d})
			var wait *limits.WaitError
			if !errors.As(err, &wait) || *wait != (limits.WaitError{By: "api", For: limits.ByBackoff, Need: d, Have: 10 * time.Second, Until: time.Now().Add(d)}) {
				t.Errorf("%v has %+v", err, wait)
			}
			if ctx.Err() != nil {
				t.Error("it waited for the deadline")
			}
			if got := g.Stats().RetryTokens; got != 100 {
				t.Errorf("%d tokens left", got)
			}
		})
	}
	synctest.Test(t, func(t *testing.T) {
		g, s := mustGate(t, sluice.Config{}), newServer(down, fine)
		ctx, cancel := context.WithTimeout(bg, 10*time.Second)
		defer cancel()
		if err := sluice.Retry(ctx, g, s.call, each(10*time.Second-1)); err != nil {
			t.Errorf("a nanosecond before the deadline: %v", err)
		}
	})
}

func TestRetry_GateRefusesTheFirstAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := mustGate(t, sluice.Config{Name: "api", Rate: sluice.Rate{Count: 1, Per: time.Minute}, MaxWaiting: 1})
		s := newServer(fine)
		g.TryAcquire(1)

		ctx, cancel := context.WithTimeout(bg, time.Second)
		defer cancel()
		err := sluice.Retry(ctx, g, s.call)
		if wait, ok := err.(*limits.WaitError); !ok || *wait != (limits.WaitError{By: "api", For: limits.ByRate, Why: "1/m", Need: time.Minute, Have: time.Second, Until: time.Now().Add(time.Minute)}) {
			t.Errorf("hopeless: %v", err)
		}

		var stopped *sluice.RetryError
		waiting := make(chan error)
		go func() { waiting <- sluice.Retry(bg, g, s.call) }()
		synctest.Wait()
		if err := sluice.Retry(bg, g, s.call); !errors.Is(err, limits.ErrQueueFull) || errors.As(err, &stopped) {
			t.Errorf("full: %v", err)
		}
		g.Close()
		if err := <-waiting; !errors.Is(err, limits.ErrClosed) || errors.As(err, &stopped) {
			t.Errorf("closed while waiting: %v", err)
		}
		if err := sluice.Retry(bg, g, s.call); !errors.Is(err, limits.ErrClosed) || errors.As(err, &stopped) {
			t.Errorf("closed: %v", err)
		} else if want := "sluice: api: closed"; err.Error() != want {
			t.Errorf("message %q, want %q", err, want)
		}
		s.want(t)
	})
}

func TestRetry_GateRefusesARetry(t *testing.T) {
	perMinute := sluice.Rate{Count: 1, Per: time.Minute}
	for name, c := range map[string]struct {
		cfg     sluice.Config
		timeout time.Duration
		between func(g *sluice.Gate) // the attempt and the end of its backoff of 2 s
		why     error
		retryAt time.Duration
	}{
		"hopeless": {sluice.Config{Rate: perMinute}, 30 * time.Second, func(*sluice.Gate) {}, context.DeadlineExceeded, time.Minute},
		"paused":   {sluice.Config{}, 30 * time.Second, func(g *sluice.Gate) { g.PauseUntil(time.Now().Add(99*time.Second), "") }, context.DeadlineExceeded, 100 * time.Second},
		"full": {sluice.Config{Rate: perMinute, MaxWaiting: 1}, time.Hour, func(g *sluice.Gate) {
			go g.Acquire(bg, 1)
		}, limits.ErrQueueFull, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(bg, c.timeout)
				defer cancel()
				g, s := mustGate(t, c.cfg), newServer(down)
				time.AfterFunc(time.Second, func() { c.between(g) })
				err := sluice.Retry(ctx, g, s.call, each(2*time.Second))
				s.want(t, 0)
				s.wantStop(t, err, stop{last: errDown, why: c.why, attempts: 1, at: 2 * time.Second, elapsed: 2 * time.Second, retryAt: c.retryAt})
				if ctx.Err() != nil {
					t.Error("it waited for the deadline")
				}
				time.Sleep(time.Hour)
			})
		})
	}
}

func TestRetry_CloseEndsBackoffs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, l := mustGate(t, sluice.Config{Name: "api"}), synclog.New()
		backsOff, waits, inFlight := newServer(down), newServer(retryAfter(time.Minute)), newServer(after(10*time.Second, down))
		l.Call(0, func() error { return sluice.Retry(bg, g, inFlight.call, each(time.Hour/10)) })
		l.Call(1, func() error { return sluice.Retry(bg, g, backsOff.call, each(time.Hour/10)) })
		l.Call(2, func() error { return sluice.Retry(bg, g, waits.call, each(time.Hour/10)) })
		time.Sleep(4 * time.Second)
		g.Close()
		left := l.Sofar()
		if len(left) != 2 {
			t.Fatalf("at once: %v", left)
		}
		backsOff.wantStop(t, left[0].Err, stop{last: errDown, why: limits.ErrClosed, attempts: 1, at: 4 * time.Second, elapsed: 4 * time.Second})
		waits.wantStop(t, left[1].Err, stop{last: errBusy, why: limits.ErrClosed, attempts: 1, at: 4 * time.Second, elapsed: 4 * time.Second})
		if got, want := left[0].Err.Error(), "sluice: api: gave up after 1 attempt: closed: 503 Service Unavailable"; got != want {
			t.Errorf("message %q, want %q", got, want)
		}
		time.Sleep(6 * time.Second) // the one in flight comes back
		if left = l.Sofar(); len(left) != 3 {
			t.Fatalf("then: %v", left)
		}
		inFlight.wantStop(t, left[2].Err, stop{last: errDown, why: limits.ErrClosed, attempts: 1, at: 10 * time.Second, elapsed: 10 * time.Second})
		if got := g.Stats().Rejected.Closed; got != 3 {
			t.Errorf("%d refused as closed", got)
		}
	})
}

func TestRetry_PanicReleasesThePermit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := mustGate(t, sluice.Config{Concurrency: 1})
		for name, p := range map[string]sluice.RetryPolicy{"": {}, " with a timeout": {AttemptTimeout: time.Hour}} {
			for attempt := range 2 {
				s := newServer(append(slices.Repeat([]answer{down}, attempt), func(context.Context) error { panic("mine") })...)
				func() {
					defer func() {
						if got := recover(); got != "mine" {
							t.Errorf("attempt %d%s: the panic did not propagate unchanged: %v", attempt+1, name, got)
						}
					}()
					sluice.Retry(bg, g, s.call, p)
				}()
				if got := g.Stats().InFlight; got != 0 || len(s.attempts()) != attempt+1 {
					t.Errorf("attempt %d%s: %d in flight, %v", attempt+1, name, got, s.attempts())
				}
			}
		}
		left := make(chan bool)
		go func() {
			defer close(left)
			sluice.Retry(bg, g, func(context.Context) error {
				runtime.Goexit()
				return nil
			})
		}()
		<-left
		if err := sluice.Retry(bg, g, fine); err != nil || g.Stats().InFlight != 0 {
			t.Errorf("the next call: %v", err)
		}
	})
}

func TestRetryPolicy_PanicHoldsNoPermit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, p := range map[string]sluice.RetryPolicy{
			"Retry":   {Retryable: func(error) bool { panic("mine") }},
			"Backoff": {Backoff: func(int, time.Duration, float64) time.Duration { panic("mine") }},
		} {
			g := mustGate(t, sluice.Config{Concurrency: 1})
			func() {
				defer func() {
					if got := recover(); got != "mine" {
						t.Errorf("%s: the panic did not propagate unchanged: %v", name, got)
					}
				}()
				sluice.Retry(bg, g, down, p)
			}()
			if err := sluice.Retry(bg, g, fine); err != nil || g.Stats().InFlight != 0 {
				t.Errorf("%s: the next call: %v", name, err)
			}
		}
	})
}

// # Calls of a RetryLoop

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

func TestAttempts_Next_In(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := mustGate(t, sluice.Config{Concurrency: 1})
		a := sluice.NewRetryLoop(g, sluice.RetryPolicy{Backoff: sluice.Constant(time.Second)})
		var first, second, third struct{ permit sluice.Permit }
		if _, err := a.Next(bg, 1, &first.permit); err != nil {
			t.Fatal(err)
		}
		if again, err := a.Done(bg, errors.New("down")); !again {
			t.Fatalf("no other attempt: %v", err)
		}
		if n := g.Stats().InFlight; n != 1 {
			t.Errorf("%d in flight, want 1", n)
		}
		first.permit.Release()
		if _, err := a.Next(bg, 1, &second.permit); err != nil {
			t.Fatal(err)
		}
		first.permit.Release() // has no effect any more
		refused := sluice.NewRetryLoop(g, sluice.RetryPolicy{})
		ctx, cancel := context.WithTimeout(bg, time.Second)
		defer cancel()
		if _, err := refused.Next(ctx, 1, &third.permit); err != context.DeadlineExceeded {
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
func TestAttempts_Next_In_ObserverPanics(t *testing.T) {
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
				_, _ = a.Next(bg, 1, &p)
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

func TestAttempts_Next_In_Allocations(t *testing.T) {
	g := mustGate(t, sluice.Config{Concurrency: 1000})
	var permits [200]sluice.Permit
	next := 0
	if n := testing.AllocsPerRun(100, func() {
		a := sluice.NewRetryLoop(g, sluice.RetryPolicy{})
		if _, err := a.Next(bg, 1, &permits[next]); err != nil {
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
