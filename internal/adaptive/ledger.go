package adaptive

import "math"

// A ledger counts the cost that the server has accepted.
//
// # What does a rejection say?
//
// That the allowance was used up when the call started. Between two such instants the
// server accepted what it could: rate × time, less what its bucket could not hold
// because calls came too slowly. So the slope between two empty points is a lower
// bound of the rate, with an error of one call, and it is exact if the pace was above
// the rate in between. The pace at which a call was rejected is an upper bound.
type ledger struct {
	start   point
	sent    float64
	denied  float64   // of sent
	empty   [16]point // the last points at which blockages began
	empties int
	refused point // of the last blockage: the first rejection,
	last    point // and the last one
	recent  point // a checkpoint of the last 15 s
	earlier point // the one before
}

// A point is an instant and the cost accepted before it. Calls that are out count as
// granted until they are rejected.
type point struct {
	at, granted float64
	sent        float64 // cost sent before it
}

func (l *ledger) begin(t float64) {
	l.start = point{at: t}
	l.recent, l.earlier = l.start, l.start
}

// started counts a call.
func (l *ledger) started(t, cost float64) {
	if t-l.recent.at > 15 {
		l.earlier, l.recent = l.recent, l.now(t)
	}
	l.sent += cost
}

// now returns the point at t, before the next call.
func (l *ledger) now(t float64) point { return point{t, l.sent - l.denied, l.sent} }

// lately returns the rate accepted in the last 15 to 30 seconds.
func (l *ledger) lately(t float64) float64 {
	if t <= l.earlier.at {
		return 0
	}
	return (l.sent - l.denied - l.earlier.granted) / (t - l.earlier.at)
}

// granted returns the cost accepted before a call.
func (l *ledger) granted(call Call) float64 { return call.before - l.denied }

// point returns the point at which a call started.
func (l *ledger) point(call Call) point { return point{call.sent, l.granted(call), call.before} }

// previous returns where the blockage before the last one began, or the start.
func (l *ledger) previous() point {
	if l.empties < 2 {
		return l.start
	}
	return l.empty[(l.empties-2)%len(l.empty)]
}

// refuse records a rejection and returns its point. Points of calls that started later counted
// it as accepted. Without that correction, the first rejection of a crowd that comes back last
// would say that all of the crowd was accepted.
func (l *ledger) refuse(call Call) point {
	at := l.point(call)
	l.denied += call.cost
	for i := range min(l.empties, len(l.empty)) {
		l.empty[i].without(call)
	}
	for _, p := range [...]*point{&l.refused, &l.last, &l.recent, &l.earlier} {
		p.without(call)
	}
	return at
}

// without corrects a point by a call that was rejected.
func (p *point) without(call Call) {
	if p.sent > call.before {
		p.granted = max(0, p.granted-call.cost)
	}
}

// mark remembers an empty point at which a blockage began.
func (l *ledger) mark(p point) {
	l.empty[l.empties%len(l.empty)] = p
	l.empties++
	l.refused, l.last = p, p
}

// again records a later rejection of the same blockage: of a call that was on its way
// when the first rejection came, or of a poll. It is an empty point, too, so what was
// granted in between measures the rate.
func (l *ledger) again(p point) {
	if p.at > l.last.at && p.granted >= l.last.granted {
		l.last = p
	}
}

// blocked returns the bounds of the rate that the last blockage has shown. Between two
// empty points the server accepted all that it could, to one unit.
// In less than least, jitter is most of it.
func (l *ledger) blocked(meanCost, least float64) (low, high float64) {
	took := l.last.at - l.refused.at
	if took <= least {
		return 0, math.Inf(1)
	}
	granted := l.last.granted - l.refused.granted
	return max(0, granted-meanCost) / took, (granted + meanCost) / took
}

// slope returns the rate accepted since the last empty point that is at least enough
// away. It does not go back to before a change: between two empty points what was accepted
// measures the rate to a unit, and points that bound it to other rates are of another time.
func (l *ledger) slope(p point, enough, meanCost float64) (rate float64, ok bool) {
	most := math.Inf(1) // the rate is at most
	for i := l.empties - 1; i >= max(0, l.empties-len(l.empty)); i-- {
		e := l.empty[i%len(l.empty)]
		if p.at <= e.at || p.granted <= e.granted {
			continue
		}
		took, granted := p.at-e.at, p.granted-e.granted
		if (granted-meanCost)/took > most {
			break
		}
		most = min(most, (granted+2*meanCost)/took)
		rate, ok = granted/took, true
		if granted >= enough {
			break
		}
	}
	return rate, ok
}

// first returns a guess from the first rejection: a full bucket is in what was accepted.
func (l *ledger) first(p point) float64 {
	return .7 * max(0, p.granted) / max(p.at-l.start.at, 1e-3)
}
