package sluice

import (
	"cmp"
	"fmt"
	"time"

	"github.com/sluice-go/sluice/internal/defaults"
	"github.com/sluice-go/sluice/internal/forecast"
	"github.com/sluice-go/sluice/internal/sat"
	"github.com/sluice-go/sluice/limits"
)

// An Estimate says how long some calls will take if nothing changes. Its times ignore Stats.Spacing
// and a slow start, because responses shorten them. A gate that learns assumes its current
// estimate.
type Estimate struct {
	// First and Last are how long it takes from now until the first and the last
	// of the calls start. They are [limits.Never] if a call costs more than a limit allows.
	First, Last time.Duration

	// Total is Last and the time that a call takes.
	Total time.Duration

	// LimitedBy is the limit that alone would delay the last of them for longest, or Unknown if
	// nothing else limits them.
	LimitedBy limits.Cause

	// Unknown is a limit that may also delay them and cannot be forecast, empty if there is none: one
	// of Config.Limits that makes no [limits.Forecast] or whose Unit has no known amounts,
	// Config.Semaphore, a slow start, or a learned limit while the gate searches for it or the server
	// throttles all calls. The times are then the shortest possible, or follow from the current pace.
	Unknown limits.Cause
}

// Estimate returns how long n more calls will take, behind those that wait already, and the cause.
// It assumes that each call starts as soon as the rate, the concurrency, pauses and Config.Limits
// of the gate and its parents allow it. The calls cost 1 and take as long as those done so far,
// unless each says otherwise; before the first is done, concurrency counts as no limit. Retries and
// later calls of others are not included. It takes a few milliseconds at most.
//
// Estimate panics if n < 0, or a cost or the Duration is negative; for 0 it returns the zero
// Estimate.
func (g *Gate) Estimate(n int64, each ...ExpectedCall) Estimate {
	mustNotBeNegative(n)
	call := defaults.Option("sluice.Gate.Estimate", each)
	call.Costs.mustNotBeNegative()
	if call.Duration < 0 {
		panic(fmt.Sprintf("sluice: Duration < 0: %v", call.Duration))
	}
	if n == 0 {
		return Estimate{}
	}
	e := g.way(n, call).estimate(n)
	if e.Last > 0 && e.LimitedBy == "" {
		e.LimitedBy = g.way(n, call).slowest(n, e.Last)
	}
	e.LimitedBy = cmp.Or(e.LimitedBy, e.Unknown) // empty would be a definite answer
	return e
}

// prospects are what is known of a gate about calls that are to start.
type prospects struct {
	outlook
	by      limits.Cause  // why last is so late
	unknown limits.Cause  // what cannot be forecast
	hold    time.Duration // for how long a call stays in flight
	waiting int64         // calls
	weight  int64         // of each of those, in cost
}

// prospects returns the prospects of the gate alone.
func (g *Gate) prospects(n int64, call ExpectedCall) (p prospects) {
	for i := range g.limits {
		l := &g.limits[i]
		f, ok := l.Limiter.(interface{ Forecast() limits.Forecast })
		switch known := call.Costs != nil || l.Unit == Calls || l.Unit == Cost; {
		case ok && known:
			p.add(f.Forecast(), l.cause(), l.Unit)
		case !known || call.amount(l.Unit) > 0:
			p.unknown = cmp.Or(p.unknown, l.cause())
		}
	}
	if g.semaphore != nil {
		p.unknown = cmp.Or(p.unknown, limits.BySemaphore)
	}

	g.queue.Lock()
	defer g.queue.Unlock()
	now := g.queue.Now()
	g.queue.Advance(now)
	p.hold = cmp.Or(call.Duration, g.hold.Mean())
	p.waiting = int64(g.queue.Len())
	p.weight = call.amount(Cost)
	if g.rateUnit == Cost && p.waiting > 0 {
		p.weight = (g.queue.Weight()-1)/p.waiting + 1
	}
	if left := g.schedule.Paused() - now; left > 0 { // first: the rate waits for its end, too
		p.add(forecast.Pause(left), limits.ByPause, Calls)
	}
	if f := g.schedule.Forecast(now); f != nil {
		p.add(f, limits.ByRate, g.rateUnit)
	}
	if g.room.limit > 0 && p.hold > 0 {
		p.add(inFlightFor(p.hold, g.room.limit, g.room.used()), limits.ByConcurrency, g.room.unit)
	}
	calls := int64(sat.Add(time.Duration(p.waiting), time.Duration(n)))
	var on [mostBrakes]brake
	for _, b := range g.brakes.on(on[:0]) {
		o := b.forecast(prospect{now, calls, g.room.calls.Calls(), p.hold, call})
		if p.limits = append(p.limits, o.limits...); o.unclear {
			p.unknown = cmp.Or(p.unknown, b.cause())
		}
		if o.last > p.last {
			p.last, p.by = o.last, b.cause()
		}
	}
	return p
}

