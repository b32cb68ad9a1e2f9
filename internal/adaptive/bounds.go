package adaptive

import (
	"math"
	"time"
)

// The configuration bounds the pace and the calls in flight, whatever is learned. This file
// applies the bounds and changes them.

// bounded returns the pace within the bounds of the configuration.
func (c *Controller) bounded() float64 {
	if !c.paced() {
		return c.most()
	}
	return c.within(c.pace.now)
}

// within returns a pace within the bounds of the configuration.
func (c *Controller) within(pace float64) float64 {
	if !c.began && c.meanCost == 0 {
		return max(c.cfg.Min, min(c.cfg.Max, pace))
	}
	return max(c.cfg.Min*c.meanCost, min(c.most(), pace))
}

// most returns Config.Max in cost, for all that share the limit.
func (c *Controller) most() float64 {
	if c.cfg.MaxCost {
		return c.sharing.whole(c.cfg.Max)
	}
	return c.cfg.Max * c.meanCost
}

// Bound changes Config.Max and Config.MaxConcurrency; 0 means none. What was learned stays, also
// while a lower bound holds, and the next call is as far behind the last one as the new pace says.
func (c *Controller) Bound(now time.Duration, rate float64, concurrency int) {
	if !(rate > 0) {
		rate = math.Inf(1)
	}
	before := c.bounded()
	c.latency.unlook(c)
	c.cfg.Max, c.cfg.MaxConcurrency = rate, concurrency
	if c.phase == Searching && c.crowd.sent == 0 {
		c.pace.now = max(c.pace.now, c.cfg.Start*c.meanCost)
	}
	c.pace.set(c)
	c.stretch(now.Seconds(), before)
	k := &c.capacity
	k.setMost(c.cfg, k.limit < k.most || c.phase == Capped || c.phase == Slowed)
}

// AtMax reports whether the configured rate has been accepted for long.
func (c *Controller) AtMax() bool {
	return c.phase == Tracking && !c.blockage.on && c.pace.calls >= 2*c.pace.span &&
		c.pace.now >= .999*c.most() && c.capacity.limit >= c.capacity.most
}
