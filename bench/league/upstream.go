package main

import (
	"math"
	"math/rand/v2"
	"time"
)

type outcome uint8

const (
	granted outcome = iota
	refused         // 429, whatever the cause
	failed          // 500, after service
)

// A reply is what comes back. What it does not say is negative.
type reply struct {
	outcome    outcome
	retryAfter time.Duration
	remaining  float64
	reset      time.Duration
}

var plain = reply{retryAfter: -1, remaining: -1, reset: -1}

// dice are the random numbers of a world, a generator for each purpose: two strategies
// in one world meet the same service times although one of them sends more calls.
type dice struct {
	network, service, refused, failed, strangers, demand, cost, incidents *rand.Rand
}

func newDice(seed uint64) *dice {
	purpose := uint64(0)
	next := func() *rand.Rand {
		purpose++
		return rand.New(rand.NewPCG(seed, purpose))
	}
	return &dice{next(), next(), next(), next(), next(), next(), next(), next()}
}

// An upstream answers calls as its world says: a random refusal, the calls in flight,
// the queue, the limiters, and then service.
type upstream struct {
	*World
	clock    clock
	dice     *dice
	limiters []limiter

	inFlight int      // from arrival to the end of service
	busy     int      // in service
	waiting  []func() // before a server's slot
	arrived  int      // during incidents

	strangersAsked, strangersRefused int
}

func newUpstream(w *World, c clock, d *dice) *upstream {
	u := &upstream{World: w, clock: c, dice: d}
	for _, l := range w.Limiters {
		u.limiters = append(u.limiters, newLimiter(l))
	}
	if w.Strangers != nil {
		u.strangers()
	}
	return u
}

// call sends the call of a wish; back runs when its reply is at the client.
func (u *upstream) call(w *wish, back func(reply)) {
	there := u.Network.RTT/2 + u.Network.Jitter*u.dice.network.Float64()
	u.clock.at(u.clock.now()+seconds(there), func() {
		if r, ok := u.impaired(w); ok {
			u.reply(r, back)
			return
		}
		u.arrive(w.cost, back)
	})
}

// impaired returns the refusal of a call that has come during an incident, or is about the object
// that is refused.
func (u *upstream) impaired(w *wish) (r reply, ok bool) {
	r = plain
	r.outcome = refused
	now := u.clock.now().Seconds()
	for _, i := range u.Incidents {
		if now < i.At || now >= i.At+i.Seconds {
			continue
		}
		u.arrived++
		if i.Row && float64(u.arrived%inRow) < i.Refused*inRow || !i.Row && u.dice.incidents.Float64() < i.Refused {
			if i.RetryAfter > 0 {
				r.retryAfter = seconds(i.RetryAfter)
			}
			return r, true
		}
	}
	return r, u.Object != nil && w.number%u.Object.Of == 0 && u.dice.incidents.Float64() < u.Object.Refused
}

// inRow is the number of calls of which the first are refused, in an incident that refuses calls
// one after the other.
const inRow = 100

func (u *upstream) reply(r reply, back func(reply)) {
	u.clock.at(u.clock.now()+seconds(u.Network.RTT/2), func() { back(r) })
}

func (u *upstream) arrive(cost float64, back func(reply)) {
	now := u.clock.now().Seconds()
	switch {
	case u.Noise.Refused > 0 && u.dice.refused.Float64() < u.Noise.Refused,
		u.InFlight > 0 && u.inFlight >= u.InFlight,
		u.Server != nil && len(u.waiting) >= u.Server.Queue:
		u.reply(u.bare(), back)
		return
	case !u.take(now, cost):
		u.reply(u.refusal(now, cost), back)
		return
	}
	u.inFlight++
	if u.Server != nil && u.busy >= u.Server.Slots {
		u.waiting = append(u.waiting, func() { u.serve(cost, back) })
		return
	}
	u.serve(cost, back)
}

// take takes cost from all limiters, or from none.
func (u *upstream) take(now, cost float64) bool {
	for i, l := range u.limiters {
		if l.take(now, u.counted(i, cost)) {
			continue
		}
		for k := range i {
			u.limiters[k].undo(u.counted(k, cost))
		}
		return false
	}
	return true
}

func (u *upstream) counted(i int, cost float64) float64 {
	if u.Limiters[i].Counts == "calls" {
		return 1
	}
	return cost
}

// bare is a refusal that does not come from a limiter. A proxy that always says the same
// also says it here.
func (u *upstream) bare() reply {
	r := plain
	r.outcome = refused
	if u.Hint.Kind == "fixed" {
		r.retryAfter = seconds(u.Hint.Value)
	}
	return r
}

