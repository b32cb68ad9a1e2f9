package servers_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/internal/testkit/synclog"
	"github.com/sluice-go/sluice/limits"
)

// emptied returns a gate whose budget is empty, and whose last call left just
// now and would have been retried after backoff.
func emptied(t *testing.T, cfg sluice.Config, backoff time.Duration) *sluice.Gate {
	t.Helper()
	g, s := spent(t, cfg), newServer(down)
	p := each(backoff)
	p.MaxElapsed = -1
	err := sluice.Retry(bg, g, s.call, p)
	s.wantStop(t, err, stop{last: errDown, why: sluice.ErrBudget, attempts: 1, retryAt: backoff})
	return g
}

// exhaust empties the retry budget of a gate, which has room for one retry.
func exhaust(t *testing.T, g *sluice.Gate) {
	t.Helper()
	err := sluice.Retry(bg, g, func(context.Context) error { return errors.New("x") }, sluice.RetryPolicy{Backoff: sluice.Constant(500 * ms)})
	if !errors.Is(err, sluice.ErrBudget) {
		t.Fatal(err)
	}
	if s := g.Stats(); s.Spacing != 500*ms {
		t.Fatalf("spacing %v", s.Spacing)
	}
}

func TestStats_Spacing_HalvedBySuccesses(t *testing.T) {
	for name, cfg := range map[string]sluice.Config{
		"no rate":        {},
		"a stored burst": {Rate: sluice.Rate{Count: 100, Per: time.Second, Burst: 20}},
		"counts cost":    {Rate: sluice.Rate{Count: 60_000, Per: time.Second}, RateUnit: sluice.Cost},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cfg.RetryBudget = 10
				g := fixedGate(t, cfg)
				time.Sleep(time.Hour)
				exhaust(t, g)
				if d := time.Until(g.Stats().NextSlot); d != 500*ms {
					t.Errorf("next call in %v", d)
				}
				var left []time.Duration
				start := time.Now()
				for range 11 { // each success halves the spacing: 500, 250, … 1, 0
					g.Acquire(bg, 1000)
					left = append(left, time.Since(start).Truncate(ms))
					g.Do(bg, nothing)
				}
				if left[0] != 500*ms || left[1] != 1250*ms {
					t.Errorf("left at %v", left)
				}
				if s := g.Stats(); s.Spacing != 0 {
					t.Errorf("%v after 11 successes", s.Spacing)
				}
			})
		})
	}
}

func TestStats_Spacing_OfFirstAttemptsUntilTheySucceed(t *testing.T) {
	for name, c := range map[string]struct {
		cfg    sluice.Config
		spaced []time.Duration // after the first: when the others leave, in ms
	}{
		// 8 s, and each success halves it, also for calls that wait already.
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
					l.Call(i, func() error { return sluice.Retry(bg, g, after(10*ms, fine)) })
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

func TestStats_Spacing_BelowAMillisecondIsNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := emptied(t, sluice.Config{}, 8*time.Second)
		l := synclog.New()
		var want []synclog.Left
		var at time.Duration
		for i := range 20 {
			if cool := 8 * time.Second >> i; cool >= ms {
				at += cool
			}
			l.Call(i, func() error { return sluice.Retry(bg, g, fine) })
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
func TestStats_Spacing_LoopsDoNotCallFasterThanWithBackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := spent(t, sluice.Config{})
		s := newServer(down)
		for i := range 6 {
			backoff := []time.Duration{8 * time.Second, 8 * time.Second, time.Second, 10 * time.Second, time.Second, time.Second}[i]
			if err := sluice.Retry(bg, g, s.call, each(backoff)); !errors.Is(err, sluice.ErrBudget) {
				t.Errorf("call %d: %v", i, err)
			}
		}
		// A shorter backoff does not shorten what a longer one asked for.
		s.want(t, 0, 8*time.Second, 16*time.Second, 24*time.Second, 34*time.Second, 44*time.Second)
	})
}

