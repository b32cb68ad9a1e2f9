package kind

import (
	"math"
	"sort"
	"time"

	"github.com/sluice-go/sluice/limits"
	"github.com/sluice-go/sluice/sluiceredis/internal/sat"
)

// # How is a sliding window counted exactly, and in how much memory?
//
// The simplest version notes the time of every call, drops the times that have left the window, and
// counts the rest. The textbooks go wrong in three places. They note rejected calls as well: a
// caller that keeps trying keeps the window full for ever, and a flood takes as much memory as it
// likes. They make the time the identity of a call, so that calls at the same time are one. And
// they trim by a clock that can step back.
//
// Here only calls that were allowed are noted, so there are at most N. Calls at the same time form
// a run with a count. Each run carries the number of calls up to its end, since the beginning; so
// the calls of any stretch are a difference, and the run that must leave before n more fit is found
// by bisection. Time is the largest time ever seen.
//
// A call at t is in the window up to but not including t + W: windows are half
// open. With N = 3 and W = 10 s, calls at
//
//	at        0     4     4     7       9       10      13       14
//	noted     –     0     0 4   0 4 4   0 4 4   0 4 4   4 4 10   4 4 10   before it
//	allowed   yes   yes   yes   no      no      yes     no       yes
//	retry                       3       1               1                 until the oldest leaves
//
// and after the call at 10:
//
//	runs      ┌ 4: 3 ┬ 10: 4 ┐     the run at 4 ends with the 3rd call, the one
//	base 1 ───┴──────┴───────┘     at 10 with the 4th; 4 − 1 = 3 are in the window
//
// The invariant: at each time t the state holds every call since t − W that was
// allowed and not returned, and after one more is allowed they are at most N. Any
// window of length W ends at or after its last call, so none holds more than N.
//
// Units that are taken without asking (Adjust) may exceed N. The excess must leave before anything
// fits, so it does not matter when its oldest parts would: when there are more runs than N, the
// oldest two become one that leaves with the later of them. That is exact unless something is
// returned or the limit raised in between, and then errs on the side of fewer calls. A lower limit
// merges nothing that is there already, so it can be taken back.

// A Sliding is the algorithm of sliding windows: at most Limit units in any window of that length.
type Sliding struct {
	Limit  int64         // positive
	Window time.Duration // positive
}

// A SlidingState is the state of a sliding window: the times at which units were allowed, 16 bytes
// for all of the same time. The zero SlidingState is empty. It must not be copied once it is in
// use.
type SlidingState struct {
	ring  []run // runs, oldest first: n of them from ring[first] on, wrapping around
	first int
	n     int
	base  int64         // the number of calls before the oldest run
	last  time.Duration // the largest time ever seen
}

// A run is the calls at the same time.
type run struct {
	at  time.Duration
	end int64 // the number of calls up to and including this run; may wrap around
}

// minRing is the ring that is not worth shrinking.
const minRing = 8

// run returns the i-th oldest run.
func (s *SlidingState) run(i int) *run {
	if i += s.first; i >= len(s.ring) {
		i -= len(s.ring)
	}
	return &s.ring[i]
}

// used returns the number of recorded calls.
func (s *SlidingState) used() int64 {
	if s.n == 0 {
		return 0
	}
	return s.run(s.n-1).end - s.base
}

// Advance discards units that have left the window at now. It returns now, or the largest
// time ever seen if that is later.
func (r Sliding) Advance(s *SlidingState, now time.Duration) time.Duration {
	s.last = max(s.last, now)
	now = s.last
	gone := func(i int) bool { return sat.Sub(now, s.run(i).at) >= r.Window }
	switch {
	case s.n == 0 || !gone(0):
	case gone(s.n - 1):
		s.clear()
	default:
		s.drop(sort.Search(s.n, func(i int) bool { return !gone(i) }))
	}
	return now
}

