package leaky

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/sluice-go/sluice/internal/keyed"
)

// A Keyed is one bucket for each key: per user, per host, per user and action.
// A key nobody has asked for has an empty bucket, so there is nothing to
// register.
//
// A bucket that has drained is no different from a new one and is forgotten, by
// calls that come later. A call with a new key examines about five others, seldom
// more than ten, and so does each 32nd, or each fourth while there is anything to
// forget; one that is refused for want of room examines eight more. A bucket that
// still holds anything is never forgotten. Nothing runs in the background; while
// nobody calls, nothing is forgotten. In a steady state about a third as many
// drained buckets as live ones are kept, and their memory is given back when they
// are gone. From 10,000 keys on, one costs 54 to 63 bytes beside what it points
// to: the text of a string is not counted, its header is. A thousand take 90 KB, and
// none 18 KB; with strings for keys 18 KB more. If K is string, texts of up to 15
// bytes are copied: they are found a third faster, and point to nothing.
//
// A key may be asked with different quotas, as CL.THROTTLE allows: see
// [Keyed.TakeQuota].
//
// A Keyed has no snapshot: a restart empties all of its buckets. That suits
// quotas of seconds or minutes. A key whose quota takes a day to drain, such as
// one of a few accounts, is better a [Bucket] of its own, which has one.
//
// A Keyed is safe for use by multiple goroutines, must be made by [NewKeyed]
// and must not be copied. Calls for one key, and for one in 128 others, wait for
// each other for a fraction of a microsecond. It starts no goroutine and needs
// no closing. Made in a testing/synctest bubble, it belongs to that bubble.
//
// Two keys are one if they are equal. A struct of the parts, such as
// struct{ user, action string }, is a safer key than a text made of them: "a:b"
// and "c" look like "a" and "b:c". A K that does not equal itself, such as
// NaN, has a new bucket each time.
type Keyed[K comparable] struct {
	rule atomic.Pointer[rule]
	keys *keyed.Map[K, water]
}

// water is what is known of one key.
type water struct {
	tat time.Duration // when its bucket will be empty, since the epoch of the map

	// depth is that of the quota by which it was last asked. Beyond it the
	// bucket is overdrawn; if the next quota has another, it is requoted.
	depth time.Duration
}

func drained(w water, now time.Duration) bool { return w.tat <= now }

// MostKeys is the largest MaxKeys: so many take more than 24 GB.
const MostKeys = keyed.Most

// KeyedConfig is what [NewKeyed] may be told beside the quota. The zero value
// is usual.
type KeyedConfig struct {
	// MaxKeys is how many keys may be remembered; a new one beyond that is
	// refused with [ErrTooManyKeys], the old ones work on. Drained buckets
	// count until they are forgotten. 0 means [MostKeys].
	MaxKeys int64
}

// NewKeyed returns buckets that each admit what quota says. It returns an
// error where [Quota.Check] does, and if cfg.MaxKeys is negative or more than
// [MostKeys].
func NewKeyed[K comparable](quota Quota, cfg KeyedConfig) (*Keyed[K], error) {
	r, err := quota.rule()
	switch {
	case err != nil:
		return nil, err
	case cfg.MaxKeys < 0:
		return nil, fmt.Errorf("leaky: negative MaxKeys %d", cfg.MaxKeys)
	case cfg.MaxKeys > MostKeys:
		return nil, fmt.Errorf("leaky: MaxKeys %d is more than %d", cfg.MaxKeys, MostKeys)
	case cfg.MaxKeys == 0:
		cfg.MaxKeys = MostKeys
	}
	k := &Keyed[K]{keys: keyed.New[K](cfg.MaxKeys, drained)}
	k.rule.Store(&r)
	return k, nil
}

// Take takes n from the bucket of key, as [Bucket.Take] does. If the key is
// new and there are too many, nothing is taken: Limit of the result is 0 and
// its Err [ErrTooManyKeys]. It panics if n < 0.
func (k *Keyed[K]) Take(key K, n int64) Result {
	return k.take(key, k.rule.Load(), n)
}

