package sluiceredis

import (
	"context"
	"time"

	"github.com/sluice-go/sluice/limits"
)

// A Limiter is one key of a [Bucket], a [Sliding] or a [Fixed], as a limit of a gate or
// for sluice.NewQueue. Its methods are those of [limits.Remote].
type Limiter struct {
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

var _ limits.Remote = (*Limiter)(nil)

// Admit takes n and returns 0 if n fit now. Otherwise it takes nothing and returns how
// long until they will, or ErrTooLarge if they never will. Its errors are those of
// [Bucket.Take].
func (l *Limiter) Admit(ctx context.Context, n int64) (wait time.Duration, err error) {
	res, err := l.store.take(ctx, l.of.member(l.key), n)
	if err == nil {
		err = res.Err()
	}
	if err != nil {
		return 0, err
	}
	return res.RetryAfter, nil
}

// Adjust corrects by delta what a call took that was admitted age ago. A positive
// delta takes more, beyond the limit if need be. A negative delta gives back what still
// counts: in a bucket what cannot have leaked yet, which is for −delta intervals; in a
// sliding window the newest units that are as old as age; in a fixed window what was
// admitted in it. If nothing is left to be given back, the error is [ErrStranded].
// Adjust ignores that ctx is done, so that nothing is lost when a caller gives up.
func (l *Limiter) Adjust(ctx context.Context, delta int64, age time.Duration) error {
	all := []correction{{member: l.of.member(l.key), delta: delta, age: age}}
	l.store.adjust(ctx, all)
	return all[0].err
}

// Join returns what decides this limit and the others in one script, all or none. They
// must be limits of one store whose names are the same up to the last slash and whose
// keys are the same, such as "orders/second" and "orders/day"; the key of a [Pacer] is
// "". Otherwise Join returns nil. A gate joins its limits by itself.
func (l *Limiter) Join(others ...limits.Limiter) limits.Joint { return join(l, others) }

func (l *Limiter) asked() (*Store, member) { return l.store, l.of.member(l.key) }

func (l *Limiter) current(m member) bool { return l.of.current(m) }
