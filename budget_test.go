package sluice_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net/url"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/internal/testkit/synclog"
	"github.com/sluice-go/sluice/limits"
)

// With these answers one call gets through a gate, and this is what the budget
// holds before each attempt and at the end.
func TestWhatRetriesCostAndSuccessesPutBack(t *testing.T) {
	for name, c := range map[string]struct {
		answers []answer
		want    []int
	}{
		"first success":               {[]answer{fine}, []int{60, 61}},
		"success after a retry":       {[]answer{down, fine}, []int{60, 55, 60}},
		"success after two":           {[]answer{down, down, fine}, []int{60, 55, 50, 55}},
		"throttle":                    {[]answer{busy, busy, fine}, []int{60, 55, 50, 55}},
		"told wait":                   {[]answer{told(time.Second), told(time.Second), fine}, []int{60, 55, 50, 55}},
		"timeout":                     {[]answer{late, late, fine}, []int{60, 50, 40, 45}},
		"timeout of the attempt":      {[]answer{hang, fine}, []int{60, 50, 55}},
		"wrapped timeout":             {[]answer{always(fmt.Errorf("get: %w", context.DeadlineExceeded)), fine}, []int{60, 50, 55}},
		"timeout, deep inside":        {[]answer{always(&url.Error{Op: "Get", Err: fmt.Errorf("x: %w", context.DeadlineExceeded)}), fine}, []int{60, 50, 55}},
		"throttle that is a timeout":  {[]answer{always(sluice.RetryAfter(context.DeadlineExceeded, 0)), fine}, []int{60, 55, 60}},
		"an error that is no timeout": {[]answer{always(notTimeout{}), fine}, []int{60, 55, 60}},
		"one of each":                 {[]answer{down, busy, late, fine}, []int{60, 55, 50, 40, 45}},
		"permanent":                   {[]answer{gone}, []int{60, 60}},
		"no attempts left":            {[]answer{down, down, down, down}, []int{60, 55, 50, 45, 45}},
		"too long a wait":             {[]answer{told(time.Hour)}, []int{60, 60}},
		"beyond MaxElapsed":           {[]answer{after(20*time.Second, down)}, []int{60, 60}},
		"beyond the deadline":         {[]answer{after(20*time.Second, down)}, []int{60, 60}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := mustGate(t, sluice.Config{})
				drain(t, g, 40)
				limit := time.Hour
				p := each(time.Second)
				switch name {
				case "timeout of the attempt":
					p.AttemptTimeout = time.Second
				case "beyond MaxElapsed":
					p.MaxElapsed = 20 * time.Second
				case "beyond the deadline":
					limit = 21 * time.Second
				}
				ctx, cancel := context.WithTimeout(bg, limit)
				defer cancel()
				var got []int
				s := newServer(c.answers...)
				sluice.Retry(ctx, g, p, func(ctx context.Context) error {
					got = append(got, g.Stats().RetryTokens)
					return s.call(ctx)
				})
				got = append(got, g.Stats().RetryTokens)
				if fmt.Sprint(got) != fmt.Sprint(c.want) {
					t.Errorf("tokens %v, want %v", got, c.want)
				}
			})
		})
	}
}

// hang ends with its context.
func hang(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}

// notTimeout has the method, and says no.
type notTimeout struct{}

func (notTimeout) Error() string { return "refused" }
func (notTimeout) Timeout() bool { return false }

// drain takes tokens from the budget of g, by 5.
func drain(t *testing.T, g *sluice.Gate, tokens int) {
	t.Helper()
	before := g.Stats().RetryTokens
	for range tokens / 5 {
		s := newServer(down, gone) // a retry that fails for good puts nothing back
		sluice.Retry(bg, g, each(ms), s.call)
	}
	if got := g.Stats().RetryTokens; got != before-tokens {
		t.Fatalf("drained by %d from %d to %d", tokens, before, got)
	}
}

