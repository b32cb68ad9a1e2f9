package leaky

import (
	"fmt"
	"math"
	"sync/atomic"
	"time"

	"github.com/sluice-go/sluice/internal/bell"
	"github.com/sluice-go/sluice/internal/defaults"
	"github.com/sluice-go/sluice/internal/errs"
	"github.com/sluice-go/sluice/internal/forecast"
	"github.com/sluice-go/sluice/internal/keyed"
	"github.com/sluice-go/sluice/internal/kind"
	"github.com/sluice-go/sluice/internal/sat"
	"github.com/sluice-go/sluice/limits"
)

// A Keyed is one bucket for each key: per user, per host, per user and action. A key that was never
// used has an empty bucket.
//
// Later calls evict empty buckets, a few at a time; nothing runs in the background. A key takes
// about 60 bytes.
//
// A Keyed has no snapshot: a restart empties all of its buckets. If keys are few, use a Bucket
// each.
//
// A Keyed is safe for use by multiple goroutines, must be made by [NewKeyed] and must not be
// copied.
//
// Prefer a struct of the parts, such as struct{ user, action string }, to a text made of them:
// "a:b" and "c" look like "a" and "b:c". A K that does not equal itself, such as NaN, has a new
// bucket each time.
type Keyed[K comparable] struct {
	setting atomic.Pointer[setting]
	keys    *keyed.Map[K, water]
	rests   atomic.Pointer[keyed.Map[K, others]] // nil until a key has been used with two rates
	wide    wide
	bells   bell.Keyed[K]
}

// A setting is a rate with the values derived from it. It does not change.
type setting struct {
	kind.Bucket
	rate   limits.Rate
	packed packed // 0 if it is too wide
}

// water is the stored state of one key: the bucket of the rate with which it was last
// used. The one of other rates is in Keyed.rests.
type water struct {
	tat  time.Duration // when its bucket will be empty, since the epoch of the map
	rate packed        // 0: a new key
}

func drained(w water, now time.Duration) bool { return w.tat <= now }

// others is the bucket of the other rates of a key, and the rate with which the key was
// last used: its water may be discarded before, because it has drained. That does not
// make the rate one that is used for the first time, which would find the units of others.
type others struct {
	water
	last packed
}

func (o others) drained(now time.Duration) bool { return drained(o.water, now) }

// NewKeyed returns a Keyed whose buckets are those that [New] returns for rate. It returns the same
// errors, and one if MaxKeys is negative or more than 2²⁹.
func NewKeyed[K comparable](rate limits.Rate, options ...limits.KeyedConfig) (*Keyed[K], error) {
	cfg := defaults.Option("leaky.NewKeyed", options)
	most, err := keyed.MaxKeys(cfg)
	if err != nil {
		return nil, fmt.Errorf("leaky: %w", err)
	}
	k := &Keyed[K]{keys: keyed.New[K](most, drained)}
	r, err := k.settingOf(rate)
	if err != nil {
		return nil, err
	}
	k.setting.Store(&r)
	return k, nil
}

func (k *Keyed[K]) settingOf(rate limits.Rate) (setting, error) {
	b, err := newRule(rate)
	if err != nil {
		return setting{}, err
	}
	rate.Burst = b.Capacity()
	return setting{b, rate, k.wide.packed(int64(b.Interval()), b.Capacity())}, nil
}

// current returns the setting of Take.
func (k *Keyed[K]) current() *setting {
	s := k.setting.Load()
	errs.Made(s != nil, "leaky.Keyed", "leaky.NewKeyed")
	return s
}

// Take takes n from the bucket of key, as [Bucket.Take] does. If the key is new and there are too
// many, nothing is taken: Limit of the result is 0 and its Err [limits.ErrTooManyKeys]. n = 0
// remembers nothing. Take panics if n < 0.
func (k *Keyed[K]) Take(key K, n int64) limits.Result {
	return k.take(key, k.current(), n)
}

// TakeRate is Take with a rate of the call's own, such as the rate of the user's plan. It panics if
// n < 0 or where [New] returns an error.
//
// If a key is used with several rates, each has its own bucket, and each call is poured into all of
// them, so the key allows no more than the laxest of its rates would alone. To count one call
// against two rates use two keys.
func (k *Keyed[K]) TakeRate(key K, rate limits.Rate, n int64) limits.Result {
	r, err := k.settingOf(rate)
	if err != nil {
		panic(err.Error())
	}
	return k.take(key, &r, n)
}

func (k *Keyed[K]) take(key K, r *setting, n int64) limits.Result {
	mustNotBeNegative(n)
	if n == 0 {
		return k.peek(key, r)
	}
	var level, wait time.Duration
	err := k.keys.Update(key, func(w water, now time.Duration) water {
		if w.rate != r.packed && w.rate != 0 || k.rests.Load() != nil {
			w, level, wait = k.mixed(key, w, r, now, n)
			return w
		}
		if level, wait = r.Fits(max(0, w.tat-now), n); wait == 0 {
			w = water{now + level, r.packed}
		}
		return w
	})
	if err != nil {
		return limits.Result{RetryAfter: limits.Never}
	}
	return r.Result(level, wait)
}

