package adaptive

import (
	"math"
	"time"
)

// A gate needs no controller while nothing is rejected, and calls cost less without one. So it
// makes one at the first rejections. This file has what the controller is given then.

// Past is what a gate knows of the calls that started before it had a controller.
type Past struct {
	Since  time.Duration // when the first of them started
	Calls  float64       // how many started,
	Cost   float64       // and what they cost
	Answer time.Duration // mean time until a reply; 0: unknown
	Rate   float64       // a pace that they kept to, per second; 0: none
	Good   time.Duration // for how long before Since others had been accepted
	Other  bool          // they took amounts of another unit, too
}

// TakeOver tells a new controller of the calls before it. If they kept to a rate, the controller
// begins there: somebody who knows the limit has set it.
func (c *Controller) TakeOver(now time.Duration, p Past) {
	t := now.Seconds()
	c.at = t
	meanCost, cost := c.sharing.whole(1), c.sharing.whole(p.Cost)
	if p.Calls > 0 && p.Cost > 0 {
		meanCost = cost / p.Calls
	}
	c.begin(min(t, p.Since.Seconds()), meanCost)
	c.openAt(t)
	c.service.begin -= p.Good.Seconds()
	c.ledger.sent, c.past = cost, cost
	c.answer, c.other = p.Answer.Seconds(), p.Other
	if p.Rate > 0 {
		c.assume(Tracking, c.sharing.whole(p.Rate))
	}
}

// Before returns the Call of one of the calls before TakeOver, which started at since with
// so many others out.
func (c *Controller) Before(since time.Duration, cost float64, inFlight int) Call {
	out := float64(inFlight) * c.meanCost
	cost = c.sharing.whole(cost)
	return Call{
		sent: since.Seconds(), cost: cost, before: max(0, c.past-out-cost),
		pace: c.pace.now, inFlight: int32(min(inFlight, math.MaxInt32-1)) + 1,
		saturated: c.paced(),
	}
}
