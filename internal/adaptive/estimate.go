package adaptive

import "math"

// floor is the share of the rate accepted of late below which one rejection does not take the rate. A
// server that counts the calls of the last minute repeats the gaps of that minute: they
// look like a low rate.
const floor = .4

// least returns the lowest rate that a rejection at t may lead to.
//
// # May the rate have fallen so far?
//
// One rejection does not show that, see floor. But if what is accepted between two rejections is the same again and
// again, that is the rate, and not the gaps of a minute ago. When a limit fell from 100/s to 10/s, half of the
// calls were rejected for 20 s. At a server that rejects with a bare 503, package evidence then found that slower calls
// are rejected as often, and took the rejections for failures.
func (c *Controller) least(t float64) float64 {
	return floor * c.ledger.lately(t) * math.Pow(.7, max(0, float64(c.pace.lows-2)))
}

// sink notes that low was accepted since the rejection before.
func (p *pace) sink(low, least float64) {
	if low >= least || !(math.Abs(low/p.low-1) <= sameLow) {
		p.lows = 0
	} else {
		p.lows++
	}
	p.low = low
}

// sameLow is how far apart rates are that are the same.
const sameLow = .1

// leastPause is how many seconds a rejection must cost for cycles to be compared. Without
// pauses the bounds are near each other, and chance is most of the difference.
const leastPause = .2

// estimate finds the rate from a rejection. The ledger has a lower bound, the pace of the
// refused call is an upper one.
func (c *Controller) estimate(call Call, at point) {
	p := &c.pace
	low, ok := c.ledger.slope(at, c.sharing.enough()*c.meanCost, c.meanCost)
	if !ok {
		low = c.ledger.first(at)
	}
	top, old := c.sharing.top(call.pace, low), p.rate
	searched := !c.paced() || c.phase == Searching
	switch {
	case !c.paced():
		top = max(4*low, c.cautious())
	case c.phase == Tracking:
		top = min(top, 4*max(old, c.cautious()))
	}
	p.refuted = top
	p.unsure = max(0, min(.25, .5*(1-low/top)))
	var rate float64
	switch {
	case searched:
		rate = max(top/4, min(.85*top, max(low, p.earlier())))
	case c.expected():
		rate = max(top/2, min(top, (low+top)/2))
		if c.shown(low) {
			p.shows++
			rate = min(rate, 1.01*max(p.shown, low))
		}
	case c.nudged(low, top):
		rate = c.most() * math.Pow(1-nudge, float64(p.nudges))
		p.unsure, p.shown, p.shows = nudge, rate, 0
	default: // the server has become slower: the bounds are far apart
		rate = max(top/2, min(top, math.Sqrt(low*top)))
		p.shown, p.shows = rate, 0
	}
	if f := c.cycles.found; f.good() && c.costly.price > leastPause {
		rate = max(top/4, min(top, f.rate*(1-f.error/2)))
		p.unsure = min(p.unsure, f.error)
	}
	switch f := c.crowd.explains(c, top); {
	case c.blockage.told && f.rate > low:
		rate = f.rate
		p.unsure = min(p.unsure, f.error)
		p.refuted = min(p.refuted, (1+2*f.error)*rate)
	case !c.blockage.told && searched && f.rate > 0:
		rate = min(rate, max(low, f.rate))
	}
	if p.losing && math.Abs(low/p.low-1) <= sameLoss {
		rate = min(rate, max(low, p.low))
	}
	p.sink(low, c.least(at.at))
	rate = max(rate, min(top, c.least(at.at)))
	p.agree(old, rate)
	switch {
	case searched:
		c.track(Tracking, rate, FirstRefusal)
	case c.phase == Tracking:
		c.trial.lesson(c, low)
		c.track(Tracking, rate, Measured)
	case c.phase == Bounding:
		if held := .98 * c.costly.low; rate < held {
			rate = min(old, held) // it was accepted for long
		}
		c.track(Bounding, rate, Measured)
	}
}

// # Who is wrong, the configured rate or the clock?
//
// A limiter with windows of a second, told as 50/s, is asked for 51 calls in a window now and then: calls
// take unequal time to it. That costs a pause of a second, and the calls between two rejections look
// like a rate of 35/s. At 49/s there would be no rejection. So a rate that was configured is first thought
// to be right but for a little, twice: if it is wrong, that costs two rejections. If much less was
// granted, it is wrong.
const (
	nudge      = .02
	mostNudges = 2
	plainWrong = .4 // of the configured rate
)

// nudged reports whether a rejection at the pace top says only that the configured rate is a little too
// fast. low is the rate that was accepted.
func (c *Controller) nudged(low, top float64) bool {
	p := &c.pace
	if p.nudges >= mostNudges || c.phase != Tracking || top < .9*c.most() || low < plainWrong*c.most() {
		return false
	}
	p.nudges++
	return true
}

// shown reports whether a rejection, where it was to be expected, confirms a rate that an early
// one has shown. To try the middle of the bounds once more would end in another early one, and
// each costs a pause. Now and then it is tried: the server may have become a little faster.
func (c *Controller) shown(low float64) bool {
	p := &c.pace
	return c.costly.price > leastPause && p.shows < 2 && low > .9*p.shown && low < 1.06*p.shown
}

// rounded is by how many seconds a wait that a server asks for may be too long. Counted as silence, it had
// made 37/s of a window of 50 in a second, which asks for a second in whole seconds.
const rounded = 1

// refine corrects an estimate by the blockage that followed. Until c was accepted, the
// server accepted all that it could.
func (c *Controller) refine(call Call) {
	if c.sharing.peers > 1 {
		return // what the others were accepted in so short a time is not known
	}
	b, p := &c.blockage, &c.pace
	low, high := c.ledger.blocked(c.meanCost, .25*c.refusal)
	if p.refusals < 3 {
		high = math.Inf(1) // two rejections may be chance
	}
	since := c.ledger.previous()
	if call.sent > since.at { // a cycle of any limiter grants its rate at most
		cycle := (c.ledger.granted(call) - since.granted) / (call.sent - since.at)
		high = max(high, min(cycle, b.pace))
	}
	silent := b.lull(c, call)
	if silent == 0 && c.crowd.windowed(c) {
		silent = (b.last+call.sent)/2 - b.from.at
	}
	if silent > 0 {
		if b.told {
			silent = max(0, silent-rounded)
		}
		high = max(high, min(c.cycles.window(silent), b.pace))
	}
	rate := max(min(p.rate, high), min(low, b.pace))
	rate = max(rate, min(b.pace, c.least(call.sent)))
	if rate != p.rate {
		c.track(Tracking, rate, Measured)
	}
}
