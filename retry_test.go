package sluice_test

import (
	"context"
	"errors"
	"fmt"
	"math"
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

var (
	errDown = errors.New("503 Service Unavailable")
	errBusy = errors.New("429 Too Many Requests")
)

// An answer is how a server ends an attempt.
type answer func(ctx context.Context) error

func always(err error) answer { return func(context.Context) error { return err } }

var (
	fine = always(nil)
	down = always(errDown)
	busy = always(sluice.RetryAfter(errBusy, 0))    // and does not say for how long
	late = always(os.ErrDeadlineExceeded)           // as a connection that timed out
	gone = always(sluice.Permanent(os.ErrNotExist)) // and will be next time
)

// told asks not to be called again before d has passed.
func told(d time.Duration) answer {
	return func(context.Context) error { return sluice.RetryAfter(errBusy, d) }
}

// after takes d to answer.
func after(d time.Duration, a answer) answer {
	return func(ctx context.Context) error {
		time.Sleep(d)
		return a(ctx)
	}
}

// A server gives the first attempt the first of its answers, the second the
// second and so on; the last one again and again.
type server struct {
	start time.Time

	mu      sync.Mutex
	answers []answer
	came    []time.Duration // when the attempts came
}

func newServer(answers ...answer) *server {
	return &server{start: time.Now(), answers: answers}
}

func (s *server) call(ctx context.Context) error {
	s.mu.Lock()
	s.came = append(s.came, time.Since(s.start))
	a := s.answers[min(len(s.came), len(s.answers))-1]
	s.mu.Unlock()
	return a(ctx)
}

func (s *server) attempts() []time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.came)
}

// want compares when the attempts came with what is right.
func (s *server) want(t testing.TB, came ...time.Duration) {
	t.Helper()
	if got := s.attempts(); !slices.Equal(got, came) {
		t.Errorf("attempts came at\n\t%v\nwant\n\t%v", got, came)
	}
}

// A stop is what is to be known of a RetryError. Instants count from the
// start of the server.
type stop struct {
	last, why error
	attempts  int
	at        time.Duration // when the call ended
	elapsed   time.Duration // since its first attempt
	retryAt   time.Duration // 0 if nothing is known
}

// wantStop compares err, with which a call ended just now, with what is right.
func (s *server) wantStop(t testing.TB, err error, want stop) {
	t.Helper()
	var got *sluice.RetryError
	if !errors.As(err, &got) || err != error(got) {
		t.Errorf("ended with %v (%T), want %+v", err, err, want)
		return
	}
	at := time.Since(s.start)
	var retryAt time.Duration
	if !got.RetryAt.IsZero() {
		retryAt = got.RetryAt.Sub(s.start)
	}
	if !errors.Is(got.Last, want.last) || !errors.Is(got.Why, want.why) || got.Attempts != want.attempts ||
		got.Elapsed != want.elapsed || retryAt != want.retryAt || at != want.at {
		t.Errorf("stopped at %v with %+v, come back at %v\nwant %+v", at, *got, retryAt, want)
	}
	if !errors.Is(err, want.why) || want.last != nil && !errors.Is(err, want.last) {
		t.Errorf("%v does not match both %v and %v", err, want.why, want.last)
	}
}

type failRecorder struct {
	testing.TB
	failed bool
}

func (r *failRecorder) Helper()               {}
func (r *failRecorder) Errorf(string, ...any) { r.failed = true }

// A helper that compares must be able to fail.
func TestServerWantCanFail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(down, after(time.Second, busy), fine)
		for range 4 {
			s.call(bg)
		}
		for name, c := range map[string]struct {
			came []time.Duration
			ok   bool
		}{
			"right":         {[]time.Duration{0, 0, time.Second, time.Second}, true},
			"other instant": {[]time.Duration{0, 1, time.Second, time.Second}, false},
			"one missing":   {[]time.Duration{0, 0, time.Second}, false},
			"one too many":  {[]time.Duration{0, 0, time.Second, time.Second, time.Second}, false},
			"nothing":       {nil, false},
		} {
			r := &failRecorder{TB: t}
			if s.want(r, c.came...); r.failed == c.ok {
				t.Errorf("%s: failed = %v", name, r.failed)
			}
		}

		right := stop{last: errDown, why: sluice.ErrElapsed, attempts: 3, at: time.Second, elapsed: 500 * ms, retryAt: time.Minute}
		err := &sluice.RetryError{Last: errDown, Why: sluice.ErrElapsed, Attempts: 3, Elapsed: 500 * ms, RetryAt: s.start.Add(time.Minute)}
		for name, c := range map[string]struct {
			err    error
			change func(*stop)
			ok     bool
		}{
			"right":            {err, func(*stop) {}, true},
			"other last error": {err, func(s *stop) { s.last = errBusy }, false},
			"other reason":     {err, func(s *stop) { s.why = sluice.ErrAttempts }, false},
			"other attempts":   {err, func(s *stop) { s.attempts++ }, false},
			"ended later":      {err, func(s *stop) { s.at++ }, false},
			"other elapsed":    {err, func(s *stop) { s.elapsed++ }, false},
			"other time":       {err, func(s *stop) { s.retryAt++ }, false},
			"no time":          {err, func(s *stop) { s.retryAt = 0 }, false},
			"wrapped":          {fmt.Errorf("x: %w", err), func(*stop) {}, false},
			"bare":             {sluice.ErrElapsed, func(*stop) {}, false},
			"nil":              {nil, func(*stop) {}, false},
		} {
			r, want := &failRecorder{TB: t}, right
			c.change(&want)
			if s.wantStop(r, c.err, want); r.failed == c.ok {
				t.Errorf("%s: failed = %v", name, r.failed)
			}
		}
	})
}

// herd is a rate so high that it spaces nothing: without any rate a gate starts
// slowly after each refusal.
var herd = sluice.Rate{Count: 1e9, Per: time.Second}

// each is a policy that waits d before each retry, whatever the failure.
func each(d time.Duration) sluice.RetryPolicy {
	return sluice.RetryPolicy{Backoff: sluice.Constant(d), Throttled: sluice.Constant(d)}
}