// spent returns a gate that has spent its budget on retries, as long ago as can be
// without getting any of it back.
func spent(t *testing.T, cfg sluice.Config) *sluice.Gate {
	t.Helper()
	cfg.RetryBudget = 10
	g := mustGate(t, cfg)
	drain(t, g, 10)
	time.Sleep(29 * time.Second)
	return g
}

func TestTheBudgetHoldsNoMoreThanItsCapacity(t *testing.T) {
	for _, c := range []struct{ capacity, tokens int }{{0, 100}, {5, 5}, {7, 7}, {1000, 1000}} {
		synctest.Test(t, func(t *testing.T) {
			g := mustGate(t, sluice.Config{RetryBudget: c.capacity})
			if got := g.Stats().RetryTokens; got != c.tokens {
				t.Errorf("RetryBudget %d: a new gate has %d tokens, want %d", c.capacity, got, c.tokens)
			}
			for range 3 {
				sluice.Retry(bg, g, sluice.RetryPolicy{}, fine)
			}
			if got := g.Stats().RetryTokens; got != c.tokens {
				t.Errorf("RetryBudget %d: %d tokens after successes, want %d", c.capacity, got, c.tokens)
			}
			sluice.Retry(bg, g, each(ms), newServer(down, fine).call)
			drain(t, g, 5)
			for i := range 7 {
				if got, want := g.Stats().RetryTokens, min(c.tokens, c.tokens-5+i); got != want {
					t.Errorf("RetryBudget %d: %d tokens after −5 +5 −5 and %d successes, want %d", c.capacity, got, i, want)
				}
				sluice.Retry(bg, g, sluice.RetryPolicy{}, fine)
			}
		})
	}
}

func TestTwentyFailuresAreRetriedFromFull(t *testing.T) {
	for name, c := range map[string]struct {
		answer   answer
		last     error
		capacity int
		retries  int
	}{
		"plain":               {down, errDown, 0, 20},
		"throttle":            {busy, errBusy, 0, 20},
		"told":                {told(time.Second), errBusy, 0, 20},
		"timeout":             {late, os.ErrDeadlineExceeded, 0, 10},
		"plain, 12 tokens":    {down, errDown, 12, 2},
		"timeout, 12 tokens":  {late, os.ErrDeadlineExceeded, 12, 1},
		"timeout, 19 tokens":  {late, os.ErrDeadlineExceeded, 19, 1}, // 9 are not enough
		"timeout, 9 tokens":   {late, os.ErrDeadlineExceeded, 9, 0},
		"throttle, 4 tokens":  {busy, errBusy, 4, 0}, // not enough for any
		"told, 1 token":       {told(time.Second), errBusy, 1, 0},
		"told, 10 tokens":     {told(time.Second), errBusy, 10, 2},
		"throttle, 14 tokens": {busy, errBusy, 14, 2},
		"plain, 1,000 tokens": {down, errDown, 1000, 200},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g, s := mustGate(t, sluice.Config{Rate: herd, RetryBudget: c.capacity}), newServer(c.answer)
				p := each(time.Second)
				p.Attempts = -1
				err := sluice.Retry(bg, g, p, s.call)
				// It stops before the backoff, not after it: no time passes.
				at := time.Duration(c.retries) * time.Second
				s.wantStop(t, err, stop{
					last: c.last, why: sluice.ErrBudget, attempts: c.retries + 1,
					at: at, elapsed: at, retryAt: at + time.Second,
				})
			})
		})
	}
}

func TestInTheLongRunOneCallInFiveMayBeARetryThatFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := mustGate(t, sluice.Config{})
		drain(t, g, 100)
		for round := range 10 {
			for range 5 {
				if err := sluice.Retry(bg, g, each(ms), fine); err != nil {
					t.Fatal(err)
				}
			}
			s := newServer(down)
			err := sluice.Retry(bg, g, each(ms), s.call)
			if got := len(s.attempts()); got != 2 || !errors.Is(err, sluice.ErrBudget) {
				t.Errorf("round %d: %d attempts, %v", round, got, err)
			}
		}
	})
}

