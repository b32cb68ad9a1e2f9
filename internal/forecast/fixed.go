package forecast

import (
	"time"

	"github.com/sluice-go/sluice/internal/sat"
	"github.com/sluice-go/sluice/limits"
)

// A Fixed foresees fixed windows.
type Fixed struct {
	Limit  int64         // positive
	Window time.Duration // positive; not used if there are Edges

	// Edges returns the window that contains an instant. Nil means that a window begins with the
	// first call after the end of the previous one.
	Edges func(at time.Duration) (start, end time.Duration)

	Used int64         // in the current window; may be more than Limit
	End  time.Duration // of the current window

	at time.Duration // of the last call
}

// Next implements limits.Forecast.
func (f *Fixed) Next(at time.Duration, calls, cost int64) (n int64, first, last time.Duration) {
	if cost > f.Limit {
		return calls, limits.Never, limits.Never
	}
	at = max(at, f.at)
	used := f.Used
	if at >= f.End {
		used = 0
	}
	room := f.Limit - used
	if room < cost {
		at, room = f.End, f.Limit
	}
	return min(calls, room/cost), at, at
}

// Take implements limits.Forecast.
func (f *Fixed) Take(calls, cost int64, first, last time.Duration) {
	f.at = max(f.at, last)
	every := time.Duration(0)
	if calls > 1 {
		every = (last - first) / time.Duration(calls-1)
	}
	f.begin(first)
	if every == 0 || last < f.End {
		f.Used += calls * cost
		return
	}
	within := before(every, f.End-first, calls)
	if within == calls {
		f.Used += calls * cost
		return
	}
	calls -= within
	if f.Edges == nil {
		// Each of the further windows but the last one has as many.
		each := before(every, f.Window, calls)
		calls = (calls-1)%each + 1
		f.begin(last - time.Duration(calls-1)*every)
	} else {
		f.begin(last)
		start, _ := f.Edges(last)
		calls = min(calls, int64((last-start)/every)+1)
	}
	f.Used = calls * cost
}

// begin begins the window of an instant if the current one has ended by then.
func (f *Fixed) begin(at time.Duration) {
	if at < f.End {
		return
	}
	f.Used = 0
	if f.Edges != nil {
		_, f.End = f.Edges(at)
		return
	}
	f.End = sat.Add(at, f.Window)
}

// before returns how many of calls, one every so often from 0 on, are before an instant.
func before(every, instant time.Duration, calls int64) int64 {
	return min(calls, int64((instant-1)/every)+1)
}

// endures implements enduring.
func (f *Fixed) endures(at time.Duration, cost int64, every time.Duration) bool {
	if f.Edges != nil {
		return false
	}
	used := f.Used
	if at >= f.End {
		used = 0
	}
	most := f.Limit / cost
	return int64((f.Window-1)/every) < most && (used == 0 || int64((f.End-at-1)/every) < (f.Limit-used)/cost)
}
