package sluice_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/semaphore"
)

// A plan names the limit that it cannot forecast, and says "nothing" only if it knows.
func TestPlanNamesWhatItCannotKnow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		quota := func(name string) []sluice.Limit {
			return []sluice.Limit{{Name: name, Limiter: &bucket{capacity: 10, interval: time.Hour}}}
		}
		permits := shared{semaphore.NewWeighted(1), nil}
		for name, c := range map[string]struct {
			gates []sluice.Config // the oldest first
			want  sluice.Estimate // of 11 calls
		}{
			"no limit":           {[]sluice.Config{{}}, sluice.Estimate{LimitedBy: sluice.ByNothing}},
			"quota":              {[]sluice.Config{{Limits: quota("day")}}, sluice.Estimate{LimitedBy: "quota day", Unknown: "quota day"}},
			"nameless quota":     {[]sluice.Config{{Limits: quota("")}}, sluice.Estimate{LimitedBy: "quota", Unknown: "quota"}},
			"permits":            {[]sluice.Config{{Semaphore: permits}}, sluice.Estimate{LimitedBy: sluice.BySemaphore, Unknown: sluice.BySemaphore}},
			"permits and quota":  {[]sluice.Config{{Semaphore: permits, Limits: quota("day")}}, sluice.Estimate{LimitedBy: "quota day", Unknown: "quota day"}},
			"quota of a parent":  {[]sluice.Config{{Limits: quota("all")}, {}}, sluice.Estimate{LimitedBy: "quota all", Unknown: "quota all"}},
			"quotas of both":     {[]sluice.Config{{Limits: quota("all")}, {Limits: quota("day")}}, sluice.Estimate{LimitedBy: "quota day", Unknown: "quota day"}},
			"rate and quota":     {[]sluice.Config{{Rate: tenPerSecond, Limits: quota("day")}}, sluice.Estimate{Last: time.Second, Total: time.Second, LimitedBy: sluice.ByRate, Unknown: "quota day"}},
			"rate of the parent": {[]sluice.Config{{Rate: tenPerSecond}, {Limits: quota("day")}}, sluice.Estimate{Last: time.Second, Total: time.Second, LimitedBy: sluice.ByRate, Unknown: "quota day"}},
			"rate":               {[]sluice.Config{{Rate: tenPerSecond}}, sluice.Estimate{Last: time.Second, Total: time.Second, LimitedBy: sluice.ByRate}},
		} {
			g := generations(t, c.gates...)
			if got := g.Estimate(11); got != c.want {
				t.Errorf("%s: %+v, want %+v", name, got, c.want)
			}
			if got := g.Estimate(0); got != (sluice.Estimate{LimitedBy: sluice.ByNothing}) {
				t.Errorf("%s: nothing takes %+v", name, got)
			}
		}
	})
}

// In a slow start a plan names it unless the window has room for all the calls.
func TestPlanNamesASlowStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := func(cfg sluice.Config) *sluice.Gate { // paused for 1 s from now on
			g := mustGate(t, cfg)
			g.PauseUntil(time.Now().Add(time.Second), "429")
			return g
		}
		check := func(what string, g *sluice.Gate, n int64, want sluice.Estimate) {
			t.Helper()
			if got := g.Estimate(n); got != want {
				t.Errorf("%s: Plan(%d): %+v, want %+v", what, n, got, want)
			}
		}
		nothing := sluice.Estimate{LimitedBy: sluice.ByNothing}
		started := sluice.Estimate{LimitedBy: sluice.BySlowStart, Unknown: sluice.BySlowStart}
		paused := sluice.Estimate{First: time.Second, Last: time.Second, Total: time.Second, LimitedBy: sluice.ByPause}

		g := slow(sluice.Config{})
		limited := slow(sluice.Config{Concurrency: 4})
		child := mustGate(t, sluice.Config{Parent: g})
		below := slow(sluice.Config{Parent: mustGate(t, sluice.Config{Rate: tenPerSecond})})
		quota := slow(sluice.Config{Limits: []sluice.Limit{{Name: "day", Limiter: &bucket{capacity: 10, interval: time.Hour}}}})
		check("paused", g, 1, paused)
		paused.Unknown = sluice.BySlowStart
		check("paused", g, 2, paused)

		time.Sleep(time.Second)
		check("one call may leave", g, 1, nothing)
		check("the second may not", g, 2, started)
		check("with a limit", limited, 2, started)
		check("of the parent", child, 2, started)
		check("below a rate", below, 11, sluice.Estimate{Last: time.Second, Total: time.Second, LimitedBy: sluice.ByRate, Unknown: sluice.BySlowStart})
		check("beside a quota", quota, 2, sluice.Estimate{LimitedBy: sluice.BySlowStart, Unknown: "quota day"})

		p, err := g.Acquire(bg, 1)
		if err != nil {
			t.Fatal(err)
		}
		check("one is in flight", g, 1, started)
		time.Sleep(time.Second)
		p.Release()
		check("two calls may leave", g, 2, sluice.Estimate{Total: time.Second, LimitedBy: sluice.ByNothing})
		started.Total = time.Second
		check("the third may not", g, 3, started)

		// From the second refusal on there is a pace: one call in some seconds.
		for range 2 {
			g.Do(bg, told(time.Second))
			time.Sleep(2 * time.Second)
		}
		if got := g.Estimate(1).LimitedBy; got != sluice.BySlowStart {
			t.Errorf("before the gap is over: %q", got)
		}
		time.Sleep(time.Minute)
		if got := g.Estimate(1).LimitedBy; got != sluice.ByNothing {
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
		if want := (sluice.Estimate{Last: time.Second, Total: 2 * time.Second, LimitedBy: sluice.BySlowStart, Unknown: sluice.BySlowStart}); got != want {
			t.Errorf("beside a limit: %+v, want %+v", got, want)
		}
		limited.SetRate(10, time.Second)
		check("a rate ends it", limited, 4, sluice.Estimate{Last: 300 * ms, Total: 1300 * ms, LimitedBy: sluice.ByRate})
	})
}
