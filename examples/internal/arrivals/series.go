// Package arrivals turns the times at which calls arrived somewhere into
// the figures a rate limit is judged by: how many, how fast, how evenly.
//
// The examples use it on both sides: the loopback server notes when calls
// reached it, and a client that talks to a server it cannot look into notes
// when its calls departed.
package arrivals

import (
	"slices"
	"time"
)

// kept bounds the memory of a Series: 8 MB. The spacing is then the spacing of the first million
// arrivals; the count and the rate stay exact.
const kept = 1 << 20

// Series is a growing set of times, each an offset from one common start.
// The zero value is empty and ready to use. It is not safe for concurrent use:
// both users of it already hold a lock when a time is known.
type Series struct {
	at          []time.Duration
	count       int64
	first, last time.Duration
}

// Add notes one arrival. The times may come in any order, because a client
// only learns whether a departure counts when the answer is there.
func (s *Series) Add(at time.Duration) {
	if s.count == 0 {
		s.first, s.last = at, at
	}
	s.first, s.last = min(s.first, at), max(s.last, at)
	s.count++
	if len(s.at) < kept {
		s.at = append(s.at, at)
	}
}

// Most returns the most arrivals in any window of that length, its end excluded,
// of those that are kept.
func (s *Series) Most(window time.Duration) int64 {
	at := slices.Clone(s.at)
	slices.Sort(at)
	most, i := 0, 0
	for j := range at {
		for at[j]-at[i] >= window {
			i++
		}
		most = max(most, j-i+1)
	}
	return int64(most)
}

// Summary is what a Series says about a rate.
type Summary struct {
	// Count is the number of arrivals.
	Count int64
	// PerSecond is (Count − 1) ÷ (last − first): the rate between the first
	// arrival and the last, without the time before or after. It is 0 where
	// two different times are missing.
	PerSecond float64
	// P50 and P99 are percentiles (nearest rank) of the gaps between
	// neighbouring arrivals; 0 without any gap.
	P50, P99 time.Duration
}

// Summary returns the figures of what has been added so far.
func (s *Series) Summary() Summary {
	sum := Summary{Count: s.count}
	if span := s.last - s.first; s.count > 1 && span > 0 {
		sum.PerSecond = float64(s.count-1) / span.Seconds()
	}
	if len(s.at) < 2 {
		return sum
	}
	gaps := slices.Clone(s.at)
	slices.Sort(gaps)
	for i := range len(gaps) - 1 {
		gaps[i] = gaps[i+1] - gaps[i]
	}
	gaps = gaps[:len(gaps)-1]
	slices.Sort(gaps)
	sum.P50 = percentile(gaps, 50)
	sum.P99 = percentile(gaps, 99)
	return sum
}

// percentile returns the smallest element that at least p percent of the
// sorted elements do not exceed.
func percentile(sorted []time.Duration, p int) time.Duration {
	rank := (len(sorted)*p + 99) / 100
	return sorted[max(rank, 1)-1]
}
