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
// One throttle does not tell the two apart. The next one of the same call does, if the server accepted
// others in between that left after the first. If it throttles a share q of the others,
// too, a call is throttled n more times by chance with probability qⁿ. Once that is improbable,
// its throttling responses concern only itself: they count as attempts, their wait delays no other call, and
// they teach nothing. At a server that throttles everybody q is 1, and nothing of this applies.
//
//	accepted  throttled   the call is throttled for its own sake
//	others   others    after how many more throttles
//	      0        n   never
//	      6        0   1
//	      2        0   2
//	    100       10   1
//	    100      100   3

// chanceOfRefusals is the probability below which the throttling responses of one call are no
// chance, if only few calls are throttled. Of a crowd of 54 some have bad luck: the finding about one of them
// must be less probable, as many times as the crowd is larger than few. At a quarter, calls at a
// limit whose pace is nearly right would be thought alone now and then.
//
// Where calls cost different amounts, large ones are throttled more often than others, and it takes
// twice as many throttling responses.
//
// To lose its attempts a call needs more evidence than that: if others were accepted since the last one, at most
// chanceOfLoss, and its square if others are throttled as well. At a server that accepts one call in three seconds, of two
// workers, the call that was thought alone came second after each pause, and lost its four attempts in half of the runs.
// From then on each further throttle is an attempt: the others may be throttled later, and 11 attempts were made of 4.
const (
	chanceOfRefusals      = 1. / 8
	chanceOfLargeRefusals = chanceOfRefusals * chanceOfRefusals
	chanceOfLoss          = 1. / 100
	fewRefused            = 8
)

// A tally counts how the server answered the calls of a gate lately. It is guarded by the lock
// of the gate's queue.
type tally struct {
	granted, refused int64         // answers, without throttled calls that were found to be alone
	grantedSince     time.Duration // when the last accepted call left
	quietAt          int64         // granted, from which on the answers need not be counted

	// The last burst of throttling responses, to calls that were in flight together: when it began, and
	// how many there were before.
	burst  time.Duration
	before int64

	throttled   *kinship      // of the child one of whose calls was throttled last,
	throttledAt time.Duration // when,
	wait        time.Duration // and what it was told
	longest     time.Duration // wait that was found to concern all children

	// Of granted and refused, the answers to calls that had been throttled before.
	grantedAgain, refusedAgain int64

	recent  float64 // share of the last answers that were throttled
	learned int64   // throttling responses that the estimate of the gate is from
	again   float64 // evidence that repeated calls are throttled more often than others, see repeated
	apart   bool    // it was enough
	healed  float64 // share of the last repeated calls that were accepted

	// The answers to repeated calls that were in flight together: when the first of them came, the evidence
	// before, and the sum of theirs.
	round            time.Duration
	againBefore, sum float64
	answers          float64

	// Calls that were throttled, and of these those that were found to be throttled for their own
	// sake. Most such calls come in numbers: if most of those before were alone, a further one is
	// thought to be, too, until as many of them were not.
	calls, alone int

	doubt doubt
}

// tallied is how many calls must be accepted in a row, since a throttle, until a gate need not count any
// more: that is enough for concernsOthers.
const tallied = 64

// grant counts a call that left at since and was accepted. It reports whether that shows that others are alone.
func (t *tally) grant(since time.Duration) (found bool) {
	t.granted++
	t.recent -= t.recent / recentAnswers
	t.grantedSince = max(t.grantedSince, since)
	alone := t.doubt.grant(since)
	t.alone += alone
	return alone > 0
}

// refuse counts a throttle at now that concerns all calls, of one that left at since. again says that the
// call had been throttled before.
func (t *tally) refuse(now, since time.Duration, again bool) {
	if since >= t.burst {
		t.burst, t.before = now, t.refused-t.refusedAgain
	}
	if t.refused++; again {
		t.refusedAgain++
	} else {
		t.doubt.refuse(since)
	}
	if t.recent += (1 - t.recent) / recentAnswers; t.recent > manyRefused {
		t.again, t.apart = 0, false
		t.againBefore, t.sum, t.answers = 0, 0, 0
	}
	t.quietAt = t.granted + tallied
}

