package leaky

import (
	"context"
	"fmt"
	"math"
	"sync/atomic"
	"time"

	"github.com/sluice-go/sluice/internal/bell"
	"github.com/sluice-go/sluice/internal/buckets"
	"github.com/sluice-go/sluice/internal/keyed"
	"github.com/sluice-go/sluice/internal/sat"
	"github.com/sluice-go/sluice/limits"
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
	rule  atomic.Pointer[rule]
	keys  *keyed.Map[K, water]
	rests atomic.Pointer[keyed.Map[K, others]] // nil until a key has been asked by two quotas
	wide  wide
	bells bell.Keyed[K]
}

// water is what is known of one key: the bucket of the quota by which it was last
// asked. That of other quotas is in Keyed.rests.
type water struct {
	tat   time.Duration // when its bucket will be empty, since the epoch of the map
	quota packed        // 0: a new key
}

func drained(w water, now time.Duration) bool { return w.tat <= now }

// others is the bucket of the other quotas of a key, and by which quota the key was
// last asked: its water may be forgotten before, because it has drained. That is not to
// say that the quota is asked for the first time, which would find what others hold.
type others struct {
	water
	last packed
}

func (o others) drained(now time.Duration) bool { return drained(o.water, now) }

// KeyedConfig configures a [Keyed]. The zero value is usual.
type KeyedConfig struct {
	// MaxKeys is how many keys may be remembered; a new one beyond that is
	// refused with [limits.ErrTooManyKeys], the old ones work on. Drained buckets
	// count until they are forgotten. 0 means 2²⁹.
	MaxKeys int64
}

// NewKeyed returns buckets that each admit what quota says. It returns an
// error where [Quota.Check] does, and if cfg.MaxKeys is negative or more than
// 2²⁹.
func NewKeyed[K comparable](quota Quota, cfg KeyedConfig) (*Keyed[K], error) {
	r, err := quota.rule()
	switch {
	case err != nil:
		return nil, err
	case cfg.MaxKeys < 0:
		return nil, fmt.Errorf("leaky: negative MaxKeys %d", cfg.MaxKeys)
	case cfg.MaxKeys > keyed.Most:
		return nil, fmt.Errorf("leaky: MaxKeys %d is more than %d", cfg.MaxKeys, keyed.Most)
	case cfg.MaxKeys == 0:
		cfg.MaxKeys = keyed.Most
	}
	k := &Keyed[K]{keys: keyed.New[K](cfg.MaxKeys, drained)}
	k.wide.pack(&r)
	k.rule.Store(&r)
	return k, nil
}

// Take takes n from the bucket of key, as [Bucket.Take] does. If the key is
// new and there are too many, nothing is taken: Limit of the result is 0 and
// its Err [limits.ErrTooManyKeys]. It panics if n < 0.
func (k *Keyed[K]) Take(key K, n int64) limits.Result {
	return k.take(key, k.rule.Load(), n)
}

// TakeQuota is Take by a quota of the call's own, such as that of the tariff
// the user of this call has. It panics if n < 0 or where [Quota.Check] returns
// an error.
//
// A key may be asked by several quotas in turn. Each has a bucket of its own, and what
// any of them admits is in all. So in any time no more is admitted than the laxest of
// the quotas admits alone, and a call that was refused makes no room for others.
// Two things follow. Units that a larger quota admitted do not keep a smaller one of
// at most its rate out for longer than its own full bucket; but one that is faster and
// smaller waits until they have leaked as far as it can hold. And if no quota is
// the laxest, because one has the largest capacity and another the highest rate, a key
// that is asked by three, or whose bucket was empty in between, may admit what that
// capacity and that rate admit together. To count one call against two quotas use two
// keys.
func (k *Keyed[K]) TakeQuota(key K, quota Quota, n int64) limits.Result {
	r := mustRule(quota)
	k.wide.pack(&r)
	return k.take(key, &r, n)
}

func (k *Keyed[K]) take(key K, r *rule, n int64) limits.Result {
	mustNotBeNegative(n)
	if n == 0 {
		return k.peek(key, r)
	}
	var level, wait time.Duration
	err := k.keys.Update(key, func(w water, now time.Duration) water {
		if w.quota != r.packed && w.quota != 0 || k.rests.Load() != nil {
			w, level, wait = k.mixed(key, w, r, now, n)
			return w
		}
		if level, wait = r.fits(max(0, w.tat-now), n); wait == 0 {
			w = water{now + level, r.packed}
		}
		return w
	})
	if err != nil {
		return limits.Result{RetryAfter: limits.Never}
	}
	return r.result(level, wait)
}

// bucket returns w as a bucket at now.
func (k *Keyed[K]) bucket(w water, now time.Duration) buckets.Bucket {
	interval, capacity := k.wide.unpack(w.quota)
	return buckets.Bucket{Interval: interval, Capacity: capacity, Level: int64(max(0, w.tat-now))}
}

// filled returns the water of a bucket.
func (k *Keyed[K]) filled(b buckets.Bucket, now time.Duration) water {
	return water{sat.Add(now, time.Duration(b.Level)), k.wide.packed(b.Interval, b.Capacity)}
}

