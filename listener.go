package sluice

import (
	"time"

	"github.com/sluice-go/sluice/internal/adaptive"
	"github.com/sluice-go/sluice/internal/errs"
	"github.com/sluice-go/sluice/internal/queue"
	"github.com/sluice-go/sluice/internal/refills"
	"github.com/sluice-go/sluice/internal/sat"
	"github.com/sluice-go/sluice/internal/usedup"
	"github.com/sluice-go/sluice/limits"
)

// A listener is a turnstile that hears how its calls end and does something about it: pauses, slow
// starts (see brake.go), estimates (see learner.go), and the retry budget (see policy.go). What an answer
// means its memory decides; here the queue is locked for that, the callers that may start earlier are
// woken, and events are reported. Which gates an answer concerns is the business of type answer.
type listener struct {
	turnstile
	kin  kinship       // to the gate that is adaptive in its place, whose lock guards it
	held time.Duration // the end of the last pause of kind byDoubt; guarded by the queue's lock
}

// weigh weighs the evidence for an unclear answer to a call that left at since. It reports whether
// the server throttled the call; and if not, whether calls that were in flight at the same time got
// such an answer before.
func (s *listener) weigh(since time.Duration) (refused, together bool) {
	s.queue.Lock()
	defer s.queue.Unlock()
	now := s.queue.Now()
	refused, together, wake := s.memory.weigh(s.sofar(now), since)
	if wake {
		s.wake(now)
	}
	return refused, together
}

// honor pauses the gate if the server asked for a wait. err is the result of the call, throttled
// its mark, since when the call left, and p its permit, nil if it has none. It returns the
// wait, 0 if there is none. The wait is at least 1 ms, like a backoff: it does not use up an
// attempt, so a server that asks for 1 ns would be retried without end. The permit must still be
// held: otherwise the next call would start before the pause.
func (s *listener) honor(err error, throttled *throttledError, since time.Duration, p *Permit) (wait time.Duration, l lesson) {
	return s.honorFor(err, throttled, since, p, limits.Never)
}

// honorFor is honor if the gate is not to pause for longer than most.
func (s *listener) honorFor(err error, throttled *throttledError, since time.Duration, p *Permit, most time.Duration) (wait time.Duration, l lesson) {
	at := throttled.at
	switch wait = max(0, throttled.wait()); {
	case wait > most:
		wait, at = most, time.Now().Add(most)
	case 0 < wait && wait < minBackoff:
		wait, at = minBackoff, time.Now().Add(minBackoff)
	}
	explained := throttled.explained() && !s.learns()
	if explained {
		s.countThrottled(since, p)
		s.refusedAlone(p, p)
	} else {
		l = s.throttled(err, since, wait, p, throttled.weighed)
	}
	if wait > 0 && !l.alone {
		kind := byThrottle
		if explained {
			kind = byWindow
		}
		s.pauseUntil(at, err.Error(), since, kind)
	}
	return wait, l
}

func init() {
	pause := func(kind pauseKind) func(any, time.Time, string) {
		return func(gate any, until time.Time, why string) {
			gate.(*Gate).pauseUntil(until, why, queue.Forever, kind)
		}
	}
	refills.Tell = func(gate any, r adaptive.Refill) { gate.(*Gate).refilled(r) }
	usedup.Pause, usedup.Hold, usedup.Restart = pause(byWindow), pause(byDoubt), pause(byOthers)
}

// A pauseKind is what a pause says of the server, for the slow start after it.
type pauseKind int

const (
	byThrottle pauseKind = iota // it has throttled a call
	byWindow                    // a published window is used up
	byDoubt                     // nothing: it may have throttled a call, see usedup.Hold
	byOthers                    // nothing: other calls have waited, see usedup.Restart
	byChild                     // nothing: it may concern only one child, see kinship
)