// Eight calls in flight see one overload, not eight.
func TestABurstOfThrottlesPaysOnce(t *testing.T) {
	for name, c := range map[string]struct {
		answer answer
		want   [2]int // after the first burst and after the second
	}{
		"throttle": {busy, [2]int{95, 90}},
		"told":     {told(10 * time.Second), [2]int{95, 90}},
		"plain":    {down, [2]int{60, 20}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g, l := mustGate(t, sluice.Config{Rate: herd}), synclog.New()
				for i := range 8 {
					// All leave at 0 and fail from 1 s to 1.7 s, leave again
					// by 11.7 s and fail from 12 s on.
					s := newServer(after(time.Second+time.Duration(i)*100*ms, c.answer), after(2*time.Second, c.answer), after(time.Second, gone))
					l.Call(i, func() error { return sluice.Retry(bg, g, each(10*time.Second), s.call) })
				}
				time.Sleep(5 * time.Second)
				if got := g.Stats().RetryTokens; got != c.want[0] {
					t.Errorf("%d tokens after the first burst, want %d", got, c.want[0])
				}
				time.Sleep(15 * time.Second)
				if got := g.Stats().RetryTokens; got != c.want[1] {
					t.Errorf("%d tokens after the second burst, want %d", got, c.want[1])
				}
				time.Sleep(time.Minute)
				if got := l.Sofar(); len(got) != 8 {
					t.Errorf("%v", got)
				}
			})
		})
	}
}

// What belongs to a burst is told by when a call left: one that left after the
// burst was paid for fails anew, however soon after.
func TestAThrottleAfterTheBurstPaysForItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, l := mustGate(t, sluice.Config{Rate: herd}), synclog.New()
		for i, c := range []struct {
			leaves, fails time.Duration
			answer        answer
		}{
			{0, 1000 * ms, busy},
			{999 * ms, 1500 * ms, busy},    // of the burst
			{1001 * ms, 2000 * ms, busy},   // not of the burst
			{1999 * ms, 60000 * ms, busy},  // of the second one, and long in flight
			{2000 * ms, 60000 * ms, late},  // a timeout is no throttle
			{50000 * ms, 60000 * ms, busy}, // a third one
			{70000 * ms, 80000 * ms, down}, // a failure is no throttle either
			{70000 * ms, 80001 * ms, busy}, // and makes no burst
		} {
			s := newServer(after(c.fails-c.leaves, c.answer), gone)
			l.Call(i, func() error {
				time.Sleep(c.leaves)
				return sluice.Retry(bg, g, each(time.Hour/10), s.call)
			})
		}
		for _, c := range []struct {
			at   time.Duration
			want int
		}{{999 * ms, 100}, {1001 * ms, 95}, {1600 * ms, 95}, {2001 * ms, 90}, {31999 * ms, 90},
			{32000 * ms, 95}, {59999 * ms, 95}, {60001 * ms, 80}, {80002 * ms, 70}} { // 5 for 30 s of quiet
			time.Sleep(c.at - time.Since(l.Start))
			if got := g.Stats().RetryTokens; got != c.want {
				t.Errorf("%d tokens at %v, want %d", got, c.at, c.want)
			}
		}
		time.Sleep(time.Hour)
	})
}

// A burst that could not be paid for has not been paid for: nobody rides free.
func TestABurstThatCannotPayRetriesNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := spent(t, sluice.Config{})
		l := synclog.New()
		var want []synclog.Left
		for i := range 8 {
			at := time.Second + time.Duration(i)*100*ms
			l.Call(i, func() error { return sluice.Retry(bg, g, each(time.Second), after(at, busy)) })
			want = append(want, synclog.Failed(i, at, sluice.ErrBudget))
		}
		time.Sleep(time.Minute)
		l.Want(t, want...)
	})
}

