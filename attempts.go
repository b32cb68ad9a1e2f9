package sluice

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/sluice-go/sluice/internal/queue"
	"github.com/sluice-go/sluice/internal/sat"
	"github.com/sluice-go/sluice/limits"
)

// failure is what kind of error an attempt ended with.
type failure int

const (
	plain failure = iota
	throttle
	timeout
)

// An Attempts is the loop of [RetryValue], for those who must write it themselves
// because the permit outlives the function that got it: an answer that is still
// being read is still in flight. Most programs need only Call.
//
//	a := sluice.NewAttempts(gate, policy)
//	for {
//		permit, err := a.Next(ctx, 1)
//		if err != nil {
//			return nil, err
//		}
//		answer, err := send(ctx)
//		if err == nil {
//			a.Succeeded()
//			return &reader{answer, permit}, nil // which releases it at the end
//		}
//		err = a.Failed(ctx, err)
//		permit.Release()
//		if err != nil {
//			return nil, err
//		}
//	}
//
// It keeps every rule of Call but one: unless they are made by Try, the attempts are
// bounded by RetryPolicy.AttemptTimeout only if their maker sees to it. An Attempts
// is made by [NewAttempts] for one call, must not be copied once it is in use
// and is for one goroutine. It holds nothing: it may be dropped at any time.
type Attempts struct {
	gate   *Gate
	policy RetryPolicy

	began    time.Duration // first attempt, negative before
	excused  time.Duration // since then, does not count for MaxElapsed
	left     time.Duration // this attempt
	attempts int           // made so far
	told     int           // of these, after which the server said when to come back
	backoff  time.Duration // before this attempt
	wait     time.Duration // after this attempt, 0 if the gate does the waiting
	last     error         // of the attempt before
	charged  bool          // as a retry of somebody else
	permit   *Permit       // of this attempt

	// MaxElapsed is the default and MaxServerWait more than its own, so long waits
	// that a server asks for, and for the gate, are excused.
	excuses bool
}

// NewAttempts returns the attempts of one call through gate under policy.
func NewAttempts(gate *Gate, policy RetryPolicy) Attempts {
	p := policy.withDefaults()
	return Attempts{
		gate: gate, policy: p, began: -1,
		excuses: policy.MaxElapsed == 0 && p.MaxServerWait > defaultMaxServerWait,
	}
}

// Next waits for the backoff, if one was decided on, and then for the gate to let
// an attempt of cost n leave, and returns its permit, which must be released.
// n = 0 takes nothing and does not wait for the gate. The first time it returns the
// error of the gate if that refuses, later a [*RetryError] that matches it. It panics if
// n < 0.
func (a *Attempts) Next(ctx context.Context, n int64) (*Permit, error) {
	a.again()
	if err := a.sleep(ctx, n); err != nil {
		return nil, err
	}
	longest, asked := time.Duration(queue.Forever), time.Duration(0)
	if a.began >= 0 && a.policy.MaxElapsed != limits.Never {
		asked = a.gate.queue.Now()
		if !a.excuses {
			longest = a.policy.MaxElapsed - a.elapsed(asked)
		}
	}
	p, err := a.gate.acquire(ctx, queue.Request{N: n, Max: longest, Patience: a.policy.MaxServerWait})
	if err == nil {
		a.permit = p
		if a.left = p.since; p.gate == nil { // n was 0
			a.left = a.gate.queue.Now()
		}
		if a.attempts++; a.began < 0 {
			a.began = a.left
		} else if waited := a.left - asked; a.excusable(waited) {
			a.excused += waited
		}
		return p, nil
	}
	var wait *WaitError
	var paused *pausedError
	switch {
	case errors.As(err, &paused):
		return nil, a.stop(err, sat.Add(a.gate.queue.Now(), paused.left))
	case a.last == nil:
		return nil, err
	case errors.As(err, &wait):
		at := sat.Add(a.gate.queue.Now(), wait.Need)
		switch {
		case a.elapsed(at) <= a.policy.MaxElapsed || a.excuses:
		case wait.For == ByPause:
			err = a.tooLate(wait.Need)
		default:
			err = ErrElapsed
		}
		return nil, a.stop(err, at)
	case errors.Is(err, ErrTimeout):
		return nil, a.stop(ErrElapsed, 0)
	}
	return nil, a.stop(err, 0)
}

