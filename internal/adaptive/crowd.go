package adaptive

// A crowd is the calls that started before the first rejection of a controller that had no pace.
type crowd struct {
	sent float64 // cost sent when the first rejection came
	hold int     // saturated calls until the search begins,
	out  int     // or until so many of its calls are answered
	new  int     // calls in flight that started after the rejection
	size float64 // calls that it was granted before a silence; 0: there was none
	rate float64 // at which the search begins then
	most float64 // which the search does not exceed,
	left float64 // until so many calls were granted at it

	first part    // what it was granted, if that was quick: the bucket was full then
	mean  float64 // the same per second, with the silence after it, if a window granted it
}

// started notes that a call starts with inFlight others out, and counts those of the first burst among them. Only
// then is their number known, as calls have started before there was a controller.
//
// The search used to wait until three calls had started without an answer to one of these, as it still does if one of
// that never ends. After a burst of 64 that took a quarter of a second longer.
func (k *crowd) started(inFlight int) {
	k.out = max(0, inFlight-k.new)
	k.new++
}

// ended notes that a call has ended at t, before which so much was sent. If it was the last one of the burst, and the
// server was asked before and has rejected that, it is asked again: a cap on calls in flight waits for nothing else.
// The gap of .2 s that follows the first rejected poll let ten places be empty for .14 s.
func (k *crowd) ended(c *Controller, before, t float64) {
	switch b := &c.blockage; {
	case before >= k.sent:
		k.new--
	case k.out > 0:
		k.out--
		if k.out == 0 && b.on && b.crowd && b.polls == 1 && !b.polling && !b.told && !c.cfg.Costly {
			c.openAt(min(c.next, t))
		}
	}
}

// answered notes that a call of the crowd was answered. While they come back, the server
// is still busy with them: the search does not begin, and latency is not what it will be.
func (k *crowd) answered(c *Controller) {
	k.hold = crowdHold
	c.latency.unlook(c)
	c.latency = latency{round: c.latency.round + 1, quickest: c.latency.quickest}
}

// begin begins the search, at twice the first pace: the server has accepted several calls at the same time.
// After a silence that pace is above what a window grants.
func (k *crowd) begin(c *Controller) {
	k.hold = 0
	pace := c.cfg.Start * c.meanCost
	if k.size > 0 {
		pace /= 2
	}
	c.pace.now = c.within(max(c.pace.now, pace))
}

// crowded begins a search after the first rejection of a controller that had no pace.
//
// # What does the first rejection of a crowd say?
//
// Little. A bucket, a window, a queue or a cap was used up, and how fast the callers came
// says nothing of the server. But a bucket is empty now, so a search from a low pace finds
// the rate within a few calls of each doubling, and what it meets is the rate itself.
// Dividing what was accepted by the time it took gave paces that were up to a thousand
// times too high, and each of the following rejections only halved them.
//
// How long the crowd took to be answered is no measure either: it has loaded the server.
func (c *Controller) crowded(at point) {
	p := &c.pace
	c.crowd = crowd{sent: c.ledger.sent}
	c.ledger.recent, c.ledger.earlier = at, at // the bucket is not full again
	c.answer = 0
	c.crowd.answered(c)
	p.now = c.cfg.Start * c.meanCost / 2
	if took := at.at - c.ledger.start.at; took > longCrowd {
		p.now = max(p.now, at.granted/took/2)
	}
	p.now = c.within(p.now)
	c.enter(Searching, at.at, FirstRefusal)
}

// silent notes that the server accepts a call again, after the blockage of the crowd.
//
// # What does the silence after a crowd say?
//
// A server that grants 50 calls at the same time and then none for a second, although it is asked
// or has said so, has a rate of at most 50/s: a window grants just that, and a bucket had saved it.
// A search from a low pace had lost two seconds on the way there, and then doubled past it: a
// window hides the excess until it is used up. So the search begins a little below, and from there
// on doubles with as many calls as the crowd was granted, which takes it as long as the silence.
func (k *crowd) silent(c *Controller, call Call) {
	b := &c.blockage
	granted, took := c.ledger.granted(call), call.sent-c.ledger.start.at
	silence := call.sent - b.from.at
	if b.polls == 0 && !b.told || silence < max(crowdSilence, took/2) || granted < few*c.meanCost {
		return
	}
	share := crowdShare
	if b.told && c.other {
		share = otherShare
	}
	k.size, k.rate = granted/c.meanCost, share*granted/took
	c.pace.now = c.within(max(c.pace.now, k.rate))
	if b.polls > 1 && !b.told { // the last of them came before the end of the silence
		k.most, k.left = granted/(b.last-c.ledger.start.at), k.size
	}
}

const (
	crowdHold    = 3  // saturated calls without an answer to one of the crowd between them
	crowdSilence = .1 // seconds: less may be the way of the calls
	crowdShare   = .85
	otherShare   = .75 // the limit may be of another unit, and what was accepted of this one just a burst
)

