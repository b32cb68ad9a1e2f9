package sluicehttp

import (
	"time"

	"github.com/sluice-go/sluice/sluicehttp/ratelimit"
)

// A tally counts the calls that were granted until the reset that a limit stated.
//
// # Is it one limit?
//
// Many servers count for each user, token, channel or project, and their header does not say so: ten
// channels that have each 5 messages in 5 s show the same names and maxima. At its word, the first of
// them that is used up stops all ten. But 13 calls that were granted although 5 is the maximum, and
// the window has not ended, have not all been counted by one limit. Then the limit is about an unknown
// part of the calls, and that nothing remains of it stops none: a call that is throttled says until
// when.
//
// A bucket grants its size once more until it is full again, if it is used meanwhile, hence the factor
// of 2. Some state its rate and not its size: then more remains than the maximum. A response with 304
// is often not counted.
type tally struct {
	until   time.Time
	granted float64
	largest float64 // amount that remained
	several bool
}

// note notes the response r, with l in its header.
func (t *tally) note(l *ratelimit.Limit, r *reply) {
	most, known := l.Max.Value()
	if !known {
		return
	}
	remaining, _ := l.Remaining.Value()
	t.largest = max(t.largest, remaining)
	impossible := 2 * (max(most, t.largest) + 1)
	if !r.now.Before(t.until) {
		t.several = t.granted > impossible
		t.granted, t.until = 0, l.ResetAt.Add(-l.Rounding)
	}
	if r.granted && !r.cached {
		t.granted++
		t.several = t.several || t.granted > impossible
	}
}
