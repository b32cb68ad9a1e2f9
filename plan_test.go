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
		quota := func(name string) []sluice.Quota {
			return []sluice.Quota{{Name: name, Meter: &bucket{capacity: 10, interval: time.Hour}}}
		}
		permits := shared{semaphore.NewWeighted(1), nil}
		for name, c := range map[string]struct {
			gates []sluice.Config // the oldest first
			want  sluice.Forecast // of 11 calls
		}{
			"no limit":           {[]sluice.Config{{}}, sluice.Forecast{LimitedBy: sluice.ByNothing}},
			"quota":              {[]sluice.Config{{Quotas: quota("day")}}, sluice.Forecast{LimitedBy: "quota day", Unknown: "quota day"}},
			"nameless quota":     {[]sluice.Config{{Quotas: quota("")}}, sluice.Forecast{LimitedBy: "quota", Unknown: "quota"}},
			"permits":            {[]sluice.Config{{Permits: permits}}, sluice.Forecast{LimitedBy: sluice.ByPermits, Unknown: sluice.ByPermits}},
			"permits and quota":  {[]sluice.Config{{Permits: permits, Quotas: quota("day")}}, sluice.Forecast{LimitedBy: "quota day", Unknown: "quota day"}},
			"quota of a parent":  {[]sluice.Config{{Quotas: quota("all")}, {}}, sluice.Forecast{LimitedBy: "quota all", Unknown: "quota all"}},
			"quotas of both":     {[]sluice.Config{{Quotas: quota("all")}, {Quotas: quota("day")}}, sluice.Forecast{LimitedBy: "quota day", Unknown: "quota day"}},
			"rate and quota":     {[]sluice.Config{{Rate: tenPerSecond, Quotas: quota("day")}}, sluice.Forecast{Last: time.Second, Total: time.Second, LimitedBy: sluice.ByRate, Unknown: "quota day"}},
			"rate of the parent": {[]sluice.Config{{Rate: tenPerSecond}, {Quotas: quota("day")}}, sluice.Forecast{Last: time.Second, Total: time.Second, LimitedBy: sluice.ByRate, Unknown: "quota day"}},
			"rate":               {[]sluice.Config{{Rate: tenPerSecond}}, sluice.Forecast{Last: time.Second, Total: time.Second, LimitedBy: sluice.ByRate}},
		} {
			g := generations(t, c.gates...)
			if got := g.Plan(11); got != c.want {
				t.Errorf("%s: %+v, want %+v", name, got, c.want)
			}
			if got := g.Plan(0); got != (sluice.Forecast{LimitedBy: sluice.ByNothing}) {
				t.Errorf("%s: nothing takes %+v", name, got)
			}
		}
	})
}
