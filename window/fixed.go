package window

import (
	"context"
	"sync"
	"time"

	"github.com/sluice-go/sluice/internal/bell"
	"github.com/sluice-go/sluice/internal/forecast"
	"github.com/sluice-go/sluice/internal/kind"
	"github.com/sluice-go/sluice/internal/sat"
	"github.com/sluice-go/sluice/limits"
)

// A Fixed allows at most its limit of units in each of its windows, which follow one another and do
// not slide: around an edge, up to twice the limit can pass within a moment. With a [Calendar] they
// begin at fixed times: 5,000 per day from 00:00. Without one a window begins with the first call
// after the end of the previous window.
//
// With a calendar the wall clock is used. If the clock is put back, the Fixed stays in its window
// until the clock has caught up, but at most for the length of the window: nothing is allowed
// twice. If the clock is put forward over an edge, one window begins. Without a calendar only the
// monotonic clock is used.
//
// Most programs need only [Fixed.Take]. It bypasses the queue of a sluice.Gate or sluice.NewQueue.
//
// A Fixed is safe for use by multiple goroutines, must be made by [NewFixed] and must not be
// copied.
type Fixed struct {
	epoch time.Time // the origin of monotonic times

	mu    sync.Mutex
	quota Quota
	rule  kind.Fixed
	state kind.FixedState

	bell bell.Bell
}

// NewFixed returns a Fixed that allows at most quota.Limit units in each window. It returns an
// error if quota.Limit is not positive, and unless quota has either a positive Window or a
// Calendar; a Location needs a Calendar. A day on which the clocks are changed has 23 or 25 hours.
func NewFixed(quota Quota) (*Fixed, error) {
	rule, err := quota.fixed()
	if err != nil {
		return nil, err
	}
	return &Fixed{epoch: time.Now(), quota: quota, rule: rule}, nil
}

// read reads both clocks, at the same time.
func (c *Fixed) read() (now time.Duration, wall int64) {
	t := time.Now()
	return t.Sub(c.epoch), t.UnixNano()
}

// Take takes n if n fit now. Otherwise it changes nothing and returns when they will. n = 0 changes
// nothing and is always allowed. If n is more than the limit, Err of the result is
// [limits.ErrTooLarge]. Take panics if n < 0.
func (c *Fixed) Take(n int64) limits.Result {
	mustNotBeNegative(n)
	c.mu.Lock()
	defer c.mu.Unlock()
	now, wall := c.read()
	return c.rule.Take(&c.state, now, wall, n)
}

// Quota returns the current quota.
func (c *Fixed) Quota() Quota {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.quota
}

// SetQuota changes the limit, for calls from now on. Units used in the current window stay used. It
// returns an error and changes nothing if quota.Limit is not positive or quota has other windows
// than the current one.
func (c *Fixed) SetQuota(quota Quota) error {
	rule, err := quota.fixed()
	if err != nil {
		return err
	}
	defer c.bell.Ring() // after the lock
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := quota.sameWindows(c.quota); err != nil {
		return err
	}
	c.quota, c.rule = quota, rule
	return nil
}

// Admit implements [limits.Limiter] with Take: it returns the time until n will fit, if the clock
// is not set, and ctx.Err() if ctx is done. It panics if n < 0.
func (c *Fixed) Admit(ctx context.Context, n int64) (wait time.Duration, err error) {
	return admit(ctx, n, c.Take)
}

// Adjust implements [limits.Limiter]. A negative delta returns units, if the window in which the
// call was allowed has not ended. A positive one takes in the current window, beyond the limit if
// need be; units beyond the limit end with the window. A negative age is treated as 0. Adjust never
// fails, even if ctx is done.
func (c *Fixed) Adjust(ctx context.Context, delta int64, age time.Duration) error {
	c.mu.Lock()
	now, wall := c.read()
	c.rule.Adjust(&c.state, now, wall, delta, age)
	c.mu.Unlock()
	if bell.Loud(ctx, delta) {
		c.bell.Ring()
	}
	return nil
}

// Forecast implements limits.Forecaster. With a calendar it expects that the clock is not set.
func (c *Fixed) Forecast() limits.Forecast {
	c.mu.Lock()
	defer c.mu.Unlock()
	now, wall := c.read()
	return foreseeFixed(c.rule, c.state, now, wall)
}

// foreseeFixed returns the forecast of a window of r in the state s.
func foreseeFixed(r kind.Fixed, s kind.FixedState, now time.Duration, wall int64) limits.Forecast {
	f := &forecast.Fixed{Limit: r.Limit, Window: r.Window}
	if r.Edges != nil {
		f.Edges = func(at time.Duration) (start, end time.Duration) {
			from, to := r.Edges(int64(sat.Add(time.Duration(wall), at)))
			return sat.Sub(time.Duration(from), time.Duration(wall)), sat.Sub(time.Duration(to), time.Duration(wall))
		}
	}
	if !r.Over(&s, now, wall) {
		f.Used, f.End = s.Used, r.Take(&s, now, wall, 0).ResetAfter
	}
	return f
}

// OnChange implements [limits.Notifier]. It calls f after SetQuota, and after an Adjust that
// returns units. f must not use the Fixed.
func (c *Fixed) OnChange(f func()) (stop func()) { return c.bell.Wait(f) }
