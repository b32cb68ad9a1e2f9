package servers_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/internal/testkit/synclog"
	"github.com/sluice-go/sluice/limits"
	"github.com/sluice-go/sluice/semaphore"
)

func TestRetryAfter_HoldsAllWorkersAndReleasesAtTheRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, l := fixedGate(t, sluice.Config{Rate: tenPerSecond, Concurrency: 64}), synclog.New()
		s := newServer(after(50*ms, retryAfter(30*time.Second)), fine)
		var want []synclog.Left
		for i := range 64 {
			l.Call(i, func() error { return sluice.Retry(bg, g, s.call) })
			want = append(want, synclog.At(i, 30*time.Second+50*ms+time.Duration(i)*100*ms))
		}
		want[0].Caller, want[1].Caller = 1, 0
		time.Sleep(100 * ms)
		if s := g.Stats(); s.PausedUntil.Sub(l.Start) != 30*time.Second+50*ms || s.PausedWhy != errBusy.Error() || s.Pacing != 64 {
			t.Errorf("during the pause: %+v", s)
		}
		time.Sleep(time.Minute)
		l.Want(t, want...) // the one with the server wait comes behind the first that waited
	})
}

// The same with workers that are all in flight when one of them gets the wait, and
// come back to the gate while it is paused.
func TestRetryAfter_HoldsWorkersThatComeBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, l := fixedGate(t, sluice.Config{Rate: sluice.Rate{Count: 1000, Per: time.Second}}), synclog.New()
		for i := range 64 {
			first := after(time.Second, fine)
			if i == 0 {
				first = after(100*ms, retryAfter(30*time.Second))
			}
			l.Call(i, func() error {
				if err := sluice.Retry(bg, g, newServer(first, fine).call); err != nil || i == 0 {
					return err
				}
				return sluice.Retry(bg, g, fine)
			})
		}
		time.Sleep(time.Minute)
		var want []synclog.Left
		for i := range 64 {
			want = append(want, synclog.At(i, 30100*ms+time.Duration(i)*ms))
		}
		l.Want(t, want...)
	})
}

// The answer comes before the permit is released: if it causes a pause, the permit
// must not let the next call leave first.
func TestRetryAfter_PausesBeforeRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, l := fixedGate(t, sluice.Config{Concurrency: 1}), synclog.New()
		s := newServer(after(time.Second, retryAfter(30*time.Second)), fine)
		for i := range 3 {
			l.Call(i, func() error { return sluice.Retry(bg, g, s.call) })
		}
		time.Sleep(time.Hour)
		s.want(t, 0, 31*time.Second, 31*time.Second, 31*time.Second)
	})
}

// The wait that one call gets holds for all, also if that call is not retried.
func TestRetryAfter_HoldsOthersWhateverBecomesOfTheCall(t *testing.T) {
	ctx, cancel := context.WithCancel(bg)
	for name, c := range map[string]struct {
		ctx    context.Context
		answer answer
	}{
		"cancelled": {ctx, func(ctx context.Context) error { cancel(); return retryAfter(30 * time.Second)(ctx) }},
		"permanent": {bg, func(ctx context.Context) error { return sluice.Permanent(retryAfter(30 * time.Second)(ctx)) }},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g, l := fixedGate(t, sluice.Config{}), synclog.New()
				sluice.Retry(c.ctx, g, c.answer)
				l.Call(0, enter(g, bg))
				time.Sleep(time.Hour)
				l.Want(t, synclog.At(0, 30*time.Second))
			})
		})
	}
}

func TestRetryAfter_UsesNoAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, s := fixedGate(t, sluice.Config{Rate: herd}), newServer(
			retryAfter(10*time.Second), retryAfter(10*time.Second), retryAfter(10*time.Second), down,
			retryAfter(10*time.Second), busy,
			retryAfter(10*time.Second), retryAfter(10*time.Second), down)
		p := each(time.Second)
		p.Attempts = 3
		err := sluice.Retry(bg, g, s.call, p)
		s.want(t, 0, 10*time.Second, 20*time.Second, 30*time.Second, 31*time.Second, 41*time.Second, 42*time.Second, 52*time.Second, 62*time.Second)
		s.wantStop(t, err, stop{last: errDown, why: sluice.ErrAttempts, attempts: 9, at: 62 * time.Second, elapsed: 62 * time.Second})
	})
}

