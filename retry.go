package sluice

import (
	"context"
	"math"
	"time"

	"github.com/sluice-go/sluice/limits"
)

// A Policy says when [RetryValue] tries again. It is plain data: one value can serve
// any number of calls at once. The zero Policy is a good one.
type RetryPolicy struct {
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
	//
	// If MaxElapsed is 0 and MaxServerWait is set to more than 5 min, it does not
	// bound the wait for the gate, and a wait of more than 5 min, for the gate or
	// because a server asks for it, does not count. So MaxServerWait alone is enough
	// for a server that asks for an hour. A MaxElapsed that is set counts all waits: if
	// it is shorter than one that MaxServerWait allows, the call stops with ErrElapsed
	// and a message that has both.
	MaxElapsed time.Duration

	// MaxServerWait is the longest wait that a server may ask for. If it asks
	// for more, calls stop at once with ErrServerWait and say when to come
	// back: the call that got the answer, those that wait, and those that come
	// while the pause would still be longer. 0 means 5 min, negative no bound.
	// It does not lengthen a MaxElapsed that is set.
	MaxServerWait time.Duration

	// AttemptTimeout bounds each attempt: its context ends then, and it may
	// be retried. 0 or less means no bound.
	AttemptTimeout time.Duration

	// Retry, if set, reports whether an error is worth another attempt. It is
	// not asked about errors marked with Permanent, RetryAfter or RetryAt.
	// nil means that every other error is.
	Retryable func(err error) bool
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
func (p RetryPolicy) withDefaults() RetryPolicy {
	p.Attempts = orDefault(p.Attempts, defaultAttempts, int(^uint(0)>>1))
	p.MaxElapsed = orDefault(p.MaxElapsed, defaultMaxElapsed, limits.Never)
	p.MaxServerWait = orDefault(p.MaxServerWait, defaultMaxServerWait, limits.Never)
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
// bounded by RetryPolicy.AttemptTimeout.
//
// An error is retried after a backoff, unless it is marked with [Permanent].
// An error marked with [RetryAfter] or [RetryAt] pauses the whole gate for as
// long as the server asks, for all its callers, who are then let through at
// the paced rate; the call itself queues again at once and leaves when the
// pause is over. Such a told wait does not count as an attempt. An error marked
// with [NotBefore] delays only the next attempt of this call.
//
// Retries are paid from the budget of the gate: 100 tokens, of which a retry
// takes 5, one after a timeout 10; a success puts back 1, or 5 after a retry, and
// each 30 s in which no call fails 5. Several calls in flight that are throttled
// together pay once.
//
// When the budget is empty calls are not retried, and first attempts are spaced out
// by as much as the backoff could have been, at most 30 s. Each success halves
// that, and so does each definite answer: an error that is permanent, and neither a
// timeout nor marked with RetryAfter or RetryAt. So do each 30 s in which no call
// fails. Nobody knows how long the spacing lasts, so no call is refused in advance
// because of it: it waits until its deadline.
//
// If it gives up, and it does so before a wait that cannot end in time, Call
// returns the zero T and a [*RetryError] error with the last error, the reason, and
// when to come back. If the first attempt fails with a permanent error, it returns
// that error, marked with [Permanent]. If the gate refuses the first attempt it
// returns the error of the gate. It panics if f does, after releasing the permit.
func RetryValue[T any](ctx context.Context, gate *Gate, policy RetryPolicy, f func(ctx context.Context) (T, error)) (T, error) {
	var zero T
	a := NewAttempts(gate, policy)
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

// Do is [RetryValue] for a function that returns nothing but an error.
func Retry(ctx context.Context, gate *Gate, policy RetryPolicy, f func(ctx context.Context) error) error {
	_, err := RetryValue(ctx, gate, policy, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, f(ctx)
	})
	return err
}

// attempt calls f once. What follows is decided before the permit is released,
// see Attempts.Failed.
func attempt[T any](ctx context.Context, p *Permit, a *Attempts, f func(ctx context.Context) (T, error)) (result T, again bool, err error) {
	defer p.Release()
	again, err = a.Try(ctx, p, func(ctx context.Context) (err error) {
		result, err = f(ctx)
		return err
	})
	return result, again, err
}