// TakeQuota is Take by a quota of the call's own, such as that of the tariff
// the user of this call has. It panics if n < 0 or where [Quota.Check] returns
// an error.
//
// A quota that differs from that of the call before for the same key is a new
// quota for its bucket, as if by [Bucket.SetQuota]: it spills what does not fit.
// To count one call against two quotas use two keys.
func (k *Keyed[K]) TakeQuota(key K, quota Quota, n int64) Result {
	r := mustRule(quota)
	return k.take(key, &r, n)
}

func (k *Keyed[K]) take(key K, r *rule, n int64) Result {
	mustNotBeNegative(n)
	if n == 0 {
		return k.peek(key, r)
	}
	var level, wait time.Duration
	err := k.keys.Update(key, func(w water, now time.Duration) water {
		w = w.by(r, now)
		if level, wait = r.fits(max(0, w.tat-now), n); wait == 0 {
			w.tat = now + level
		}
		return w
	})
	if err != nil {
		return Result{RetryAfter: NoRetry}
	}
	return r.result(level, wait)
}

// by returns w as it is under r, which may be new to it.
func (w water) by(r *rule, now time.Duration) water {
	if w.depth != r.depth {
		if w.depth != 0 { // a key that is not new
			w.tat = requote(w.tat, now, w.depth, r.depth)
		}
		w.depth = r.depth
	}
	return w
}

// Peek returns the bucket of key as it is. It writes nothing, forgets nothing
// and remembers nothing, so for a key that is new to a full Keyed it shows an
// empty bucket.
func (k *Keyed[K]) Peek(key K) Result { return k.peek(key, k.rule.Load()) }

func (k *Keyed[K]) peek(key K, r *rule) Result {
	w, now := k.keys.Get(key)
	res, _ := take(w.by(r, now).tat, now, r, 0)
	return res
}

// Reset empties the bucket of key.
func (k *Keyed[K]) Reset(key K) { k.keys.Delete(key) }

// Len returns how many keys are remembered: those whose buckets hold
// something, and those whose drained buckets nobody has come across yet.
func (k *Keyed[K]) Len() int { return k.keys.Len() }

// Quota returns the quota of calls that bring none.
func (k *Keyed[K]) Quota() Quota { return k.rule.Load().quota }

// SetQuota changes the quota of calls that bring none. Each bucket changes
// when it is next asked, as by [Bucket.SetQuota]. It returns an error and
// changes nothing if the quota is impossible.
func (k *Keyed[K]) SetQuota(quota Quota) error {
	r, err := quota.rule()
	if err != nil {
		return err
	}
	k.rule.Store(&r)
	return nil
}

// On returns the bucket of key as a meter, for a sluice.Gate or sluice.Block.
// It is a small value, takes up nothing in k and never goes stale.
func (k *Keyed[K]) On(key K) KeyedMeter[K] { return KeyedMeter[K]{k, key} }

// A KeyedMeter is one key of a [Keyed], as a sluice.Meter.
type KeyedMeter[K comparable] struct {
	keyed *Keyed[K]
	key   K
}

// Admit takes n from the bucket of the key as [Bucket.Admit] does. If the key
// is new and there are too many, it returns [ErrTooManyKeys].
func (m KeyedMeter[K]) Admit(ctx context.Context, n int64) (wait time.Duration, err error) {
	mustNotBeNegative(n)
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	return m.keyed.Take(m.key, n).admit()
}

// Adjust corrects by delta what was taken, as [Bucket.Adjust] does, at the
// quota of calls that bring none. It returns [ErrTooManyKeys] and changes
// nothing if delta is positive, the key new and there are too many.
func (m KeyedMeter[K]) Adjust(ctx context.Context, delta int64, age time.Duration) error {
	r := m.keyed.rule.Load()
	return m.keyed.keys.Update(m.key, func(w water, now time.Duration) water {
		w = w.by(r, now)
		w.tat = adjust(w.tat, now, r.interval, delta)
		return w
	})
}
