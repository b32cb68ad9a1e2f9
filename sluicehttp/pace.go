package sluicehttp

import (
	"math"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/sluicehttp/ratelimit"
)

// fromPolicy reports whether the gate takes its rate from the server, and its concurrency.
func (st *state) fromPolicy() bool {
	return st.t.cfg.Published.Spread == 1 && st.configured == sluice.Rate{}
}

// adjust sets the rate and the concurrency of the gate to those that learn has noted. It comes
// after a throttle has paused the gate: otherwise calls that wait for the first response, or
// at a slower rate, would leave before the pause.
func (st *state) adjust() {
	if st.t.cfg.Published.Spread == 0 && !st.spaced.Load() {
		return // they never change
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	before := st.inForce
	st.setRate()
	switch {
	case st.windowRate.Count == 0:
		st.spaced.Store(false)
	case before.Count == 0 && st.inForce.Count > 0 && st.outdated == unknown && !st.onlySearches():
		st.outdated = learned
	}
	if st.outdated == learned && st.fresh && st.inForce.Count > 0 {
		st.outdated = forgotten
		st.gate.Forget()
	}
	if st.fromPolicy() {
		st.setConcurrency()
	}
}

// outdated says what becomes of an estimate that the gate has when a short window is found. It is of the same limit,
// and worse than what is published, so it is forgotten, but not before the next window begins: in one that is used
// up, all calls would be throttled, and a new estimate be far too low. And only once: the window may be mistaken. An
// estimate that leaves much of a long window unused is forgotten immediately, see unused.go.
type outdated int

const (
	unknown outdated = iota
	learned
	forgotten
)

// onlySearches reports whether the gate searches and no call was throttled. A search that began again would begin
// slowly.
func (st *state) onlySearches() bool {
	known := st.gate.Stats().Learned
	return known != nil && known.Throttled == 0
}

// notePolicy notes the limits that a server publishes: the slowest of its rates.
func (st *state) notePolicy(said *ratelimit.Info) {
	slowest := said.Rate
	for i := range said.Limits {
		l := &said.Limits[i]
		switch most := whole(l.Max); {
		case most <= 0 || most > math.MaxInt32:
		case l.Unit == concurrent:
			st.places = most
		case l.Window > 0 && countsCalls(l) && int64(l.Window) >= most:
			if r := (sluice.Rate{Count: most, Per: l.Window}); slower(r, slowest) {
				slowest = r
			}
		}
	}
	if slowest.Count > 0 {
		st.policy = st.cutRate(slowest, "the policy")
	}
}

// noteRemaining notes the rate at which the remaining quota lasts until the reset: of several
// limits, the slowest.
func (st *state) noteRemaining(said *ratelimit.Info, now time.Time) {
	var slowest sluice.Rate
	var until time.Time
	for i := range said.Limits {
		l := &said.Limits[i]
		left := l.ResetAt.Sub(now)
		if l.ResetAt.IsZero() || left <= 0 || l.Unit == concurrent || !countsCalls(l) {
			continue
		}
		remaining, known := l.Remaining.Value()
		most := mostOf(l)
		share, reserve := st.t.cfg.Published.Spread, st.t.cfg.Published.reserve(most)
		if !known || remaining <= reserve || share < 1 && (math.IsInf(most, 1) || remaining >= share*most) {
			continue
		}
		if !l.NextAt.IsZero() && !math.IsInf(most, 1) {
			// Until its reset a bucket refills completely, so together with the remaining quota
			// that is all of it.
			remaining = most
		}
		remaining -= reserve
		// Calls in flight will be taken from it, too.
		count := max(1, int64(remaining)-st.inFlight.Load())
		r := sluice.Rate{Count: min(count, int64(left)), Per: left}
		if slower(r, slowest) {
			slowest, until = r, l.ResetAt
		}
	}
	if slowest.Count > 0 {
		st.spreadRate = st.cutRate(slowest, "the spread of what remains")
		if most := st.t.mostPause; until.Sub(now) > most {
			until = now.Add(most) // the next response says it again
		}
		st.spread.Store(int64(until.Sub(st.t.epoch)))
	} else if len(said.Limits) > 0 {
		st.spread.Store(0)
	}
}

// setRate sets the rate of the gate, with st.mu held. A spread rate ends with the first
// response after the reset. That needs no timer: until then the first call after the reset
// does not wait.
func (st *state) setRate() {
	rate := st.unspread()
	until := time.Duration(st.spread.Load())
	switch {
	case until == 0:
	case time.Since(st.t.epoch) >= until:
		st.spread.Store(0)
	case slower(st.spreadRate, rate):
		rate = st.spreadRate
	}
	if rate.Count > 0 {
		rate.Burst = st.configured.Burst
	}
	if rate != st.inForce && st.gate.SetRate(rate) == nil {
		st.inForce = rate
	}
}

// setConcurrency sets the concurrency of the gate, with st.mu held. It comes after setRate:
// calls that wait for the first response must not leave before there is a rate.
func (st *state) setConcurrency() {
	if !st.own && st.placesInForce != st.places {
		st.placesInForce = st.places
		st.mustSet(st.gate.SetConcurrency(st.places))
	}
}

// unspread returns the rate without spreading, with st.mu held.
func (st *state) unspread() sluice.Rate {
	if st.policy.Count > 0 {
		return st.policy
	}
	if st.windowRate.Count > 0 {
		return st.windowRate
	}
	return st.configured
}

// concurrent is the unit of limits on calls in flight.
const concurrent = "concurrent"

// countsCalls reports whether l counts requests, as far as is known.
func countsCalls(l *ratelimit.Limit) bool { return l.Unit == "" || l.Unit == "requests" }

// mostOf returns the maximum of l, infinity if it is unknown.
func mostOf(l *ratelimit.Limit) float64 {
	if most, known := l.Max.Value(); known {
		return most
	}
	return math.Inf(1)
}

// whole returns a without decimals, or 0 if it is unknown.
func whole(a ratelimit.Amount) int64 {
	n, _ := a.Value()
	return int64(min(n, math.MaxInt32+1))
}

// isZero reports whether a is known to be 0.
func isZero(a ratelimit.Amount) bool {
	n, known := a.Value()
	return known && n == 0
}

// slower reports whether a is slower than b, or b is none.
func slower(a, b sluice.Rate) bool { return b.Count == 0 || perSecond(a) < perSecond(b) }

func perSecond(r sluice.Rate) float64 { return float64(r.Count) / r.Per.Seconds() }