func TestCallReturnsWhatTheFunctionReturns(t *testing.T) {
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

func TestCallReturnsTheZeroValueOnFailure(t *testing.T) {
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

// Defaults.

func TestTheZeroPolicyMakesFourAttempts(t *testing.T) {
	for name, a := range map[string]answer{"plain": down, "throttle": busy, "timeout": late} {
		synctest.Test(t, func(t *testing.T) {
			g, s := mustGate(t, sluice.Config{}), newServer(a)
			err := sluice.Retry(bg, g, sluice.RetryPolicy{}, s.call)
			came := s.attempts()
			if len(came) != 4 {
				t.Fatalf("%s: %d attempts", name, len(came))
			}
			s.wantStop(t, err, stop{last: a(bg), why: sluice.ErrAttempts, attempts: 4, at: came[3], elapsed: came[3]})
		})
	}
}

// Waits that are uniform in [0, x) can be told from others by a thousand of
// them: that none is below 0.1·x or none above 0.9·x, or that the mean is not
// near x/2, has a probability of less than 10⁻²⁰.
func TestTheZeroPolicyJittersFully(t *testing.T) {
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
			g := mustGate(t, sluice.Config{Rate: herd, RetryBudget: -1})
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

func TestTheZeroPolicyRetriesForFifteenMinutes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, s := mustGate(t, sluice.Config{RetryBudget: -1}), newServer(down)
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

func TestTheZeroPolicyWaitsFiveMinutesForAServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, s := mustGate(t, sluice.Config{}), newServer(told(5*time.Minute), told(5*time.Minute+1))
		err := sluice.Retry(bg, g, sluice.RetryPolicy{}, s.call)
		s.want(t, 0, 5*time.Minute)
		s.wantStop(t, err, stop{
			last: errBusy, why: sluice.ErrServerWait, attempts: 2,
			at: 5 * time.Minute, elapsed: 5 * time.Minute, retryAt: 10*time.Minute + 1,
		})
	})
}

// Fields of a policy.

func TestAttemptsIncludesTheFirst(t *testing.T) {
	for _, n := range []int{1, 2, 3, 10} {
		synctest.Test(t, func(t *testing.T) {
			g, s := mustGate(t, sluice.Config{}), newServer(down)
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

func TestNegativeAttemptsAreUnbounded(t *testing.T) {
	for _, n := range []int{-1, math.MinInt} {
		synctest.Test(t, func(t *testing.T) {
			var answers []answer
			for range 500 {
				answers = append(answers, down)
			}
			g, s := mustGate(t, sluice.Config{RetryBudget: -1}), newServer(append(answers, fine)...)
			p := each(time.Second)
			p.Attempts = n
			if err := sluice.Retry(bg, g, p, s.call); err != nil || len(s.attempts()) != 501 {
				t.Errorf("Attempts %d: %d attempts, %v", n, len(s.attempts()), err)
			}
		})
	}
}

func TestMaxElapsedBoundsTheStartOfRetries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// Each attempt takes 3 s and each backoff 7 s. What an attempt takes
		// counts, but one that begins in time may end when it likes.
		g, s := mustGate(t, sluice.Config{}), newServer(after(3*time.Second, down))
		p := each(7 * time.Second)
		p.MaxElapsed, p.Attempts = 20*time.Second, -1
		err := sluice.Retry(bg, g, p, s.call)
		s.want(t, 0, 10*time.Second, 20*time.Second)
		s.wantStop(t, err, stop{
			last: errDown, why: sluice.ErrElapsed, attempts: 3,
			at: 23 * time.Second, elapsed: 23 * time.Second, retryAt: 30 * time.Second,
		})

		s = newServer(after(3*time.Second, down))
		p.MaxElapsed--
		err = sluice.Retry(bg, g, p, s.call)
		s.want(t, 0, 10*time.Second)
		s.wantStop(t, err, stop{
			last: errDown, why: sluice.ErrElapsed, attempts: 2,
			at: 13 * time.Second, elapsed: 13 * time.Second, retryAt: 20 * time.Second,
		})
	})
}

func TestNoRetryLeavesLaterThanMaxElapsed(t *testing.T) {
	p := each(time.Second)
	p.MaxElapsed = time.Minute
	t.Run("when the gate is slow", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			g, s := mustGate(t, sluice.Config{Rate: sluice.Rate{Count: 1, Per: 40 * time.Second}}), newServer(down)
			err := sluice.Retry(bg, g, p, s.call)
			s.want(t, 0, 40*time.Second)
			s.wantStop(t, err, stop{last: errDown, why: sluice.ErrElapsed, attempts: 2, at: 41 * time.Second, elapsed: 41 * time.Second, retryAt: 80 * time.Second})
		})
	})
	t.Run("exactly then is not later", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			g, s := mustGate(t, sluice.Config{Rate: sluice.Rate{Count: 1, Per: time.Minute}}), newServer(down, fine)
			if err := sluice.Retry(bg, g, p, s.call); err != nil {
				t.Error(err)
			}
			s.want(t, 0, time.Minute)
		})
	})
	t.Run("whatever the deadline of the context", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			g, s := mustGate(t, sluice.Config{Rate: sluice.Rate{Count: 1, Per: 2 * time.Minute}}), newServer(down)
			ctx, cancel := context.WithTimeout(bg, 90*time.Second) // too early, too
			defer cancel()
			err := sluice.Retry(ctx, g, p, s.call)
			s.wantStop(t, err, stop{last: errDown, why: sluice.ErrElapsed, attempts: 1, at: time.Second, elapsed: time.Second, retryAt: 2 * time.Minute})
		})
	})
	t.Run("behind others after a told wait", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			g, l := mustGate(t, sluice.Config{Rate: sluice.Rate{Count: 1, Per: time.Second}}), synclog.New()
			s := newServer(after(500*ms, told(30*time.Second)), fine)
			l.Call(0, func() error { return sluice.Retry(bg, g, p, s.call) })
			for i := range 100 {
				l.Call(i+1, enter(g, bg))
			}
			time.Sleep(time.Second)
			l.Want(t, synclog.Failed(0, 500*ms, sluice.ErrElapsed))
			time.Sleep(time.Hour)
		})
	})
	t.Run("when a pause is prolonged", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			g, l := mustGate(t, sluice.Config{}), synclog.New()
			s := newServer(told(30*time.Second), fine)
			l.Call(0, func() error { return sluice.Retry(bg, g, p, s.call) })
			time.Sleep(10 * time.Second)
			g.PauseUntil(time.Now().Add(50*time.Second), "another")
			l.Want(t)
			g.PauseUntil(time.Now().Add(50*time.Second+1), "a third")
			l.Want(t, synclog.Failed(0, 10*time.Second, sluice.ErrElapsed))
			s.want(t, 0)
		})
	})
	t.Run("when nobody knows how long", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			g, l := mustGate(t, sluice.Config{Concurrency: 1}), synclog.New()
			s := newServer(down, fine)
			l.Call(0, func() error { return sluice.Retry(bg, g, p, s.call) })
			l.Call(1, func() error { return hold(g, time.Hour) })
			time.Sleep(2 * time.Hour)
			l.Want(t, synclog.Failed(0, time.Minute, sluice.ErrElapsed), synclog.At(1, time.Hour))
		})
	})
}

