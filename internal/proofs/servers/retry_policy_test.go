package servers_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/internal/testkit/synclog"
)

func TestRetryPolicy_Zero_MakesFourAttempts(t *testing.T) {
	for name, a := range map[string]answer{"plain": down, "throttle": busy, "timeout": late} {
		synctest.Test(t, func(t *testing.T) {
			g, s := fixedGate(t, sluice.Config{}), newServer(a)
			err := sluice.Retry(bg, g, s.call)
			came := s.attempts()
			if len(came) != 4 {
				t.Fatalf("%s: %d attempts", name, len(came))
			}
			s.wantStop(t, err, stop{last: a(bg), why: sluice.ErrAttempts, attempts: 4, at: came[3], elapsed: came[3]})
		})
	}
}

// A thousand waits show whether they are uniform in [0, x): that none is below 0.1·x
// or none above 0.9·x, or that the mean is not near x/2, has a probability of less
// than 10⁻²⁰.
func TestRetryPolicy_Zero_HasFullJitter(t *testing.T) {
	for name, c := range map[string]struct {
		answer answer
		tops   []time.Duration // x before each retry
	}{
		"from half a second":              {down, []time.Duration{500, 1000, 2000, 4000, 8000, 16000, 30000, 30000}},
		"from half a second on a timeout": {late, []time.Duration{500, 1000, 2000, 4000, 8000, 16000, 30000, 30000}},
		"from a second on a throttle":     {busy, []time.Duration{1000, 2000, 4000, 8000, 16000, 30000, 30000, 30000}},
	} {
		synctest.Test(t, func(t *testing.T) {
			const calls = 1000
			g := fixedGate(t, sluice.Config{Rate: herd, RetryBudget: -1})
			waits := make([][]time.Duration, len(c.tops))
			for range calls {
				s := newServer(c.answer)
				sluice.Retry(bg, g, s.call, sluice.RetryPolicy{Attempts: len(c.tops) + 1})
				came := s.attempts()
				if len(came) != len(c.tops)+1 {
					t.Fatalf("%s: %d attempts", name, len(came))
				}
				for i := range c.tops {
					waits[i] = append(waits[i], came[i+1]-came[i])
				}
			}
			for i, top := range c.tops {
				top *= ms
				var sum time.Duration
				for _, w := range waits[i] {
					sum += w
				}
				lowest, highest, mean := slices.Min(waits[i]), slices.Max(waits[i]), sum/calls
				if lowest < ms || lowest > top/10 || highest < top*9/10 || highest >= top || mean < top*4/10 || mean > top*6/10 {
					t.Errorf("%s: retry %d after %v to %v, %v in the mean; want 0 to %v", name, i+1, lowest, highest, mean, top)
				}
			}
		})
	}
}

func TestRetryPolicy_Zero_RetriesForFifteenMinutes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, s := fixedGate(t, sluice.Config{RetryBudget: -1}), newServer(down)
		p := each(5 * time.Minute)
		p.Attempts = -1
		err := sluice.Retry(bg, g, s.call, p)
		s.want(t, 0, 5*time.Minute, 10*time.Minute, 15*time.Minute) // exactly then is not later
		s.wantStop(t, err, stop{
			last: errDown, why: sluice.ErrElapsed, attempts: 4,
			at: 15 * time.Minute, elapsed: 15 * time.Minute, retryAt: 20 * time.Minute,
		})
	})
}

func TestRetryPolicy_Zero_WaitsFiveMinutesForAServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, s := fixedGate(t, sluice.Config{}), newServer(retryAfter(5*time.Minute), retryAfter(5*time.Minute+1))
		err := sluice.Retry(bg, g, s.call)
		s.want(t, 0, 5*time.Minute)
		s.wantStop(t, err, stop{
			last: errBusy, why: sluice.ErrServerWait, attempts: 2,
			at: 5 * time.Minute, elapsed: 5 * time.Minute, retryAt: 10*time.Minute + 1,
		})
	})
}