// quiet reports whether accepted calls need not be counted, because none is throttled.
func (t *tally) quiet() bool { return t.granted >= t.quietAt && !t.doubt.counts() }

// meet counts a call when it is throttled for the first time.
func (t *tally) meet() {
	if t.calls++; t.calls > tallied {
		t.calls, t.alone, t.doubt.healed = t.calls/2, t.alone/2, t.doubt.healed/2
	}
}

// mostAreAlone reports whether most of the calls that were throttled are throttled for their own sake.
func (t *tally) mostAreAlone() bool { return 2*t.alone > t.calls }

// allAreAlone reports whether no other throttle is known.
func (t *tally) allAreAlone() bool { return t.alone >= t.calls || t.knowsAlone() }

// # Are calls throttled again?
//
// A locked object throttles half of the calls for it, so most of these are throttled once or not at all,
// and each seems to concern all calls. A gate that slowed down found no pace at which it ended: one object
// of ten left 3 calls per second of 100. But a call for it is throttled again more often than other calls
// are at that time. At a server that throttles because of too many calls it is not. So repeated calls
// are counted together. Each adds the logarithm of how much more probable its answer is if half of the
// repeated calls are throttled than if the share q of the others is. Once that is enough, throttles
// concern only their calls, which keep their attempts, until the evidence is used up or many calls are
// throttled.
//
//	of 20 repeated calls    throttled    others    evidence
//	                             10         9 %         9.9
//	                              2         9 %        -7.4
//	                             10        48 %         0
//
// Calls that cost different amounts are not counted: large ones are throttled more often. Nor are those of
// gates below, one of which may have a separate limit.
const (
	repeatedShare = .5
	apartFrom     = 6. // evidence at which throttles are thought to concern only their calls
	mostAgain     = 8. // evidence that is kept
	manyRefused   = .3 // of the last answers
	fewRepeats    = 10 // how often one call of a thousand is throttled then: each batch has one of a hundred, which would wait long
	recentAnswers = 32
	recentRepeats = 8
	oftenHealed   = .25 // of these: it is worth while to repeat a call
)

// others returns how the server answered calls since the first throttle of c, without those that it had
// throttled before: five calls that are throttled for their own sake, one after the other,
// would seem to show each other that the server throttles everybody.
func (t *tally) others(c *refusedCall) (granted, refused float64) {
	return float64(max(0, t.granted-t.grantedAgain-c.granted)), float64(max(0, t.refused-t.refusedAgain-c.refused-(c.own-c.ownAgain)))
}

// repeated weighs the answer of the server at now to a repeated call of c, which left at since. Answers to calls
// that were in flight together are one, the mean of them: what throttled one of them may have throttled all.
func (t *tally) repeated(c *refusedCall, now, since time.Duration, throttled bool) {
	if !c.plain() {
		return
	}
	granted, refused := t.others(c)
	q := (refused + .5) / (granted + refused + 2)
	p := max(repeatedShare, q)
	t.healed -= t.healed / recentRepeats
	if !throttled {
		p, q = 1-p, 1-q
		t.healed += 1. / recentRepeats
	}
	if since >= t.round {
		t.round, t.againBefore, t.sum, t.answers = now, t.again, 0, 0
	}
	t.sum += math.Log(p / q)
	t.answers++
	t.again = min(mostAgain, max(0, t.againBefore+t.sum/t.answers))
	t.apart = t.again >= apartFrom || t.apart && t.again > 0
}

