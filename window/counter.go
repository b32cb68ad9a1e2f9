package window

import (
	"context"
	"sync"
	"time"

	"github.com/sluice-go/sluice/internal/bell"
	"github.com/sluice-go/sluice/internal/errs"
	"github.com/sluice-go/sluice/internal/kind"
	"github.com/sluice-go/sluice/limits"
)

// A Counter allows at most its limit of units per window.
//
// Most programs need only [Counter.Take]. It bypasses the queue of a sluice.Gate.
//
// A Counter is safe for use by multiple goroutines and must not be copied.
type Counter struct {
	mu    sync.Mutex
	units units

	bell bell.Bell
}

// units are the units in the window of a Counter, which is locked when it calls them.
type units interface {
	take(n int64) limits.Result
	adjust(delta int64, age time.Duration)
	forecast() limits.Forecast
	setQuota(Quota) error

	// snapshot returns a state for snapshot.Seal, and its kind. open reads one, without a lock.
	snapshot() (kind string, state any)
	open(data []byte) (restore func() error, err error)
}

func (c *Counter) mustBeMade() {
	errs.Made(c.units != nil, "window.Counter", "window.NewSliding or NewFixed")
}

func (c *Counter) lock() {
	c.mustBeMade()
	c.mu.Lock()
}

// Take takes n if n fit now. Otherwise it changes nothing and returns when they will. n = 0 changes
// nothing and is always allowed. If n is more than the limit, Err of the result is
// [limits.ErrTooLarge]. Take panics if n < 0.
func (c *Counter) Take(n int64) limits.Result {
	mustNotBeNegative(n)
	c.lock()
	defer c.mu.Unlock()
	return c.units.take(n)
}

// SetQuota changes the quota, for calls from now on. It returns an error and changes nothing where
// the constructor returns one, and if quota has other fixed windows than the current one.
//
// Taken units stay taken: after a change to a lower limit nothing fits until enough of them has
// left the window. Units that have left it stay out of a longer one.
func (c *Counter) SetQuota(quota Quota) error {
	defer c.bell.Ring() // after the lock
	c.lock()
	defer c.mu.Unlock()
	return c.units.setQuota(quota)
}

// Admit implements [limits.Limiter] with Take. It returns ctx.Err() if ctx is done, and panics if
// n < 0.
func (c *Counter) Admit(ctx context.Context, n int64) (wait time.Duration, err error) {
	mustNotBeNegative(n)
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	return kind.Admitted(c.Take(n))
}

// Adjust implements [limits.Limiter]. A negative delta removes the newest −delta units allowed age
// ago or before, if they are still in the window. A positive delta takes now, beyond the limit if
// need be; then nothing fits before enough has left the window. A negative age is treated as 0.
//
// Adjust never fails, even if ctx is done. In a sliding window it takes about 1 ns for each call
// allowed since.
func (c *Counter) Adjust(ctx context.Context, delta int64, age time.Duration) error {
	c.lock()
	c.units.adjust(delta, age)
	c.mu.Unlock()
	if bell.Loud(ctx, delta) {
		c.bell.Ring()
	}
	return nil
}

// Forecast makes a [limits.Forecast]. With a calendar it expects that the clock is not set.
func (c *Counter) Forecast() limits.Forecast {
	c.lock()
	defer c.mu.Unlock()
	return c.units.forecast()
}

// OnChange is for a [limits.Limiter]. It calls f after SetQuota, and after an Adjust that
// returns units. f must not use the Counter.
func (c *Counter) OnChange(f func()) (stop func()) { return c.bell.Wait(f) }
