package sluice

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/sluice-go/sluice/internal/adaptive"
	"github.com/sluice-go/sluice/internal/defaults"
	"github.com/sluice-go/sluice/internal/errs"
	"github.com/sluice-go/sluice/internal/queue"
	"github.com/sluice-go/sluice/internal/reroute"
	"github.com/sluice-go/sluice/internal/sat"
	"github.com/sluice-go/sluice/internal/sentence"
	"github.com/sluice-go/sluice/limits"
)

// A RetryLoop is the loop of [RetryValue] for callers whose permit outlives the function that got
// it. Most programs need only [RetryValue].
//
// Call Next, make the attempt, call Done, and begin again while Done returns true; release the
// permit of each attempt. It follows the rules of RetryValue, except that
// RetryPolicy.AttemptTimeout limits only attempts made by Try. A RetryLoop is made by
// [NewRetryLoop] for one call, must not be copied once it is in use, and is for one goroutine. It
// may be dropped at any time.
type RetryLoop struct {
	through *Gate // that lets its attempts start
	gate    *Gate // that is adaptive: through, or one above; times are by its clock
	policy  RetryPolicy

	began    time.Duration // first attempt; before the gate was made if that is a later one, see Move
	excused  time.Duration // since then, does not count for MaxElapsed
	left     time.Duration // this attempt
	attempts int           // made so far
	asked    int           // of these, after which the server asked for a wait
	backoff  time.Duration // before this attempt
	wait     time.Duration // after this attempt, 0 if the gate does the waiting
	last     error         // of the attempt before
	charged  bool          // as a retry of an outer loop
	owes     bool          // for the next attempt, see listener.payLate
	permit   *Permit       // of this attempt
	refused  refusedCall   // its refusals by the server
	told     time.Duration // after this attempt, for how long the server wants calls to wait, see letOthers
	place    int           // after this attempt, behind how many of those that wait; 0: all
	came     time.Time     // to the gate that has turned it away; zero if none has

	// MaxElapsed is the default and MaxServerWait longer than its default, so long waits
	// that a server asks for, and for the gate, do not count.
	excuses bool
}

// NewRetryLoop returns the attempts of one call through gate under policy.
func NewRetryLoop(gate *Gate, policy RetryPolicy) RetryLoop {
	p := policy.withDefaults()
	return RetryLoop{
		through: gate, gate: cmp.Or(gate.account, gate), policy: p,
		excuses: policy.MaxElapsed == 0 && p.MaxServerWait > defaults.MaxServerWait,
	}
}

func (a *RetryLoop) mustBeMade() { errs.Made(a.gate != nil, "sluice.RetryLoop", "sluice.NewRetryLoop") }

// Next waits for the backoff, if there is one, and then until the gate admits an attempt of cost n,
// and returns its permit, which must be released. n = 0 takes nothing and does not wait for the
// gate. If the gate rejects the first attempt, Next returns the error of the gate; later, a
// [*RetryError] that matches it. It panics if n < 0.
//
// The permit is in, if there is one: a zero Permit, another for each attempt.
func (a *RetryLoop) Next(ctx context.Context, n int64, in ...*Permit) (*Permit, error) {
	var p *Permit
	if len(in) > 0 {
		p = in[0]
	} else {
		p = new(Permit)
	}
	if err := a.next(ctx, n, p); err != nil {
		return nil, err
	}
	return p, nil
}

