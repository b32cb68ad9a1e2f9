package limits

import "time"

// A Forecast is an imaginary copy of a limit, from which calls are taken in the order of time. Times
// are durations since the Forecast was made. It need not be safe for concurrent use.
//
// sluice.Gate.Estimate uses a [Limiter] of this process that has a method
//
//	Forecast() Forecast
//
// which returns the present state of the limit, as if no other caller used it. It never changes the
// limit, and does not block.
type Forecast interface {
	// Next says when the limit would let calls start, each of which takes cost, if nothing else
	// delayed them from at on: n of them, at least one, evenly spaced, the first at first and the
	// last at last. It returns fewer than calls if the next ones would have another spacing. first
	// is not before at, nor before the calls that were taken; it is [Never] if cost can never be
	// taken. calls and cost are positive.
	Next(at time.Duration, calls, cost int64) (n int64, first, last time.Duration)

	// Take takes calls of cost each, evenly spaced from first to last. Next has returned as many or
	// more, and the times are not earlier.
	Take(calls, cost int64, first, last time.Duration)
}