// elapsed returns what counts for MaxElapsed at now.
func (a *Attempts) elapsed(now time.Duration) time.Duration { return now - a.began - a.excused }

// excusable reports whether a wait of d that a server asked for, or for the gate, does
// not count for MaxElapsed.
func (a *Attempts) excusable(d time.Duration) bool { return a.excuses && d > defaultMaxServerWait }

// tooLate returns that a wait of d that MaxServerWait allows ends after MaxElapsed.
func (a *Attempts) tooLate(d time.Duration) error {
	return &elapsedError{wait: d, most: a.policy.MaxServerWait, elapsed: a.policy.MaxElapsed}
}

// giveUp ends the wait of a call in a gate that is paused for longer than its
// policy lets a server ask for.
func (r *rule) giveUp(now, patience time.Duration) error {
	if until := r.schedule.Paused(); until > now && until-now > patience {
		return &pausedError{until - now, r.why}
	}
	return nil
}

type pausedError struct {
	left time.Duration // of the pause
	why  string
}

func (e *pausedError) Error() string {
	return "sluice: " + ErrServerWait.Error() + ", the gate is paused: " + e.why
}

func (e *pausedError) Unwrap() error { return ErrServerWait }

// Failed decides what follows the attempt that failed with err. It pauses the
// gate if err is marked with [RetryAfter] or [RetryAt], pays for the retry from
// the budget, and returns nil if Next is to be called; or else the error with which
// to give up, as [RetryValue] does: a [*RetryError], or err if that is permanent and there
// was no other attempt. It does not wait. It must be called before the
// permit is released: if the gate must pause or slow down, that must happen before
// the permit lets the next caller through. It panics if err is nil.
func (a *Attempts) Failed(ctx context.Context, err error) error {
	if err == nil {
		panic("sluice: Attempts.Failed(nil)")
	}
	permanent, throttled := marks(err)
	wait := a.gate.honor(err, throttled, a.left, a.permit)
	a.last, a.wait = err, 0
	rejected := !permanent && throttled == nil && ctx.Err() == nil && a.policy.Retryable != nil && !a.policy.Retryable(err)
	a.permit.answer(definite(err, permanent || rejected, throttled))
	kind := plain
	switch {
	case ctx.Err() != nil:
		return a.stop(ctx.Err(), 0)
	case permanent:
		return a.final(err, throttled)
	case wait > 0:
		return a.toldToWait(ctx, wait)
	case throttled != nil:
		kind = throttle
	case rejected:
		return a.final(Permanent(err), nil)
	case isTimeout(err):
		kind = timeout
	}
	return a.backOff(ctx, kind, delayed(err))
}

// final returns the error with which the call ends after the permanent err.
func (a *Attempts) final(err error, throttled *throttledError) error {
	if definite(err, true, throttled) {
		a.gate.answered()
	} else {
		a.gate.failed()
	}
	if a.attempts == 1 { // nothing was given up, and nothing can be said beside err
		return err
	}
	return a.stop(ErrPermanent, 0)
}

// Try makes an attempt with f, as [RetryValue] does: it calls f with ctx, bounded by
// RetryPolicy.AttemptTimeout and until permit is lost, and then Succeeded or Failed. again reports
// that Next is to be called; otherwise err is nil or the error with which to give
// up. permit, which Next returned, is still held: whatever is to be known before the
// next caller leaves can be noted first.
func (a *Attempts) Try(ctx context.Context, permit *Permit, f func(ctx context.Context) error) (again bool, err error) {
	bounded, stop := permit.watch(ctx)
	defer stop()
	if timeout := a.policy.AttemptTimeout; timeout > 0 {
		var cancel context.CancelFunc
		bounded, cancel = context.WithTimeout(bounded, timeout)
		defer cancel()
	}
	if err = f(bounded); err == nil {
		a.Succeeded()
		return false, nil
	}
	if context.Cause(bounded) == ErrLeaseLost {
		err = fmt.Errorf("%w: %w", ErrLeaseLost, err)
	}
	err = a.Failed(ctx, err)
	return err == nil, err
}

// Succeeded notes that the last attempt succeeded: that fills the budget of the
// gate again.
func (a *Attempts) Succeeded() {
	a.permit.answer(true)
	a.gate.succeeded(a.attempts == 1 && !a.charged)
}