func TestStats_Spacing_IsTheLongestPossibleBackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := spent(t, sluice.Config{})
		sluice.Retry(bg, g, down)
		if got := g.Stats().Spacing; got < 500*ms-1 || got > 500*ms {
			t.Errorf("after a failure: %v", got)
		}
		sluice.Retry(bg, g, busy)
		if got := g.Stats().Spacing; got < time.Second-1 || got > time.Second {
			t.Errorf("after a throttle: %v", got)
		}
		sluice.Retry(bg, g, retryAfter(10*time.Second), each(2*time.Second))
		if got := g.Stats().Spacing; got != 2*time.Second {
			t.Errorf("after a server wait: %v", got)
		}
		sluice.Retry(bg, g, down, each(0)) // after the pause
		if got := g.Stats().Spacing; got != 2*time.Second {
			t.Errorf("after a failure with no backoff: %v", got)
		}
	})
}

func TestStats_Spacing_AtMostThirtySeconds(t *testing.T) {
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

func TestStats_Spacing_ReachesWaiters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := spent(t, sluice.Config{Rate: sluice.Rate{Count: 1, Per: time.Second}})
		l := synclog.New()
		l.Call(0, func() error { return sluice.Retry(bg, g, after(2500*ms, down), each(10*time.Second)) })
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

// How long the spacing lasts is unknown, so it fails no wait before its deadline.
func TestStats_Spacing_FailsNoWaitEarly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := spent(t, sluice.Config{Name: "api", Rate: sluice.Rate{Count: 1, Per: time.Second}})
		l := synclog.New()
		ctx, cancel := context.WithTimeout(bg, 5*time.Second)
		defer cancel()
		l.Call(0, func() error { return sluice.Retry(bg, g, after(2500*ms, down), each(10*time.Second)) })
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

// The spacing may begin while a limiter is being asked.
func TestStats_Spacing_BegunWhileALimitIsAskedFailsNoWaitEarly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		g := fixedGate(t, sluice.Config{RetryBudget: 1, Parent: fixedGate(t, sluice.Config{}), Limits: []sluice.Limit{{Limiter: hook(func() {
			if asked++; asked == 2 {
				time.Sleep(time.Second)
			}
		})}}})
		l := synclog.New()
		l.Call(0, func() error { return sluice.Retry(bg, g, after(500*ms, down), each(8*time.Second)) }) // empties the budget
		ctx, cancel := context.WithTimeout(bg, 5*time.Second)
		defer cancel()
		l.Call(1, enter(g, ctx))
		l.Call(2, enter(g, bg))
		time.Sleep(time.Hour)
		l.Want(t, synclog.Failed(0, 500*ms, sluice.ErrBudget), synclog.Failed(1, 5*time.Second, context.DeadlineExceeded), synclog.At(2, 8*time.Second))
	})
}

// A wait fails in advance only for what is certain: the rate and a pause.
func TestStats_Spacing_WaitsEndAtTheirDeadline(t *testing.T) {
	for name, c := range map[string]struct {
		cfg    sluice.Config
		before int64 // the n of two calls that wait already
	}{
		"calls":       {sluice.Config{Rate: tenPerSecond}, 1},
		"no rate":     {sluice.Config{}, 1000},
		"concurrency": {sluice.Config{Concurrency: 3}, 1},
		"cost":        {sluice.Config{Rate: sluice.Rate{Count: 1000, Per: time.Second}, RateUnit: sluice.Cost}, 1000},
		"parent":      {sluice.Config{Parent: fixedGate(t, sluice.Config{})}, 1},
		"quota":       {sluice.Config{Limits: []sluice.Limit{{Limiter: free{}}}}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				if c.cfg.Parent != nil {
					c.cfg.Parent = fixedGate(t, sluice.Config{})
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
					synclog.Failed(3, 24*time.Second-1, limits.ErrTimeout), synclog.At(4, 24*time.Second))
				for _, left := range l.Sofar() {
					if errors.Is(left.Err, limits.ErrTimeout) && left.Err.Error() != "sluice: api: waited for the retry budget (calls are 8.0 s apart after failures) as long as allowed" {
						t.Error(left.Err)
					}
				}
			})
		})
	}
}

