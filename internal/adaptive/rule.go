package adaptive

import (
	"math"
	"time"
)

// Config configures a Rule. The zero value of a field is its default.
type Config struct {
	Start          float64       // pace before anything is known, in units per second; 5
	Min, Max       float64       // bounds of the pace; one per minute, and none
	MaxCost        bool          // Max counts cost, and not units of the mean cost of a call
	MaxConcurrency int           // bound of the calls in flight; none
	Price          float64       // share of the calls that finding out may cost; 0.02
	Unlimited      bool          // there is no pace before the first refusal
	Costly         bool          // the first refusal already costs much, such as a ban: the pace rises slowly
	Paced          bool          // only the pace is bounded, not the calls in flight
	Clock          time.Duration // time of the wall clock past a full hour, at now = 0
}

// Never is the instant that Next returns if a reply must come first.
const Never = time.Duration(math.MaxInt64)

// A Rule is the state of one controller. Instants must not decrease from one call of a
// method to the next. Create it with New.
type Rule struct {
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
	crowd    crowd
	cycles   cycles
	sharing  sharing

	began   bool
	unit    float64 // mean cost of a call
	next    float64 // no call leaves before
	until   float64 // the server has asked for a pause until then
	asked   bool    // a call came early: demand exceeds the pace
	epoch   uint32  // raised whenever news changes the pace; older calls bring old news
	answer  float64 // mean time from leaving to the answer; 0: unknown
	refusal float64 // the same for refusals; 0: unknown
	recent  [16]float64
	left    uint64  // calls that have left
	late    float64 // the next call leaves so long after its slot
	past    float64 // cost sent before TakeOver

	at       float64 // the last reply
	refusals uint64
	blocked  uint64 // blockages
	ignored  uint64 // refusals taken for chance
	changes  uint64
	changed  float64
	why      Why
	resumed  uint8 // how often a pause was ended by Resume
}

// A Phase is what a Rule is doing.
type Phase uint8

const (
	Unlimited Phase = iota // nothing was refused yet, and there is no pace
	Searching              // nothing was refused yet, and the pace doubles
	Tracking               // the pace stays near the measured rate
	Bounding               // refusals are costly: the pace stays between two bounds
	Windowed               // the server grants a number per window
	Slowed                 // the server gets slow: calls in flight are bounded, there is no pace
	Capped                 // the server bounds the calls in flight, there is no pace
)

// A Call is a call that has left. It is the argument of Done.
type Call struct {
	sent      float64
	cost      float64
	before    float64 // cost sent before it
	pace      float64
	inFlight  int32 // itself included
	epoch     uint32
	round     uint32 // of latency
	saturated bool   // callers waited for their turn
	poll      bool   // it left during a blockage
}

// An Outcome is how a call ended.
type Outcome uint8

const (
	Granted Outcome = iota // the server served it
	Failed                 // the server took it and failed: its latency means nothing
	Refused                // the server refused it because of too many calls
	Unknown                // there is no reply: it was cancelled, or the connection broke
)

// A Reply is how a call ended.
type Reply struct {
	Outcome    Outcome
	RetryAfter time.Duration // from now on; 0: the server did not say
}

// New returns a rule that knows nothing.
func New(cfg Config) *Rule {
	defaults := func(x *float64, d float64) {
		if !(*x > 0) {
			*x = d
		}
	}
	defaults(&cfg.Start, 5)
	defaults(&cfg.Min, 1./60)
	defaults(&cfg.Max, math.Inf(1))
	defaults(&cfg.Price, .02)
	r := &Rule{cfg: cfg, phase: Searching}
	r.chance.init()
	r.pace.init(cfg)
	r.capacity.init(cfg)
	if cfg.Unlimited {
		r.phase = Unlimited
	}
	return r
}

// Next returns the instant at which a call may leave if inFlight are out: now or earlier
// if it may leave at once, Never if a reply must come first. A call that asks too early
// counts as demand.
func (r *Rule) Next(now time.Duration, inFlight int) time.Duration {
	if at := instant(r.opens()); at > now {
		return at
	}
	if inFlight >= r.capacity.bound() {
		r.capacity.held++
		return Never
	}
	if r.blockage.polling {
		if at := instant(r.blockage.silence(r)); at > now {
			return at
		}
		r.presume()
	}
	opens := r.next
	if r.phase == Windowed {
		opens = math.Max(opens, r.window.opens(r, now.Seconds()))
	}
	if at := instant(opens); at > now {
		r.asked = true
		return at
	}
	return now
}

// instant rounds up. Instants are compared as durations, because a float may be a little
// less than the instant that was made of it.
func instant(t float64) time.Duration {
	if t >= Never.Seconds() {
		return Never
	}
	return time.Duration(math.Ceil(t * 1e9))
}

