package adaptive

import (
	"math"
	"time"
)

// Config configures a Controller. The zero value of a field is its default.
type Config struct {
	Start          float64       // pace at which a search begins, in calls per second; 20, if Costly 5
	Min, Max       float64       // bounds of the pace; one per minute, and none
	MaxCost        bool          // Max counts cost, and not units of the mean cost of a call
	MaxConcurrency int           // bound of the calls in flight; none
	Price          float64       // share of the calls that finding out may cost; 0.02
	Unlimited      bool          // there is no pace before the first rejection
	Costly         bool          // the first rejection already costs much, such as a ban: the pace rises slowly
	Paced          bool          // only the pace is bounded, not the calls in flight
	Clock          time.Duration // time of the wall clock past a full hour, at now = 0
}

// Never is the instant that Demand and Peek return if a reply must come first.
const Never = time.Duration(math.MaxInt64)

// A Controller is the state of one controller. Instants must not decrease from one call of a
// method to the next. Create it with New.
type Controller struct {
	cfg      Config
	phase    Phase
	pace     pace
	ledger   ledger
	blockage blockage
	costly   costly
	window   window
	capacity capacity
	latency  latency
	chance   chance
	trial    trial
	crowd    crowd
	cycles   cycles
	sharing  sharing
	service  service
	refill   refill

	began    bool
	meanCost float64 // mean cost of a call
	next     float64 // no call starts before
	until    float64 // the server has asked for a pause until then
	asked    bool    // a call came early: demand exceeds the pace
	epoch    uint32  // raised whenever news changes the pace; older calls bring old news
	answer   float64 // mean time from the start of a call to its answer; 0: unknown
	refusal  float64 // the same for rejections; 0: unknown
	recent   [16]float64
	started  uint64  // calls that have started
	late     float64 // the next call starts so long after its slot
	past     float64 // cost sent before TakeOver
	other    bool    // calls take amounts of another unit, too

	at       float64 // the last reply
	refusals uint64
	blocked  uint64 // blockages
	ignored  uint64 // refusals taken for chance
	changes  uint64
	changed  float64
	why      Why
	resumed  uint8 // how often a pause was ended by Resume
}

// A Phase is what a Controller is doing.
type Phase uint8

const (
	Unlimited Phase = iota // nothing was rejected yet, and there is no pace
	Searching              // nothing was rejected yet, and the pace doubles
	Tracking               // the pace stays near the measured rate
	Bounding               // refusals are costly: the pace stays between two bounds
	Windowed               // the server accepts a number per window
	Slowed                 // the server gets slow: calls in flight are bounded, there is no pace
	Capped                 // the server bounds the calls in flight, there is no pace
)

// A Call is a call that has started. It is the argument of Ended.
type Call struct {
	sent      float64
	cost      float64
	before    float64 // cost sent before it
	pace      float64
	inFlight  int32 // itself included
	epoch     uint32
	round     uint32 // of latency
	saturated bool   // callers waited for their turn
	poll      bool   // it started during a blockage
	atOnce    bool   // see Reply
}

// An Outcome is how a call ended.
type Outcome uint8

const (
	Granted   Outcome = iota // the server served it
	Failed                   // the server took it and failed: its latency means nothing
	Refused                  // the server rejected it because of too many calls
	Unknown                  // there is no reply: it was canceled, or the connection broke
	Elsewhere                // the server rejected it because of another limit
)

// A Reply is how a call ended.
type Reply struct {
	Outcome    Outcome
	RetryAfter time.Duration // from now on; 0: the server did not say
	AtOnce     bool          // it was rejected because of the calls in flight, the server says
}

// New returns a controller that knows nothing.
func New(cfg Config) *Controller {
	defaults := func(x *float64, d float64) {
		if !(*x > 0) {
			*x = d
		}
	}
	if cfg.Costly {
		defaults(&cfg.Start, patientStart)
	}
	defaults(&cfg.Start, searchStart)
	defaults(&cfg.Min, 1./60)
	defaults(&cfg.Max, math.Inf(1))
	defaults(&cfg.Price, .02)
	phase := Searching
	if cfg.Unlimited {
		phase = Unlimited
	}
	c := &Controller{cfg: cfg, phase: phase}
	c.chance.init()
	c.pace.init(cfg)
	c.capacity.init(cfg)
	return c
}

