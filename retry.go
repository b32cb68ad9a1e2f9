package sluice

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"github.com/sluice-go/sluice/internal/queue"
	"github.com/sluice-go/sluice/internal/sat"
)

// A Policy says when [Call] tries again. It is plain data: one value can serve
// any number of calls at once. The zero Policy is a good one.
type Policy struct {
	// Attempts is the most attempts, the first included, so retries are one
	// fewer. Attempts after which the server said when to come back do not
	// count. 0 means 4, negative no bound.
	Attempts int

	// Backoff computes the wait before a retry; nil means FullJitter from
	// 500 ms to 30 s. Throttled is used instead after a throttle for which
	// the server did not say how long; nil means FullJitter from 1 s to 30 s.
	// The wait is never shorter than 1 ms.
	Backoff, Throttled Backoff

	// MaxElapsed bounds the retries: none is made later than this after the
	// first attempt began, and none is waited for that would be. Time spent
	// waiting for the gate before the first attempt does not count. 0 means
	// 15 min, negative no bound.
	MaxElapsed time.Duration

	// MaxServerWait is the longest wait that a server may ask for. If it asks
	// for more, calls stop at once with ErrServerWait and say when to come
	// back: those that were told, those that wait, and those that come while
	// the pause would still be longer. 0 means 5 min, negative no bound.
	MaxServerWait time.Duration

	// AttemptTimeout bounds each attempt: its context ends then, and it may
	// be retried. 0 or less means no bound.
	AttemptTimeout time.Duration

	// Retry, if set, reports whether an error is worth another attempt. It is
	// not asked about errors marked with Permanent, RetryAfter or RetryAt.
	// nil means that every other error is.
	Retry func(err error) bool
}

// almostOne is the largest u that a Backoff may be given.
var almostOne = math.Nextafter(1, 0)

const (
	defaultAttempts      = 4
	defaultMaxElapsed    = 15 * time.Minute
	defaultMaxServerWait = 5 * time.Minute
	minBackoff           = time.Millisecond
)

var (
	defaultBackoff   = FullJitter(500*time.Millisecond, 30*time.Second)
	defaultThrottled = FullJitter(time.Second, 30*time.Second)
)

// withDefaults returns p with every field set; what is unbounded is as large
// as can be.
func (p Policy) withDefaults() Policy {
	p.Attempts = orDefault(p.Attempts, defaultAttempts, int(^uint(0)>>1))
	p.MaxElapsed = orDefault(p.MaxElapsed, defaultMaxElapsed, Never)
	p.MaxServerWait = orDefault(p.MaxServerWait, defaultMaxServerWait, Never)
	if p.Backoff == nil {
		p.Backoff = defaultBackoff
	}
	if p.Throttled == nil {
		p.Throttled = defaultThrottled
	}
	return p
}

func orDefault[T int | time.Duration](x, zero, negative T) T {
	switch {
	case x == 0:
		return zero
	case x < 0:
		return negative
	}
	return x
}

// Call calls f through gate until it succeeds, and returns what it returned.
// Every attempt acquires the gate anew, behind everybody who waits by then,
// and holds no permit between attempts. The context of an attempt is ctx,
// bounded by Policy.AttemptTimeout.
//
// An error is retried after a backoff, unless it is marked with [Permanent].
// An error marked with [RetryAfter] or [RetryAt] pauses the whole gate for as
// long as the server asks, for all its callers, who are then let through at
// the paced rate; the call itself queues again at once and leaves when the
// pause is over. Such a told wait does not count as an attempt.
//
// Retries are paid from the budget of the gate: 100 tokens, of which a retry
// takes 5, one after a timeout 10; a success puts back 1, or 5 after a retry.
// Several calls in flight that are throttled together pay once. When the
// budget is empty calls are not retried, and first attempts are spaced out
// until calls succeed again.
//
// If it gives up, and it does so before a wait that cannot end in time, Call
// returns the zero T and a [*Stopped] error that tells the last error, the
// reason, and when to come back. If the gate refuses the first attempt it
// returns the error of the gate. It panics if f does, after releasing the
// permit.
func Call[T any](ctx context.Context, gate *Gate, policy Policy, f func(ctx context.Context) (T, error)) (T, error) {
	var zero T
	r := retrier{gate: gate, policy: policy.withDefaults(), began: -1}
	for {
		permit, err := r.admit(ctx)
		if err != nil {
			return zero, err
		}
		result, again, err := attempt(ctx, permit, &r, f)
		switch {
		case err != nil:
			return zero, err
		case !again:
			gate.succeeded(r.attempts == 1)
			return result, nil
		}
		if err := r.sleep(ctx); err != nil {
			return zero, err
		}
	}
}

// Do is [Call] for a function that returns nothing but an error.
func Do(ctx context.Context, gate *Gate, policy Policy, f func(ctx context.Context) error) error {
	_, err := Call(ctx, gate, policy, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, f(ctx)
	})
	return err
}

// attempt calls f once. What follows a failure is decided before the permit is
// released: if the gate must pause or slow down, the permit must not let the
// next caller out before that.
func attempt[T any](ctx context.Context, p *Permit, r *retrier, f func(ctx context.Context) (T, error)) (result T, again bool, err error) {
	defer p.Release()
	bounded, stop := p.watch(ctx)
	defer stop()
	if timeout := r.policy.AttemptTimeout; timeout > 0 {
		var cancel context.CancelFunc
		bounded, cancel = context.WithTimeout(bounded, timeout)
		defer cancel()
	}
	if result, err = f(bounded); err == nil {
		return result, false, nil
	}
	if context.Cause(bounded) == ErrLeaseLost {
		err = fmt.Errorf("%w: %w", ErrLeaseLost, err)
	}
	p.gate.heed(err)
	err = r.failed(ctx, err)
	return result, err == nil, err
}

