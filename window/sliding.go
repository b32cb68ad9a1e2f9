package window

import (
	"context"
	"sync"
	"time"

	"github.com/sluice-go/sluice/internal/bell"
	"github.com/sluice-go/sluice/internal/forecast"
	"github.com/sluice-go/sluice/internal/kind"
	"github.com/sluice-go/sluice/limits"
)

// A Sliding allows at most its limit of units in any window of time, exactly: from any t up to but
// not including t + window.
//
// It records the time of each call it allows, 16 bytes for all calls of the same nanosecond
// together, until the call has left the window. A rejected call is not recorded and does not
// prolong the wait. Memory grows to 16 bytes times the limit at most, and shrinks as calls are
// made.
//
// Most programs need only [Sliding.Take]. It bypasses the queue of a sluice.Gate or
// sluice.NewQueue.
//
// A Sliding is safe for use by multiple goroutines, must be made by [NewSliding] and must not be
// copied. It uses the monotonic clock, except in [Sliding.Restore].
type Sliding struct {
	epoch time.Time // the origin of times

	mu    sync.Mutex
	rule  kind.Sliding
	state kind.SlidingState

	bell bell.Bell
}

// NewSliding returns a Sliding that allows at most quota.Limit units in any quota.Window.
// It returns an error unless both are positive, and if quota has a Calendar or a
// Location.
func NewSliding(quota Quota) (*Sliding, error) {
	rule, err := quota.sliding()
	if err != nil {
		return nil, err
	}
	return &Sliding{epoch: time.Now(), rule: rule}, nil
}

// now returns the time since the epoch. It is read under the lock: two calls
// must not record their times in the wrong order.
func (l *Sliding) now() time.Duration { return time.Since(l.epoch) }

// Take takes n if n fit now. Otherwise it changes nothing and returns when they will. n = 0 changes
// nothing and is always allowed. If n is more than the limit, Err of the result is
// [limits.ErrTooLarge]. Take panics if n < 0.
func (l *Sliding) Take(n int64) limits.Result {
	mustNotBeNegative(n)
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.rule.Take(&l.state, l.now(), n)
}

// Quota returns the current quota.
func (l *Sliding) Quota() Quota {
	l.mu.Lock()
	defer l.mu.Unlock()
	return Quota{Limit: l.rule.Limit, Window: l.rule.Window}
}

// SetQuota changes the quota, for calls from now on. It returns an error and changes nothing where
// [NewSliding] returns one.
//
// Taken units stay taken: after a change to a lower limit nothing fits until enough of them has
// left the window. A longer window does not bring back units that have left the shorter one.
func (l *Sliding) SetQuota(quota Quota) error {
	rule, err := quota.sliding()
	if err != nil {
		return err
	}
	defer l.bell.Ring() // after the lock
	l.mu.Lock()
	defer l.mu.Unlock()
	l.rule.Advance(&l.state, l.now())
	l.rule = rule
	return nil
}

// Admit implements [limits.Limiter] with Take: it returns the time until n will fit, and ctx.Err()
// if ctx is done. It panics if n < 0.
func (l *Sliding) Admit(ctx context.Context, n int64) (wait time.Duration, err error) {
	return admit(ctx, n, l.Take)
}

// admit is Admit by means of take.
func admit(ctx context.Context, n int64, take func(int64) limits.Result) (time.Duration, error) {
	mustNotBeNegative(n)
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	return take(n).Wait()
}

// Adjust implements [limits.Limiter]. A negative delta removes the newest −delta units allowed age
// ago or before. Units that have left the window are not returned. A positive delta takes now,
// beyond the limit if need be; then nothing fits before enough has left the window. A negative age
// is treated as 0.
//
// Adjust never fails, even if ctx is done. It takes longer the more calls were allowed since, about
// 1 ns for each.
func (l *Sliding) Adjust(ctx context.Context, delta int64, age time.Duration) error {
	l.mu.Lock()
	l.rule.Adjust(&l.state, l.now(), delta, age)
	l.mu.Unlock()
	if bell.Loud(ctx, delta) {
		l.bell.Ring()
	}
	return nil
}

// Forecast implements limits.Forecaster.
func (l *Sliding) Forecast() limits.Forecast {
	l.mu.Lock()
	defer l.mu.Unlock()
	return foreseeSliding(l.rule, &l.state, l.now())
}

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

// OnChange implements [limits.Notifier]. It calls f after SetQuota, and after an Adjust that
// returns units. f must not use the Sliding.
func (l *Sliding) OnChange(f func()) (stop func()) { return l.bell.Wait(f) }
