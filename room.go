package sluice

import (
	"math"
	"sync/atomic"
	"time"

	"github.com/sluice-go/sluice/internal/flight"
	"github.com/sluice-go/sluice/internal/forecast"
	"github.com/sluice-go/sluice/limits"
)

// A room is where the calls of a gate are in flight: the limit, and the calls that take of it. The
// limit and the unit are guarded by the lock of the gate's queue.
//
// Calls that start without the lock take their places in calls at the same time, if those are what
// the limit counts: see admitUnlocked. So code that holds the lock takes a place in one step, too.
type room struct {
	limit int64 // 0: none
	unit  Unit
	calls flight.Counter
	cost  atomic.Int64 // of these calls, if the limit counts that
}

// take takes the room for a call of n, and reports whether there was any.
func (r *room) take(n int64) bool {
	if r.unit != Cost {
		return r.calls.Add(r.places())
	}
	if !r.has(n) || !r.calls.Add(flight.Most) {
		return false
	}
	r.cost.Add(n)
	return true
}

// giveBack undoes take. The lock was held since: a caller that found no room meanwhile asks again
// under the lock before it waits.
func (r *room) giveBack(n int64) {
	r.calls.End()
	if r.unit == Cost {
		r.cost.Add(-n)
	}
}

// has reports whether a call of n may be in flight, too.
func (r *room) has(n int64) bool {
	most := r.limit
	if most == 0 {
		most = math.MaxInt64
	}
	return r.unit.of(n) <= most-r.used()
}

// refuse implements queue.Config.Refuse: a call that has no room even if it is alone never starts.
func (r *room) refuse(n int64) error {
	if r.limit > 0 && r.unit.of(n) > r.limit {
		return limits.ErrTooLarge
	}
	return nil
}

// used returns the amount in flight, in the unit of the limit.
func (r *room) used() int64 {
	if r.unit == Cost {
		return r.cost.Load()
	}
	return r.calls.Calls()
}

// places returns how many calls may be in flight, as far as a flight.Counter can count.
func (r *room) places() int64 {
	if r.limit == 0 {
		return flight.Most
	}
	return min(r.limit, flight.Most)
}

// mostCalls returns how many calls may be in flight as configured, 0 if that is not limited. r may be
// nil: the memory of the zero Gate has none.
func (r *room) mostCalls() int {
	if r == nil || r.unit != Calls {
		return 0
	}
	return int(min(r.limit, math.MaxInt32))
}

// settle adds delta to the cost of a call in flight, as far as that can be counted, and returns by
// how much that is.
func (r *room) settle(delta int64) int64 {
	delta = min(delta, math.MaxInt64-r.cost.Load())
	r.cost.Add(delta)
	return delta
}

// inFlightFor returns the forecast of a number of places for calls that stay for hold. So many are
// taken, for at most as long.
func inFlightFor(hold time.Duration, places, taken int64) limits.Forecast {
	return forecast.NewSliding(places, hold, func(yield func(time.Duration, int64) bool) { yield(0, taken) })
}
