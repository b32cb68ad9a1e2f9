package sluice

import (
	"fmt"
	"time"
)

// A Backoff computes the wait before a retry. retry counts from 1, prev is the wait
// before the previous retry (0 if there was none), and u is a random number, uniform in
// [0, 1), for the jitter. A Backoff must be a pure function: one value serves many calls
// at once.
type Backoff func(retry int, prev time.Duration, u float64) time.Duration

// FullJitter returns a Backoff that is uniform in [0, x), where x is base, 2·base,
// 4·base, … up to longest. Callers that failed together spread out and need the fewest
// further calls. It panics unless 0 < base ≤ longest. (M. Brooker: Exponential Backoff
// and Jitter, AWS Architecture Blog, 2015.)
func FullJitter(base, longest time.Duration) Backoff {
	if base <= 0 || base > longest {
		panic(fmt.Sprintf("sluice: backoff from %v to %v: want 0 < base ≤ longest", base, longest))
	}
	return func(retry int, _ time.Duration, u float64) time.Duration {
		x := double(base, longest, retry)
		return min(x, time.Duration(u*float64(x)))
	}
}

// Constant returns a Backoff that is always d. It panics if d < 0.
func Constant(d time.Duration) Backoff {
	if d < 0 {
		panic(fmt.Sprintf("sluice: negative backoff %v", d))
	}
	return func(int, time.Duration, float64) time.Duration { return d }
}

// double returns base·2^(retry−1), at most longest.
func double(base, longest time.Duration, retry int) time.Duration {
	// A shift that would lose bits is recognised by shifting longest back.
	if shift := max(0, retry-1); shift < 63 && base <= longest>>shift {
		return base << shift
	}
	return longest
}