// A budget that is slow and obvious, for calls one after the other.
func TestTheBudgetIsWhatAnObviousOneIs(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 50 {
		synctest.Test(t, func(t *testing.T) {
			capacity := 1 + r.IntN(60)
			g, tokens := mustGate(t, sluice.Config{RetryBudget: capacity}), capacity
			for range 100 {
				attempts := 0
				p := each(ms)
				p.Attempts = 1 + r.IntN(4)
				var why error
				err := sluice.Retry(bg, g, p, func(ctx context.Context) error {
					attempts++
					kind := r.IntN(6)
					cost := 5
					switch kind {
					case 0, 1:
						if tokens++; attempts > 1 {
							tokens += 4
						}
						tokens, why = min(tokens, capacity), nil
						return nil
					case 2:
						why = sluice.ErrPermanent
						return gone(ctx)
					case 3:
						cost = 10
					}
					switch {
					case attempts == p.Attempts:
						why = sluice.ErrAttempts
					case tokens < cost:
						why = sluice.ErrBudget
					default:
						tokens -= cost
					}
					return []answer{3: late, 4: busy, 5: down}[kind](ctx)
				})
				if got := g.Stats().RetryTokens; got != tokens || !errors.Is(err, why) {
					t.Fatalf("%d tokens, want %d; %v, want %v", got, tokens, err, why)
				}
			}
		})
	}
}

// Spacing.

// emptied returns a gate whose budget is empty, and whose last call left just
// now and would have been retried after backoff.
func emptied(t *testing.T, cfg sluice.Config, backoff time.Duration) *sluice.Gate {
	t.Helper()
	g, s := spent(t, cfg), newServer(down)
	p := each(backoff)
	p.MaxElapsed = -1
	err := sluice.Retry(bg, g, p, s.call)
	s.wantStop(t, err, stop{last: errDown, why: sluice.ErrBudget, attempts: 1, retryAt: backoff})
	return g
}

func TestAnEmptyBudgetSpacesOutFirstAttemptsUntilTheySucceed(t *testing.T) {
	for name, c := range map[string]struct {
		cfg    sluice.Config
		spaced []time.Duration // after the first: when the others leave, in ms
	}{
		// 8 s, and each success halves it, for those who wait already too.
		"10/s": {sluice.Config{Rate: tenPerSecond}, []time.Duration{8000, 12000, 14000, 15000, 15500, 15750, 15875, 15975, 16075}},
		"1/2s": {sluice.Config{Rate: sluice.Rate{Count: 1, Per: 2 * time.Second}}, []time.Duration{8000, 12000, 14000, 16000, 18000}},
		"1/8s": {sluice.Config{Rate: sluice.Rate{Count: 1, Per: 8 * time.Second}}, []time.Duration{8000, 16000, 24000}},
		"1/9s": {sluice.Config{Rate: sluice.Rate{Count: 1, Per: 9 * time.Second}}, []time.Duration{9000, 18000, 27000}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := emptied(t, c.cfg, 8*time.Second)
				l := synclog.New()
				if got := g.Stats().Spacing; got != 8*time.Second {
					t.Errorf("spacing %v", got)
				}
				var want []synclog.Left
				for i, at := range c.spaced {
					l.Call(i, func() error { return sluice.Retry(bg, g, sluice.RetryPolicy{}, after(10*ms, fine)) })
					want = append(want, synclog.At(i, (at+10)*ms))
				}
				time.Sleep(time.Hour)
				l.Want(t, want...)
				if got := g.Stats(); got.Spacing > 0 && len(c.spaced) > 5 || got.Rate != c.cfg.Rate {
					t.Errorf("afterwards: %+v", got)
				}
			})
		})
	}
}

func TestASpacingBelowAMillisecondIsNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := emptied(t, sluice.Config{}, 8*time.Second)
		l := synclog.New()
		var want []synclog.Left
		var at time.Duration
		for i := range 20 {
			if cool := 8 * time.Second >> i; cool >= ms {
				at += cool
			}
			l.Call(i, func() error { return sluice.Retry(bg, g, sluice.RetryPolicy{}, fine) })
			want = append(want, synclog.At(i, at))
		}
		time.Sleep(time.Hour)
		l.Want(t, want...)
		if got := g.Stats().Spacing; got != 0 {
			t.Errorf("spacing %v", got)
		}
	})
}

