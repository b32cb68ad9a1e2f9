package window

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/sluice-go/sluice/internal/bell"
	"github.com/sluice-go/sluice/internal/keyed"
	"github.com/sluice-go/sluice/limits"
)

// KeyedConfig is what [NewKeyedLog] and [NewKeyedCounter] may be told beside
// the quota. The zero value is usual.
type KeyedConfig struct {
	// MaxKeys is how many keys may be remembered; a new one beyond that is
	// refused with [limits.ErrTooManyKeys], the old ones work on. Keys whose windows
	// are empty or over count until they are forgotten. 0 means 2²⁹.
	MaxKeys int64
}

func (cfg KeyedConfig) most() (int64, error) {
	switch {
	case cfg.MaxKeys < 0:
		return 0, fmt.Errorf("window: negative MaxKeys %d", cfg.MaxKeys)
	case cfg.MaxKeys > keyed.Most:
		return 0, fmt.Errorf("window: MaxKeys %d is more than %d", cfg.MaxKeys, keyed.Most)
	case cfg.MaxKeys == 0:
		return keyed.Most, nil
	}
	return cfg.MaxKeys, nil
}

// A KeyedLog is one [Sliding] for each key: per user, per host, per user and
// action. There is nothing to register: a key nobody has asked for has an empty
// log. One that is empty again is forgotten, by calls that come later and each
// examine a few; see leaky.Keyed, which is kept in the same way, for how, and
// for what makes a good key.
//
// A key costs about 130 bytes and 16 for each call in its window, with room to
// grow; those of one instant count once. For many keys with large limits a
// [KeyedFixed] or leaky.Keyed takes far less.
//
// A KeyedLog, as a KeyedCounter, has no snapshot: a restart begins anew. A key
// whose window is a day, such as one of a few accounts, is better a Log or
// [Fixed] of its own, which has one.
//
// A KeyedLog is safe for use by multiple goroutines, must be made by
// [NewKeyedLog] and must not be copied. Made in a testing/synctest bubble, it
// belongs to that bubble.
type KeyedSliding[K comparable] struct {
	window time.Duration
	limit  atomic.Int64
	keys   *keyed.Map[K, *history]
	bells  bell.Keyed[K]
}

// NewKeyedLog returns logs that each admit what quota says. It returns an error
// where [NewLogWith] does, and if cfg.MaxKeys is negative or more than
// 2²⁹.
func NewKeyedSliding[K comparable](quota Quota, cfg KeyedConfig) (*KeyedSliding[K], error) {
	if err := quota.checkLog(); err != nil {
		return nil, err
	}
	most, err := cfg.most()
	if err != nil {
		return nil, err
	}
	k := &KeyedSliding[K]{window: quota.Window}
	k.limit.Store(quota.Limit)
	k.keys = keyed.New[K](most, func(h *history, now time.Duration) bool { return h.idle(now, quota.Window) })
	return k, nil
}

// Take takes n from the log of key, as [Sliding.Take] does. If the key is new and
// there are too many, nothing is taken: Limit of the result is 0 and its Err
// [limits.ErrTooManyKeys]. It panics if n < 0.
func (k *KeyedSliding[K]) Take(key K, n int64) limits.Result { return k.take(key, k.limit.Load(), n) }

// TakeLimit is Take by a limit of the call's own, such as that of the tariff
// the user of this call has. What was taken by other limits counts, too. It
// panics if n < 0 or limit ≤ 0.
func (k *KeyedSliding[K]) TakeLimit(key K, limit, n int64) limits.Result {
	must(checkLimit(limit))
	return k.take(key, limit, n)
}

func (k *KeyedSliding[K]) take(key K, limit, n int64) (res limits.Result) {
	mustNotBeNegative(n)
	err := k.update(key, func(h *history, now time.Duration) {
		res = h.take(now, rule{limit, k.window}, n)
	})
	if err != nil {
		return limits.Result{RetryAfter: limits.Never}
	}
	return res
}

// update calls f with the history of key.
func (k *KeyedSliding[K]) update(key K, f func(h *history, now time.Duration)) error {
	return k.keys.Update(key, func(h *history, now time.Duration) *history {
		if h == nil {
			h = new(history)
		}
		f(h, now)
		return h
	})
}

// Peek returns the log of key as it is, and does not remember key.
func (k *KeyedSliding[K]) Peek(key K) limits.Result { return k.Take(key, 0) }

// Reset forgets key.
func (k *KeyedSliding[K]) Reset(key K) {
	k.keys.Delete(key)
	k.bells.Ring(key)
}

// Len returns how many keys are remembered: those with calls in the window, and
// those without that nobody has come across yet.
func (k *KeyedSliding[K]) Len() int { return k.keys.Len() }

// Quota returns the quota of calls that bring no limit.
func (k *KeyedSliding[K]) Quota() Quota { return Quota{Limit: k.limit.Load(), Window: k.window} }

// SetLimit changes the limit of calls that bring none; the window remains. It
// returns an error and changes nothing if limit is not positive.
func (k *KeyedSliding[K]) SetLimit(limit int64) error {
	if err := checkLimit(limit); err != nil {
		return err
	}
	k.limit.Store(limit)
	k.bells.RingAll()
	return nil
}

// On returns the log of key as a meter, for a sluice.Gate or sluice.NewQueue. It
// is a small value, takes up nothing in k and never goes stale.
func (k *KeyedSliding[K]) On(key K) KeyedLimiter[K] { return KeyedLimiter[K]{k, key, &k.bells} }

func (k *KeyedSliding[K]) adjust(key K, delta int64, age time.Duration) error {
	return k.update(key, func(h *history, now time.Duration) {
		h.adjust(now, rule{k.limit.Load(), k.window}, delta, age)
	})
}

