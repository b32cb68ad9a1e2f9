package adaptive

// A trial finds out whether the pace matters.
//
// # Does the pace matter?
//
// A limit rejects fewer calls at a lower pace, and none below it. A server that sheds one call in twenty, whatever the
// pace is, and says no time, seems to have a lower limit after each of them: a search went from 20 calls per second to
// one within a quarter of an hour, at a server that answers 300. So if less is accepted before each lesson than before
// those before, though not by much, twice the pace is tried for a while. If no larger share of the calls is rejected there,
// that share is chance, and the search goes on. At a limit half of the calls are rejected at twice its rate, and
// the trial ends after a few of them.
//
//	accepted    18.7  18.6  18.3  17.7  16.0  15.8  14.2/s, and then one call of 25 was rejected
//	at a limit  29.8  27.4  20.1  19.9  20.0  20.0  20.0/s
//	trial       28/s: 3 of 64 are rejected
//	search      from 28/s on; that one call in 21 is rejected changes nothing
//
// A rejection that comes with a time to wait is no part of that: it has to be obeyed.
type trial struct {
	top    float64 // the rate that was accepted before the first lesson in turn,
	low    float64 // and the lowest since
	sunk   int     // lessons that have lowered it
	calls  int     // saturated ones since the first of these, or of the trial
	bad    int     // rejected ones
	failed int     // trials that ended at a limit
	on     bool
	share  float64 // of the calls that was rejected before
	excess float64 // rejected calls of the trial, of late, more than trialShare
}

const (
	sinking    = 6    // lessons in a row that lower the rate, and as many more after each trial that ends at a limit
	sunkMost   = 2.   // a lesson that lowers it by more than that has found a limit,
	sunkSame   = 1.05 // and one that raises it by more is the first again
	sunkLow    = .85  // of the rate before them: at a limit the same is accepted each time
	mostShed   = .12  // share of the calls: a server that rejects more has a limit that is falling
	trialPace  = 2.   // in terms of the rate
	trialCalls = 64
	trialBad   = 4.  // so many rejected calls of late more than
	trialShare = .15 // of the calls, or
	trialMore  = 1.5 // so many times the share that was rejected before, are a sign of a limit
)

// lesson records that a rejection has changed the rate of a Tracking phase, before which low was accepted.
func (r *trial) lesson(c *Controller, low float64) {
	switch {
	case c.blockage.told || low > sunkSame*r.low || low*sunkMost < r.low:
		r.top, r.low, r.sunk, r.calls, r.bad = low, low, 0, 0, 0
	case low < r.low:
		r.low = low
		r.sunk++
	}
	r.on = false
	if r.sunk >= sinking*(1+r.failed) && low < sunkLow*r.top && c.sharing.peers <= 1 && !c.cfg.Costly {
		share := float64(r.bad) / float64(max(1, r.calls))
		*r = trial{on: share <= mostShed, failed: r.failed, share: share}
	}
}

// call counts a saturated call at t.
func (r *trial) call(c *Controller, t float64) {
	r.calls++
	switch {
	case !r.on:
		return
	case c.phase != Tracking: // something else was found
		*r = trial{failed: r.failed}
		return
	}
	r.excess = max(0, r.excess-max(trialShare, trialMore*r.share))
	if r.calls < trialCalls {
		return
	}
	share := float64(r.bad) / trialCalls
	c.chance.found((share + r.share) / 2)
	*r = trial{}
	c.enter(Searching, t, Chance)
}

// refused counts a rejection, and reports whether it says no more than how many calls of the trial are rejected.
func (r *trial) refused(told bool) bool {
	r.bad++
	if !r.on {
		return false
	}
	r.excess++
	if told || r.excess >= trialBad {
		r.fail()
		return false
	}
	return true
}

func (r *trial) fail() { *r = trial{failed: r.failed + 1} }
