package adaptive

// latency bounds the calls in flight of a server that slows down instead of rejecting.
//
// # Is it slow because of us?
//
// Latency alone cannot tell. So the controller cuts the calls in flight and looks: if latency
// does not fall, the server is slower by itself, and the slower time is the new normal.
// Only this test raises what is taken for normal; a baseline that follows its own
// measurements drifts to any length.
type latency struct {
	round    uint32  // number of the round
	sent     int     // calls of this round that have started
	back     int     // and that have come back
	others   int     // calls of other rounds that have come back meanwhile
	many     float64 // the most in flight with one that has come back
	sum      float64
	inFlight float64
	n        float64 // calls that sum is of
	base     float64 // mean latency of a server that is not loaded
	testing  bool
	wasIn    float64 // calls in flight and latency when the test began
	wasTook  float64
	rises    int     // of the bound, one after the other
	fine     float64 // calls in flight of rounds with the normal latency, before there was a bound; 0: none
	quickest float64 // latency of a served call so far; 0: none
	known    float64 // calls that base is of, while few were in flight

	looking  bool // half of wasLimit may be in flight, see look
	wasLimit float64
	rounds   int     // since the last look
	rest     int     // that there are until the next one
	best     float64 // calls per second in one of them
}

const (
	// leastSlow is by how many seconds a server must be slower to be loaded: a few
	// milliseconds may be our own machine, or the network.
	leastSlow = .02

	roundSize  = 48   // calls of a round, at least
	mostRound  = 256. // and at most
	firstRound = 8    // calls of the first one: it should end before the server is loaded
	knownAfter = 64   // calls, with few in flight, that show what latency is normal
	gross      = 3.   // times the normal latency: no need to wait for the end of the round

	// A bound far below what was fine a moment ago doubles, as TCP starts slowly up to a threshold (RFC 5681): the
	// latency of 30 calls may be half as long again by chance. With a twentieth a round, a server that served 1,000 at
	// once was kept to 14 to 50 for nine minutes.
	fineLasts = .95 // of what was fine is, after another round

	// A round ends without its last calls, which may never come back, when so many times the calls in flight have. Where
	// these are bounded, a round has more than that anyway.
	// Twice its size is a tenth of the latency with 1,000 in flight: a round was that of its quick calls, half of the
	// mean, and the next one that was whole looked slow. The server was kept to ten calls in flight for minutes.
	manyBack = 3
)

