package main

import (
	"context"
	"time"

	"github.com/failsafe-go/failsafe-go"
	"github.com/failsafe-go/failsafe-go/circuitbreaker"
	"github.com/failsafe-go/failsafe-go/retrypolicy"
	"github.com/sony/gobreaker/v2"

	"github.com/sluice-go/sluice"
)

// attemptTimeout is the same for all clients: without it a server that does not answer keeps each
// call until its caller gives up.
const attemptTimeout = 2 * time.Second

// A client is a way to make calls. open is called once for a run.
type client struct {
	name string
	open func() (call func(ctx context.Context, attempt func(ctx context.Context) error) error)
}

var clients = []client{
	{"three retries", func() func(context.Context, func(context.Context) error) error {
		return throughFailsafe(failsafe.With(retries()))
	}},
	{"gobreaker", func() func(context.Context, func(context.Context) error) error {
		b := gobreaker.NewCircuitBreaker[any](gobreaker.Settings{}) // opens after 6 failures in a row, for 60 s
		return func(ctx context.Context, attempt func(context.Context) error) error {
			_, err := b.Execute(func() (any, error) { return nil, attempt(ctx) })
			return err
		}
	}},
	{"gobreaker, 5 s", func() func(context.Context, func(context.Context) error) error {
		b := gobreaker.NewCircuitBreaker[any](gobreaker.Settings{Timeout: 5 * time.Second})
		return func(ctx context.Context, attempt func(context.Context) error) error {
			_, err := b.Execute(func() (any, error) { return nil, attempt(ctx) })
			return err
		}
	}},
	{"failsafe-go, three retries", func() func(context.Context, func(context.Context) error) error {
		return throughFailsafe(failsafe.With(retries(), circuitbreaker.NewWithDefaults[any]())) // opens after 1 failure, for 60 s
	}},
	{"failsafe-go, 6 failures, 5 s, three retries", func() func(context.Context, func(context.Context) error) error {
		b := circuitbreaker.NewBuilder[any]().WithFailureThreshold(6).WithDelay(5 * time.Second).Build()
		return throughFailsafe(failsafe.With(retries(), b))
	}},
	{"sluice.Retry", func() func(context.Context, func(context.Context) error) error {
		return throughGate(sluice.Config{})
	}},
	{"sluice.Retry, no budget", func() func(context.Context, func(context.Context) error) error {
		return throughGate(sluice.Config{RetryBudget: -1})
	}},
}

// retries has the attempts and the backoffs that sluice.Retry has.
func retries() failsafe.Policy[any] {
	return retrypolicy.NewBuilder[any]().WithMaxRetries(3).WithBackoff(500*time.Millisecond, 30*time.Second).WithJitterFactor(.5).Build()
}

func throughFailsafe(e failsafe.Executor[any]) func(context.Context, func(context.Context) error) error {
	return func(ctx context.Context, attempt func(context.Context) error) error {
		return e.WithContext(ctx).Run(func() error { return attempt(ctx) })
	}
}

func throughGate(cfg sluice.Config) func(context.Context, func(context.Context) error) error {
	gate := sluice.Must(sluice.New(cfg))
	return func(ctx context.Context, attempt func(context.Context) error) error {
		return sluice.Retry(ctx, gate, attempt)
	}
}