// Callers in a loop that fail at once would call faster than with backoff.
func TestCallersInALoopDoNotCallFasterWhenTheBudgetIsEmpty(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := spent(t, sluice.Config{})
		s := newServer(down)
		for i := range 6 {
			backoff := []time.Duration{8 * time.Second, 8 * time.Second, time.Second, 10 * time.Second, time.Second, time.Second}[i]
			if err := sluice.Retry(bg, g, each(backoff), s.call); !errors.Is(err, sluice.ErrBudget) {
				t.Errorf("call %d: %v", i, err)
			}
		}
		// A shorter backoff does not shorten what a longer one asked for.
		s.want(t, 0, 8*time.Second, 16*time.Second, 24*time.Second, 34*time.Second, 44*time.Second)
	})
}

func TestTheSpacingIsTheLongestThatTheBackoffCouldHaveBeen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := spent(t, sluice.Config{})
		sluice.Retry(bg, g, sluice.RetryPolicy{}, down)
		if got := g.Stats().Spacing; got < 500*ms-1 || got > 500*ms {
			t.Errorf("after a failure: %v", got)
		}
		sluice.Retry(bg, g, sluice.RetryPolicy{}, busy)
		if got := g.Stats().Spacing; got < time.Second-1 || got > time.Second {
			t.Errorf("after a throttle: %v", got)
		}
		sluice.Retry(bg, g, each(2*time.Second), told(10*time.Second))
		if got := g.Stats().Spacing; got != 2*time.Second {
			t.Errorf("after a told wait: %v", got)
		}
		sluice.Retry(bg, g, each(0), down) // after the pause
		if got := g.Stats().Spacing; got != 2*time.Second {
			t.Errorf("after a failure with no backoff: %v", got)
		}
	})
}

func TestTheSpacingIsThirtySecondsAtMost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := emptied(t, sluice.Config{}, 24*time.Hour)
		l := synclog.New()
		l.Call(0, enter(g, bg))
		l.Call(1, enter(g, bg))
		time.Sleep(30*time.Second - 1)
		if got := g.Stats().Spacing; got != 30*time.Second {
			t.Errorf("spacing %v", got)
		}
		time.Sleep(time.Hour)
		l.Want(t, synclog.At(0, 30*time.Second), synclog.At(1, 45*time.Second)) // halved by the quiet
	})
}

func TestTheSpacingReachesThoseWhoWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := spent(t, sluice.Config{Rate: sluice.Rate{Count: 1, Per: time.Second}})
		l := synclog.New()
		l.Call(0, func() error { return sluice.Retry(bg, g, each(10*time.Second), after(2500*ms, down)) })
		for i := 1; i <= 4; i++ {
			l.Call(i, enter(g, bg))
		}
		time.Sleep(time.Minute)
		l.Want(t,
			synclog.At(1, 1000*ms),
			synclog.At(2, 2000*ms),
			synclog.Failed(0, 2500*ms, sluice.ErrBudget),
			synclog.At(3, 12000*ms), // 10 s after the last one left
			synclog.At(4, 22000*ms),
		)
	})
}

// How long it lasts nobody knows, so it ends no wait before its time.
func TestTheSpacingRefusesNobodyInAdvance(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := spent(t, sluice.Config{Name: "api", Rate: sluice.Rate{Count: 1, Per: time.Second}})
		l := synclog.New()
		ctx, cancel := context.WithTimeout(bg, 5*time.Second)
		defer cancel()
		l.Call(0, func() error { return sluice.Retry(bg, g, each(10*time.Second), after(2500*ms, down)) })
		l.Call(1, enter(g, ctx))
		l.Call(2, enter(g, ctx))
		l.Call(3, enter(g, ctx)) // one success would still let it leave in time
		l.Call(4, enter(g, bg))
		time.Sleep(time.Minute)
		l.Want(t,
			synclog.At(1, 1000*ms),
			synclog.At(2, 2000*ms),
			synclog.Failed(0, 2500*ms, sluice.ErrBudget),
			synclog.Failed(3, 5000*ms, context.DeadlineExceeded),
			synclog.At(4, 12000*ms), // 10 s after the last one left
		)
	})
}

