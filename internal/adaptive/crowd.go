package adaptive

import "math"

// A crowd is the calls that started before the first rejection of a controller that had no pace.
type crowd struct {
	sent float64 // cost sent when the first rejection came
	hold int     // saturated calls until the search begins
}

// answered notes that a call of the crowd was answered. While they come back, the server
// is still busy with them: the search does not begin, and latency is not what it will be.
func (k *crowd) answered(c *Controller) {
	k.hold = 4
	c.latency = latency{round: c.latency.round + 1}
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
	p.now = c.cfg.Start * c.meanCost
	if took := at.at - c.ledger.start.at; took > longCrowd {
		p.now = math.Max(p.now, at.granted/took/2)
	}
	p.now = c.within(p.now)
	c.enter(Searching, at.at, FirstRefusal)
}

// crowdLost returns how many calls the blockage of a crowd has cost: a rate is not known
// yet. A server that accepted one call and then none for five seconds is slow. One that
// granted a hundred, or is silent for long, is costly to ask again.
func (c *Controller) crowdLost(call Call, blocked float64) float64 {
	if (blocked < longCrowd || c.blockage.told) && c.ledger.granted(call) < few*c.meanCost {
		return 0
	}
	lost := c.pace.now / c.meanCost * blocked
	if blocked < longCrowd {
		lost = math.Min(lost, c.ledger.granted(call)/c.meanCost)
	}
	return lost
}

// few is how many calls a crowd must have been accepted to say anything of the rate, unless
// the server was silent for long without saying so: then it may ban.
const few = 4

// longCrowd is for how many seconds calls must have been accepted until their rate says
// something of the server's.
const longCrowd = 10
