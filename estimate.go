package sluice

import (
	"cmp"
	"time"

	"github.com/sluice-go/sluice/internal/sat"
	"github.com/sluice-go/sluice/limits"
)

// An Estimate says how long some calls will take if nothing changes. Its times leave out
// the spacing that a gate keeps after its retry budget was empty, Stats.Spacing, and a
// slow start, because responses shorten them. If one of them, staying as it is, would hold
// the calls up for longer than all else, LimitedBy is [limits.ByRetryBudget] or
// [limits.BySlowStart]. A gate that learns counts with its present pace, Learned.Pace, if it
// has one.
type Estimate struct {
	// First and Last are how long it takes from now until the first and the last
	// of the calls start.
	First, Last time.Duration

	// Total is how long it takes until the last of them is done: Last and the time
	// that calls took so far.
	Total time.Duration

	// LimitedBy is the cause for which they wait longest. If nothing else limits them, it is the
	// value of the field Unknown.
	LimitedBy limits.Cause

	// Unknown is a limit that may hold them up, too, and cannot be forecast: one of
	// Config.Limits, Config.Semaphore, a slow start or an estimated limit. The times are
	// then the shortest possible. It is empty if there is no such limit.
	Unknown limits.Cause
}

// Estimate returns how long n more calls of cost 1 will take, behind those that wait already, and
// the cause: "50,000 calls take 2 h 47 min, limited by the rate", before the first is made. The
// time that calls take in flight is estimated from those done so far; before that, concurrency
// counts as no limit. Config.Limits and Config.Semaphore cannot be forecast: see Estimate.Unknown.
// With a parent, the longer of both estimates counts. Estimate panics if n < 0; for 0 it returns
// the zero Estimate.
func (g *Gate) Estimate(n int64) Estimate {
	mustNotBeNegative(n)
	var e Estimate
	if n == 0 {
		return e
	}
	for ; g != nil; g = g.parent {
		own := g.estimate(n)
		if own.Last > e.Last || e.LimitedBy == "" {
			e.LimitedBy = own.LimitedBy
		}
		e.First, e.Last, e.Total = max(e.First, own.First), max(e.Last, own.Last), max(e.Total, own.Total)
		if e.Unknown == "" {
			e.Unknown = cmp.Or(g.unknown(), own.Unknown)
		}
	}
	if e.LimitedBy == "" {
		e.LimitedBy = e.Unknown // empty would be a definite answer
	}
	return e
}

// unknown returns the first limit of the gate alone that cannot be forecast, or "".
func (g *Gate) unknown() limits.Cause {
	switch {
	case len(g.limits) > 0:
		return g.limits[0].cause()
	case g.semaphore != nil:
		return limits.BySemaphore
	}
	return ""
}

// estimate is Estimate for the gate alone. Its Unknown is limits.BySlowStart or empty.
func (g *Gate) estimate(n int64) Estimate {
	var e Estimate
	g.queue.Lock()
	defer g.queue.Unlock()
	now := g.queue.Now()
	g.queue.Advance(now)

	var paused time.Duration
	if until := g.schedule.Paused(); until > now {
		paused = until - now
	}
	ahead := g.queue.Weight()
	first := (*admitter)(g).Forecast(now, ahead)
	last := (*admitter)(g).Forecast(now, int64(sat.Add(time.Duration(ahead), time.Duration(n-1))))

	hold := g.hold.Mean()
	calls := sat.Add(time.Duration(g.queue.Len()), time.Duration(n))
	free := g.concurrency - g.inFlight()
	if paused >= hold { // by then they are all back
		free = g.concurrency
	}
	firstRoom := sat.Add(paused, g.untilRoom(int64(g.queue.Len())+1, free, hold))
	lastRoom := sat.Add(paused, g.untilRoom(int64(calls), free, hold))

	e.First, e.Last = max(first, firstRoom), max(last, lastRoom)
	switch {
	case e.Last == 0:
	case lastRoom > last && paused <= e.Last-paused:
		e.LimitedBy = limits.ByConcurrency
	default:
		e.LimitedBy = (*admitter)(g).slowest(now, e.Last)
	}
	longest := e.Last
	var on [mostBrakes]brake
	for _, b := range g.brakes.on(on[:0]) {
		f := b.forecast(now, int64(calls), g.flight.Calls(), hold)
		if f.shortest && e.Unknown == "" {
			e.Unknown = b.cause()
		}
		if f.last > longest {
			longest, e.LimitedBy = f.last, b.cause()
		}
		if f.sure {
			first := b.forecast(now, int64(g.queue.Len())+1, g.flight.Calls(), hold)
			e.First, e.Last = max(e.First, first.last), max(e.Last, f.last)
		}
	}
	e.Total = sat.Add(e.Last, hold)
	return e
}

// untilRoom estimates how long it takes until the k-th call from now has room in flight,
// if there is room for free now and each call stays for hold: in each hold, as many calls
// as there is room for leave, an interval apart.
func (g *Gate) untilRoom(k, free int64, hold time.Duration) time.Duration {
	if g.concurrency == 0 || k <= free {
		return 0
	}
	behind := k - max(0, free) - 1
	rounds, _, ok := sat.MulDiv(behind/g.concurrency+1, int64(hold), 0, 1)
	spaced, _, ok2 := sat.MulDiv(behind%g.concurrency, int64(g.schedule.Interval()), 0, 1)
	if !ok || !ok2 {
		return sat.Max
	}
	return sat.Add(time.Duration(rounds), time.Duration(spaced))
}
