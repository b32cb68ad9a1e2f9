package leaky

import (
	"math"
	"time"

	"github.com/sluice-go/sluice/internal/sat"
	"github.com/sluice-go/sluice/limits"
)

// # How is the level of a leaky bucket remembered?
//
// The textbook funnel remembers what is left and when it last looked. At each
// visit it adds the units that have leaked since. Three things go wrong there.
// It drops the fraction of a unit at each visit, so a funnel of 10 per second
// visited every 199 ms leaks one unit at a time, where 1.99 were due: half of
// what it was told. It multiplies by a rate in floating point, which counts no
// further than its mantissa. And a clock that steps back fills or blocks it.
//
// So no units are stored, but time: the instant at which the bucket will be
// empty, the theoretical arrival time, TAT. One unit is worth the interval T =
// per ÷ count, a full bucket capacity·T, and the level is what lies between now
// and TAT.
//
//	level := max(0, TAT − now)
//	fits  if and only if level + n·T ≤ capacity·T
//	TAT   := now + level + n·T       if it fits; unchanged otherwise
//
// With capacity 5 and T = 1 s, calls of one unit at the same instant, and then
// each half second:
//
//	now        0   0   0   0   0   0     0.5   1.0   1.5   2.0
//	TAT        0   1   2   3   4   5     5     5     6     6      before it
//	level      0   1   2   3   4   5     4.5   4     4.5   4
//	allowed    yes yes yes yes yes no    no    yes   no    yes
//	retry                          1     0.5         0.5
//	remaining  4   3   2   1   0   0     0     0     0     0
//
//	level
//	  5      █▄    ▄
//	  4      █ █▄▄█ █▄▄█     refused at 0.5 and 1.5, let in at 1.0 and 2.0
//	  3      █
//	  …      █               five at once
//	  0 ─────█──────────────
//	         0   1   2  s
//
// In any time W the bucket admits at most capacity + W/T units: the level
// rises by T with each, falls by no more than W, and stays within 0 and
// capacity·T. That is the invariant, whatever the order of the calls.
//
// Nothing leaks while nobody looks, so there is nothing to round; a clock that
// steps back by s makes the level higher by s until it has caught up, and then
// everything is as before.
//
// Source: the generic cell rate algorithm, virtual scheduling form (ITU-T
// Recommendation I.371, as secondary literature gives it); replies and rounding
// as redis-cell defines them.

// fits is the algorithm: it returns the level of a bucket with that level after
// n units, n ≥ 0, were put in, and how long they must wait: 0 if they fit now,
// Never if never. n = 0 fits unless the bucket is fuller than full.
func (r *rule) fits(level time.Duration, n int64) (after, wait time.Duration) {
	cost, room := time.Duration(n)*r.interval, r.depth-level
	switch {
	case n > r.quota.Capacity: // never; and the cost may have overflowed
		return level, limits.Never
	case cost > room:
		return level, cost - room
	}
	return level + cost, 0
}

// result tells what fits has found, and how the bucket is now.
func (r *rule) result(level, wait time.Duration) limits.Result {
	return limits.Result{
		Limit:      r.quota.Capacity,
		Remaining:  r.units(max(0, r.depth-level)),
		RetryAfter: wait,
		ResetAfter: level,
	}
}

// decide returns whether n units fit at now into a bucket that will be empty at
// tat, and when it will be empty then.
func decide(tat, now time.Duration, r *rule, n int64) (limits.Result, time.Duration) {
	level, wait := r.fits(max(0, tat-now), n)
	if wait == 0 {
		tat = now + level
	}
	return r.result(level, wait), tat
}

// take is decide by the rule of all our packages that nothing is always
// granted, also by a bucket that is overdrawn.
func take(tat, now time.Duration, r *rule, n int64) (limits.Result, time.Duration) {
	if n > 0 {
		return decide(tat, now, r, n)
	}
	res, _ := decide(tat, now, r, 0)
	res.RetryAfter = 0
	return res, tat
}

// adjust returns the tat of a bucket to which delta is added, or taken back if
// it is negative, whether it fits or not.
func adjust(tat, now, interval time.Duration, delta int64) time.Duration {
	n := max(delta, -math.MaxInt64) // so that −n exists
	if n < 0 {
		n = -n
	}
	d, _, ok := sat.MulDiv(n, int64(interval), 0, 1)
	if !ok {
		d = math.MaxInt64
	}
	if delta < 0 {
		return max(0, tat-time.Duration(d)) // before now is as good as now: empty
	}
	return sat.Add(max(now, tat), time.Duration(d))
}
