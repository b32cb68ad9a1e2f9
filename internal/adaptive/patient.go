package adaptive

import "math"

// If rejections are costly from the first, all that a controller does to have few of them in the
// long run is too much. What it does instead:
//
//   - The pace doubles with every 128 calls, not with every 8. The excess over the rate that a
//     bucket hides is then small, and the pace of the first rejection is near the rate.
//   - No poll comes before a ban of the usual 30 s has ended. Each call during a ban may
//     begin it again: polls after 0.2, 0.4, 0.8 s … needed 65 s for a ban of 30.
//   - The pace stays well below what was rejected, ten times as long as it would take to
//     gain what a rejection costs.
const (
	patientDouble = 128 // calls
	patientGap    = 31. // seconds
	patientShare  = .75 // of the pace that was rejected
	patientHold   = 10
	patientLooks  = 2 // how many times less often it looks for more: a ban may cost more than its time
)

// patiently returns the rate after the first rejection, and sets the bounds.
func (k *costly) patiently(c *Controller, got, mean, blocked float64) float64 {
	refused := c.blockage.pace
	rate := math.Sqrt(refused * mean)
	if got < c.meanCost { // nothing was granted, so it says nothing, as after Forget in a window that is used up
		rate = min(refused/2, c.cautious()/4)
	}
	if got >= 16*c.meanCost { // else the search had hardly begun: the rate may be far below
		rate = patientShare * refused
		// The mean contains the slow beginning. As the lower bound it had led the
		// bisection to a tenth of the rate.
		k.low = max(mean, refused/2)
	}
	k.hold = max(k.hold, patientHold*blocked*rate/c.meanCost/max(.01, refused/rate-1))
	return rate
}

// beginPatiently returns how long to wait before the first poll.
func (b *blockage) beginPatiently() (gap float64) {
	b.polls = 1
	b.gap = max(b.shorter.begins(b.quiet), patientGap)
	return b.gap
}
