package sluice

import (
	"math"
	"time"
)

// # Whom does a throttled call concern?
//
// A server that throttles a call may throttle all calls, because there are too many. Then all of
// them have to wait, as long as it asks, and a gate learns from it. Or it throttles this one call,
// always: an account without credit, an endpoint with a quota of its own, a disabled key. If that
// paused the gate each time, one such call of 201 delayed all others: a batch of 3 seconds took
// hours, and the gate learned a wrong limit.
//
// One throttled call does not tell the two apart. The next one of the same call does, if the server
// granted others in between that left after the first. If it throttles a share q of the others,
// too, a call is throttled n more times by chance with probability qⁿ. Once that is improbable,
// its throttled calls concern only itself: they count as attempts, their wait holds nobody else, and
// they teach nothing. At a server that throttles everybody q is 1, and nothing of this applies.
//
//	accepted  throttled   the call is throttled for its own sake
//	others   others    after how many more throttled calls
//	      0        n   never
//	      6        0   1
//	      2        0   2
//	    100       10   1
//	    100      100   3

// chanceOfRefusals is the probability below which the throttled calls of one call are no chance, if
// only few calls are throttled. Of a crowd of 54 some have bad luck: the finding about one of them
// must be less probable, as many times as the crowd is larger than few. At a quarter, calls at a
// limit whose pace is nearly right would be thought alone now and then.
//
// Where calls cost different amounts, large ones are throttled more often than others, and it takes
// twice as many throttled calls.
const (
	chanceOfRefusals      = 1. / 8
	chanceOfLargeRefusals = chanceOfRefusals * chanceOfRefusals
	fewRefused            = 8
)

// A tally counts how the server answered the calls of a gate lately. It is guarded by the lock
// of the gate's queue.
type tally struct {
	granted, refused int64         // answers, but throttled calls of calls that were found to be alone
	grantedSince     time.Duration // when the accepted call left that left last
	quietAt          int64         // granted, from which on the answers need not be counted

	// The last burst of throttled calls, of calls that were in flight together: when it began, and how
	// many throttled calls there were before.
	burst  time.Duration
	before int64

	// Calls that were throttled, and of these those that were found to be throttled for their own
	// sake. Most such calls come in numbers: if most of those before were alone, a further one is
	// thought to be, too, until as many of them were not.
	calls, alone int
}

// tallied is after how many grants in a row, since a throttled call, a gate need not count any more:
// that is enough for concernsOthers.
const tallied = 64

// grant counts a call that left at since and was accepted.
func (t *tally) grant(since time.Duration) {
	t.granted++
	t.grantedSince = max(t.grantedSince, since)
}

// refuse counts a throttled call at now that concerns all calls, of one that left at since.
func (t *tally) refuse(now, since time.Duration) {
	if since >= t.burst {
		t.burst, t.before = now, t.refused
	}
	t.refused++
	t.quietAt = t.granted + tallied
}

// quiet reports whether grants need not be counted, because no call is throttled.
func (t *tally) quiet() bool { return t.granted >= t.quietAt }

// meet counts a call at its first throttled call.
func (t *tally) meet() {
	if t.calls++; t.calls > tallied {
		t.calls, t.alone = t.calls/2, t.alone/2
	}
}

// mostAreAlone reports whether most of the calls that were throttled are throttled for their own sake.
func (t *tally) mostAreAlone() bool { return 2*t.alone > t.calls }

// allAreAlone reports whether no other throttled call is known.
func (t *tally) allAreAlone() bool { return t.alone >= t.calls }

// A refusedCall is the memory of the attempts of one call about how they were throttled.
type refusedCall struct {
	n       int           // how many there were
	own     int64         // of these, in the tally since the first
	at      time.Duration // the last one
	granted int64         // in the tally at the first
	refused int64         // likewise, but those of the same burst
	alone   bool          // it was thought to be throttled for its own sake,
	then    int64         // when so many throttled calls were in the tally
	sure    bool          // because others were accepted
	costs   bool          // calls cost different amounts
}

// concernsOthers reports whether a throttled call of c now, its first or a further one, concerns the
// other calls of the gate, too: see above. It does not change c.
func (c *refusedCall) concernsOthers(t *tally) bool {
	switch {
	case c.n == 0 || t.grantedSince <= c.at: // nothing was accepted since: the earlier finding holds
		return !c.alone && !t.mostAreAlone()
	case c.alone && t.refused <= c.then:
		return false // nothing was throttled since that is not alone
	}
	granted, refused := float64(t.granted-c.granted), float64(max(0, t.refused-c.refused-c.own))
	share := (refused + 1) / (granted + refused + 2)
	chance := chanceOfRefusals
	if c.costs {
		chance = chanceOfLargeRefusals
	}
	return math.Pow(share, float64(c.n)) > chance/max(1, float64(t.calls-t.alone)/fewRefused)
}

// note records a throttled call of c at now, which concerns others or not. c left at since.
func (c *refusedCall) note(now, since time.Duration, t *tally, others bool) {
	if c.n++; c.n == 1 {
		c.granted, c.refused = t.granted, t.refused
		if since < t.burst {
			c.refused = t.before
		}
		t.meet()
	}
	before := c.at
	c.at = now
	if others {
		c.own++
		return
	}
	if c.n > 1 && !c.sure && t.grantedSince > before {
		c.sure = true
		t.alone++
		t.refused -= c.own
		c.own = 0
	}
	c.alone, c.then = true, t.refused
}

// concernsOthers notes that the server throttled the call of p, which left at since, again or for the
// first time, and reports whether that concerns other calls. If it does not, and no other throttled call is
// known, the gate forgets its estimate from those of this call. p is nil if the call left
// through another gate.
func (g *Gate) concernsOthers(p *Permit, since time.Duration, c *refusedCall) bool {
	g.queue.Lock()
	defer g.queue.Unlock()
	c.costs = p != nil && (p.n > 1 || p.costs() != nil)
	others := c.concernsOthers(&g.tally)
	c.note(g.queue.Now(), since, &g.tally, others)
	if !others && g.tally.allAreAlone() && !g.adaptive.searches() && (g.learner != nil || g.ramp != nil) {
		g.forgetRefusals(g.queue.Now())
	}
	return others
}
