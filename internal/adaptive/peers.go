package adaptive

import (
	"math"
	"time"
)

// # How do several processes learn one limit?
//
// Each has a controller, and sees only the replies to its own calls. What it must know of the
// others is how much of the limit it may use, its part. Then each of its calls stands for
// 1/part calls of all, and the controller measures the whole limit: between two rejections it was
// granted its part, and the others theirs.
//
//	calls of a, part 1/3     |  |  |  |  |  |  x     count as 3 each
//	calls of b, part 2/3     | | || | || | || | |    count as 1.5 each
//
// So all controllers have rates of the same limit, and news is simply the newest belief: the
// others begin there. There is no leader. A process that is cut off keeps its part as a scale,
// and goes on as if it were alone.
//
// That the others use their parts is a guess, and it confirms itself: a process that takes
// more than its part seems to be accepted more. So the group also counts what was accepted to
// all, and that corrects the ledger of the controller with each reply. Counts alone would not do:
// they come a few times a second, and rejections fall in between.

// A sharing is what a Controller knows of the processes with which it shares a limit.
type sharing struct {
	part  float64 // 0: all of it
	peers int64   // this one included; 0: the others are out of touch
	until float64 // another process is blocked, and asks then whether the server accepts again
	told  float64 // the server has asked another process to wait until then
	await bool    // another process is blocked, and has not told that it no longer is
	from  float64 // when that began
}

// leastPart bounds the part of a process that has none yet.
const leastPart = 1e-3

// whole returns what cost of this process stands for.
func (s *sharing) whole(cost float64) float64 { return cost * s.scale() }

func (s *sharing) scale() float64 {
	if s.part == 0 {
		return 1
	}
	return 1 / s.part
}

// quiet returns how many calls of this process are n of all that share the limit.
func (s *sharing) quiet(n float64) float64 {
	if s.peers == 0 {
		return n
	}
	return n / s.scale()
}

// own returns n calls of this process, or fewer while it waits for its part: when it gets that, they grow as the
// part does. A process that was flooded with rejections, and had a thousandth of the limit for a moment, would
// otherwise wait for 170,000 calls before it tried a higher pace.
func (s *sharing) own(n float64) float64 {
	if s.peers > 1 {
		return n * min(1, float64(s.peers)/s.scale())
	}
	return n
}

// top returns an upper bound of the rate, given the pace of a rejected call and a lower bound.
// Others may have called at another pace.
func (s *sharing) top(pace, low float64) float64 {
	if s.peers > 1 {
		return max(pace, low)
	}
	return pace
}

// lag returns for how many seconds the others go on as before after news.
func (s *sharing) lag() float64 {
	if s.peers > 1 {
		return newsLag
	}
	return 0
}

// Share sets the part of the limit that this process may use, and how many share it, 0 if
// they are out of touch.
func (c *Controller) Share(now time.Duration, part float64, peers int64) {
	part = max(leastPart, min(1, part))
	f := part * c.sharing.scale() // by which the part has grown
	before := c.bounded()
	c.sharing.part, c.sharing.peers = part, peers
	if f == 1 {
		return
	}
	c.meanCost /= f
	// These count calls of this process.
	p := &c.pace
	p.calls *= f
	p.span *= f
	p.rise *= f
	c.costly.hold *= f
	if c.phase != Searching && c.phase != Unlimited {
		p.set(c) // not from the pace before: what bounded that is no belief
	}
	c.rescale(now.Seconds(), f, before)
}

// news is a Belief for other processes. All of it is of the whole limit, and no time in it
// depends on a clock.
type news struct {
	rate, meanCost, refuted, unsure, quiet, refusal float64
	price, low, high, hold                          float64
	count, length, begun                            float64 // window, how long ago it began
	until                                           float64 // for how long no call should start
	told                                            float64 // for how long the server has asked to wait
	since                                           float64 // how long ago the blockage began; 0: there is none
	burst, slow                                     float64 // see costly
	phase                                           Phase
}

// numbers returns the addresses of the fields of n, the rate first.
func (n *news) numbers() []*float64 {
	return []*float64{
		&n.rate, &n.meanCost, &n.refuted, &n.unsure, &n.quiet, &n.refusal,
		&n.price, &n.low, &n.high, &n.hold, &n.count, &n.length, &n.begun, &n.until, &n.told, &n.since, &n.burst, &n.slow,
	}
}

const (
	millionth = 1e-6
	mostNews  = 1 << 53
)

