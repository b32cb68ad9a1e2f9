package adaptive

import (
	"math"
	"time"
)

// A gate needs no rule while nothing is refused, and calls cost less without one. So it
// makes one at the first refusals. This file has what the rule is given then.

// Past is what a gate knows of the calls that left before it had a rule.
type Past struct {
	Since  time.Duration // when the first of them left
	Calls  float64       // how many left,
	Cost   float64       // and what they cost
	Answer time.Duration // mean time until a reply; 0: unknown
	Rate   float64       // a pace that they kept to, per second; 0: none
}

// TakeOver tells a new rule of the calls before it. If they kept to a rate, the rule
// begins there: somebody who knows the limit has set it.
func (r *Rule) TakeOver(now time.Duration, p Past) {
	t := now.Seconds()
	r.at = t
	unit, cost := r.sharing.whole(1), r.sharing.whole(p.Cost)
	if p.Calls > 0 && p.Cost > 0 {
		unit = cost / p.Calls
	}
	r.begin(math.Min(t, p.Since.Seconds()), unit)
	r.next = t
	r.ledger.sent, r.past = cost, cost
	r.answer = p.Answer.Seconds()
	if p.Rate > 0 {
		r.phase = Tracking
		r.pace.learn(r, r.sharing.whole(p.Rate), Nothing)
		r.changes = 0
	}
}

// Before returns the Call of one of the calls before TakeOver, which left at since with
// so many others out.
func (r *Rule) Before(since time.Duration, cost float64, inFlight int) Call {
	out := float64(inFlight) * r.unit
	cost = r.sharing.whole(cost)
	return Call{
		sent: since.Seconds(), cost: cost, before: math.Max(0, r.past-out-cost),
		pace: r.pace.now, inFlight: int32(min(inFlight, math.MaxInt32-1)) + 1,
		saturated: r.paced(),
	}
}

// Wait is Next for somebody who only looks: no call asks to leave.
func (r *Rule) Wait(now time.Duration, inFlight int) time.Duration {
	if at := instant(r.opens()); at > now {
		return at
	}
	if inFlight >= r.capacity.bound() {
		return Never
	}
	opens := r.next
	switch w := &r.window; {
	case r.blockage.polling:
		opens = math.Max(0, r.blockage.silence(r))
	case r.phase == Windowed && !r.blockage.on && w.used+r.unit/2 >= w.count+w.extra:
		opens = math.Max(opens, w.from+w.length)
	}
	return max(now, instant(opens))
}

// Late tells the rule that the call that leaves next was woken so late. The calls after
// it make up for that.
func (r *Rule) Late(by time.Duration) { r.late = by.Seconds() }

// Settle adds delta to the cost of a call that left at since and may have ended.
func (r *Rule) Settle(now, since time.Duration, delta float64) {
	delta = r.sharing.whole(delta)
	r.ledger.sent += delta
	r.unit = math.Max(1e-9, r.unit+delta*inUnit)
	if since.Seconds() >= r.window.from {
		r.window.used += delta
	}
	if r.paced() && !r.blockage.on {
		r.next = math.Max(now.Seconds(), r.next+delta/r.bounded())
	}
}

// Bound changes Config.Max and Config.MaxConcurrency; 0 means none. What was learned stays, also
// while a lower bound holds, and the next call is as far behind the last one as the new pace says.
func (r *Rule) Bound(now time.Duration, rate float64, concurrency int) {
	if !(rate > 0) {
		rate = math.Inf(1)
	}
	before := r.bounded()
	r.cfg.Max, r.cfg.MaxConcurrency = rate, concurrency
	if r.phase == Searching {
		r.pace.now = math.Max(r.pace.now, r.cfg.Start*r.unit)
	}
	r.pace.set(r)
	if t := now.Seconds(); r.left > 0 && r.next > t && r.paced() && !r.blockage.on {
		last := r.recent[(r.left-1)%uint64(len(r.recent))]
		r.next = math.Max(t, last+(r.next-last)*before/r.bounded())
	}
	k := &r.capacity
	k.setMost(r.cfg, k.limit < k.most || r.phase == Capped || r.phase == Slowed)
}

// Resume ends a pause that the server asked for.
func (r *Rule) Resume(now time.Duration) {
	t := now.Seconds()
	r.sharing.until, r.sharing.told = 0, 0
	r.resumed++
	if r.until > t {
		r.until, r.next = t, math.Min(r.next, t)
	}
}

// Blocked returns Belief.Blocked.
func (r *Rule) Blocked() bool { return r.blockage.on }

// AtMax reports whether the configured rate has been granted for long.
func (r *Rule) AtMax() bool {
	return r.phase == Tracking && !r.blockage.on && r.pace.calls >= 2*r.pace.span &&
		r.pace.now >= .999*r.most() && r.capacity.limit >= r.capacity.most
}

// Changes returns Belief.Changes.
func (r *Rule) Changes() uint64 { return r.changes }

// Asleep reports whether so much time has passed since the last call that what was
// learned may be lost.
func (r *Rule) Asleep(now, enough time.Duration) bool {
	last := r.at
	if r.left > 0 {
		last = math.Max(last, r.recent[(r.left-1)%uint64(len(r.recent))])
	}
	return now.Seconds() >= last+enough.Seconds() && now.Seconds() >= r.until
}