func TestTimeInTheQueueBeforeTheFirstAttemptDoesNotCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, s := mustGate(t, sluice.Config{}), newServer(down)
		g.PauseUntil(time.Now().Add(time.Minute), "maintenance")
		p := each(5 * time.Second)
		p.MaxElapsed = 10 * time.Second
		err := sluice.Retry(bg, g, p, s.call)
		s.want(t, 60*time.Second, 65*time.Second, 70*time.Second)
		s.wantStop(t, err, stop{
			last: errDown, why: sluice.ErrElapsed, attempts: 3,
			at: 70 * time.Second, elapsed: 10 * time.Second, retryAt: 75 * time.Second,
		})
	})
}

func TestNegativeMaxElapsedIsUnbounded(t *testing.T) {
	for _, d := range []time.Duration{-1, math.MinInt64} {
		synctest.Test(t, func(t *testing.T) {
			g, s := mustGate(t, sluice.Config{}), newServer(down, told(10*24*time.Hour), down, fine)
			p := each(365 * 24 * time.Hour)
			p.MaxElapsed, p.MaxServerWait = d, -1
			if err := sluice.Retry(bg, g, p, s.call); err != nil {
				t.Error(err)
			}
			s.want(t, 0, 365*24*time.Hour, 375*24*time.Hour, 740*24*time.Hour)
		})
	}
}

func TestMaxServerWaitIsTheLongestWaitThatIsTolerated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := each(time.Second)
		p.MaxServerWait = time.Minute
		g, s := mustGate(t, sluice.Config{}), newServer(told(time.Minute), fine)
		if err := sluice.Retry(bg, g, p, s.call); err != nil {
			t.Error(err)
		}
		s.want(t, 0, time.Minute)

		g, s = mustGate(t, sluice.Config{}), newServer(told(time.Minute+1), fine)
		err := sluice.Retry(bg, g, p, s.call)
		s.want(t, 0)
		s.wantStop(t, err, stop{last: errBusy, why: sluice.ErrServerWait, attempts: 1, retryAt: time.Minute + 1})
	})
}

func TestNegativeMaxServerWaitIsUnbounded(t *testing.T) {
	for _, d := range []time.Duration{-1, math.MinInt64} {
		synctest.Test(t, func(t *testing.T) {
			g, s := mustGate(t, sluice.Config{}), newServer(told(365*24*time.Hour), fine)
			if err := sluice.Retry(bg, g, sluice.RetryPolicy{MaxServerWait: d, MaxElapsed: -1}, s.call); err != nil {
				t.Error(err)
			}
			s.want(t, 0, 365*24*time.Hour)
		})
	}
}

// A wait that has no end is never, and not an hour ago.
func TestAbsurdTimesSaturate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		far := func(context.Context) error { return sluice.RetryAt(errBusy, time.Unix(1<<40, 0)) }
		const century = 100 * 365 * 24 * time.Hour
		endless := each(math.MaxInt64)
		endless.MaxServerWait = -1
		for name, c := range map[string]struct {
			answer answer
			policy sluice.RetryPolicy
			why    error
			at     time.Duration // 0: there is no time to come back
		}{
			"RetryAfter":             {told(math.MaxInt64), sluice.RetryPolicy{}, sluice.ErrServerWait, 0},
			"RetryAfter, no bound":   {told(math.MaxInt64), endless, sluice.ErrElapsed, 0},
			"RetryAt":                {far, sluice.RetryPolicy{}, sluice.ErrServerWait, 0},
			"RetryAt, no bound":      {far, endless, sluice.ErrElapsed, 0},
			"a century":              {told(century), sluice.RetryPolicy{}, sluice.ErrServerWait, time.Second + century},
			"backoff":                {down, endless, sluice.ErrElapsed, 0},
			"backoff after throttle": {busy, endless, sluice.ErrElapsed, 0},
			"backoff of a century":   {down, each(century), sluice.ErrElapsed, time.Second + century},
		} {
			g, s := mustGate(t, sluice.Config{}), newServer(after(time.Second, c.answer))
			err := sluice.Retry(bg, g, c.policy, s.call)
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

func TestAttemptTimeoutEndsTheAttemptAndIsRetried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hang := func(ctx context.Context) error {
			<-ctx.Done()
			return ctx.Err()
		}
		g, s := mustGate(t, sluice.Config{Concurrency: 1}), newServer(hang)
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

func TestAttemptTimeoutDoesNotHideTheCallersDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hang := func(ctx context.Context) error {
			<-ctx.Done()
			return fmt.Errorf("get: %w", ctx.Err())
		}
		g, s := mustGate(t, sluice.Config{}), newServer(hang)
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

func TestAttemptsHaveNoDeadlineWithoutAttemptTimeout(t *testing.T) {
	for _, d := range []time.Duration{0, -1, math.MinInt64} {
		g := mustGate(t, sluice.Config{})
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

func TestTheContextOfAnAttemptEndsWithIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := mustGate(t, sluice.Config{})
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

func TestRetryIsAskedAboutUnmarkedErrorsOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked []error
		p := each(time.Second)
		p.Retryable = func(err error) bool {
			asked = append(asked, err)
			return err == errDown
		}
		g := mustGate(t, sluice.Config{Rate: herd})

		s := newServer(down, told(time.Second), busy, down, always(os.ErrInvalid))
		err := sluice.Retry(bg, g, p, s.call)
		s.want(t, 0, 1*time.Second, 2*time.Second, 3*time.Second, 4*time.Second)
		s.wantStop(t, err, stop{last: os.ErrInvalid, why: sluice.ErrPermanent, attempts: 5, at: 4 * time.Second, elapsed: 4 * time.Second})
		if want := []error{errDown, errDown, os.ErrInvalid}; !slices.Equal(asked, want) {
			t.Errorf("asked about %v, want %v", asked, want)
		}

		// Nor does a no outweigh a server that asks to come back.
		asked, p.Retryable = nil, func(error) bool { asked = append(asked, err); return false }
		s = newServer(busy, told(time.Second), gone)
		err = sluice.Retry(bg, mustGate(t, sluice.Config{Rate: herd}), p, s.call)
		s.want(t, 0, time.Second, 2*time.Second)
		s.wantStop(t, err, stop{last: os.ErrNotExist, why: sluice.ErrPermanent, attempts: 3, at: 2 * time.Second, elapsed: 2 * time.Second})
		if asked != nil {
			t.Errorf("asked about %v", asked)
		}
	})
}

