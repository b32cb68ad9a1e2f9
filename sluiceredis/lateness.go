package sluiceredis

import (
	"sync/atomic"
	"time"
)

// # How late may a call be for its slot?
//
// A call that starts later than its slot comes closer to the next one. If the process stalls, all
// calls that missed their slots leave together at its end. So there must be a bound, and slots
// beyond it stay empty. A fixed bound is either too long for a server that wants calls apart, or
// too short for a process that computes: where timers are 10 ms late all the time, 5 ms lost
// four of five slots. So the bound follows the recent delays of calls: a process that is late
// all the time uses its slots, and one that stalls once loses those of the stall.

const (
	leastLate = 5 * time.Millisecond
	mostLate  = 50 * time.Millisecond
)

// A lateness says how late a call may be. It is safe for use by multiple goroutines.
type lateness struct {
	fixed  time.Duration // as configured; 0: it follows recent
	recent atomic.Int64  // ns; nearly the largest delay of a call
}

// most returns the time after its slot at which a call may still start.
func (l *lateness) most() time.Duration {
	if l.fixed > 0 {
		return l.fixed
	}
	return max(leastLate, min(mostLate, time.Duration(l.recent.Load())*3/2))
}

// note records that a call was late by d. It rises immediately and falls over about 100 calls: the
// latest of them decide the number of lost slots.
func (l *lateness) note(d time.Duration) {
	before := l.recent.Load()
	now := int64(max(0, min(d, mostLate)))
	if now < before {
		now = before - (before-now)/64
	}
	if now != before {
		l.recent.Store(now)
	}
}