// pauseUntil is PauseUntil because of a call that left at since, Forever if there is none.
func (s *listener) pauseUntil(t time.Time, why string, since time.Duration, kind pauseKind) {
	s.queue.Lock()
	until := s.queue.Instant(s.queue.Now(), t)
	longer := s.pausesLonger(until, kind)
	if kind == byWindow && !longer {
		s.memory.ramp.published(true)
	}
	s.queue.Unlock()
	if !longer { // each of the calls in flight may bring such a pause
		return
	}
	var left time.Duration
	s.queue.Change(func(now time.Duration) {
		if s.pausesLonger(until, kind) {
			s.schedule.PauseUntil(max(until, s.schedule.Paused()))
			s.why = why
			if s.held = 0; kind == byDoubt {
				s.held = until
			}
			if left = until - now; left > 0 {
				s.memory.startSlowly(now, since, left, kind)
				s.tally.doubt.tell()
			}
		}
	})
	if left > 0 {
		s.report(Event{Kind: EventPaused, Wait: left, Why: why})
	}
}

// pausesLonger reports whether a pause until then adds to the current one: it is longer, or that one was in doubt
// and was the same. s is locked.
func (s *listener) pausesLonger(until time.Duration, kind pauseKind) bool {
	paused := s.schedule.Paused()
	return until > paused || kind != byDoubt && until == paused && paused == s.held
}

// learns reports whether the gate has an estimate already, which has to learn of every throttle, explained or not.
func (s *listener) learns() bool {
	s.queue.Lock()
	defer s.queue.Unlock()
	return s.learner != nil
}

// countThrottled counts a throttle, of a call of p that left at since, that concerns all calls and teaches
// nothing.
func (s *listener) countThrottled(since time.Duration, p *Permit) {
	s.queue.Lock()
	defer s.queue.Unlock()
	if p == nil && s.granted == 0 || p != nil && p.done.Load()&answered != 0 { // see noteThrottled
		return
	}
	call := p.ending(s.queue.Now(), since)
	s.memory.count(&call, false)
}

// refusedAlone records that the server throttled a call of p for its own sake, or for a reason that it
// has said: that says nothing about others, and nothing about how long they take. own is the permit of this gate
// for it, if there is one: p, or one above.
func (s *listener) refusedAlone(own, p *Permit) {
	s.queue.Lock()
	if own != nil && own.gate != nil {
		s.hold.Skip(own.since)
		own.first(denied)
	}
	s.queue.Unlock()
	p.answer(adaptive.Unknown)
}

// throttled records that the server throttled with err a call that left at since, and asked for
// a wait of asked, 0 if it set no time. weighed says that only the evidence says so.
func (s *listener) throttled(err error, since, asked time.Duration, p *Permit, weighed bool) lesson {
	l, news := s.noteThrottled(err, since, asked, p, weighed)
	if news != nil {
		s.report(*news)
	}
	if l.blocked > 0 { // those that wait may have lost their patience, see admitter.giveUp
		s.queue.Change(func(time.Duration) {})
	}
	return l
}

// noteThrottled is the locked half of throttled. It returns the event of a
// change of mind, or nil.
func (s *listener) noteThrottled(err error, since, asked time.Duration, p *Permit, weighed bool) (l lesson, news *Event) {
	s.queue.Lock()
	defer s.queue.Unlock()
	now := s.queue.Now()
	if p == nil && s.granted == 0 {
		return l, nil // it left through another gate, see RetryLoop.Move: how many the server accepted before is not known
	}
	s.hold.Skip(since)
	if p != nil && !p.first(answered) { // by this error, and not by the release
		return l, nil
	}
	call := p.ending(now, since)
	call.atOnce = errs.IsAtOnce(err)
	if p != nil {
		p.first(denied)
	}
	if s.sharing != nil {
		s.sharing.refused(&call)
	}
	if l = s.memory.throttled(s.sofar(now), &call, asked, weighed, exhausted(err)); l.learned {
		news = s.changedMind(now)
	}
	return l, news
}

// concernsOthers notes that the server throttled the call of p, which left at since, again or for the
// first time, and reports whether that concerns other calls. If it does not, and no other throttle is
// known, the gate forgets its estimate from those of this call. p is nil if the call left
// through another gate. below says that it left through a gate below.
func (s *listener) concernsOthers(p *Permit, since time.Duration, c *refusedCall, below bool) bool {
	s.queue.Lock()
	defer s.queue.Unlock()
	c.costs = p.isCostly()
	c.below = below
	now, others := s.queue.Now(), c.concernsOthers(&s.tally)
	s.countStray(now, since, p)
	if !c.costs && !s.memory.limited() && s.strays.Alone(since) {
		others = false
	}
	if c.n > 0 && p != nil {
		p.first(repeated)
	}
	c.note(now, since, &s.tally, others)
	switch {
	case others || s.learner == nil && s.ramp == nil:
	case s.tally.apart && s.tally.learned > 0 && s.tally.learned <= tallied:
		s.forgetRefusals(now)
		s.search()
	case s.tally.allAreAlone() && !s.adaptive.searches():
		s.forgetRefusals(now)
	}
	return others
}

