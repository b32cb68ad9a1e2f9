package window

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/sluice-go/sluice/internal/bell"
	"github.com/sluice-go/sluice/internal/defaults"
	"github.com/sluice-go/sluice/internal/errs"
	"github.com/sluice-go/sluice/internal/keyed"
	"github.com/sluice-go/sluice/internal/kind"
	"github.com/sluice-go/sluice/limits"
)

// A Keyed is one [Counter] for each key: per user, per host, per user and action. A key that was
// never used has an empty window. Later calls evict keys whose windows are empty or have ended, as
// leaky.Keyed does; see there also for good keys.
//
// A key with a sliding window costs about 130 bytes and 16 for each call in its window, a key with
// fixed windows about 85. A Keyed has no snapshot: a restart loses all windows. For a few keys use a
// Counter each.
//
// A Keyed is safe for use by multiple goroutines, must be made by [NewKeyedSliding] or
// [NewKeyedFixed] and must not be copied.
type Keyed[K comparable] struct {
	quota Quota // but for the limit
	limit atomic.Int64
	keys  keys[K]
	bells bell.Keyed[K]
}

// keys are the windows of one kind.
type keys[K comparable] interface {
	take(key K, limit, n int64) (limits.Result, error)
	adjust(key K, limit, delta int64, age time.Duration) error
	forecast(key K, limit int64) limits.Forecast
	Len() int
}

func newKeyed[K comparable](quota Quota, keys keys[K]) *Keyed[K] {
	k := &Keyed[K]{quota: quota, keys: keys}
	k.limit.Store(quota.Limit)
	return k
}

// NewKeyedSliding returns a Keyed whose keys have windows as [NewSliding] makes them. It returns
// the same errors, and one if MaxKeys is negative or more than 2²⁹.
func NewKeyedSliding[K comparable](quota Quota, options ...limits.KeyedConfig) (*Keyed[K], error) {
	cfg := defaults.Option("window.NewKeyedSliding", options)
	rule, err := quota.sliding()
	if err != nil {
		return nil, err
	}
	most, err := keyed.MaxKeys(cfg)
	if err != nil {
		return nil, fmt.Errorf("window: %w", err)
	}
	return newKeyed(quota, slidings[K]{rule.Window, keyed.New[K](most, rule.Idle)}), nil
}

// NewKeyedFixed returns a Keyed whose keys have windows as [NewFixed] makes them. It returns the
// same errors, and one if MaxKeys is negative or more than 2²⁹.
func NewKeyedFixed[K comparable](quota Quota, options ...limits.KeyedConfig) (*Keyed[K], error) {
	cfg := defaults.Option("window.NewKeyedFixed", options)
	rule, err := quota.fixed()
	if err != nil {
		return nil, err
	}
	most, err := keyed.MaxKeys(cfg)
	if err != nil {
		return nil, fmt.Errorf("window: %w", err)
	}
	idle := func(s kind.FixedState, now time.Duration) bool {
		if rule.Edges == nil || now-s.From >= time.Duration(s.End-s.Start) { // else the clock need not be read
			return rule.Idle(&s, now, wall(rule))
		}
		return false
	}
	return newKeyed(quota, fixeds[K]{rule, keyed.New[K](most, idle)}), nil
}

func (k *Keyed[K]) mustBeMade() {
	errs.Made(k.keys != nil, "window.Keyed", "window.NewKeyed or NewKeyedFixed")
}

// Take takes n from the window of key, as [Counter.Take] does. If the key is new and
// there are too many, nothing is taken: Limit of the result is 0 and its Err [limits.ErrTooManyKeys].
// n = 0 does not remember key. Take panics if n < 0.
func (k *Keyed[K]) Take(key K, n int64) limits.Result {
	mustNotBeNegative(n)
	k.mustBeMade()
	res, err := k.keys.take(key, k.limit.Load(), n)
	if err != nil {
		return limits.Result{RetryAfter: limits.Never}
	}
	return res
}

