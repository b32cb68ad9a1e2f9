package kind

import (
	"math"
	"time"

	"github.com/sluice-go/sluice/internal/sat"
	"github.com/sluice-go/sluice/limits"
)

// # When is a fixed window over?
//
// A window that is anchored begins with the first call after the one before it
// had ended, and ends W later, on the monotonic clock. A window without calls
// has not begun: a call that is returned leaves no anchor.
//
// A window with edges on the wall clock, such as a day, ends when that clock says so,
// and people and time servers set it. Each simple answer is wrong. To count the calls of
// whatever day the clock shows lets a clock that is put back over midnight and runs over it
// again grant the day twice. Never to begin a window before the latest one seen shuts all
// callers out for a year if the clock was a year fast for a moment. To read the wall clock
// once and go by the monotonic one from there begins the day eight hours late on a machine
// that slept for eight hours. So:
//
//	the window is over   when the wall clock has reached its end,
//	                     or shows a time before its start and the window
//	                     has been that applies for as long as it is long
//
// With a limit per day, all of it used on the 2nd, from 09:00 on:
//
//	09:00 of the 2nd, set to 08:00 of the 2nd    still the 2nd: it lasts 25 hours
//	00:10 of the 3rd, set to 23:10 of the 2nd    if there were calls since 00:00 they count
//	                                             for the 3rd, and those at 23:10, too
//	12:00 of the 2nd, set to 12:00 of the 1st    still the 2nd, until 09:00 of the 2nd
//	                                             shows again: then it has been a day
//	12:00 of the 2nd, set to 12:00 of the 3rd    the 3rd begins: a machine that slept looks
//	                                             the same. Set back, the 3rd goes on
//
// So with the clock put back nothing is admitted twice, and the rest of the current window can
// still be had. No call waits longer than the window is long because the clock was wrong. A clock
// that is put forward over an edge begins a window, one however many edges it skips, and the rest
// of the old one is lost.

// A Fixed is the algorithm of fixed windows: at most Limit units per window, one window after the
// other.
type Fixed struct {
	Limit  int64         // positive
	Window time.Duration // positive; not used if there are Edges

	// Edges returns the window that contains a time, both in nanoseconds of Unix time: from start
	// up to but not including end. Nil means that a window begins with the first call after the end
	// of the previous one.
	Edges func(wall int64) (start, end int64)
}

// A FixedState is the state of the current window. The zero FixedState is of a limit that was never
// used.
type FixedState struct {
	Used int64         // units in the window; may be more than the limit
	From time.Duration // since when it is current

	// With edges: when it begins and ends, in Unix time. Both are 0 if there is no
	// window yet.
	Start, End int64
}

// Over reports whether the window has ended, or there is none. Here and in the other methods now is
// monotonic time, and wall is Unix time in nanoseconds, which is not used without edges.
func (r Fixed) Over(s *FixedState, now time.Duration, wall int64) bool {
	switch {
	case r.Edges == nil:
		return s.Used == 0 || sat.Sub(now, s.From) >= r.Window
	case s.Start == s.End || wall >= s.End:
		return true
	}
	return wall < s.Start && sat.Sub(now, s.From) >= s.length()
}

func (s *FixedState) length() time.Duration { return time.Duration(s.End - s.Start) }

// left returns the time until the window, which is not over, will be,
// if the clock is not set.
func (r Fixed) left(s *FixedState, now time.Duration, wall int64) time.Duration {
	if r.Edges == nil {
		return sat.Sub(r.Window, sat.Sub(now, s.From))
	}
	if wall < s.Start {
		left := sat.Sub(s.length(), sat.Sub(now, s.From))
		if time.Duration(wall) < time.Duration(s.Start)-left {
			return left
		}
	}
	return sat.Sub(time.Duration(s.End), time.Duration(wall))
}

// Begin begins a window at now, with nothing used.
func (r Fixed) Begin(s *FixedState, now time.Duration, wall int64) {
	*s = FixedState{From: now}
	if r.Edges != nil {
		s.Start, s.End = r.Edges(wall)
	}
}

// Take counts n units at now if they fit.
func (r Fixed) Take(s *FixedState, now time.Duration, wall int64, n int64) limits.Result {
	over := r.Over(s, now, wall)
	used, left := s.Used, time.Duration(0)
	if over {
		used = 0
	}
	if used > 0 {
		left = r.left(s, now, wall)
	}
	after, res := r.Decide(used, left, n)
	if after == used {
		return res
	}
	if over {
		r.Begin(s, now, wall)
	}
	if s.Used = after; used == 0 {
		res.ResetAfter = r.left(s, now, wall)
	}
	return res
}

// Decide is Take for a window with used units that will be over after left. It returns the number
// that is used then.
func (r Fixed) Decide(used int64, left time.Duration, n int64) (int64, limits.Result) {
	res := limits.Result{Limit: r.Limit}
	switch {
	case n == 0:
	case n > r.Limit:
		res.RetryAfter = limits.Never
	case used > r.Limit-n:
		res.RetryAfter = min(left, limits.Never-1)
	default:
		used += n
	}
	res.Remaining = max(0, r.Limit-used)
	if used > 0 {
		res.ResetAfter = left
	}
	return used, res
}

// Adjust counts delta more units, whether they fit or not, or −delta fewer if they were
// counted age ago in the current window.
func (r Fixed) Adjust(s *FixedState, now time.Duration, wall int64, delta int64, age time.Duration) {
	over := r.Over(s, now, wall)
	switch {
	case delta > 0:
		if over {
			r.Begin(s, now, wall)
		}
		s.Used += min(delta, math.MaxInt64-s.Used)
	case !over && now-max(0, age) >= s.From:
		s.Used = max(0, s.Used+delta)
	}
}

// Idle reports whether s is at now no different from a new state, and will remain so if the wall
// clock is put back.
func (r Fixed) Idle(s *FixedState, now time.Duration, wall int64) bool {
	return r.Over(s, now, wall) && (r.Edges == nil || now-s.From >= s.length())
}