// A wait is refused in advance only for what is certain: the rate and a pause.
func TestWaitsForTheSpacingEndWhenTheirTimeIsUp(t *testing.T) {
	for name, c := range map[string]struct {
		cfg    sluice.Config
		before int64 // the n of two calls that wait already
	}{
		"calls":       {sluice.Config{Rate: tenPerSecond}, 1},
		"no rate":     {sluice.Config{}, 1000},
		"concurrency": {sluice.Config{Concurrency: 3}, 1},
		"cost":        {sluice.Config{Rate: sluice.Rate{Count: 1000, Per: time.Second}, RateUnit: sluice.Cost}, 1000},
		"parent":      {sluice.Config{Parent: mustGate(t, sluice.Config{})}, 1},
		"quota":       {sluice.Config{Limits: []sluice.Limit{{Limiter: free{}}}}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				if c.cfg.Parent != nil {
					c.cfg.Parent = mustGate(t, sluice.Config{})
				}
				c.cfg.Name = "api"
				g := emptied(t, c.cfg, 8*time.Second)
				l := synclog.New()
				for i := range 2 {
					l.Call(i, func() error { _, err := g.Acquire(bg, c.before); return err })
				}
				ctx, cancel := context.WithTimeout(bg, 20*time.Second)
				defer cancel()
				l.Call(2, enter(g, ctx))
				l.Call(3, func() error { _, err := g.AcquireWithin(bg, 1, 24*time.Second-1); return err })
				l.Call(4, func() error { _, err := g.AcquireWithin(bg, 1, 24*time.Second); return err })
				time.Sleep(time.Hour)
				l.Want(t, synclog.At(0, 8*time.Second), synclog.At(1, 16*time.Second), synclog.Failed(2, 20*time.Second, context.DeadlineExceeded),
					synclog.Failed(3, 24*time.Second-1, sluice.ErrTimeout), synclog.At(4, 24*time.Second))
				for _, left := range l.Sofar() {
					if errors.Is(left.Err, sluice.ErrTimeout) && left.Err.Error() != "sluice: api: waited for the retry budget as long as allowed" {
						t.Error(left.Err)
					}
				}
			})
		})
	}
}

// free is a meter that lets everything through.
type free struct{}

func (free) Admit(context.Context, int64) (time.Duration, error) { return 0, nil }
func (free) Adjust(context.Context, int64, time.Duration) error  { return nil }

// The rate and a pause refuse in advance although the calls are spaced out, too.
func TestWhatIsCertainRefusesInAdvanceBesideTheSpacing(t *testing.T) {
	for name, c := range map[string]struct {
		cfg    sluice.Config
		change func(g *sluice.Gate)
		by     sluice.Cause
	}{
		"a pause":      {sluice.Config{}, func(g *sluice.Gate) { g.PauseUntil(time.Now().Add(time.Minute), "") }, sluice.ByPause},
		"the rate":     {sluice.Config{Rate: tenPerSecond}, func(g *sluice.Gate) { g.SetRate(1, time.Minute) }, sluice.ByRate},
		"with a quota": {sluice.Config{Limits: []sluice.Limit{{Limiter: free{}}}}, func(g *sluice.Gate) { g.PauseUntil(time.Now().Add(time.Minute), "") }, sluice.ByPause},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g, l := emptied(t, c.cfg, 8*time.Second), synclog.New()
				ctx, cancel := context.WithTimeout(bg, 30*time.Second)
				defer cancel()
				l.Call(0, enter(g, ctx)) // waits already
				time.Sleep(time.Second)
				c.change(g)
				l.Call(1, enter(g, ctx))
				time.Sleep(time.Hour)
				l.Want(t, synclog.Failed(0, time.Second, context.DeadlineExceeded), synclog.Failed(1, time.Second, context.DeadlineExceeded))
				for _, left := range l.Sofar() {
					var wait *sluice.WaitError
					if !errors.As(left.Err, &wait) || wait.For != c.by || wait.Need != 59*time.Second && wait.Need != time.Minute {
						t.Errorf("%v", left.Err)
					}
				}
			})
		})
	}
}

