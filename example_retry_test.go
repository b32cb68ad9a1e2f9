package sluice_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sluice-go/sluice"
)

// A failed call is retried through the gate.
func ExampleRetryValue() {
	gate, err := sluice.New(sluice.Config{Name: "example.com", Concurrency: 8})
	if err != nil {
		panic(err)
	}
	policy := sluice.RetryPolicy{Backoff: sluice.Constant(time.Millisecond)} // so that the example is fast
	attempts := 0
	name, err := sluice.RetryValue(context.Background(), gate, policy, func(context.Context) (string, error) {
		if attempts++; attempts < 3 {
			return "", errors.New("503 Service Unavailable")
		}
		return "Ada", nil
	})
	fmt.Println(name, err, "after", attempts, "attempts")
	// Output: Ada <nil> after 3 attempts
}

// A server that asks for a longer wait than the policy allows ends the call at once, and
// the waiting calls, too. The error says when to come back.
func ExampleRetryValue_error() {
	gate, err := sluice.New(sluice.Config{Name: "example.com"})
	if err != nil {
		panic(err)
	}
	began := time.Now()
	_, err = sluice.RetryValue(context.Background(), gate, sluice.RetryPolicy{}, func(context.Context) (string, error) {
		return "", sluice.RetryAfter(errors.New("429 Too Many Requests"), time.Hour)
	})
	var stopped *sluice.RetryError
	if errors.As(err, &stopped) {
		fmt.Println("last:", stopped.Last)
		fmt.Println("why:", stopped.Why)
		fmt.Println("come back in", stopped.RetryAt.Sub(began).Round(time.Minute))
	}
	// Output:
	// last: 429 Too Many Requests
	// why: the server asks for too long a wait
	// come back in 1h0m0s
}

// An error that would be the same next time is not retried.
func ExampleRetry() {
	gate, err := sluice.New(sluice.Config{Name: "example.com", Concurrency: 8})
	if err != nil {
		panic(err)
	}
	errNotFound := errors.New("404 Not Found")
	attempts := 0
	err = sluice.Retry(context.Background(), gate, sluice.RetryPolicy{}, func(context.Context) error {
		attempts++
		return sluice.Permanent(errNotFound)
	})
	fmt.Println(attempts, "attempt:", errors.Is(err, sluice.ErrPermanent), errors.Is(err, errNotFound))
	// Output: 1 attempt: true true
}

// A wait that the server asks for holds up all calls of the gate, and does not count as one
// of the attempts.
func ExampleRetryAfter() {
	gate, err := sluice.New(sluice.Config{Name: "example.com", Concurrency: 8})
	if err != nil {
		panic(err)
	}
	const wait = time.Millisecond // from a header Retry-After
	policy := sluice.RetryPolicy{Throttled: sluice.Constant(wait)}
	var refused time.Time
	attempts := 0
	err = sluice.Retry(context.Background(), gate, policy, func(context.Context) error {
		if attempts++; attempts == 1 {
			refused = time.Now()
			return sluice.RetryAfter(errors.New("429 Too Many Requests"), wait)
		}
		fmt.Println("came back too early:", time.Since(refused) < wait)
		return nil
	})
	fmt.Println(attempts, "attempts,", err)
	// Output:
	// came back too early: false
	// 2 attempts, <nil>
}

// A server failed one call and said when to send it again: only that call waits.
func ExampleNotBefore() {
	gate, err := sluice.New(sluice.Config{Name: "example.com", Concurrency: 8})
	if err != nil {
		panic(err)
	}
	const wait = 2 * time.Millisecond // from a header Retry-After
	policy := sluice.RetryPolicy{Backoff: sluice.Constant(time.Millisecond)}
	var notBefore time.Time
	err = sluice.Retry(context.Background(), gate, policy, func(context.Context) error {
		if notBefore.IsZero() {
			notBefore = time.Now().Add(wait)
			return sluice.NotBefore(errors.New("502 Bad Gateway"), notBefore)
		}
		fmt.Println("came back too early:", time.Now().Before(notBefore))
		return nil
	})
	fmt.Println("the gate was paused:", !gate.Stats().PausedUntil.IsZero(), err)
	// Output:
	// came back too early: false
	// the gate was paused: false <nil>
}

// A download is in flight until it has been read, so its permit outlives the
// attempt. Between attempts none is held.
func ExampleAttempts() {
	gate, err := sluice.New(sluice.Config{Name: "example.com", Concurrency: 8})
	if err != nil {
		panic(err)
	}
	ctx := context.Background()
	failures := 2
	open := func() (download string, err error) {
		if failures--; failures >= 0 {
			return "", errors.New("503 Service Unavailable")
		}
		return "a long film", nil
	}

	attempts := sluice.NewAttempts(gate, sluice.RetryPolicy{Backoff: sluice.Constant(time.Millisecond)})
	for {
		permit, err := attempts.Next(ctx, 1)
		if err != nil {
			panic(err)
		}
		download, err := open()
		again, err := attempts.Ended(ctx, err)
		if err == nil && !again {
			fmt.Println("in flight while it is read:", gate.Stats().InFlight)
			fmt.Println("read", download)
			permit.Release()
			break
		}
		permit.Release()
		if err != nil {
			panic(err)
		}
	}
	fmt.Println("in flight:", gate.Stats().InFlight)
	// Output:
	// in flight while it is read: 1
	// read a long film
	// in flight: 0
}
