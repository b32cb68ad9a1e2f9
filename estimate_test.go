package sluice_test

import (
	"math"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/limits"
	"github.com/sluice-go/sluice/semaphore"
)

// An estimate names the limit that it cannot forecast, and is empty only if that
// is certain.
func TestGate_Estimate_NamesWhatItCannotForecast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		quota := func(name string) []sluice.Limit {
			return []sluice.Limit{{Name: name, Limiter: &bucket{capacity: 10, interval: time.Hour}}}
		}
		permits := shared{semaphore.NewWeighted(1), nil}
		for name, c := range map[string]struct {
			gates []sluice.Config // the oldest first
			want  sluice.Estimate // of 11 calls
		}{
			"no limit":           {[]sluice.Config{{}}, sluice.Estimate{}},
			"quota":              {[]sluice.Config{{Limits: quota("day")}}, sluice.Estimate{LimitedBy: "limit day", Unknown: "limit day"}},
			"nameless quota":     {[]sluice.Config{{Limits: quota("")}}, sluice.Estimate{LimitedBy: "limit", Unknown: "limit"}},
			"permits":            {[]sluice.Config{{Semaphore: permits}}, sluice.Estimate{LimitedBy: limits.BySemaphore, Unknown: limits.BySemaphore}},
			"permits and quota":  {[]sluice.Config{{Semaphore: permits, Limits: quota("day")}}, sluice.Estimate{LimitedBy: "limit day", Unknown: "limit day"}},
			"quota of a parent":  {[]sluice.Config{{Limits: quota("all")}, {}}, sluice.Estimate{LimitedBy: "limit all", Unknown: "limit all"}},
			"quotas of both":     {[]sluice.Config{{Limits: quota("all")}, {Limits: quota("day")}}, sluice.Estimate{LimitedBy: "limit day", Unknown: "limit day"}},
			"rate and quota":     {[]sluice.Config{{Rate: tenPerSecond, Limits: quota("day")}}, sluice.Estimate{Last: time.Second, Total: time.Second, LimitedBy: limits.ByRate, Unknown: "limit day"}},
			"rate of the parent": {[]sluice.Config{{Rate: tenPerSecond}, {Limits: quota("day")}}, sluice.Estimate{Last: time.Second, Total: time.Second, LimitedBy: limits.ByRate, Unknown: "limit day"}},
			"rate":               {[]sluice.Config{{Rate: tenPerSecond}}, sluice.Estimate{Last: time.Second, Total: time.Second, LimitedBy: limits.ByRate}},
		} {
			g := generations(t, c.gates...)
			if got := g.Estimate(11); got != c.want {
				t.Errorf("%s: %+v, want %+v", name, got, c.want)
			}
			if got := g.Estimate(0); got != (sluice.Estimate{}) {
				t.Errorf("%s: nothing takes %+v", name, got)
			}
		}
	})
}

// In a slow start an estimate names it unless the window has room for all the calls.
func TestGate_Estimate_NamesASlowStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := func(cfg sluice.Config) *sluice.Gate { // paused for 1 s from now on
			g := fixedGate(t, cfg)
			g.PauseUntil(time.Now().Add(time.Second), "429")
			return g
		}
		check := func(what string, g *sluice.Gate, n int64, want sluice.Estimate) {
			t.Helper()
			if got := g.Estimate(n); got != want {
				t.Errorf("%s: Plan(%d): %+v, want %+v", what, n, got, want)
			}
		}
		var nothing sluice.Estimate
		started := sluice.Estimate{LimitedBy: limits.BySlowStart, Unknown: limits.BySlowStart}
		paused := sluice.Estimate{First: time.Second, Last: time.Second, Total: time.Second, LimitedBy: limits.ByPause}

		g := slow(sluice.Config{})
		limited := slow(sluice.Config{Concurrency: 4})
		child := fixedGate(t, sluice.Config{Parent: g})
		below := slow(sluice.Config{Parent: fixedGate(t, sluice.Config{Rate: tenPerSecond})})
		quota := slow(sluice.Config{Limits: []sluice.Limit{{Name: "day", Limiter: &bucket{capacity: 10, interval: time.Hour}}}})
		check("paused", g, 1, paused)
		paused.Unknown = limits.BySlowStart
		check("paused", g, 2, paused)

		time.Sleep(time.Second)
		check("one call may leave", g, 1, nothing)
		check("the second may not", g, 2, started)
		check("with a limit", limited, 2, started)
		check("of the parent", child, 2, started)
		check("below a rate", below, 11, sluice.Estimate{Last: time.Second, Total: time.Second, LimitedBy: limits.ByRate, Unknown: limits.BySlowStart})
		check("beside a quota", quota, 2, sluice.Estimate{LimitedBy: limits.BySlowStart, Unknown: "limit day"})

		p, err := g.Acquire(bg, 1)
		if err != nil {
			t.Fatal(err)
		}
		check("one is in flight", g, 1, started)
		time.Sleep(time.Second)
		p.Release()
		check("two calls may leave", g, 2, sluice.Estimate{Total: time.Second})
		started.Total = time.Second
		check("the third may not", g, 3, started)

		// From the second refusal on there is a pace: one call in some seconds.
		for range 2 {
			g.Do(bg, retryAfter(time.Second))
			time.Sleep(2 * time.Second)
		}
		if got := g.Estimate(1).LimitedBy; got != limits.BySlowStart {
			t.Errorf("before the gap is over: %q", got)
		}
		time.Sleep(time.Minute)
		if got := g.Estimate(1).LimitedBy; got != "" {
			t.Errorf("after it: %q", got)
		}

		// As long as it lasts it takes longer than the limit on the calls in flight.
		p, err = limited.Acquire(bg, 1)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		p.Release()
		got := limited.Estimate(8)
		if want := (sluice.Estimate{Last: time.Second, Total: 2 * time.Second, LimitedBy: limits.BySlowStart, Unknown: limits.BySlowStart}); got != want {
			t.Errorf("beside a limit: %+v, want %+v", got, want)
		}
		limited.SetRate(sluice.Rate{Count: 10, Per: time.Second})
		check("a rate ends it", limited, 4, sluice.Estimate{Last: 300 * ms, Total: 1300 * ms, LimitedBy: limits.ByRate})
	})
}