// ownCost returns what a call of this process costs, in the mean.
func (c *Controller) ownCost() float64 {
	if c.meanCost == 0 {
		return 1
	}
	return c.meanCost / c.sharing.scale()
}

// ToldToPeers returns until when the server has asked another process to wait, 0 if it has not.
func (c *Controller) ToldToPeers() time.Duration {
	return time.Duration(c.sharing.told * float64(time.Second))
}

const (
	mostPause = 86400. // seconds that another process can be blocked
	newsTakes = .75    // seconds, at most, until others have news
	newsLag   = .5     // the same, usually
	longWait  = 2.     // seconds between two calls that ask whether a server accepts again
)

// blockedFor returns for how long the others should not call either. One process asks
// whether a server accepts again: if each did, a server that begins its ban again with each
// call accepted nothing, and each took the one rejection for news of its own.
func (c *Controller) blockedFor(t float64) float64 {
	until := c.until
	if c.blocksOthers() {
		until = max(until, c.next+2*c.refusal+newsTakes)
	}
	return max(0, until-t)
}

// blocksOthers reports whether others should not call either: rejections are known to be costly,
// or the server has rejected one call at a time for some time.
func (c *Controller) blocksOthers() bool {
	b := &c.blockage
	return b.on && (c.phase == Bounding || b.polls > 0 && b.gap > longWait)
}

// version returns a number that changes when there are news.
func (c *Controller) version() uint64 {
	v := c.changes<<16 + uint64(c.resumed)<<8
	if c.blocksOthers() {
		v += uint64(c.blockage.polls & 255)
	}
	return v
}

// News returns what c believes, for other processes, or nil if that is nothing that they
// could use: a bound of the calls in flight is one of this process.
func (c *Controller) News(now time.Duration) []int64 {
	if c.phase != Tracking && c.phase != Bounding && c.phase != Windowed || c.meanCost == 0 {
		return nil
	}
	t, p, scale := now.Seconds(), &c.pace, c.sharing.scale()
	n := news{
		rate: p.rate, meanCost: c.meanCost / scale, refuted: p.refuted, unsure: p.unsure, quiet: p.quiet, refusal: c.refusal,
		price: c.costly.price, low: c.costly.low, high: c.costly.high, hold: c.costly.hold * scale,
		until: c.blockedFor(t), told: max(0, c.until-t), phase: c.phase, burst: c.costly.burst,
	}
	if c.costly.slow {
		n.slow = 1
	}
	if n.until > 0 {
		n.since = max(millionth, t-c.blockage.from.at)
	}
	if c.phase == Windowed {
		n.count, n.length, n.begun = c.window.count, c.window.length, max(0, t-c.window.from)
	}
	var all []int64
	for _, x := range n.numbers() {
		all = append(all, int64(max(0, min(mostNews, math.Round(*x/millionth)))))
	}
	return append(all, int64(n.phase))
}

// read returns the news that are written as numbers, and whether they are possible.
func read(all []int64) (n news, possible bool) {
	numbers := n.numbers()
	if len(all) != len(numbers)+1 {
		return n, false
	}
	for i, x := range numbers {
		if all[i] < 0 || all[i] > mostNews {
			return n, false
		}
		*x = float64(all[i]) * millionth
	}
	n.phase = Phase(all[len(numbers)])
	switch {
	case all[len(numbers)] != int64(n.phase) || n.rate == 0 || n.meanCost == 0:
		return n, false
	case n.phase == Bounding && !(n.low > 0 && n.high >= n.low):
		return n, false
	case n.phase == Windowed && !(n.count > 0 && n.length > 0):
		return n, false
	}
	return n, n.phase == Tracking || n.phase == Bounding || n.phase == Windowed
}

// Adopt makes c believe the news of another process, which are of that age. It reports
// whether they are possible.
func (c *Controller) Adopt(now time.Duration, all []int64, age time.Duration) bool {
	n, possible := read(all)
	if !possible {
		return false
	}
	if c.phase != Capped && c.phase != Slowed {
		c.adopt(now.Seconds(), n, max(0, age.Seconds()))
	}
	return true
}