func TestRetryPolicy_Attempts_IncludesTheFirst(t *testing.T) {
	for _, n := range []int{1, 2, 3, 10} {
		synctest.Test(t, func(t *testing.T) {
			g, s := fixedGate(t, sluice.Config{}), newServer(down)
			p := each(time.Second)
			p.Attempts = n
			err := sluice.Retry(bg, g, s.call, p)
			elapsed := time.Duration(n-1) * time.Second
			if got := len(s.attempts()); got != n {
				t.Errorf("%d attempts of %d", got, n)
			}
			s.wantStop(t, err, stop{last: errDown, why: sluice.ErrAttempts, attempts: n, at: elapsed, elapsed: elapsed})
		})
	}
}

func TestRetryPolicy_Attempts_NegativeIsUnbounded(t *testing.T) {
	for _, n := range []int{-1, math.MinInt} {
		synctest.Test(t, func(t *testing.T) {
			var answers []answer
			for range 500 {
				answers = append(answers, down)
			}
			g, s := fixedGate(t, sluice.Config{RetryBudget: -1}), newServer(append(answers, fine)...)
			p := each(time.Second)
			p.Attempts = n
			if err := sluice.Retry(bg, g, s.call, p); err != nil || len(s.attempts()) != 501 {
				t.Errorf("Attempts %d: %d attempts, %v", n, len(s.attempts()), err)
			}
		})
	}
}

func TestRetryPolicy_AttemptTimeout_EndsTheAttemptAndIsRetried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hang := func(ctx context.Context) error {
			<-ctx.Done()
			return ctx.Err()
		}
		g, s := fixedGate(t, sluice.Config{Concurrency: 1}), newServer(hang)
		p := each(10 * time.Second)
		p.AttemptTimeout, p.Attempts = 3*time.Second, 3
		err := sluice.Retry(bg, g, s.call, p)
		s.want(t, 0, 13*time.Second, 26*time.Second)
		s.wantStop(t, err, stop{
			last: context.DeadlineExceeded, why: sluice.ErrAttempts, attempts: 3,
			at: 29 * time.Second, elapsed: 29 * time.Second,
		})

		s = newServer(hang, hang, fine)
		ctx, cancel := context.WithTimeout(bg, time.Hour)
		defer cancel()
		if err := sluice.Retry(ctx, g, s.call, p); err != nil {
			t.Errorf("the third attempt succeeded: %v", err)
		}
	})
}

func TestRetryPolicy_AttemptTimeout_KeepsTheCallersDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hang := func(ctx context.Context) error {
			<-ctx.Done()
			return fmt.Errorf("get: %w", ctx.Err())
		}
		g, s := fixedGate(t, sluice.Config{}), newServer(hang)
		ctx, cancel := context.WithTimeout(bg, 5*time.Second)
		defer cancel()
		p := each(time.Second)
		p.AttemptTimeout = 3 * time.Second
		err := sluice.Retry(ctx, g, s.call, p)
		s.want(t, 0, 4*time.Second)
		s.wantStop(t, err, stop{
			last: context.DeadlineExceeded, why: context.DeadlineExceeded, attempts: 2,
			at: 5 * time.Second, elapsed: 5 * time.Second,
		})
	})
}

func TestRetryPolicy_AttemptTimeout_ZeroIsNone(t *testing.T) {
	for _, d := range []time.Duration{0, -1, math.MinInt64} {
		g := fixedGate(t, sluice.Config{})
		err := sluice.Retry(bg, g, func(ctx context.Context) error {
			if at, ok := ctx.Deadline(); ok {
				t.Errorf("AttemptTimeout %v: deadline at %v", d, at)
			}
			return ctx.Err()
		}, sluice.RetryPolicy{AttemptTimeout: d})
		if err != nil {
			t.Errorf("AttemptTimeout %v: %v", d, err)
		}
	}
}

func TestRetryPolicy_AttemptTimeout_ContextEndsWithTheAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := fixedGate(t, sluice.Config{})
		var seen []context.Context
		sluice.Retry(bg, g, func(ctx context.Context) error {
			for _, before := range seen {
				if before.Err() != context.Canceled {
					t.Errorf("the context of an attempt before is still there: %v", before.Err())
				}
			}
			seen = append(seen, ctx)
			return errDown
		}, sluice.RetryPolicy{AttemptTimeout: time.Hour, Attempts: 2})
		if len(seen) != 2 || seen[1].Err() != context.Canceled {
			t.Errorf("%d attempts", len(seen))
		}
	})
}