// A refusedCall is the memory of the attempts of one call about how they were throttled.
type refusedCall struct {
	n        int           // how many there were
	own      int64         // of these, in the tally since the first,
	ownAgain int64         // and of those, in its refusedAgain
	at       time.Duration // the last one
	granted  int64         // in the tally at the first, of calls that had not been throttled before
	refused  int64         // likewise, but those of the same burst
	against  int           // throttling responses that came after others had been accepted
	alone    bool          // it was thought to be throttled for its own sake,
	then     int64         // when so many throttles were in the tally
	sure     bool          // because others were accepted
	probe    bool          // it is the probe, or was the last one, see doubt
	tried    time.Duration // when the first probe left with which it was throttled; 0: it was none
	excused  bool          // the last one is no attempt
	counts   bool          // so many throttles were improbable: each further one is an attempt
	some     bool          // it is one of those that may be accepted soon, see repeated
	costs    bool          // calls cost different amounts
	below    bool          // the call is of a gate below, which may have a separate limit
}

// concernsOthers reports whether a throttle of c now, its first or a further one, concerns the other
// calls of the gate, too: see above. It does not change c.
func (c *refusedCall) concernsOthers(t *tally) bool {
	switch {
	case c.n == 0 || t.grantedSince <= c.at: // nothing was accepted since: the earlier finding holds
		return !c.alone && !t.mostAreAlone() && !(c.plain() && t.knowsAlone()) && !c.apart(t)
	case c.alone && t.refused <= c.then:
		return false // nothing was throttled since that is not alone
	}
	chance := chanceOfRefusals
	if c.costs {
		chance = chanceOfLargeRefusals
	}
	if c.plain() && (t.knowsAlone() || t.inDoubt() && t.doubt.chance() <= chance) {
		return false
	}
	return !c.apart(t) && c.chance(t, c.against+1) > chance/max(1, float64(t.calls-t.alone)/fewRefused)
}

// chance returns the probability that c is throttled n times after others were accepted, if the server throttles it as
// often as the others.
func (c *refusedCall) chance(t *tally, n int) float64 {
	granted, refused := t.others(c)
	return math.Pow((refused+1)/(granted+refused+2), float64(n))
}

// apart reports whether throttles such as those of c concern only their calls, see repeated.
func (c *refusedCall) apart(t *tally) bool {
	return t.apart && t.healed > oftenHealed && c.n < fewRepeats && c.plain()
}

// plain reports whether all calls cost the same, and share one limit.
func (c *refusedCall) plain() bool { return !c.costs && !c.below }

// confirmed reports whether c was found to be alone as a probe: then it is counted.
func (c *refusedCall) confirmed(t *tally) bool { return c.tried > 0 && c.tried == t.doubt.confirmed }

// note records a throttle of c at now, which concerns others or not. c left at since. If it concerns
// others, the tally is yet to count it.
func (c *refusedCall) note(now, since time.Duration, t *tally, others bool) {
	c.some = !others && c.apart(t)
	if c.n > 0 && t.grantedSince > c.at {
		c.against++
		t.doubt.again(now, since, t.grantedSince)
		t.repeated(c, now, since, true)
	}
	if c.probe {
		c.probe, t.doubt.probing = false, false
	}
	if c.n++; c.n == 1 {
		c.granted, c.refused = t.granted-t.grantedAgain, t.refused-t.refusedAgain
		if since < t.burst {
			c.refused = t.before
		}
		if t.meet(); t.calls == 1 {
			t.doubt = doubt{began: now}
		}
	}
	if others || c.some {
		c.own++
		if c.n > 1 {
			c.ownAgain++
		}
	}
	before := c.at
	c.at = now
	_, refused := t.others(c)
	loss := chanceOfLoss
	if refused > 0 {
		loss *= chanceOfLoss
	}
	accepted := t.grantedSince > before
	c.counts = c.counts || !others && accepted && c.chance(t, c.against) <= loss
	c.excused = !others && accepted && !c.counts
	switch {
	case c.some:
		t.refuse(now, since, c.n > 1)
		c.alone, c.then = true, t.refused
		return
	case others:
		return
	}
	switch {
	case c.n == 1 || c.sure || t.grantedSince <= before:
	case c.plain() && t.inDoubt():
		c.tried = t.doubt.try(since)
	default:
		if c.sure = true; !c.confirmed(t) {
			t.alone++
		}
		t.refused -= c.own
		t.refusedAgain -= c.ownAgain
		c.own, c.ownAgain = 0, 0
	}
	c.alone, c.then = true, t.refused
}

