package adaptive

import (
	"math"
	"time"
)

// A blockage lasts from a rejection to the next grant. First the calls go on at the pace
// that the rejection has shown to be right. If one of these is rejected too, one call at a
// time asks whether the blockage is over.
type blockage struct {
	on      bool
	from    point   // the rejection
	pace    float64 // of the rejected call
	rate    float64 // believed before
	held    float64 // saturated calls before it at that rate
	told    bool    // the server said for how long to wait
	crowd   bool    // the rejected call started without a pace
	polls   int     // refused ones
	gap     float64 // between polls
	last    float64 // when the last rejected call started
	polling bool    // a poll is out
	poll    Call
	quiet   float64 // the silence that ended a blockage before; 0: unknown
	shorter shorter
}

// # Is a shorter silence enough?
//
// The silence after which a server accepted calls again may be far longer than needed: in an incident the gaps between
// polls grow to minutes. If the next one began with that gap, a server whose windows last 15 s
// would be left alone for three minutes after each rejection. So after some that one poll has ended,
// half of the silence is tried. Where that was too short, as in a ban, it is tried half as often.
type shorter struct {
	enough int  // how often in a row the first poll was accepted
	fails  int  // how often half of the silence was too short
	trying bool // it is tried in this one
}

const (
	leastShorter = 2   // of these before half of the silence is tried
	mostShorter  = 4   // times this number is doubled
	longSilence  = 75. // seconds; most windows and bans are no longer than a minute
)

// begins returns the silence to begin with, if the last one was quiet.
func (s *shorter) begins(quiet float64) float64 {
	if quiet > longSilence && s.enough >= leastShorter<<min(s.fails, mostShorter) {
		s.trying = true
		return quiet / 2
	}
	return quiet
}

// failed notes that half of the silence was too short.
func (s *shorter) failed() { *s = shorter{fails: s.fails + 1} }

// ended notes that calls are accepted again, since the first poll or a later one.
func (s *shorter) ended(first bool) {
	switch {
	case s.trying:
		*s = shorter{}
	case first:
		s.enough++
	default:
		s.enough = 0
	}
}

const (
	longestGap = 600. // seconds between polls, at most
	longGap    = 8.   // from here on gaps grow threefold: a ban must end between two polls

	mostTurns = 10 // polls after which a process whose peers are granted calls is banned alone
)

// firstWindows are the lengths of windows that often begin with the first call, in seconds. After a crowd a poll comes when
// each of them ends, after the first silence without a crowd only when the last one does: with gaps that grow, a minute was
// found after 110 s. More of them prolong a ban that ends between two polls: with 30 s as well,
// the league's penalty lost a tenth, and windows of half a minute would gain as much.
var firstWindows = [...]float64{1, 10, 60}

// begins is how long after its first call a window has begun at the latest.
const begins = .02

// block begins a blockage: at a point nothing was left.
func (c *Controller) block(t float64, call Call, at point, told bool) {
	c.blockage = blockage{
		on: true, from: at, pace: call.pace, rate: c.pace.rate, held: c.pace.calls,
		told: told, crowd: c.phase == Unlimited, last: call.sent, quiet: c.blockage.quiet, shorter: c.blockage.shorter,
	}
	c.blockage.shorter.trying = false // another process may have ended the last one
	c.service.trouble(c, at)
	c.service.refused(max(0, c.until-t))
	c.outdate()
	c.blocked++
	c.pace.blocked(c.blocked)
	c.cycles.end(at, max(call.pace, c.pace.now), c.meanCost)
	if c.sharing.peers > 1 && c.phase != Bounding { // cycles are short, and the calls of others blurred
		c.cycles.found = fit{}
	}
	if c.blockage.crowd {
		c.crowded(at)
	} else {
		c.estimate(call, at)
	}
	c.ledger.mark(at)
	next := t + c.sharing.most(call.cost, c.ownCost())/c.pace.now
	if c.cfg.Costly {
		next = t + c.blockage.beginPatiently()
	}
	if c.phase == Windowed {
		next = c.window.poll(c, t, next)
	}
	c.openAt(max(next, c.until))
}

// started records a call that starts during a blockage.
func (b *blockage) started(call Call) {
	if b.polls > 0 {
		b.poll, b.polling = call, true
	}
}

// forget lets another poll start if call is the one that is out.
func (b *blockage) forget(call Call) {
	if b.polling && b.poll == call {
		b.polling = false
	}
}

// costly reports whether so many seconds without a grant are no ordinary rejection. A server
// that asks for a pause often asks for one of a second or two, whatever it needs. One that
// does not, and grants nothing for a second, bans its clients or counts in windows.
func (b *blockage) costly(blocked, refusal float64) bool {
	if b.told {
		return blocked > max(3, 8*refusal)
	}
	return blocked > max(1, 5*refusal)
}

// mine reports whether a blockage is only one of this process: the others were granted calls until call, at a pace
// above the limit, so each poll was rejected. Their calls are counted half a second late, so some seem to be granted
// at the beginning of a ban as well. After a crowd no pace is known that they could have.
func (b *blockage) mine(c *Controller, call Call, blocked float64) bool {
	if b.crowd || c.sharing.peers <= 1 || c.pace.rate == 0 {
		return false
	}
	return c.ledger.granted(call)-b.from.granted > blocked*c.pace.rate/3
}

// lull returns for how many seconds the server granted nothing before call, 0 if that was no more
// than calls in flight explain: their rejections were on the way, or a cap waited for one of them to
// end. If the server was asked, the lull ended between two polls.
func (b *blockage) lull(c *Controller, call Call) float64 {
	explained := max(c.refusal, c.answer)
	switch took := call.sent - b.from.at; {
	case b.last-b.from.at > explained:
		return (b.last+call.sent)/2 - b.from.at
	case b.told && took > 2*explained:
		return took
	}
	return 0
}