// mixed is take for a key that is asked by several quotas, or may have been. The
// lock of w is held.
func (k *Keyed[K]) mixed(key K, w water, r *rule, now time.Duration, n int64) (_ water, level, wait time.Duration) {
	p, fresh := k.pair(key, w, r, now)
	if level, wait = r.fits(time.Duration(p.Own.Level), n); wait == 0 {
		p.Pour(int64(level) - p.Own.Level)
	} else if !fresh {
		return w, level, wait
	}
	w = k.filled(p.Own, now)
	k.keepRest(key, p.Rest, w.quota)
	return w, level, wait
}

// pair returns the buckets of key as r finds them, of which w is one.
func (k *Keyed[K]) pair(key K, w water, r *rule, now time.Duration) (p buckets.Pair, fresh bool) {
	p = buckets.Pair{Own: k.bucket(w, now)}
	if rests := k.rests.Load(); rests != nil && rests.Len() > 0 {
		rest, now := rests.Get(key)
		p.Rest = k.bucket(rest.water, now)
		if w.quota == 0 {
			p.Own = k.bucket(water{quota: rest.last}, now)
		}
	}
	p, fresh = p.By(int64(r.interval), r.quota.Capacity)
	// Also what is only looked at, and not stored, ends where instants do.
	p.Own.Level = min(p.Own.Level, math.MaxInt64-int64(now))
	return p, fresh
}

// keepRest keeps the bucket of the other quotas of key. The lock of its water is held.
func (k *Keyed[K]) keepRest(key K, b buckets.Bucket, last packed) {
	rests := k.rests.Load()
	switch {
	case b.Level > 0 && rests == nil:
		k.rests.CompareAndSwap(nil, keyed.New[K](keyed.Most, others.drained))
		rests = k.rests.Load()
	case b.Level == 0 && (rests == nil || rests.Len() == 0):
		return
	case b.Level == 0:
		rests.Delete(key)
		return
	}
	_ = rests.Update(key, func(_ others, now time.Duration) others { return others{k.filled(b, now), last} }) // an error means 2²⁹ keys
}

// Peek returns the bucket of key as it is. It writes nothing, forgets nothing
// and remembers nothing, so for a key that is new to a full Keyed it shows an
// empty bucket.
func (k *Keyed[K]) Peek(key K) limits.Result { return k.peek(key, k.rule.Load()) }

func (k *Keyed[K]) peek(key K, r *rule) limits.Result {
	w, now := k.keys.Get(key)
	p, _ := k.pair(key, w, r, now)
	return r.result(time.Duration(p.Own.Level), 0)
}

// Reset empties the bucket of key.
func (k *Keyed[K]) Reset(key K) {
	k.keys.Delete(key)
	if rests := k.rests.Load(); rests != nil {
		rests.Delete(key)
	}
	k.bells.Ring(key)
}

// Len returns how many keys are remembered: those whose buckets hold
// something, and those whose drained buckets no call has come across yet. A key
// that several quotas asked is missing if the bucket of the last has drained.
func (k *Keyed[K]) Len() int { return k.keys.Len() }

// Quota returns the quota of calls that bring none.
func (k *Keyed[K]) Quota() Quota { return k.rule.Load().quota }

// SetQuota changes the quota of calls that bring none. Each key is then asked by
// another quota, as by [Keyed.TakeQuota]. It returns an error and changes nothing if
// the quota is impossible.
func (k *Keyed[K]) SetQuota(quota Quota) error {
	r, err := quota.rule()
	if err != nil {
		return err
	}
	k.wide.pack(&r)
	k.rule.Store(&r)
	k.bells.RingAll()
	return nil
}

// On returns the bucket of key as a meter, for a sluice.Gate or sluice.NewQueue.
// It is a small value, takes up nothing in k and never goes stale.
func (k *Keyed[K]) On(key K) KeyedLimiter[K] { return KeyedLimiter[K]{k, key} }

// A KeyedMeter is one key of a [Keyed], as a limits.Limiter.
type KeyedLimiter[K comparable] struct {
	keyed *Keyed[K]
	key   K
}

// Admit takes n from the bucket of the key as [Bucket.Admit] does. If the key
// is new and there are too many, it returns [limits.ErrTooManyKeys].
func (m KeyedLimiter[K]) Admit(ctx context.Context, n int64) (wait time.Duration, err error) {
	mustNotBeNegative(n)
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	return admit(m.keyed.Take(m.key, n))
}

// Adjust corrects by delta what was taken, as [Bucket.Adjust] does, at the
// quota of calls that bring none. It returns [limits.ErrTooManyKeys] and changes
// nothing if delta is positive, the key new and there are too many.
func (m KeyedLimiter[K]) Adjust(ctx context.Context, delta int64, age time.Duration) error {
	k, r := m.keyed, m.keyed.rule.Load()
	err := k.keys.Update(m.key, func(w water, now time.Duration) water {
		p, _ := k.pair(m.key, w, r, now)
		before := time.Duration(p.Own.Level)
		switch after := adjust(before, 0, r.interval, delta); {
		case after > before:
			p.Pour(int64(after - before))
		case after < before:
			p.Return(int64(before - after))
		}
		w = k.filled(p.Own, now)
		k.keepRest(m.key, p.Rest, w.quota)
		return w
	})
	if err == nil && bell.Loud(ctx, delta) {
		k.bells.Ring(m.key)
	}
	return err
}

// OnChange is that of [Bucket], for the bucket of the key.
func (m KeyedLimiter[K]) OnChange(f func()) (stop func()) { return m.keyed.bells.Wait(m.key, f) }
