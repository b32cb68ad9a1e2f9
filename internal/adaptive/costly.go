package adaptive

import "math"

// costly keeps bounds of the rate while refusals cost much: a pause of a minute, a ban,
// a window that is used up. The rate is then found by bisection, and the pace rises only
// when what was perhaps missed equals what a refusal costs (ski rental).
type costly struct {
	price     float64 // what a blockage costs, in seconds
	low, high float64 // bounds of the rate; 0: none
	hold      float64 // calls before the pace rises
	start     point   // the end of the last costly blockage
	cheaps    int
	before    costlyCycle
}

// A costlyCycle is what was granted between two costly blockages.
type costlyCycle struct {
	granted float64
	active  float64 // rate without the time that was blocked
	took    float64 // with that time
}

// oldShare is the share of the time that another look at settled bounds may cost.
const oldShare = .05

// foundShare is that of a rate that two cycles have shown.
const foundShare = .1

// pace is the pace while Bounding: constant for hold calls, then slowly up to the upper
// bound.
func (k *costly) pace(p *pace, meanCost float64) float64 {
	calls := p.rate / meanCost // per second
	if k.settled() {
		// Bounds grow old: without another look, a server that has become faster was used at
		// its old rate for ever.
		late := p.calls - math.Max(k.hold, k.price*calls/oldShare)
		return p.rate * math.Exp2(math.Min(40, math.Max(0, late)/math.Max(32, 4*calls)))
	}
	if p.calls <= k.hold {
		return p.rate
	}
	var factor float64
	if k.high > 4*k.low {
		factor = math.Exp2((p.calls - k.hold) / math.Max(48, k.hold/2))
	} else {
		factor = math.Pow(1.1, (p.calls-k.hold)/math.Max(100, k.hold))
	}
	return math.Min(.97*k.high, p.rate*factor)
}

// settled reports whether the bounds are so near that another refusal costs more than
// it could show.
func (k *costly) settled() bool { return k.high <= 1.12*k.low }

// end handles the end of a costly blockage.
func (k *costly) end(c *Controller, call Call, blocked float64) {
	b := &c.blockage
	k.price = math.Max(blocked, .7*k.price)
	k.cheaps = 0
	got := math.Max(0, c.ledger.granted(call)-k.start.granted)
	active := got / math.Max(1e-3, b.from.at-k.start.at)
	cycle := math.Max(1e-3, call.sent-k.start.at)
	mean := got / cycle
	k.start = c.ledger.point(call)
	c.window.bracket(b, call)
	before := k.before
	k.before = costlyCycle{got, active, cycle}
	if c.window.fits(c, before, k.before) {
		k.low, k.high, k.price, b.quiet = 0, 0, 0, 0
		return
	}
	switch {
	case k.low == 0 || c.phase != Bounding:
		k.low, k.high = mean, b.pace
		k.hold = 1.3*got/c.meanCost + 8
		rate := active / 2
		if b.crowd { // active is how fast callers came, not how fast the server is
			k.high = math.Max(active, 2*mean)
			rate = math.Min(rate, c.cfg.Start*c.meanCost)
		}
		if c.cfg.Costly && !b.crowd {
			rate = k.patiently(c, got, mean, blocked)
		}
		c.track(Bounding, math.Max(rate, .98*mean), Costly)
	default:
		k.narrow(c, got, mean, blocked)
	}
}

// narrow moves a bound after a blockage that was costly again.
func (k *costly) narrow(c *Controller, got, mean, blocked float64) {
	b := &c.blockage
	if b.held > k.hold { // the rate was granted for long before the pace rose
		k.low = math.Max(k.low, b.rate)
		k.high = math.Max(1.05*k.low, math.Min(k.high, b.pace))
	} else {
		k.high = b.pace
		if k.low > .97*k.high {
			k.low = math.Max(mean, .7*k.high)
		}
	}
	k.hold = math.Max(k.hold, 1.3*got/c.meanCost+8)
	rate := .98 * k.low
	if f := c.cycles.found; f.good() && f.rate > k.low && f.rate < k.high {
		// It may be wrong, because the server counts in another way: the bounds stay.
		rate = f.rate * (1 - f.error/2)
		k.hold = math.Max(k.hold, k.price*rate/c.meanCost/foundShare)
	} else if !k.settled() {
		rate = math.Max(.4*k.high, math.Pow(k.low, .6)*math.Pow(k.high, .4))
		if k.high < 4*k.low {
			k.hold = math.Max(k.hold, blocked*rate/c.meanCost/(math.Pow(k.high/k.low, .1)-1))
		}
	}
	c.track(Bounding, rate, Costly)
}

// cheap handles the end of a blockage that was not costly. After six of them refusals
// are not costly any more.
func (k *costly) cheap(c *Controller, call Call) {
	if c.phase != Bounding {
		return
	}
	if k.cheaps++; k.cheaps >= 6 {
		*k = costly{start: c.ledger.point(call)}
		c.blockage.quiet = 0
		c.track(Tracking, c.pace.rate, Measured)
	}
}
