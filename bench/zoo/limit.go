package main

import (
	"math"
	"time"
)

type kind string

const (
	bucket   kind = "bucket"    // rate per second, and a burst
	window   kind = "window"    // n per so many seconds, which begin with the first call
	aligned  kind = "aligned"   // n per so many seconds of the wall clock
	counter  kind = "counter"   // n per so many seconds, sliding
	inFlight kind = "in flight" // n at once
	open     kind = "open"      // no limit
	down     kind = "down"      // nothing is granted
)

// A limit is what a server grants to a client that knows everything. The zero limit is not
// valid; the functions below make one.
type limit struct {
	kind    kind
	rate    float64 // bucket: per second
	burst   float64 // bucket: granted immediately from idle, the first call included
	n       float64 // the others
	per     float64 // window, aligned, counter: seconds
	service float64 // in flight, open: mean seconds of a call
	change  float64 // bucket: after so many seconds the rate becomes after; 0: never
	after   float64
}

func bucketOf(rate, burst float64) limit    { return limit{kind: bucket, rate: rate, burst: burst} }
func windowOf(n, per float64) limit         { return limit{kind: window, n: n, per: per} }
func alignedOf(n, per float64) limit        { return limit{kind: aligned, n: n, per: per} }
func counterOf(n, per float64) limit        { return limit{kind: counter, n: n, per: per} }
func inFlightOf(n float64, s float64) limit { return limit{kind: inFlight, n: n, service: s} }
func openTo(workers, service float64) limit { return limit{kind: open, n: workers, service: service} }
func (l limit) halved(after float64) limit  { l.change, l.after = after, l.rate/2; return l }

// outage is how many seconds a server that grants nothing is called, in the place of an ideal.
const outage = 60

// perSecond returns the rate that a client is told.
func (l limit) perSecond() float64 {
	switch l.kind {
	case bucket:
		return l.rate
	case inFlight, open:
		return l.n / l.service
	case down:
		return 0
	}
	return l.n / l.per
}

// ideal returns the least seconds in which so many items can be granted, if the first is
// sent at start.
func (l limit) ideal(items float64, start time.Time) float64 {
	if items <= 0 {
		return 0
	}
	switch l.kind {
	case bucket:
		t := max(0, items-l.burst) / l.rate
		if l.change > 0 && t > l.change {
			t = l.change + (items-l.burst-l.rate*l.change)/l.after
		}
		return t
	case inFlight, open:
		return items * l.service / l.n
	case counter:
		// The counter weighs the window before, so a burst is paid for in the next one.
		if items <= l.n {
			return 0
		}
		return items * l.per / l.n
	case aligned:
		phase := math.Mod(float64(start.UnixNano())/1e9, l.per)
		return max(0, l.per*(math.Ceil(items/l.n)-1)-phase)
	case down:
		return outage
	}
	return l.per * max(0, math.Ceil(items/l.n)-1)
}

// items returns how many items last for so many seconds, and through three windows at least.
func (l limit) items(lasts float64) int {
	switch l.kind {
	case bucket:
		if l.change > 0 && lasts > l.change {
			return int(l.burst + l.rate*l.change + l.after*(lasts-l.change))
		}
		return int(l.burst + l.rate*lasts)
	case inFlight, open:
		return int(lasts * l.n / l.service)
	case counter:
		return int(l.n * max(3, math.Ceil(lasts/l.per)))
	case down:
		return 200
	}
	return int(l.n * (1 + max(3, math.Ceil(lasts/l.per))))
}
