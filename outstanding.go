package sluice

import (
	"sort"
	"time"

	"github.com/sluice-go/sluice/internal/adaptive"
)

// outstanding are the calls that have left and not ended, in the order in which they left.
//
// A permit knows when its call left and what it cost, and finds it by that. Two calls of
// one cost that left at one instant may be exchanged; that makes no difference. A field of the permit for the call
// would make every permit longer, also those of gates that learn nothing.
type outstanding struct {
	calls []leftCall
	ended int // of calls
}

type leftCall struct {
	at      time.Duration
	n       int64
	settled int64 // to be added to what it took, if it is granted
	call    adaptive.Call
	ended   bool
}

// add adds a call of n that leaves at now, not before those added earlier.
func (o *outstanding) add(now time.Duration, n int64, c adaptive.Call) {
	if len(o.calls) == cap(o.calls) && o.ended > len(o.calls)/2 {
		kept := o.calls[:0]
		for _, c := range o.calls {
			if !c.ended {
				kept = append(kept, c)
			}
		}
		o.calls, o.ended = kept, 0
	}
	o.calls = append(o.calls, leftCall{at: now, n: n, call: c})
}

// take removes a call of n that left at since, or else the last one before, and returns it
// and what it is to be settled by.
func (o *outstanding) take(since time.Duration, n int64) (c adaptive.Call, settled int64, ok bool) {
	found := o.find(since, n)
	if found < 0 {
		return c, 0, false
	}
	o.calls[found].ended = true
	o.ended++
	c, settled = o.calls[found].call, o.calls[found].settled
	if o.ended == len(o.calls) {
		o.calls, o.ended = o.calls[:0], 0
	}
	return c, settled, true
}

// settle notes that a call of n that left at since, and has not ended, is to be settled by
// delta. It reports whether there is such a call.
func (o *outstanding) settle(since time.Duration, n, delta int64) bool {
	i := o.find(since, n)
	if i < 0 || o.calls[i].at != since || o.calls[i].n != n {
		return false
	}
	o.calls[i].settled += delta
	return true
}

// find returns the index of a call of n that left at since, or else of the last one before,
// or −1.
func (o *outstanding) find(since time.Duration, n int64) int {
	i := sort.Search(len(o.calls), func(i int) bool { return o.calls[i].at > since })
	found := -1
	for i--; i >= 0; i-- {
		c := &o.calls[i]
		if c.ended {
			continue
		}
		if found < 0 {
			found = i
		}
		if c.at < since {
			break
		}
		if c.n == n {
			found = i
			break
		}
	}
	return found
}
