package sluice

import (
	"context"

	"github.com/sluice-go/sluice/internal/defaults"
)

// RetryValue calls f through gate until it succeeds, and returns its result. More than one policy
// panics. Every attempt acquires the gate again, and no permit is held in between. A call that the
// server has throttled k times waits only behind the first k callers, and behind throttled calls
// that first started before it.
//
// An error is retried after a backoff, unless it is marked with [Permanent]. One marked with
// [ThrottledFor] pauses the gate for all callers, as long as the server requests; afterwards they
// start at the rate. The call queues again immediately, which does not count in
// [RetryPolicy].Attempts. But if it is throttled again and again although the server has accepted
// calls that started later, its attempts count, it alone waits, and the gate learns nothing from
// it. An error marked with [RetryAfter] delays only the next attempt of this call.
//
// Retries are paid from the budget of the gate: see [Config].RetryBudget. While it is empty, calls
// are not retried, and first attempts are spaced out, up to 30 s apart. docs/circuit-breaker.md has
// the numbers.
//
// If RetryValue gives up, it returns the zero T and a [*RetryError]. It does not begin a wait that
// cannot end in time. An error of the first attempt that is marked with Permanent is returned as it
// is, and Permanent of it if RetryPolicy.Retryable returns false; so is the error of a gate that
// rejects the first attempt. If f panics, the permit is released and the panic propagates.
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
