package sluice

import (
	"cmp"
	"sync/atomic"
	"time"

	"github.com/sluice-go/sluice/internal/sat"
	"github.com/sluice-go/sluice/limits"
)

// A Forecast says how long some calls will take if nothing changes. Two things are not
// part of its times, because answers shorten them: the spacing that a gate keeps after
// its retry budget was empty, Stats.Spacing, and a slow start. If one of them would
// hold the calls up for longer than all else, were it to stay as it is, LimitedBy is
// ByRetryBudget or BySlowStart.
type Estimate struct {
	// First and Last are how long it takes from now until the first and the
	// last of the calls leave.
	First, Last time.Duration

	// Total is how long until the last of them is done. It adds to Last what
	// calls took so far; until some were done it is no more than Last.
	Total time.Duration

	// LimitedBy is what they wait for most. It is Unknown if nothing else limits them.
	LimitedBy Cause

	// Unknown is a limit that may hold them up, too, and cannot be forecast: a quota,
	// Config.Semaphore or a slow start. The times above are then the shortest possible. It
	// is empty if there is no such limit.
	Unknown Cause
}

// A Limit names what holds calls up. A quota is "quota" and its name.
type Cause = limits.Cause

const (
	ByNothing     Cause = "nothing"      // they leave at once
	ByRate        Cause = "rate"         // evenly spaced
	ByConcurrency Cause = "concurrency"  // until others are done
	ByPause       Cause = "pause"        // until PauseUntil
	ByRetryBudget Cause = "retry budget" // it was empty: see Stats.Spacing
	BySlowStart   Cause = "slow start"   // after a refusal, without a rate
	ByBackoff     Cause = "backoff"      // before a retry
	BySemaphore   Cause = "permits"      // of Config.Permits
	ByParent      Cause = "parent"       // whose Stats say more
)

// Plan returns how long n more calls of cost 1 will take behind those who wait
// already, and what limits them: "50,000 calls take 2 h 47 min, limited by the
// rate", before the first is made. What calls take in flight is estimated from
// those done so far; before that, concurrency is taken for no limit. Quotas and
// Permits cannot be forecast: see Estimate.Unknown. With a parent it is the longer of
// both forecasts. It panics if n < 0; Plan(0) returns ByNothing.
func (g *Gate) Estimate(n int64) Estimate {
	mustNotBeNegative(n)
	f := Estimate{LimitedBy: ByNothing}
	if n == 0 {
		return f
	}
	for ; g != nil; g = g.parent {
		own := g.plan(n)
		if own.Last > f.Last || f.LimitedBy == ByNothing {
			f.LimitedBy = own.LimitedBy
		}
		f.First, f.Last, f.Total = max(f.First, own.First), max(f.Last, own.Last), max(f.Total, own.Total)
		if f.Unknown == "" {
			f.Unknown = cmp.Or(g.unknown(), own.Unknown)
		}
	}
	if f.LimitedBy == ByNothing && f.Unknown != "" {
		f.LimitedBy = f.Unknown // "nothing" would be a definite answer
	}
	return f
}

// unknown returns the first limit of the gate alone that cannot be forecast, or "".
func (g *Gate) unknown() Cause {
	switch {
	case len(g.quotas) > 0:
		return g.quotas[0].limit()
	case g.permits != nil:
		return BySemaphore
	}
	return ""
}

// plan is Plan for the gate alone. Its Unknown is BySlowStart or empty.
func (g *Gate) plan(n int64) Estimate {
	f := Estimate{LimitedBy: ByNothing}
	g.queue.Lock()
	defer g.queue.Unlock()
	now := g.queue.Now()
	g.queue.Advance(now)

	var paused time.Duration
	if until := g.schedule.Paused(); until > now {
		paused = until - now
	}
	ahead := g.queue.Weight()
	first := (*rule)(g).Forecast(now, ahead)
	last := (*rule)(g).Forecast(now, int64(sat.Add(time.Duration(ahead), time.Duration(n-1))))

	hold := g.hold.mean()
	calls := sat.Add(time.Duration(g.queue.Len()), time.Duration(n))
	free := g.limit - g.inFlight()
	if paused >= hold { // by then they are all back
		free = g.limit
	}
	firstRoom := sat.Add(paused, g.untilRoom(int64(g.queue.Len())+1, free, hold))
	lastRoom := sat.Add(paused, g.untilRoom(int64(calls), free, hold))

	f.First, f.Last = max(first, firstRoom), max(last, lastRoom)
	f.Total = sat.Add(f.Last, hold)
	spaced, slow := g.budget.spaced(now, int64(calls)), g.ramp.lasts(now, int64(calls), hold)
	if slow > 0 {
		f.Unknown = BySlowStart
	}
	switch {
	case slow > max(f.Last, spaced):
		f.LimitedBy = BySlowStart
	case spaced > f.Last:
		f.LimitedBy = ByRetryBudget
	case f.Last == 0:
	case lastRoom > last && paused <= f.Last-paused:
		f.LimitedBy = ByConcurrency
	default:
		f.LimitedBy = (*rule)(g).slowest(now, f.Last)
	}
	return f
}

// untilRoom estimates how long until the k-th call from now has room in flight
// if there is room for free now and each stays for hold: as many as there is
// room for leave, an interval apart, in each hold.
func (g *Gate) untilRoom(k, free int64, hold time.Duration) time.Duration {
	if g.limit == 0 || k <= free {
		return 0
	}
	behind := k - max(0, free) - 1
	rounds, _, ok := sat.MulDiv(behind/g.limit+1, int64(hold), 0, 1)
	spaced, _, ok2 := sat.MulDiv(behind%g.limit, int64(g.schedule.Interval()), 0, 1)
	if !ok || !ok2 {
		return sat.Max
	}
	return sat.Add(time.Duration(rounds), time.Duration(spaced))
}

// holdTime estimates how long calls stay in flight. The first 64 are measured
// and then one in 64: one more reading of the clock would cost as much as the
// rest of a call that does not wait.
type holdTime struct {
	measured atomic.Int64

	// Guarded by the lock of the gate's queue: exponentially weighted, 1/16 for
	// each.
	average time.Duration
}

// wanted reports whether the call that left at since is to be measured. One in
// 64 instants is: which, nobody can foresee, and no counter is shared.
func (h *holdTime) wanted(since time.Duration) bool {
	return h.measured.Load() < 64 || uint64(since)*0x9e3779b97f4a7c15>>58 == 0
}

func (h *holdTime) add(d time.Duration) {
	h.average += (d - h.average) / time.Duration(min(h.measured.Add(1), 16))
}

func (h *holdTime) mean() time.Duration { return h.average }
