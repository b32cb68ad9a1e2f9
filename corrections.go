package sluice

import "math"

// # How much will a call take?
//
// Callers estimate, and Settle reports the actual amount later. A program's estimates are usually
// wrong by one factor: it reserves all tokens that an answer may have, or counts calls as 1 and
// pages as they come. A controller that charged calls with their estimates would let too many leave
// until the first are settled, or let one leave after another if estimates are too high: each
// reserves more than is there until it ends. So a learner charges the amount that is expected, the
// estimate times the usual factor, and corrects that at its end.
//
// Without Settle the factor is 1, exactly.

// A correction is the usual factor between the estimates of one unit and the actual amounts.
// Its zero value has seen no call.
type correction struct {
	calls             float64
	estimated, actual float64 // means of a call
}

const (
	correctionWeight = .02     // of a call in the means
	leastCorrection  = 1. / 64 // the least share of its estimate that a call counts as: a unit that nothing is taken of has no pace
	// mostSurprise limits, as a multiple of the mean, the contribution of one call to it after the
	// first few: one that took a thousand times as much says nothing about the next.
	mostSurprise = 8
)

// of returns the expected amount of a call that is estimated at n.
func (c *correction) of(n int64) float64 { return float64(n) * c.factor() }

func (c *correction) factor() float64 {
	if c.estimated == 0 {
		return 1
	}
	return math.Max(leastCorrection, c.actual/c.estimated)
}

// learn notes a call that took actual, of which estimated was expected.
func (c *correction) learn(estimated, actual float64) {
	if c.calls++; c.calls > mostSurprise {
		actual = math.Min(actual, mostSurprise*math.Max(c.actual, estimated*leastCorrection))
	}
	w := c.weight()
	c.estimated += (estimated - c.estimated) * w
	c.actual += (actual - c.actual) * w
}

// amend notes that a call, of which learn knows, took delta more.
func (c *correction) amend(delta float64) {
	if c.calls > mostSurprise {
		delta = math.Min(delta, mostSurprise*c.actual)
	}
	c.actual = math.Max(0, c.actual+delta*c.weight())
}

func (c *correction) weight() float64 { return math.Max(correctionWeight, 1/math.Max(1, c.calls)) }
