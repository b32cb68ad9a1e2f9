package adaptive

// # Who changes what is believed?
//
// Each estimator may find what changes the phase: a rate, a window, a cap, that there is none.
// What follows from that is the same for all, so they say here what they have found. Only
// this file writes the phase, the epoch and why they have changed.

// track begins to believe that the server accepts rate, in a phase with a pace.
func (c *Controller) track(phase Phase, rate float64, why Why) {
	c.assume(phase, rate)
	c.note(why)
}

// assume is track for a rate that replies have not shown: that is no change of mind.
func (c *Controller) assume(phase Phase, rate float64) {
	c.phase = phase
	c.pace.learn(c, rate)
}

// enter begins a phase without a measured rate. The next call may start at next, and calls
// that are out say nothing of what is believed now.
func (c *Controller) enter(phase Phase, next float64, why Why) {
	c.phase = phase
	c.openAt(next)
	c.outdate()
	c.note(why)
}

// outdate makes what calls that are out bring old news.
func (c *Controller) outdate() { c.epoch++ }

// note records that a belief has changed.
func (c *Controller) note(why Why) {
	c.why, c.changed = why, c.at
	c.changes++
}
