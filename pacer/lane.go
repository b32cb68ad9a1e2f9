package pacer

import (
	"sync/atomic"
	"time"

	"github.com/sluice-go/sluice/internal/queue"
	"github.com/sluice-go/sluice/internal/schedule"
)

// # How does a call pass without the lock?
//
// The slots of an evenly spaced pacer for which nobody waits are one instant:
// when the next call may leave. A call that comes later than that leaves, and
// moves the instant to an interval after now; a call that comes earlier is
// refused or must wait. That is one reading of the clock and one
// compare-and-swap.
//
// Everything else is done under the queue's lock by package schedule: waiting,
// weights other than 1, bursts, a warm-up, lateness that is still being made up
// for, intervals that are no whole number of nanoseconds. While somebody holds
// that lock or waits, the instant is closed:
//
//	next ≥ 0        open: nobody waits; it is what the schedule would say
//	next = closed   the schedule knows; take the lock
//
// A rate is fixed for the life of a lane's slots. A new one makes new slots and
// leaves the old closed for good: with a rate beside the instant, a call that
// had read the old rate could find, after a change and other calls, the same
// instant again and leave at the old rate.
type lane struct {
	queue    queue.Queue
	schedule schedule.Schedule // guarded by the queue's lock

	slots  atomic.Pointer[slots]
	opened time.Duration // next as it was opened, guarded by the lock
}

type slots struct {
	interval time.Duration
	next     atomic.Int64 // since the queue was made, or closed
}

const closed = -1

// newSlots returns slots that are closed.
func newSlots(interval time.Duration) *slots {
	s := &slots{interval: interval}
	s.next.Store(closed)
	return s
}

// A verdict is what the lane says to a call.
type verdict int

const (
	leave verdict = iota // it has been let through
	early                // nobody waits, but its slot is yet to come
	ask                  // that is for the queue to say
)

// take lets a call of weight 1 through at now if it can.
//
// The clock is read first. If it were read between the load and the swap, as
// x/time/rate reads it under its lock, two processors would mostly find that the
// other has been there meanwhile: 153 ns per call instead of FIXME. A call that
// finds a slot that was taken later than now was there at the same time as that
// one, and came second.
func (l *lane) take() (now time.Duration, v verdict) {
	s := l.slots.Load()
	now = l.queue.Now()
	for {
		next := time.Duration(s.next.Load())
		switch {
		case next == closed:
			return now, ask
		case now < next:
			return now, early
		case s.next.CompareAndSwap(int64(next), int64(now+s.interval)):
			return now, leave
		}
	}
}

// Close implements queue.Latch.
func (l *lane) Close() {
	if next := time.Duration(l.slots.Load().next.Swap(closed)); next != l.opened {
		l.schedule.Took(next)
	}
}

// Open implements queue.Latch.
func (l *lane) Open() bool {
	next, interval, ok := l.schedule.Plain()
	if !ok {
		return false
	}
	s := l.slots.Load()
	if s.interval != interval {
		s = newSlots(interval)
		l.slots.Store(s)
	}
	l.opened = next
	s.next.Store(int64(next))
	return true
}

// Admit implements queue.Rule.
func (l *lane) Admit(now, due time.Duration, n int64) time.Duration {
	return l.schedule.Admit(now, due, n)
}

// Forecast implements queue.Rule.
func (l *lane) Forecast(now time.Duration, ahead int64) time.Duration {
	return l.schedule.Wait(now, ahead)
}

// fine reports whether the interval is so short that a timer, which may be 1 ms
// late, would make it uneven.
func (l *lane) fine() bool { return l.schedule.Interval() <= 100*time.Millisecond }
