package sluice

import (
	"context"
	"errors"
	"time"

	"github.com/sluice-go/sluice/internal/adaptive"
)

// An answer is that to one call. It may concern several gates: the one through which the call started,
// the one that is adaptive in its place (see kinship), and those in between. An answer tells each of
// them what it is to know; what a gate does about it is the business of its listener. The error and the
// permit of the call, nil if it has none, are no fields: a permit may lie on a stack.
type answer struct {
	through *Gate         // through which the call started
	gate    *Gate         // that is adaptive for it: through, or one above
	since   time.Duration // when it started, by the clock of gate
}

// end ends with err, nil for a success, a call of Gate.Do, which is not retried.
func (a *answer) end(err error, p *Permit) {
	if err == nil {
		a.count(adaptive.Granted, p)
		a.well(firstRefund, false)
		return
	}
	m := a.judge(err)
	if m.throttled != nil {
		a.gate.strayed(a.since, p.of(a.gate))
	}
	a.honor(err, m.throttled, p)
	well := m.definite(err)
	if p != nil || m.throttled == nil {
		a.count(outcomeOf(err, well), p) // before the release, which counts a missing answer as a success
	}
	switch {
	case well:
		a.well(0, m.unclear)
	case !errors.Is(err, context.Canceled):
		a.gate.failed()
	}
}

// A judgement is the meaning of the error of a call.
type judgement struct {
	permanent bool
	throttled *throttledError // nil if the call was not throttled
	unclear   bool            // the error may be a throttled call, and the evidence says that it is none
	failed    bool            // then: it is a failure, not a definite answer
	together  bool            // and the error of calls in flight at the same time
}

// judge returns the meaning of err, with which the call ended: how it was marked, by the function of the call or by
// Config.IsThrottle, and the evidence about a mark that is unclear.
func (a *answer) judge(err error) judgement {
	m := marks(err)
	if m.throttled == nil && a.through.refusedBy != nil {
		if refused, wait := a.through.refusedBy(err); refused {
			j := judgement{permanent: m.permanent}
			errors.As(ThrottledFor(err, wait), &j.throttled)
			return j
		}
	}
	otherwise := judgement{permanent: m.permanent || m.within, throttled: m.throttled}
	if m.throttled != nil || !m.unclear {
		return otherwise
	}
	refused, together := a.gate.weigh(a.since)
	if refused {
		return judgement{permanent: m.permanent, throttled: &throttledError{error: err, at: delayed(err), weighed: true}}
	}
	otherwise.unclear, otherwise.failed, otherwise.together = true, !m.within, together
	return otherwise
}

// definite reports whether err is the answer of a server that is well to a call that is wrong.
func (j *judgement) definite(err error) bool {
	return j.permanent && !j.failed && j.throttled == nil && delayed(err).IsZero() && !isTimeout(err)
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

// count counts an answer that is not throttled, once for each permit, in the slow starts and estimates
// of all gates. If answers count since, one of the calls in flight was throttled, and it matters that
// others were not: of 64 that left freely, without a permit, three of which were throttled, 61 did not
// count.
func (a *answer) count(outcome adaptive.Outcome, p *Permit) {
	if p != nil {
		p.answer(outcome)
		return
	}
	for g := a.through; g != nil; g = g.parent {
		if g.answersCount.Load() {
			g.answeredFree()
		}
	}
}

// honor makes the gates that a throttle concerns honor it, and returns the wait that the server asks
// for, 0 if there is none. It does nothing if throttled, the mark of err, is nil.
func (a *answer) honor(err error, throttled *throttledError, p *Permit) (time.Duration, lesson) {
	own := p.of(a.gate)
	switch {
	case throttled == nil:
		return 0, lesson{}
	case a.through == a.gate:
		return a.gate.honor(err, throttled, a.since, own)
	}
	wait, child := max(0, throttled.wait()), a.through.child()
	if all, asks := a.gate.explains(&a.through.listener, a.since, wait, child.started()); all {
		for ; p != nil && p.gate != nil && p.gate != a.gate; p = p.up { // it says nothing about these
			p.gate.leaveOut(p)
		}
		if !asks || child == a.gate {
			return a.gate.honor(err, throttled, a.since, own)
		}
		child.holdUp(throttled.at, err.Error())
		return wait, a.gate.honorBriefly(err, throttled, a.since, own)
	}
	if own != nil && own.gate != nil {
		a.gate.leaveOut(own)
	}
	return a.through.honor(err, throttled, a.since-a.through.accountAhead, p)
}

// concernsOthers notes that the server throttled the call again, or for the first time, and reports
// whether that concerns other calls. It reports true if they are throttled as well.
func (a *answer) concernsOthers(c *refusedCall, p *Permit) bool {
	return a.gate.concernsOthers(p.of(a.gate), a.since, c, a.through != a.gate)
}

// alone records that the server throttled the call for its own sake.
func (a *answer) alone(p *Permit) { a.gate.refusedAlone(p.of(a.gate), p) }

// well records that a server that is well has answered, see listener.answeredWell.
func (a *answer) well(refund int, unclear bool) {
	if a.through != a.gate {
		a.gate.noteKin(&a.through.listener)
		a.through.answeredWell(a.since-a.through.accountAhead, refund, unclear)
	}
	a.gate.answeredWell(a.since, refund, unclear)
}