// Demand returns the instant at which a call that wants to start may do so if inFlight are out:
// now or earlier if immediately, Never if a reply must come first. A call that has to wait for
// the pace is demand: the pace may grow.
func (c *Controller) Demand(now time.Duration, inFlight int) time.Duration {
	if at := c.barred(now, inFlight); at > now {
		if at == Never {
			c.capacity.held++
		}
		return at
	}
	if c.blockage.polling {
		c.presume()
	}
	if c.phase == Windowed {
		c.window.pass(c, now.Seconds())
	}
	at := c.slot(now)
	c.asked = c.asked || at > now
	return at
}

// Peek returns what Demand would, for somebody who only looks: it changes nothing. While a call
// asks whether a blockage has ended, it returns when that counts as accepted.
func (c *Controller) Peek(now time.Duration, inFlight int) time.Duration {
	if at := c.barred(now, inFlight); at > now || c.blockage.polling {
		return at
	}
	return c.slot(now)
}

// barred returns the instant until which no call may start whatever the pace is, not before now:
// during a pause, with too many calls in flight, and while one call asks whether a blockage has
// ended.
func (c *Controller) barred(now time.Duration, inFlight int) time.Duration {
	if at := instant(c.opens()); at > now {
		return at
	}
	if inFlight >= c.capacity.bound() {
		return Never
	}
	if c.blockage.polling {
		return max(now, instant(c.blockage.silence(c)))
	}
	return now
}

// Started records that a call of cost starts at now, with inFlight others out. Demand must
// have returned an instant that is not after now.
func (c *Controller) Started(now time.Duration, cost float64, inFlight int) Call {
	t := now.Seconds()
	cost = c.sharing.whole(cost)
	if !c.began {
		c.begin(t, cost)
	}
	if c.sharing.await { // the time that the other one has named has passed
		c.othersResumed(t)
	}
	call := Call{
		sent: t, cost: cost, before: c.ledger.sent, pace: c.pace.now,
		inFlight: int32(min(inFlight, math.MaxInt32-1)) + 1,
		epoch:    c.epoch, round: c.latency.started(c), saturated: c.saturated(t),
	}
	c.recent[c.started%uint64(len(c.recent))] = t
	c.started++
	c.asked = false
	c.crowd.started(inFlight)
	switch {
	case c.blockage.on:
		call.poll = true
		c.blockage.started(call)
	case call.saturated:
		c.chance.call(c)
		c.trial.call(c, t)
		c.pace.advance(c, &call)
		call.pace = c.pace.now
	}
	c.window.used += cost
	c.cycles.started(t, &c.ledger)
	c.ledger.started(t, cost)
	c.meanCost += (cost - c.meanCost) * inMeanCost
	c.take(t, cost)
	return call
}

// inUnit is the weight of a call in the mean cost.
const inMeanCost = .02

// begin sets what depends on the first call: the mean cost is unknown before it.
func (c *Controller) begin(t, cost float64) {
	c.began = true
	first := c.meanCost == 0
	if first {
		c.meanCost = max(cost, 1e-9)
		c.pace.now *= c.meanCost
	}
	c.ledger.begin(t)
	c.cycles.begin(c.ledger.start)
	c.costly.start = c.ledger.start
	c.service.begin = t
	c.openAt(t)
}

// saturated reports whether the pace is what holds demand back: a caller waited, and the
// last 16 calls used their slots. One call that had to wait is no reason to grow. While the pace goes
// back to what was accepted before a trouble, it grows many times within 16 calls, and the last few count.
func (c *Controller) saturated(t float64) bool {
	if !c.asked {
		return false
	}
	n := uint64(len(c.recent))
	if c.started < n || !c.paced() {
		return true
	}
	if c.pace.returns() {
		n = fewRecent
	}
	first := (c.started - n) % uint64(len(c.recent))
	achieved := float64(n) * c.meanCost / max(1e-9, t-c.recent[first])
	if c.phase == Searching {
		return c.pace.now <= 3*achieved
	}
	return c.pace.now <= 2*achieved
}