// next is Next with the permit p, which stays zero after an error.
func (a *RetryLoop) next(ctx context.Context, n int64, p *Permit) error {
	a.mustBeMade()
	label := p.departure // see reroute.Label
	p.departure = 0
	wait := a.wait
	if !a.owes {
		a.reportRetry(ctx, wait)
	}
	if err := a.sleep(ctx, n); err != nil {
		return err
	}
	if a.owes {
		if a.owes = false; !a.gate.payLate(a.left, a.backoff) {
			return a.stop(ErrBudget, 0)
		}
		a.reportRetry(ctx, wait)
	}
	longest, began := time.Duration(queue.Forever), time.Duration(0)
	if a.attempts > 0 && a.policy.MaxElapsed != limits.Never {
		began = a.gate.queue.Now()
	}
	a.letOthers(ctx)
	if a.attempts > 0 && a.policy.MaxElapsed != limits.Never && !a.excuses {
		longest = a.policy.MaxElapsed - a.elapsed(a.gate.queue.Now())
	}
	r := queue.Request{N: n, Max: longest, Patience: a.policy.MaxServerWait, Label: label}
	switch {
	case a.place > 0:
		r.Refused, r.First = a.place, a.gate.queue.Epoch().Add(a.began)
	case !a.came.IsZero():
		r.Refused, r.First = 1, a.came
	}
	if err := p.acquire(ctx, a.through, &r); err != nil {
		a.gate.passOn(&a.refused)
		if away, ok := errors.AsType[*queue.TurnedAway](err); ok {
			a.turnedAway(away)
			return reroute.ErrTurnedAway
		}
		return a.notAdmitted(err)
	}
	a.came = time.Time{}
	a.permit = p
	if a.left = p.of(a.gate).since; p.gate == nil { // n was 0
		a.left = a.gate.queue.Now()
	}
	if a.attempts++; a.attempts == 1 {
		a.began = a.left
	} else if waited := a.left - began; a.excusable(waited) {
		a.excused += waited
	}
	return nil
}

// notAdmitted returns the error with which the call ends after the gate has refused an attempt
// with err.
func (a *RetryLoop) notAdmitted(err error) error {
	var wait *limits.WaitError
	var paused *pausedError
	switch {
	case errors.As(err, &paused):
		return a.stop(err, sat.Add(a.gate.queue.Now(), paused.left))
	case a.last == nil:
		return err
	case errors.As(err, &wait):
		at := sat.Add(a.gate.queue.Now(), wait.Need)
		switch {
		case a.elapsed(at) <= a.policy.MaxElapsed || a.excuses:
		case wait.For == limits.ByPause:
			err = a.tooLate(wait.Need)
		default:
			cause := sentence.Wait{For: string(wait.For), Why: wait.Why}.Cause()
			err = &elapsedError{wait: wait.Need, cause: cause, elapsed: a.policy.MaxElapsed}
		}
		return a.stop(err, at)
	case errors.Is(err, limits.ErrTimeout):
		return a.stop(ErrElapsed, 0)
	}
	return a.stop(err, 0)
}

// turnedAway keeps when a call came that is turned away, for its place in the next gate.
func (a *RetryLoop) turnedAway(away *queue.TurnedAway) {
	if a.came.IsZero() || away.Came.Before(a.came) {
		a.came = away.Came
	}
	a.place = 0
}

// elapsed returns the time that is charged to MaxElapsed at now.
func (a *RetryLoop) elapsed(now time.Duration) time.Duration { return now - a.began - a.excused }

// excusable reports whether a wait of d, for the gate or because a server asked for it,
// does not count for MaxElapsed.
func (a *RetryLoop) excusable(d time.Duration) bool { return a.excuses && d > defaults.MaxServerWait }

// tooLate returns the error for a wait of d that MaxServerWait allows and that ends
// after MaxElapsed.
func (a *RetryLoop) tooLate(d time.Duration) error {
	return &elapsedError{wait: d, server: true, most: a.policy.MaxServerWait, elapsed: a.policy.MaxElapsed}
}

// Done decides whether to retry an attempt that ended with err, nil for a success. It returns true
// if Next is to be called; the retry is then paid from the budget. Otherwise the call has ended,
// and Done returns nil or the error to return: a [*RetryError], or err itself if that is permanent
// and was the first attempt. Call it before the permit is released, or the next caller may start
// before the pause.
func (a *RetryLoop) Done(ctx context.Context, err error) (again bool, final error) {
	a.mustBeMade()
	if err == nil {
		a.permit.answer(adaptive.Granted)
		if a.refused.n > 0 {
			a.gate.acceptedAgain(&a.refused, a.left)
		}
		refund := retryRefund
		if a.attempts == 1 && !a.charged {
			refund = firstRefund
		}
		a.answer().well(refund, false)
		return false, nil
	}
	if err == reroute.ErrTurnedAway {
		a.retract()
		return true, nil
	}
	final = a.failed(ctx, err)
	return final == nil, final
}

