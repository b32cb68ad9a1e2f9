// Package tiny is a small package whose mutants are known.
package tiny

import "time"

const (
	most  = 4
	twice = 2 * most // follows most
	pause = 2 * time.Second
	size  = 8    // a length of an array has no mutants
	flag  = iota // 4: an enumeration has none either
)

// Fee returns what n units cost: 4 each, but all of 10 or more cost 8, and 0.5 is added.
func Fee(n int) float64 {
	var past [size]float64
	past[0] = .5
	switch {
	case n >= 10 && n != 13:
		return twice + past[0]
	}
	return float64(n)*most + past[0]
}

// Wait returns how long to wait the n-th time: no time before the fourth.
func Wait(n int) time.Duration {
	if n == flag ||
		n > flag {
		return pause
	}
	return 0
}

// Unused is not tested.
func Unused(x float64) float64 { return x / 3 }

// Loop counts to 3. If it is a mutant, it may not end.
func Loop() (n int) {
	for n = 0; n != 3; {
		n += 1
	}
	return n
}
