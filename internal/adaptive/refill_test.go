package adaptive

import (
	"math"
	"testing"
	"time"
)

// searching returns a controller that searches at that pace.
func searching(pace float64) *Controller {
	c := New(Config{})
	c.Started(0, 1, 0)
	c.refusal, c.pace.now = .01, pace
	return c
}

// A search doubles with every 8 calls, and with every 4 while the bucket is full. It stands still for two calls while that
// gets empty. Where throttled calls are expensive, and where no caller waits for the pace, it is not hastened: after five
// minutes of one call per second, 93 of 300 calls were throttled at 50/s.
func TestController_Refilled_Search(t *testing.T) {
	for _, tc := range []struct {
		name   string
		r      Refill
		costly bool
		waits  bool    // a caller does
		want   float64 // after 8 calls
	}{
		{"nothing", Refill{}, false, true, 40},
		{"full", Refill{Full: true}, false, true, 80},
		{"full, idle", Refill{Full: true}, false, false, 40},
		{"sinks", Refill{Sinks: true}, false, true, 20},
		{"full, costly", Refill{Full: true}, true, true, 20 * math.Exp2(8./patientDouble)},
	} {
		c := searching(20)
		c.cfg.Costly, c.asked = tc.costly, tc.waits
		for range 8 {
			c.Refilled(second, tc.r)
			c.pace.search(c)
		}
		equal(t, tc.name, c.pace.now, tc.want)
		if c.Changes() != 0 {
			t.Errorf("%s: %d changes", tc.name, c.Changes())
		}
	}
}

// A rate below the pace ends a search, at a quarter of the pace at least, as a throttled call would. One above the pace
// raises a rate that is certainly lower, twofold at most, and no search.
func TestController_Refilled_Rate(t *testing.T) {
	for _, tc := range []struct {
		name    string
		c       *Controller
		r       Refill
		phase   Phase
		rate    float64
		unsure  float64
		changed bool
	}{
		{"lower", searching(100), Refill{Rate: 50, Unsure: .2, Proven: true}, Tracking, 50, .2, true},
		{"lower, not proven", searching(100), Refill{Rate: 50, Unsure: .2}, Tracking, 50, .5, true},
		{"far lower", searching(100), Refill{Rate: 5, Unsure: .2, Proven: true}, Tracking, 25, .2, true},
		{"higher than a search", searching(100), Refill{Rate: 150, Unsure: .1}, Searching, 0, 0, false},
		{"lower than tracked", tracking(100), Refill{Rate: 80, Unsure: .1, Proven: true}, Tracking, 80, .1, true},
		{"higher than tracked", tracking(100), Refill{Rate: 120, Unsure: .1, Proven: true}, Tracking, 120, .1, true},
		{"perhaps not higher", tracking(100), Refill{Rate: 120, Unsure: .2, Proven: true}, Tracking, 100, 0, false},
		{"far higher", tracking(100), Refill{Rate: 1000, Unsure: .1, Proven: true}, Tracking, 194, .1, true}, // twice the pace, 97
	} {
		before := tc.c.Changes()
		if changed := tc.c.Refilled(second, tc.r); changed != tc.changed || tc.c.Changes() > before != tc.changed {
			t.Errorf("%s: changed %v, %d changes, want %v", tc.name, changed, tc.c.Changes()-before, tc.changed)
		}
		if tc.c.phase != tc.phase || tc.changed && (tc.c.why != Refills || tc.c.changed != 1) {
			t.Errorf("%s: %v because of %v at %v", tc.name, tc.c.phase, tc.c.why, tc.c.changed)
		}
		equal(t, tc.name+": rate", tc.c.pace.rate, tc.rate)
		if tc.changed {
			equal(t, tc.name+": unsure", tc.c.pace.unsure, tc.unsure)
		}
	}
}

// Calls of a mean cost of 2 have half of the rate of their units.
func TestController_Refilled_Cost(t *testing.T) {
	c := searching(100)
	c.meanCost = 2
	c.Refilled(second, Refill{Rate: 40, Unsure: .2, Proven: true})
	equal(t, "rate", c.pace.rate, 80)
}

// What proves wrong is undone: the search goes on at the pace before the first rate, if nothing else was learned since.
func TestController_Refilled_Wrong(t *testing.T) {
	c := searching(100)
	if c.Refilled(second, Refill{Wrong: true}) {
		t.Error("there is nothing to be undone in a search")
	}
	c.Refilled(second, Refill{Rate: 50, Unsure: .2})
	c.Refilled(2*second, Refill{Rate: 30, Unsure: .2})
	if !c.Refilled(3*second, Refill{Wrong: true}) || c.phase != Searching || c.pace.now != 100 {
		t.Errorf("%v at %v, want a search at 100", c.phase, c.pace.now)
	}
	c.Refilled(4*second, Refill{Rate: 50, Unsure: .2})
	c.track(Tracking, 40, Measured)
	if c.Refilled(5*second, Refill{Wrong: true}) || c.phase != Tracking {
		t.Error("what a throttled call has shown is forgotten")
	}
}