// The rate and a pause fail waits in advance although the calls are spaced out, too.
func TestStats_Spacing_RateAndPauseStillFailWaitsEarly(t *testing.T) {
	for name, c := range map[string]struct {
		cfg    sluice.Config
		change func(g *sluice.Gate)
		by     limits.Cause
	}{
		"a pause":      {sluice.Config{}, func(g *sluice.Gate) { g.PauseUntil(time.Now().Add(time.Minute), "") }, limits.ByPause},
		"the rate":     {sluice.Config{Rate: tenPerSecond}, func(g *sluice.Gate) { g.SetRate(sluice.Rate{Count: 1, Per: time.Minute}) }, limits.ByRate},
		"with a quota": {sluice.Config{Limits: []sluice.Limit{{Limiter: free{}}}}, func(g *sluice.Gate) { g.PauseUntil(time.Now().Add(time.Minute), "") }, limits.ByPause},
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
					var wait *limits.WaitError
					if !errors.As(left.Err, &wait) || wait.For != c.by || wait.Need != 59*time.Second && wait.Need != time.Minute {
						t.Errorf("%v", left.Err)
					}
				}
			})
		})
	}
}

// The permit of the call that found the budget empty does not let the next one
// out first.
func TestStats_Spacing_BeginsBeforeRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := spent(t, sluice.Config{Concurrency: 1})
		l, s := synclog.New(), newServer(after(time.Second, down), fine)
		for i := range 3 {
			l.Call(i, func() error { return sluice.Retry(bg, g, s.call, each(10*time.Second)) })
		}
		time.Sleep(time.Hour)
		s.want(t, 0, 10*time.Second, 15*time.Second)
	})
}

func TestStats_Spacing_SurvivesSetRate(t *testing.T) {
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
					l.Call(i, func() error { return sluice.Retry(bg, g, fine) })
					want = append(want, synclog.At(i, at*ms))
				}
				if err := g.SetRate(c.rate); err != nil || g.Stats().Rate != c.rate {
					t.Errorf("%v, %v", err, g.Stats().Rate)
				}
				time.Sleep(time.Hour)
				l.Want(t, want...)
			})
		})
	}
}

func TestStats_Spacing_IsPerCall(t *testing.T) {
	for name, cfg := range map[string]sluice.Config{
		"a burst":      {Rate: withBurst(tenPerSecond, 5)},
		"a huge burst": {Rate: sluice.Rate{Count: 1, Per: ms, Burst: 1 << 40}}, // at 8 s a call longer than there is time
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

// The spacing does not charge for the cost of a call that left before it.
func TestStats_Spacing_CountsFromTheLastCallWhateverItsCost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := spent(t, sluice.Config{Rate: sluice.Rate{Count: 1000, Per: time.Second}, RateUnit: sluice.Cost})
		l := synclog.New()
		l.Call(0, func() error { return sluice.Retry(bg, g, after(2*time.Second, down), each(time.Second)) })
		time.Sleep(time.Second)
		g.Acquire(bg, 500) // owes 500 ms
		time.Sleep(1200 * ms)
		l.Call(1, enter(g, bg)) // 1.2 s after that, and the spacing is 1 s
		l.Call(2, enter(g, bg))
		time.Sleep(time.Hour)
		l.Want(t, synclog.Failed(0, 2*time.Second, sluice.ErrBudget), synclog.At(1, 2200*ms), synclog.At(2, 3200*ms))
	})
}