func TestRetryPolicy_Retryable_DecidesUnmarkedErrorsOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked []error
		p := each(time.Second)
		p.Retryable = func(err error) bool {
			asked = append(asked, err)
			return err == errDown
		}
		g := fixedGate(t, sluice.Config{Rate: herd})

		s := newServer(down, retryAfter(time.Second), busy, down, always(os.ErrInvalid))
		err := sluice.Retry(bg, g, s.call, p)
		s.want(t, 0, 1*time.Second, 2*time.Second, 3*time.Second, 4*time.Second)
		s.wantStop(t, err, stop{last: os.ErrInvalid, why: sluice.ErrPermanent, attempts: 5, at: 4 * time.Second, elapsed: 4 * time.Second})
		if want := []error{errDown, errDown, os.ErrInvalid}; !slices.Equal(asked, want) {
			t.Errorf("asked about %v, want %v", asked, want)
		}

		// Nor does false outweigh a server that asks to come back.
		asked, p.Retryable = nil, func(error) bool { asked = append(asked, err); return false }
		s = newServer(busy, retryAfter(time.Second), gone)
		err = sluice.Retry(bg, fixedGate(t, sluice.Config{Rate: herd}), s.call, p)
		s.want(t, 0, time.Second, 2*time.Second)
		s.wantStop(t, err, stop{last: os.ErrNotExist, why: sluice.ErrPermanent, attempts: 3, at: 2 * time.Second, elapsed: 2 * time.Second})
		if asked != nil {
			t.Errorf("asked about %v", asked)
		}
	})
}

func TestRetryPolicy_Backoff_GetsRetryAndPreviousWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// Each curve records its arguments. Calls for the longest possible wait,
		// for the spacing, are left out: a second one for the same retry, and one
		// for a first retry after a server wait.
		type question struct {
			curve string
			retry int
			prev  time.Duration
		}
		var asked []question
		curve := func(name string, base time.Duration) sluice.Backoff {
			return func(retry int, prev time.Duration, u float64) time.Duration {
				if u < 0 || u >= 1 {
					t.Errorf("asked with u = %v", u)
				}
				if q := (question{name, retry, prev}); !slices.Contains(asked, q) && q != (question{"throttled", 1, 0}) {
					asked = append(asked, q)
				}
				return base * time.Duration(retry)
			}
		}
		p := sluice.RetryPolicy{Attempts: 6, Backoff: curve("plain", time.Second), ThrottleBackoff: curve("throttled", 10*time.Second)}
		g, s := fixedGate(t, sluice.Config{RetryBudget: -1}), newServer(down, busy, retryAfter(time.Minute), down, late, busy)
		sluice.Retry(bg, g, s.call, p)
		s.want(t, 0, 1*time.Second, 21*time.Second, 81*time.Second, 84*time.Second, 88*time.Second, 138*time.Second)
		want := []question{
			{"plain", 1, 0},
			{"throttled", 2, 1 * time.Second},
			{"plain", 3, 20 * time.Second},
			{"plain", 4, 3 * time.Second},
			{"throttled", 5, 4 * time.Second},
		}
		if !slices.Equal(asked, want) {
			t.Errorf("asked\n\t%v\nwant\n\t%v", asked, want)
		}
	})
}

func TestRetryPolicy_Backoff_AtLeastAMillisecond(t *testing.T) {
	for name, curve := range map[string]sluice.Backoff{
		"nothing":  sluice.Constant(0),
		"too few":  sluice.Constant(ms - 1),
		"negative": func(int, time.Duration, float64) time.Duration { return math.MinInt64 },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g, s := fixedGate(t, sluice.Config{}), newServer(down, busy, down, fine)
				if err := sluice.Retry(bg, g, s.call, sluice.RetryPolicy{Backoff: curve, ThrottleBackoff: curve}); err != nil {
					t.Error(err)
				}
				s.want(t, 0, ms, 2*ms, 3*ms)
			})
		})
	}
}

