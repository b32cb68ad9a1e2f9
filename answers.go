package sluice

import (
	"context"
	"errors"
	"time"

	"github.com/sluice-go/sluice/internal/adaptive"
	"github.com/sluice-go/sluice/internal/evidence"
)

// This file has the effects of answers on a gate: pauses, slow starts (see ramp.go), its estimates
// (see learner.go), and the retry budget (see budget.go).

// ended applies err, which a call of Do returned, to the gate and returns it. since is
// when the call left and p its permit, nil if it has none.
func (g *Gate) ended(err error, since time.Duration, p *Permit) error {
	in := g.learnsIn()
	since += g.accountAhead
	if err == nil {
		p.answer(adaptive.Granted)
		in.answeredWellFor(g, since, firstRefund, false)
		return nil
	}
	m := in.judge(err, since, g.refusedBy)
	in.honorFor(g, err, m.throttled, since, p)
	wellAnswered := m.definite(err)
	p.answer(outcomeOf(err, wellAnswered)) // before the release, which counts a missing answer as a success
	switch {
	case wellAnswered:
		in.answeredWellFor(g, since, 0, m.unclear)
	case !errors.Is(err, context.Canceled):
		in.failed()
	}
	return err
}

// A judgement is the meaning of the error of a call.
type judgement struct {
	permanent bool
	throttled *throttledError // nil if the call was not throttled
	unclear   bool            // the error may be a throttled call, and the evidence says that it is none
	failed    bool            // then: it is a failure, not a definite answer
	together  bool            // and the error of calls in flight at the same time
}

// judge returns the meaning of err, the result of a call that started at since: how it was marked,
// by its function or by refusedBy, which may be nil, and the evidence about a mark that is unclear.
func (g *Gate) judge(err error, since time.Duration, refusedBy func(error) (bool, time.Duration)) judgement {
	m := marks(err)
	if m.throttled == nil && refusedBy != nil {
		if refused, wait := refusedBy(err); refused {
			j := judgement{permanent: m.permanent}
			errors.As(ThrottledFor(err, wait), &j.throttled)
			return j
		}
	}
	otherwise := judgement{permanent: m.permanent || m.within, throttled: m.throttled}
	if m.throttled != nil || !m.unclear || !delayed(err).IsZero() { // what has a time is clear
		return otherwise
	}
	refused, together := g.weigh(since)
	if refused {
		return judgement{permanent: m.permanent, throttled: &throttledError{error: err, weighed: true}}
	}
	otherwise.unclear, otherwise.failed, otherwise.together = true, !m.within, together
	return otherwise
}

// definite reports whether err is the answer of a server that is well to a call that is wrong.
func (j *judgement) definite(err error) bool {
	return j.permanent && !j.failed && j.throttled == nil && delayed(err).IsZero() && !isTimeout(err)
}

// weigh weighs the evidence for an unclear answer to a call that left at since. It reports whether
// the server throttled the call; and if not, whether calls that were in flight at the same time got
// such an answer before.
func (g *Gate) weigh(since time.Duration) (refused, together bool) {
	g.queue.Lock()
	defer g.queue.Unlock()
	now := g.queue.Now()
	g.impaired.Store(true) // so that accepts count
	early := int64(g.granted)-g.room.calls.Calls() < earlyAnswers
	verdict, together := g.evidence.Unclear(now, since, early)
	switch verdict {
	case evidence.Crowded:
		g.slowStart(now, since, 0, true)
	case evidence.Mistaken:
		g.forgetWeighed(now)
	}
	return verdict == evidence.Refusal, together
}

// forgetWeighed makes g, whose queue is locked, forget everything that it knows only from evidence.
func (g *Gate) forgetWeighed(now time.Duration) {
	switch {
	case g.learner != nil && g.learner.weighed:
		g.forgetRefusals(now)
		g.search()
	case g.learner == nil && g.ramp != nil && g.ramp.weighed:
		g.forgetRefusals(now)
	}
}

// earlyAnswers are the first ones of a server. A slow start there costs little.
const earlyAnswers = 64

// forgetRefusals makes g, whose queue is locked, a gate without a throttled call.
func (g *Gate) forgetRefusals(now time.Duration) {
	g.learner, g.ramp, g.strikes = nil, nil, strikes{}
	g.tally.learned = 0
	g.answersCount.Store(false)
	g.wake(now)
}

// outcomeOf returns the finding about the server from err, the result of a call that was not
// throttled. wellAnswered says that it is a definite answer.
func outcomeOf(err error, wellAnswered bool) adaptive.Outcome {
	switch {
	case wellAnswered:
		return adaptive.Granted
	case errors.Is(err, context.Canceled), isTimeout(err):
		return adaptive.Unknown
	}
	return adaptive.Failed
}