// adopt is Adopt for possible news.
func (c *Controller) adopt(t float64, n news, age float64) {
	c.at = max(c.at, t)
	if c.meanCost == 0 {
		c.meanCost = c.sharing.whole(n.meanCost)
	}
	if c.refusal == 0 {
		c.refusal = min(n.refusal, 60)
	}
	if n.since > 0 {
		c.othersBlocked(t, t-age-min(n.since, mostPause), max(0, n.told-age))
	} else {
		c.othersResumed(t - age)
	}
	c.sharing.until = t + min(n.until, mostPause) - age
	if c.sharing.told = 0; n.told > age {
		c.sharing.told = t + min(n.told, mostPause) - age
	}
	p := &c.pace
	p.refuted, p.unsure = n.refuted, min(n.unsure, .25)
	p.quiet = max(quietMin, min(quietMax, n.quiet))
	k := &c.costly
	k.price = min(n.price, 3600)
	k.low, k.high, k.hold, k.burst, k.measured = n.low, n.high, n.hold/c.sharing.scale(), n.burst, false
	if n.phase == Windowed {
		c.window.begin(c, n.count, n.length, t-age-n.begun)
	}
	if n.until > 0 {
		c.blockage.end() // another one asks whether it is over
	}
	if !c.blockage.on {
		c.outdate() // calls that started before say nothing of the news
	}
	k.slow = n.slow > 0
	c.track(n.phase, n.rate, Shared)
	if c.sharing.peers > 1 {
		c.service.measured(c)
	}
}

// # What is a rejection in another process?
//
// It says to all that the bucket was empty. A process that took only the rejections of its own calls
// measured from one of them to the next, across the bans of others in which nothing was accepted, and
// told the others to keep to a rate that was too low. So each notes what it hears
// of a ban as if one of its calls had been rejected, and accepted again later. What follows for the
// rate is learned in one process, the first that has told, and is news to the others:
//
//	a   calls  x  asks   asks   accepted: moves the bounds, and tells them
//	b   calls    heard: an empty point      heard: the cycle begins here
//	c   calls  x also heard: it drops what it has made of its own rejection
//
// So whichever is rejected next has the same points to measure from.

// othersBlocked notes that another process has been blocked since an instant, and asked for a wait.
func (c *Controller) othersBlocked(t, since, told float64) {
	if c.sharing.await {
		return
	}
	c.sharing.await, c.sharing.from = true, since
	if c.blockage.on { // a call of this one was also rejected
		c.sharing.from = c.blockage.from.at
		return
	}
	at := c.ledger.now(max(since, c.ledger.last.at))
	c.service.trouble(c, at)
	c.service.refused(told)
	c.cycles.end(at, c.pace.now, c.meanCost)
	c.ledger.mark(at)
}

// othersResumed notes that the server accepts calls again, since an instant.
func (c *Controller) othersResumed(at float64) {
	if !c.sharing.await {
		return
	}
	c.sharing.await = false
	if c.phase == Windowed {
		return
	}
	k, now := &c.costly, c.ledger.now(at)
	got, from := max(0, now.granted-k.start.granted), c.sharing.from
	before := k.before
	k.before = costlyCycle{got, got / max(1e-3, from-k.start.at), max(1e-3, at-k.start.at), from - k.start.at}
	c.window.compare(c, before, k.before)
	k.start, k.looking, k.cheaps = now, false, 0
	c.service.paid(c, at)
}

// correct corrects what was accepted until t by what the group has counted. In a ban nothing is
// accepted, so the cycle that it has ended was wrong by as much.
func (c *Controller) correct(t, wrong float64) {
	c.ledger.sent += wrong
	if !c.sharing.await && !(c.blockage.on && c.until > t) {
		return
	}
	l := &c.ledger
	if l.empties > 0 {
		l.empty[(l.empties-1)%len(l.empty)].granted += wrong
	}
	for _, p := range [...]*point{&l.refused, &l.last, &c.blockage.from, &c.cycles.points[0]} {
		p.granted += wrong
	}
	c.cycles.correct(wrong)
}

// most returns what a call stands for when it asks whether a server accepts again, given its cost for all
// and what one costs. A process that still waits for its part has nearly none: by that it asked so rarely
// that it was treated as a ban, and all others waited for it.
func (s *sharing) most(cost, one float64) float64 {
	equal := float64(s.peers)
	if s.peers > 1 && s.scale() > equal {
		return min(cost, one*equal)
	}
	return cost
}

// asking returns the part at which a process asks whether a server accepts again, see most: an equal one at least.
func (s *sharing) asking(part float64) float64 {
	if s.peers > 1 {
		return max(part, 1/float64(s.peers))
	}
	return part
}

// enough returns over how many calls of this process a rate is measured: more if the calls of
// others are only known roughly.
func (s *sharing) enough() float64 {
	if s.peers > 1 {
		return 48
	}
	return 12
}