// windowed reports whether the last cycle looks like a window: it was granted no more than the burst was before a
// silence in which polls were rejected, and at least half of that. A bucket would have accepted one of these polls.
// So the cycle and the silence after it say what the rate is, even if that silence is no longer than
// calls in flight explain. Without that, 50 calls in a second, rejected just before their window ended,
// had counted together with the silence before them, as 25/s.
func (k *crowd) windowed(c *Controller) bool {
	last := c.cycles.last()
	if k.most == 0 || last.n == 0 {
		return false
	}
	granted := last.parts[0].granted / c.meanCost
	return granted >= k.size/2 && granted <= k.size+few
}

// bound returns the pace that a search may have at the next call. A window that the silence was part of grants no
// more; but if as many calls are granted at that pace as before the silence, it was none.
func (k *crowd) bound(pace float64) float64 {
	if k.left <= 0 || pace < k.most {
		return pace
	}
	k.left--
	return k.most
}

// measure notes what the first burst was granted, if that was quick, when the server accepts a call again.
//
// # What does the first burst say of the next rejections?
//
// What a bucket holds: it was full when the burst came, and empty soon after. If the server has asked
// for a pause, the bucket is full again after it. So the rate is the one at which a bucket of that
// size explains what was accepted until the next rejection. At 50/s with a burst of 5, a search that
// was rejected at 147/s after less than two seconds had granted 13/s and begun again at 37/s, and the
// rejection after that led to 55/s; the bucket says 47/s and 49/s. As each rejection costs a second
// there, 300 calls took 12.2 s, and take 8.6 s.
//
// A window of the length of the silence looks like a bucket of its size, but grants no more in each.
// So the rate counts only if it is clearly more than that.
//
// Without a pause the bucket may not be full again, so that rate may be too low, but not too high. The pace of 16
// calls before says less: at 50/s with a burst of 10, a search that was rejected at 269/s had gone on at 78, 62 and
// 53/s, and each step cost three rejections. The bucket says 50/s, and 53/s had been accepted.
func (k *crowd) measure(c *Controller, call Call) {
	took, granted := c.blockage.from.at-c.ledger.start.at, c.ledger.granted(call)
	if took > quickCrowd || granted < few*c.meanCost {
		return
	}
	k.first, k.mean = part{took, granted}, granted/max(shortestWindow, call.sent-c.ledger.start.at)
	if c.blockage.told {
		k.begin(c)
	}
}

// places returns how many calls of the first burst were in flight when the first one was rejected, if none of
// them can have ended by then; 0 if it is not known.
func (k *crowd) places(c *Controller) float64 {
	if n := k.first.granted / c.meanCost; k.first.took < c.answer/2 && n >= few {
		return n
	}
	return 0
}

// explains returns the rate, below most, at which the bucket that the first burst has emptied explains
// the last cycle, if one call more or less does not change it much. Otherwise the rate is 0: of 6 calls in 0.8 s
// a bucket of 5 says 0.6/s, and a window of a second, which they had used up, 5/s.
func (k *crowd) explains(c *Controller, most float64) fit {
	if k.first.granted == 0 || c.sharing.peers > 1 {
		return fit{}
	}
	rate := bisect(most, func(rate float64) bool {
		return c.cycles.burst(rate)+c.meanCost/2 > k.first.granted-rate*k.first.took // calls come in units
	})
	if rate < overWindow*k.mean || rate == most {
		return fit{}
	}
	f := fit{rate, max(fitError, c.meanCost/2/(rate*c.cycles.last().longest(rate)))}
	if f.error > mostCrowdError {
		return fit{}
	}
	return f
}

const (
	quickCrowd = 1.  // seconds: a longer one is no burst
	overWindow = 1.5 // times what a window would have granted

	// Seconds. Without a pause a bucket accepts a call soon after the burst, and is no window of that time.
	shortestWindow = 1.

	mostCrowdError = .5 // as a share of the rate
)

// crowdLost returns how many calls the blockage of a crowd has cost: a rate is not known
// yet. A server that accepted one call and then none for five seconds is slow. One that
// granted a hundred, or is silent for long, is costly to ask again.
func (c *Controller) crowdLost(call Call, blocked float64) float64 {
	if (blocked < longCrowd || c.blockage.told) && c.ledger.granted(call) < few*c.meanCost {
		return 0
	}
	lost := c.pace.now / c.meanCost * blocked
	if blocked < longCrowd {
		lost = min(lost, c.ledger.granted(call)/c.meanCost)
	}
	return lost
}

// few is how many calls a crowd must have been accepted to say anything of the rate, unless
// the server was silent for long without saying so: then it may ban.
const few = 4

// longCrowd is for how many seconds calls must have been accepted until their rate says
// something of the server's.
const longCrowd = 10
