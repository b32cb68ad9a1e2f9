package adaptive

import (
	"cmp"
	"math"
	"slices"
)

// capacity bounds the calls in flight, and finds out whether the server does.
//
// # How is a cap on calls in flight told from a rate?
//
// Both reject. But at an unchanged pace a bucket does not care how many calls happen to
// be in flight, and a cap cares for nothing else. So the controller looks for the number that
// best separates rejected calls from accepted ones (Youden's J). If it separates them
// well, that number is the cap, and there is no rate.
//
// Where each rejection comes with a time to wait, the controller avoids them, and one in a
// minute is all that it sees: the last 128 calls have too few. So it keeps the last rejected ones
// for longer, and if all of them started with as many in flight as accepted calls hardly ever do,
// that is no chance. Without this, chi's Throttle with Retry-After: 1 was used to 60 % for good. And
// if a call is rejected with as many in flight as the first burst was granted, that number is tried as the cap.
type capacity struct {
	limit float64 // at most so many in flight; most unless it was learned
	most  float64 // configured
	held  int     // calls that limit held back since it was last looked at

	seen     [128]sighting
	n        int
	rejected [8]sighting // the last ones, however long ago
	rejects  int
	pace     float64 // at which they were seen
	total    int     // replies so far
	ban      int     // not before so many replies: it was not a cap
	bans     int
	entry    float64 // limit when the cap was found
	full     float64 // replies at the limit since it changed
	bad      float64 // refused ones of them
	falls    float64 // how often the limit fell without having been good in between
	price    float64 // calls that the last rejection has cost
	raise    float64 // by which the limit was raised last; 0: it has fallen since
	guessed  bool    // the cap was found by again
	patience float64 // how many times 100 good replies to wait before one more is tried
}

// A sighting is how many calls were in flight with one, and how it ended.
type sighting struct {
	inFlight int32
	reply    int32 // its number
	pace     float32
	refused  bool
}

func (k *capacity) init(cfg Config) {
	k.setMost(cfg, false)
	k.patience = 1
}

// setMost sets the configured bound. A limit that was learned stays as it is, even if it is
// more: lowering the bound for a while must not lower what the server is known to grant.
func (k *capacity) setMost(cfg Config, learned bool) {
	k.most = math.Inf(1)
	if cfg.MaxConcurrency > 0 {
		k.most = float64(cfg.MaxConcurrency)
	}
	if !learned {
		k.limit = k.most
	}
}

func (k *capacity) bound() int {
	limit := min(k.limit, k.most)
	if limit > 1e9 {
		return math.MaxInt
	}
	return max(1, int(limit))
}

// binds reports whether the bound, and not another one, holds the calls in flight at in.
func (k *capacity) binds(in float64) bool {
	return k.held > 0 && k.limit <= k.most && in >= .7*k.limit
}

func (k *capacity) granted(c *Controller, call Call) {
	k.total++
	if c.phase != Capped {
		k.see(c, call, false)
		return
	}
	if call.epoch != c.epoch || float64(call.inFlight) < math.Floor(k.limit) {
		return
	}
	k.full++
	if k.full >= max(100*k.patience, k.price/capShare) {
		k.falls, k.guessed = 0, false
		before := k.limit
		k.move(c, math.Floor(max(1, min(2*k.raise, k.limit/2))))
		k.raise = k.limit - before
	}
}

// refused reports whether it has dealt with a rejection.
func (k *capacity) refused(c *Controller, t float64, call Call, told bool) bool {
	k.total++
	if c.phase != Capped {
		k.see(c, call, true)
		if k.named(c, call) {
			k.enter(c, t, int(call.inFlight))
			return true
		}
		if k.again(c, call, told) {
			k.enter(c, t, int(min(c.crowd.places(c)+1, float64(call.inFlight))))
			k.guessed = true
			return true
		}
		return k.found(c, t)
	}
	c.openAt(t + .5*c.answer/max(1, k.limit)) // another call ends soon
	if call.epoch != c.epoch || c.latency.looking {
		return true
	}
	k.bad++
	k.full++
	least, longest := 3., 16.
	if told { // each of them holds up all calls
		least, longest = 1, 64
	}
	k.price = k.lost(c, t)
	if k.bad >= least && k.bad > noise*k.full {
		k.patience = min(longest, 2*k.patience)
		k.move(c, -max(1, k.raise))
		k.raise = 0
		if k.falls++; k.falls >= 8 || k.guessed && k.falls > mostGuessed || k.limit < .55*k.entry || k.limit < 1 {
			k.giveUp(c)
		}
	}
	return true
}