// drop forgets the i oldest runs.
func (s *SlidingState) drop(i int) {
	s.base = s.run(i - 1).end
	s.fold(i)
}

// fold adds the calls of the i oldest runs to the run after them.
func (s *SlidingState) fold(i int) {
	if s.first += i; s.first >= len(s.ring) {
		s.first -= len(s.ring)
	}
	s.n -= i
}

func (s *SlidingState) clear() { s.first, s.n, s.base = 0, 0, 0 }

// Take records n units at now if they fit.
func (r Sliding) Take(s *SlidingState, now time.Duration, n int64) limits.Result {
	now = r.Advance(s, now)
	res := limits.Result{Limit: r.Limit}
	excess := s.used() - (r.Limit - n) // the number that must leave before n fit
	switch {
	case n == 0:
	case n > r.Limit:
		res.RetryAfter = limits.Never
	case excess > 0:
		res.RetryAfter = min(s.oldest(excess)+r.Window-now, limits.Never-1)
	default:
		r.Record(s, now, n)
	}
	res.Remaining = max(0, r.Limit-s.used())
	if s.n > 0 {
		// In this order: a time plus a window may be more than 292 years,
		// but units in the window are younger than it.
		res.ResetAfter = r.Window - (now - s.run(s.n-1).at)
	}
	return res
}

// oldest returns the time of the k-th oldest call.
func (s *SlidingState) oldest(k int64) time.Duration {
	return s.run(sort.Search(s.n, func(i int) bool { return s.run(i).end-s.base >= k })).at
}

// Record records n > 0 units at a time that is not earlier than any recorded one, whether they fit
// or not, to restore a state that was stored. Only here the time may be negative.
func (r Sliding) Record(s *SlidingState, at time.Duration, n int64) {
	end := s.base + s.used() + n
	if s.n > 0 && s.run(s.n-1).at == at {
		s.run(s.n - 1).end = end
		return
	}
	if s.n > 0 && int64(s.n) >= r.Limit {
		s.fold(1)
	}
	s.fit(r.Limit)
	s.n++
	*s.run(s.n - 1) = run{at, end}
}

// fit makes room for one more run, and frees memory if there is four times
// as much as is needed.
func (s *SlidingState) fit(limit int64) {
	size := len(s.ring)
	switch {
	case s.n == size:
		size = int(min(max(2*int64(size), 1), max(limit, int64(size)+1)))
	case size > minRing && 4*s.n < size:
		size = max(2*s.n, minRing)
	default:
		return
	}
	ring := make([]run, size)
	for i := range s.n {
		ring[i] = *s.run(i)
	}
	s.ring, s.first = ring, 0
}

// Adjust records delta more units at now, whether they fit or not. If delta is negative
// it removes the newest −delta of those that are at least as old as age.
func (r Sliding) Adjust(s *SlidingState, now time.Duration, delta int64, age time.Duration) {
	now = r.Advance(s, now)
	if delta > 0 {
		if n := min(delta, math.MaxInt64-s.used()); n > 0 {
			r.Record(s, now, n)
		}
		return
	}
	since := now - max(0, age)
	older := sort.Search(s.n, func(i int) bool { return s.run(i).at > since })
	if older == 0 {
		return
	}
	// Counted from base, for an end may wrap around.
	gone := min(s.run(older-1).end-s.base, -max(delta, -math.MaxInt64))
	if gone == 0 {
		return
	}
	left := s.run(older-1).end - s.base - gone // of those as old
	keep := sort.Search(older, func(i int) bool { return s.run(i).end-s.base >= left })
	if left > 0 {
		s.run(keep).end = s.base + left
		keep++
	}
	for ; older < s.n; older, keep = older+1, keep+1 {
		*s.run(keep) = run{s.run(older).at, s.run(older).end - gone}
	}
	if s.n = keep; s.n == 0 {
		s.clear()
	}
}

// Len returns the number of recorded times.
func (s *SlidingState) Len() int { return s.n }
