package adaptive

import (
	"testing"
	"time"
)

const second = time.Second

// paced returns a controller that believes in 10 calls per second and has let one leave at 0.
func paced(t *testing.T) *Controller {
	t.Helper()
	c := New(Config{Max: 10})
	c.TakeOver(0, Past{Rate: 10})
	if at := c.Demand(0, 0); at > 0 {
		t.Fatalf("the first call leaves at %v", at)
	}
	c.Started(0, 1, 0)
	return c
}

// A gate with a rate begins to learn at that rate, a little below it.
func TestController_TakeOver_AtARate(t *testing.T) {
	c := paced(t)
	b := c.Belief()
	if b.Phase != Tracking || b.Rate != 10 || b.Pace > 10 || b.Pace < 9.6 || c.Changes() != 0 {
		t.Errorf("%+v", b)
	}
}

// What left before is in the ledger: the first refusals tell how much was granted.
func TestController_TakeOver_CountsThePast(t *testing.T) {
	c := New(Config{Unlimited: true})
	c.TakeOver(20*second, Past{Since: 0, Calls: 400, Cost: 400, Answer: second})
	call := c.Before(20*second, 1, 0)
	c.Ended(20*second, call, Reply{Outcome: Refused})
	if b := c.Belief(); b.Pace < 5 || b.Pace > 20 || !b.Blocked {
		t.Errorf("20 calls per second were granted: %+v", b)
	}
}

// A call that left before there was a controller may be the first one that it hears of. The cost of a call
// was taken for 0, and the pace stayed as it was for ever.
func TestController_FirstCallIsThrottledAndWasBefore(t *testing.T) {
	c := New(Config{})
	c.Ended(second, c.Before(0, 1, 0), Reply{Outcome: Refused})
	now := second
	for range 1000 {
		for {
			at := c.Demand(now, 0)
			if at <= now {
				break
			}
			now = at
		}
		call := c.Started(now, 1, 0)
		c.Ended(now, call, Reply{Outcome: Granted})
	}
	if now > 40*second {
		t.Errorf("1,000 accepted calls took %v: %+v", now, c.Belief())
	}
}