func (k *capacity) move(c *Controller, by float64) {
	k.limit = min(max(k.most, k.limit), k.limit+by)
	k.full, k.bad = 0, 0
	c.outdate()
	c.note(Cap)
}

// see notes a call, if it is comparable with those before: they started at one pace, and
// before it was known that calls are rejected.
func (k *capacity) see(c *Controller, call Call, refused bool) {
	if call.pace > 1.65*k.pace || k.pace > 1.65*call.pace { // half a step of e; a logarithm took 20 ns
		k.pace, k.n, k.rejects = call.pace, 0, 0
	}
	if c.phase == Searching || c.phase == Unlimited || refused && call.epoch != c.epoch {
		return
	}
	s := sighting{call.inFlight, int32(k.total), float32(call.pace), refused}
	if refused {
		k.rejected[k.rejects%len(k.rejected)] = s
		k.rejects++
	}
	k.seen[k.n%len(k.seen)] = s
	k.n++
}

// found looks for a cap, and if there is one begins to use it.
func (k *capacity) found(c *Controller, t float64) bool {
	if c.cfg.Paced || k.n <= 24 || k.total < k.ban || c.phase == Bounding || c.phase == Windowed {
		return false
	}
	j, split, bad, share := k.separate()
	if j <= .75 || bad < 4 || split < 2 || k.agreement(split)-share <= .6 {
		if split = k.rare(); split < 2 {
			return false
		}
	}
	k.enter(c, t, split)
	return true
}

// again reports whether call was rejected with as many others in flight as the first burst was granted at the same
// time, and is the first one since. To compare more takes seconds, and minutes where each rejection costs a second.
// There a bucket that is taken for a cap costs as much, so there must not be fewer. Elsewhere one or two of the
// burst may have ended before the last one was granted.
func (k *capacity) again(c *Controller, call Call, told bool) bool {
	n, others := c.crowd.places(c), float64(call.inFlight-1)
	least, pace := n, call.pace/c.meanCost
	if !told {
		least = .8 * n
	}
	switch more := max(1, n/8) + pace*c.refusal/2; { // that have ended, with a reply on its way
	case n == 0 || others < least || others > n+more:
		return false
	case c.blocked != 1:
		return false
	case c.answer < slower*c.refusal || n/c.answer < pace/quickSearch: // it does not work for long, or was just granted more
		return false
	}
	return k.mayShow(c, call)
}

// mayShow reports whether the rejection of call alone may show a cap.
func (k *capacity) mayShow(c *Controller, call Call) bool {
	return !c.blockage.on && call.epoch == c.epoch && !c.cfg.Paced && k.total >= k.ban &&
		math.Abs(call.cost/c.meanCost-1) < .01 // a cap counts calls
}

// named reports whether call was rejected because of the calls in flight, as the server says, and not with the first
// burst. Then those in flight with it are as many as the server accepts, or a few more, as some replies were on their
// way. Without that a cap of 10 on calls of 1.5 s was believed to be a rate in three of five runs, and used to 50 %.
func (k *capacity) named(c *Controller, call Call) bool {
	return call.atOnce && c.phase != Unlimited && call.inFlight > 2 && call.before >= c.crowd.sent && k.mayShow(c, call)
}

// lost returns how many calls are not made because of a rejection at t.
func (k *capacity) lost(c *Controller, t float64) float64 {
	return max(0, c.until-t) * k.limit / max(1e-3, c.answer)
}

// enter begins to use a cap of fewer than split.
func (k *capacity) enter(c *Controller, t float64, split int) {
	c.blockage.end()
	c.latency.unlook(c)
	k.limit, k.entry = float64(split-1), float64(split-1)
	k.full, k.bad, k.patience, k.falls, k.raise, k.guessed = 0, 0, 1, 0, 0, false
	k.price = k.lost(c, t)
	c.enter(Capped, t, Cap)
}