// During a blockage, before a search has begun, in a group and in other phases responses change nothing.
func TestController_Refilled_NotNow(t *testing.T) {
	for name, change := range map[string]func(*Controller){
		"blocked":   func(c *Controller) { c.blockage.on = true },
		"crowd":     func(c *Controller) { c.crowd.hold = 1 },
		"group":     func(c *Controller) { c.sharing.peers = 2 },
		"unlimited": func(c *Controller) { c.phase = Unlimited },
		"bounding":  func(c *Controller) { c.phase = Bounding },
		"windowed":  func(c *Controller) { c.phase = Windowed },
		"capped":    func(c *Controller) { c.phase = Capped },
	} {
		c := searching(100)
		change(c)
		phase := c.phase
		for _, r := range []Refill{{Full: true}, {Sinks: true}, {Rate: 50, Unsure: .1, Proven: true}, {Wrong: true}} {
			if c.Refilled(second, r) || c.phase != phase || c.pace.now != 100 || c.pace.doubts > 0 {
				t.Errorf("%s: %+v: %v at %v", name, r, c.phase, c.pace.now)
			}
		}
	}
}

// Before its first call a controller does not know what a call costs. A rate was one of 0 then, and the pace no number.
func TestController_Refilled_BeforeFirstCall(t *testing.T) {
	c := New(Config{})
	if c.Refilled(second, Refill{Rate: 10, Unsure: .1}) || c.phase != Searching || c.pace.now != 20 {
		t.Errorf("%v at %v", c.phase, c.pace.now)
	}
}

// A bucket that refills faster than the configured rate teaches nothing new.
func TestController_Refilled_AboveMax(t *testing.T) {
	c := New(Config{Max: 30})
	c.Started(0, 1, 0)
	c.track(Tracking, 30, Measured)
	if c.Refilled(second, Refill{Rate: 50, Unsure: .1, Proven: true}) || c.why != Measured {
		t.Errorf("%v because of %v", c.pace.rate, c.why)
	}
}

// While a trial keeps the pace at twice the rate, a rate between them does not lower the pace: it had raised that to twice
// the new rate.
func TestController_Refilled_Trial(t *testing.T) {
	for name, begin := range map[string]func(*Controller){
		"whether the pace matters":      func(c *Controller) { c.trial.on = true },
		"whether rejections are chance": func(c *Controller) { c.chance.testing = true },
	} {
		c := tracking(100)
		begin(c)
		c.pace.set(c)
		before := c.pace.now
		if c.Refilled(second, Refill{Rate: .9 * before, Unsure: .1, Proven: true}) || c.pace.now != before || c.pace.rate != 100 {
			t.Errorf("%s: %v at %v, before at %v", name, c.pace.rate, c.pace.now, before)
		}
	}
}

// A call that started before the pace was lowered, and is throttled afterwards, says nothing of the new pace. It had led to
// 318 per second of 200.
func TestController_Refilled_Outdates(t *testing.T) {
	c := searching(600)
	before := c.Started(second, 1, 0)
	c.Refilled(second, Refill{Rate: 190, Unsure: .2})
	c.Ended(second+10*time.Millisecond, before, Reply{Outcome: Refused, RetryAfter: second})
	equal(t, "rate", c.pace.rate, 190)
	if at := c.Peek(second+10*time.Millisecond, 0); c.Blocked() || at != 2*second+10*time.Millisecond {
		t.Errorf("blocked %v, the next call starts at %v: the server asks for a second", c.Blocked(), at)
	}
}

// Calls in flight may need more than is left. The next one waits until that has come back.
func TestController_Refilled_Debt(t *testing.T) {
	c := searching(600)
	c.meanCost = 2
	c.Refilled(second, Refill{Rate: 100, Unsure: .2, Debt: 10})
	if at := c.Peek(second, 0); at != 1100*time.Millisecond {
		t.Errorf("the next call starts at %v", at)
	}
	c.openAt(5)
	if c.Refilled(second, Refill{Rate: 90, Unsure: .2, Debt: 10}); c.Peek(second, 0) != 5*second {
		t.Errorf("the next call starts at %v, earlier than before", c.Peek(second, 0))
	}
}