// answer is that to this attempt.
func (a *RetryLoop) answer() *answer {
	return &answer{a.through, a.gate, a.left}
}

// failed is Done for an err that is not nil. It returns nil for another attempt.
func (a *RetryLoop) failed(ctx context.Context, err error) error {
	got := a.answer()
	m := got.judge(err)
	a.last, a.wait, a.place = err, 0, 0
	if m.throttled != nil && !m.permanent {
		if errs.IsAlone(err) {
			a.gate.passOn(&a.refused)
			got.alone(a.permit)
			return a.backOff(ctx, alone, m.throttled.at)
		}
		if !got.concernsOthers(&a.refused, a.permit) {
			return a.refusedAlone(ctx, got, m.throttled)
		}
		a.place = a.refused.n
	} else {
		a.gate.passOn(&a.refused)
	}
	wait, lesson := got.honor(err, m.throttled, a.permit)
	rejected := !m.permanent && m.throttled == nil && ctx.Err() == nil && a.policy.Retryable != nil && !a.policy.Retryable(err)
	if rejected {
		m.permanent = true
	}
	a.permit.answer(outcomeOf(err, m.definite(err)))
	kind := plain
	switch {
	case ctx.Err() != nil:
		return a.stop(ctx.Err(), 0)
	case rejected:
		return a.final(Permanent(err), &m)
	case m.permanent:
		return a.final(err, &m)
	case m.throttled != nil && lesson.blocked > a.policy.MaxServerWait:
		return a.stop(ErrServerWait, a.gate.opens())
	case wait > 0 && lesson.alone:
		return a.backOff(ctx, alone, m.throttled.at)
	case wait > 0:
		a.told = wait
		return a.serverWait(ctx, wait)
	case m.throttled != nil && lesson.learned: // the gate decides when to ask again
		a.asked++
		return a.mayWait(ctx, learned, 0, a.policy.ThrottleBackoff(1, 0, almostOne), limits.ByLearned, false)
	case m.throttled != nil:
		kind = throttle
	case isTimeout(err):
		kind = timeout
	case m.together:
		kind, a.owes = crowd, true
	}
	return a.backOff(ctx, kind, delayed(err))
}

// refusedAlone is failed for a call that the server refuses for its own sake: the refusal counts
// as an attempt, and only this call waits, as long as the server asks. It costs nothing of the
// retry budget: the server is well, and the attempts are bounded. A call that may be accepted soon,
// because of many such calls each is throttled now and then, keeps its attempts, and so does one
// that may have had bad luck.
func (a *RetryLoop) refusedAlone(ctx context.Context, got *answer, throttled *throttledError) error {
	got.alone(a.permit)
	if ctx.Err() != nil {
		return a.stop(ctx.Err(), 0)
	}
	if a.refused.some || a.refused.excused {
		a.asked++
	}
	return a.backOff(ctx, alone, throttled.at)
}

// final returns the error with which the call ends after the permanent err.
func (a *RetryLoop) final(err error, m *judgement) error {
	if m.definite(err) {
		a.answer().well(0, m.unclear)
	} else {
		a.gate.failed()
	}
	if a.attempts == 1 { // there is nothing to add to err
		return err
	}
	return a.stop(ErrPermanent, 0)
}