func TestBackoffIsToldWhichRetryItIsAndTheWaitBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// Each curve notes what it is told. Questions about the longest wait
		// there can be, for the spacing, are left out: a second one about the
		// same retry, and one about a first retry after a told wait.
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
		g, s := mustGate(t, sluice.Config{RetryBudget: -1}), newServer(down, busy, told(time.Minute), down, late, busy)
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

func TestBackoffIsNeverShorterThanAMillisecond(t *testing.T) {
	for name, curve := range map[string]sluice.Backoff{
		"nothing":  sluice.Constant(0),
		"too few":  sluice.Constant(ms - 1),
		"negative": func(int, time.Duration, float64) time.Duration { return math.MinInt64 },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g, s := mustGate(t, sluice.Config{}), newServer(down, busy, down, fine)
				if err := sluice.Retry(bg, g, sluice.RetryPolicy{Backoff: curve, Throttled: curve}, s.call); err != nil {
					t.Error(err)
				}
				s.want(t, 0, ms, 2*ms, 3*ms)
			})
		})
	}
}

// One policy, its curves included, serves many calls at once: what one of them
// does, the others do not notice.
func TestAPolicyHasNoState(t *testing.T) {
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
			g := mustGate(t, sluice.Config{RetryBudget: -1})
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

// Through the gate.

func TestEveryAttemptPassesTheGate(t *testing.T) {
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

func TestAnAttemptCostsOne(t *testing.T) {
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

func TestNoPermitIsHeldDuringABackoff(t *testing.T) {
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

func TestARetryJoinsTheTailOfTheQueue(t *testing.T) {
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

func TestAPermitThatIsLostEndsTheAttemptAndNotTheCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lease := &brittleLease{}
		g := mustGate(t, sluice.Config{Semaphore: lease})
		s := newServer(func(ctx context.Context) error {
			go func() {
				time.Sleep(time.Second)
				close(lease.lost)
			}()
			<-ctx.Done()
			if cause := context.Cause(ctx); cause != sluice.ErrLeaseLost {
				t.Errorf("the attempt ended because of %v", cause)
			}
			return ctx.Err()
		}, fine)
		if err := sluice.Retry(bg, g, each(time.Second), s.call); err != nil {
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

// Told to wait.

func TestAToldWaitHoldsAllSixtyFourWorkersAndReleasesThemOneByOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, l := mustGate(t, sluice.Config{Rate: tenPerSecond, Concurrency: 64}), synclog.New()
		s := newServer(after(50*ms, told(30*time.Second)), fine)
		var want []synclog.Left
		for i := range 64 {
			l.Call(i, func() error { return sluice.Retry(bg, g, sluice.RetryPolicy{}, s.call) })
			want = append(want, synclog.At((i+1)%64, 30*time.Second+50*ms+time.Duration(i)*100*ms))
		}
		time.Sleep(100 * ms)
		if s := g.Stats(); s.PausedUntil.Sub(l.Start) != 30*time.Second+50*ms || s.PausedWhy != errBusy.Error() || s.Pacing != 64 {
			t.Errorf("during the pause: %+v", s)
		}
		time.Sleep(time.Minute)
		l.Want(t, want...) // the one who was told comes last: it queued anew
	})
}

// The same with workers who are all in flight when one of them is told, and
// come back to the gate while it is paused.
func TestAToldWaitHoldsThoseWhoComeBackFromACall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, l := mustGate(t, sluice.Config{Rate: sluice.Rate{Count: 1000, Per: time.Second}}), synclog.New()
		for i := range 64 {
			first := after(time.Second, fine)
			if i == 0 {
				first = after(100*ms, told(30*time.Second))
			}
			l.Call(i, func() error {
				if err := sluice.Retry(bg, g, sluice.RetryPolicy{}, newServer(first, fine).call); err != nil || i == 0 {
					return err
				}
				return sluice.Retry(bg, g, sluice.RetryPolicy{}, fine)
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

// The answer comes before the permit is given back: if it says that nobody may
// call, the permit must not let the next one out first.
func TestNobodyLeavesBetweenTheAnswerAndThePause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, l := mustGate(t, sluice.Config{Concurrency: 1}), synclog.New()
		s := newServer(after(time.Second, told(30*time.Second)), fine)
		for i := range 3 {
			l.Call(i, func() error { return sluice.Retry(bg, g, sluice.RetryPolicy{}, s.call) })
		}
		time.Sleep(time.Hour)
		s.want(t, 0, 31*time.Second, 31*time.Second, 31*time.Second)
	})
}

// What one call is told holds for all, also if that call is not retried.
func TestAToldWaitHoldsTheOthersWhateverBecomesOfTheCall(t *testing.T) {
	ctx, cancel := context.WithCancel(bg)
	for name, c := range map[string]struct {
		ctx    context.Context
		answer answer
	}{
		"cancelled": {ctx, func(ctx context.Context) error { cancel(); return told(30 * time.Second)(ctx) }},
		"permanent": {bg, func(ctx context.Context) error { return sluice.Permanent(told(30 * time.Second)(ctx)) }},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g, l := mustGate(t, sluice.Config{}), synclog.New()
				sluice.Retry(c.ctx, g, sluice.RetryPolicy{}, c.answer)
				l.Call(0, enter(g, bg))
				time.Sleep(time.Hour)
				l.Want(t, synclog.At(0, 30*time.Second))
			})
		})
	}
}

func TestToldWaitsUseUpNoAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, s := mustGate(t, sluice.Config{Rate: herd}), newServer(
			told(10*time.Second), told(10*time.Second), told(10*time.Second), down,
			told(10*time.Second), busy,
			told(10*time.Second), told(10*time.Second), down)
		p := each(time.Second)
		p.Attempts = 3
		err := sluice.Retry(bg, g, p, s.call)
		s.want(t, 0, 10*time.Second, 20*time.Second, 30*time.Second, 31*time.Second, 41*time.Second, 42*time.Second, 52*time.Second, 62*time.Second)
		s.wantStop(t, err, stop{last: errDown, why: sluice.ErrAttempts, attempts: 9, at: 62 * time.Second, elapsed: 62 * time.Second})
	})
}

func TestOneAttemptIsNotUsedUpByAToldWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, s := mustGate(t, sluice.Config{}), newServer(told(10*time.Second), fine)
		if err := sluice.Retry(bg, g, sluice.RetryPolicy{Attempts: 1}, s.call); err != nil {
			t.Error(err)
		}
		s.want(t, 0, 10*time.Second)
	})
}

func TestNeverEarlierThanTold(t *testing.T) {
	for name, c := range map[string]struct {
		answer answer
		want   time.Duration
	}{
		"RetryAfter":              {told(10 * time.Second), 10 * time.Second},
		"RetryAfter a nanosecond": {told(1), ms},
		"RetryAfter counts from when it was marked": {func(context.Context) error {
			err := sluice.RetryAfter(errBusy, 10*time.Second)
			time.Sleep(3 * time.Second) // reads the rest of the body
			return err
		}, 10 * time.Second},
		"RetryAfter that is over when the attempt ends": {func(context.Context) error {
			err := sluice.RetryAfter(errBusy, 10*time.Second)
			time.Sleep(10 * time.Second)
			return err
		}, 11 * time.Second}, // a throttle without a told time
		"RetryAt": {func(context.Context) error {
			return sluice.RetryAt(errBusy, time.Now().Add(10*time.Second))
		}, 10 * time.Second},
		"RetryAt in another zone and without a monotonic part": {func(context.Context) error {
			return sluice.RetryAt(errBusy, time.Now().Add(10*time.Second).Round(0).In(time.FixedZone("", 3600)))
		}, 10 * time.Second},
		"wrapped": {func(ctx context.Context) error {
			return fmt.Errorf("get /items/7: %w", told(10*time.Second)(ctx))
		}, 10 * time.Second},
		"joined": {func(ctx context.Context) error {
			return errors.Join(errDown, told(10*time.Second)(ctx))
		}, 10 * time.Second},
		"twice, the longer one counts": {func(ctx context.Context) error {
			return sluice.RetryAfter(told(5*time.Second)(ctx), 10*time.Second)
		}, 10 * time.Second},
		"twice, whichever is outside": {func(ctx context.Context) error {
			return sluice.RetryAfter(told(10*time.Second)(ctx), 5*time.Second)
		}, 10 * time.Second},
		"twice, and one did not say": {func(ctx context.Context) error {
			return errors.Join(busy(ctx), told(10*time.Second)(ctx), busy(ctx))
		}, 10 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g, s := mustGate(t, sluice.Config{}), newServer(c.answer, fine)
				if err := sluice.Retry(bg, g, each(time.Second), s.call); err != nil {
					t.Error(err)
				}
				s.want(t, 0, c.want)
			})
		})
	}
}

func TestTheLongestToldWaitCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, l := mustGate(t, sluice.Config{}), synclog.New()
		for i, d := range []time.Duration{20 * time.Second, 40 * time.Second, 10 * time.Second} {
			s := newServer(after(time.Duration(i+1)*time.Second, told(d)), fine)
			l.Call(i, func() error { return sluice.Retry(bg, g, sluice.RetryPolicy{}, s.call) })
		}
		time.Sleep(time.Hour)
		l.Want(t, synclog.At(0, 42*time.Second), synclog.At(1, 42*time.Second), synclog.At(2, 42*time.Second))
	})
}

func TestMaxElapsedBoundsToldWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, s := mustGate(t, sluice.Config{}), newServer(told(25*time.Second))
		err := sluice.Retry(bg, g, sluice.RetryPolicy{MaxElapsed: time.Minute}, s.call)
		s.want(t, 0, 25*time.Second, 50*time.Second)
		s.wantStop(t, err, stop{
			last: errBusy, why: sluice.ErrElapsed, attempts: 3,
			at: 50 * time.Second, elapsed: 50 * time.Second, retryAt: 75 * time.Second,
		})

		g, s = mustGate(t, sluice.Config{}), newServer(told(25*time.Second), told(35*time.Second), fine)
		if err := sluice.Retry(bg, g, sluice.RetryPolicy{MaxElapsed: time.Minute}, s.call); err != nil {
			t.Error(err) // exactly then is not later
		}
	})
}