// failure is what kind of error an attempt ended with.
type failure int

const (
	plain failure = iota
	throttle
	timeout
)

// A retrier is the state of one Call.
type retrier struct {
	gate   *Gate
	policy Policy

	began    time.Duration // first attempt, negative before
	left     time.Duration // this attempt
	attempts int           // made so far
	told     int           // of these, after which the server said when to come back
	backoff  time.Duration // before this attempt
	wait     time.Duration // after this attempt, 0 if the gate does the waiting
	last     error         // of the attempt before
}

// admit waits for the gate.
func (r *retrier) admit(ctx context.Context) (*Permit, error) {
	longest := time.Duration(queue.Forever)
	if r.began >= 0 && r.policy.MaxElapsed != Never {
		longest = r.policy.MaxElapsed - (r.gate.queue.Now() - r.began)
	}
	p, err := r.gate.acquire(ctx, queue.Request{N: 1, Max: longest, Patience: r.policy.MaxServerWait})
	if err == nil {
		r.left = p.since
		if r.attempts++; r.began < 0 {
			r.began = r.left
		}
		return p, nil
	}
	var wait *WaitError
	var paused *pausedError
	switch {
	case errors.As(err, &paused):
		return nil, r.stop(err, sat.Add(r.gate.queue.Now(), paused.left))
	case r.last == nil:
		return nil, err
	case errors.As(err, &wait):
		at := sat.Add(r.gate.queue.Now(), wait.Need)
		if at-r.began > r.policy.MaxElapsed {
			err = ErrElapsed
		}
		return nil, r.stop(err, at)
	case errors.Is(err, ErrTimeout):
		return nil, r.stop(ErrElapsed, 0)
	}
	return nil, r.stop(err, 0)
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

// failed decides what follows the failure err of an attempt: it returns nil
// when the next attempt may queue, or why there is none.
func (r *retrier) failed(ctx context.Context, err error) error {
	r.last, r.wait = err, 0
	permanent, throttled := marks(err)
	kind := plain
	switch {
	case ctx.Err() != nil:
		return r.stop(ctx.Err(), 0)
	case permanent:
		return r.stop(ErrPermanent, 0)
	case throttled != nil:
		if d := throttled.wait(); d > 0 {
			return r.toldToWait(ctx, d)
		}
		kind = throttle
	case r.policy.Retry != nil && !r.policy.Retry(err):
		return r.stop(ErrPermanent, 0)
	case isTimeout(err):
		kind = timeout
	}
	return r.backOff(ctx, kind)
}

// toldToWait is called after the server asked for a wait of d, for which the
// gate is paused already.
func (r *retrier) toldToWait(ctx context.Context, d time.Duration) error {
	r.told++
	if d > r.policy.MaxServerWait {
		return r.stop(ErrServerWait, sat.Add(r.gate.queue.Now(), d))
	}
	return r.mayWait(ctx, throttle, d, r.policy.Throttled(1, 0, almostOne), ByPause)
}

// backOff decides how long to wait before a retry.
func (r *retrier) backOff(ctx context.Context, kind failure) error {
	retry := r.attempts - r.told
	if retry >= r.policy.Attempts {
		return r.stop(ErrAttempts, 0)
	}
	curve := r.policy.Backoff
	if kind == throttle {
		curve = r.policy.Throttled
	}
	worst := max(minBackoff, curve(retry, r.backoff, almostOne))
	r.backoff = max(minBackoff, curve(retry, r.backoff, rand.Float64()))
	r.wait = r.backoff
	return r.mayWait(ctx, kind, r.backoff, worst, ByBackoff)
}

// sleep waits for what backOff decided.
func (r *retrier) sleep(ctx context.Context) error {
	if r.wait == 0 {
		return nil
	}
	timer := time.NewTimer(r.wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return r.stop(ctx.Err(), 0)
	case <-r.gate.life.Done():
		return r.stop(r.gate.refuse(ErrClosed), 0)
	}
}

// mayWait returns why a wait of d before the next attempt must not begin, or
// nil. If the budget is empty the gate slows down to one call per worst.
func (r *retrier) mayWait(ctx context.Context, kind failure, d, worst time.Duration, by Limit) error {
	now := r.gate.queue.Now()
	until := sat.Add(now, d)
	if sat.Add(now-r.began, d) > r.policy.MaxElapsed {
		return r.stop(ErrElapsed, until)
	}
	if deadline, ok := ctx.Deadline(); ok {
		if have := time.Until(deadline); d >= have {
			return r.stop(&WaitError{By: r.gate.name, For: by, Need: d, Have: max(0, have)}, until)
		}
	}
	if !r.gate.payRetry(kind, r.left, worst) {
		return r.stop(ErrBudget, until)
	}
	return nil
}

// stop returns the error with which the call ends. at is when it is worth
// coming back, 0 if nothing is known.
func (r *retrier) stop(why error, at time.Duration) error {
	s := &Stopped{Gate: r.gate.name, Last: r.last, Why: why, Attempts: r.attempts}
	if r.began >= 0 {
		s.Elapsed = r.gate.queue.Now() - r.began
	}
	if at > 0 && at != Never {
		s.RetryAt = r.gate.queue.Time(at)
	}
	return s
}

// isTimeout reports whether err is about time: the attempt may still be going
// on at the server. That the context of the call is not done was looked at.
func isTimeout(err error) bool {
	var t interface{ Timeout() bool }
	return errors.Is(err, context.DeadlineExceeded) || errors.As(err, &t) && t.Timeout()
}
