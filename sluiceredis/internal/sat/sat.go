// Package sat is arithmetic on durations that stops at the end of the range
// instead of wrapping around it.
//
// A limiter adds caller-supplied numbers to times. Wrapped around, a wait of 300
// years would become a permit now; saturated, it stays a wait.
package sat

import (
	"math"
	"math/bits"
	"time"
)

// Max is the longest duration, about 292 years. As a wait it means never.
const Max = time.Duration(math.MaxInt64)

// Add returns a + b, saturated.
func Add(a, b time.Duration) time.Duration {
	sum := a + b
	switch {
	case a > 0 && b > 0 && sum < 0:
		return Max
	case a < 0 && b < 0 && sum >= 0:
		return math.MinInt64
	}
	return sum
}

// Sub returns a − b, saturated.
func Sub(a, b time.Duration) time.Duration {
	diff := a - b
	switch {
	case a >= 0 && b < 0 && diff < 0:
		return Max
	case a < 0 && b > 0 && diff >= 0:
		return math.MinInt64
	}
	return diff
}

// MulDiv returns the quotient and the remainder of (a·b + c) / d, computed in
// 128 bits. ok is false when the quotient does not fit an int64.
// a, b and c must not be negative, d must be positive.
func MulDiv(a, b, c, d int64) (quo, rem int64, ok bool) {
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	lo, carry := bits.Add64(lo, uint64(c), 0)
	hi += carry
	if hi >= uint64(d) {
		return 0, 0, false
	}
	q, r := bits.Div64(hi, lo, uint64(d))
	if q > math.MaxInt64 {
		return 0, 0, false
	}
	return int64(q), int64(r), true
}
