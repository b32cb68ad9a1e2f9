package adaptive

import (
	"testing"
	"time"
)

// A search begins at 20 calls per second, at 5 where a rejection may mean a ban, and where it is told to.
func TestController_WhereASearchBegins(t *testing.T) {
	for _, c := range []struct {
		cfg  Config
		gap  time.Duration // between the first two calls
		cost float64
	}{
		{Config{}, 50 * time.Millisecond, 1},
		{Config{}, 50 * time.Millisecond, 1000},
		{Config{Costly: true}, 200 * time.Millisecond, 1},
		{Config{Start: 2}, 500 * time.Millisecond, 1},
		{Config{Start: 100, Costly: true}, 10 * time.Millisecond, 1},
	} {
		k := New(c.cfg)
		k.Demand(0, 0)
		k.Started(0, c.cost, 0)
		if at := k.Demand(0, 1); at < c.gap*9/10 || at > c.gap {
			t.Errorf("%+v: the second call of cost %v starts at %v, want a little before %v", c.cfg, c.cost, at, c.gap)
		}
	}
}

// After a costly first rejection the pace is not what a burst of half a second was granted: at 10/s with a burst of
// 10 that had been 16/s, and each such guess costs a minute.
func TestController_AQuickSearchMayHaveMetABurst(t *testing.T) {
	asks := func(float64) time.Duration { return time.Minute }
	for _, rate := range []float64{8, 10, 12, 15} {
		r := newRun(t, Config{}, server{take: bucket(10, steady(rate)), retry: asks})
		r.callers = 32
		r.until(900)
		if g := float64(len(r.granted)); g < .8*rate*900 {
			t.Errorf("of %v/s %.0f %% were granted in 15 minutes, with %d blockages", rate, 100*g/rate/900, r.controller.blocked)
		}
	}
}