// strayed counts, for strays, a throttled call of p that left at since and is not retried.
func (s *listener) strayed(since time.Duration, p *Permit) {
	s.queue.Lock()
	defer s.queue.Unlock()
	s.countStray(s.queue.Now(), since, p)
}

// countStray counts, for strays, a call of p that left at since and is throttled now. Where calls cost different amounts,
// a limit throttles the few large ones.
func (s *listener) countStray(now, since time.Duration, p *Permit) {
	if !p.isCostly() {
		s.strays.Add(now, since, s.room.calls.Calls(), s.sofar(now).calls)
	}
}

// acceptedAgain notes that the server accepted a call that it had throttled before, and that left at since.
func (s *listener) acceptedAgain(c *refusedCall, since time.Duration) {
	s.queue.Lock()
	defer s.queue.Unlock()
	if s.impaired.Load() { // else it was not counted among the others either
		s.tally.grantedAgain++
	}
	if c.sure || c.confirmed(&s.tally) { // which was wrong
		s.tally.alone = max(0, s.tally.alone-1)
	}
	s.tally.doubt.heal()
	s.tally.repeated(c, s.queue.Now(), since, false)
}

// explains reports whether a call of child, which left at since by this clock, was throttled as all
// are; and if so, whether others are to be asked about the wait that it was told. started is the number of calls of
// child.
func (s *listener) explains(child *listener, since, wait time.Duration, started uint64) (all, asks bool) {
	s.queue.Lock()
	defer s.queue.Unlock()
	k, t, now := &child.kin, &s.tally, s.queue.Now()
	asks = k.asks(t, now, since, wait, s.granted > started)
	k.refuse(t, now, since)
	learnt := child.answersCount.Load() // its own limit: it still meets that one
	if k.own(t) || learnt && (t.refused == 0 || since > t.burst) {
		return false, false
	}
	k.told++
	return true, asks
}

// started returns the number of calls that have started.
func (s *listener) started() uint64 {
	s.queue.Lock()
	defer s.queue.Unlock()
	return s.granted
}

// holdUp pauses the gate for a wait that may be only for one child. The estimate decides how calls start afterwards.
func (s *listener) holdUp(t time.Time, why string) { s.pauseUntil(t, why, queue.Forever, byChild) }

// honorBriefly is honor for a wait that may be only for one child: others are asked soon. Where throttled calls are
// expensive, only their answers teach.
func (s *listener) honorBriefly(err error, throttled *throttledError, since time.Duration, p *Permit) (l lesson) {
	if !s.adaptive.AvoidThrottling {
		_, l = s.honorFor(err, throttled, since, p, askAfter)
		return l
	}
	s.countThrottled(since, p)
	s.refusedAlone(p, p)
	s.holdUp(time.Now().Add(askAfter), err.Error())
	return l
}

// noteKin notes, if answers are compared, that the server accepted a call of child.
func (s *listener) noteKin(child *listener) {
	if s.impaired.Load() {
		s.queue.Lock()
		child.kin.grant()
		s.queue.Unlock()
	}
}

// leaveOut records that the call of p was throttled because of a limit that is not that of this gate: here it
// is one call less.
func (s *listener) leaveOut(p *Permit) {
	s.queue.Lock()
	s.hold.Skip(p.since)
	if p.first(denied) {
		s.elsewhere.add(p.n)
		call := p.ending(s.queue.Now(), p.since)
		if s.sharing != nil {
			s.sharing.refused(&call)
		}
	}
	s.queue.Unlock()
	if p.departure != 0 || s.answersCount.Load() {
		s.answer(p, adaptive.Elsewhere)
	}
}

// answer is Permit.answer for one gate.
func (s *listener) answer(p *Permit, outcome adaptive.Outcome) {
	if news := s.noteAnswer(p, outcome); news != nil {
		s.report(*news)
	}
}

