package sluice

import (
	"sort"
	"time"

	"github.com/sluice-go/sluice/internal/adaptive"
)

// outstanding are the calls that have left and not ended, in the order in which they left.
//
// A permit knows when its call left and what it cost, and finds it by that. Two calls of
// one cost that left at one instant may be exchanged; that makes no difference: what they were
// settled by stays with the permit. A field of the permit for the call
// would make every permit longer, also those of gates that learn nothing.
type outstanding struct {
	calls []leftCall
	ended int // of calls
}

type leftCall struct {
	at      time.Duration
	n       int64
	charged float64 // for what it is to take of n
	call    adaptive.Call
	ended   bool
}

// add adds a call of n that leaves at now, not before those added earlier.
func (o *outstanding) add(now time.Duration, n int64, charged float64, c adaptive.Call) {
	if len(o.calls) == cap(o.calls) && o.ended > len(o.calls)/2 {
		kept := o.calls[:0]
		for _, c := range o.calls {
			if !c.ended {
				kept = append(kept, c)
			}
		}
		o.calls, o.ended = kept, 0
	}
	o.calls = append(o.calls, leftCall{at: now, n: n, charged: charged, call: c})
}

// take removes a call of n that left at since, or else the last one before, and returns it
// and what it was charged.
func (o *outstanding) take(since time.Duration, n int64) (c adaptive.Call, charged float64, ok bool) {
	found := o.find(since, n)
	if found < 0 {
		return c, 0, false
	}
	o.calls[found].ended = true
	o.ended++
	c, charged = o.calls[found].call, o.calls[found].charged
	if o.ended == len(o.calls) {
		o.calls, o.ended = o.calls[:0], 0
	}
	return c, charged, true
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
