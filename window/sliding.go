package window

import (
	"time"

	"github.com/sluice-go/sluice/internal/forecast"
	"github.com/sluice-go/sluice/internal/kind"
	"github.com/sluice-go/sluice/limits"
)

// A sliding is the units of a window that slides.
type sliding struct {
	epoch time.Time // the origin of times
	rule  kind.Sliding
	state kind.SlidingState
}

// NewSliding returns a Counter that allows at most quota.Limit units in any quota.Window, exactly:
// from any t up to but not including t + quota.Window. It returns an error unless both are
// positive, and if quota has a Calendar or a Location.
//
// The Counter records the time of each call it allows, in 16 bytes, until the call has left the
// window. Except in [Counter.Restore] it uses the monotonic clock.
func NewSliding(quota Quota) (*Counter, error) {
	rule, err := quota.sliding()
	if err != nil {
		return nil, err
	}
	return &Counter{units: &sliding{epoch: time.Now(), rule: rule}}, nil
}

// now returns the time since the epoch. It is read under the lock: two calls
// must not record their times in the wrong order.
func (l *sliding) now() time.Duration { return time.Since(l.epoch) }

func (l *sliding) take(n int64) limits.Result { return l.rule.Take(&l.state, l.now(), n) }

func (l *sliding) setQuota(quota Quota) error {
	rule, err := quota.sliding()
	if err != nil {
		return err
	}
	l.rule.Advance(&l.state, l.now())
	l.rule = rule
	return nil
}

func (l *sliding) adjust(delta int64, age time.Duration) {
	l.rule.Adjust(&l.state, l.now(), delta, age)
}

func (l *sliding) forecast() limits.Forecast { return foreseeSliding(l.rule, &l.state, l.now()) }

// foreseeSliding returns the forecast of a window of r in the state s, which may be nil.
func foreseeSliding(r kind.Sliding, s *kind.SlidingState, now time.Duration) limits.Forecast {
	return forecast.NewSliding(r.Limit, r.Window, func(yield func(at time.Duration, n int64) bool) {
		if s == nil {
			return
		}
		for at, n := range s.All() {
			if !yield(at-now, n) {
				return
			}
		}
	})
}