// # When does a gate begin to learn?
//
// Learning costs time, and a gate that is never told of a throttled call must not pay for it. So a gate
// begins at a throttled call. By then it knows only how many calls have started lately (type recently),
// and that those in flight belong to the time before.
//
// A throttled call may be chance: some servers are overloaded for 1 call in 50, whatever the
// pace. So a gate without a rate begins as a slow start does: when the server asks for a
// wait, or throttles 3 of 16 calls. A gate with a rate, its own or its parent's, or with
// further limits that are known, was told the limit by somebody who should know. It begins at the second
// throttled call within 500 if the server asks for waits, and at the third within 32 if not. Calls that
// were in flight at the same time and throttled count as one. The gate stops learning when its rate has
// been accepted for long.
const (
	strikeTold   = 500
	strikeUntold = 32
)

// strikes are the last throttling responses to a gate with a rate.
type strikes struct {
	end     time.Duration // of the last one: calls that left before belong to it
	n       int
	granted [2]int64 // calls by the gate before the last ones
}

// add records a throttling response and reports whether it is one too many.
func (s *strikes) add(now, since time.Duration, granted int64, told bool) bool {
	if s.n > 0 && since < s.end {
		return false
	}
	few := s.n >= 2 && granted-s.granted[0] <= strikeUntold
	if told {
		few = s.n >= 1 && granted-s.granted[1] <= strikeTold
	}
	s.granted[0], s.granted[1] = s.granted[1], granted
	s.end = now + 1
	s.n++
	return few
}

// recently is the number of calls that had started at two times, 15 s apart or more. Only calls
// that are measured are noted, see flight.Hold.
type recently struct {
	early, late sofar
	throttled   sofar // calls that were throttled while there was no learner
	begun       bool
	from        time.Duration // since when calls have left without a long pause
}

// longPause is the time without a call after which earlier accepted calls say nothing any more.
const longPause = time.Minute

type sofar struct {
	at          time.Duration
	calls, cost int64
}

// pause leaves out a pause of asked. That no call leaves meanwhile says nothing of the rate that was told:
// one call too many at Airtable costs 30 s, and a gate that was told the right rate believed in a twentieth of it.
// The calls before it count: a server that was silent for longer than it asked for seemed to have granted nothing.
func (r *recently) pause(asked time.Duration) {
	if r.begun {
		r.early.at += asked
		r.late.at += asked
	}
}

// refuse notes that a call of n was throttled while there was no learner.
func (r *recently) refuse(n int64) {
	r.throttled.calls++
	r.throttled.cost += n
}

// accepted returns here without the calls that no learner knows to be throttled. Counted as accepted, the first 14 of 44
// made 34 of the 20 calls that a server had accepted at the same time, and its cap was not recognized.
func (r *recently) accepted(here sofar) sofar {
	here.calls -= r.throttled.calls
	here.cost -= r.throttled.cost
	return here
}

// note is called when a call ends that left at since.
func (r *recently) note(since time.Duration, here sofar) {
	now := here.at
	here = r.accepted(here)
	if !r.begun { // calls that were accepted before, as after Forget, are in early
		first := max(r.early.at, since)
		r.begun = true
		r.early.at, r.late.at, r.from = first, first, first
		return
	}
	if now-r.late.at > longPause {
		r.from = since
	}
	if now-r.late.at > 15*time.Second {
		r.early, r.late = r.late, here
	}
}
