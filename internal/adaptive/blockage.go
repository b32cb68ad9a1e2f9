package adaptive

import "math"

// A blockage lasts from a refusal to the next grant. First the calls go on at the pace
// that the refusal has shown to be right. If one of these is refused too, one call at a
// time asks whether the blockage is over.
type blockage struct {
	on      bool
	from    point   // the refusal
	pace    float64 // of the refused call
	rate    float64 // believed before
	held    float64 // saturated calls before it at that rate
	told    bool    // the server said for how long to wait
	crowd   bool    // the refused call left without a pace
	polls   int     // refused ones
	gap     float64 // between polls
	last    float64 // when the last refused call left
	polling bool    // a poll is out
	poll    Call
	quiet   float64 // the silence that ended a blockage before; 0: unknown
}

const (
	longestGap = 600. // seconds between polls, at most
	longGap    = 8.   // from here on gaps grow threefold: a ban must end between two polls
)

// block begins a blockage: at a point nothing was left.
func (r *Rule) block(t float64, c Call, at point, told bool) {
	r.blockage = blockage{
		on: true, from: at, pace: c.pace, rate: r.pace.rate, held: r.pace.calls,
		told: told, crowd: r.phase == Unlimited, last: c.sent, quiet: r.blockage.quiet,
	}
	r.epoch++
	r.blocked++
	r.pace.blocked(r.blocked)
	r.cycles.end(at, math.Max(c.pace, r.pace.now), r.unit)
	if r.sharing.peers > 1 { // others empty the bucket, too
		r.cycles.found = fit{}
	}
	if r.blockage.crowd {
		r.crowded(at)
	} else {
		r.estimate(c, at)
	}
	r.ledger.mark(at)
	r.next = t + c.cost/r.pace.now
	if r.cfg.Costly {
		r.blockage.beginPatiently(r, t)
	}
	if r.phase == Windowed {
		r.next = r.window.poll(r, t, r.next)
	}
	r.next = math.Max(r.next, r.until)
}

// leave records a call that leaves during a blockage.
func (b *blockage) leave(c Call) {
	if b.polls > 0 {
		b.poll, b.polling = c, true
	}
}

// forget lets another poll leave if c is the one that is out.
func (b *blockage) forget(c Call) {
	if b.polling && b.poll == c {
		b.polling = false
	}
}

// costly reports whether so many seconds without a grant are no ordinary refusal. A server
// that asks for a pause often asks for one of a second or two, whatever it needs. One that
// does not, and grants nothing for a second, bans its clients or counts in windows.
func (b *blockage) costly(blocked, refusal float64) bool {
	if b.told {
		return blocked > math.Max(3, 8*refusal)
	}
	return blocked > math.Max(1, 5*refusal)
}

// silence returns when a poll without a reply counts as granted. Refusals come quickly,
// answers need not.
func (b *blockage) silence(r *Rule) float64 { return b.poll.sent + math.Max(leastSilence, 3*r.refusal) }

// leastSilence is for servers that answer in no time, as in a testing/synctest bubble.
const leastSilence = .001

// presume ends a blockage because its poll was not refused in time.
func (r *Rule) presume() { r.unblock(r.blockage.poll) }

// end ends a blockage that was none, because something else explains the refusals.
func (b *blockage) end() { b.on, b.polling = false, false }

// again handles a refused poll: the next one waits longer, but not past an instant at
// which servers often grant again.
func (b *blockage) again(r *Rule, t float64, c Call) {
	b.polls++
	b.polling = false
	b.last = c.sent
	r.epoch++
	slot := c.cost / r.pace.now
	switch {
	case b.polls == 1:
		b.gap = math.Max(b.quiet, math.Max(2*slot, math.Min(.2, 8*slot)))
	case b.gap > longGap && !r.cfg.Costly:
		b.gap *= 3
	default:
		b.gap *= 2
	}
	b.gap = math.Min(b.gap, longestGap)
	r.next = t + b.gap
	if b.gap > 1 && b.quiet == 0 && !r.cfg.Costly {
		r.next = math.Min(r.next, math.Max(t+1, r.minute(t)+.5))
	}
	if b.gap > 1 && b.polls > 1 && r.phase == Bounding {
		r.next = math.Min(r.next, r.window.usual(r, t+math.Min(b.gap/2, 10)))
		if at := r.window.usual(r, r.next); at < r.next+b.gap/4 {
			r.next = at // to ask just before a window begins would cost all of it
		}
	}
	if r.phase == Windowed {
		r.next = r.window.poll(r, t, r.next)
	}
	r.next = math.Max(r.next, r.until)
}

// minute returns the next full minute of the wall clock: many servers count by it.
func (r *Rule) minute(t float64) float64 {
	return t + 60 - math.Mod(t+r.cfg.Clock.Seconds(), 60)
}

// unblock ends a blockage: c was granted.
func (r *Rule) unblock(c Call) {
	b := &r.blockage
	b.end()
	if r.phase == Windowed {
		r.window.resume(c)
		return
	}
	blocked := math.Max(0, c.sent-b.from.at-2*c.cost/r.pace.now-2*r.refusal)
	lost := blocked * r.pace.rate / r.unit // in calls
	if b.crowd {
		lost = r.crowdLost(c, blocked)
	}
	if b.polls >= 2 || r.cfg.Costly {
		b.quiet = c.sent - b.last
	}
	if r.cfg.Costly || lost > 15 && b.costly(blocked-2*r.sharing.lag(), r.refusal) {
		r.costly.end(r, c, blocked)
		return
	}
	if lost < 2 || !b.told {
		blocked = 0
	}
	r.costly.price = math.Max(blocked, .3*r.costly.price)
	r.costly.cheap(r, c)
	if r.phase == Tracking {
		b.quiet = 0
		r.refine(c)
	}
}
