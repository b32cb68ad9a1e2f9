package adaptive

import "math"

// latency bounds the calls in flight of a server that slows down instead of refusing.
//
// # Is it slow because of us?
//
// Latency alone cannot tell. So the rule cuts the calls in flight and looks: if latency
// does not fall, the server is slower by itself, and the slower time is the new normal.
// Only this test raises what is taken for normal; a baseline that follows its own
// measurements drifts to any length.
type latency struct {
	round    uint32 // number of the round
	left     int    // calls of this round that have left
	back     int    // and that have come back
	others   int    // calls of other rounds that have come back meanwhile
	sum      float64
	inFlight float64
	n        float64 // calls that sum is of
	base     float64 // mean latency of a server that is not loaded
	testing  bool
	wasIn    float64 // calls in flight and latency when the test began
	wasTook  float64
	rises    int // of the bound, one after the other
}

const (
	roundSize  = 48 // calls of a round, at least
	firstRound = 32 // calls of the first one: it should end before the server is loaded
)

// size is how many calls this round has: more if the bound must be set precisely.
func (l *latency) size(r *Rule) int {
	if l.base == 0 {
		return firstRound
	}
	if !r.limited() {
		return roundSize
	}
	return max(roundSize, int(8*r.capacity.limit))
}

// leave returns the round that a call belongs to. The calls of a round leave one after
// the other, and it ends when all of them are back: the quick ones of many would be back
// first, and say that the server is quicker than it is.
func (l *latency) leave(r *Rule) uint32 {
	if l.left >= l.size(r) {
		return 0
	}
	l.left++
	return l.round + 1
}

// done counts a call that has come back. Its latency counts if it was served.
func (l *latency) done(r *Rule, took float64, c Call, served bool) {
	if c.round != l.round+1 {
		l.others++
	} else {
		l.back++
		if served {
			if l.base > 0 {
				took = math.Min(took, 6*l.base) // one straggler is no news
			}
			l.sum += took
			l.inFlight += float64(c.inFlight)
			l.n++
		}
	}
	size := l.size(r)
	if l.back < size && (l.others < 2*size || l.n < float64(size)/2) {
		return
	}
	mean, in, n := l.sum/l.n, l.inFlight/l.n, l.n
	l.round++
	l.left, l.back, l.others, l.sum, l.inFlight, l.n = 0, 0, 0, 0, 0, 0
	if n >= float64(size)/2 && r.phase != Capped {
		l.judge(r, mean, in)
	}
}

// limited reports whether the calls in flight are bounded because of latency.
func (r *Rule) limited() bool { return r.phase != Capped && r.capacity.limit < r.capacity.most }

// judge looks at a round: the mean latency with so many calls in flight.
func (l *latency) judge(r *Rule, mean, in float64) {
	k := &r.capacity
	switch {
	case l.base == 0:
		l.base = mean
	case mean < l.base:
		l.base += .2 * (mean - l.base)
	case !r.limited():
		l.base *= 1.003
	}
	held, ratio := k.held > 0, mean/l.base
	k.held = 0
	if ratio > 1.12 {
		l.rises = 0
	}
	if l.testing && in < .85*l.wasIn {
		l.testing = false
		if mean > .95*l.wasTook { // fewer calls, as slow: it is not because of us
			l.base = mean
			l.bind(r, 1.3*l.wasIn)
			r.note(Latency)
			return
		}
	}
	switch {
	case ratio > 1.5 && in >= 4:
		l.testing, l.wasIn, l.wasTook = true, in, mean
		l.cut(r, in, math.Min(k.limit, in)/ratio*1.15)
	case !r.limited():
	case held && ratio > 1.2:
		if !l.testing {
			l.testing, l.wasIn, l.wasTook = true, in, mean
		}
		l.bind(r, k.limit*.93)
	case held && ratio < 1.12:
		l.testing = false
		if l.rises++; l.rises > 3 {
			l.bind(r, k.limit*1.25) // far below what the server takes
		} else {
			l.bind(r, k.limit+math.Max(1, k.limit/20))
		}
	case !held && ratio < 1.2 && in < k.limit/2:
		l.bind(r, k.limit*1.5)
	}
}

// cut bounds the calls in flight of a server that has got slow with in of them.
func (l *latency) cut(r *Rule, in, limit float64) {
	if r.phase != Slowed {
		if r.phase != Tracking {
			r.pace.rate = r.within(in * r.unit / l.wasTook)
		}
		r.phase = Slowed
		r.blockage.end()
		r.next = 0
	}
	r.note(Latency)
	l.bind(r, limit)
}

// bind sets the bound. One that is too high to bind is given up.
func (l *latency) bind(r *Rule, limit float64) {
	k := &r.capacity
	k.limit = math.Min(k.most, math.Max(2, limit))
	if k.limit < math.Min(k.most, 1e5) {
		return
	}
	k.limit = k.most
	if r.phase == Slowed {
		r.phase = Tracking
		r.pace.learn(r, r.pace.rate, NoCap)
	}
}
