package adaptive

import "math"

// costly keeps bounds of the rate while rejections cost much: a pause of a minute, a ban,
// a window that is used up. The rate is then found by bisection, and the pace rises only
// when what was perhaps missed equals what a rejection costs (ski rental).
type costly struct {
	price     float64 // what a blockage costs, in seconds
	low, high float64 // bounds of the rate; 0: none
	hold      float64 // calls before the pace rises
	start     point   // the end of the last costly blockage
	burst     float64 // what the bucket of the server holds; 0: unknown
	cheaps    int
	vain      int     // cycles in a row in which hardly anything was accepted
	slow      bool    // the next look is a slow one
	looking   bool    // the calls have paid for another look
	measured  bool    // the last blockage has shown the rate itself, so bisection adds little
	credit    float64 // seconds of learning that pay for the first look
	before    costlyCycle
}

// A costlyCycle is what was accepted between two costly blockages.
type costlyCycle struct {
	granted float64
	active  float64 // rate without the time that was blocked
	took    float64 // with that time
	least   float64 // until the last rejection
}

// lookShare is the share of the time that another look at the bounds may cost, but for the first one.
const lookShare = .05

// creditLeast: only if calls were blocked for longer, in seconds, the time in which the rate was learned counts as paid for the
// first look, up to half of what that needs. After less a look comes within a quarter of an hour anyway. The time does not
// count if the server does not say how long to wait, as it may be a ban, nor in a group, whose processes look together.
const creditLeast = 40.

// unknownShare is the same in a group that knows neither the rate nor the burst. Two looks show both, and
// until then a third of the limit may be unused.
const unknownShare = .2

// foundShare is the share of a rate that two cycles have shown.
const foundShare = .1

// missed is the share of what a rejection costs that may be missed before the pace rises between the bounds, if the server
// grants the upper one: hold does not grow beyond that. To wait for as many calls as the cycle before had is too long where a
// rejection is cheap: a server of 20/s that rejected calls for 1.7 s got 12/s for a quarter of a minute.
const missed = .5

// pace is the pace while Bounding: constant for hold calls, then slowly up to the upper
// bound. When the calls have paid for another rejection, it doubles: bounds grow old, or a server
// that has become faster was used at its old rate for ever.
func (k *costly) pace(c *Controller) float64 {
	p := &c.pace
	now, paid := p.rate, k.paid(c)
	if past := min(p.calls, paid) - k.hold; past > 0 && !k.settled() {
		if k.far() {
			now *= math.Exp2(past / k.double())
		} else {
			now *= math.Pow(1.1, past/max(100, k.hold))
		}
		now = min(.97*k.high, now)
	}
	calls := p.rate / c.meanCost // per second
	late := max(0, p.calls-paid)
	double := max(lookLeast, min(lookMost, k.price*calls))
	if p.returns() { // at a low pace as many calls take minutes
		double = max(1, min(lookLeast, p.patience*calls/2))
	}
	if k.slow {
		double *= slowLook
	}
	return p.doubling(c, now, late, double)
}

// far reports whether the bounds are so far apart that the pace doubles up to the upper one.
func (k *costly) far() bool { return k.high > 4*k.low }

// double returns the calls with which it does.
func (k *costly) double() float64 { return max(48, k.hold/2) }

// A first burst that a long silence followed may have used up a window. Then as many calls are accepted in the next one,
// and they should not come late: of 120 a minute, at 5/s, the last 100 came 20 s after it had begun. So they are
// sent within windowUse. A bucket is soon found to accept less.
const (
	windowUse  = 8.  // seconds
	longWindow = 20. // seconds of silence: a shorter window is soon found anyway
	windowMost = 40. // calls per second at most: what was granted of a larger burst is in part what flowed in
)

// paid returns the calls that pay for another look at the bounds. A pace that doubles anyway comes
// to the upper one first.
func (k *costly) paid(c *Controller) float64 {
	p := &c.pace
	calls := p.rate / c.meanCost // per second
	paid := k.price * calls / lookShare
	paid -= min(k.credit*calls, paid/2)
	if c.sharing.peers > 1 && k.burst == 0 && !k.settled() {
		paid = k.price * calls / unknownShare
	}
	if c.cfg.Costly {
		paid = max(patientLooks*paid, k.hold)
	}
	if k.far() {
		paid = max(paid, k.hold+k.double()*math.Log2(k.high/p.rate))
	}
	return min(paid, p.patience*calls)
}

// The pace of a look doubles with as many calls as a rejection costs, but between these. With fewer
// the pace that is rejected is far above the rate; more take longer than they gain.
const (
	lookLeast = 32
	lookMost  = 128

	// In a group every other look is slower. Two looks of one length fit a larger burst and a lower rate
	// as well: with a burst of 46 instead of 20, by blurred counts, five processes kept to 16/s of 20.
	slowLook = 3.

	lookMargin = .99 // of the rate that a look has shown: it is known to a hundredth
	faster     = 1.1 // times the rate are more than what looks differ by
)

