package sluiceredis

import (
	"context"
	"time"

	"github.com/sluice-go/sluice/limits"
)

// A limiter is one key of a Bucket, a Sliding or a Fixed, as a limit of a gate or for
// sluice.NewQueue.
type limiter struct {
	store *Store
	of    keyed
	key   string
}

// A keyed makes members of its keys.
type keyed interface {
	member(key string) member

	// current reports whether m is how the limit is asked now.
	current(m member) bool
}

var _ limits.Remote = (*limiter)(nil)

// Admit implements limits.Limiter. Its errors are those of Take.
func (l *limiter) Admit(ctx context.Context, n int64) (wait time.Duration, err error) {
	res, err := l.store.take(ctx, l.of.member(l.key), n)
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
	all := []correction{{member: l.of.member(l.key), delta: delta, age: age}}
	l.store.adjust(ctx, all)
	return all[0].err
}

// Join implements limits.Remote.
func (l *limiter) Join(others ...limits.Limiter) limits.Joint { return join(l, others) }

func (l *limiter) asked() (*Store, member) { return l.store, l.of.member(l.key) }

func (l *limiter) current(m member) bool { return l.of.current(m) }