// Try makes an attempt with f, as [RetryValue] does: it calls f with ctx, bounded by
// RetryPolicy.AttemptTimeout and until permit is lost, and returns the result of Done for its
// error. It does not release permit, which Next returned.
func (a *RetryLoop) Try(ctx context.Context, permit *Permit, f func(ctx context.Context) error) (again bool, final error) {
	a.mustBeMade()
	bounded, stop := permit.watch(ctx)
	defer stop()
	if timeout := a.policy.AttemptTimeout; timeout > 0 {
		var cancel context.CancelFunc
		bounded, cancel = context.WithTimeout(bounded, timeout)
		defer cancel()
	}
	returned := false
	defer func() {
		if !returned { // f has panicked, and the answer of the server is unknown
			permit.answer(adaptive.Unknown)
			a.gate.passOn(&a.refused)
		}
	}()
	err := f(bounded)
	returned = true
	if err != nil && context.Cause(bounded) == limits.ErrLeaseLost {
		err = fmt.Errorf("%w: %w", limits.ErrLeaseLost, err)
	}
	return a.Done(ctx, err)
}

// ChargeRetry, called before the first Next, records that the call is already a retry by an outer
// loop, such as of an SDK, and charges the retry budget. If that is empty, the call proceeds, but
// the gate slows down.
func (a *RetryLoop) ChargeRetry() {
	a.mustBeMade()
	a.charged = true
	a.gate.payRetry(plain, 0, a.policy.Backoff(1, 0, almostOne))
}

// serverWait is called after the server asked for a wait of d, for which the gate is
// paused already.
func (a *RetryLoop) serverWait(ctx context.Context, d time.Duration) error {
	a.asked++
	if d > a.policy.MaxServerWait {
		return a.stop(ErrServerWait, sat.Add(a.gate.queue.Now(), d))
	}
	return a.mayWait(ctx, throttle, d, a.policy.ThrottleBackoff(1, 0, almostOne), limits.ByPause, true)
}

// backOff decides how long to wait before a retry, which must not come before notBefore.
// An empty budget spaces the gate at the backoff and not at that wait, which says nothing
// about other calls.
func (a *RetryLoop) backOff(ctx context.Context, kind failure, notBefore time.Time) error {
	retry := a.attempts - a.asked
	if retry >= a.policy.Attempts {
		a.gate.failed()
		return a.stop(ErrAttempts, 0)
	}
	curve := a.policy.Backoff
	if kind == throttle || kind == alone {
		curve = a.policy.ThrottleBackoff
	}
	retry = max(1, retry) // it is 0 if this one does not count
	worst := max(minBackoff, curve(retry, a.backoff, almostOne))
	a.backoff = max(minBackoff, curve(retry, a.backoff, rand.Float64()))
	if a.wait = a.backoff; kind == crowd {
		a.wait += a.gate.knowsLate()
	}
	asked := time.Duration(0)
	if !notBefore.IsZero() {
		asked = time.Until(notBefore)
	}
	if asked > a.policy.MaxServerWait {
		return a.stop(ErrServerWait, sat.Add(a.gate.queue.Now(), asked))
	}
	if asked <= a.backoff {
		return a.mayWait(ctx, kind, a.wait, worst, limits.ByBackoff, false)
	}
	a.wait = asked
	err := a.mayWait(ctx, kind, a.wait, worst, limits.ByBackoff, true)
	if err == nil && a.excusable(asked) {
		a.excused += asked
	}
	return err
}

// reportRetry counts and reports a retry, if Failed decided on one. It comes here and not in
// Failed because the permit is still held there, and others may wait for it. wait is before it.
func (a *RetryLoop) reportRetry(ctx context.Context, wait time.Duration) {
	if a.last == nil {
		return
	}
	by := a.through
	by.retried.Add(1)
	if a.gate != by {
		a.gate.retried.Add(1)
	}
	if by.observer == nil {
		by = a.gate
	}
	if by.observer != nil {
		if m := marks(a.last); wait == 0 && m.throttled != nil {
			wait = max(0, m.throttled.wait())
		}
		by.report(Event{Kind: EventRetried, Context: ctx, Wait: wait, Attempt: a.attempts, Err: a.last})
	}
}

