package schedule

import (
	"sync/atomic"
	"time"

	"github.com/sluice-go/sluice/internal/errs"
	"github.com/sluice-go/sluice/internal/sat"
)

// A Lane lets calls of cost 1 pass without the lock that guards a Schedule.
//
// # How is a slot taken without the lock?
//
// While no call waits, the state of an evenly spaced limiter is one instant: when
// the next call may start. A call that comes later than that leaves, and moves the
// instant to an interval after now; a call that comes earlier is rejected or must
// wait. That is one reading of the clock and one compare-and-swap. A call that loses
// the swap backs off, see package contend, and in the end takes the lock.
//
// Everything else is done by the Schedule under the lock: waiting, costs
// other than 1, bursts, a warm-up, lateness that is still being caught up,
// intervals that are not a whole number of nanoseconds. While a caller holds the
// lock or waits, the instant is closed:
//
//	next ≥ 0        open: no call waits; it is the next slot of the schedule = closed   the schedule has the state; take the lock
//
// The lowest bit of the word says whether calls have passed since it was opened: with no
// interval, as of a gate without a rate, a call may leave the instant as it was, and the
// schedule must learn of it all the same.
//
// The invariant: at each instant either the lane is closed or the schedule is not
// used. Closing is a swap, so a call that has read the open instant fails to change
// it, and the schedule learns of all that passed before.
//
// An interval is fixed for the life of its Slots. A new one makes new Slots and
// leaves the old ones closed for good: with an interval beside the instant, a call
// that had read the old interval could find, after a change and other calls, the
// same instant again, and leave at the old rate.
type Lane struct {
	slots atomic.Pointer[Slots]
}

// Slots are the slots of one interval.
type Slots struct {
	interval time.Duration
	places   int64
	early    atomic.Bool // a hint: the call that looked last was
	_        [44]byte
	next     atomic.Int64 // a Word, alone in its line of the cache
	_        [56]byte
}

// A Word is the instant of the next slot, shifted by one, and whether calls have
// passed; or closed.
type Word int64

const (
	closed Word = -1
	passed Word = 1
)

// furthest is the longest interval and the furthest instant for which a lane opens:
// no Word overflows in the next 73 years.
const furthest = sat.Max / 4

func (w Word) instant() time.Duration { return time.Duration(w >> 1) }

// Init makes l ready, and closed.
func (l *Lane) Init() { l.slots.Store(newSlots(0, 0)) }

// newSlots returns slots that are closed.
func newSlots(interval time.Duration, places int64) *Slots {
	s := &Slots{interval: interval, places: places}
	s.next.Store(int64(closed))
	s.early.Store(true) // so that for a lane that is never opened no clock is read
	return s
}

// Slots returns the slots that apply. It panics if l is part of a zero value.
func (l *Lane) Slots() *Slots {
	s := l.slots.Load()
	errs.Made(s != nil, "value of a Gate or Pacer", "its New")
	return s
}

// Places returns the places given to Open.
func (s *Slots) Places() int64 { return s.places }

// A Verdict is the decision of a lane about a call.
type Verdict int

const (
	Leave Verdict = iota // it is let through
	Early                // no call waits, but its slot is yet to come
	Ask                  // take the lock
)

// Look reads the clock, which epoch has at 0, and the word, and returns the verdict for
// a call that comes now.
//
// Reading the clock takes longer than all else. Read between the load of the word and
// its swap, it is when another call wins: of two processors half of the calls would
// lose. So it is read before the word. A call that then leaves has a clock no older
// than any that left before, because the word is never before their instants. But a
// call that was delayed in between may seem early for a slot that has come long ago, so
// it reads the clock once more. That would make rejections cost half as much again; so
// while calls are early, and there is nothing to swap, the clock is read after the
// word. The price: a call that finds the lane closed while none is early has read the
// clock in vain.
func (s *Slots) Look(epoch time.Time) (next Word, now time.Duration, v Verdict) {
	early := s.early.Load()
	if !early {
		now = time.Since(epoch)
	}
	next = Word(s.next.Load())
	if next == closed {
		return next, 0, Ask
	}
	if !early && now >= next.instant() {
		return next, now, Leave
	}
	now = time.Since(epoch)
	if now < next.instant() {
		v = Early
	}
	if is := v == Early; is != early {
		s.early.Store(is)
	}
	return next, now, v
}