// mixed is take for a key that is used with several rates, or may have been. The lock of
// w is held.
func (k *Keyed[K]) mixed(key K, w water, r *setting, now time.Duration, n int64) (_ water, level, wait time.Duration) {
	p, fresh := k.pair(key, w, r, now)
	p, res, keep := p.Take(&r.Bucket, n)
	if keep || fresh {
		w = k.keep(key, p, now)
	}
	return w, time.Duration(p.Own.Level), res.RetryAfter
}

// bucket returns w as a bucket at now.
func (k *Keyed[K]) bucket(w water, now time.Duration) kind.BucketState {
	interval, capacity := k.wide.unpack(w.rate)
	return kind.BucketState{Interval: interval, Capacity: capacity, Level: int64(max(0, w.tat-now))}
}

// pair returns the buckets of key as r finds them, of which w is one.
func (k *Keyed[K]) pair(key K, w water, r *setting, now time.Duration) (p kind.BucketPair, fresh bool) {
	p = kind.BucketPair{Own: k.bucket(w, now)}
	if rests := k.rests.Load(); rests != nil && rests.Len() > 0 {
		rest, now := rests.Get(key)
		p.Rest = k.bucket(rest.water, now)
		if w.rate == 0 {
			p.Own = k.bucket(water{rate: rest.last}, now)
		}
	}
	p, fresh = p.By(&r.Bucket)
	// Also a value that is only looked at, and not stored, ends where times do.
	p.Own.Level = min(p.Own.Level, math.MaxInt64-int64(now))
	return p, fresh
}

// filled returns the water of a bucket.
func (k *Keyed[K]) filled(b kind.BucketState, now time.Duration) water {
	return water{sat.Add(now, time.Duration(b.Level)), k.wide.packed(b.Interval, b.Capacity)}
}

// keep stores the bucket of the other rates of key, and returns the water of its own.
// The lock of its water is held.
func (k *Keyed[K]) keep(key K, p kind.BucketPair, now time.Duration) water {
	own, b, rests := k.filled(p.Own, now), p.Rest, k.rests.Load()
	switch {
	case b.Level > 0 && rests == nil:
		k.rests.CompareAndSwap(nil, keyed.New[K](keyed.Most, others.drained))
		rests = k.rests.Load()
	case b.Level == 0 && (rests == nil || rests.Len() == 0):
		return own
	case b.Level == 0:
		rests.Delete(key)
		return own
	}
	_ = rests.Update(key, func(_ others, now time.Duration) others { return others{k.filled(b, now), own.rate} }) // an error means 2²⁹ keys
	return own
}

func (k *Keyed[K]) peek(key K, r *setting) limits.Result {
	w, now := k.keys.Get(key)
	p, _ := k.pair(key, w, r, now)
	return r.Result(time.Duration(p.Own.Level), 0)
}

// Len returns the number of remembered keys, including those with empty buckets that are not
// evicted yet.
func (k *Keyed[K]) Len() int {
	k.current()
	return k.keys.Len()
}

// SetRate changes the rate of [Keyed.Take], as if each key were then used with another rate by
// [Keyed.TakeRate]. It returns an error and changes nothing where [New] returns one.
func (k *Keyed[K]) SetRate(rate limits.Rate) error {
	r, err := k.settingOf(rate)
	if err != nil {
		return err
	}
	k.setting.Store(&r)
	k.bells.RingAll()
	return nil
}

// On returns the bucket of key as a Limiter, for a sluice.Gate. It has no state of its own, and stays
// valid when k evicts the key. If the key is new and there are too many, Admit and Adjust return
// [limits.ErrTooManyKeys] and change nothing.
func (k *Keyed[K]) On(key K) limits.Limiter {
	return keyed.Limiter[K]{Key: key, Of: source[K]{k}, Bells: &k.bells}
}

func (k *Keyed[K]) adjust(key K, delta int64, _ time.Duration) error {
	r := k.current()
	return k.keys.Update(key, func(w water, now time.Duration) water {
		p, _ := k.pair(key, w, r, now)
		return k.keep(key, p.Adjust(&r.Bucket, delta), now)
	})
}

func (k *Keyed[K]) forecast(key K) limits.Forecast {
	r := k.current()
	w, now := k.keys.Get(key)
	p, _ := k.pair(key, w, r, now)
	return forecast.NewBucket(r.Capacity(), r.Interval(), time.Duration(p.Own.Level))
}

// A source is k for the limiters of its keys, of which two of one key are equal.
type source[K comparable] struct{ *Keyed[K] }

func (s source[K]) Change(key K, delta int64, age time.Duration) error {
	return s.adjust(key, delta, age)
}

func (s source[K]) Forecast(key K) limits.Forecast { return s.forecast(key) }
