package sluicehttp

import (
	"cmp"
	"context"
	"errors"
	"time"
)

// Overrides change the [Config] for single requests, see [WithOverrides].
type Overrides struct {
	// Key names the gate, in place of Config.Key, except for redirects to another host.
	Key string

	// Cost is the cost of the request for limits that count cost. 0 means 1; negative is an error.
	Cost int64

	// Idempotent means that the request may be sent twice, whatever its method and
	// Config.Idempotent.
	Idempotent bool

	// NoRetry means that the request is never retried.
	NoRetry bool

	// AttemptTimeout replaces the one of Config.Retry. 0 means no other one, negative no timeout.
	AttemptTimeout time.Duration

	// ReleaseAtHeaders is as in Config, such as for an event stream.
	ReleaseAtHeaders bool
}

type overridesKey struct{}

// WithOverrides returns a copy of ctx whose requests have the overrides o. A zero field of o keeps
// the value that ctx has.
func WithOverrides(ctx context.Context, o Overrides) context.Context {
	merged := *overridesOf(ctx)
	merged.Key = cmp.Or(o.Key, merged.Key)
	merged.Cost = cmp.Or(o.Cost, merged.Cost)
	merged.Idempotent = o.Idempotent || merged.Idempotent
	merged.NoRetry = o.NoRetry || merged.NoRetry
	merged.AttemptTimeout = cmp.Or(o.AttemptTimeout, merged.AttemptTimeout)
	merged.ReleaseAtHeaders = o.ReleaseAtHeaders || merged.ReleaseAtHeaders
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

// cost returns the cost of the request, 1 by default.
func (o *Overrides) cost() (int64, error) {
	switch {
	case o.Cost < 0:
		return 0, errors.New("sluicehttp: negative cost")
	case o.Cost == 0:
		return 1, nil
	}
	return o.Cost, nil
}