func TestRetryPolicy_Backoff_RandomIsBelowOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := []time.Duration{1, 2, 3}
		sluice.Retry(bg, fixedGate(t, sluice.Config{}), func(context.Context) error { return errors.New("x") }, sluice.RetryPolicy{Backoff: func(_ int, _ time.Duration, u float64) time.Duration {
			return table[int(u*3)]
		}})
	})
}

// One policy, its curves included, serves many calls at once: what one of them
// does, the others do not notice.
func TestRetryPolicy_HasNoState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := sluice.RetryPolicy{
			Attempts: 5,
			Backoff: func(_ int, prev time.Duration, _ float64) time.Duration {
				return (3*max(prev, time.Second) + time.Second) / 2
			},
			ThrottleBackoff: func(retry int, _ time.Duration, _ float64) time.Duration { return time.Second << (retry - 1) },
			Retryable:       func(err error) bool { return err == errDown },
		}
		var calls sync.WaitGroup
		for i := range 64 {
			g := fixedGate(t, sluice.Config{RetryBudget: -1})
			calls.Go(func() {
				a, want := down, []time.Duration{0, 2000 * ms, 5500 * ms, 11250 * ms, 20375 * ms}
				if i%2 == 1 {
					a, want = busy, []time.Duration{0, 1000 * ms, 3000 * ms, 7000 * ms, 15000 * ms}
				}
				time.Sleep(time.Duration(i) * 100 * ms)
				s := newServer(a)
				if err := sluice.Retry(bg, g, s.call, p); !errors.Is(err, sluice.ErrAttempts) {
					t.Errorf("call %d: %v", i, err)
				}
				s.want(t, want...)
			})
		}
		calls.Wait()
	})
}

// # For how long calls are retried

func TestRetryPolicy_MaxElapsed_BoundsTheStartOfRetries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// Each attempt takes 3 s and each backoff 7 s. What an attempt takes
		// counts, but one that begins in time may end when it likes.
		g, s := fixedGate(t, sluice.Config{}), newServer(after(3*time.Second, down))
		p := each(7 * time.Second)
		p.MaxElapsed, p.Attempts = 20*time.Second, -1
		err := sluice.Retry(bg, g, s.call, p)
		s.want(t, 0, 10*time.Second, 20*time.Second)
		s.wantStop(t, err, stop{
			last: errDown, why: sluice.ErrElapsed, attempts: 3,
			at: 23 * time.Second, elapsed: 23 * time.Second, retryAt: 30 * time.Second,
		})

		s = newServer(after(3*time.Second, down))
		p.MaxElapsed--
		err = sluice.Retry(bg, g, s.call, p)
		s.want(t, 0, 10*time.Second)
		s.wantStop(t, err, stop{
			last: errDown, why: sluice.ErrElapsed, attempts: 2,
			at: 13 * time.Second, elapsed: 13 * time.Second, retryAt: 20 * time.Second,
		})
	})
}

