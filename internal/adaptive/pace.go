package adaptive

import "math"

// A pace is how fast calls start, in cost per second, as a function of the number of
// saturated calls since the rate was set. It counts calls, not seconds, so that 0.5/s
// and 2,000/s behave alike.
//
//	calls   0 … span        just below the rate, rising to it
//	        span … +rise    just above it
//	        beyond          doubling: the server has become faster
type pace struct {
	now      float64
	rate     float64     // what the server is believed to grant
	refuted  float64     // the last pace that was rejected
	calls    float64     // saturated calls since rate was set
	quiet    float64     // calls to wait before looking for more; grows while estimates agree
	agreed   float64     // estimates in a row that are the same but for some per cent
	span     float64     // quiet, or more if rejections cost more
	rise     float64     // calls in which the pace rises a little above rate
	unsure   float64     // how far above rate the truth may be, as a share
	refusals float64     // since the last blockage began
	flood    float64     // mean of that per blockage, without the first one
	past     [16]float64 // the paces of the last saturated calls
	pasts    int
	patience float64 // seconds before what was accepted before a trouble is tried again
	losing   bool    // rejected calls may be lost, see Losing
	shown    float64 // the rate that the last early rejection has shown
	shows    int     // how often later ones have confirmed it
	low      float64 // accepted until the last rejection,
	lows     int     // which was the same so often, and less than least
	nudges   int     // how often the configured rate was thought to be a little too fast
	doubts   int     // saturated calls for which a search stands still
}

// # Where does a search begin?
//
// It doubles with every 8 calls, so from 5 calls per second any pace takes 2.3 s at least, and from 20 per second 0.6 s.
// A job of 300 calls that may have 50/s needs 6 s. It began at 5/s until servers that other people wrote were
// measured: there 20/s was worth 7 points of 100 in the first 25 s, 17 in such a job. A server that grants less
// rejects a call or two more. Where each rejection costs a ban, that is too much.
const (
	searchStart   = 20. // calls per second
	patientStart  = 5.
	cautiousStart = 5. // where a rejection has shown that nearly nothing is known
)

// cautious is a pace, in cost per second, that few servers reject.
func (c *Controller) cautious() float64 { return min(c.cfg.Start, cautiousStart) * c.meanCost }

const (
	margin    = .03 // how far below the rate the pace begins, as a share
	quietMin  = 16
	quietMax  = 100
	quietTime = 1.5 // seconds
)

func (p *pace) init(cfg Config) {
	p.now, p.quiet, p.patience = cfg.Start, 32, math.Inf(1)
}

// earlier returns the pace 16 saturated calls ago.
func (p *pace) earlier() float64 {
	if p.pasts < len(p.past) {
		return p.past[0]
	}
	return p.past[p.pasts%len(p.past)]
}

// blocked counts a blockage. The first one ends a search and says nothing of the others.
func (p *pace) blocked(number uint64) {
	if number > 2 {
		p.flood += (min(32, p.refusals-1) - p.flood) * .3
	}
	p.refusals = 1
}

// advance moves the pace by one saturated call.
func (p *pace) advance(c *Controller, call *Call) {
	p.past[p.pasts%len(p.past)] = p.now
	p.pasts++
	if c.phase == Searching {
		p.search(c)
		return
	}
	p.calls++
	if c.phase == Bounding {
		c.costly.look(c, call.sent)
	}
	p.set(c)
	c.service.paced(c, call.sent)
}

// search doubles the pace with every 8 calls, or with more if rejections are costly, but not
// within the time in which a rejection would arrive. Before the first answer that is taken to be a second at most:
// refusals are quick, answers need not be.
func (p *pace) search(c *Controller) {
	if c.crowd.hold > 0 {
		if c.crowd.hold--; c.crowd.hold == 0 || c.crowd.out == 0 {
			c.crowd.begin(c)
		}
		return
	}
	if p.doubts > 0 {
		p.doubts--
		return
	}
	delay := p.delay(c)
	double := max(1, c.sharing.quiet(8)) // calls
	if c.cfg.Costly {
		double = patientDouble
	}
	if p.now >= c.crowd.rate {
		double = max(double, c.crowd.size)
	}
	p.now = c.within(c.crowd.bound(p.now * math.Exp2(1/max(double, doubleDelays*delay*p.now/c.meanCost))))
}

// Losing notes whether rejections are only taken for such. Calls whose answer may mean that they failed are often not
// repeated, so each rejection may have cost a call, and a rate that two rejections have shown is not exceeded.
func (c *Controller) Losing(on bool) { c.pace.losing = on }

// sameLoss is how far apart the rates of two rejections are that show the same one.
const sameLoss = .06

const losingSpan = 2. // times as many calls before it is exceeded