func TestAPlanNamesTheSpacingAndLeavesItOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := emptied(t, sluice.Config{Rate: tenPerSecond}, 8*time.Second)
		for _, c := range []struct {
			n    int64
			want sluice.Estimate
		}{
			{1, sluice.Estimate{First: 100 * ms, Last: 100 * ms, LimitedBy: sluice.ByRetryBudget}},
			{3, sluice.Estimate{First: 100 * ms, Last: 300 * ms, LimitedBy: sluice.ByRetryBudget}},
			{math.MaxInt64, sluice.Estimate{First: 100 * ms, Last: limits.Never, LimitedBy: sluice.ByRate}}, // no end of calls
		} {
			got := g.Estimate(c.n)
			got.Total = 0
			if got != c.want {
				t.Errorf("Plan(%d) = %+v, want %+v", c.n, got, c.want)
			}
		}
		// What is so now Stats do say.
		if got := g.Stats(); time.Until(got.NextSlot) != 8*time.Second || got.Spacing != 8*time.Second {
			t.Errorf("%+v", got)
		}
		g.PauseUntil(time.Now().Add(time.Hour), "")
		if got := g.Estimate(3); got.First != time.Hour || got.LimitedBy != sluice.ByPause {
			t.Errorf("Plan(3) = %+v", got)
		}
	})
}

// The permit of the call that found the budget empty does not let the next one
// out first.
func TestNobodyLeavesBetweenTheAnswerAndTheSpacing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := spent(t, sluice.Config{Concurrency: 1})
		l, s := synclog.New(), newServer(after(time.Second, down), fine)
		for i := range 3 {
			l.Call(i, func() error { return sluice.Retry(bg, g, each(10*time.Second), s.call) })
		}
		time.Sleep(time.Hour)
		s.want(t, 0, 10*time.Second, 15*time.Second)
	})
}

func TestANewRateKeepsTheSpacing(t *testing.T) {
	for name, c := range map[string]struct {
		rate sluice.Rate
		want []time.Duration
	}{
		"faster":    {sluice.Rate{Count: 1000, Per: time.Second}, []time.Duration{8000, 12000, 14000}},
		"unlimited": {sluice.Rate{}, []time.Duration{8000, 12000, 14000}},
		"slower":    {sluice.Rate{Count: 1, Per: 5 * time.Second}, []time.Duration{8000, 13000, 18000}},
		"slow":      {sluice.Rate{Count: 1, Per: 20 * time.Second}, []time.Duration{20000, 40000, 60000}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := emptied(t, sluice.Config{Rate: tenPerSecond}, 8*time.Second)
				l := synclog.New()
				var want []synclog.Left
				for i, at := range c.want {
					l.Call(i, func() error { return sluice.Retry(bg, g, sluice.RetryPolicy{}, fine) })
					want = append(want, synclog.At(i, at*ms))
				}
				if err := g.SetRate(c.rate.Count, c.rate.Per); err != nil || g.Stats().Rate != c.rate {
					t.Errorf("%v, %v", err, g.Stats().Rate)
				}
				time.Sleep(time.Hour)
				l.Want(t, want...)
			})
		})
	}
}