// fewRecent calls show that the slots are used while the pace rises quickly.
const fewRecent = 4

// paced reports whether there is a pace.
func (c *Controller) paced() bool {
	return c.phase != Unlimited && c.phase != Capped && c.phase != Slowed
}

// Settle adds delta to the cost of a call that started at since and may have ended.
func (c *Controller) Settle(now, since time.Duration, delta float64) {
	delta = c.sharing.whole(delta)
	c.ledger.sent += delta
	c.meanCost = max(1e-9, c.meanCost+delta*inMeanCost)
	if since.Seconds() >= c.window.from {
		c.window.used += delta
	}
	c.charge(now.Seconds(), delta)
}

// Ended records how a call ended, and reports whether it was rejected and that is thought to be chance. It must be called
// once for each call.
func (c *Controller) Ended(now time.Duration, call Call, reply Reply) (ignored bool) {
	t := now.Seconds()
	c.at, call.atOnce = t, reply.AtOnce
	c.crowd.ended(c, call.before, t)
	took := max(0, t-call.sent)
	c.latency.ended(c, took, call, reply.Outcome == Granted)
	until := c.until
	if reply.RetryAfter > 0 && reply.Outcome == Refused {
		c.until = max(c.until, t+reply.RetryAfter.Seconds())
		c.service.refused(reply.RetryAfter.Seconds())
	}
	switch reply.Outcome {
	case Refused:
		if ignored = c.refused(t, call, took, reply.RetryAfter > 0); ignored {
			c.until = until // which concerns that call only
		}
	case Unknown:
		c.blockage.forget(call)
	case Elsewhere:
		c.denied(call)
		c.blockage.forget(call)
	default:
		if c.blockage.on && call.poll && call.epoch == c.epoch {
			c.unblock(call)
		}
		if call.before < c.crowd.sent {
			c.crowd.answered(c)
		} else {
			average(&c.answer, took, .05)
		}
		c.capacity.granted(c, call)
	}
	return ignored
}

// average moves a mean towards x. The first x is the mean.
func average(mean *float64, x, weight float64) {
	if *mean == 0 {
		weight = 1
	}
	*mean += (x - *mean) * weight
}

// refused handles a rejection. What it means depends on what is believed. It reports whether it is thought to be chance.
func (c *Controller) refused(t float64, call Call, took float64, told bool) (ignored bool) {
	if !c.began { // the call left before a controller was restored, and is the first
		c.begin(call.sent, call.cost)
	}
	c.refusals++
	c.pace.refusals++
	average(&c.refusal, took, .2)
	at := c.denied(call)
	if c.capacity.refused(c, t, call, told) {
		return false
	}
	switch {
	case call.epoch != c.epoch: // it started before the news
		c.again(at)
	case c.blockage.on:
		c.again(at)
		c.blockage.again(c, t, call)
	case c.trial.refused(told), c.chance.may(c.expected(), told):
		c.ignored++
		return true
	default:
		c.block(t, call, at, told)
	}
	return false
}

// denied corrects what was accepted by a call that was not, and returns its point.
func (c *Controller) denied(call Call) point {
	at := c.ledger.refuse(call)
	c.blockage.from.without(call)
	c.cycles.without(call)
	c.costly.start.without(call)
	c.window.refused(call)
	return at
}

// expected reports whether the pace was where rejections are to be expected.
func (c *Controller) expected() bool {
	switch c.phase {
	case Tracking:
		return c.pace.calls >= .9*c.pace.span
	case Bounding:
		return c.pace.calls >= .9*c.costly.hold
	case Windowed:
		return c.window.used >= c.window.count
	}
	return true
}

// again records a rejection of a blockage that is known.
func (c *Controller) again(at point) {
	c.ledger.again(at)
	if c.blockage.on {
		c.cycles.again(at)
	}
}
