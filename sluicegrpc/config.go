package sluicegrpc

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"

	"google.golang.org/grpc/codes"

	"github.com/sluice-go/sluice"
)

// Config configures an [Interceptor]. The zero Config retries and honors servers, without a rate or
// limit of its own. Several goroutines may call its functions concurrently.
type Config struct {
	// Gate configures the gate of each key; its Name is the key. All keys share its Parent,
	// Semaphore and Limits.
	Gate sluice.Config

	// Gates, if set, has the gates, and Gate must be zero.
	Gates *sluice.Keyed[string]

	// Key returns the name of the gate for a call; a call with the name "" passes without a gate.
	// nil means one gate for each target. target is in canonical form, such as
	// "dns:///api.example.com:443"; method is such as "/package.Service/Method".
	Key func(ctx context.Context, target, method string) string

	// Claimant, if set, returns on whose behalf a call is made, such as a tenant. The claimants of a
	// key take turns, see [sluice.Claimant]. The gates must have no Semaphore.
	Claimant func(ctx context.Context, target, method string) sluice.Claimant

	// Retry is the policy for retries. Its AttemptTimeout limits the attempts of unary calls and,
	// if the client of a stream sends a single message, the time until it has received the first
	// message or, by Header, the header of the response; other streams have no timeout. Its
	// Retryable is called with the error of an attempt that would be retried otherwise.
	Retry sluice.RetryPolicy

	// Idempotent, if set, reports whether calls of a method may be sent twice, in addition to
	// methods whose descriptor has an idempotency_level.
	Idempotent func(method string) bool

	// Cost, if set, returns the amounts that a call will take of limits that count more than calls,
	// see sluice.Costs. The amount of sluice.Cost is the n of the call, unless Overrides.Cost is
	// set. It is called once for each call, before the queue, with the message that the client sends,
	// nil for streams with several; a negative amount fails the call.
	Cost func(method string, request any) sluice.Costs

	// Usage, if set, writes the actual amounts that it finds in a message of a response into used,
	// where they replace earlier ones. They settle the call when it ends, even if it was cut short,
	// as [sluice.Permit.SettleCosts] does, except those below 0 and above 10⁹. Cost and Usage must
	// not change or keep a message.
	Usage func(method string, message any, used sluice.Costs)

	// AlsoRetry are further codes with which idempotent calls are retried, such as
	// codes.Internal. OK and Canceled are not allowed.
	AlsoRetry []codes.Code
}

// check returns an error unless cfg is valid.
func (cfg *Config) check() error {
	if cfg.Gates != nil && !reflect.ValueOf(cfg.Gate).IsZero() {
		return errors.New("both Gate and Gates")
	}
	if cfg.Claimant != nil && cfg.Gate.Semaphore != nil {
		return errors.New("both a Claimant and a Gate.Semaphore, whose permits calls would hold while they wait")
	}
	for _, code := range cfg.AlsoRetry {
		if code == codes.OK || code == codes.Canceled || code > codes.Unauthenticated {
			return fmt.Errorf("code %v in AlsoRetry cannot be retried", code)
		}
	}
	gate := cfg.Gate
	if gate.Adaptive.Peers != nil {
		gate.Name = "key" // gates have the names of their keys
	}
	_, err := sluice.New(gate) // an error of all gates
	return err
}

// withDefaults returns cfg with defaults, and with copies of slices that the caller may
// change.
func (cfg Config) withDefaults() Config {
	if cfg.Key == nil {
		cfg.Key = func(_ context.Context, target, _ string) string { return target }
	}
	cfg.AlsoRetry = slices.Clone(cfg.AlsoRetry)
	cfg.Gate.Limits = slices.Clone(cfg.Gate.Limits)
	return cfg
}

// ByMethod is a Config.Key for a gate for each method of each target.
func ByMethod(_ context.Context, target, method string) string { return target + method }