func TestRetryAfter_UsesNotTheOnlyAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, s := fixedGate(t, sluice.Config{}), newServer(retryAfter(10*time.Second), fine)
		if err := sluice.Retry(bg, g, s.call, sluice.RetryPolicy{Attempts: 1}); err != nil {
			t.Error(err)
		}
		s.want(t, 0, 10*time.Second)
	})
}

func TestRetryAfter_NeverEarlier(t *testing.T) {
	for name, c := range map[string]struct {
		answer answer
		want   time.Duration
	}{
		"RetryAfter":              {retryAfter(10 * time.Second), 10 * time.Second},
		"RetryAfter a nanosecond": {retryAfter(1), ms},
		"RetryAfter counts from when it was marked": {func(context.Context) error {
			err := sluice.ThrottledFor(errBusy, 10*time.Second)
			time.Sleep(3 * time.Second) // reads the rest of the body
			return err
		}, 10 * time.Second},
		"RetryAfter that is over when the attempt ends": {func(context.Context) error {
			err := sluice.ThrottledFor(errBusy, 10*time.Second)
			time.Sleep(10 * time.Second)
			return err
		}, 11 * time.Second}, // a throttle without a time
		"RetryAt": {func(context.Context) error {
			return sluice.ThrottledFor(errBusy, 10*time.Second)
		}, 10 * time.Second},
		"RetryAt in another zone and without a monotonic part": {func(context.Context) error {
			return sluice.ThrottledFor(errBusy, time.Until(time.Now().Add(10*time.Second).Round(0).In(time.FixedZone("", 3600))))
		}, 10 * time.Second},
		"wrapped": {func(ctx context.Context) error {
			return fmt.Errorf("get /items/7: %w", retryAfter(10*time.Second)(ctx))
		}, 10 * time.Second},
		"joined": {func(ctx context.Context) error {
			return errors.Join(errDown, retryAfter(10*time.Second)(ctx))
		}, 10 * time.Second},
		"twice, the longer one counts": {func(ctx context.Context) error {
			return sluice.ThrottledFor(retryAfter(5*time.Second)(ctx), 10*time.Second)
		}, 10 * time.Second},
		"twice, whichever is outside": {func(ctx context.Context) error {
			return sluice.ThrottledFor(retryAfter(10*time.Second)(ctx), 5*time.Second)
		}, 10 * time.Second},
		"twice, and one did not say": {func(ctx context.Context) error {
			return errors.Join(busy(ctx), retryAfter(10*time.Second)(ctx), busy(ctx))
		}, 10 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g, s := fixedGate(t, sluice.Config{}), newServer(c.answer, fine)
				if err := sluice.Retry(bg, g, s.call, each(time.Second)); err != nil {
					t.Error(err)
				}
				s.want(t, 0, c.want)
			})
		})
	}
}

func TestRetryAfter_LongestCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, l := fixedGate(t, sluice.Config{}), synclog.New()
		for i, d := range []time.Duration{20 * time.Second, 40 * time.Second, 10 * time.Second} {
			s := newServer(after(time.Duration(i+1)*time.Second, retryAfter(d)), fine)
			l.Call(i, func() error { return sluice.Retry(bg, g, s.call) })
		}
		time.Sleep(time.Hour)
		l.Want(t, synclog.At(0, 42*time.Second), synclog.At(1, 42*time.Second), synclog.At(2, 42*time.Second))
	})
}

func TestRetryAfter_BeyondTheDeadlineStopsAtOnce(t *testing.T) {
	for _, d := range []time.Duration{time.Minute, 40 * time.Second, 30 * time.Second} { // at the deadline is too late
		synctest.Test(t, func(t *testing.T) {
			g, s := fixedGate(t, sluice.Config{Name: "api"}), newServer(after(10*time.Second, retryAfter(d)))
			ctx, cancel := context.WithTimeout(bg, 40*time.Second)
			defer cancel()
			err := sluice.Retry(ctx, g, s.call)
			s.want(t, 0)
			s.wantStop(t, err, stop{
				last: errBusy, why: context.DeadlineExceeded, attempts: 1,
				at: 10 * time.Second, elapsed: 10 * time.Second, retryAt: 10*time.Second + d,
			})
			var wait *limits.WaitError
			if !errors.As(err, &wait) || *wait != (limits.WaitError{By: "api", For: limits.ByPause, Need: d, Have: 30 * time.Second, Until: time.Now().Add(d)}) {
				t.Errorf("%v has %+v", err, wait)
			}
			if ctx.Err() != nil {
				t.Error("it waited for the deadline")
			}
			// All the others are still held back.
			if got := g.Stats().PausedUntil.Sub(s.start); got != 10*time.Second+d {
				t.Errorf("paused until %v", got)
			}
		})
	}
	synctest.Test(t, func(t *testing.T) {
		g, s := fixedGate(t, sluice.Config{}), newServer(retryAfter(30*time.Second), fine)
		ctx, cancel := context.WithTimeout(bg, 30*time.Second+1)
		defer cancel()
		if err := sluice.Retry(ctx, g, s.call); err != nil {
			t.Errorf("a nanosecond before the deadline: %v", err)
		}
	})
}

