package schedule

import (
	"math"
	"time"
)

// # How does a cold schedule warm up?
//
// Some services are slow at first: caches are empty, connections closed,
// instances not started. Calling them at the full rate after a time of
// idleness makes calls fail that would succeed a moment later. So a schedule
// with a warm-up begins with wide intervals, coldFactor·T, and narrows them to
// T while it is used; while it is not, it cools down again.
//
// The simplest way is a ramp over time: k·T in the first second, less in the next.
// But calls warm a service up, and not time; if callers come seldom, the ramp has ended
// before anything was called.
//
// Guava's way (SmoothWarmingUp) counts permits. Idleness stores permits, as for
// a burst, but stored permits do not make calls cheaper but more expensive: the more
// are stored, the colder it is. A call of cost n takes n of them from the
// right, each at the price of the curve there, and units that are not stored cost T:
//
//	interval
//	  cold = F·T ┤                        ╱      F = coldFactor
//	             │                      ╱ ·
//	             │                    ╱   ·      the area under the curve
//	             │                  ╱     ·      is the price of permits
//	           T ┼────────────────╱       ·
//	             │                ·       ·
//	             └────────────────┴───────┴─ stored permits
//	             0            threshold  max
//
// Going from max to threshold shall take W, the warm-up: a trapezoid of width
// max − threshold and mean height (T + F·T)/2. Guava puts the threshold so that
// the rectangle left of it is W/2:
//
//	threshold = W / 2T          max = threshold + 2W / (T + F·T)
//
// Because the price is an area, one call of cost 3 pays as much as three of cost 1. With T = 1 s, F
// = 3, W = 4 s: threshold 2, max 4, and the curve is T + (stored − 2)·1 s. From cold, calls of cost
// 1 are apart by
//
//	stored   4→3   3→2   2→1   1→0   none
//	apart   2.5 s 1.5 s   1 s   1 s   1 s       2.5 + 1.5 = 4 = W
//
// Idle for W, it is as cold as can be: it stores max permits in W.
//
// When the rate changes, the stored share of max stays.
//
// Source: google/guava, SmoothRateLimiter.java, SmoothWarmingUp.

// coldFactor is the factor by which the interval is longer in a cold schedule is, F.
const coldFactor = 3

// A warmUp is the state of the curve. Permits are counted in floating point: an area is not a whole
// number of nanoseconds. The charge when nothing is stored, the rate in the long run, stays exact.
type warmUp struct {
	over   time.Duration // W
	factor float64       // F
	stored float64       // permits, 0 ≤ stored ≤ max
	asOf   time.Duration
}

// newWarmUp returns a cold curve.
func newWarmUp(over time.Duration, factor, interval float64) *warmUp {
	w := &warmUp{over: over, factor: factor}
	w.stored = w.max(interval)
	return w
}

func (w *warmUp) threshold(interval float64) float64 { return float64(w.over) / (2 * interval) }

func (w *warmUp) max(interval float64) float64 {
	return w.threshold(interval) + 2*float64(w.over)/(interval*(1+w.factor))
}

// at returns the burst stored at t if nothing leaves from tat until then.
func (w *warmUp) at(tat, t time.Duration, interval float64) float64 {
	most := w.max(interval)
	idle := max(0, t-max(tat, w.asOf))
	return min(most, w.stored+float64(idle)*most/float64(w.over))
}

// take removes n permits at t and returns their cost, as cost does.
func (w *warmUp) take(tat, t time.Duration, n int64, interval float64) (fresh int64, rest time.Duration) {
	stored := w.at(tat, t, interval)
	w.stored, w.asOf = max(0, stored-float64(n)), t
	return w.cost(stored, n, interval)
}

// reprice keeps the stored share of max when the interval changes at now.
func (w *warmUp) reprice(tat, now time.Duration, from, to float64) {
	w.stored = w.at(tat, now, from) * from / to
	w.asOf = max(w.asOf, now)
}

// cost returns the cost of n permits in ns if stored are stored: the whole
// permits among them that are not stored, at T each, and the rest as a time.
func (w *warmUp) cost(stored float64, n int64, interval float64) (fresh int64, rest time.Duration) {
	take := min(float64(n), stored)
	threshold := w.threshold(interval)
	ns := 0.0
	if above := min(take, stored-threshold); above > 0 {
		slope := interval * (w.factor - 1) / (w.max(interval) - threshold)
		right := interval + (stored-threshold)*slope
		left := right - above*slope
		ns += above * (left + right) / 2
		take -= above
	}
	ns += take * interval
	if stored < float64(n) {
		whole := math.Ceil(stored)
		ns += (whole - stored) * interval
		if fresh = n; whole < math.MaxInt64 {
			fresh = n - int64(whole)
		}
	}
	return fresh, saturate(ns)
}

func saturate(ns float64) time.Duration {
	if ns >= math.MaxInt64 {
		return math.MaxInt64
	}
	return time.Duration(math.Round(ns))
}
