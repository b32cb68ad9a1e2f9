package limits

import "time"

// A Forecast is an imaginary copy of a limit, from which calls are taken in the order of time, for
// sluice.Gate.Estimate: the method Forecast of a [Limiter] makes one of its current state, without
// changing it or blocking. Times are durations since then. It is not used concurrently.
type Forecast interface {
	// Next says when the limit would let calls start, each of which takes cost, if nothing else
	// delayed them from at on: n of them, evenly spaced, the first at first and the last at last.
	// Fewer than calls, but at least one, are returned if the next ones would have another spacing.
	// first is not before at, nor before the calls that were taken; it is [Never] if cost can never
	// be taken. calls and cost are positive.
	Next(at time.Duration, calls, cost int64) (n int64, first, last time.Duration)

	// Take takes calls of cost each, evenly spaced from first to last. Next has returned as many or
	// more, and the times are not earlier.
	Take(calls, cost int64, first, last time.Duration)
}
