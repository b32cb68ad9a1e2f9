package adaptive

import "time"

// A Why is why a belief changed last.
type Why uint8

const (
	Nothing      Why = iota // it never did
	FirstRefusal            // a search found the limit
	Measured                // the rate between rejections differs from the one believed
	Costly                  // a rejection was costly: the bounds of the rate have changed
	Window                  // as many calls as before were accepted at another pace
	Cap                     // refusals follow the calls in flight, not the pace
	NoCap                   // the calls in flight do not matter after all
	Latency                 // the server got slow, or quick again
	Restored                // the state comes from a snapshot
	Acquitted               // the limit is one of another unit
	Shared                  // another process has learned it
	Incident                // the pace is what was accepted before an incident
	Chance                  // no more calls are throttled at twice the pace
	Refills                 // the remaining quota in the responses shows the rate
)

func (w Why) String() string {
	return [...]string{"nothing was throttled", "first throttled call", "measured between throttled calls", "a throttled call was costly",
		"same number per window", "throttled above a number in flight", "not throttled above a number in flight",
		"latency", "restored", "another unit is limited", "learned by another process", "accepted before an incident",
		"not throttled more at twice the pace", "measured by the remaining quota"}[w]
}

func (p Phase) String() string {
	return [...]string{"unlimited", "searching", "tracking", "bounding", "windowed", "slowed", "capped"}[p]
}

// A Belief is what a Controller believes. Rates are in units of cost per second.
type Belief struct {
	Phase       Phase
	Pace        float64       // at which calls of this process start; 0: there is none
	Rate        float64       // that the server is believed to grant; 0: unknown
	Proven      float64       // granted since the last rejections, a lower bound; 0: none
	Refuted     float64       // the last pace that was rejected, an upper bound; 0: none
	Concurrency int           // the bound of the calls in flight; 0: none
	Count       float64       // per window; 0: no window is believed in
	Window      time.Duration // its length
	Used        float64       // of the current window
	Since       time.Duration // when it began
	Blocked     bool          // the last call was rejected, and none was accepted since
	Pause       time.Duration // what a rejection costs
	Share       float64       // this process's part of the limit; 0: the limit is not shared
	Peers       int64         // that share it, 0: they are out of touch
	Blockages   uint64
	Refusals    uint64
	Ignored     uint64 // refusals that were taken for chance
	Changes     uint64
	Changed     time.Duration // when a belief changed last
	Why         Why
}

// Belief returns what is believed now.
func (c *Controller) Belief() Belief {
	b := Belief{
		Phase: c.phase, Rate: c.pace.rate, Proven: c.proven(), Refuted: c.pace.refuted,
		Blocked: c.blockage.on, Pause: duration(c.costly.price),
		Blockages: c.blocked, Refusals: c.refusals, Ignored: c.ignored,
		Share: c.sharing.part, Peers: c.sharing.peers,
		Changes: c.changes, Changed: duration(c.changed), Why: c.why,
	}
	if c.paced() {
		b.Pace = c.bounded() / c.sharing.scale()
	}
	if c.phase == Windowed {
		b.Count, b.Window = c.window.count, duration(c.window.length)
		b.Used, b.Since = c.window.used, duration(c.window.from)
	}
	if n := c.capacity.bound(); n <= 1e9 {
		b.Concurrency = n
	}
	return b
}

// Blocked returns Belief.Blocked.
func (c *Controller) Blocked() bool { return c.blockage.on }

// Changes returns Belief.Changes.
func (c *Controller) Changes() uint64 { return c.changes }

// Asleep reports whether so much time has passed since the last call that what was
// learned may be lost.
func (c *Controller) Asleep(now, enough time.Duration) bool {
	last := c.at
	if c.started > 0 {
		last = max(last, c.recent[(c.started-1)%uint64(len(c.recent))])
	}
	return now.Seconds() >= last+enough.Seconds() && now.Seconds() >= c.until
}

// proven returns a lower bound of the rate.
func (c *Controller) proven() float64 {
	if c.phase == Bounding {
		return c.costly.low
	}
	if c.ledger.empties == 0 {
		return 0
	}
	last := c.ledger.empty[(c.ledger.empties-1)%len(c.ledger.empty)]
	rate, _ := c.ledger.slope(last, 12*c.meanCost, c.meanCost)
	return rate
}

func duration(seconds float64) time.Duration { return time.Duration(seconds * 1e9) }