// look notes that another look begins if the calls have paid for it. The bucket of the server is
// full then.
func (k *costly) look(c *Controller, t float64) {
	if !k.looking && c.pace.calls > k.paid(c) {
		k.looking = true
		if c.sharing.peers > 1 {
			c.cycles.look(c.ledger.now(t))
		} else {
			c.cycles.full(c.ledger.now(t))
		}
	}
}

// settled reports whether another rejection costs more than bisection could show: the bounds are near, or the rate was
// measured. A look shows as much, and also that the server has become faster.
func (k *costly) settled() bool { return k.high <= 1.12*k.low || k.measured && !k.far() }

// end handles the end of a costly blockage.
func (k *costly) end(c *Controller, call Call, blocked float64) {
	b := &c.blockage
	k.price = max(blocked, .7*k.price)
	k.cheaps = 0
	look := k.looking
	defer func() {
		if look || c.sharing.peers > 1 {
			c.service.measured(c)
		}
		c.service.paid(c, c.at)
	}()
	before, now := k.before, k.cycle(c, call)
	got, active, mean := now.granted, now.active, now.granted/now.took
	k.start = c.ledger.point(call)
	c.window.bracket(b, call)
	k.before = now
	k.learned(c, now.took, blocked)
	if c.window.fits(c, before, now) {
		k.leave(c)
		return
	}
	switch {
	case k.low == 0 || c.phase != Bounding:
		k.low, k.high, k.measured = mean, b.pace, false
		k.hold = 1.3*got/c.meanCost + c.sharing.own(8)
		rate := active / 2
		if b.crowd { // active is how fast callers came, not how fast the server is
			k.high = max(active, 2*mean)
			most := c.cautious()
			if blocked > longWindow {
				most = max(most, min(got/windowUse, windowMost*c.meanCost))
			}
			rate = min(rate, most)
		} else { // what was granted in less than a second may all be a burst
			rate = min(rate, max(got/2, c.cautious()/4))
		}
		if got < c.meanCost { // nothing was granted, so it says nothing
			rate = min(b.pace/2, c.cautious()/4)
		}
		if c.cfg.Costly && !b.crowd {
			rate = k.patiently(c, got, mean, blocked)
		}
		c.track(Bounding, max(rate, .98*mean), Costly)
	default:
		k.narrow(c, got, mean)
	}
}

// learned counts the time of a cycle as paid for the first look, if it has taught bounds of the rate, see creditLeast.
func (k *costly) learned(c *Controller, took, blocked float64) {
	if k.low == 0 || c.phase != Bounding {
		k.credit, k.looking, took = 0, false, blocked // what came before was no learning
	}
	if c.blockage.told && blocked > creditLeast && !k.measured && c.sharing.peers <= 1 {
		k.credit += took
	}
}

// cycle returns what was accepted between the last costly rejection period and the one that call has ended.
func (k *costly) cycle(c *Controller, call Call) costlyCycle {
	blocked := c.blockage.from.at
	got := max(0, c.ledger.granted(call)-k.start.granted)
	return costlyCycle{
		granted: got,
		active:  got / max(1e-3, blocked-k.start.at),
		took:    max(1e-3, call.sent-k.start.at),
		least:   max(blocked, c.blockage.last) - k.start.at,
	}
}

// windowed handles the end of a rejection period that was cheaper than the last one, and reports whether as much was accepted
// before both, as in a window. A rate that is near that of a window uses it up shortly before it ends. If it is none, the
// cycle goes on.
func (k *costly) windowed(c *Controller, call Call) bool {
	before, now := c.window, k.cycle(c, call)
	c.window.bracket(&c.blockage, call)
	if !c.window.fits(c, k.before, now) {
		c.window = before
		return false
	}
	k.start, k.before = c.ledger.point(call), now
	k.leave(c)
	return true
}

// soon reports whether the pace rose in the last cycle after fewer calls than the cycle before had been granted, see missed.
// Then a cycle may be granted as many again because the pace rose, and not because it is a window.
func (k *costly) soon(c *Controller, before costlyCycle) bool {
	return c.phase == Bounding && c.blockage.held > k.hold && k.hold < 1.3*before.granted/c.meanCost
}

// leave forgets the bounds: it is a window.
func (k *costly) leave(c *Controller) {
	k.low, k.high, k.price, k.credit, c.blockage.quiet = 0, 0, 0, 0, 0
	k.measured, k.looking = false, false
}

// mostVain is after how many cycles in which hardly anything was accepted the lower bound is no longer believed. Each
// costs a ban, and by a third less after every third of them a limit that had fallen to a fifth was found in ten minutes.
const mostVain = 2

