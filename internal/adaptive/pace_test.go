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

// A pace that doubles with every 8 calls does so no faster than a rejection arrives.
func TestPace_DoublesWithinARejection(t *testing.T) {
	for _, c := range []struct{ refusal, least, most float64 }{
		{.5, 20, 30},
		{.1, 60, 200},
		{.01, 300, 1e9},
	} {
		k := New(Config{})
		k.refusal, k.meanCost = c.refusal, 1
		now := 10.
		for at, calls := 0., 0.; at < 1.2; calls++ {
			now = k.pace.doubling(k, 10, calls, 8)
			at += 1 / now
		}
		if now < c.least || now > c.most {
			t.Errorf("after 1.2 s it is %.4g, want %v to %v if a rejection takes %v s", now, c.least, c.most, c.refusal)
		}
	}
}

// A rate that estimate after estimate confirms is exceeded seldom, however far above it the pace is when a full bucket
// is empty: each time costs a second.
func TestPace_AConfirmedRateIsExceededSeldom(t *testing.T) {
	r := newRun(t, Config{}, server{take: bucket(5, steady(10)), retry: func(float64) time.Duration { return time.Second }})
	r.callers = 32
	r.until(300)
	if g := float64(len(r.granted)); g < .95*3000 || r.controller.blocked > 18 {
		t.Errorf("%.1f %% of the limit with %d blockages", g/30, r.controller.blocked)
	}
}

// A search stands still for two calls after an answer that may be a rejection: the pace does not rise where half of the
// calls get one, and hardly later where 1 in 20 does.
func TestPace_SearchStandsStillInDoubt(t *testing.T) {
	paceAfter := func(calls, each int) float64 {
		k := New(Config{})
		k.meanCost, k.refusal = 1, .001
		for i := range calls {
			if each > 0 && i%each == 0 {
				k.Doubted()
			}
			k.pace.search(k)
		}
		return k.pace.now
	}
	if got, want := paceAfter(40, 2), paceAfter(0, 0); got != want {
		t.Errorf("half of the calls in doubt: %v after 40 calls, want %v", got, want)
	}
	if got, least := paceAfter(40, 20), paceAfter(36, 0); got != least {
		t.Errorf("1 of 20 in doubt: %v after 40 calls, want %v, that after 36", got, least)
	}
	k := New(Config{Unlimited: true})
	if k.Doubted(); k.pace.doubts != 0 {
		t.Error("there is no search to stand still")
	}
}