// honor pauses the gate if the server asked for a wait. err is the result of the call, throttled
// its mark or nil, since when the call left, and p its permit, nil if it has none. It returns the
// wait, 0 if there is none. The wait is at least 1 ms, like a backoff: it does not use up an
// attempt, so a server that asks for 1 ns would be retried without end. The permit must still be
// held: otherwise the next call would start before the pause.
func (g *Gate) honor(err error, throttled *throttledError, since time.Duration, p *Permit) (wait time.Duration, l lesson) {
	if throttled == nil {
		return 0, lesson{}
	}
	at := throttled.at
	if wait = max(0, throttled.wait()); 0 < wait && wait < minBackoff {
		wait, at = minBackoff, time.Now().Add(minBackoff)
	}
	l = g.throttled(err, since, wait, p, throttled.weighed)
	if wait > 0 {
		g.pauseUntil(at, err.Error(), since)
	}
	return wait, l
}

// A lesson is the conclusion of an adaptive gate from a throttled call. It is zero if the gate does not
// learn.
type lesson struct {
	learned bool
	blocked time.Duration // for how long the server has accepted nothing
}

// refusedAlone records that the server throttled a call of p for its own sake: that says nothing
// about others, and nothing about how long they take.
func (g *Gate) refusedAlone(p *Permit) {
	g.queue.Lock()
	if up := p.of(g); up != nil && up.gate != nil {
		g.hold.Skip(up.since)
		up.first(denied)
	}
	g.queue.Unlock()
	p.answer(adaptive.Unknown)
}

// throttled records that the server throttled with err a call that left at since, and asked for
// a wait of asked, 0 if it set no time. weighed says that only the evidence says so.
func (g *Gate) throttled(err error, since, asked time.Duration, p *Permit, weighed bool) lesson {
	l, news := g.noteThrottled(err, since, asked, p, weighed)
	if news != nil {
		g.report(*news)
	}
	if l.blocked > 0 { // those that wait may have lost their patience, see admitter.giveUp
		g.queue.Change(func(time.Duration) {})
	}
	return l
}

// noteThrottled is the locked half of throttled. It returns the event of a
// change of mind, or nil.
func (g *Gate) noteThrottled(err error, since, asked time.Duration, p *Permit, weighed bool) (l lesson, news *Event) {
	g.queue.Lock()
	defer g.queue.Unlock()
	now := g.queue.Now()
	if p == nil && g.granted == 0 {
		return l, nil // it left through another gate, see RetryLoop.Move: how many the server accepted before is not known
	}
	g.hold.Skip(since)
	if p != nil && !p.first(answered) { // by this error, and not by the release
		return l, nil
	}
	call := g.ending(p, now, since)
	g.tally.refuse(now, since)
	if !weighed {
		g.evidence.Rejected(now)
	}
	g.tally.learned++
	g.impaired.Store(true) // so that accepts count
	n := int64(1)
	if p != nil {
		n = p.n
		p.first(denied)
	}
	g.peering.refused(n, p)
	switch {
	case g.learner == nil && (g.adaptive.Disabled || !g.suspects(now, since, asked, weighed)):
		if g.adaptive.Disabled && asked == 0 { // a pause begins the other slow starts
			g.slowStart(now, since, 0, false)
		}
		g.answersCount.Store(g.ramp != nil)
		return l, nil
	case g.learner == nil:
		g.learn(now, n)
	}
	g.learner.weighed = g.learner.weighed && weighed
	g.learner.refused(&call, asked, exhausted(err))
	return lesson{true, g.learner.blockedFor(now)}, g.changedMind(now)
}

// wake looks, with the queue locked, whether callers may start earlier than they thought.
func (g *Gate) wake(now time.Duration) {
	if g.queue.Len() > 0 {
		g.queue.Advance(now)
		g.queue.Kick()
	}
}

// slowStart records, with the queue locked, that the server throttled a call that left
// at since and asked for a wait of asked, 0 if it set no time; then it counts if it is one of
// many, as far as is known, or surely is. A gate with a rate needs no slow start, one that
// learns decides by itself, and one whose server publishes how fast its limits refill starts as they do
// after a pause.
func (g *Gate) slowStart(now, since, asked time.Duration, surely bool) {
	if asked > 0 && g.limits.refill() {
		return
	}
	if g.rate.Count == 0 && g.learner == nil {
		g.ramp = g.ramp.refuse(now, since, asked, surely)
		g.answersCount.Store(true)
	}
}

// answer is Permit.answer for one gate.
func (g *Gate) answer(p *Permit, outcome adaptive.Outcome) {
	if news := g.noteAnswer(p, outcome); news != nil {
		g.report(*news)
	}
}

// noteAnswer is answer but for the report: it returns the event of a change of mind, or nil.
func (g *Gate) noteAnswer(p *Permit, outcome adaptive.Outcome) (news *Event) {
	g.queue.Lock()
	defer g.queue.Unlock()
	if !p.first(answered) {
		return nil
	}
	now := g.queue.Now()
	call := g.ending(p, now, p.since)
	if g.learner != nil {
		g.learner.ended(&call, adaptive.Reply{Outcome: outcome})
		g.forgetLearned()
	} else {
		g.ramp = g.ramp.answer(p.since, outcome == adaptive.Granted, g.room.places())
	}
	return g.changedMind(now)
}