// A KeyedCounter is one [Fixed] for each key. It is to a Counter what
// [KeyedSliding] is to a [Sliding], but a key costs about 85 bytes beside what it points
// to, whatever the limit.
//
// A key is forgotten once its window is over. With a calendar it is kept, beyond
// that, until its window has been in force for as long as it is long, so that
// putting the clock back does not bring its allowance back.
type KeyedFixed[K comparable] struct {
	quota Quota // but for the limit
	limit atomic.Int64
	keys  *keyed.Map[K, fixed]
	bells bell.Keyed[K]
}

// NewKeyedCounter returns counters that each admit what quota says. It returns
// an error where [Quota.Check] does, and if cfg.MaxKeys is negative or more than
// 2²⁹.
func NewKeyedFixed[K comparable](quota Quota, cfg KeyedConfig) (*KeyedFixed[K], error) {
	if err := quota.Check(); err != nil {
		return nil, err
	}
	most, err := cfg.most()
	if err != nil {
		return nil, err
	}
	k := &KeyedFixed[K]{quota: quota}
	k.limit.Store(quota.Limit)
	k.keys = keyed.New[K](most, func(f fixed, now time.Duration) bool { return f.idle(now, &k.quota) })
	return k, nil
}

// idle reports whether f is, at now, no different from a new one, and will
// remain so if the clock is put back.
func (f fixed) idle(now time.Duration, q *Quota) bool {
	if q.Calendar == 0 {
		return f.over(now, 0, q)
	}
	return now-f.from >= f.length() && f.over(now, q.wall(), q)
}

// wall returns Unix time if q needs it.
func (q *Quota) wall() int64 {
	if q.Calendar == 0 {
		return 0
	}
	return time.Now().UnixNano()
}

// Take takes n from the counter of key, as [Fixed.Take] does. If the key is
// new and there are too many, nothing is taken: Limit of the result is 0 and its
// Err [limits.ErrTooManyKeys]. It panics if n < 0.
func (k *KeyedFixed[K]) Take(key K, n int64) limits.Result { return k.take(key, k.limit.Load(), n) }

// TakeLimit is Take by a limit of the call's own, such as that of the tariff
// the user of this call has. What was taken by other limits counts, too. It
// panics if n < 0 or limit ≤ 0.
func (k *KeyedFixed[K]) TakeLimit(key K, limit, n int64) limits.Result {
	must(checkLimit(limit))
	return k.take(key, limit, n)
}

func (k *KeyedFixed[K]) take(key K, limit, n int64) (res limits.Result) {
	mustNotBeNegative(n)
	err := k.keys.Update(key, func(f fixed, now time.Duration) fixed {
		res = f.take(now, k.quota.wall(), &k.quota, limit, n)
		return f
	})
	if err != nil {
		return limits.Result{RetryAfter: limits.Never}
	}
	return res
}

// Peek returns the counter of key as it is, and does not remember key.
func (k *KeyedFixed[K]) Peek(key K) limits.Result { return k.Take(key, 0) }

// Reset forgets key.
func (k *KeyedFixed[K]) Reset(key K) {
	k.keys.Delete(key)
	k.bells.Ring(key)
}

// Len returns how many keys are remembered.
func (k *KeyedFixed[K]) Len() int { return k.keys.Len() }

// Quota returns the quota of calls that bring no limit.
func (k *KeyedFixed[K]) Quota() Quota {
	q := k.quota
	q.Limit = k.limit.Load()
	return q
}

// SetLimit changes the limit of calls that bring none. It returns an error and
// changes nothing if limit is not positive.
func (k *KeyedFixed[K]) SetLimit(limit int64) error {
	if err := checkLimit(limit); err != nil {
		return err
	}
	k.limit.Store(limit)
	k.bells.RingAll()
	return nil
}

// On returns the counter of key as a meter, for a sluice.Gate or sluice.NewQueue.
// It is a small value, takes up nothing in k and never goes stale.
func (k *KeyedFixed[K]) On(key K) KeyedLimiter[K] { return KeyedLimiter[K]{k, key, &k.bells} }

func (k *KeyedFixed[K]) adjust(key K, delta int64, age time.Duration) error {
	return k.keys.Update(key, func(f fixed, now time.Duration) fixed {
		f.adjust(now, k.quota.wall(), &k.quota, delta, age)
		return f
	})
}

// A KeyedMeter is one key of a [KeyedSliding] or [KeyedFixed], as a limits.Limiter.
type KeyedLimiter[K comparable] struct {
	of interface {
		Take(key K, n int64) limits.Result
		adjust(key K, delta int64, age time.Duration) error
	}
	key   K
	bells *bell.Keyed[K]
}

// Admit takes n for the key as [Sliding.Admit] or [Fixed.Admit] does. If the key
// is new and there are too many, it returns [limits.ErrTooManyKeys]. It panics if n < 0.
func (m KeyedLimiter[K]) Admit(ctx context.Context, n int64) (wait time.Duration, err error) {
	mustNotBeNegative(n)
	return admit(ctx, n, func(n int64) limits.Result { return m.of.Take(m.key, n) })
}

// Adjust corrects by delta what was taken, as [Sliding.Adjust] or [Fixed.Adjust]
// does. It returns [limits.ErrTooManyKeys] and changes nothing if delta is positive,
// the key new and there are too many.
func (m KeyedLimiter[K]) Adjust(ctx context.Context, delta int64, age time.Duration) error {
	err := m.of.adjust(m.key, delta, age)
	if err == nil && bell.Loud(ctx, delta) {
		m.bells.Ring(m.key)
	}
	return err
}

// OnChange is that of [Sliding] and [Fixed], for the key.
func (m KeyedLimiter[K]) OnChange(f func()) (stop func()) { return m.bells.Wait(m.key, f) }
