package window

import (
	"math"
	"time"

	"github.com/sluice-go/sluice/internal/sat"
	"github.com/sluice-go/sluice/limits"
)

// # When is a fixed window over?
//
// A window that is anchored begins with the first call after the one before it
// was over, and is over W later, on the monotonic clock. A window without calls
// has not begun: a call that is given back leaves no anchor.
//
// A window of the calendar is over when the calendar says so, and the calendar
// is the wall clock, which people and time servers set. Each simple answer is
// wrong. To count the calls of whatever day the clock shows lets a clock that is
// put back over midnight and runs over it again grant the day twice. Never to
// begin a window before the latest one seen shuts everybody out for a year if
// the clock was a year fast for a moment. To read the wall clock once and go by
// the monotonic one from there begins the day eight hours late on a machine that
// slept for eight hours. So:
//
//	the window is over   when the wall clock has reached its end,
//	                     or shows a time before its start and the window
//	                     has been in force for as long as it is long
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
// So with the clock put back nothing is granted twice, and what is left of the
// window in force can still be had. Nobody waits longer than the window is long
// because the clock was wrong. A clock that is put forward over an edge begins a
// window, one however many edges it skips, and what was left of the old one is
// gone.

// A fixed is the state of a counter. It holds no lock and reads no clock: now is
// monotonic time, wall is Unix time in nanoseconds and only used with a
// calendar.
type fixed struct {
	used int64         // calls in the window; it may be over
	from time.Duration // since when it is in force

	// With a calendar: when it begins and ends. Both 0 if there is none yet,
	// which is over as soon as there is anybody to ask.
	start, end int64
}

// over reports whether the window is over, or there is none.
func (f *fixed) over(now time.Duration, wall int64, q *Quota) bool {
	switch {
	case q.Calendar == 0:
		return f.used == 0 || sat.Sub(now, f.from) >= q.Window
	case f.start == f.end || wall >= f.end:
		return true
	}
	return wall < f.start && sat.Sub(now, f.from) >= f.length()
}

func (f *fixed) length() time.Duration { return time.Duration(f.end - f.start) }

// left returns how long it takes until the window, which is not over, will be,
// if nobody sets the clock.
func (f *fixed) left(now time.Duration, wall int64, q *Quota) time.Duration {
	if q.Calendar == 0 {
		return sat.Sub(q.Window, sat.Sub(now, f.from))
	}
	if wall < f.start {
		left := sat.Sub(f.length(), sat.Sub(now, f.from))
		if time.Duration(wall) < time.Duration(f.start)-left {
			return left
		}
	}
	return sat.Sub(time.Duration(f.end), time.Duration(wall))
}

// begin begins a window at now.
func (f *fixed) begin(now time.Duration, wall int64, q *Quota) {
	*f = fixed{from: now}
	if q.Calendar != 0 {
		f.start, f.end = q.Calendar.bounds(wall, q.Location)
	}
}

// take is the algorithm: it counts n calls at now, n ≥ 0, if they fit into q,
// whose limit is limit instead of its own.
func (f *fixed) take(now time.Duration, wall int64, q *Quota, limit, n int64) limits.Result {
	res := limits.Result{Limit: limit}
	over := f.over(now, wall, q)
	used := f.used
	if over {
		used = 0
	}
	switch {
	case n == 0:
	case n > limit:
		res.RetryAfter = limits.Never
	case used > limit-n:
		res.RetryAfter = f.left(now, wall, q)
	default:
		if over {
			f.begin(now, wall, q)
		}
		used += n
		f.used = used
	}
	res.Remaining = max(0, limit-used)
	if used > 0 {
		res.ResetAfter = f.left(now, wall, q)
	}
	return res
}

// adjust counts delta more calls, whether they fit or not, or −delta fewer if
// they were counted age ago in the present window.
func (f *fixed) adjust(now time.Duration, wall int64, q *Quota, delta int64, age time.Duration) {
	over := f.over(now, wall, q)
	switch {
	case delta > 0:
		if over {
			f.begin(now, wall, q)
		}
		f.used += min(delta, math.MaxInt64-f.used)
	case !over && now-max(0, age) >= f.from:
		f.used = max(0, f.used+delta)
	}
}