func TestRetryPolicy_MaxServerWait_StopsWaitersAndNewcomers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, l := fixedGate(t, sluice.Config{Name: "api", Rate: sluice.Rate{Count: 1, Per: time.Second}}), synclog.New()
		s := newServer(after(500*ms, retryAfter(6*time.Minute)), fine)
		call := func(p sluice.RetryPolicy) func() error {
			return func() error { return sluice.Retry(bg, g, s.call, p) }
		}
		const over = 6*time.Minute + 500*ms // when the pause is
		l.Call(0, call(sluice.RetryPolicy{}))
		l.Call(1, call(sluice.RetryPolicy{}))
		l.Call(2, call(sluice.RetryPolicy{MaxServerWait: 10 * time.Minute}))
		l.Call(3, call(sluice.RetryPolicy{MaxServerWait: 6 * time.Minute}))
		l.Call(4, call(sluice.RetryPolicy{MaxServerWait: 6*time.Minute - 1}))
		l.Call(5, call(sluice.RetryPolicy{MaxServerWait: -1}))
		l.Call(6, enter(g, bg)) // no Call, no bound
		time.Sleep(500 * ms)

		left := l.Sofar()
		l.Want(t,
			synclog.Failed(0, 500*ms, sluice.ErrServerWait),
			synclog.Failed(1, 500*ms, sluice.ErrServerWait),
			synclog.Failed(4, 500*ms, sluice.ErrServerWait),
		)
		if len(left) == 3 {
			s.wantStop(t, left[0].Err, stop{last: errBusy, why: sluice.ErrServerWait, attempts: 1, at: 500 * ms, elapsed: 500 * ms, retryAt: over})
			s.wantStop(t, left[1].Err, stop{why: sluice.ErrServerWait, at: 500 * ms, retryAt: over})
			s.wantStop(t, left[2].Err, stop{why: sluice.ErrServerWait, at: 500 * ms, retryAt: over})
			const want = "sluice: api: gave up after 0 attempts: the server asks for too long a wait, 6m0s for the pause (429 Too Many Requests), until 00:06:01, come back at 2000-01-01T00:06:01Z"
			if got := left[1].Err.Error(); got != want {
				t.Errorf("message %q, want %q", got, want)
			}
		}

		time.Sleep(time.Minute - time.Nanosecond) // 5 min and 1 ns are left
		l.Call(7, call(sluice.RetryPolicy{}))
		time.Sleep(time.Nanosecond)
		l.Call(8, call(sluice.RetryPolicy{}))
		time.Sleep(time.Hour)
		if got := l.Sofar(); len(got) > 3 {
			l.Want(t, append(got[:3],
				synclog.Failed(7, time.Minute+500*ms-1, sluice.ErrServerWait),
				synclog.At(2, over),
				synclog.At(3, over+1*time.Second),
				synclog.At(5, over+2*time.Second),
				synclog.At(6, over+3*time.Second),
				synclog.At(8, over+4*time.Second),
			)...)
		}
		if got := g.Stats().Rejected; got.Deadline != 3 { // 1, 4 and 7; 0 was not refused by the gate
			t.Errorf("refused: %+v", got)
		}
	})
}

