package adaptive

import "time"

// A Refill is a finding about a bucket of the server from the remaining quota in its responses.
type Refill struct {
	Rate   float64 // at which it refills, in calls per second; 0: unknown
	Unsure float64 // by how much that may be wrong, as a share
	Debt   float64 // calls for which it has to refill before others may start
	Proven bool    // calls were throttled when nothing remained, and only then

	Full  bool // nothing was missing but the last call: it refills as fast as calls start, or faster
	Sinks bool // more calls start than it refills, and it will soon be empty
	Wrong bool // earlier responses have shown something that is not true
}

// A refill is the state that such findings have left.
//
// # What if responses show the rate before a call is throttled?
//
// A search finds the limit by a throttled call, which often costs a second, in which no call may start. Some servers say
// with each response the number of calls that remain. If a bucket is full again after each call, the pace is below its rate. If
// less and less remains, the pace is above it, and the difference is the rate: without a throttled call. So a search
// doubles twice as fast while the bucket is full, keeps its pace while the bucket empties, and then keeps to the rate. 300 calls
// to a server that accepts 50/s with a burst of 10 took 8.7 s, and take 7.3 s.
//
// A header may not be true. So it only changes a pace that there is already, by no more than a throttled call
// could. The first rate lowers the pace, but is left after a few seconds by trying more: either a call is throttled when
// nothing remains, or the rate was no limit. In that case the search goes on where it was.
type refill struct {
	before float64 // the pace before the first rate of a row
}

// mostUnproven is the share by which a rate that no throttled call has proven may be too low. With less the gate would
// keep to it for minutes.
const mostUnproven = .5

// mostRaise bounds the factor by which one response raises the pace.
const mostRaise = 2

// mostLower is the same for lowering, as in an estimate from a throttled call.
const mostLower = 4

// Refilled notes r, which is known at now. It reports whether a belief has changed.
func (c *Controller) Refilled(now time.Duration, r Refill) (changed bool) {
	if !c.began || c.blockage.on || c.crowd.hold > 0 || c.sharing.peers > 1 || c.phase != Searching && c.phase != Tracking {
		return false
	}
	c.at = now.Seconds()
	switch {
	case r.Wrong:
		return c.refill.undo(c)
	case c.trial.on || c.chance.testing: // the pace is not what is believed
	case r.Rate > 0:
		return c.refill.measured(c, r)
	case c.phase == Tracking:
	case r.Sinks:
		c.Doubted()
	case r.Full && !c.cfg.Costly && c.saturated(c.at):
		c.pace.search(c)
	}
	return false
}

// measured notes the rate of r.
func (f *refill) measured(c *Controller, r Refill) (changed bool) {
	p, rate := &c.pace, r.Rate*c.meanCost
	switch {
	case rate < p.now:
		if c.why != Refills {
			f.before = p.now
		}
		rate = max(rate, p.now/mostLower)
		c.outdate() // calls that are out have started at the pace that was too high, and use up what is left
		c.openAt(max(c.next, c.at+r.Debt/r.Rate))
	case c.phase != Tracking || c.within(rate*(1-r.Unsure)) <= p.rate:
		return false
	default:
		rate = min(rate, mostRaise*p.now)
	}
	if p.unsure = r.Unsure; !r.Proven {
		p.unsure = max(p.unsure, mostUnproven)
	}
	p.agree(p.rate, rate)
	c.track(Tracking, rate, Refills)
	return true
}

// undo forgets a rate that was no limit.
func (f *refill) undo(c *Controller) (changed bool) {
	if c.phase != Tracking || c.why != Refills {
		return false
	}
	c.enter(Searching, c.at, Refills)
	c.pace.now = c.within(max(c.pace.now, f.before))
	return true
}