// Len returns the number of remembered keys, including those with an empty window that are not
// evicted yet.
func (k *Keyed[K]) Len() int {
	k.mustBeMade()
	return k.keys.Len()
}

// SetQuota changes the limit, for calls from now on. It returns an error and changes
// nothing if quota.Limit is not positive or quota has other windows than the current ones.
func (k *Keyed[K]) SetQuota(quota Quota) error {
	if _, err := quota.fixed(); err != nil {
		return err
	}
	if err := quota.sameWindows(k.quota); err != nil {
		return err
	}
	k.limit.Store(quota.Limit)
	k.bells.RingAll()
	return nil
}

// On returns the window of key as a Limiter, for a sluice.Gate. It has no state of its own, and
// stays valid when k evicts the key. If the key is new and there are too many, Admit and Adjust
// return [limits.ErrTooManyKeys] and change nothing.
func (k *Keyed[K]) On(key K) limits.Limiter {
	return keyed.Limiter[K]{Key: key, Of: source[K]{k}, Bells: &k.bells}
}

func (k *Keyed[K]) adjust(key K, delta int64, age time.Duration) error {
	k.mustBeMade()
	return k.keys.adjust(key, k.limit.Load(), delta, age)
}

type slidings[K comparable] struct {
	window time.Duration
	*keyed.Map[K, *kind.SlidingState]
}

func (k slidings[K]) take(key K, limit, n int64) (res limits.Result, err error) {
	err = k.Update(key, func(s *kind.SlidingState, now time.Duration) *kind.SlidingState {
		if s == nil {
			s = new(kind.SlidingState)
		}
		res = kind.Sliding{Limit: limit, Window: k.window}.Take(s, now, n)
		return s
	})
	return res, err
}

func (k slidings[K]) adjust(key K, limit, delta int64, age time.Duration) error {
	return k.Update(key, func(s *kind.SlidingState, now time.Duration) *kind.SlidingState {
		if s == nil {
			s = new(kind.SlidingState)
		}
		kind.Sliding{Limit: limit, Window: k.window}.Adjust(s, now, delta, age)
		return s
	})
}

func (k slidings[K]) forecast(key K, limit int64) (f limits.Forecast) {
	k.Look(key, func(s *kind.SlidingState, now time.Duration) {
		f = foreseeSliding(kind.Sliding{Limit: limit, Window: k.window}, s, now)
	})
	return f
}

type fixeds[K comparable] struct {
	rule kind.Fixed // but for the limit
	*keyed.Map[K, kind.FixedState]
}

// wall returns Unix time if r needs it.
func wall(r kind.Fixed) int64 {
	if r.Edges == nil {
		return 0
	}
	return time.Now().UnixNano()
}

func (k fixeds[K]) take(key K, limit, n int64) (res limits.Result, err error) {
	k.rule.Limit = limit
	err = k.Update(key, func(s kind.FixedState, now time.Duration) kind.FixedState {
		res = k.rule.Take(&s, now, wall(k.rule), n)
		return s
	})
	return res, err
}

func (k fixeds[K]) adjust(key K, limit, delta int64, age time.Duration) error {
	k.rule.Limit = limit
	return k.Update(key, func(s kind.FixedState, now time.Duration) kind.FixedState {
		k.rule.Adjust(&s, now, wall(k.rule), delta, age)
		return s
	})
}

func (k fixeds[K]) forecast(key K, limit int64) limits.Forecast {
	k.rule.Limit = limit
	s, now := k.Get(key)
	return foreseeFixed(k.rule, s, now, wall(k.rule))
}

// A source is k for the limiters of its keys, of which two of one key are equal.
type source[K comparable] struct{ *Keyed[K] }

func (s source[K]) Change(key K, delta int64, age time.Duration) error {
	return s.adjust(key, delta, age)
}

func (s source[K]) Forecast(key K) limits.Forecast {
	s.mustBeMade()
	return s.keys.forecast(key, s.limit.Load())
}