// A way is what is known of a gate and its parents about calls that are to start. Its forecasts are
// used only once.
type way struct {
	call  ExpectedCall
	gates []prospects
}

// way returns the way of calls of g.
func (g *Gate) way(n int64, call ExpectedCall) (w way) {
	w.call = call
	for ; g != nil; g = g.parent {
		w.gates = append(w.gates, g.prospects(n, call))
	}
	return w
}

// of returns the limits of the gates from the i-th on, for calls of cost.
func (w way) of(i int, cost int64) (all []forecast.Limit) {
	for _, p := range w.gates[i:] {
		for _, l := range p.limits {
			all = append(all, forecast.Limit{Forecast: l.Forecast, Cost: w.amount(l.unit, cost)})
		}
	}
	return all
}

// amount returns the amount of unit that a call of cost takes.
func (w way) amount(unit Unit, cost int64) int64 {
	if unit == Cost {
		return cost
	}
	return w.call.amount(unit)
}

// others returns how many calls wait for the i-th gate in addition to those for the one below.
func (w way) others(i int) int64 {
	if i == 0 {
		return w.gates[0].waiting
	}
	return max(0, w.gates[i].waiting-min(1, w.gates[i-1].waiting)) // its first call waits in both
}

// estimate is Estimate, with a LimitedBy only if that is a brake that does not count.
func (w way) estimate(n int64) (e Estimate) {
	var c forecast.Course
	for i := len(w.gates) - 1; i >= 0; i-- {
		c = 0 // a call need not wait for others that wait only above it
		cost := w.gates[i].weight
		c.Take(w.others(i), w.of(i, cost)...)
	}
	all := w.of(0, w.call.amount(Cost))
	e.First = c.Take(1, all...)
	e.Last = c.Take(n-1, all...)
	longest := e.Last
	for _, p := range w.gates {
		e.Total = max(e.Total, sat.Add(e.Last, p.hold))
		e.Unknown = cmp.Or(e.Unknown, p.unknown)
		if p.last > longest {
			longest, e.LimitedBy = p.last, p.by
		}
	}
	return e
}

// slowest returns the cause that by itself would hold up the last call, which starts after last, for
// longest. It is a pause if that takes most of the time: each limit also waits for its end.
func (w way) slowest(n int64, last time.Duration) (by limits.Cause) {
	longest := time.Duration(-1)
	for i, p := range w.gates {
		for _, l := range p.limits {
			var c forecast.Course
			for _, part := range [][2]int64{{w.others(i), p.weight}, {n, w.call.amount(Cost)}} {
				c.Take(part[0], forecast.Limit{Forecast: l.Forecast, Cost: w.amount(l.unit, part[1])})
			}
			if l.by == limits.ByPause && time.Duration(c) > last/2 {
				return l.by
			}
			if time.Duration(c) > longest {
				longest, by = time.Duration(c), l.by
			}
		}
	}
	return by
}