// LookAt is Look for a caller that has read the clock already, which showed before.
func (s *Slots) LookAt(epoch time.Time, before time.Duration) (next Word, now time.Duration, v Verdict) {
	now = before
	if next = Word(s.next.Load()); next == closed {
		return next, now, Ask
	}
	if now < next.instant() {
		if now = time.Since(epoch); now < next.instant() {
			v = Early
		}
	}
	return next, now, v
}

// Interval returns the interval given to Open.
func (s *Slots) Interval() time.Duration { return s.interval }

// Take lets a call through at now for which Look returned next and Leave, and reports
// true; or false, because others have changed next in between. Try again after
// contend.Lost, with another reading of the clock.
func (s *Slots) Take(next Word, now time.Duration) bool {
	return s.next.CompareAndSwap(int64(next), int64(now+s.interval)<<1|int64(passed))
}

// Close closes the lane. It returns when the next call may start and whether calls
// have passed since Open. The lock must be held, as for Open.
func (l *Lane) Close() (next time.Duration, used bool) {
	w := Word(l.slots.Load().next.Swap(int64(closed)))
	return w.instant(), w&passed != 0
}

// Open opens the lane: the next call may start at next, and others interval apart.
// places is another number that is fixed for as long as the interval is. It reports
// false if that is too far away for a lane.
func (l *Lane) Open(next, interval time.Duration, places int64) bool {
	if next < 0 || next > furthest || interval > furthest {
		return false
	}
	s := l.slots.Load()
	if s.interval != interval || s.places != places {
		s = newSlots(interval, places)
		l.slots.Store(s)
	}
	s.next.Store(int64(next) << 1)
	return true
}

// # How is a slot returned after others have started?
//
// A call that took a slot and cannot use it after all, because of another schedule, returns it a
// moment later. If it is the last call, the next one may start in its place. If others have started
// since, they may have waited for it. With T = 10 ms, a call that took the slot at 0, and others
// that came at 1 and 2 ms:
//
//	slots       0   10   20   30
//	taken by    –    b    c
//
// Without it b and c would have been charged at 0 and 10, and the next slot would be 20. So
// GiveBack does that: it charges b and c an interval earlier, as if we had woken them that late. It
// returns no more than the catch-up allows after the lateness that they had already, so the bound
// of the package holds. Later calls catch up at twice the rate, like any lateness.
//
// If there was a gap between the calls, those after it did not wait for the slot. It was not
// used in time, and is lost. So is one that comes back much later than the catch-up allows.

// A streak is the calls that were charged T apart, up to the last one, in two parts. When the
// second has lasted for the catch-up, the first is discarded.
type streak struct {
	from, middle time.Duration // when the first call of each part was charged
	late, later  time.Duration // how late a call of each part left, at most
}

// follow notes a call that starts at now and is charged at charged. Without a gap, that is tat.
func (s *streak) follow(now, charged, tat, catchUp time.Duration) {
	switch {
	case charged > tat:
		*s = streak{from: charged, middle: charged}
	case charged-s.middle > catchUp:
		*s = streak{from: s.middle, middle: charged, late: s.later}
	}
	s.later = max(s.later, now-charged)
}

// GiveBack returns the slot of a call of cost 1 that was charged at the instant at, when
// T was t, and has not left. There must have been no burst and no warm-up.
func (s *Schedule) GiveBack(at, t time.Duration) {
	switch {
	case s.last == at:
		s.Adjust(-1)
		return
	case at < s.streak.from, s.tau > 0: // a burst since then catches up
		return
	}
	if t = min(t, s.catchUp-max(s.streak.late, s.streak.later)); t <= 0 {
		return
	}
	repay := s.tolerated(s.last) // as Admit does, had the last call been late
	if s.credit > 0 {
		repay = max(repay, s.repay)
	}
	s.credit, s.repay = s.credit+t, repay
	s.streak.late += t
	s.streak.later += t
	s.last -= t
	s.tat, s.rem = s.owed()
}