// Doubted notes that a call got an answer that may be a rejection and is not known to be one.
//
// # Does a search go on while calls get unclear answers?
//
// It did: at nginx's limit_req of 20 per second, which answers 503, a search had come to 3,000 per second when the evidence
// was enough, and 45 % of the POSTs, which are not sent again, had failed. So it stands still for two calls after each
// such answer. At a server that fails 1 call in 20 it is slower by a tenth; where half of the calls get them the pace
// does not rise, and that many are evidence.
func (c *Controller) Doubted() {
	if c.phase == Searching {
		c.pace.doubts = min(mostDoubts, c.pace.doubts+doubtedCalls)
	}
}

const (
	doubtedCalls = 2
	mostDoubts   = 32
)

// delay is the time within which a rejection arrives, in seconds.
func (p *pace) delay(c *Controller) float64 {
	delay := c.refusal
	if delay == 0 {
		delay = min(1, c.answer)
	}
	if c.answer == 0 && delay == 0 {
		delay = .2
	}
	return delay + c.sharing.lag()
}

// doubling returns the pace after calls that began at one, and with every double of which it doubles. A pace that doubles
// with every 8 calls is infinite after a while: at 10 per second, a rejection being known after .5 s, it came to 550 in a second,
// and 300 calls were rejected. So it does not double within the time in which a rejection arrives.
func (p *pace) doubling(c *Controller, from, calls, double float64) float64 {
	n := min(40, max(0, calls/double))
	fast := double * c.meanCost / (doubleDelays * p.delay(c)) // where it doubles within that time
	slowed := max(0, math.Log2(fast/from))
	if n <= slowed {
		return from * math.Exp2(n)
	}
	return max(from, fast) + math.Ln2*fast*(n-slowed)
}

// doubleDelays is how many times that a rejection takes to arrive are the shortest in which a pace doubles.
const doubleDelays = 1.5

// returns reports whether the pace will soon go back to what was accepted before a trouble, see service.
func (p *pace) returns() bool { return p.patience < math.Inf(1) }

// set computes the pace from the calls since the rate was set.
func (p *pace) set(c *Controller) {
	switch c.phase {
	case Tracking:
		x := p.calls / p.span
		if x > 1 {
			x = 1 + (p.calls-p.span)/p.rise
		}
		above := max(p.unsure, margin)
		switch {
		case x <= 1:
			p.now = p.rate * (1 - margin*(1-x)*(1-x)*(1-x))
		case x <= 2:
			p.now = p.rate * (1 + above*(x-1)*(x-1)*(x-1))
		default:
			// Doubling takes no more calls than a few seconds have, or at 1/s it took minutes.
			double := min(p.rise/1.5, max(8, 3*p.rate/c.meanCost))
			p.now = p.doubling(c, p.rate*(1+above), p.calls-p.span-p.rise, double)
		}
		if c.chance.testing {
			p.now = min(p.now, testPace*p.rate)
		}
		if c.trial.on {
			p.now = trialPace * p.rate
		}
	case Bounding:
		p.now = c.costly.pace(c)
	case Windowed:
		p.now = c.window.pace()
	}
	p.now = c.within(p.now)
}

// learn sets the rate.
func (p *pace) learn(c *Controller, rate float64) {
	if c.sharing.peers <= 1 {
		rate = c.within(rate) // the maximum is one of this process
	}
	p.rate, p.calls = rate, 0
	calls := rate / c.meanCost // per second
	gap := max(0, p.refuted/rate-1)
	p.span = max(c.sharing.quiet(p.quiet), calls*max(quietTime, 2*c.refusal))
	p.span = max(p.span, c.sharing.own((p.flood-1)/(2*c.cfg.Price)))
	p.rise = 3 * p.span // costly rejections are a reason to look seldom, but not slowly
	// A rejection costs price. Not risking one costs what the rate may be too low by. With the
	// configured price alone, a rate that was only known to a factor of two was kept for as
	// long as one that was known to a hundredth.
	//
	// A pace far above the rate is no sign of that if estimate after estimate is the same: the bucket of the server
	// held the calls above the rate. At 10 per second with a burst of 5 and Retry-After: 1, calls were throttled every
	// 13 s for the same 9.6 per second.
	low := max(max((gap-.3)/2*math.Exp2(-p.agreed), p.unsure/2), c.cfg.Price)
	p.span = max(p.span, min(1e6, c.costly.price*calls/low))
	if p.losing && p.agreed > 0 {
		p.span *= losingSpan
	}
	p.patience = c.service.wait(c)
	p.span = min(p.span, max(1, p.patience*calls/2))
	p.rise = min(p.rise, p.span)
	p.set(c)
}

// agree makes the pace wait longer if an estimate agrees with the one before, and
// shorter if it does not.
func (p *pace) agree(old, rate float64) {
	if old > 0 && math.Abs(rate/old-1) < .06 {
		p.quiet = min(quietMax, p.quiet*1.5)
		p.agreed++
	} else {
		p.quiet = max(quietMin, p.quiet/2)
		p.agreed = 0
	}
}