// narrow moves a bound after a blockage that was costly again.
func (k *costly) narrow(c *Controller, got, mean float64) {
	b := &c.blockage
	if k.looking {
		k.looked(c)
		return
	}
	if k.vain++; got >= few*c.meanCost {
		k.vain = 0
	}
	if b.held > k.hold { // the rate was accepted for long before the pace rose
		k.low = max(k.low, b.rate)
		k.high = max(1.05*k.low, min(k.high, b.pace))
	} else {
		k.high = b.pace
		if k.low > .97*k.high {
			k.low = max(mean, .7*k.high)
		}
		if k.vain >= mostVain {
			k.low = max(mean, min(k.low, k.high/2))
		}
	}
	hold := k.hold
	k.hold = max(hold, 1.3*got/c.meanCost+c.sharing.own(8))
	rate := .98 * k.low
	k.measured = false
	if f := c.cycles.found; f.good() && f.rate > k.low && f.rate < k.high {
		// It may be wrong, because the server counts in another way: the bounds stay.
		k.measured = true
		rate, k.burst = f.rate*(1-f.error/2), c.cycles.burst(f.rate)
		k.hold = max(k.hold, k.price*rate/c.meanCost/foundShare)
	} else if x := c.crowd.explains(c, k.high); b.told && x.rate > k.low*(1-x.error) {
		k.measured = true
		rate, k.burst = max(rate, x.rate*(1-x.error/2)), c.cycles.burst(x.rate)
		k.hold = max(k.hold, k.price*rate/c.meanCost/foundShare)
	} else if !k.settled() {
		rate = max(.4*k.high, math.Pow(k.low, .6)*math.Pow(k.high, .4))
		if !c.cfg.Costly {
			k.hold = min(k.hold, max(hold, missed*k.price*rate/c.meanCost/(k.high/rate-1)))
		}
	}
	if c.sharing.peers > 1 {
		rate = min(rate, belowRefuted*b.pace)
	}
	c.track(Bounding, rate, Costly)
}

// looked moves the bounds after another look. What was accepted in it is a measurement; if it
// confirms the rate that has been accepted since the last look, that stays.
func (k *costly) looked(c *Controller) {
	b := &c.blockage
	k.looking, k.credit = false, 0
	k.low = max(k.low, b.rate)
	var rate float64
	if c.sharing.peers > 1 {
		rate = k.lookedTogether(c)
	} else {
		if k.burst == 0 {
			k.burst = c.cycles.past[c.cycles.next].burst(b.rate)
		}
		rate = c.cycles.faster(k.burst, b.pace)
	}
	if rate > faster*b.rate { // the server has become faster, and cycles before are of another time
		c.cycles.past[c.cycles.next] = cycle{}
		k.low, k.high, k.measured = max(k.low, rate/2), b.pace, true
		rate *= lookMargin
		k.hold = max(lookLeast, k.price*rate/c.meanCost/foundShare)
	} else {
		k.high = max(1.05*k.low, min(k.high, b.pace))
		rate = max(b.rate, min(k.high, lookMargin*rate))
	}
	c.track(Bounding, rate, Costly)
}

// lookedTogether returns the rate that a look of a group has shown. By itself, a look is explained by a lower
// rate and a larger burst as well, so it is compared with the one before, which was faster or slower.
func (k *costly) lookedTogether(c *Controller) float64 {
	b := &c.blockage
	k.slow = !k.slow
	both, f := c.cycles.both(b.rate, b.pace, c.meanCost), c.cycles.found
	switch {
	case both > 0:
		k.burst = c.cycles.burst(both)
		return both
	case f.good():
		k.burst = c.cycles.burst(f.rate)
		return f.rate * (1 - f.error/2)
	case k.burst > 0:
		// The rate is accepted, so no bucket holds more than it needs at that.
		k.burst = min(k.burst, c.cycles.burst(b.rate)+c.meanCost)
		return c.cycles.faster(k.burst, b.pace)
	}
	switch before := &c.cycles.past[c.cycles.next]; {
	case before.n == 0:
		return b.rate
	case before.look > 0: // two looks confirm the rate
		k.burst = c.cycles.burst(b.rate)
		return b.rate
	default:
		return c.cycles.faster(before.burst(b.rate), b.pace)
	}
}

// belowRefuted is the highest rate of a group, as a share of a pace that was rejected. The calls of others are
// known to about a hundredth, and a rate that is too high by half of that soon ends in a ban again.
const belowRefuted = .99

// restore returns to earlier bounds, after call was accepted.
func (k *costly) restore(c *Controller, bounds costly, call Call) {
	*k = bounds
	k.start, k.looking, k.credit = c.ledger.point(call), false, 0
	c.track(Bounding, .98*k.low, Measured)
}

// cheap handles the end of a blockage that was not costly. After six of them rejections
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
