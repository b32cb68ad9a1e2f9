package window

import (
	"context"
	"sync"
	"time"

	"github.com/sluice-go/sluice/internal/bell"
	"github.com/sluice-go/sluice/limits"
)

// A Log admits at most limit in any window: it is a sliding window, and exact.
// Whatever window of that length one looks at, from t up to but not including
// t + window, at most limit were admitted in it.
//
// It notes the instant of each call it admits, 16 bytes for all calls of the
// same nanosecond together, and forgets it when it has left the window. A
// refused call is not noted: it does not count, does not prolong the wait and
// takes no memory. Memory grows with what is in the window, to 16 bytes times
// the limit at most, and shrinks as calls are made; while nobody calls it stays.
// A limit of 100,000 takes up to 1.6 MB. For limits far beyond that use a
// [Fixed] or package leaky.
//
// Most programs need only [Sliding.Take]. [Sliding.Admit] and [Sliding.Adjust] make a Log a
// meter for a gate, and Admit alone something that sluice.NewQueue can give a
// queue; whoever calls Take then passes that queue by.
//
// A Log is safe for use by multiple goroutines, must be made by [NewLog] or
// [NewLogWith] and must not be copied. No method waits for more than a mutex;
// a call takes a fraction of a microsecond, admitted or refused. It starts no
// goroutine and needs no closing. Only the monotonic clock counts. Made in a
// testing/synctest bubble, it belongs to that bubble.
type Sliding struct {
	epoch time.Time // what instants count from

	mu      sync.Mutex
	rule    rule
	history history

	bell bell.Bell
}

// NewLog returns a log of at most limit in any window. It panics if limit or
// window is not positive.
func NewSliding(limit int64, window time.Duration) *Sliding {
	l, err := NewSlidingWith(Quota{Limit: limit, Window: window})
	must(err)
	return l
}

// NewLogWith is NewLog for a quota that comes from elsewhere: it returns an
// error where NewLog panics, and also if quota has a Calendar or a Location.
func NewSlidingWith(quota Quota) (*Sliding, error) {
	if err := quota.checkLog(); err != nil {
		return nil, err
	}
	return &Sliding{epoch: time.Now(), rule: rule{quota.Limit, quota.Window}}, nil
}

// now returns the time since the epoch. It is read under the lock: two callers
// must not note their instants in the wrong order.
func (l *Sliding) now() time.Duration { return time.Since(l.epoch) }

// Take takes n if n fit now, and otherwise changes nothing and says when they
// will. n = 0 takes nothing and is always allowed; an n beyond the limit never
// is, and Err of the result is then [limits.ErrTooLarge]. It panics if n < 0.
func (l *Sliding) Take(n int64) limits.Result {
	mustNotBeNegative(n)
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.history.take(l.now(), l.rule, n)
}

// Peek returns what Take(0) does: the log as it is.
func (l *Sliding) Peek() limits.Result { return l.Take(0) }

// Return gives back n that Take or Admit has just granted and that were not
// used: the newest n are forgotten, and the log is then as if they had never
// been taken. It panics if n < 0.
//
// If others were admitted since, theirs are the newest, and forgotten instead;
// those kept leave the window sooner, so that up to n more than the limit may be
// admitted in a window. For what was taken a while ago use [Sliding.Adjust].
func (l *Sliding) Return(n int64) {
	mustNotBeNegative(n)
	l.adjust(-n, 0)
	l.bell.Ring()
}

// Reset forgets all calls.
func (l *Sliding) Reset() {
	defer l.bell.Ring() // after the lock
	l.mu.Lock()
	defer l.mu.Unlock()
	l.history = history{last: l.history.last}
}

// Quota returns the quota in force.
func (l *Sliding) Quota() Quota {
	l.mu.Lock()
	defer l.mu.Unlock()
	return Quota{Limit: l.rule.limit, Window: l.rule.window}
}

// SetLimit changes the quota, for whoever asks from now on. It returns an error
// and changes nothing where NewLog would panic.
//
// What was taken stays taken: after a change to a lower limit nothing fits until
// enough of it has left the window. A longer window does not bring back what
// has left the shorter one.
func (l *Sliding) SetLimit(limit int64, window time.Duration) error {
	if err := (Quota{Limit: limit, Window: window}).Check(); err != nil {
		return err
	}
	defer l.bell.Ring() // after the lock
	l.mu.Lock()
	defer l.mu.Unlock()
	l.history.advance(l.now(), l.rule.window)
	l.rule = rule{limit, window}
	return nil
}

// Admit takes n and returns 0 if n fit now; otherwise it takes nothing and
// returns how long until they will. It returns ctx.Err() if ctx is done and
// [limits.ErrTooLarge] if n is more than the limit, and takes nothing then. With it a
// Log is a limits.Limiter. It panics if n < 0.
func (l *Sliding) Admit(ctx context.Context, n int64) (wait time.Duration, err error) {
	mustNotBeNegative(n)
	return admit(ctx, n, l.Take)
}

// admit is Admit of something that is asked by take.
func admit(ctx context.Context, n int64, take func(int64) limits.Result) (time.Duration, error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	res := take(n)
	if err := res.Err(); err != nil {
		return 0, err
	}
	return res.RetryAfter, nil
}

// Adjust corrects by delta what a call took that was admitted age ago, once it
// is known what it really cost. A negative delta forgets the newest −delta of
// those admitted at that time or before: its own, unless others were admitted
// in between with an age that was measured a little too late. What has left the
// window is not given back. A positive delta takes now and without asking,
// beyond the limit if need be; nothing fits then before enough has left the
// window. A negative age counts as 0.
//
// With Adjust a Log is a limits.Limiter. It never fails and pays no attention to
// ctx: what is given back must not be lost because its caller gave up. It takes
// longer the more calls were admitted since, about 1 ns for each.
func (l *Sliding) Adjust(ctx context.Context, delta int64, age time.Duration) error {
	l.adjust(delta, age)
	if bell.Loud(ctx, delta) {
		l.bell.Ring()
	}
	return nil
}

// OnChange makes the log call f whenever it may admit a call earlier than it said,
// until stop is called: after [Sliding.Return], Reset, SetLimit, and an Adjust that gives
// back. With it a Log is a limits.Notifier: who waits for it in a gate or a
// sluice.NewQueue asks again at once. f must not block, nor use the log.
func (l *Sliding) OnChange(f func()) (stop func()) { return l.bell.Wait(f) }

func (l *Sliding) adjust(delta int64, age time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.history.adjust(l.now(), l.rule, delta, age)
}
