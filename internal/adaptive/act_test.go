package adaptive

import (
	"testing"
	"time"
)

// A phase without a pace begins at the instant that it is given, and what calls that were out
// then bring is no news of it.
func TestController_Enter(t *testing.T) {
	c := paced(t)
	before := c.Started(second, 1, 0)
	c.openAt(10)
	changes := c.Changes()
	c.enter(Slowed, 1, Latency)
	if at := c.Peek(2*second, 1); at != 2*second {
		t.Errorf("the next call may start at %v, want immediately", at)
	}
	if b := c.Belief(); b.Phase != Slowed || b.Why != Latency || b.Changes != changes+1 {
		t.Errorf("%v because of %v, %d changes, want %d", b.Phase, b.Why, b.Changes, changes+1)
	}
	c.Ended(2*second, before, Reply{Outcome: Refused})
	if c.Blocked() {
		t.Error("the refusal of a call that started before blocks the calls")
	}
}

// A rate that is only assumed is no change of mind, and one that is tracked is.
func TestController_Assume(t *testing.T) {
	c := paced(t)
	before := c.Belief()
	c.assume(Tracking, 5)
	if b := c.Belief(); b.Rate != 5 || b.Changes != before.Changes || b.Why != before.Why {
		t.Errorf("assumed: %+v, before: %+v", b, before)
	}
	c.track(Tracking, 7, Measured)
	if b := c.Belief(); b.Rate != 7 || b.Changes != before.Changes+1 || b.Why != Measured {
		t.Errorf("tracked: %+v, before: %+v", b, before)
	}
}

// Lateness counts for one call.
func TestController_Late_Once(t *testing.T) {
	c := paced(t)
	c.Late(time.Minute)
	c.Started(second, 1, 0)
	c.Started(2*second, 1, 0)
	if at := c.Peek(2*second, 0); at < 2*second+50*time.Millisecond {
		t.Errorf("the next call may start at %v: it catches up with the lateness of another one", at)
	}
}