func TestAToldWaitBeyondTheDeadlineStopsAtOnce(t *testing.T) {
	for _, d := range []time.Duration{time.Minute, 40 * time.Second, 30 * time.Second} { // at the deadline is too late
		synctest.Test(t, func(t *testing.T) {
			g, s := mustGate(t, sluice.Config{Name: "api"}), newServer(after(10*time.Second, told(d)))
			ctx, cancel := context.WithTimeout(bg, 40*time.Second)
			defer cancel()
			err := sluice.Retry(ctx, g, sluice.RetryPolicy{}, s.call)
			s.want(t, 0)
			s.wantStop(t, err, stop{
				last: errBusy, why: context.DeadlineExceeded, attempts: 1,
				at: 10 * time.Second, elapsed: 10 * time.Second, retryAt: 10*time.Second + d,
			})
			var wait *sluice.WaitError
			if !errors.As(err, &wait) || *wait != (sluice.WaitError{By: "api", For: sluice.ByPause, Need: d, Have: 30 * time.Second}) {
				t.Errorf("%v tells %+v", err, wait)
			}
			if ctx.Err() != nil {
				t.Error("it waited for the deadline")
			}
			// All the others are held back all the same.
			if got := g.Stats().PausedUntil.Sub(s.start); got != 10*time.Second+d {
				t.Errorf("paused until %v", got)
			}
		})
	}
	synctest.Test(t, func(t *testing.T) {
		g, s := mustGate(t, sluice.Config{}), newServer(told(30*time.Second), fine)
		ctx, cancel := context.WithTimeout(bg, 30*time.Second+1)
		defer cancel()
		if err := sluice.Retry(ctx, g, sluice.RetryPolicy{}, s.call); err != nil {
			t.Errorf("a nanosecond before the deadline: %v", err)
		}
	})
}

func TestTooLongAToldWaitStopsThoseWhoWaitAndThoseWhoCome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, l := mustGate(t, sluice.Config{Name: "api", Rate: sluice.Rate{Count: 1, Per: time.Second}}), synclog.New()
		s := newServer(after(500*ms, told(6*time.Minute)), fine)
		call := func(p sluice.RetryPolicy) func() error {
			return func() error { return sluice.Retry(bg, g, p, s.call) }
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
			const want = "sluice: api: gave up after 0 attempts: the server asks for too long a wait, the gate is paused: 429 Too Many Requests, come back at 2000-01-01T00:06:01Z"
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
		if got := g.Stats().Refused; got.Deadline != 3 { // 1, 4 and 7; 0 was not refused by the gate
			t.Errorf("refused: %+v", got)
		}
	})
}

func TestAPauseProlongedTooFarStopsThoseWhoWere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, l := mustGate(t, sluice.Config{}), synclog.New()
		first := newServer(after(1*time.Second, told(4*time.Minute)), fine)
		other := newServer(after(2*time.Second, told(6*time.Minute)), fine)
		third := newServer(after(3*time.Second, down), fine)
		l.Call(0, func() error { return sluice.Retry(bg, g, sluice.RetryPolicy{}, first.call) })
		l.Call(1, func() error { return sluice.Retry(bg, g, sluice.RetryPolicy{MaxServerWait: time.Hour}, other.call) })
		l.Call(2, func() error { return sluice.Retry(bg, g, each(10*time.Second), third.call) })
		time.Sleep(2 * time.Second)
		left := l.Sofar()
		if len(left) != 1 || left[0].Who != 0 {
			t.Fatalf("after the second told wait: %v", left)
		}
		first.wantStop(t, left[0].Err, stop{
			last: errBusy, why: sluice.ErrServerWait, attempts: 1,
			at: 2 * time.Second, elapsed: 2 * time.Second, retryAt: 6*time.Minute + 2*time.Second,
		})
		// One that backs off notices when it comes back.
		time.Sleep(11 * time.Second)
		left = l.Sofar()
		if len(left) != 2 || left[1].Who != 2 {
			t.Fatalf("after the backoff: %v", left)
		}
		third.wantStop(t, left[1].Err, stop{
			last: errDown, why: sluice.ErrServerWait, attempts: 1,
			at: 13 * time.Second, elapsed: 13 * time.Second, retryAt: 6*time.Minute + 2*time.Second,
		})
		time.Sleep(time.Hour)
		if left = l.Sofar(); len(left) != 3 || left[2].Err != nil || left[2].At != 6*time.Minute+2*time.Second {
			t.Errorf("the one who may wait that long: %v", left)
		}
	})
}