func TestRetryPolicy_MaxServerWait_ProlongedPauseStopsWaiters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, l := fixedGate(t, sluice.Config{}), synclog.New()
		first := newServer(after(1*time.Second, retryAfter(4*time.Minute)), fine)
		other := newServer(after(2*time.Second, retryAfter(6*time.Minute)), fine)
		third := newServer(after(3*time.Second, down), fine)
		l.Call(0, func() error { return sluice.Retry(bg, g, first.call) })
		l.Call(1, func() error { return sluice.Retry(bg, g, other.call, sluice.RetryPolicy{MaxServerWait: time.Hour}) })
		l.Call(2, func() error { return sluice.Retry(bg, g, third.call, each(10*time.Second)) })
		time.Sleep(2 * time.Second)
		left := l.Sofar()
		if len(left) != 1 || left[0].Caller != 0 {
			t.Fatalf("after the second server wait: %v", left)
		}
		first.wantStop(t, left[0].Err, stop{
			last: errBusy, why: sluice.ErrServerWait, attempts: 1,
			at: 2 * time.Second, elapsed: 2 * time.Second, retryAt: 6*time.Minute + 2*time.Second,
		})
		// One that backs off notices when it comes back.
		time.Sleep(11 * time.Second)
		left = l.Sofar()
		if len(left) != 2 || left[1].Caller != 2 {
			t.Fatalf("after the backoff: %v", left)
		}
		third.wantStop(t, left[1].Err, stop{
			last: errDown, why: sluice.ErrServerWait, attempts: 1,
			at: 13 * time.Second, elapsed: 13 * time.Second, retryAt: 6*time.Minute + 2*time.Second,
		})
		time.Sleep(time.Hour)
		if left = l.Sofar(); len(left) != 3 || left[2].Err != nil || left[2].At != 6*time.Minute+2*time.Second {
			t.Errorf("the call that may wait that long: %v", left)
		}
	})
}

// Each call has its own bound, also behind a quota, where only the first caller asks.
func TestRetryPolicy_MaxServerWait_StopsCallsBehindALimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		quota := sluice.Limit{Name: "daily", Limiter: generous{}}
		g, l := fixedGate(t, sluice.Config{Rate: sluice.Rate{Count: 1, Per: time.Second}, Limits: []sluice.Limit{quota}}), synclog.New()
		s := newServer(after(500*ms, retryAfter(6*time.Minute)), fine)
		for i := range 3 {
			l.Call(i, func() error { return sluice.Retry(bg, g, s.call) })
		}
		time.Sleep(time.Second)
		l.Call(3, func() error { return sluice.Retry(bg, g, s.call) })
		l.Call(4, func() error { return sluice.Retry(bg, g, s.call, sluice.RetryPolicy{MaxServerWait: -1}) })
		time.Sleep(time.Hour)
		l.Want(t,
			synclog.Failed(0, 500*ms, sluice.ErrServerWait),
			synclog.Failed(1, 500*ms, sluice.ErrServerWait),
			synclog.Failed(2, 500*ms, sluice.ErrServerWait),
			synclog.Failed(3, time.Second, sluice.ErrServerWait),
			synclog.At(4, 6*time.Minute+500*ms),
		)
	})
}

// generous is a limiter with enough for every call.
type generous struct{}

func (generous) Admit(context.Context, int64) (time.Duration, error) { return 0, nil }
func (generous) Adjust(context.Context, int64, time.Duration) error  { return nil }

// The pause of a parent holds a call as much as that of its gate.
func TestRetryPolicy_MaxServerWait_PauseOfTheParent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := fixedGate(t, sluice.Config{Name: "all"})
		g, l := fixedGate(t, sluice.Config{Name: "host", Parent: all}), synclog.New()
		sluice.Retry(bg, all, retryAfter(6*time.Minute))
		l.Call(0, func() error { return sluice.Retry(bg, g, fine) })
		l.Want(t, synclog.Failed(0, 0, sluice.ErrServerWait))
		time.Sleep(time.Hour)
	})
}

// A server that refuses and does not say for how long throttles that call, and no
// other.
func TestRetryAfter_WithoutATimeIsAThrottle(t *testing.T) {
	for name, mark := range map[string]func() error{
		"zero":          func() error { return sluice.ThrottledFor(errBusy, 0) },
		"negative":      func() error { return sluice.ThrottledFor(errBusy, -time.Hour) },
		"most negative": func() error { return sluice.ThrottledFor(errBusy, math.MinInt64) },
		"past":          func() error { return sluice.ThrottledFor(errBusy, -1) },
		"now":           func() error { return sluice.ThrottledFor(errBusy, 0) },
		"epoch":         func() error { return sluice.ThrottledFor(errBusy, time.Until(time.Unix(0, 0))) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g, s := fixedGate(t, sluice.Config{}), newServer(func(context.Context) error { return mark() })
				p := sluice.RetryPolicy{Attempts: 3, Backoff: sluice.Constant(time.Second), ThrottleBackoff: sluice.Constant(7 * time.Second)}
				done := make(chan error)
				go func() { done <- sluice.Retry(bg, g, s.call, p) }()
				time.Sleep(time.Second)
				if got := g.Stats(); !got.PausedUntil.IsZero() || got.RetryTokens != 95 {
					t.Errorf("during the backoff: %+v", got)
				}
				err := <-done
				s.want(t, 0, 7*time.Second, 14*time.Second)
				s.wantStop(t, err, stop{last: errBusy, why: sluice.ErrAttempts, attempts: 3, at: 14 * time.Second, elapsed: 14 * time.Second})
			})
		})
	}
}