// agreement returns the share of the last rejected calls, however long ago, that had about split or
// more in flight. The four that separate needs may be those of one burst at the limit of a bucket: calls at
// 50/s, with 2 to 4 in flight, were thought to meet a cap of 3 and were held to 43/s.
func (k *capacity) agreement(split int) float64 {
	n, above := min(k.rejects, len(k.rejected)), 0
	for _, s := range k.rejected[:n] {
		if float64(s.inFlight) >= .9*float64(split) {
			above++
		}
	}
	return float64(above) / float64(n)
}

// giveUp ends the belief in a cap.
func (k *capacity) giveUp(c *Controller) {
	k.limit, k.n, k.rejects = k.most, 0, 0
	k.ban = k.total + 500<<min(20, 2*k.bans)
	k.bans++
	c.pace.quiet = quietMin
	if c.pace.rate == 0 { // only the first burst was rejected before: the search goes on
		c.pace.now = c.within(min(c.pace.now, k.entry/c.answer*c.meanCost))
		c.enter(Searching, c.at, NoCap)
		return
	}
	c.track(Tracking, c.pace.rate, NoCap)
}

// separate returns Youden's J, the number in flight from which calls are rejected, how
// many were rejected, and the share of the accepted calls with so many in flight.
func (k *capacity) separate() (j float64, split, bad int, share float64) {
	const most = 512
	var refused, granted [most + 1]uint8
	good := 0
	for _, s := range k.seen[:min(k.n, len(k.seen))] {
		i := min(most, int(s.inFlight))
		if s.refused {
			refused[i]++
			bad++
		} else {
			granted[i]++
			good++
		}
	}
	if bad == 0 || good < 12 {
		return 0, 0, bad, 0
	}
	above, below := 0, 0
	for i := most; i >= 1; i-- {
		above += int(refused[i])
		below += int(granted[i])
		wrong := float64(below) / float64(good)
		if x := float64(above)/float64(bad) - wrong; x > j {
			j, split, share = x, i, wrong
		}
	}
	return j, split, bad, share
}

const (
	slower      = 3   // times as long as a rejection takes an answer of a server that is at work
	quickSearch = 4   // times the pace that a cap allows a search comes to before the first rejection is back
	noise       = .02 // of the calls may be rejected for another reason
	capShare    = .05 // of the calls may be lost because more in flight is tried
	mostGuessed = 1   // the first burst may have been granted one more, as one of it had ended

	// byChance is the probability of rare, if there is a rate and not a cap, that is small enough.
	byChance = 1e-4
	turns    = 4   // so many times that number of calls ended since the first: else it may only have grown
	asFast   = .97 // of the pace of rejected calls: faster calls find more in flight, cap or not
)

// rare returns the least number in flight with the last rejected calls, if so many are so rare
// with accepted calls of that pace that it is no chance, and 0 otherwise.
func (k *capacity) rare() int {
	bad := min(k.rejects, len(k.rejected))
	if bad < 2 {
		return 0
	}
	least, first, slowest := int32(math.MaxInt32), int32(math.MaxInt32), float32(math.Inf(1))
	for _, s := range k.rejected[:bad] {
		least, first, slowest = min(least, s.inFlight), min(first, s.reply), min(slowest, s.pace)
	}
	if int(int32(k.total)-first) < turns*int(least) {
		return 0
	}
	good, above := 0, 0
	for _, s := range k.seen[:min(k.n, len(k.seen))] {
		if s.refused || s.pace < asFast*slowest {
			continue
		}
		good++
		if s.inFlight >= least {
			above++
		}
	}
	if good < 24 || math.Pow(float64(above+1)/float64(good+1), float64(bad)) > byChance {
		return 0
	}
	if k.spread() < 3 { // then a little more in flight says little
		return 0
	}
	return int(least)
}

// spread returns how much the number in flight varied, without the extremes.
func (k *capacity) spread() int32 {
	all := slices.Clone(k.seen[:min(k.n, len(k.seen))])
	slices.SortFunc(all, func(a, b sighting) int { return cmp.Compare(a.inFlight, b.inFlight) })
	return all[len(all)*9/10].inFlight - all[len(all)/10].inFlight
}
