package main

import (
	"math"
	"math/rand/v2"
	"time"
)

// The limits of Netflix/concurrency-limits v0.5.4 for Java, commit 78a74b9, after its
// VegasLimit, Gradient2Limit, WindowedLimit, AbstractLimiter and the gRPC interceptor for
// clients. The Go port, platinummonkey/go-concurrency-limits v1.0.1, was read, too: its
// Gradient2 has no rttTolerance, and nothing in it needs goroutines. Both limit calls in
// flight; callers block while the limit is reached (BlockingLimiter). A refusal is
// onDropped, "rejected by an external limit"; a failure is onIgnore, as in the
// interceptor. The library has no retries, so they are those of backoff.
type inFlightLimit struct {
	backoff
	limit interface {
		// current returns the most calls in flight.
		current() int
		// sample records a call that left with inFlight out, itself included.
		sample(now, rtt time.Duration, inFlight int, dropped bool)
	}
}

type inFlightTicket struct {
	left     time.Duration
	inFlight int
}

func (l *inFlightLimit) leave(now time.Duration, inFlight int, _ float64) (ticket, time.Duration) {
	if inFlight >= l.limit.current() {
		return nil, never
	}
	return inFlightTicket{now, inFlight + 1}, 0
}

func (l *inFlightLimit) done(now time.Duration, t ticket, r reply) {
	if x := t.(inFlightTicket); r.outcome != failed {
		l.limit.sample(now, now-x.left, x.inFlight, r.outcome == refused)
	}
}

// vegas is VegasLimit.newDefault(), which the README has for clients: 20 calls at the
// start, at most 1000.
type vegas struct {
	estimate float64
	noLoad   time.Duration // shortest round trip
	probe    float64       // samples since the shortest was measured again
	jitter   float64
	r        *rand.Rand
}

func newVegas(_ *World, r *rand.Rand) strategy {
	v := &vegas{estimate: 20, r: r}
	v.jitter = v.newJitter()
	return &inFlightLimit{backoff: backoff{r: r}, limit: v}
}

func (v *vegas) newJitter() float64 { return .5 + v.r.Float64()/2 }

func (v *vegas) current() int { return int(v.estimate) }

func (v *vegas) sample(_, rtt time.Duration, inFlight int, dropped bool) {
	v.probe++
	if v.jitter*30*v.estimate <= v.probe {
		v.jitter, v.probe, v.noLoad = v.newJitter(), 0, rtt
		return
	}
	if v.noLoad == 0 || rtt < v.noLoad {
		v.noLoad = rtt
		return
	}
	queue := math.Ceil(v.estimate * (1 - v.noLoad.Seconds()/rtt.Seconds()))
	unit := math.Max(1, math.Floor(math.Log10(math.Floor(v.estimate))))
	change := 0.0
	switch {
	case dropped:
		change = -unit
	case float64(2*inFlight) < v.estimate:
	case queue <= unit:
		change = 6 * unit
	case queue < 3*unit:
		change = unit
	case queue > 6*unit:
		change = -unit
	}
	v.estimate = math.Max(1, math.Min(1000, v.estimate+change))
}

// gradient2 is a Gradient2Limit in a WindowedLimit, as the README has it, with their
// defaults, but a least limit of 1: that of 20 "is not desirable when use as backpressure
// for batch apps".
type gradient2 struct {
	estimate float64
	long     float64 // average round trip
	samples  int
	// The window, which is a second long.
	until time.Duration
	sum   float64
	n     int
	most  int // calls in flight
}

func newGradient2(_ *World, r *rand.Rand) strategy {
	return &inFlightLimit{backoff: backoff{r: r}, limit: &gradient2{estimate: 20}}
}

func (g *gradient2) current() int { return int(g.estimate) }

func (g *gradient2) sample(now, rtt time.Duration, inFlight int, _ bool) {
	if rtt < 100*time.Microsecond {
		return
	}
	g.sum, g.n, g.most = g.sum+rtt.Seconds(), g.n+1, max(g.most, inFlight)
	if now <= g.until {
		return
	}
	if g.n >= 10 {
		g.update(g.sum/float64(g.n), float64(g.most))
	}
	g.until, g.sum, g.n, g.most = now+time.Second, 0, 0, 0
}

// update does not look at drops.
func (g *gradient2) update(rtt, inFlight float64) {
	if g.samples < 10 {
		g.long = (g.long*float64(g.samples) + rtt) / float64(g.samples+1)
		g.samples++
	} else {
		g.long += (rtt - g.long) * 2 / 601
	}
	long := g.long
	if long/rtt > 2 {
		g.long *= .95
	}
	if inFlight < g.estimate/2 {
		return
	}
	gradient := math.Max(.5, math.Min(1, 1.5*long/rtt))
	next := g.estimate*gradient + 4
	g.estimate = math.Max(1, math.Min(200, .8*g.estimate+.2*next))
}