// answeredFree records the end of a call that left when no answer counted, and was not throttled.
func (s *listener) answeredFree() {
	s.queue.Lock()
	s.memory.answeredFree()
	s.queue.Unlock()
}

// noteAnswer is answer but for the report: it returns the event of a change of mind, or nil.
func (s *listener) noteAnswer(p *Permit, outcome adaptive.Outcome) (news *Event) {
	s.queue.Lock()
	defer s.queue.Unlock()
	if !p.first(answered) {
		return nil
	}
	now := s.queue.Now()
	call := p.ending(now, p.since)
	s.memory.answered(&call, outcome)
	return s.changedMind(now)
}

// changedMind is called with the queue locked after something was learned: callers may start
// earlier now. It returns the event of that, to be reported when the queue is unlocked, or nil.
func (s *listener) changedMind(now time.Duration) (news *Event) {
	if s.observer != nil {
		news = s.learner.news(&s.queue)
	}
	s.answersCount.Store(s.needAnswers())
	s.wake(now)
	return news
}

// forgetRefusals makes the gate, whose queue is locked, one without a throttled call.
func (s *listener) forgetRefusals(now time.Duration) {
	s.memory.forgetRefusals()
	s.wake(now)
}

// answeredWell records that a server that is well has answered a call that left at since: with a
// success, which puts back refund tokens, or with a definite answer, which puts back none: that a
// retry ends so is no reason for more of them. Both halve the spacing. unclear says that the answer
// might have been a throttled call.
func (s *listener) answeredWell(since time.Duration, refund int, unclear bool) {
	if !s.impaired.Load() { // nothing to mend, as for nearly all calls
		return
	}
	s.queue.Lock()
	defer s.queue.Unlock()
	now := s.queue.Now()
	if s.memory.answeredWell(now, since, refund, unclear, s.schedule.Interval()) {
		s.wake(now)
	}
}

// failed records that a call failed and is not retried.
func (s *listener) failed() {
	if !s.impaired.Load() {
		return
	}
	s.queue.Lock()
	defer s.queue.Unlock()
	s.memory.failed(s.queue.Now())
}

// payRetry pays for a retry of a call that left at left. If the budget cannot pay, it
// spaces calls out by at least backoff, and payRetry returns false.
func (s *listener) payRetry(kind failure, left, backoff time.Duration) bool {
	s.queue.Lock()
	defer s.queue.Unlock()
	return s.memory.pay(s.queue.Now(), kind, left, backoff)
}

// payLate pays for the retry, which is about to be made, of a call that failed together with
// others, and reports whether that could be paid for. It is free if some of those were accepted:
// they were a crowd at a server with a limit. That is not known when they fail, because throttled calls
// come sooner than other answers; if each paid then, a crowd of 400 lost all but 20.
func (s *listener) payLate(left, backoff time.Duration) bool {
	s.queue.Lock()
	grants := s.evidence.Grants()
	s.queue.Unlock()
	return grants || s.payRetry(plain, left, backoff)
}

// knowsLate returns how long after a crowd was throttled it is known whether some of it were accepted.
func (s *listener) knowsLate() time.Duration {
	s.queue.Lock()
	defer s.queue.Unlock()
	return max(leastLate, 2*s.hold.Mean())
}

// leastLate is for a gate that does not know yet how long calls take.
const leastLate = 100 * time.Millisecond

// opens returns when a gate that learns asks the server again.
func (s *listener) opens() time.Duration {
	s.queue.Lock()
	defer s.queue.Unlock()
	now := s.queue.Now()
	wait, _ := s.brakes.peek(now, s.room.calls.Calls())
	return sat.Add(now, wait)
}

// refilled notes a finding about a bucket of the server, which counts calls: a gate that learns of other units does not
// use it.
func (s *listener) refilled(r adaptive.Refill) {
	s.queue.Lock()
	var news *Event
	if l := s.learner; l != nil && l.more == nil && l.unit == Calls {
		now := s.queue.Now()
		if l.controller.Refilled(now, r) {
			news = s.changedMind(now)
		}
	}
	s.queue.Unlock()
	if news != nil {
		s.report(*news)
	}
}