// sleep waits as backOff decided, before an attempt of cost n.
func (a *RetryLoop) sleep(ctx context.Context, n int64) error {
	if a.wait == 0 {
		return nil
	}
	timer := time.NewTimer(a.wait)
	defer timer.Stop()
	a.wait = 0
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return a.stop(ctx.Err(), 0)
	case <-a.through.life.Done():
		return a.stop(a.through.refuse(ctx, n, limits.ErrClosed), 0)
	}
}

// mayWait pays for the next attempt and returns nil, or the reason why a wait of d before
// it must not begin. If the budget is empty, the gate slows down to one call per worst.
// server reports that the server asked for the wait.
func (a *RetryLoop) mayWait(ctx context.Context, kind failure, d, worst time.Duration, by limits.Cause, server bool) error {
	now := a.gate.queue.Now()
	until := sat.Add(now, d)
	switch {
	case sat.Add(a.elapsed(now), d) <= a.policy.MaxElapsed:
	case server && a.excusable(d) && until != limits.Never: // which no setting allows
	case server:
		return a.stop(a.tooLate(d), until)
	default:
		return a.stop(ErrElapsed, until)
	}
	if deadline, ok := ctx.Deadline(); ok {
		if have := time.Until(deadline); d >= have {
			return a.stop(&limits.WaitError{By: a.through.name, For: by, Need: d, Have: max(0, have), Until: a.gate.queue.Time(until)}, until)
		}
	}
	if !a.gate.payRetry(kind, a.left, worst) {
		return a.stop(ErrBudget, until)
	}
	return nil
}

// stop returns the error with which the call ends. at is when it is worth coming back, 0
// if that is unknown.
func (a *RetryLoop) stop(why error, at time.Duration) error {
	s := &RetryError{Gate: a.through.name, Last: a.last, Why: why, Attempts: a.attempts}
	if a.attempts > 0 {
		s.Elapsed = a.gate.queue.Now() - a.began
	}
	if at > 0 && at != limits.Never {
		s.RetryAt = a.gate.queue.Time(at)
	}
	return s
}

// # Calls that change their gate
//
// Whose limit a refusal is about is found out when calls wait already: those of the route that was
// refused, in the gate of the whole host. They must wait in another gate then, and those that are
// not concerned must not wait behind them. A call that waits has taken nothing, so it is enough to
// end its wait: reroute.TurnAway. It comes back through the other gate, in which it goes before those that
// came later.
//
// The call that was refused is under way. Its answer says nothing about the gate that it has left
// through, except that there is one call less: Move.

// Move makes gate the gate of the next attempts, unless it is that already. Between Next and
// Done, gate is also the one that is paused if this attempt was throttled, and that learns from
// it, unless it has the same adaptive gate as before or no call has started through it yet. The
// gate before learns nothing from it.
func (a *RetryLoop) Move(gate *Gate) {
	if gate == a.through {
		return
	}
	in := gate.account
	if in == a.gate { // which goes on to hear of its answers
		a.through = gate
		return
	}
	behind := a.gate.queue.Epoch().Sub(in.queue.Epoch())
	a.gate.passOn(&a.refused)
	a.began += behind
	a.left = max(0, a.left+behind)
	a.through, a.gate, a.refused, a.place, a.told = gate, in, refusedCall{}, 0, 0
	p := a.permit
	for a.permit = nil; p != nil && p.gate != nil && p.done.Load()&(released|answered) == 0; p = p.up {
		if p.gate == gate { // a parent, whose own permit tells it more
			a.permit, a.left = p, p.of(in).since
			return
		}
		p.gate.leaveOut(p)
	}
}

// retract is Done of an attempt that is not made.
func (a *RetryLoop) retract() {
	if a.permit == nil {
		return
	}
	if p := a.permit; p.gate != nil && p.first(released) {
		p.end(adaptive.Unknown)
	}
	a.permit = nil
	a.attempts = max(0, a.attempts-1)
}
