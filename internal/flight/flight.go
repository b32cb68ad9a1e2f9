// Package flight counts the calls in flight of a gate, with the lock of its queue held and
// without it, in one word that both change by compare-and-swap; and it estimates the time they stay.
package flight

import (
	"math"
	"sync/atomic"
	"time"
)

// A Counter is the number of calls in flight and, in the upper half of the word, the number of
// those admitted without the lock since [Counter.Passed] was last called. A word of its own for
// that would cost each call a tenth of its time. The upper half does not overflow, because one call
// in 64 takes the lock to be measured. The zero Counter has no calls in flight.
type Counter struct {
	_    [64]byte // every call changes the word, and reads the fields next to it in a gate
	word atomic.Int64
	_    [64]byte
}

// Most is the most calls that a Counter can count.
const Most = lower

const (
	lower     = math.MaxUint32 // the half of the word that has the calls in flight
	onePassed = 1 << 32        // in the other half
)

// AddUnlocked adds a call, without the lock, if there are fewer than places.
func (c *Counter) AddUnlocked(places int64) bool { return c.take(places, 1+onePassed) }

// Add adds a call, with the lock held, if there are fewer than places.
func (c *Counter) Add(places int64) bool { return c.take(places, 1) }

func (c *Counter) take(places, by int64) bool {
	for {
		word := c.word.Load()
		if word&lower >= places {
			return false
		}
		if c.word.CompareAndSwap(word, word+by) {
			return true
		}
	}
}

// UncountPassed corrects Passed for a call of AddUnlocked that did not start.
func (c *Counter) UncountPassed() { c.word.Add(-onePassed) }

// End takes a call away. It panics if there is none: below 0 the number would wrap
// to the largest there is, and the gate would be full for good.
func (c *Counter) End() {
	if c.word.Add(-1)&lower == lower {
		c.word.Add(1)
		panic("sluice: more calls ended than began")
	}
}

// Calls returns the number of calls in flight.
func (c *Counter) Calls() int64 { return c.word.Load() & lower }

// Passed returns the number of calls that were admitted without the lock since it was last called. The
// lock is held. It is −1 if one of those did not start in the end.
func (c *Counter) Passed() int64 {
	n := c.word.Load() >> 32
	if n != 0 {
		c.word.Add(-n << 32)
	}
	return n
}

// A Hold estimates the time that calls stay in flight. It measures the first two calls, then one
// in two, one in four and so on, and in the end one in 64: to read the clock again, and to take
// the lock, would double the cost of a call that does not wait. To measure the first 64 would
// do that for most calls of a program with thousands of gates.
type Hold struct {
	measured atomic.Int64

	// Guarded by the lock of the gate's queue.
	average time.Duration // exponentially weighted, 1/32 for each
	refused int           // calls that are about to be measured and do not count
}

// Wanted reports whether to measure the call that started at since: one start in so many, chosen by
// a hash, so that no counter is shared.
func (h *Hold) Wanted(since time.Duration) bool {
	bits := min(h.measured.Load()/2, 6)
	return uint64(since)*0x9e3779b97f4a7c15>>(64-bits) == 0
}

// Add counts a call that is Wanted and stayed for d.
func (h *Hold) Add(d time.Duration) {
	if h.refused > 0 {
		h.refused--
		return
	}
	h.average += (d - h.average) / time.Duration(min(h.measured.Add(1), 32))
}

// Skip is called before the end of a call that started at since and that the server throttled:
// its duration says nothing about other calls.
func (h *Hold) Skip(since time.Duration) {
	if h.Wanted(since) {
		h.refused++
	}
}

// Mean returns the mean time that a call stays, 0 if none was measured.
func (h *Hold) Mean() time.Duration { return h.average }
