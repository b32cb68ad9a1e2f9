package main

import (
	"context"

	"github.com/failsafe-go/failsafe-go/adaptivelimiter"
)

// failsafeAdaptive is the adaptive limiter of failsafe-go v0.9.8 with its defaults: 20
// calls in flight at the start, at most 200. Callers block in AcquirePermit while the
// limit is reached. As its executor does, it records how long each execution took,
// refused or not; with Permit.Drop for refusals its mean score is half a point lower.
// Retries are those of backoff.
func failsafeAdaptive(p *process) caller {
	l := adaptivelimiter.NewWithDefaults[any]()
	return func(ctx context.Context, w *wish) error {
		for {
			permit, err := l.AcquirePermit(ctx)
			if err != nil {
				return err
			}
			r, err := p.attempt(ctx, w)
			if err != nil {
				permit.Drop()
				return err
			}
			permit.Record()
			if r.outcome == granted {
				return nil
			}
			if err := p.backOff(ctx, w, r); err != nil {
				return err
			}
		}
	}
}
