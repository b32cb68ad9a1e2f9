package ratelimit

// A number is a decimal number that is not negative. Whole and decimal part
// are kept apart: 1795262490.123 s is no float64.
type number struct {
	whole int64
	nano  int32 // < 1e9
}

func (n number) String() string { return "" }