// ending returns the call of p, which may be nil, that left at since and has ended now. It ends
// the record of the call.
func (g *Gate) ending(p *Permit, now, since time.Duration) ending {
	e := ending{now: now, since: since, n: 1, inFlight: g.room.calls.Calls() - 1}
	if p != nil {
		e.n, e.delta, e.costs, e.actual = p.n, p.delta, p.costs(), p.actual()
		e.charges = g.departures.end(p.departure)
	}
	return e
}

// changedMind is called with the queue locked after something was learned: callers may start
// earlier now. It returns the event of that, to be reported when the queue is unlocked, or nil.
func (g *Gate) changedMind(now time.Duration) (news *Event) {
	news = g.learner.news(g)
	g.answersCount.Store(g.ramp != nil || g.learner != nil)
	g.wake(now)
	return news
}

// failure is the kind of error of an attempt.
type failure int

const (
	plain failure = iota
	throttle
	timeout
	learned // a throttle that the learner of the gate deals with: it spaces calls out itself
	alone   // a throttle of one call for its own sake
	crowd   // an unclear answer, as others got that were in flight at the same time: see payLate
)

// payRetry pays for a retry of a call that left at left. If the budget cannot pay, it
// spaces calls out by at least backoff, and payRetry returns false.
func (g *Gate) payRetry(kind failure, left, backoff time.Duration) bool {
	g.queue.Lock()
	defer g.queue.Unlock()
	now := g.queue.Now()
	cost := retryCost
	switch {
	case kind == learned || kind == alone || kind == crowd:
		cost = 0
	case kind == throttle && g.budget.throttled >= 0 && left < g.budget.throttled+minBackoff:
		// Not "left before": in a bubble calls start, are throttled and pay at one
		// instant, or a nanosecond apart if there is a slow start, and each of 64 paid.
		// No retry comes sooner than minBackoff, so no call is free again and again.
		cost = 0
	case kind == timeout:
		cost = timeoutCost
	}
	g.impaired.Store(true)
	g.endQuiet(now)
	if !g.budget.pay(cost) {
		// This wakes no caller: those that wait see the longer wait when they wake.
		g.budget.empty(backoff)
		return false
	}
	if kind == throttle && cost > 0 {
		g.budget.throttled = now
	}
	return true
}

// payLate pays for the retry, which is about to be made, of a call that failed together with
// others, and reports whether that could be paid for. It is free if some of those were accepted:
// they were a crowd at a server with a limit. That is not known when they fail, because throttled calls
// come sooner than other answers; if each paid then, a crowd of 400 lost all but 20.
func (g *Gate) payLate(left, backoff time.Duration) bool {
	g.queue.Lock()
	grants := g.evidence.Grants()
	g.queue.Unlock()
	return grants || g.payRetry(plain, left, backoff)
}

// knowsLate returns how long after a crowd was throttled it is known whether some of it were accepted.
func (g *Gate) knowsLate() time.Duration {
	g.queue.Lock()
	defer g.queue.Unlock()
	return max(leastLate, 2*g.hold.Mean())
}

// leastLate is for a gate that does not know yet how long calls take.
const leastLate = 100 * time.Millisecond

// endQuiet records, with the queue locked, that a call failed at now.
func (g *Gate) endQuiet(now time.Duration) {
	g.budget = g.budget.at(now)
	g.budget.since = now
	g.budget.note(false)
}

// failed records that a call failed and is not retried.
func (g *Gate) failed() {
	if !g.impaired.Load() {
		return
	}
	g.queue.Lock()
	defer g.queue.Unlock()
	g.endQuiet(g.queue.Now())
}

// answeredWell records that a server that is well has answered a call that left at since: with a
// success, which puts back refund tokens, or with a definite answer, which puts back none: that a
// retry ends so is no reason for more of them. Both halve the spacing. unclear says that the answer
// might have been a throttled call.
func (g *Gate) answeredWell(since time.Duration, refund int, unclear bool) {
	if !g.impaired.Load() { // nothing to mend, as for nearly all calls
		return
	}
	g.queue.Lock()
	defer g.queue.Unlock()
	now := g.queue.Now()
	g.tally.grant(since)
	if !unclear && g.evidence.Granted(now, since) {
		g.forgetWeighed(now)
	}
	b := g.budget.at(now)
	b.refund(refund)
	b.note(true)
	spaced := g.budget.spacing > 0
	if spaced {
		b.halve(g.schedule.Interval())
	}
	g.budget = b
	g.impaired.Store(!b.recovered() || !g.tally.quiet() || !g.evidence.Quiet())
	if spaced {
		// Waiting callers may start earlier now. The release of the permit would wake
		// them, too, but may come much later.
		g.wake(now)
	}
}
