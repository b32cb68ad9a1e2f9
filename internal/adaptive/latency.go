package adaptive

import "math"

// latency bounds the calls in flight of a server that slows down instead of rejecting.
//
// # Is it slow because of us?
//
// Latency alone cannot tell. So the controller cuts the calls in flight and looks: if latency
// does not fall, the server is slower by itself, and the slower time is the new normal.
// Only this test raises what is taken for normal; a baseline that follows its own
// measurements drifts to any length.
type latency struct {
	round    uint32 // number of the round
	sent     int    // calls of this round that have started
	back     int    // and that have come back
	others   int    // calls of other rounds that have come back meanwhile
	sum      float64
	inFlight float64
	n        float64 // calls that sum is of
	base     float64 // mean latency of a server that is not loaded
	testing  bool
	wasIn    float64 // calls in flight and latency when the test began
	wasTook  float64
	rises    int     // of the bound, one after the other
	known    float64 // calls that base is of, while few were in flight
}

const (
	// leastSlow is by how many seconds a server must be slower to be loaded: a few
	// milliseconds may be our own machine, or the network.
	leastSlow = .02

	roundSize  = 48 // calls of a round, at least
	firstRound = 8  // calls of the first one: it should end before the server is loaded
	knownAfter = 64 // calls, with few in flight, that show what latency is normal
	gross      = 3. // times the normal latency: no need to wait for the end of the round
)

// size is how many calls this round has: more if the bound must be set precisely.
func (l *latency) size(c *Controller) int {
	if l.base == 0 {
		return firstRound
	}
	if !c.limited() {
		return roundSize
	}
	return max(roundSize, int(8*c.capacity.limit))
}

// started returns the round that a call belongs to. The calls of a round start one after
// the other, and it ends when all of them are back: the quick ones of many would be back
// first, and say that the server is quicker than it is.
func (l *latency) started(c *Controller) uint32 {
	if l.sent >= l.size(c) {
		return 0
	}
	l.sent++
	return l.round + 1
}

// ended counts a call that has come back. Its latency counts if it was served.
func (l *latency) ended(c *Controller, took float64, call Call, served bool) {
	if call.round != l.round+1 {
		l.others++
	} else {
		l.back++
		if served {
			if l.base > 0 {
				took = math.Min(took, 6*l.base) // one straggler is no news
			}
			l.sum += took
			l.inFlight += float64(call.inFlight)
			l.n++
		}
	}
	size := l.size(c)
	early := l.n >= 12 && l.base > 0 && l.sum > gross*l.base*l.n && !l.testing
	if l.back < size && (l.others < max(64, 2*size) || l.n < float64(size)/2) && !early {
		return
	}
	mean, in, n := l.sum/l.n, l.inFlight/l.n, l.n
	l.round++
	l.sent, l.back, l.others, l.sum, l.inFlight, l.n = 0, 0, 0, 0, 0, 0
	if (early || n >= float64(size)/2) && c.phase != Capped && !c.cfg.Paced {
		l.judge(c, mean, in, n)
	}
}

// limited reports whether the calls in flight are bounded because of latency.
func (c *Controller) limited() bool { return c.phase != Capped && c.capacity.limit < c.capacity.most }

// judge looks at a round: the mean latency with so many calls in flight.
func (l *latency) judge(c *Controller, mean, in, n float64) {
	k := &c.capacity
	switch {
	case l.base == 0:
		l.base, l.known = mean, n
	case l.known < knownAfter && (in <= 4 || mean < 1.5*l.base):
		l.known += n
		l.base += (mean - l.base) * n / l.known
	case mean < l.base:
		l.base += .2 * (mean - l.base)
	case !c.limited():
		l.base *= 1.003
	}
	held, ratio := k.held > 0, mean/l.base
	k.held = 0
	if ratio > 1.12 {
		l.rises = 0
	}
	if l.testing && in < .85*l.wasIn {
		l.testing = false
		if mean > .88*l.wasTook { // fewer calls, as slow: it is not because of us
			l.base = mean
			l.bind(c, 1.3*l.wasIn)
			c.note(Latency)
			return
		}
	}
	switch {
	case ratio > 1.5 && in >= 4 && mean-l.base > leastSlow:
		l.testing, l.wasIn, l.wasTook = true, in, mean
		l.cut(c, in, math.Min(k.limit, in)/ratio*1.15)
	case !c.limited():
	case held && ratio > 1.2:
		if !l.testing {
			l.testing, l.wasIn, l.wasTook = true, in, mean
		}
		l.bind(c, k.limit*.93)
	case held && ratio < 1.12:
		l.testing = false
		l.rise(c)
	case !held && ratio < 1.2 && in < k.limit/2:
		l.bind(c, k.limit*1.5)
	}
}

// rise raises the bound of a server that is not loaded: by a twentieth, and quickly after
// that has gone well three times in a row.
func (l *latency) rise(c *Controller) {
	limit := c.capacity.limit
	if l.rises++; l.rises > 3 {
		l.bind(c, limit*1.25)
		return
	}
	l.bind(c, limit+math.Max(1, limit/20))
}

// cut bounds the calls in flight of a server that has got slow with in of them.
func (l *latency) cut(c *Controller, in, limit float64) {
	if c.phase == Slowed {
		c.note(Latency)
	} else {
		if c.phase != Tracking {
			c.pace.rate = c.within(in * c.meanCost / l.wasTook)
		}
		c.blockage.end()
		c.enter(Slowed, 0, Latency) // calls that filled the server's queue are still to be rejected
	}
	l.bind(c, limit)
}

// bind sets the bound. One that is too high to bind is given up.
func (l *latency) bind(c *Controller, limit float64) {
	k := &c.capacity
	k.limit = math.Min(k.most, math.Max(2, limit))
	if k.limit < math.Min(k.most, 1e5) {
		return
	}
	k.limit = k.most
	if c.phase == Slowed {
		c.track(Tracking, c.pace.rate, NoCap)
	}
}