// Charge marks the call as a retry made by a loop outside the gate, such as that of an
// SDK: it is paid for from the budget like a retry. If the budget is empty the call
// goes ahead, because the other loop decided on it, but the gate slows down as after a
// retry that was refused. Charge must be called before the first Next.
func (a *Attempts) Charge() {
	a.charged = true
	a.gate.payRetry(plain, 0, a.policy.Backoff(1, 0, almostOne))
}

// toldToWait is called after the server asked for a wait of d, for which the
// gate is paused already.
func (a *Attempts) toldToWait(ctx context.Context, d time.Duration) error {
	a.told++
	if d > a.policy.MaxServerWait {
		return a.stop(ErrServerWait, sat.Add(a.gate.queue.Now(), d))
	}
	return a.mayWait(ctx, throttle, d, a.policy.Throttled(1, 0, almostOne), ByPause, true)
}

// backOff decides how long to wait before a retry, which must not come earlier
// than notBefore. An empty budget spaces the gate at the backoff and not at that
// wait: it says nothing about other calls.
func (a *Attempts) backOff(ctx context.Context, kind failure, notBefore time.Time) error {
	retry := a.attempts - a.told
	if retry >= a.policy.Attempts {
		a.gate.failed()
		return a.stop(ErrAttempts, 0)
	}
	curve := a.policy.Backoff
	if kind == throttle {
		curve = a.policy.Throttled
	}
	worst := max(minBackoff, curve(retry, a.backoff, almostOne))
	a.backoff = max(minBackoff, curve(retry, a.backoff, rand.Float64()))
	a.wait = a.backoff
	told := time.Duration(0)
	if !notBefore.IsZero() {
		told = time.Until(notBefore)
	}
	if told > a.policy.MaxServerWait {
		return a.stop(ErrServerWait, sat.Add(a.gate.queue.Now(), told))
	}
	if told <= a.backoff {
		return a.mayWait(ctx, kind, a.wait, worst, ByBackoff, false)
	}
	a.wait = told
	err := a.mayWait(ctx, kind, a.wait, worst, ByBackoff, true)
	if err == nil && a.excusable(told) {
		a.excused += told
	}
	return err
}

// again counts a retry and reports it to the observer, if one was decided on. Failed
// decides, but then the permit is still held, and others may wait for it.
func (a *Attempts) again() {
	if a.last == nil {
		return
	}
	a.gate.retried.Add(1)
	if a.gate.observer != nil {
		wait := a.wait
		if _, told := marks(a.last); wait == 0 && told != nil {
			wait = max(0, told.wait())
		}
		a.gate.tell(Event{Kind: EventRetried, Wait: wait, Attempt: a.attempts, Err: a.last})
	}
}

// sleep waits for what backOff decided, before an attempt of cost n.
func (a *Attempts) sleep(ctx context.Context, n int64) error {
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
	case <-a.gate.life.Done():
		return a.stop(a.gate.refuse(n, ErrClosed), 0)
	}
}

// mayWait returns why a wait of d before the next attempt must not begin, or
// nil. If the budget is empty the gate slows down to one call per worst. server says
// that the server asks for the wait.
func (a *Attempts) mayWait(ctx context.Context, kind failure, d, worst time.Duration, by Cause, server bool) error {
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
			return a.stop(&WaitError{By: a.gate.name, For: by, Need: d, Have: max(0, have)}, until)
		}
	}
	if !a.gate.payRetry(kind, a.left, worst) {
		return a.stop(ErrBudget, until)
	}
	return nil
}

// stop returns the error with which the call ends. at is when it is worth
// coming back, 0 if nothing is known.
func (a *Attempts) stop(why error, at time.Duration) error {
	s := &RetryError{Gate: a.gate.name, Last: a.last, Why: why, Attempts: a.attempts}
	if a.began >= 0 {
		s.Elapsed = a.gate.queue.Now() - a.began
	}
	if at > 0 && at != limits.Never {
		s.RetryAt = a.gate.queue.Time(at)
	}
	return s
}

// isTimeout reports whether err is about time: the attempt may still be going
// on at the server. That the context of the call is not done was looked at.
func isTimeout(err error) bool {
	var t interface{ Timeout() bool }
	return errors.Is(err, context.DeadlineExceeded) || errors.As(err, &t) && t.Timeout()
}