// Leave records that a call of cost leaves at now, with inFlight others out. Next must
// have returned an instant that is not after now.
func (r *Rule) Leave(now time.Duration, cost float64, inFlight int) Call {
	t := now.Seconds()
	cost = r.sharing.whole(cost)
	if !r.began {
		r.begin(t, cost)
	}
	c := Call{
		sent: t, cost: cost, before: r.ledger.sent, pace: r.pace.now,
		inFlight: int32(min(inFlight, math.MaxInt32-1)) + 1,
		epoch:    r.epoch, round: r.latency.leave(r), saturated: r.saturated(t),
	}
	r.recent[r.left%uint64(len(r.recent))] = t
	r.left++
	r.asked = false
	switch {
	case r.blockage.on:
		c.poll = true
		r.blockage.leave(c)
	case c.saturated:
		r.chance.call(r)
		r.pace.advance(r, &c)
		c.pace = r.pace.now
	}
	r.window.used += cost
	r.cycles.leave(t, &r.ledger)
	r.ledger.leave(t, cost)
	r.unit += (cost - r.unit) * inUnit
	r.next = math.Max(r.next, t-catchUp-r.late) + cost/r.bounded()
	r.late = 0
	return c
}

// inUnit is the weight of a call in the mean cost.
const inUnit = .02

// catchUp is the lateness, in seconds, that the following calls make up for.
const catchUp = .001

// begin sets what depends on the first call: the unit of cost is unknown before it.
func (r *Rule) begin(t, cost float64) {
	r.began = true
	first := r.unit == 0
	if first {
		r.unit = math.Max(cost, 1e-9)
		r.pace.now *= r.unit
	}
	r.ledger.begin(t)
	r.cycles.begin(r.ledger.start)
	r.costly.start = r.ledger.start
	r.next = t
}

// saturated reports whether the pace is what holds demand back: a caller waited, and the
// last 16 calls used their slots. One call that had to wait is no reason to grow.
func (r *Rule) saturated(t float64) bool {
	if !r.asked {
		return false
	}
	n := uint64(len(r.recent))
	if r.left < n || !r.paced() {
		return true
	}
	achieved := float64(n) * r.unit / math.Max(1e-9, t-r.recent[r.left%n])
	if r.phase == Searching {
		return r.pace.now <= 3*achieved
	}
	return r.pace.now <= 2*achieved
}

// paced reports whether there is a pace.
func (r *Rule) paced() bool {
	return r.phase != Unlimited && r.phase != Capped && r.phase != Slowed
}

// bounded returns the pace within the bounds of the configuration.
func (r *Rule) bounded() float64 {
	if !r.paced() {
		return r.most()
	}
	return r.within(r.pace.now)
}

// within returns a pace within the bounds of the configuration.
func (r *Rule) within(pace float64) float64 {
	if !r.began && r.unit == 0 {
		return math.Max(r.cfg.Min, math.Min(r.cfg.Max, pace))
	}
	return math.Max(r.cfg.Min*r.unit, math.Min(r.most(), pace))
}

// most returns Config.Max in cost, for all that share the limit.
func (r *Rule) most() float64 {
	if r.cfg.MaxCost {
		return r.sharing.whole(r.cfg.Max)
	}
	return r.cfg.Max * r.unit
}

// Done records how a call ended. It must be called once for each call.
func (r *Rule) Done(now time.Duration, c Call, reply Reply) {
	t := now.Seconds()
	r.at = t
	took := math.Max(0, t-c.sent)
	r.latency.done(r, took, c, reply.Outcome == Granted)
	if reply.RetryAfter > 0 && reply.Outcome == Refused {
		r.until = math.Max(r.until, t+reply.RetryAfter.Seconds())
	}
	switch reply.Outcome {
	case Refused:
		r.refused(t, c, took, reply.RetryAfter > 0)
	case Unknown:
		r.blockage.forget(c)
	default:
		if r.blockage.on && c.poll && c.epoch == r.epoch {
			r.unblock(c)
		}
		if c.before < r.crowd.sent {
			r.crowd.answered(r)
		} else {
			average(&r.answer, took, .05)
		}
		r.capacity.granted(r, c)
	}
}

// average moves a mean towards x. The first x is the mean.
func average(mean *float64, x, weight float64) {
	if *mean == 0 {
		weight = 1
	}
	*mean += (x - *mean) * weight
}

// refused handles a refusal. What it means depends on what is believed.
func (r *Rule) refused(t float64, c Call, took float64, told bool) {
	r.refusals++
	r.pace.refusals++
	average(&r.refusal, took, .2)
	at := r.ledger.refuse(c)
	r.blockage.from.without(c)
	r.cycles.without(c)
	r.costly.start.without(c)
	r.window.refused(c)
	if r.capacity.refused(r, t, c) {
		return
	}
	switch {
	case c.epoch != r.epoch: // it left before the news
		r.again(at)
	case r.blockage.on:
		r.again(at)
		r.blockage.again(r, t, c)
	case r.chance.may(r.expected(), told):
		r.ignored++
	default:
		r.block(t, c, at, told)
	}
}

// expected reports whether the pace was where refusals are to be expected.
func (r *Rule) expected() bool {
	switch r.phase {
	case Tracking:
		return r.pace.calls >= .9*r.pace.span
	case Bounding:
		return r.pace.calls >= .9*r.costly.hold
	case Windowed:
		return r.window.used >= r.window.count
	}
	return true
}

// note records that a belief has changed.
func (r *Rule) note(why Why) {
	r.why, r.changed = why, r.at
	r.changes++
}

// again records a refusal of a blockage that is known.
func (r *Rule) again(at point) {
	r.ledger.again(at)
	if r.blockage.on {
		r.cycles.again(at)
	}
}
