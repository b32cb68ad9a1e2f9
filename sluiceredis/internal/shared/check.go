package main

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// # How can all windows be looked at?
//
// A limit of one call each T with a burst of b lets at most b + W ÷ T calls go in
// any window of length W. For calls i to j, at t(i) to t(j), in order, that is
//
//	(j − i + 1)·T − (t(j) − t(i)) ≤ b·T
//
// and the left side is (j + 1)·T − t(j) plus t(i) − i·T: for each j it is largest
// for the i that has the largest t(i) − i·T so far. So one pass finds the worst of
// all windows.

// worst returns the largest left side: b·T if the limit is used and kept, more if
// it is not. at must be sorted; both are in nanoseconds.
func worst(at []int64, interval int64) int64 {
	most, largest := int64(0), int64(0)
	for j, t := range at {
		own := t - int64(j)*interval
		if j == 0 || own > largest {
			largest = own
		}
		most = max(most, int64(j+1)*interval-t+largest)
	}
	return most
}

// inAny returns the most calls in any window of that length, its end excluded.
func inAny(at []int64, window time.Duration) int {
	most, i := 0, 0
	for j := range at {
		for at[j]-at[i] >= int64(window) {
			i++
		}
		most = max(most, j-i+1)
	}
	return most
}

// grants returns when each call was admitted: in nanoseconds since 1970, by the
// server's clock, sorted. For a pacer that is its slot.
func grants(kind string, scripts []script) (at []int64) {
	for _, s := range scripts {
		slot := s.Now*1000 + max(0, s.Before)
		for _, cost := range s.Costs {
			if kind == "pacer" {
				at = append(at, slot)
				slot += cost
			} else {
				at = append(at, s.Now*1000)
			}
		}
	}
	slices.Sort(at)
	return at
}

// explain repeats scripts with the plainest model, which for both limits is one point in time: that
// of the next free slot, or at which the bucket is empty. It returns an error about the first
// answer that differs from the model. Scripts must have been run on a limit that nobody else used,
// and that begins unused.
func explain(scripts []script) error {
	scripts = slices.Clone(scripts)
	// Those of one microsecond came in an order that follows from the admitted units: a rejection
	// before the admission that follows it at the same state.
	slices.SortFunc(scripts, func(a, b script) int {
		return cmp.Or(cmp.Compare(a.Now, b.Now), cmp.Compare(a.Before, b.Before), cmp.Compare(a.Granted, b.Granted))
	})
	instant := int64(0) // ns since 1970
	for _, s := range scripts {
		if want := max(0, instant-s.Now*1000); max(0, s.Before) != want {
			return fmt.Errorf("at %d µs the script found %d ns, the model has %d", s.Now, s.Before, want)
		}
		if s.Granted != s.Reply {
			return fmt.Errorf("at %d µs the script granted %d, by what it found it is %d", s.Now, s.Reply, s.Granted)
		}
		if s.Granted > 0 {
			instant = s.Now*1000 + max(0, s.Before)
			for _, cost := range s.Costs {
				instant += cost
			}
		}
	}
	return nil
}

// early returns the time by which the earliest departure came before it could: at any
// time no more may have left than were admitted. Both are sorted, and in
// nanoseconds of the same clock.
func early(departures, granted []int64) time.Duration {
	most := int64(0)
	for i, left := range departures {
		if i < len(granted) {
			most = max(most, granted[i]-left)
		}
	}
	return time.Duration(most)
}