func TestTheSpacingIsPerCallWhateverIsStoredAndWhateverTheRateCounts(t *testing.T) {
	for name, cfg := range map[string]sluice.Config{
		"a burst":      {Rate: tenPerSecond, Burst: 5},
		"a burst time": {Rate: tenPerSecond, BurstTime: 400 * ms},
		"a huge burst": {Rate: sluice.Rate{Count: 1, Per: ms}, Burst: 1 << 40}, // at 8 s a call longer than there is time
		"cost":         {Rate: sluice.Rate{Count: 10_000, Per: time.Second}, RateUnit: sluice.Cost},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := emptied(t, cfg, 8*time.Second)
				l := synclog.New()
				for i, n := range []int64{1, 1000, 1} {
					l.Call(i, func() error { _, err := g.Acquire(bg, n); return err })
				}
				time.Sleep(time.Hour)
				l.Want(t, synclog.At(0, 8*time.Second), synclog.At(1, 16*time.Second), synclog.At(2, 24*time.Second))
			})
		})
	}
}

// A call that was dear left before; the spacing does not price it anew.
func TestTheSpacingBeginsWithTheLastCallWhateverThatCost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := spent(t, sluice.Config{Rate: sluice.Rate{Count: 1000, Per: time.Second}, RateUnit: sluice.Cost})
		l := synclog.New()
		l.Call(0, func() error { return sluice.Retry(bg, g, each(time.Second), after(2*time.Second, down)) })
		time.Sleep(time.Second)
		g.Acquire(bg, 500) // owes 500 ms
		time.Sleep(1200 * ms)
		l.Call(1, enter(g, bg)) // 1.2 s after that, and the spacing is 1 s
		l.Call(2, enter(g, bg))
		time.Sleep(time.Hour)
		l.Want(t, synclog.Failed(0, 2*time.Second, sluice.ErrBudget), synclog.At(1, 2200*ms), synclog.At(2, 3200*ms))
	})
}

func TestAnEmptyBudgetEndsToldWaitsToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := spent(t, sluice.Config{Rate: herd})
		s := newServer(told(time.Minute))
		err := sluice.Retry(bg, g, each(time.Second), s.call)
		s.wantStop(t, err, stop{last: errBusy, why: sluice.ErrBudget, attempts: 1, retryAt: time.Minute})
		// What the server said holds for all the others.
		l := synclog.New()
		l.Call(0, enter(g, bg))
		l.Call(1, enter(g, bg))
		time.Sleep(time.Hour)
		l.Want(t, synclog.At(0, 60*time.Second), synclog.At(1, 60*time.Second+250*ms)) // 1 s, halved by the quiet
	})
}

func TestANegativeBudgetMakesRetriesFree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, budget := range []int{-1, math.MinInt} {
			g, l := mustGate(t, sluice.Config{Rate: herd, RetryBudget: budget}), synclog.New()
			p := each(time.Second)
			p.Attempts, p.MaxElapsed = 200, -1
			for i, a := range []answer{down, late, busy, told(time.Second)} {
				answers := make([]answer, 199)
				for i := range answers {
					answers[i] = a
				}
				s := newServer(append(answers, fine)...)
				l.Call(i, func() error { return sluice.Retry(bg, g, p, s.call) })
			}
			time.Sleep(time.Hour)
			left := l.Sofar()
			for _, l := range left {
				if l.Err != nil {
					t.Errorf("%v", l)
				}
			}
			if got := g.Stats().Spacing; len(left) != 4 || got != 0 {
				t.Errorf("%d calls ended, spacing %v", len(left), got)
			}
		}
	})
}

// Each gate has its own budget.
func TestBudgetsOfGatesAreApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one, other := emptied(t, sluice.Config{}, time.Second), mustGate(t, sluice.Config{})
		if got := other.Stats(); got.RetryTokens != 100 || got.Spacing != 0 {
			t.Errorf("%+v", got)
		}
		if err := sluice.Retry(bg, other, each(time.Second), newServer(down, fine).call); err != nil {
			t.Error(err)
		}
		if got := one.Stats(); got.RetryTokens != 0 || got.Spacing != time.Second {
			t.Errorf("%+v", got)
		}
	})
}