func (u *upstream) refusal(now, cost float64) reply {
	r := u.bare()
	wait := 0.0
	for i, l := range u.limiters {
		wait = math.Max(wait, l.wait(now, u.counted(i, cost)))
	}
	if math.IsInf(wait, 1) {
		return r
	}
	switch u.Hint.Kind {
	case "exact":
		r.retryAfter = seconds(wait)
	case "whole":
		r.retryAfter = seconds(math.Max(1, math.Ceil(wait)))
	case "headers":
		r.retryAfter = seconds(math.Max(1, math.Ceil(wait)))
		u.headers(now, &r)
	}
	return r
}

// headers writes what the tightest limiter has left.
func (u *upstream) headers(now float64, r *reply) {
	least := math.Inf(1)
	for _, l := range u.limiters {
		if remaining, reset := l.state(now); remaining < least {
			least = remaining
			r.remaining, r.reset = math.Floor(remaining+epsilon), seconds(math.Ceil(reset))
		}
	}
}

func (u *upstream) serve(cost float64, back func(reply)) {
	u.busy++
	took := u.Service.sample(u.dice.service, cost)
	if u.Server != nil {
		took *= 1 + u.Server.Thrash*float64(len(u.waiting))/float64(u.Server.Slots)
	}
	r := plain
	if u.Noise.Failed > 0 && u.dice.failed.Float64() < u.Noise.Failed {
		r.outcome = failed
	}
	u.clock.at(u.clock.now()+seconds(took), func() {
		u.busy--
		u.inFlight--
		if u.Hint.Kind == "headers" {
			u.headers(u.clock.now().Seconds(), &r)
		}
		u.reply(r, back)
		if len(u.waiting) > 0 {
			next := u.waiting[0]
			u.waiting = u.waiting[1:]
			next()
		}
	})
}

func (s *Service) sample(r *rand.Rand, cost float64) float64 {
	clamp := func(x float64) float64 {
		if s.Max > 0 {
			x = math.Min(x, s.Max)
		}
		return math.Max(x, s.Min)
	}
	around := func() float64 { return 1 + s.Spread*(2*r.Float64()-1) }
	switch s.Kind {
	case "uniform":
		return s.Mean * around()
	case "lognormal":
		median := s.Median
		if median == 0 {
			median = s.Mean * math.Exp(-s.Sigma*s.Sigma/2)
		}
		return clamp(median * math.Exp(s.Sigma*r.NormFloat64()))
	case "exponential":
		return s.Min + (s.Mean-s.Min)*r.ExpFloat64()
	case "per_cost":
		return clamp(s.Base + s.PerCost*cost*around())
	}
	return s.Mean
}

// strangers begins the calls of others. Their calls cost 1 and go straight to the limiters.
func (u *upstream) strangers() {
	switch s := u.Strangers; {
	case s.Workers > 0:
		for range s.Workers {
			u.stubborn()
		}
	case s.Even:
		u.evenly(0)
	default:
		u.stranger()
	}
}

// ask is the call of a stranger. It reports whether it was granted.
func (u *upstream) ask() bool {
	u.strangersAsked++
	if u.take(u.clock.now().Seconds(), 1) {
		return true
	}
	u.strangersRefused++
	return false
}

// evenly schedules the n-th call of a stranger whose calls are evenly spaced, but for the jitter of the network.
func (u *upstream) evenly(n float64) {
	s := u.Strangers
	slot := n / s.Rate
	if math.Mod(slot, s.Off+s.On) >= s.Off {
		u.clock.at(seconds(slot+u.Network.Jitter*u.dice.strangers.Float64()), func() { u.ask() })
	}
	u.clock.at(seconds((n+1)/s.Rate), func() { u.evenly(n + 1) })
}

// stubborn schedules the next call of a worker that repeats a refused call immediately, and makes another one once it
// is served.
func (u *upstream) stubborn() {
	there := u.Network.RTT/2 + u.Network.Jitter*u.dice.strangers.Float64()
	u.clock.at(u.clock.now()+seconds(there), func() {
		back := u.Network.RTT / 2
		if u.ask() {
			back += u.Service.sample(u.dice.strangers, 1)
		}
		u.clock.at(u.clock.now()+seconds(back), u.stubborn)
	})
}

// stranger schedules the next call of strangers who call at random.
func (u *upstream) stranger() {
	s, now := u.Strangers, u.clock.now().Seconds()
	round := math.Floor(now / (s.Off + s.On))
	begin := round*(s.Off+s.On) + s.Off
	end := begin + s.On
	t := math.Max(now, begin) + u.dice.strangers.ExpFloat64()/s.Rate
	if t >= end { // none before the others are off: draw again when they are on
		u.clock.at(seconds(end)+1, u.stranger)
		return
	}
	u.clock.at(seconds(t), func() {
		u.ask()
		u.stranger()
	})
}
