package forecast

import (
	"iter"
	"time"

	"github.com/sluice-go/sluice/internal/sat"
	"github.com/sluice-go/sluice/limits"
)

// A Sliding foresees a sliding window, or calls that are in flight for as long as the window.
type Sliding struct {
	limit  int64
	window time.Duration
	ramps  []ramp // in the window, the oldest first
	used   int64  // by them
	at     time.Duration
}

// A ramp is calls of one cost, evenly spaced.
type ramp struct {
	first, last time.Duration
	calls       int64
	gone        int64 // calls, the first ones, that have left the window
	cost        int64
}

// mostRamps is how many ramps stand for the calls of a window at the beginning.
const mostRamps = 1 << 10

// NewSliding returns a Sliding with what was taken before now, the oldest first. Of many, several
// together are taken to be evenly spaced.
func NewSliding(limit int64, window time.Duration, taken iter.Seq2[time.Duration, int64]) *Sliding {
	s := &Sliding{limit: limit, window: window}
	for at, n := range taken {
		if n > 0 && sat.Add(at, window) > 0 {
			s.ramps = append(s.ramps, ramp{first: at, last: at, calls: n, cost: 1})
			s.used += n
		}
	}
	if group := (len(s.ramps)-1)/mostRamps + 1; group > 1 {
		few := s.ramps[:0]
		for i := 0; i < len(s.ramps); i += group {
			r := s.ramps[i]
			for _, next := range s.ramps[i+1 : min(i+group, len(s.ramps))] {
				r.last, r.calls = next.last, r.calls+next.calls
			}
			few = append(few, r)
		}
		s.ramps = few
	}
	return s
}

// time returns when the i-th call of r started.
func (r *ramp) time(i int64) time.Duration {
	if r.calls == 1 {
		return r.first
	}
	return addMul(r.first, r.last-r.first, i, r.calls-1)
}

// until returns how many calls of r started at an instant or before.
func (r *ramp) until(at time.Duration) int64 {
	switch {
	case at >= r.last:
		return r.calls
	case at < r.first:
		return 0
	}
	span := int64(r.last - r.first)
	n, _, _ := sat.MulDiv(int64(at-r.first)+1, r.calls-1, span-1, span) // as time rounds
	return n
}

// left returns the units of r in the window.
func (r *ramp) left() int64 { return (r.calls - r.gone) * r.cost }

// pass forgets the calls that no longer count at that time.
func (s *Sliding) pass(at time.Duration) {
	for len(s.ramps) > 0 {
		r := &s.ramps[0]
		gone := r.until(at - s.window)
		s.used -= max(0, gone-r.gone) * r.cost
		if r.gone = max(r.gone, gone); r.gone < r.calls {
			return
		}
		s.ramps = s.ramps[1:]
	}
}

// Next implements limits.Forecast.
func (s *Sliding) Next(at time.Duration, calls, cost int64) (n int64, first, last time.Duration) {
	if cost > s.limit {
		return calls, limits.Never, limits.Never
	}
	at = max(at, s.at)
	s.pass(at)
	excess := s.used - (s.limit - cost) // that must leave before a call
	if excess <= 0 {
		return min(calls, (s.limit-s.used)/cost), at, at
	}
	for i := range s.ramps {
		r := &s.ramps[i]
		if left := r.left(); left < excess {
			excess -= left
			continue
		}
		leave := (excess-1)/r.cost + 1 // calls of r, for the first one
		slack := leave*r.cost - excess
		index := r.gone + leave - 1
		n = min(calls, 1+(r.left()-leave*r.cost+slack)/cost)
		first = sat.Add(r.time(index), s.window)
		if n == 1 {
			return n, first, first
		}
		if more := (n-1)*cost - slack; more > 0 {
			index += (more-1)/r.cost + 1
		}
		return n, first, sat.Add(r.time(index), s.window)
	}
	return calls, limits.Never, limits.Never // not reached: all of them leave
}

// Take implements limits.Forecast.
func (s *Sliding) Take(calls, cost int64, first, last time.Duration) {
	r := ramp{first: first, last: last, calls: calls, cost: cost}
	if last-first >= s.window { // the first ones have left before the last one starts
		gone := calls - 1 - int64((s.window-1)/max(1, (last-first)/time.Duration(calls-1)))
		if gone > 0 {
			r.first, r.calls = r.time(gone), calls-gone
		}
	}
	s.at = max(s.at, last)
	s.pass(s.at)
	s.ramps = append(s.ramps, r)
	s.used = int64(sat.Add(time.Duration(s.used), time.Duration(r.left())))
}

// endures implements enduring.
func (s *Sliding) endures(at time.Duration, cost int64, every time.Duration) bool {
	s.pass(max(at, s.at))
	return int64((s.window-1)/every) < (s.limit-s.used)/cost
}
