package sluicegrpc

import (
	"cmp"
	"context"
	"time"
)

// Overrides change the [Config] for single calls, see [WithOverrides].
type Overrides struct {
	// Key names the gate, in place of Config.Key.
	Key string

	// Cost is the cost of the call for limits that count cost. 0 means 1. With a negative Cost the
	// call fails.
	Cost int64

	// Idempotent means that the call may be sent twice.
	Idempotent bool

	// NoRetry means that the call is never retried.
	NoRetry bool

	// AttemptTimeout replaces the one of Config.Retry, such as for a stream whose first message
	// takes long. 0 means no other one, negative no timeout.
	AttemptTimeout time.Duration
}

type overridesKey struct{}

// WithOverrides returns a copy of ctx whose calls have the overrides o. A zero field of o keeps the
// value that ctx has.
func WithOverrides(ctx context.Context, o Overrides) context.Context {
	merged := *overridesOf(ctx)
	merged.Key = cmp.Or(o.Key, merged.Key)
	merged.Cost = cmp.Or(o.Cost, merged.Cost)
	merged.Idempotent = o.Idempotent || merged.Idempotent
	merged.NoRetry = o.NoRetry || merged.NoRetry
	merged.AttemptTimeout = cmp.Or(o.AttemptTimeout, merged.AttemptTimeout)
	return context.WithValue(ctx, overridesKey{}, &merged)
}

var noOverrides = new(Overrides)

// overridesOf returns the overrides of ctx.
func overridesOf(ctx context.Context) *Overrides {
	if o, ok := ctx.Value(overridesKey{}).(*Overrides); ok {
		return o
	}
	return noOverrides
}