func TestRetryPolicy_MaxElapsed_NoRetryLeavesLater(t *testing.T) {
	p := each(time.Second)
	p.MaxElapsed = time.Minute
	t.Run("when the gate is slow", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			g, s := fixedGate(t, sluice.Config{Rate: sluice.Rate{Count: 1, Per: 40 * time.Second}}), newServer(down)
			err := sluice.Retry(bg, g, s.call, p)
			s.want(t, 0, 40*time.Second)
			s.wantStop(t, err, stop{last: errDown, why: sluice.ErrElapsed, attempts: 2, at: 41 * time.Second, elapsed: 41 * time.Second, retryAt: 80 * time.Second})
		})
	})
	t.Run("exactly then is not later", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			g, s := fixedGate(t, sluice.Config{Rate: sluice.Rate{Count: 1, Per: time.Minute}}), newServer(down, fine)
			if err := sluice.Retry(bg, g, s.call, p); err != nil {
				t.Error(err)
			}
			s.want(t, 0, time.Minute)
		})
	})
	t.Run("whatever the deadline of the context", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			g, s := fixedGate(t, sluice.Config{Rate: sluice.Rate{Count: 1, Per: 2 * time.Minute}}), newServer(down)
			ctx, cancel := context.WithTimeout(bg, 90*time.Second) // too early, too
			defer cancel()
			err := sluice.Retry(ctx, g, s.call, p)
			s.wantStop(t, err, stop{last: errDown, why: sluice.ErrElapsed, attempts: 1, at: time.Second, elapsed: time.Second, retryAt: 2 * time.Minute})
		})
	})
	t.Run("behind others after an error", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			g, l := fixedGate(t, sluice.Config{Rate: sluice.Rate{Count: 1, Per: time.Second}}), synclog.New()
			s := newServer(down, fine)
			p := p
			p.Backoff = sluice.Constant(500 * ms)
			l.Call(0, func() error { return sluice.Retry(bg, g, s.call, p) })
			for i := range 100 {
				l.Call(i+1, enter(g, bg))
			}
			time.Sleep(900 * ms)
			l.Want(t, synclog.Failed(0, 500*ms, sluice.ErrElapsed))
			time.Sleep(time.Hour)
		})
	})
	t.Run("when a pause is prolonged", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			g, l := fixedGate(t, sluice.Config{}), synclog.New()
			s := newServer(retryAfter(30*time.Second), fine)
			l.Call(0, func() error { return sluice.Retry(bg, g, s.call, p) })
			time.Sleep(10 * time.Second)
			g.PauseUntil(time.Now().Add(50*time.Second), "another")
			l.Want(t)
			g.PauseUntil(time.Now().Add(50*time.Second+1), "a third")
			l.Want(t, synclog.Failed(0, 10*time.Second, sluice.ErrElapsed))
			s.want(t, 0)
		})
	})
	t.Run("for an unknown time", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			g, l := fixedGate(t, sluice.Config{Concurrency: 1}), synclog.New()
			s := newServer(down, fine)
			l.Call(0, func() error { return sluice.Retry(bg, g, s.call, p) })
			l.Call(1, func() error { return hold(g, time.Hour) })
			time.Sleep(2 * time.Hour)
			l.Want(t, synclog.Failed(0, time.Minute, sluice.ErrElapsed), synclog.At(1, time.Hour))
		})
	})
}

func TestRetryPolicy_MaxElapsed_DoesNotCountTheFirstQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, s := fixedGate(t, sluice.Config{}), newServer(down)
		g.PauseUntil(time.Now().Add(time.Minute), "maintenance")
		p := each(5 * time.Second)
		p.MaxElapsed = 10 * time.Second
		err := sluice.Retry(bg, g, s.call, p)
		s.want(t, 60*time.Second, 65*time.Second, 70*time.Second)
		s.wantStop(t, err, stop{
			last: errDown, why: sluice.ErrElapsed, attempts: 3,
			at: 70 * time.Second, elapsed: 10 * time.Second, retryAt: 75 * time.Second,
		})
	})
}

func TestRetryPolicy_MaxElapsed_NegativeIsUnbounded(t *testing.T) {
	for _, d := range []time.Duration{-1, math.MinInt64} {
		synctest.Test(t, func(t *testing.T) {
			g, s := fixedGate(t, sluice.Config{}), newServer(down, retryAfter(10*24*time.Hour), down, fine)
			p := each(365 * 24 * time.Hour)
			p.MaxElapsed, p.MaxServerWait = d, -1
			if err := sluice.Retry(bg, g, s.call, p); err != nil {
				t.Error(err)
			}
			s.want(t, 0, 365*24*time.Hour, 375*24*time.Hour, 740*24*time.Hour)
		})
	}
}

