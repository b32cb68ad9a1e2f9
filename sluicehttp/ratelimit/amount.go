package ratelimit

// An Amount is a number of requests, tokens or whatever a limit counts. The zero Amount is unknown.
// An Amount is never negative, exact to nine decimals, and comparable.
type Amount struct {
	whole int64 // as in number, which would make it half as long again
	nano  int32
	known bool
}

// amount returns n as a known amount.
func (n number) amount() Amount { return Amount{n.whole, n.nano, true} }

// number returns the amount, 0 if it is unknown.
func (a Amount) number() number { return number{a.whole, a.nano} }

// amountOf returns the amount n ≥ 0.
func amountOf(n int64) Amount { return Amount{whole: n, known: true} }

// isZero reports whether the amount is known to be 0.
func (a Amount) isZero() bool { return a == Amount{known: true} }

// Value returns the amount, as exactly as a float64 can, and whether it is known.
func (a Amount) Value() (n float64, known bool) {
	return float64(a.whole) + float64(a.nano)/1e9, a.known
}

// String returns the amount as a decimal number, or "unknown".
func (a Amount) String() string {
	if !a.known {
		return "unknown"
	}
	return a.number().String()
}