func TestRetryAfter_NeedsRetryBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := spent(t, sluice.Config{Rate: herd})
		s := newServer(retryAfter(time.Minute))
		err := sluice.Retry(bg, g, s.call, each(time.Second))
		s.wantStop(t, err, stop{last: errBusy, why: sluice.ErrBudget, attempts: 1, retryAt: time.Minute})
		// What the server said holds for all the others.
		l := synclog.New()
		l.Call(0, enter(g, bg))
		l.Call(1, enter(g, bg))
		time.Sleep(time.Hour)
		l.Want(t, synclog.At(0, 60*time.Second), synclog.At(1, 60*time.Second+250*ms)) // 1 s, halved by the quiet
	})
}

func TestRetryAfter_LastsAtLeastAMillisecond(t *testing.T) {
	for _, d := range []time.Duration{1, 20 * time.Microsecond, ms - 1, ms, ms + 1} {
		synctest.Test(t, func(t *testing.T) {
			g, s := fixedGate(t, sluice.Config{}), newServer(retryAfter(d), retryAfter(d), fine)
			if err := sluice.Retry(bg, g, s.call); err != nil {
				t.Error(err)
			}
			s.want(t, 0, max(d, ms), 2*max(d, ms))
			if err := g.Do(bg, retryAfter(d)); err == nil {
				t.Error("no error")
			}
			if got := time.Until(g.Stats().PausedUntil); got != max(d, ms) {
				t.Errorf("Gate.Do: paused for %v", got)
			}
		})
	}
}

func TestRetryAfter_NanosecondWaitsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, n := fixedGate(t, sluice.Config{RetryBudget: -1}), 0
		start := time.Now()
		err := sluice.Retry(bg, g, func(context.Context) error {
			n++
			return sluice.ThrottledFor(errBusy, 1)
		}, sluice.RetryPolicy{MaxElapsed: time.Minute})
		if !errors.Is(err, sluice.ErrElapsed) || n != 60_001 || time.Since(start) != time.Minute {
			t.Errorf("%d attempts in %v: %v", n, time.Since(start), err)
		}
	})
}

// # Waits of one call

// second is a policy with a constant backoff of 1 s.
var second = sluice.RetryPolicy{Backoff: sluice.Constant(time.Second), ThrottleBackoff: sluice.Constant(time.Second)}

// The call waits until the given time, or for its backoff if that is longer.
func TestNotBefore_DelaysTheRetry(t *testing.T) {
	for _, tt := range []struct {
		name string
		says answer
		want time.Duration
	}{
		{"longer than the backoff", notBefore(20 * time.Second), 20 * time.Second},
		{"shorter than the backoff", notBefore(100 * time.Millisecond), time.Second},
		{"a time that has passed", notBefore(-time.Hour), time.Second},
		{"no wait", func(context.Context) error { return sluice.RetryAfter(errDown, -1) }, time.Second},
		{"two of them", func(ctx context.Context) error {
			return errors.Join(notBefore(5*time.Second)(ctx), notBefore(7*time.Second)(ctx), notBefore(6*time.Second)(ctx))
		}, 7 * time.Second},
		{"within another error", func(ctx context.Context) error { return fmt.Errorf("get: %w", notBefore(9*time.Second)(ctx)) }, 9 * time.Second},
		{"with a throttle that has a time", func(ctx context.Context) error {
			return sluice.RetryAfter(retryAfter(3*time.Second)(ctx), 9*time.Second)
		}, 3 * time.Second},
		{"with a throttle that has none", func(ctx context.Context) error {
			return sluice.RetryAfter(busy(ctx), 9*time.Second)
		}, 9 * time.Second},
		{"of another gate", func(ctx context.Context) error {
			return &sluice.RetryError{Last: notBefore(time.Minute)(ctx), Why: sluice.ErrAttempts}
		}, time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newServer(tt.says, fine)
				g, _ := sluice.New(sluice.Config{})
				if err := sluice.Retry(t.Context(), g, s.call, second); err != nil {
					t.Error(err)
				}
				s.want(t, 0, tt.want)
			})
		})
	}
	if sluice.RetryAfter(nil, 0) != nil {
		t.Error("NotBefore(nil, t) is not nil")
	}
}

