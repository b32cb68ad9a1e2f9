package ratelimit

import (
	"strconv"
)

// An Amount is a number of requests, tokens or whatever a limit counts, if it
// is known; the zero Amount is not. It is never negative, exact to nine
// decimals, and comparable.
type Amount struct {
	number
	known bool
}

// AmountOf returns the amount n. It panics if n < 0.
func AmountOf(n int64) Amount {
	if n < 0 {
		panic("ratelimit: n < 0: " + strconv.FormatInt(n, 10))
	}
	return Amount{number{whole: n}, true}
}

// Known reports whether the amount is known.
func (a Amount) Known() bool { return a.known }

// Zero reports whether the amount is known to be 0.
func (a Amount) Zero() bool { return a == Amount{known: true} }

// Int returns the amount rounded down; 0 if it is not known.
func (a Amount) Int() int64 { return a.whole }

// Float returns the amount, as exactly as a float64 can hold it; 0 if it is not
// known.
func (a Amount) Float() float64 { return float64(a.whole) + float64(a.nano)/1e9 }

// String returns the amount as a decimal number, or "unknown".
func (a Amount) String() string {
	if !a.known {
		return "unknown"
	}
	return a.number.String()
}