func TestStats_Spacing_HalvedByDefiniteAnswers(t *testing.T) {
	never := each(ms)
	never.Retryable = func(error) bool { return false }
	notFound := errors.New("404")
	do := func(p sluice.RetryPolicy, a answer) func(g *sluice.Gate) {
		return func(g *sluice.Gate) { sluice.Retry(bg, g, a, p) }
	}
	for name, c := range map[string]struct {
		call func(g *sluice.Gate)
		want time.Duration
	}{
		"success":                  {do(never, fine), 2 * time.Second},
		"Permanent":                {do(each(ms), gone), 2 * time.Second},
		"wrapped":                  {do(each(ms), always(fmt.Errorf("get: %w", sluice.Permanent(notFound)))), 2 * time.Second},
		"Policy.Retry":             {do(never, always(notFound)), 2 * time.Second},
		"Gate.Do":                  {func(g *sluice.Gate) { g.Do(bg, gone) }, 2 * time.Second},
		"of a call within":         {do(each(ms), func(ctx context.Context) error { return sluice.Retry(ctx, fixedGate(t, sluice.Config{}), gone, never) }), 2 * time.Second},
		"plain, Gate.Do":           {func(g *sluice.Gate) { g.Do(bg, down) }, 4 * time.Second},
		"Acquire":                  {func(g *sluice.Gate) { p, _ := g.Acquire(bg, 1); p.Release() }, 4 * time.Second},
		"plain":                    {do(each(ms), down), 4 * time.Second},
		"Permanent throttle":       {do(each(ms), always(sluice.Permanent(sluice.ThrottledFor(notFound, 0)))), 4 * time.Second},
		"Permanent and throttled":  {do(each(ms), always(sluice.Permanent(sluice.ThrottledFor(notFound, ms)))), 4 * time.Second},
		"Permanent timeout":        {do(each(ms), always(sluice.Permanent(context.DeadlineExceeded))), 4 * time.Second},
		"Permanent, not before":    {do(each(ms), always(sluice.Permanent(sluice.RetryAfter(notFound, time.Hour)))), 4 * time.Second},
		"Policy.Retry, a timeout":  {do(never, late), 4 * time.Second},
		"Policy.Retry, a throttle": {do(never, busy), 4 * time.Second},
		"cancelled": {func(g *sluice.Gate) {
			ctx, cancel := context.WithCancel(bg)
			sluice.Retry(ctx, g, func(context.Context) error { cancel(); return sluice.Permanent(ctx.Err()) }, never)
		}, 4 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := emptied(t, sluice.Config{}, 4*time.Second)
				c.call(g)
				if s := g.Stats(); s.Spacing != c.want {
					t.Errorf("spacing %v, want %v", s.Spacing, c.want)
				}
			})
		})
	}
}

func TestStats_Spacing_OfAMillisecondIsTheShortest(t *testing.T) {
	for name, halve := range map[string]func(g *sluice.Gate){
		"time":      func(*sluice.Gate) { time.Sleep(30 * time.Second) },
		"successes": func(g *sluice.Gate) { g.Do(bg, fine) },
	} {
		synctest.Test(t, func(t *testing.T) {
			g := emptied(t, sluice.Config{}, 4*ms)
			for _, want := range []time.Duration{2 * ms, ms, 0} {
				halve(g)
				if got := g.Stats().Spacing; got != want {
					t.Errorf("%s: spacing %v, want %v", name, got, want)
				}
			}
		})
	}
}

// Of a server that fails some calls each first attempt is made when it comes, until less than a quarter of the
// last 16 succeed; then calls are spaced out.
func TestRetry_SpacedOutOnlyIfFewSucceed(t *testing.T) {
	for every, spaced := range map[int]bool{2: false, 4: false, 5: true, 100: true} { // each so many succeeds
		t.Run(fmt.Sprint(every), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := fixedGate(t, sluice.Config{RetryBudget: 1}) // pays for no retry
				n := 0
				call := func(context.Context) error {
					if n++; n%every == 0 {
						return nil
					}
					return errDown
				}
				const calls = 200
				start := time.Now()
				for range calls {
					time.Sleep(100 * ms)
					_ = sluice.Retry(bg, g, call, sluice.RetryPolicy{Backoff: sluice.Constant(500 * ms), MaxElapsed: -1})
				}
				// Until four have succeeded calls are spaced out.
				if took, quick := time.Since(start), calls*140*ms; spaced == (took < quick) || n != calls {
					t.Errorf("%d calls took %v, without spacing %v", n, took, calls*100*ms)
				}
			})
		})
	}
}

func TestGate_Estimate_NamesTheSpacingAndLeavesItOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := emptied(t, sluice.Config{Rate: tenPerSecond}, 8*time.Second)
		for _, c := range []struct {
			n    int64
			want sluice.Estimate
		}{
			{1, sluice.Estimate{First: 100 * ms, Last: 100 * ms, LimitedBy: limits.ByRetryBudget}},
			{3, sluice.Estimate{First: 100 * ms, Last: 300 * ms, LimitedBy: limits.ByRetryBudget}},
			{math.MaxInt64, sluice.Estimate{First: 100 * ms, Last: limits.Never, LimitedBy: limits.ByRate}}, // no end of calls
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
		if got := g.Estimate(3); got.First != time.Hour || got.LimitedBy != limits.ByPause {
			t.Errorf("Plan(3) = %+v", got)
		}
	})
}