// Other calls go on, in the same gate, in its siblings and in its parent; the call that
// waits holds no permit of any of them.
func TestNotBefore_HoldsItsCallOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		parent, _ := sluice.New(sluice.Config{Concurrency: 1})
		g, _ := sluice.New(sluice.Config{Concurrency: 1, Rate: sluice.Rate{Count: 1, Per: time.Second}, Parent: parent})
		s := newServer(notBefore(time.Minute), fine)
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				if err := sluice.Retry(t.Context(), g, s.call, second); err != nil {
					t.Error(err)
				}
			})
		}
		time.Sleep(30 * time.Second)
		for name, stats := range map[string]sluice.Stats{"gate": g.Stats(), "parent": parent.Stats()} {
			if stats.InFlight != 0 || stats.Waiting != 0 || !stats.PausedUntil.IsZero() {
				t.Errorf("%s: %d in flight, %d wait, paused until %v", name, stats.InFlight, stats.Waiting, stats.PausedUntil)
			}
		}
		wg.Wait()
		s.want(t, 0, time.Second, 2*time.Second, 3*time.Second, time.Minute)
	})
}

func TestNotBefore_IsBounded(t *testing.T) {
	s := time.Second
	for _, tt := range []struct {
		name    string
		policy  sluice.RetryPolicy
		says    answer
		timeout time.Duration
		why     error
		retryAt time.Duration
	}{
		{"by MaxServerWait", sluice.RetryPolicy{}, notBefore(5*time.Minute + 1), 0, sluice.ErrServerWait, 5*time.Minute + 1},
		{"by a MaxServerWait of one's own", sluice.RetryPolicy{MaxServerWait: s}, notBefore(2 * s), 0, sluice.ErrServerWait, 2 * s},
		{"by MaxElapsed", sluice.RetryPolicy{MaxElapsed: 10 * s}, notBefore(11 * s), 0, sluice.ErrElapsed, 11 * s},
		{"by the deadline", sluice.RetryPolicy{}, notBefore(11 * s), 10 * s, context.DeadlineExceeded, 11 * s},
		{"by Attempts", sluice.RetryPolicy{Attempts: 1}, notBefore(s), 0, sluice.ErrAttempts, 0},
		{"by the end of time", sluice.RetryPolicy{MaxServerWait: -1}, notBefore(math.MaxInt64), 0, sluice.ErrElapsed, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx := t.Context()
				if tt.timeout > 0 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, tt.timeout)
					defer cancel()
				}
				srv := newServer(tt.says, fine)
				g, _ := sluice.New(sluice.Config{})
				err := sluice.Retry(ctx, g, srv.call, tt.policy)
				srv.wantStop(t, err, stop{last: errDown, why: tt.why, attempts: 1, retryAt: tt.retryAt})
			})
		})
	}
}

// RetryAt does not make a permanent failure retryable.
func TestNotBefore_OfAPermanentError(t *testing.T) {
	for _, tt := range []struct {
		policy sluice.RetryPolicy
		says   answer
	}{
		{sluice.RetryPolicy{}, func(ctx context.Context) error { return sluice.Permanent(notBefore(time.Second)(ctx)) }},
		{sluice.RetryPolicy{}, func(ctx context.Context) error {
			return sluice.RetryAfter(sluice.Permanent(errDown), time.Second)
		}},
		{sluice.RetryPolicy{Retryable: func(error) bool { return false }}, notBefore(time.Second)},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := newServer(tt.says, fine)
			g, _ := sluice.New(sluice.Config{})
			if err := sluice.Retry(t.Context(), g, s.call, tt.policy); !errors.Is(err, errDown) {
				t.Errorf("ended with %v", err)
			}
			s.want(t, 0)
		})
	}
}

