package adaptive

import (
	"math"
	"time"
)

// # When may the next call start?
//
// By the pace, the calls start one after the other, cost ÷ pace apart: each takes its slot,
// and the next one is behind it. A blockage, a pause and a phase without a pace put the slot
// elsewhere. Only this file writes it.

// take takes the slot for a call of cost that starts at t.
func (c *Controller) take(t, cost float64) {
	c.next = max(c.next, t-catchUp-c.late) + cost/c.bounded()
	c.late = 0
}

// catchUp is the lateness, in seconds, that the following calls make up for.
const catchUp = .001

// Late records that the call that starts next was woken so late. The calls after it catch up.
func (c *Controller) Late(by time.Duration) { c.late = by.Seconds() }

// charge corrects the slot by delta, which a call took more than its slot was for.
func (c *Controller) charge(t, delta float64) {
	if c.paced() && !c.blockage.on {
		c.next = max(t, c.next+delta/c.bounded())
	}
}

// openAt puts the slot of the next call at t.
func (c *Controller) openAt(t float64) { c.next = t }

// stretch moves the slot after the pace was before, so that it is as far behind the last call as
// the new pace says.
func (c *Controller) stretch(t, before float64) {
	if c.started > 0 && c.next > t && c.paced() && !c.blockage.on {
		last := c.recent[(c.started-1)%uint64(len(c.recent))]
		c.next = max(t, last+(c.next-last)*before/c.bounded())
	}
}

// rescale moves the slot after the part of this process has grown by f, and the pace was before. A
// pause that the server has asked for is not part of it: others also wait for its end.
func (c *Controller) rescale(t, f, before float64) {
	from := max(t, c.until)
	switch after := c.bounded(); {
	case c.next <= from:
	case c.blockage.on && c.blockage.polls > 0: // it is when to ask again
	case c.blockage.on: // likewise, and others wait for it
		s := &c.sharing
		c.next = from + (c.next-from)*s.asking(s.part/f)/s.asking(s.part)
	case !c.paced():
		c.next = from + (c.next-from)/f
	default:
		c.next = from + (c.next-from)/f*before/after
	}
}

// slot returns the instant at which the pace, and the window, let the next call start, not
// before now.
func (c *Controller) slot(now time.Duration) time.Duration {
	opens := c.next
	if c.phase == Windowed && !c.blockage.on {
		opens = max(opens, c.window.opens(c.meanCost))
	}
	return max(now, instant(opens))
}

// instant rounds up. Instants are compared as durations, because a float may be a little
// less than the instant that was made of it.
func instant(t float64) time.Duration {
	if t >= Never.Seconds() {
		return Never
	}
	return time.Duration(math.Ceil(t * 1e9))
}
