package sluiceredis

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/sluice-go/sluice/limits"
	"github.com/sluice-go/sluice/sluiceredis/internal/kinds"
)

// limiters are the common part of [Bucket] and [Counter]: a limiter for each key.
type limiters struct {
	store      *Store
	head, tail string // of the keys in Redis, see Store.key
	limit      atomic.Pointer[limit]
}

func (l *limiters) init(s *Store, format, name string, rule kinds.Rule, away OutagePolicy) error {
	if !away.valid() {
		return fmt.Errorf("sluiceredis: no such policy: %v", away)
	}
	l.store, l.head, l.tail = s, s.head(format, name), tail(name, "")
	l.limit.Store(newLimit(rule, s.honor(away)))
	return nil
}

func (l *limiters) at(key string) spot {
	return spot{l.limit.Load(), l.head + escape(key) + l.tail}
}

// Take takes n from the limit of key if n fit now. Otherwise it changes nothing, and the result
// says when they will; its Err is [limits.ErrTooLarge] if never. n = 0 is always allowed. The error
// matches [ErrOutage] if the [OutagePolicy] rejects the call. If ctx ends during the call, its error
// is returned and the units are refunded. Take panics if n < 0.
func (l *limiters) Take(ctx context.Context, key string, n int64) (limits.Result, error) {
	return l.store.take(ctx, l.at(key), n)
}

// On returns the limit of key, for a gate. Its Adjust fails if all units have leaked or left the
// window.
func (l *limiters) On(key string) limits.Remote { return l.on(key) }

func (l *limiters) on(key string) *limiter { return &limiter{l, l.at(key).key} }

// A limiter is one key of a Bucket or a Counter, as a limit of a gate.
type limiter struct {
	of  *limiters
	key string // in Redis
}

func (l *limiter) at() spot { return spot{l.of.limit.Load(), l.key} }

var _ limits.Remote = (*limiter)(nil)

// Admit implements limits.Limiter. It returns the errors of Take.
func (l *limiter) Admit(ctx context.Context, n int64) (wait time.Duration, err error) {
	res, err := l.of.store.take(ctx, l.at(), n)
	if err == nil {
		err = res.Err()
	}
	if err != nil {
		return 0, err
	}
	return res.RetryAfter, nil
}

// Adjust implements limits.Limiter. It ignores that ctx is done, so that nothing is lost
// when a caller gives up.
func (l *limiter) Adjust(ctx context.Context, delta int64, age time.Duration) error {
	all := []correction{{spot: l.at(), delta: delta, age: age}}
	l.of.store.adjust(ctx, all)
	return all[0].err
}

// Join implements limits.Remote.
func (l *limiter) Join(others ...limits.Limiter) limits.Joint { return join(l, others) }

func (l *limiter) asked() (*Store, spot) { return l.of.store, l.at() }
