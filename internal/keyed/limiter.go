package keyed

import (
	"context"
	"fmt"
	"time"

	"github.com/sluice-go/sluice/internal/bell"
	"github.com/sluice-go/sluice/internal/kind"
	"github.com/sluice-go/sluice/limits"
)

// MaxKeys returns the number of keys that may be remembered by a limit with cfg.
func MaxKeys(cfg limits.KeyedConfig) (int64, error) {
	switch n := cfg.MaxKeys; {
	case n < 0:
		return 0, fmt.Errorf("negative MaxKeys %d", n)
	case n > Most:
		return 0, fmt.Errorf("MaxKeys %d is more than %d", n, Most)
	case n == 0:
		return Most, nil
	default:
		return n, nil
	}
}

// A Limiter is one key of a limit per key, as a limits.Limiter that notifies. Take panics if n < 0,
// and Change changes the taken amount by delta.
type Limiter[K comparable] struct {
	Key   K
	Of    Source[K]
	Bells *bell.Keyed[K]
}

// A Key is a Limiter of any K. Its state is in its Source, and outlives whatever has the
// Limiter.
type Key interface{ key() }

func (l Limiter[K]) key() {}

// A Source is a limit per key. It must be comparable.
type Source[K comparable] interface {
	Take(key K, n int64) limits.Result
	Change(key K, delta int64, age time.Duration) error
	Forecast(key K) limits.Forecast
}

// Admit implements limits.Limiter.
func (l Limiter[K]) Admit(ctx context.Context, n int64) (wait time.Duration, err error) {
	if err := ctx.Err(); err != nil && n >= 0 {
		return 0, err
	}
	return kind.Admitted(l.Of.Take(l.Key, n))
}

// Adjust implements limits.Limiter.
func (l Limiter[K]) Adjust(ctx context.Context, delta int64, age time.Duration) error {
	err := l.Of.Change(l.Key, delta, age)
	if err == nil && bell.Loud(ctx, delta) {
		l.Bells.Ring(l.Key)
	}
	return err
}

// Forecast makes a limits.Forecast.
func (l Limiter[K]) Forecast() limits.Forecast { return l.Of.Forecast(l.Key) }

// OnChange is for a limits.Limiter.
func (l Limiter[K]) OnChange(f func()) (stop func()) { return l.Bells.Wait(l.Key, f) }