func TestGate_Estimate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := mustGate(t, sluice.Config{Rate: sluice.Rate{Count: 5, Per: time.Second}, Concurrency: 10})
		check := func(n int64, want sluice.Estimate) {
			t.Helper()
			if got := g.Estimate(n); got != want {
				t.Errorf("Plan(%d) = %+v, want %+v", n, got, want)
			}
		}
		check(0, sluice.Estimate{})
		check(1, sluice.Estimate{})
		check(50_000, sluice.Estimate{Last: 9999800 * ms, Total: 9999800 * ms, LimitedBy: limits.ByRate})
		g.PauseUntil(time.Now().Add(time.Minute), "")
		check(10, sluice.Estimate{First: time.Minute, Last: 61800 * ms, Total: 61800 * ms, LimitedBy: limits.ByPause})
		g.Resume()
		hold(g, 4*time.Second)
		// 10 in flight for 4 s each are 2.5/s: fewer than the rate of 5/s.
		// The last of 100 leaves when 9 rounds are over, 9 intervals into the tenth.
		check(100, sluice.Estimate{Last: 37800 * ms, Total: 41800 * ms, LimitedBy: limits.ByConcurrency})
		g.SetConcurrency(0)
		check(100, sluice.Estimate{Last: 19800 * ms, Total: 23800 * ms, LimitedBy: limits.ByRate})
		check(math.MaxInt64, sluice.Estimate{Last: limits.Never, Total: limits.Never, LimitedBy: limits.ByRate})
	})
}

func TestGate_Estimate_CountsCallsInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := mustGate(t, sluice.Config{Concurrency: 2})
		hold(g, time.Second)
		g.Acquire(bg, 1)
		if f := g.Estimate(2); f.First != 0 || f.Last != time.Second {
			t.Errorf("one of two in flight: %+v", f)
		}
		g.Acquire(bg, 1)
		if f := g.Estimate(2); f.First != time.Second || f.Last != time.Second || f.Total != 2*time.Second || f.LimitedBy != limits.ByConcurrency {
			t.Errorf("both in flight: %+v", f)
		}
	})
}

// What an estimate forecasts is what then happens.
func TestGate_Estimate_ComesTrue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, cfg := range []sluice.Config{
			{Rate: tenPerSecond, Concurrency: 4},
			{Rate: tenPerSecond, Concurrency: 2},
			{Concurrency: 3},
			{Rate: sluice.Rate{Count: 3, Per: time.Second}},
		} {
			g := mustGate(t, cfg)
			hold(g, 300*ms)
			time.Sleep(time.Second)
			want := g.Estimate(40)
			var wg sync.WaitGroup
			start := time.Now()
			for range 40 {
				wg.Go(func() { hold(g, 300*ms) })
			}
			wg.Wait()
			if got := time.Since(start); got != want.Total {
				t.Errorf("%d in flight at %v: took %v, planned %+v", cfg.Concurrency, cfg.Rate, got, want)
			}
		}
	})
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

// Calls in flight are expected to end during a pause that is longer than they usually take.
func TestGate_Estimate_CallsInFlightEndDuringAPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := mustGate(t, sluice.Config{Rate: tenPerSecond, Concurrency: 1})
		hold(g, time.Second)
		p, err := g.Acquire(bg, 1)
		if err != nil {
			t.Fatal(err)
		}
		defer p.Release()
		for pause, first := range map[time.Duration]time.Duration{
			500 * ms:         1500 * ms, // the call may still be in flight
			10 * time.Second: 10 * time.Second,
		} {
			g.Resume()
			g.PauseUntil(time.Now().Add(pause), "maintenance")
			if got := g.Estimate(1); got.First != first || got.Total != first+time.Second {
				t.Errorf("with a pause of %v: %+v, want the first call after %v", pause, got, first)
			}
		}
	})
}