func TestRetryPolicy_MaxElapsed_BoundsTheWaitForTheGate(t *testing.T) {
	for elapsed, others := range map[time.Duration]int{5 * time.Second: 100, 0: 1000} { // 0 means 15 min
		synctest.Test(t, func(t *testing.T) {
			g := fixedGate(t, sluice.Config{Rate: sluice.Rate{Count: 1, Per: time.Second}})
			var wg sync.WaitGroup
			start := time.Now()
			wg.Go(func() {
				policy := sluice.RetryPolicy{MaxElapsed: elapsed, Backoff: sluice.Constant(ms)}
				err := sluice.Retry(bg, g, func(context.Context) error { return errors.New("x") }, policy)
				var stopped *sluice.RetryError
				if !errors.As(err, &stopped) || !errors.Is(err, sluice.ErrElapsed) || stopped.Attempts != 1 || stopped.RetryAt.IsZero() {
					t.Errorf("%v", err)
				}
				// The message has the setting, and what the wait is for.
				if text := err.Error(); !strings.Contains(text, " for the rate of 1/s ends after MaxElapsed (") {
					t.Error(text)
				}
				if d := time.Since(start); d > time.Second {
					t.Errorf("stopped after %v, though %d were before it in the queue", d, others)
				}
			})
			synctest.Wait()
			for range others {
				wg.Go(func() { hold(g, 0) })
			}
			wg.Wait()
		})
	}
}

func TestRetryPolicy_MaxElapsed_BoundsServerWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, s := fixedGate(t, sluice.Config{}), newServer(retryAfter(25*time.Second))
		err := sluice.Retry(bg, g, s.call, sluice.RetryPolicy{MaxElapsed: time.Minute})
		s.want(t, 0, 25*time.Second, 50*time.Second)
		s.wantStop(t, err, stop{
			last: errBusy, why: sluice.ErrElapsed, attempts: 3,
			at: 50 * time.Second, elapsed: 50 * time.Second, retryAt: 75 * time.Second,
		})

		g, s = fixedGate(t, sluice.Config{}), newServer(retryAfter(25*time.Second), retryAfter(35*time.Second), fine)
		if err := sluice.Retry(bg, g, s.call, sluice.RetryPolicy{MaxElapsed: time.Minute}); err != nil {
			t.Error(err) // exactly then is not later
		}
	})
}

func TestRetryPolicy_MaxElapsed_SaysThatMaxServerWaitAllowsMore(t *testing.T) {
	for name, c := range map[string]struct {
		policy sluice.RetryPolicy
		wait   time.Duration
		want   string
	}{
		"both set": {sluice.RetryPolicy{MaxServerWait: 2 * time.Hour, MaxElapsed: 30 * time.Minute}, time.Hour,
			"no time left for another attempt: the wait of 1h0m0s ends after MaxElapsed (30m0s), although MaxServerWait allows 2h0m0s"},
		"no bound": {sluice.RetryPolicy{MaxServerWait: -1, MaxElapsed: 30 * time.Minute}, time.Hour,
			"no time left for another attempt: the wait of 1h0m0s ends after MaxElapsed (30m0s), although MaxServerWait allows any wait"},
		"defaults": {sluice.RetryPolicy{MaxElapsed: time.Minute}, 2 * time.Minute,
			"no time left for another attempt: the wait of 2m0s ends after MaxElapsed (1m0s), although MaxServerWait allows 5m0s"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g, s := fixedGate(t, sluice.Config{}), newServer(retryAfter(c.wait))
				err := sluice.Retry(bg, g, s.call, c.policy)
				s.wantStop(t, err, stop{last: errBusy, why: sluice.ErrElapsed, attempts: 1, retryAt: c.wait})
				var stopped *sluice.RetryError
				if errors.As(err, &stopped) && stopped.Why.Error() != c.want {
					t.Errorf("%v\nwant %v", stopped.Why, c.want)
				}

				// It is for this call alone.
				g, s = fixedGate(t, sluice.Config{}), newServer(notBefore(c.wait))
				err = sluice.Retry(bg, g, s.call, c.policy)
				if errors.As(err, &stopped) && stopped.Why.Error() != c.want {
					t.Errorf("%v\nwant %v", stopped.Why, c.want)
				}

				// The pause is that of another call.
				g, s = fixedGate(t, sluice.Config{}), newServer(down)
				p := c.policy
				p.Backoff = sluice.Constant(time.Second)
				done := make(chan error)
				go func() { done <- sluice.Retry(bg, g, s.call, p) }()
				synctest.Wait()
				g.PauseUntil(time.Now().Add(c.wait+time.Second), "")
				err = <-done
				if errors.As(err, &stopped) && stopped.Why.Error() != c.want {
					t.Errorf("%v\nwant %v", stopped.Why, c.want)
				}
			})
		})
	}
}

