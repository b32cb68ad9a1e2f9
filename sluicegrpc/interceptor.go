package sluicegrpc

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"

	"google.golang.org/grpc"

	"github.com/sluice-go/sluice"
)

// An Interceptor sends the calls of gRPC clients through gates. It must be made by [New] and is
// safe for use by multiple goroutines. Its only goroutines are for permits that a Semaphore leased,
// and end with the call.
type Interceptor struct {
	cfg    Config
	policy sluice.RetryPolicy // without Retryable, which judge calls
	gates  *sluice.Keyed[string]
	recent atomic.Pointer[target] // most programs have one
	closed atomic.Bool
}

// A target is the canonical one of a connection.
type target struct {
	of        *grpc.ClientConn // which targets as given do not tell apart: grpc.Dial has another default scheme
	canonical string
}

// New returns an Interceptor. It returns an error for a Gate that [sluice.New] rejects, both
// Gate and Gates, or a code of AlsoRetry that is OK, Canceled or unknown.
func New(cfg Config) (*Interceptor, error) {
	if err := cfg.check(); err != nil {
		return nil, fmt.Errorf("sluicegrpc: %w", err)
	}
	i := &Interceptor{cfg: cfg.withDefaults(), policy: cfg.Retry, gates: cfg.Gates}
	i.policy.Retryable = nil
	if i.gates != nil {
		return i, nil
	}
	var err error
	i.gates, err = sluice.NewKeyed(func(key string) (*sluice.Gate, error) {
		cfg := i.cfg.Gate
		cfg.Name = key
		return sluice.New(cfg)
	})
	return i, err
}

// mustBeMade panics if New did not make i.
func (i *Interceptor) mustBeMade() {
	if i.gates == nil {
		panic("sluice: the zero sluicegrpc.Interceptor cannot be used: sluicegrpc.New makes one")
	}
}

// Gates returns the gates: for package observe, or to pause one manually.
func (i *Interceptor) Gates() *sluice.Keyed[string] { return i.gates }

// Shutdown closes all gates, also those of Config.Gates, and waits until nothing is in flight:
// calls that wait or come later fail with [limits.ErrClosed] and the code Canceled. If ctx is done
// first, it returns ctx.Err(). An Interceptor need not be shut down.
func (i *Interceptor) Shutdown(ctx context.Context) error {
	i.mustBeMade()
	i.closed.Store(true)
	var keys []string
	i.gates.Stats(func(key string, _ sluice.Stats) bool {
		keys = append(keys, key)
		return true
	})
	for _, key := range keys {
		// The error means that the gate has been evicted.
		_ = i.gates.Use(key, func(gate *sluice.Gate) error { gate.Close(); return nil })
	}
	for _, key := range keys {
		var err error
		_ = i.gates.Use(key, func(gate *sluice.Gate) error { err = gate.Shutdown(ctx); return nil })
		if err != nil {
			return err
		}
	}
	return nil
}

// canonical returns the canonical target of cc, "" if that is nil.
func (i *Interceptor) canonical(cc *grpc.ClientConn) string {
	if cc == nil {
		return ""
	}
	t := i.recent.Load()
	if t == nil || t.of != cc {
		t = &target{cc, cc.CanonicalTarget()}
		i.recent.Store(t)
	}
	return t.canonical
}

// passes reports whether a method is about the state of the server, which must be visible
// also while calls have to wait.
func passes(method string) bool {
	return strings.HasPrefix(method, "/grpc.health.") || strings.HasPrefix(method, "/grpc.reflection.")
}
