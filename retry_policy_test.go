package sluice_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice"
)

func TestRetryPolicy_Zero_MakesFourAttempts(t *testing.T) {
	for name, a := range map[string]answer{"plain": down, "throttle": busy, "timeout": late} {
		synctest.Test(t, func(t *testing.T) {
			g, s := fixedGate(t, sluice.Config{}), newServer(a)
			err := sluice.Retry(bg, g, sluice.RetryPolicy{}, s.call)
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
				sluice.Retry(bg, g, sluice.RetryPolicy{Attempts: len(c.tops) + 1}, s.call)
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
		err := sluice.Retry(bg, g, p, s.call)
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
		err := sluice.Retry(bg, g, sluice.RetryPolicy{}, s.call)
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
			err := sluice.Retry(bg, g, p, s.call)
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
			if err := sluice.Retry(bg, g, p, s.call); err != nil || len(s.attempts()) != 501 {
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
		err := sluice.Retry(bg, g, p, s.call)
		s.want(t, 0, 13*time.Second, 26*time.Second)
		s.wantStop(t, err, stop{
			last: context.DeadlineExceeded, why: sluice.ErrAttempts, attempts: 3,
			at: 29 * time.Second, elapsed: 29 * time.Second,
		})

		s = newServer(hang, hang, fine)
		ctx, cancel := context.WithTimeout(bg, time.Hour)
		defer cancel()
		if err := sluice.Retry(ctx, g, p, s.call); err != nil {
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
		err := sluice.Retry(ctx, g, p, s.call)
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
		err := sluice.Retry(bg, g, sluice.RetryPolicy{AttemptTimeout: d}, func(ctx context.Context) error {
			if at, ok := ctx.Deadline(); ok {
				t.Errorf("AttemptTimeout %v: deadline at %v", d, at)
			}
			return ctx.Err()
		})
		if err != nil {
			t.Errorf("AttemptTimeout %v: %v", d, err)
		}
	}
}

func TestRetryPolicy_AttemptTimeout_ContextEndsWithTheAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := fixedGate(t, sluice.Config{})
		var seen []context.Context
		sluice.Retry(bg, g, sluice.RetryPolicy{AttemptTimeout: time.Hour, Attempts: 2}, func(ctx context.Context) error {
			for _, before := range seen {
				if before.Err() != context.Canceled {
					t.Errorf("the context of an attempt before is still there: %v", before.Err())
				}
			}
			seen = append(seen, ctx)
			return errDown
		})
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
		err := sluice.Retry(bg, g, p, s.call)
		s.want(t, 0, 1*time.Second, 2*time.Second, 3*time.Second, 4*time.Second)
		s.wantStop(t, err, stop{last: os.ErrInvalid, why: sluice.ErrPermanent, attempts: 5, at: 4 * time.Second, elapsed: 4 * time.Second})
		if want := []error{errDown, errDown, os.ErrInvalid}; !slices.Equal(asked, want) {
			t.Errorf("asked about %v, want %v", asked, want)
		}

		// Nor does false outweigh a server that asks to come back.
		asked, p.Retryable = nil, func(error) bool { asked = append(asked, err); return false }
		s = newServer(busy, retryAfter(time.Second), gone)
		err = sluice.Retry(bg, fixedGate(t, sluice.Config{Rate: herd}), p, s.call)
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
		p := sluice.RetryPolicy{Attempts: 6, Backoff: curve("plain", time.Second), Throttled: curve("throttled", 10*time.Second)}
		g, s := fixedGate(t, sluice.Config{RetryBudget: -1}), newServer(down, busy, retryAfter(time.Minute), down, late, busy)
		sluice.Retry(bg, g, p, s.call)
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
				if err := sluice.Retry(bg, g, sluice.RetryPolicy{Backoff: curve, Throttled: curve}, s.call); err != nil {
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
		sluice.Retry(bg, fixedGate(t, sluice.Config{}), sluice.RetryPolicy{Backoff: func(_ int, _ time.Duration, u float64) time.Duration {
			return table[int(u*3)]
		}}, func(context.Context) error { return errors.New("x") })
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
			Throttled: func(retry int, _ time.Duration, _ float64) time.Duration { return time.Second << (retry - 1) },
			Retryable: func(err error) bool { return err == errDown },
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
				if err := sluice.Retry(bg, g, p, s.call); !errors.Is(err, sluice.ErrAttempts) {
					t.Errorf("call %d: %v", i, err)
				}
				s.want(t, want...)
			})
		}
		calls.Wait()
	})
}