func TestRetryPolicy_MaxServerWait_IsTheLongestAccepted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := each(time.Second)
		p.MaxServerWait = time.Minute
		g, s := fixedGate(t, sluice.Config{}), newServer(retryAfter(time.Minute), fine)
		if err := sluice.Retry(bg, g, s.call, p); err != nil {
			t.Error(err)
		}
		s.want(t, 0, time.Minute)

		g, s = fixedGate(t, sluice.Config{}), newServer(retryAfter(time.Minute+1), fine)
		err := sluice.Retry(bg, g, s.call, p)
		s.want(t, 0)
		s.wantStop(t, err, stop{last: errBusy, why: sluice.ErrServerWait, attempts: 1, retryAt: time.Minute + 1})
	})
}

func TestRetryPolicy_MaxServerWait_NegativeIsUnbounded(t *testing.T) {
	for _, d := range []time.Duration{-1, math.MinInt64} {
		synctest.Test(t, func(t *testing.T) {
			g, s := fixedGate(t, sluice.Config{}), newServer(retryAfter(365*24*time.Hour), fine)
			if err := sluice.Retry(bg, g, s.call, sluice.RetryPolicy{MaxServerWait: d, MaxElapsed: -1}); err != nil {
				t.Error(err)
			}
			s.want(t, 0, 365*24*time.Hour)
		})
	}
}

func TestRetryPolicy_MaxServerWait_RaisesTheDefaultMaxElapsed(t *testing.T) {
	hour := retryAfter(time.Hour)
	for name, c := range map[string]struct {
		policy  sluice.RetryPolicy
		answers []answer
		at      []time.Duration // of the attempts
		why     error
	}{
		"an hour":               {sluice.RetryPolicy{MaxServerWait: 2 * time.Hour}, []answer{hour, fine}, []time.Duration{0, time.Hour}, nil},
		"exactly":               {sluice.RetryPolicy{MaxServerWait: time.Hour}, []answer{hour, fine}, []time.Duration{0, time.Hour}, nil},
		"no bound":              {sluice.RetryPolicy{MaxServerWait: -1}, []answer{retryAfter(1000 * time.Hour), fine}, []time.Duration{0, 1000 * time.Hour}, nil},
		"again and again":       {sluice.RetryPolicy{MaxServerWait: 2 * time.Hour}, []answer{hour, hour, hour, hour, fine}, []time.Duration{0, time.Hour, 2 * time.Hour, 3 * time.Hour, 4 * time.Hour}, nil},
		"failures beside":       {sluice.RetryPolicy{MaxServerWait: 2 * time.Hour, Backoff: sluice.Constant(7 * time.Minute)}, []answer{down, hour, down, hour, fine}, []time.Duration{0, 7 * time.Minute, 67 * time.Minute, 74 * time.Minute, 134 * time.Minute}, nil},
		"failures for too long": {sluice.RetryPolicy{MaxServerWait: 2 * time.Hour, Backoff: sluice.Constant(8 * time.Minute)}, []answer{down, hour, down}, []time.Duration{0, 8 * time.Minute, 68 * time.Minute}, sluice.ErrElapsed},
		"of this call alone":    {sluice.RetryPolicy{MaxServerWait: 2 * time.Hour, Backoff: sluice.Constant(time.Minute)}, []answer{notBefore(time.Hour), notBefore(time.Hour), down, fine}, []time.Duration{0, time.Hour, 2 * time.Hour, 2*time.Hour + time.Minute}, nil},
		"too long":              {sluice.RetryPolicy{MaxServerWait: 59 * time.Minute}, []answer{hour}, []time.Duration{0}, sluice.ErrServerWait},
		"short ones count":      {sluice.RetryPolicy{MaxServerWait: 2 * time.Hour}, []answer{retryAfter(5 * time.Minute)}, []time.Duration{0, 5 * time.Minute, 10 * time.Minute, 15 * time.Minute}, sluice.ErrElapsed},
		"shorter than usual":    {sluice.RetryPolicy{MaxServerWait: time.Minute}, []answer{retryAfter(time.Minute)}, []time.Duration{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}, sluice.ErrElapsed},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g, s := fixedGate(t, sluice.Config{}), newServer(c.answers...)
				err := sluice.Retry(bg, g, s.call, c.policy)
				if !errors.Is(err, c.why) {
					t.Errorf("got %v, want %v", err, c.why)
				}
				if name == "shorter than usual" {
					for i := range c.at {
						c.at[i] *= time.Minute
					}
				}
				s.want(t, c.at...)
			})
		})
	}
}

