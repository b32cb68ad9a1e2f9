package window

import (
	"context"
	"sync"
	"time"

	"github.com/sluice-go/sluice/internal/bell"
	"github.com/sluice-go/sluice/limits"
)

// A Counter admits at most limit in each of its windows, which follow one
// another and do not slide. Those of [NewCounter] begin with the first call
// after the one before is over. Those of [NewCalendar] begin when the calendar
// says: 5,000 per day from 00:00.
//
// Up to twice the limit can pass within a moment around the edge of two windows:
// all of the one just before it, all of the other just after. That is what a
// fixed window is. If the other side counts by the same edges, it is right;
// otherwise use a [Sliding], which never lets more than its limit pass in any
// window, or half the limit.
//
// With a calendar the wall clock counts, and someone may set it. Set back, the
// counter stays in the window it is in, until the clock has caught up or for as
// long as the window is long: nothing is granted twice and nobody is shut out
// for longer than that. Set forward over an edge it begins a window, one only.
// Without a calendar only the monotonic clock counts.
//
// Most programs need only [Fixed.Take]. [Fixed.Admit] and [Fixed.Adjust]
// make a Counter a meter for a gate, and Admit alone something that sluice.NewQueue
// can give a queue; whoever calls Take then passes that queue by.
//
// A Counter is safe for use by multiple goroutines, must be made by
// [NewCounter], [NewCalendar] or [NewCounterWith] and must not be copied. Its
// size is constant. No method waits for more than a mutex; a call takes a
// fraction of a microsecond, the first in a day some more. It starts no goroutine
// and needs no closing. Made in a testing/synctest bubble, it belongs to that
// bubble.
type Fixed struct {
	epoch time.Time // what monotonic instants count from

	mu    sync.Mutex
	quota Quota
	state fixed

	bell bell.Bell
}

// NewCounter returns a counter of at most limit per window, each anchored at the
// first call in it. It panics if limit or window is not positive.
func NewFixed(limit int64, window time.Duration) *Fixed {
	c, err := NewFixedWith(Quota{Limit: limit, Window: window})
	must(err)
	return c
}

// NewCalendar returns a counter of at most limit per minute, hour, day, week or
// month, as the calendar has it at loc, nil meaning UTC. A day on which the
// clocks are changed has 23 or 25 hours. It panics if limit is not positive or
// there is no such calendar.
func NewCalendar(limit int64, calendar Calendar, loc *time.Location) *Fixed {
	if calendar == 0 {
		panic("window: no such calendar: 0")
	}
	c, err := NewFixedWith(Quota{Limit: limit, Calendar: calendar, Location: loc})
	must(err)
	return c
}

// NewCounterWith is NewCounter or NewCalendar for a quota that comes from
// elsewhere: it returns an error where [Quota.Check] does.
func NewFixedWith(quota Quota) (*Fixed, error) {
	if err := quota.Check(); err != nil {
		return nil, err
	}
	return &Fixed{epoch: time.Now(), quota: quota}, nil
}

// read reads both clocks, at the same instant.
func (c *Fixed) read() (now time.Duration, wall int64) {
	t := time.Now()
	return t.Sub(c.epoch), t.UnixNano()
}

// Take takes n if n fit now, and otherwise changes nothing and says when they
// will. n = 0 takes nothing and is always allowed; an n beyond the limit never
// is, and Err of the result is then [limits.ErrTooLarge]. It panics if n < 0.
func (c *Fixed) Take(n int64) limits.Result {
	mustNotBeNegative(n)
	c.mu.Lock()
	defer c.mu.Unlock()
	now, wall := c.read()
	return c.state.take(now, wall, &c.quota, c.quota.Limit, n)
}

// Peek returns what Take(0) does: the counter as it is. It never writes.
func (c *Fixed) Peek() limits.Result { return c.Take(0) }

// Return gives back n that Take or Admit has granted in the present window and
// that were not used. What was taken in a window that is over must not be
// returned: it would be taken off what others have used in this one; where that
// can happen use [Fixed.Adjust]. But the window is never emptier than empty.
// It panics if n < 0.
func (c *Fixed) Return(n int64) {
	mustNotBeNegative(n)
	c.adjust(-n, 0)
	c.bell.Ring()
}

// Reset begins anew, with nothing used.
func (c *Fixed) Reset() {
	defer c.bell.Ring() // after the lock
	c.mu.Lock()
	defer c.mu.Unlock()
	c.state = fixed{}
}

// Quota returns the quota in force.
func (c *Fixed) Quota() Quota {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.quota
}

// SetLimit changes the limit, for whoever asks from now on; what was used in
// the present window stays used, and the windows remain as they are. It returns
// an error and changes nothing if limit is not positive.
func (c *Fixed) SetLimit(limit int64) error {
	if err := checkLimit(limit); err != nil {
		return err
	}
	defer c.bell.Ring() // after the lock
	c.mu.Lock()
	defer c.mu.Unlock()
	c.quota.Limit = limit
	return nil
}

// Admit takes n and returns 0 if n fit now; otherwise it takes nothing and
// returns how long until they will, if nobody sets the clock. It returns
// ctx.Err() if ctx is done and [limits.ErrTooLarge] if n is more than the limit, and
// takes nothing then. With it a Counter is a limits.Limiter. It panics if
// n < 0.
func (c *Fixed) Admit(ctx context.Context, n int64) (wait time.Duration, err error) {
	mustNotBeNegative(n)
	return admit(ctx, n, c.Take)
}

// Adjust corrects by delta what a call took that was admitted age ago, once it
// is known what it really cost. A negative delta gives back, if the window in
// which the call was admitted is not over: otherwise it would be taken off what
// others have used. A positive one takes in the present window and without
// asking, beyond the limit if need be; what is beyond the limit ends with the
// window. A negative age counts as 0.
//
// With Adjust a Counter is a limits.Limiter. It never fails and pays no attention
// to ctx: what is given back must not be lost because its caller gave up.
func (c *Fixed) Adjust(ctx context.Context, delta int64, age time.Duration) error {
	c.adjust(delta, age)
	if bell.Loud(ctx, delta) {
		c.bell.Ring()
	}
	return nil
}

// OnChange makes the counter call f whenever it may admit a call earlier than it said,
// until stop is called: after [Fixed.Return], Reset, SetLimit, and an Adjust that gives
// back. With it a Counter is a limits.Notifier: who waits for it in a gate or a
// sluice.NewQueue asks again at once. f must not block, nor use the counter.
func (c *Fixed) OnChange(f func()) (stop func()) { return c.bell.Wait(f) }

func (c *Fixed) adjust(delta int64, age time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now, wall := c.read()
	c.state.adjust(now, wall, &c.quota, delta, age)
}