// The bound is that of each call: also of those behind a quota, where it is the
// first caller who asks.
func TestTooLongAToldWaitStopsThoseBehindAQuota(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		quota := sluice.Limit{Name: "daily", Limiter: generous{}}
		g, l := mustGate(t, sluice.Config{Rate: sluice.Rate{Count: 1, Per: time.Second}, Limits: []sluice.Limit{quota}}), synclog.New()
		s := newServer(after(500*ms, told(6*time.Minute)), fine)
		for i := range 3 {
			l.Call(i, func() error { return sluice.Retry(bg, g, sluice.RetryPolicy{}, s.call) })
		}
		time.Sleep(time.Second)
		l.Call(3, func() error { return sluice.Retry(bg, g, sluice.RetryPolicy{}, s.call) })
		l.Call(4, func() error { return sluice.Retry(bg, g, sluice.RetryPolicy{MaxServerWait: -1}, s.call) })
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

// generous is a meter with enough for everybody.
type generous struct{}

func (generous) Admit(context.Context, int64) (time.Duration, error) { return 0, nil }
func (generous) Adjust(context.Context, int64, time.Duration) error  { return nil }

// A server that refuses and does not say for how long throttles the call, and
// nobody else.
func TestNoToldTimeIsAThrottle(t *testing.T) {
	for name, mark := range map[string]func() error{
		"zero":          func() error { return sluice.RetryAfter(errBusy, 0) },
		"negative":      func() error { return sluice.RetryAfter(errBusy, -time.Hour) },
		"most negative": func() error { return sluice.RetryAfter(errBusy, math.MinInt64) },
		"past":          func() error { return sluice.RetryAt(errBusy, time.Now().Add(-1)) },
		"now":           func() error { return sluice.RetryAt(errBusy, time.Now()) },
		"zero time":     func() error { return sluice.RetryAt(errBusy, time.Time{}) },
		"epoch":         func() error { return sluice.RetryAt(errBusy, time.Unix(0, 0)) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g, s := mustGate(t, sluice.Config{}), newServer(func(context.Context) error { return mark() })
				p := sluice.RetryPolicy{Attempts: 3, Backoff: sluice.Constant(time.Second), Throttled: sluice.Constant(7 * time.Second)}
				done := make(chan error)
				go func() { done <- sluice.Retry(bg, g, p, s.call) }()
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

// Permanent errors.

func TestPermanentErrorsAreNotRetried(t *testing.T) {
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

// The end of a context.

func TestADoneContextFailsBeforeTheFirstAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, s := mustGate(t, sluice.Config{Name: "api", Rate: tenPerSecond}), newServer(fine)
		ctx, cancel := context.WithCancel(bg)
		cancel()
		if err := sluice.Retry(ctx, g, sluice.RetryPolicy{}, s.call); err != context.Canceled {
			t.Errorf("cancelled: %v", err)
		}
		ctx, cancel = context.WithTimeout(bg, -1)
		defer cancel()
		if err := sluice.Retry(ctx, g, sluice.RetryPolicy{}, s.call); err != context.DeadlineExceeded {
			t.Errorf("too late: %v", err)
		}
		s.want(t)
		if _, ok := g.TryAcquire(1); !ok || g.Stats().Granted != 1 {
			t.Error("the slot was taken")
		}
	})
}

func TestACancelDuringTheAttemptStops(t *testing.T) {
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
		err := sluice.Retry(ctx, g, each(time.Second), s.call)
		s.want(t, 0, time.Second)
		s.wantStop(t, err, stop{last: errDown, why: context.Canceled, attempts: 2, at: 3 * time.Second, elapsed: 3 * time.Second})
		if got := g.Stats(); got.RetryTokens != 95 || got.InFlight != 0 {
			t.Errorf("afterwards: %+v", got)
		}

		ctx, cancel = context.WithCancel(bg)
		got, err := sluice.RetryValue(ctx, g, sluice.RetryPolicy{}, func(context.Context) (int, error) {
			cancel()
			return 42, nil
		})
		if got != 42 || err != nil {
			t.Errorf("a call that succeeds all the same: %d, %v", got, err)
		}
	})
}

func TestACancelDuringTheBackoffStopsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, s := mustGate(t, sluice.Config{}), newServer(down)
		ctx, cancel := context.WithCancel(bg)
		time.AfterFunc(4*time.Second, cancel)
		err := sluice.Retry(ctx, g, each(10*time.Second), s.call)
		s.want(t, 0)
		s.wantStop(t, err, stop{last: errDown, why: context.Canceled, attempts: 1, at: 4 * time.Second, elapsed: 4 * time.Second})
	})
}

func TestACancelInTheQueueStopsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, l := mustGate(t, sluice.Config{Name: "api", Rate: sluice.Rate{Count: 1, Per: time.Minute}}), synclog.New()
		ctx, cancel := context.WithCancel(bg)
		s := newServer(down)
		l.Call(0, func() error { return sluice.Retry(ctx, g, each(time.Second), s.call) }) // queues for a retry
		l.Call(1, func() error { return sluice.Retry(ctx, g, each(time.Second), s.call) }) // for its first attempt
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

func TestACancelDuringAToldWaitStopsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, s := mustGate(t, sluice.Config{}), newServer(told(time.Minute))
		ctx, cancel := context.WithCancel(bg)
		time.AfterFunc(4*time.Second, cancel)
		err := sluice.Retry(ctx, g, sluice.RetryPolicy{}, s.call)
		s.want(t, 0)
		s.wantStop(t, err, stop{last: errBusy, why: context.Canceled, attempts: 1, at: 4 * time.Second, elapsed: 4 * time.Second})
	})
}

func TestABackoffBeyondTheDeadlineIsNotBegun(t *testing.T) {
	for _, d := range []time.Duration{time.Minute, 10 * time.Second} { // at the deadline is too late
		synctest.Test(t, func(t *testing.T) {
			g, s := mustGate(t, sluice.Config{Name: "api"}), newServer(down)
			ctx, cancel := context.WithTimeout(bg, 10*time.Second)
			defer cancel()
			err := sluice.Retry(ctx, g, each(d), s.call)
			s.want(t, 0)
			s.wantStop(t, err, stop{last: errDown, why: context.DeadlineExceeded, attempts: 1, retryAt: d})
			var wait *sluice.WaitError
			if !errors.As(err, &wait) || *wait != (sluice.WaitError{By: "api", For: sluice.ByBackoff, Need: d, Have: 10 * time.Second}) {
				t.Errorf("%v tells %+v", err, wait)
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
		if err := sluice.Retry(ctx, g, each(10*time.Second-1), s.call); err != nil {
			t.Errorf("a nanosecond before the deadline: %v", err)
		}
	})
}

// The gate.

func TestTheGatesRefusalOfTheFirstAttemptComesBare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := mustGate(t, sluice.Config{Name: "api", Rate: sluice.Rate{Count: 1, Per: time.Minute}, MaxWaiting: 1})
		s := newServer(fine)
		g.TryAcquire(1)

		ctx, cancel := context.WithTimeout(bg, time.Second)
		defer cancel()
		err := sluice.Retry(ctx, g, sluice.RetryPolicy{}, s.call)
		if wait, ok := err.(*sluice.WaitError); !ok || *wait != (sluice.WaitError{By: "api", For: sluice.ByRate, Need: time.Minute, Have: time.Second}) {
			t.Errorf("hopeless: %v", err)
		}

		var stopped *sluice.RetryError
		waiting := make(chan error)
		go func() { waiting <- sluice.Retry(bg, g, sluice.RetryPolicy{}, s.call) }()
		synctest.Wait()
		if err := sluice.Retry(bg, g, sluice.RetryPolicy{}, s.call); !errors.Is(err, sluice.ErrQueueFull) || errors.As(err, &stopped) {
			t.Errorf("full: %v", err)
		}
		g.Close()
		if err := <-waiting; !errors.Is(err, sluice.ErrClosed) || errors.As(err, &stopped) {
			t.Errorf("closed while waiting: %v", err)
		}
		if err := sluice.Retry(bg, g, sluice.RetryPolicy{}, s.call); !errors.Is(err, sluice.ErrClosed) || errors.As(err, &stopped) {
			t.Errorf("closed: %v", err)
		} else if want := "sluice: api: closed"; err.Error() != want {
			t.Errorf("message %q, want %q", err, want)
		}
		s.want(t)
	})
}