// size is how many calls this round has: more if the bound must be set precisely.
func (l *latency) size(c *Controller) int {
	if l.base == 0 {
		return firstRound
	}
	if !c.limited() || 2*c.capacity.limit <= l.fine {
		return roundSize
	}
	return max(roundSize, int(min(8*c.capacity.limit, mostRound)))
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
	if served && (l.quickest == 0 || took < l.quickest) {
		l.quickest = max(took, leastSilence)
	}
	l.many = max(l.many, float64(call.inFlight))
	if call.round != l.round+1 {
		l.others++
	} else {
		l.back++
		if served {
			if l.base > 0 {
				took = min(took, 6*l.base) // one straggler is no news
			}
			l.sum += took
			l.inFlight += float64(call.inFlight)
			l.n++
		}
	}
	size := l.size(c)
	enough := max(64, 2*float64(size))
	if c.capacity.limit == c.capacity.most {
		enough = max(enough, manyBack*l.many)
	}
	early := l.n >= 12 && l.base > 0 && l.sum > gross*l.base*l.n && !l.testing
	if l.back < size && (float64(l.others) < enough || l.n < float64(size)/2) && !early {
		return
	}
	mean, in, n := l.sum/l.n, l.inFlight/l.n, l.n
	l.round++
	l.sent, l.back, l.others, l.many, l.sum, l.inFlight, l.n = 0, 0, 0, 0, 0, 0, 0
	switch {
	case c.cfg.Paced || !early && n < float64(size)/2:
	case c.phase == Capped:
		l.look(c, mean, in)
		c.capacity.held = 0
	default:
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
	looked := l.look(c, mean, in)
	held, ratio := k.held > 0, mean/l.base
	k.held = 0
	if ratio > 1.12 {
		l.rises = 0
	}
	if looked {
		return
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
		if c.limited() {
			l.fine = 0
		}
		l.testing, l.wasIn, l.wasTook = true, in, mean
		l.cut(c, in, min(k.limit, in)/ratio*1.15)
	case !c.limited():
		if ratio < 1.2 {
			l.fine = max(in, fineLasts*l.fine)
		}
	case held && 2*k.limit <= l.fine:
		l.testing = false
		l.bind(c, 2*k.limit)
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

// look looks, now and then, whether a server that is slow with so many calls in flight serves more with half of
// them. It reports whether it has set the bound.
//
// # Is the normal latency that of a server that is not loaded?
//
// Not if the server had a full queue from the first call on: a server that wastes time on those that wait is then
// kept busy with that, although the bound holds, and nothing shows that fewer calls would be served faster. The
// bound ended at 46 in flight and 88 calls per second where 20 in flight are served 155 times per second, or it
// did not, depending on the pace of the first calls. TCP BBR looks for the same reason (PROBE_RTT).
func (l *latency) look(c *Controller, mean, in float64) (done bool) {
	switch {
	case c.phase != Slowed && c.phase != Capped:
		l.unlook(c)
		l.rest = 0
		return false
	case l.looking:
		if l.rounds++; l.rounds > mostLook { // it is not the bound that limits the calls in flight
			l.unlook(c)
			l.rest = mostRest
			return true
		}
		if in < .85*l.wasIn { // otherwise most of this round started before the look
			l.looked(c, mean, in)
		}
		return true
	case l.testing || in < leastLook || !c.capacity.binds(in):
		return false
	}
	least, slow := leastRest, slowShare
	if c.phase == Capped { // a number that the server rejects is known better
		least, slow = 2*least, 2*slow
	}
	if mean < slow*l.quickest {
		return false
	}
	l.rest = min(mostRest, max(least, l.rest))
	if l.rounds++; l.rounds > 1 { // some calls of the first one started when fewer were in flight
		l.best = max(l.best, in/mean)
	}
	if l.rounds <= l.rest {
		return false
	}
	l.looking, l.rounds, l.wasIn, l.wasLimit = true, 0, in, c.capacity.limit
	l.bind(c, l.wasLimit/2)
	return true
}

// unlook ends a look without a result.
func (l *latency) unlook(c *Controller) {
	if l.looking && (c.phase == Slowed || c.phase == Capped) {
		c.capacity.limit = l.wasLimit
	}
	l.looking, l.rounds, l.best = false, 0, 0
}

// looked ends a look: in calls in flight took mean.
func (l *latency) looked(c *Controller, mean, in float64) {
	gain := lookGain
	if c.phase == Capped {
		gain = lookGainCapped
	}
	if in/mean <= gain*l.best {
		l.rest *= 2
		l.unlook(c)
		return
	}
	l.looking, l.best, l.fine = false, 0, 0
	l.base, l.rest, l.rounds = mean, 0, leastRest // the next look soon
	if c.phase == Capped {
		c.pace.rate = c.within(in * c.meanCost / mean)
		c.enter(Slowed, 0, Latency)
	}
}

const (
	leastRest = 4   // rounds between two looks, at least
	mostRest  = 256 // and at most: a look costs half of a round
	leastLook = 8.  // calls in flight: of fewer, half is a guess
	mostLook  = 3   // rounds of a look
	slowShare = 3.  // times the latency of the quickest call are no more than calls differ by

	// Times the most calls per second of a round since the last look. Less may be chance, or a server that
	// is slow for some seconds.
	lookGain       = .95
	lookGainCapped = 1.5
)

// rise raises the bound of a server that is not loaded: by a twentieth, and quickly after
// that has gone well three times in a row.
func (l *latency) rise(c *Controller) {
	limit := c.capacity.limit
	if l.rises++; l.rises > 3 {
		l.bind(c, limit*1.25)
		return
	}
	l.bind(c, limit+max(1, limit/20))
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
	k.limit = min(k.most, max(2, limit))
	if k.limit < min(k.most, 1e5) {
		return
	}
	k.limit = k.most
	if c.phase == Slowed {
		c.track(Tracking, c.pace.rate, NoCap)
	}
}