// The same for calls that come back while others have paused the gate, or that queue
// behind the pause.
func TestRetryPolicy_MaxServerWait_CoversPausesOfOthers(t *testing.T) {
	long := sluice.RetryPolicy{MaxServerWait: 3 * time.Hour, Backoff: sluice.Constant(time.Minute)}
	synctest.Test(t, func(t *testing.T) {
		g, l := fixedGate(t, sluice.Config{Rate: sluice.Rate{Count: 1, Per: time.Minute}}), synclog.New()
		l.Call(0, func() error { return sluice.Retry(bg, g, newServer(after(30*time.Second, down), fine).call, long) })
		time.Sleep(45 * time.Second)
		g.PauseUntil(time.Now().Add(time.Hour), "429 of another") // while it waits for its backoff
		time.Sleep(50 * time.Minute)
		g.PauseUntil(time.Now().Add(2*time.Hour), "and once more")
		time.Sleep(24 * time.Hour)
		l.Want(t, synclog.At(0, 45*time.Second+50*time.Minute+2*time.Hour))
	})
	synctest.Test(t, func(t *testing.T) {
		g, l := fixedGate(t, sluice.Config{Rate: sluice.Rate{Count: 1, Per: time.Minute}}), synclog.New()
		for i := range 60 { // all refused at first
			l.Call(i, func() error {
				return sluice.Retry(bg, g, newServer(after(time.Hour, retryAfter(time.Hour)), fine).call, long)
			})
		}
		time.Sleep(240 * time.Hour)
		for _, left := range l.Sofar() {
			if left.Err != nil {
				t.Error(left)
			}
		}
	})
}

// An endless wait ends never, and not in the past.
func TestRetryPolicy_AbsurdTimesSaturate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		far := func(context.Context) error { return sluice.ThrottledFor(errBusy, time.Until(time.Unix(1<<40, 0))) }
		const century = 100 * 365 * 24 * time.Hour
		endless := each(math.MaxInt64)
		endless.MaxServerWait = -1
		for name, c := range map[string]struct {
			answer answer
			policy sluice.RetryPolicy
			why    error
			at     time.Duration // 0: there is no time to come back
		}{
			"RetryAfter":             {retryAfter(math.MaxInt64), sluice.RetryPolicy{}, sluice.ErrServerWait, 0},
			"RetryAfter, no bound":   {retryAfter(math.MaxInt64), endless, sluice.ErrElapsed, 0},
			"RetryAt":                {far, sluice.RetryPolicy{}, sluice.ErrServerWait, 0},
			"RetryAt, no bound":      {far, endless, sluice.ErrElapsed, 0},
			"a century":              {retryAfter(century), sluice.RetryPolicy{}, sluice.ErrServerWait, time.Second + century},
			"backoff":                {down, endless, sluice.ErrElapsed, 0},
			"backoff after throttle": {busy, endless, sluice.ErrElapsed, 0},
			"backoff of a century":   {down, each(century), sluice.ErrElapsed, time.Second + century},
		} {
			g, s := fixedGate(t, sluice.Config{}), newServer(after(time.Second, c.answer))
			err := sluice.Retry(bg, g, s.call, c.policy)
			last := errBusy
			if errors.Is(err, errDown) {
				last = errDown
			}
			s.wantStop(t, err, stop{last: last, why: c.why, attempts: 1, at: time.Second, elapsed: time.Second, retryAt: c.at})
			s.want(t, 0)
			if t.Failed() {
				t.Fatal(name)
			}
		}
	})
}