// It is an ordinary failure: charged, counted, and not a throttle.
func TestNotBefore_IsChargedToTheRetryBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, _ := sluice.New(sluice.Config{RetryBudget: 5})
		s := newServer(notBefore(10 * time.Second))
		err := sluice.Retry(t.Context(), g, s.call, sluice.RetryPolicy{Backoff: sluice.Constant(time.Second)})
		s.wantStop(t, err, stop{last: errDown, why: sluice.ErrBudget, attempts: 2, at: 10 * time.Second, elapsed: 10 * time.Second, retryAt: 20 * time.Second})
		if spacing := g.Stats().Spacing; spacing != time.Second {
			t.Errorf("the empty budget spaces calls at %v, want the backoff", spacing)
		}
	})
}

// A cancelled wait ends at once, and so does that of a gate that is closed.
func TestNotBefore_Cancel(t *testing.T) {
	for _, closed := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			g, _ := sluice.New(sluice.Config{Concurrency: 1})
			why := context.Canceled
			end := cancel
			if closed {
				why, end = limits.ErrClosed, g.Close
			}
			time.AfterFunc(3*time.Second, end)
			s := newServer(notBefore(time.Minute), fine)
			err := sluice.Retry(ctx, g, s.call, second)
			s.wantStop(t, err, stop{last: errDown, why: why, attempts: 1, at: 3 * time.Second, elapsed: 3 * time.Second})
			if n := g.Stats().InFlight; n != 0 {
				t.Errorf("%d in flight", n)
			}
		})
	}
}

// Windows of a second have space for what a right rate allows, and calls take unequal time to the
// server: now and then there is one more, which costs a pause of a second. The gate goes a little
// slower then. It took 92 s for what needs 60.
func TestGate_ConfiguredRate_Windows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := mustGate(t, sluice.Config{Name: "api", Rate: sluice.Rate{Count: 50, Per: time.Second}})
		var mu sync.Mutex
		var granted, throttled int
		var until time.Time
		took := work(t, 64, 3000, func() error {
			return sluice.Retry(t.Context(), g, func(context.Context) error {
				time.Sleep(8*ms + rand.N(15*ms))
				mu.Lock()
				defer mu.Unlock()
				if now := time.Now(); !now.Before(until) {
					granted, until = 0, now.Add(time.Second)
				}
				if granted++; granted > 50 {
					throttled++
					return sluice.ThrottledFor(errors.New("throttled"), time.Second)
				}
				return nil
			}, sluice.RetryPolicy{Attempts: -1})
		})
		if took > 67*time.Second || throttled > 6 {
			t.Errorf("3,000 calls at 50/s took %v, %d were throttled", took, throttled)
		}
	})
}

func TestRetry_LostLeaseIsTheReason(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lost := make(chan struct{})
		close(lost)
		g := mustGate(t, sluice.Config{Semaphore: shared{semaphore.NewWeighted(1), lost}})
		err := sluice.Retry(bg, g, func(ctx context.Context) error {
			<-ctx.Done()
			return ctx.Err()
		}, sluice.RetryPolicy{Attempts: 1})
		if !errors.Is(err, limits.ErrLeaseLost) {
			t.Error(err)
		}
	})
}

func TestRetry_LostLeaseEndsTheAttemptOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lease := &brittleLease{}
		g := mustGate(t, sluice.Config{Semaphore: lease})
		s := newServer(func(ctx context.Context) error {
			go func() {
				time.Sleep(time.Second)
				close(lease.lost)
			}()
			<-ctx.Done()
			if cause := context.Cause(ctx); cause != limits.ErrLeaseLost {
				t.Errorf("the attempt ended because of %v", cause)
			}
			return ctx.Err()
		}, fine)
		if err := sluice.Retry(bg, g, s.call, each(time.Second)); err != nil {
			t.Error(err)
		}
		s.want(t, 0, 2*time.Second)
		if lease.lent != 2 || lease.back != 2 {
			t.Errorf("%d permits lent, %d given back", lease.lent, lease.back)
		}
	})
}

// brittleLease lends any number of permits, one after the other.
type brittleLease struct {
	lent, back int
	lost       chan struct{}
}

func (l *brittleLease) Acquire(context.Context, int64, time.Duration) (limits.Lease, error) {
	l.lent++
	l.lost = make(chan struct{})
	return l, nil
}

func (l *brittleLease) Release()              { l.back++ }
func (l *brittleLease) Lost() <-chan struct{} { return l.lost }

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
