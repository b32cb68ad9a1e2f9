package sluice

import (
	"context"
	"math"
	"time"

	"github.com/sluice-go/sluice/internal/defaults"
	"github.com/sluice-go/sluice/limits"
)

// A RetryPolicy says when [RetryValue] tries again. It is plain data: one value may serve
// any number of calls at once. The zero RetryPolicy is a good one.
type RetryPolicy struct {
	// Attempts is the most attempts, the first included. Attempts that the server
	// throttled do not count, unless it throttles this call and not the others: see
	// RetryValue. 0 means 4, negative no limit.
	Attempts int

	// Backoff computes the wait before a retry; nil means FullJitter from 500 ms
	// to 30 s. ThrottleBackoff is used instead after a throttle, a response that means too
	// many calls (429, 529, 503, about 403), for which the server set no time; nil
	// means FullJitter from 1 s to 30 s. The wait is at least 1 ms.
	Backoff, ThrottleBackoff Backoff

	// MaxElapsed bounds the retries. No retry begins more than MaxElapsed after the
	// first attempt began; the call gives up without waiting for such a retry.
	// Waiting for the gate before the first attempt does not count. 0 means 15 min,
	// negative no bound.
	//
	// If MaxElapsed is 0 and MaxServerWait is more than 5 min, a single wait of more
	// than 5 min does not count, whether it is for the gate or because a server asks
	// for it, and MaxElapsed does not bound the wait for the gate. So MaxServerWait
	// alone is enough for a server that asks for an hour. A MaxElapsed that is set
	// counts all waits: if it is shorter than a wait that MaxServerWait allows, the
	// call stops with ErrElapsed and a message that names both settings.
	MaxElapsed time.Duration

	// MaxServerWait is the longest wait that a server may ask for. If it asks for
	// more, calls stop immediately with ErrServerWait and say when to come back: the call
	// that got the response, those that wait, and those that come while the rest of the
	// pause is longer. They also stop when the server has throttled all calls for longer
	// than this, even if it asked for short waits. 0 means 5 min, negative no bound.
	MaxServerWait time.Duration

	// AttemptTimeout limits each attempt: its context ends then, and it may be
	// retried. 0 or less means no limit (in package sluicehttp 0 means 10 min until the
	// header of the response).
	AttemptTimeout time.Duration

	// Retryable, if set, reports whether an error is worth another attempt. It is not
	// called for errors marked with Permanent, ThrottledFor or ThrottledUntil. If it is nil,
	// all other errors are retried.
	Retryable func(err error) bool
}

// almostOne is the largest u that a Backoff may be given.
var almostOne = math.Nextafter(1, 0)

const (
	defaultAttempts   = 4
	defaultMaxElapsed = 15 * time.Minute
	minBackoff        = time.Millisecond
)

var (
	defaultBackoff   = FullJitter(500*time.Millisecond, 30*time.Second)
	defaultThrottled = FullJitter(time.Second, 30*time.Second)
)

// withDefaults returns p with every field set: no bound is the largest number.
func (p RetryPolicy) withDefaults() RetryPolicy {
	p.Attempts = orDefault(p.Attempts, defaultAttempts, int(^uint(0)>>1))
	p.MaxElapsed = orDefault(p.MaxElapsed, defaultMaxElapsed, limits.Never)
	p.MaxServerWait = orDefault(p.MaxServerWait, defaults.MaxServerWait, limits.Never)
	if p.Backoff == nil {
		p.Backoff = defaultBackoff
	}
	if p.ThrottleBackoff == nil {
		p.ThrottleBackoff = defaultThrottled
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

// RetryValue calls f through gate until it succeeds, and returns its result. Without a policy
// it is the zero RetryPolicy; more than one panics. Every
// attempt acquires the gate again, behind the callers that wait by then, and no permit is
// held between attempts. A call that the server throttles keeps its place instead: after the
// first throttle it waits behind the first caller in line, after the second behind the first
// two, and so on, and there behind throttled calls that first started before it. The context of an attempt is ctx, bounded by
// RetryPolicy.AttemptTimeout.
//
// An error is retried after a backoff, unless it is marked with [Permanent]. An error
// marked with [ThrottledFor] or [ThrottledUntil] pauses the gate for as long as the server asks,
// for all callers, who then leave at the paced rate. The call itself queues again at
// once and leaves when the pause is over; this does not count as one of
// RetryPolicy.Attempts. But if the call is throttled again and again although the server
// has accepted calls that started later, only this call is affected: its attempts count,
// it alone waits, and the gate learns nothing from it. An error marked with [RetryAt]
// delays only the next attempt of this call.
//
// Retries are paid from the budget of the gate: 100 tokens, of which a retry takes 5, or
// 10 after a timeout. A success puts back 1, or 5 after a retry; every 30 s in which no
// call fails put back 5. Calls in flight that are throttled together pay once. While
// the budget is empty, calls are not retried, and first attempts are spaced out by as
// much as the backoff could have been, at most 30 s. Each success halves that spacing,
// and so does each definite answer (an error that is permanent, not a timeout, and not
// marked with ThrottledFor, ThrottledUntil or RetryAt) and every 30 s in which no call fails.
// The spacing does not refuse calls in advance: they wait until their deadline.
//
// If RetryValue gives up, it returns the zero T and a [*RetryError]: the last error, why
// there is no other attempt, and when to come back. It does not begin a wait that cannot
// end in time.
// If the first attempt fails with an error marked with Permanent, it returns that error
// as it is; if RetryPolicy.Retryable returns false for it, it returns Permanent of it. If
// the gate refuses the first attempt, it returns the error of the gate. If f
// panics, the permit is released and the panic propagates.
func RetryValue[T any](ctx context.Context, gate *Gate, f func(ctx context.Context) (T, error), policy ...RetryPolicy) (T, error) {
	var zero T
	a := NewRetryLoop(gate, defaults.Option("sluice.Retry", policy))
	for {
		permit, err := a.Next(ctx, 1)
		if err != nil {
			return zero, err
		}
		result, again, err := attempt(ctx, permit, &a, f)
		if err != nil {
			return zero, err
		}
		if !again {
			return result, nil
		}
	}
}

// Retry is [RetryValue] for a function that returns only an error.
func Retry(ctx context.Context, gate *Gate, f func(ctx context.Context) error, policy ...RetryPolicy) error {
	_, err := RetryValue(ctx, gate, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, f(ctx)
	}, policy...)
	return err
}

// attempt calls f once and releases the permit after RetryLoop.Try.
func attempt[T any](ctx context.Context, p *Permit, a *RetryLoop, f func(ctx context.Context) (T, error)) (result T, again bool, err error) {
	defer p.Release()
	again, err = a.Try(ctx, p, func(ctx context.Context) (err error) {
		result, err = f(ctx)
		return err
	})
	return result, again, err
}
