package adaptive

import "math"

// floor is the share of the rate granted of late below which no refusal takes the rate. A
// server that counts the calls of the last minute repeats the gaps of that minute: they
// look like a low rate.
const floor = .4

// leastPause is how many seconds a refusal must cost for cycles to be compared. Without
// pauses the bounds are near each other, and chance is most of the difference.
const leastPause = .2

// estimate finds the rate from a refusal. The ledger has a lower bound, the pace of the
// refused call is an upper one.
func (r *Rule) estimate(c Call, at point) {
	p := &r.pace
	low, ok := r.ledger.slope(at, r.sharing.enough()*r.unit, r.unit)
	if !ok {
		low = r.ledger.first(at)
	}
	top, old := r.sharing.top(c.pace, low), p.rate
	searched := !r.paced() || r.phase == Searching
	switch {
	case !r.paced():
		top = math.Max(4*low, r.cfg.Start*r.unit)
	case r.phase == Tracking:
		top = math.Min(top, 4*math.Max(old, r.cfg.Start*r.unit))
	}
	p.refuted = top
	p.unsure = math.Max(0, math.Min(.25, .5*(1-low/top)))
	var rate float64
	switch {
	case searched:
		rate = math.Max(top/4, math.Min(.85*top, math.Max(low, p.earlier())))
	case r.expected():
		rate = math.Max(top/2, math.Min(top, (low+top)/2))
		if r.shown(low) {
			p.shows++
			rate = math.Min(rate, 1.01*math.Max(p.shown, low))
		}
	default: // the server has become slower: the bounds are far apart
		rate = math.Max(top/2, math.Min(top, math.Sqrt(low*top)))
		p.shown, p.shows = rate, 0
	}
	if f := r.cycles.found; f.good() && r.costly.price > leastPause {
		rate = math.Max(top/4, math.Min(top, f.rate*(1-f.error/2)))
		p.unsure = math.Min(p.unsure, f.error)
	}
	rate = math.Max(rate, math.Min(top, floor*r.ledger.lately(at.at)))
	p.agree(old, rate)
	switch {
	case searched:
		r.phase = Tracking
		p.learn(r, rate, FirstRefusal)
	case r.phase == Tracking:
		p.learn(r, rate, Measured)
	case r.phase == Bounding:
		if held := .98 * r.costly.low; rate < held {
			rate = math.Min(old, held) // it was granted for long
		}
		p.learn(r, rate, Measured)
	}
}

// shown reports whether a refusal, where it was to be expected, confirms a rate that an early
// one has shown. To try the middle of the bounds once more would end in another early one, and
// each costs a pause. Now and then it is tried: the server may have become a little faster.
func (r *Rule) shown(low float64) bool {
	p := &r.pace
	return r.costly.price > leastPause && p.shows < 2 && low > .9*p.shown && low < 1.06*p.shown
}

// refine corrects an estimate by the blockage that followed. Until c was granted, the
// server granted all that it could.
func (r *Rule) refine(c Call) {
	if r.sharing.peers > 1 {
		return // what the others were granted in so short a time is not known
	}
	b, p := &r.blockage, &r.pace
	low, high := r.ledger.blocked(r.unit, .25*r.refusal)
	if p.refusals < 3 {
		high = math.Inf(1) // two refusals may be chance
	}
	since := r.ledger.previous()
	if c.sent > since.at { // a cycle of any limiter grants its rate at most
		cycle := (r.ledger.granted(c) - since.granted) / (c.sent - since.at)
		high = math.Max(high, math.Min(cycle, b.pace))
	}
	rate := math.Max(math.Min(p.rate, high), math.Min(low, b.pace))
	rate = math.Max(rate, math.Min(b.pace, floor*r.ledger.lately(c.sent)))
	if rate != p.rate {
		p.learn(r, rate, Measured)
	}
}
