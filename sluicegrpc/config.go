package sluicegrpc

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"

	"github.com/sluice-go/sluice"
)

// Config configures an [Interceptor]. The zero Config retries and obeys servers, without a
// rate or limit of its own.
type Config struct {
	// Gate configures the gate of each key; its Name is the key. Each key has its own
	// Concurrency and Rate. All keys share its Parent, Semaphore and Limits.
	Gate sluice.Config

	// Gates, if set, has the gates, and Gate must be zero. It is for gates that other
	// calls use as well, that differ by key, or that need a sluice.KeyedConfig.
	Gates *sluice.Keyed[string]

	// Key returns the name of the gate for a call; a call with the name "" passes
	// without a gate. nil means one gate for each target. target is in canonical
	// form, such as "dns:///api.example.com:443"; method is such as
	// "/package.Service/Method". Key may be called by several goroutines at once.
	Key func(ctx context.Context, target, method string) string

	// Retry is the policy for retries. Its AttemptTimeout applies to unary calls only.
	// Its Retryable is called with the error of an attempt that would be retried
	// otherwise, but not for throttles.
	Retry sluice.RetryPolicy

	// Idempotent, if set, reports whether calls of a method may be sent twice, in
	// addition to methods whose descriptor has an idempotency_level. It may be called
	// by several goroutines at once.
	Idempotent func(method string) bool

	// AlsoRetry are further codes with which idempotent calls are retried, such as
	// codes.Internal. OK and Canceled are not allowed.
	AlsoRetry []codes.Code
}

// check returns an error unless cfg is valid.
func (cfg *Config) check() error {
	if cfg.Gates != nil && !reflect.ValueOf(cfg.Gate).IsZero() {
		return errors.New("both Gate and Gates")
	}
	for _, code := range cfg.AlsoRetry {
		if code == codes.OK || code == codes.Canceled || code > codes.Unauthenticated {
			return fmt.Errorf("code %v in AlsoRetry cannot be retried", code)
		}
	}
	_, err := sluice.New(cfg.Gate) // an error of all gates
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

// ByService is a Config.Key for a gate for each service of each target.
func ByService(_ context.Context, target, method string) string {
	return target + method[:max(0, strings.LastIndexByte(method, '/'))]
}

// ByMethod is a Config.Key for a gate for each method of each target.
func ByMethod(_ context.Context, target, method string) string { return target + method }
