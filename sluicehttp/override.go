package sluicehttp

import (
	"cmp"
	"context"
	"errors"
	"time"
)

// Overrides are what one request wants otherwise than the [Config] says. The
// zero value of a field leaves that as it is.
type Overrides struct {
	// Key names the gate, in place of Config.Key. Redirects to another host
	// do not follow it there.
	Key string

	// Weight is what the request costs those limits that count cost. 0 means
	// 1. It must not be negative.
	Weight int64

	// Idempotent says that the request may be sent twice, whatever its method
	// and Config.Idempotent.
	Idempotent bool

	// Never says that it must not be retried at all.
	NoRetry bool

	// AttemptTimeout replaces that of the policy. Negative means no bound.
	AttemptTimeout time.Duration

	// ReleaseAtHeaders is that of Config, for an answer that is read for long,
	// such as a stream of events.
	ReleaseAtHeaders bool
}

type overridesKey struct{}

// With returns a copy of ctx whose requests have the overrides o. Fields of o that are
// zero keep the value that ctx has, so a middleware that sets one field does not undo
// what its caller has set. A field cannot be set back to zero.
//
//	ctx = sluicehttp.With(ctx, sluicehttp.Overrides{Key: "search", Idempotent: true})
//	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, body)
func With(ctx context.Context, o Overrides) context.Context {
	merged := OverridesFrom(ctx)
	merged.Key = cmp.Or(o.Key, merged.Key)
	merged.Weight = cmp.Or(o.Weight, merged.Weight)
	merged.Idempotent = o.Idempotent || merged.Idempotent
	merged.NoRetry = o.NoRetry || merged.NoRetry
	merged.AttemptTimeout = cmp.Or(o.AttemptTimeout, merged.AttemptTimeout)
	merged.ReleaseAtHeaders = o.ReleaseAtHeaders || merged.ReleaseAtHeaders
	return context.WithValue(ctx, overridesKey{}, &merged)
}

// OverridesFrom returns the overrides that [With] has set in ctx, or the zero Overrides.
func OverridesFrom(ctx context.Context) Overrides {
	return *overridesOf(ctx)
}

var noOverrides = new(Overrides)

// overridesOf returns the overrides of ctx.
func overridesOf(ctx context.Context) *Overrides {
	if o, ok := ctx.Value(overridesKey{}).(*Overrides); ok {
		return o
	}
	return noOverrides
}

// weight returns what the request costs.
func (o *Overrides) weight() (int64, error) {
	switch {
	case o.Weight < 0:
		return 0, errors.New("sluicehttp: negative weight")
	case o.Weight == 0:
		return 1, nil
	}
	return o.Weight, nil
}
