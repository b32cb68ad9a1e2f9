package adaptive

import "time"

// A Why is why a belief changed last.
type Why uint8

const (
	Nothing      Why = iota // it never did
	FirstRefusal            // a search found the limit
	Measured                // the rate between refusals differs from the one believed
	Costly                  // a refusal was costly: the bounds of the rate have changed
	Window                  // as many calls as before were granted at another pace
	Cap                     // refusals follow the calls in flight, not the pace
	NoCap                   // the calls in flight do not matter after all
	Latency                 // the server got slow, or quick again
	Restored                // the state comes from a snapshot
	Acquitted               // the limit is one of another unit
	Shared                  // another process has learned it
)

func (w Why) String() string {
	return [...]string{"nothing was refused", "first refusal", "measured between refusals", "costly refusal",
		"same number per window", "refused above a number in flight", "not refused above a number in flight",
		"latency", "restored", "another unit is limited", "learned by another process"}[w]
}

func (p Phase) String() string {
	return [...]string{"unlimited", "searching", "tracking", "bounding", "windowed", "slowed", "capped"}[p]
}

// A Belief is what a Rule believes. Rates are in units of cost per second.
type Belief struct {
	Phase       Phase
	Pace        float64       // at which calls of this process leave; 0: there is none
	Rate        float64       // that the server is believed to grant; 0: unknown
	Proven      float64       // granted since the last refusals, a lower bound; 0: none
	Refuted     float64       // the last pace that was refused, an upper bound; 0: none
	Concurrency int           // the bound of the calls in flight; 0: none
	Count       float64       // per window; 0: no window is believed in
	Window      time.Duration // its length
	Blocked     bool          // the last call was refused, and none was granted since
	Pause       time.Duration // what a refusal costs
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
func (r *Rule) Belief() Belief {
	b := Belief{
		Phase: r.phase, Rate: r.pace.rate, Proven: r.proven(), Refuted: r.pace.refuted,
		Blocked: r.blockage.on, Pause: duration(r.costly.price),
		Blockages: r.blocked, Refusals: r.refusals, Ignored: r.ignored,
		Share: r.sharing.part, Peers: r.sharing.peers,
		Changes: r.changes, Changed: duration(r.changed), Why: r.why,
	}
	if r.paced() {
		b.Pace = r.bounded() / r.sharing.scale()
	}
	if r.phase == Windowed {
		b.Count, b.Window = r.window.count, duration(r.window.length)
	}
	if n := r.capacity.bound(); n <= 1e9 {
		b.Concurrency = n
	}
	return b
}

// proven returns a lower bound of the rate.
func (r *Rule) proven() float64 {
	if r.phase == Bounding {
		return r.costly.low
	}
	if r.ledger.empties == 0 {
		return 0
	}
	last := r.ledger.empty[(r.ledger.empties-1)%len(r.ledger.empty)]
	rate, _ := r.ledger.slope(last, 12*r.unit, r.unit)
	return rate
}

func duration(seconds float64) time.Duration { return time.Duration(seconds * 1e9) }
