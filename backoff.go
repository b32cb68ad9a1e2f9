package sluice

import (
	"fmt"
	"time"
)

// A Backoff computes the wait before a retry. It is a pure function, so one
// value serves any number of calls at once: retry counts from 1, prev is the
// wait before the retry before it (0 if there was none), and u is a random
// number, uniform in [0, 1), from which it takes its jitter.
type Backoff func(retry int, prev time.Duration, u float64) time.Duration

// Exponential is base, 2·base, 4·base, … up to longest, without jitter.
// Callers that fail together come back together: prefer FullJitter.
// It panics unless 0 < base ≤ longest; so do the other constructors.
func Exponential(base, longest time.Duration) Backoff {
	mustBeBackoff(base, longest)
	return func(retry int, _ time.Duration, _ float64) time.Duration {
		return double(base, longest, retry)
	}
}

// FullJitter is uniform in [0, x) where x is the wait of [Exponential]: it
// spreads callers that failed together the most, and so has them back with the
// fewest calls. (M. Brooker: Exponential Backoff and Jitter, AWS Architecture
// Blog, 2015, which also names the following two.)
func FullJitter(base, longest time.Duration) Backoff {
	mustBeBackoff(base, longest)
	return func(retry int, _ time.Duration, u float64) time.Duration {
		return fraction(double(base, longest, retry), u)
	}
}

// EqualJitter is uniform in [x/2, x) where x is the wait of [Exponential]: for
// those who want a wait never to be short.
func EqualJitter(base, longest time.Duration) Backoff {
	mustBeBackoff(base, longest)
	return func(retry int, _ time.Duration, u float64) time.Duration {
		half := double(base, longest, retry) / 2
		return half + fraction(half, u)
	}
}

// DecorrelatedJitter is uniform in [base, min(3·prev, longest)), where prev is
// the wait before, or base.
func DecorrelatedJitter(base, longest time.Duration) Backoff {
	mustBeBackoff(base, longest)
	return func(_ int, prev time.Duration, u float64) time.Duration {
		spread := longest - base
		if prev = max(prev, base); prev <= longest/3 {
			spread = 3*prev - base
		}
		return base + fraction(spread, u)
	}
}

// Constant is always d. It panics if d < 0.
func Constant(d time.Duration) Backoff {
	if d < 0 {
		panic(fmt.Sprintf("sluice: negative backoff %v", d))
	}
	return func(int, time.Duration, float64) time.Duration { return d }
}

func mustBeBackoff(base, longest time.Duration) {
	if base <= 0 || base > longest {
		panic(fmt.Sprintf("sluice: backoff from %v to %v: want 0 < base ≤ longest", base, longest))
	}
}

// double returns base·2^(retry−1), at most longest.
func double(base, longest time.Duration, retry int) time.Duration {
	// A shift that would lose bits is recognised by shifting longest back.
	if shift := max(0, retry-1); shift < 63 && base <= longest>>shift {
		return base << shift
	}
	return longest
}

func fraction(d time.Duration, u float64) time.Duration {
	return min(d, time.Duration(u*float64(d)))
}
