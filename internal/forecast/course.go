// Package forecast foresees when calls can start that wait for several limits.
//
// # How is the end of a job found without doing it?
//
// The longest of the times that each limit needs by itself is too short. 200 calls at 2 per second
// take 99.5 s, and at 100 per minute 60 s. Both together take 109.5 s: the second window begins
// after 60 s, and its calls need 49.5 s. To play each call is right, but too slow for a million of
// them. Between two changes, however, each limit lets calls start evenly. So a course takes all
// calls between two changes in one step:
//
//	limits   rate 2/s: one every 0.5 s, without end    window: 100, all of them now
//	step 1   100 calls, from 0 s to 49.5 s             the longest spacing, the fewest calls
//	step 2   100 calls, from 60 s to 109.5 s           the next window begins after 60 s
//
// After mostSteps the rest is expected to go on as it went since half of them. It takes at least
// as long as each limit by itself requires, so that a quota of a month is not overlooked
// beside a window of a second.
package forecast

import (
	"slices"
	"time"

	"github.com/sluice-go/sluice/internal/sat"
	"github.com/sluice-go/sluice/limits"
)

// A Limit is one of the limits that calls wait for.
type Limit struct {
	limits.Forecast
	Cost int64 // that each call takes; 0 if calls do not wait for it
}

// A Course is the imagined progress of calls: when the last one started. It is limits.Never if one
// never starts.
type Course time.Duration

// mostSteps bounds the time that a forecast takes, to some milliseconds.
const mostSteps = 1 << 10

// An enduring limit may let calls start at some spacing without end.
type enduring interface {
	// endures reports whether calls can start every so often, without end, if one can at at.
	endures(at time.Duration, cost int64, every time.Duration) bool
}

// Take lets calls start, each as soon as all limits allow it, and returns when the last one starts. It
// takes from the limits.
func (c *Course) Take(calls int64, all ...Limit) time.Duration {
	all = slices.DeleteFunc(slices.Clone(all), func(l Limit) bool { return l.Cost <= 0 })
	at := time.Duration(*c)
	defer func() { *c = Course(at) }()
	left, began := calls, at // at the beginning of the second half of the steps
	for steps := 0; calls > 0 && at != limits.Never; steps++ {
		switch steps {
		case mostSteps / 2:
			left, began = calls, at
		case mostSteps:
			at = extrapolate(at, calls, left-calls, at-began, all)
			return at
		}
		var n int64
		n, at = step(at, calls, all)
		calls -= n
	}
	return at
}

// extrapolate is Take, from at on, for the rest of many calls, of which so many started in took.
func extrapolate(at time.Duration, rest, started int64, took time.Duration, all []Limit) time.Duration {
	end := addMul(at, took, rest, started)
	if len(all) > 1 {
		for _, l := range all {
			alone := Course(at)
			end = max(end, alone.Take(rest, l))
		}
	}
	return end
}

// step lets some calls start, evenly, from at on, and returns their number and when the last one starts.
func step(at time.Duration, calls int64, all []Limit) (n int64, last time.Duration) {
	for settled := false; !settled; {
		settled = true
		for _, l := range all {
			if _, first, _ := l.Next(at, calls, l.Cost); first > at {
				at, settled = first, false
			}
		}
	}
	if at == limits.Never {
		return 0, at
	}
	n, every := even(at, calls, all)
	last = addMul(at, every, n-1, 1)
	for _, l := range all {
		if some, _, then := l.Next(at, n, l.Cost); some == n { // otherwise it endures
			last = max(last, then) // which is more exact than every
		}
	}
	for _, l := range all {
		l.Take(n, l.Cost, at, last)
	}
	return n, last
}

// even returns how many calls can start evenly from at on, and how far apart.
func even(at time.Duration, calls int64, all []Limit) (n int64, every time.Duration) {
	for _, l := range all {
		if some, first, last := l.Next(at, calls, l.Cost); some > 1 {
			every = max(every, (last-first)/time.Duration(some-1))
		}
	}
	n = calls
	for _, l := range all {
		some, _, _ := l.Next(at, calls, l.Cost)
		if e, ok := l.Forecast.(enduring); some < n && !(ok && every > 0 && e.endures(at, l.Cost, every)) {
			n = some
		}
	}
	return n, every
}

// addMul returns at + d·a/b, or Never if that is too large. a and b are not negative.
func addMul(at, d time.Duration, a, b int64) time.Duration {
	if a == 0 || d == 0 {
		return at
	}
	by, _, ok := sat.MulDiv(int64(d), a, 0, max(1, b))
	if !ok {
		return limits.Never
	}
	return sat.Add(at, time.Duration(by))
}
