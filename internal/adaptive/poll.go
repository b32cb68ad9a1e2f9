package adaptive

import (
	"math"
	"time"
)

// Poll lets the next call ask whether the server accepts again as soon as the server's own wait has ended,
// instead of when the gap between two polls has.
func (c *Controller) Poll(now time.Duration) {
	if c.blockage.on {
		c.openAt(math.Min(c.next, math.Max(now.Seconds(), c.until)))
	}
}