func TestTheGatesRefusalOfARetryTellsTheLastErrorToo(t *testing.T) {
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
		}, sluice.ErrQueueFull, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(bg, c.timeout)
				defer cancel()
				g, s := mustGate(t, c.cfg), newServer(down)
				time.AfterFunc(time.Second, func() { c.between(g) })
				err := sluice.Retry(ctx, g, each(2*time.Second), s.call)
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

func TestClosingTheGateEndsBackoffs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, l := mustGate(t, sluice.Config{Name: "api"}), synclog.New()
		backsOff, waits, inFlight := newServer(down), newServer(told(time.Minute)), newServer(after(10*time.Second, down))
		l.Call(0, func() error { return sluice.Retry(bg, g, each(time.Hour/10), inFlight.call) })
		l.Call(1, func() error { return sluice.Retry(bg, g, each(time.Hour/10), backsOff.call) })
		l.Call(2, func() error { return sluice.Retry(bg, g, each(time.Hour/10), waits.call) })
		time.Sleep(4 * time.Second)
		g.Close()
		left := l.Sofar()
		if len(left) != 2 {
			t.Fatalf("at once: %v", left)
		}
		backsOff.wantStop(t, left[0].Err, stop{last: errDown, why: sluice.ErrClosed, attempts: 1, at: 4 * time.Second, elapsed: 4 * time.Second})
		waits.wantStop(t, left[1].Err, stop{last: errBusy, why: sluice.ErrClosed, attempts: 1, at: 4 * time.Second, elapsed: 4 * time.Second})
		if got, want := left[0].Err.Error(), "sluice: api: gave up after 1 attempt: closed: 503 Service Unavailable"; got != want {
			t.Errorf("message %q, want %q", got, want)
		}
		time.Sleep(6 * time.Second) // the one in flight comes back
		if left = l.Sofar(); len(left) != 3 {
			t.Fatalf("then: %v", left)
		}
		inFlight.wantStop(t, left[2].Err, stop{last: errDown, why: sluice.ErrClosed, attempts: 1, at: 10 * time.Second, elapsed: 10 * time.Second})
		if got := g.Stats().Refused.Closed; got != 3 {
			t.Errorf("%d refused as closed", got)
		}
	})
}

// Panics.

func TestAPanicFliesOnAndReleasesThePermit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := mustGate(t, sluice.Config{Concurrency: 1})
		for name, p := range map[string]sluice.RetryPolicy{"": {}, " with a timeout": {AttemptTimeout: time.Hour}} {
			for attempt := range 2 {
				s := newServer(append(slices.Repeat([]answer{down}, attempt), func(context.Context) error { panic("mine") })...)
				func() {
					defer func() {
						if got := recover(); got != "mine" {
							t.Errorf("attempt %d%s: the panic did not fly on as it was: %v", attempt+1, name, got)
						}
					}()
					sluice.Retry(bg, g, p, s.call)
				}()
				if got := g.Stats().InFlight; got != 0 || len(s.attempts()) != attempt+1 {
					t.Errorf("attempt %d%s: %d in flight, %v", attempt+1, name, got, s.attempts())
				}
			}
		}
		left := make(chan bool)
		go func() {
			defer close(left)
			sluice.Retry(bg, g, sluice.RetryPolicy{}, func(context.Context) error {
				runtime.Goexit()
				return nil
			})
		}()
		<-left
		if err := sluice.Retry(bg, g, sluice.RetryPolicy{}, fine); err != nil || g.Stats().InFlight != 0 {
			t.Errorf("the next call: %v", err)
		}
	})
}

func TestAPanicOfThePolicyHoldsNoPermit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, p := range map[string]sluice.RetryPolicy{
			"Retry":   {Retryable: func(error) bool { panic("mine") }},
			"Backoff": {Backoff: func(int, time.Duration, float64) time.Duration { panic("mine") }},
		} {
			g := mustGate(t, sluice.Config{Concurrency: 1})
			func() {
				defer func() {
					if got := recover(); got != "mine" {
						t.Errorf("%s: the panic did not fly on as it was: %v", name, got)
					}
				}()
				sluice.Retry(bg, g, p, down)
			}()
			if err := sluice.Retry(bg, g, sluice.RetryPolicy{}, fine); err != nil || g.Stats().InFlight != 0 {
				t.Errorf("%s: the next call: %v", name, err)
			}
		}
	})
}

// All together, on the real scheduler: nothing is lost, nothing stays.
func TestManyCallsAtOnce(t *testing.T) {
	g := mustGate(t, sluice.Config{Concurrency: 8, Rate: herd, RetryBudget: -1})
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

// The pause of a parent holds a call as much as that of its gate.
func TestTooLongAPauseOfTheParentStopsCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := mustGate(t, sluice.Config{Name: "all"})
		g, l := mustGate(t, sluice.Config{Name: "host", Parent: all}), synclog.New()
		sluice.Retry(bg, all, sluice.RetryPolicy{}, told(6*time.Minute))
		l.Call(0, func() error { return sluice.Retry(bg, g, sluice.RetryPolicy{}, fine) })
		l.Want(t, synclog.Failed(0, 0, sluice.ErrServerWait))
		time.Sleep(time.Hour)
	})
}

// What must not be retried must not be retried by whoever calls the caller.
func TestPermanentOfACallWithinIsPermanent(t *testing.T) {
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
