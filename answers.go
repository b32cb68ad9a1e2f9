package sluice

import (
	"context"
	"errors"
	"time"

	"github.com/sluice-go/sluice/internal/adaptive"
	"github.com/sluice-go/sluice/internal/sat"
)

// This file has the effects of answers on a gate: pauses, slow starts (see brake.go), its estimates
// (see learner.go), and the retry budget (see retry.go).

// ended applies err, which a call of Do returned, to the gate and returns it. since is
// when the call left and p its permit, nil if it has none.
func (g *Gate) ended(err error, since time.Duration, p *Permit) error {
	in := g.learnsIn()
	since += g.accountAhead
	if err == nil {
		g.answerTo(p, adaptive.Granted)
		in.answeredWellFor(g, since, firstRefund, false)
		return nil
	}
	m := in.judge(err, since, g.refusedBy)
	in.honorFor(g, err, m.throttled, since, p)
	wellAnswered := m.definite(err)
	if p != nil || m.throttled == nil {
		g.answerTo(p, outcomeOf(err, wellAnswered)) // before the release, which counts a missing answer as a success
	}
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
	refused, together, wake := g.memory.weigh(g.sofar(now), since)
	if wake {
		g.wake(now)
	}
	return refused, together
}

// forgetRefusals makes g, whose queue is locked, a gate without a throttled call.
func (g *Gate) forgetRefusals(now time.Duration) {
	g.memory.forgetRefusals()
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
	explained := throttled.explained() && !g.learns()
	if explained {
		g.countThrottled(since, p)
		g.refusedAlone(p)
	} else {
		l = g.throttled(err, since, wait, p, throttled.weighed)
	}
	if wait > 0 {
		g.pauseUntil(at, err.Error(), since, explained)
	}
	return wait, l
}

// learns reports whether g has an estimate already, which has to learn of every throttle, explained or not.
func (g *Gate) learns() bool {
	g.queue.Lock()
	defer g.queue.Unlock()
	return g.learner != nil
}

// countThrottled counts a throttle, of a call of p that left at since, that concerns all calls and teaches
// nothing.
func (g *Gate) countThrottled(since time.Duration, p *Permit) {
	g.queue.Lock()
	defer g.queue.Unlock()
	if p == nil && g.granted == 0 || p != nil && p.done.Load()&answered != 0 { // see noteThrottled
		return
	}
	call := p.ending(g.queue.Now(), since)
	g.memory.count(&call, false)
}

// refusedAlone records that the server throttled a call of p for its own sake, or for a reason that it
// has said: that says nothing about others, and nothing about how long they take.
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
	call := p.ending(now, since)
	if p != nil {
		p.first(denied)
	}
	g.peering.refused(call.n, p)
	if l = g.memory.throttled(g.sofar(now), &call, asked, weighed, exhausted(err)); l.learned {
		news = g.changedMind(now)
	}
	return l, news
}

// wake looks, with the queue locked, whether callers may start earlier than they thought.
func (g *Gate) wake(now time.Duration) {
	if g.queue.Len() > 0 {
		g.queue.Advance(now)
		g.queue.Kick()
	}
}

// answerTo is Permit.answer, also for a call that left without a permit, when no answer counted, and was
// not throttled. If answers count since, one of the calls in flight was throttled, and it matters that
// others were not: of 64 that left freely, three of which were throttled, 61 did not count.
func (g *Gate) answerTo(p *Permit, outcome adaptive.Outcome) {
	if p != nil {
		p.answer(outcome)
		return
	}
	for ; g != nil; g = g.parent {
		if g.answersCount.Load() {
			g.queue.Lock()
			g.memory.answeredFree()
			g.queue.Unlock()
		}
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
	call := p.ending(now, p.since)
	g.memory.answered(&call, outcome)
	return g.changedMind(now)
}

// changedMind is called with the queue locked after something was learned: callers may start
// earlier now. It returns the event of that, to be reported when the queue is unlocked, or nil.
func (g *Gate) changedMind(now time.Duration) (news *Event) {
	if g.observer != nil {
		news = g.learner.news(&g.queue)
	}
	g.answersCount.Store(g.ramp != nil || g.learner != nil)
	g.wake(now)
	return news
}

// payRetry pays for a retry of a call that left at left. If the budget cannot pay, it
// spaces calls out by at least backoff, and payRetry returns false.
func (g *Gate) payRetry(kind failure, left, backoff time.Duration) bool {
	g.queue.Lock()
	defer g.queue.Unlock()
	return g.memory.pay(g.queue.Now(), kind, left, backoff)
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

// failed records that a call failed and is not retried.
func (g *Gate) failed() {
	if !g.impaired.Load() {
		return
	}
	g.queue.Lock()
	defer g.queue.Unlock()
	g.memory.failed(g.queue.Now())
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
	if g.memory.answeredWell(now, since, refund, unclear, g.schedule.Interval()) {
		g.wake(now)
	}
}

// Forget discards all that the gate has learned from throttled calls. Use it if you know that the
// server has changed, or that an incident has ended: estimates also expire, but not immediately.
// The configured rate and concurrency stay, as does a pause, which Resume ends. The gate learns
// nothing more from calls in flight. One with Adaptive.Peers may learn the estimate again from its
// peers.
func (g *Gate) Forget() {
	g.queue.Change(func(now time.Duration) {
		g.memory.forget(g.sofar(now))
	})
}

// opens returns when a gate that learns asks the server again.
func (g *Gate) opens() time.Duration {
	g.queue.Lock()
	defer g.queue.Unlock()
	now := g.queue.Now()
	wait, _ := g.brakes.peek(now, g.room.calls.Calls())
	return sat.Add(now, wait)
}

// leaveOut records that the call of p was throttled because of a limit that is not that of g: here it
// is one call less.
func (g *Gate) leaveOut(p *Permit) {
	g.queue.Lock()
	g.hold.Skip(p.since)
	if p.first(denied) {
		g.elsewhere.add(p.n)
		g.peering.refused(p.n, p)
	}
	g.queue.Unlock()
	if p.departure != 0 || g.answersCount.Load() {
		g.answer(p, adaptive.Elsewhere)
	}
}