// silence returns when a poll without a reply counts as accepted. Rejections come quickly,
// answers need not.
func (b *blockage) silence(c *Controller) float64 {
	return b.poll.sent + max(leastSilence, 3*c.refusal)
}

// leastSilence is for servers that answer in no time, as in a testing/synctest bubble.
const leastSilence = .001

// presume ends a blockage because its poll was not rejected in time.
func (c *Controller) presume() { c.unblock(c.blockage.poll) }

// end ends a blockage that was none, because something else explains the rejections.
func (b *blockage) end() { b.on, b.polling = false, false }

// again handles a rejected poll: the next one waits longer, but not past an instant at
// which servers often grant again.
func (b *blockage) again(c *Controller, t float64, call Call) {
	b.polls++
	b.polling = false
	b.last = call.sent
	c.outdate()
	slot, before := c.sharing.most(call.cost, c.ownCost())/c.pace.now, b.gap
	switch {
	case b.polls == 1:
		b.gap = max(b.shorter.begins(b.quiet), max(2*slot, min(.2, 8*slot)))
	case b.shorter.trying:
		b.gap = b.quiet
		b.shorter.failed()
	case b.polls <= mostTurns && b.mine(c, call, call.sent-b.from.at): // the next poll may be the one that is granted
	case b.gap > longGap && !c.cfg.Costly:
		b.gap *= 3
	default:
		b.gap *= 2
	}
	b.gap = min(min(b.gap, longestGap), c.service.longer(c))
	next := t + b.gap
	if b.crowd || b.quiet == 0 && !c.cfg.Costly {
		if end := c.firstEnds(t); end < next {
			// The next poll comes as soon again: a window of a second that slides ends soon after a second. Longer gaps
			// must grow, as a ban must end between two polls.
			if next = end; b.gap < 2 {
				b.gap = max(before, next-t)
			}
		}
	}
	if b.gap > 1 && b.quiet == 0 && !c.cfg.Costly {
		next = min(next, max(t+1, c.minute(t)+.5))
	}
	if b.gap > 1 && c.phase == Bounding {
		if b.polls > 1 {
			next = min(next, c.window.usual(c, t+min(b.gap/2, 10)))
		}
		if at := c.window.usual(c, next); at < next+b.gap/4 {
			next = at // to ask just before a window begins would cost all of it
		}
	}
	if c.phase == Windowed {
		next = c.window.poll(c, t, next)
		b.gap = min(b.gap, max(before, next-t)) // it has not been waited for, and would last when the window does not
	}
	c.openAt(max(next, c.until))
}

// firstEnds returns the next instant after t at which a window that began with the first call may end. In a group the
// first call was another's, perhaps. Without a crowd the gate knows the rate, and only a long window has used it up.
func (c *Controller) firstEnds(t float64) float64 {
	for i, l := range firstWindows {
		if i > 0 && c.sharing.peers > 1 {
			break
		}
		if !c.blockage.crowd && i < len(firstWindows)-1 {
			continue
		}
		if end := c.ledger.start.at + l + begins; t < end-min(1, l/10) {
			return end
		}
	}
	return math.Inf(1)
}

// minute returns the next full minute of the wall clock: many servers count by it.
func (c *Controller) minute(t float64) float64 {
	return t + 60 - math.Mod(t+c.cfg.Clock.Seconds(), 60)
}

const (
	costlyLost = 15 // calls that could not start make a rejection period costly
	windowLost = 8  // are enough to compare what was accepted with the period before, which was
)

// unblock ends a blockage: call was accepted.
func (c *Controller) unblock(call Call) {
	b := &c.blockage
	b.end()
	if c.phase == Windowed {
		c.window.resume(c, call)
		return
	}
	blocked := max(0, call.sent-b.from.at-2*call.cost/c.pace.now-2*c.refusal)
	lost := blocked * c.pace.rate / c.meanCost // in calls
	if b.crowd {
		lost = c.crowdLost(call, blocked)
		c.crowd.silent(c, call)
		c.crowd.measure(c, call)
	}
	if b.polls >= 2 || c.cfg.Costly || b.shorter.trying {
		b.quiet = call.sent - b.last
	}
	if b.polls > 0 {
		b.shorter.ended(b.polls == 1)
	}
	if c.cfg.Costly || lost > costlyLost && b.costly(blocked-2*c.sharing.lag(), c.refusal) && !b.mine(c, call, blocked) {
		c.costly.end(c, call, blocked)
		return
	}
	if b.crowd && b.costly(blocked, c.refusal) {
		c.costly.start = c.ledger.point(call) // no call could start before
	}
	if c.phase == Bounding && lost > windowLost && b.costly(blocked, c.refusal) && c.costly.windowed(c, call) {
		return
	}
	if lost < 2 || !b.told {
		blocked = 0
	}
	c.costly.price = max(blocked, .3*c.costly.price)
	c.costly.cheap(c, call)
	if c.phase == Tracking {
		b.quiet = 0
		if c.pace.nudges > 0 {
			c.pace.learn(c, c.pace.rate) // what a rejection costs is known now
		}
		c.refine(call)
	}
}

// opens returns until when no call may start: the server has asked for a pause, or another
// process is blocked.
func (c *Controller) opens() float64 { return max(c.until, c.sharing.until) }

// Resume ends a pause that the server asked for.
func (c *Controller) Resume(now time.Duration) {
	t := now.Seconds()
	c.sharing.until, c.sharing.told = 0, 0
	c.resumed++
	if c.until > t {
		c.until = t
		c.openAt(min(c.next, t))
	}
}
