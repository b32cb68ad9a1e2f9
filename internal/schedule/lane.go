package schedule

import (
	"sync/atomic"
	"time"
)

// A Lane is the way of calls of weight 1 past the lock that guards a Schedule.
//
// # How is a slot taken without the lock?
//
// The slots of an evenly spaced limiter for which nobody waits are one instant:
// when the next call may leave. A call that comes later than that leaves, and
// moves the instant to an interval after now; a call that comes earlier is
// refused or must wait. That is one reading of the clock and one
// compare-and-swap.
//
// Everything else is done by the Schedule under the lock: waiting, weights
// other than 1, bursts, a warm-up, lateness that is still being made up for,
// intervals that are no whole number of nanoseconds. While somebody holds the
// lock or waits, the instant is closed:
//
//	next ≥ 0        open: nobody waits; it is what the schedule would say
//	next = closed   the schedule knows; take the lock
//
// The invariant: at each instant either the lane is closed or the schedule is
// not looked at. Closing is a swap, so a call that has read the open instant
// fails to change it, and the schedule is told of all that passed before.
//
// An interval is fixed for the life of its slots. A new one makes new slots and
// leaves the old closed for good: with an interval beside the instant, a call
// that had read the old interval could find, after a change and other calls, the
// same instant again, and leave at the old rate.
type Lane struct {
	slots  atomic.Pointer[Slots]
	opened time.Duration // next as it was opened, guarded by the lock
}

// Slots are those of one interval.
type Slots struct {
	interval time.Duration
	places   int64
	next     atomic.Int64 // an instant, or closed
}

const closed = -1

// Init makes l ready, and closed.
func (l *Lane) Init() { l.slots.Store(newSlots(0, 0)) }

// newSlots returns slots that are closed.
func newSlots(interval time.Duration, places int64) *Slots {
	s := &Slots{interval: interval, places: places}
	s.next.Store(closed)
	return s
}

// Slots returns the slots in force.
func (l *Lane) Slots() *Slots { return l.slots.Load() }

// Places returns what Open was told along with the interval.
func (s *Slots) Places() int64 { return s.places }

// A Verdict is what a lane says to a call.
type Verdict int

const (
	Leave Verdict = iota // it is let through
	Early                // nobody waits, but its slot is yet to come
	Ask                  // take the lock
)

// Look returns what Take would, and takes nothing.
func (s *Slots) Look(now time.Duration) Verdict {
	return verdict(now, time.Duration(s.next.Load()))
}

func verdict(now, next time.Duration) Verdict {
	switch {
	case next == closed:
		return Ask
	case now < next:
		return Early
	}
	return Leave
}

// Near reports whether the slot for which it was early at now is no more than
// 1 µs away: then it is worth another reading of the clock, or a few.
func (s *Slots) Near(now time.Duration) bool {
	return time.Duration(s.next.Load())-now <= time.Microsecond
}

// Take lets a call through at now, if it can.
//
// The clock is read before. If it were read between the load and the swap, two
// processors would mostly find that the other has been there meanwhile: 153 ns
// per call instead of 80. The price is that a call may be overtaken between its
// reading of the clock and here by another whose reading is later. That one may
// be so much later that there is a slot after it already; see Near.
func (s *Slots) Take(now time.Duration) Verdict {
	for {
		next := time.Duration(s.next.Load())
		if v := verdict(now, next); v != Leave || s.next.CompareAndSwap(int64(next), int64(now+s.interval)) {
			return v
		}
	}
}

// Close closes the lane. If calls have passed since Open, it returns when the
// next may leave and true. The lock must be held, as for Open.
func (l *Lane) Close() (next time.Duration, used bool) {
	next = time.Duration(l.slots.Load().next.Swap(closed))
	return next, next != l.opened
}

// Open opens the lane: the next call may leave at next, and others interval
// apart. places is what the caller wants to be as sure of as of the interval.
func (l *Lane) Open(next, interval time.Duration, places int64) {
	s := l.slots.Load()
	if s.interval != interval || s.places != places {
		s = newSlots(interval, places)
		l.slots.Store(s)
	}
	l.opened = next
	s.next.Store(int64(next))
}
