package adaptive

import (
	"slices"
	"time"

	"github.com/sluice-go/sluice/ext/peers"
)

// A Peer is what one process knows of the group that shares a limit: what it reports, and
// what it takes from the others. Instants are those of its Controller, which may begin later.
type Peer struct {
	id      string
	part    float64 // 0: none yet
	peers   int64
	stamp   int64  // of the newest news seen
	told    uint64 // version of the controller that was told, or came from others
	telling uint64 // likewise, of the report on its way
	waited  int    // saturated calls, at the last report
	held    int    // reports in a row that callers had waited for the pace
	sent    float64
	net     float64       // sent and not rejected
	at      time.Duration // of the last report
	reports int
	idle    int     // of them, the last ones without a call
	use     float64 // per second
	cut     bool    // the last report had no reply
	short   bool    // another process still has some of the part

	// See count.
	known   bool    // ledger is that of the controller
	counts  bool    // counted, own and others are there
	ledger  float64 // granted to all by the ledger of the controller, at the last report
	counted float64 // the same when it was corrected, at the last reply
	own     float64 // granted to this process, at the last reply
	others  float64 // granted to the others, at the last reply
}

// NewPeer returns the peer of the controller of a gate. No two have the same id.
func NewPeer(id string) *Peer { return &Peer{id: id} }

const (
	peerEvery = 500 * time.Millisecond // between two reports
	peerSoon  = 250 * time.Millisecond // if there are news, or a part to come
	peerFades = .7                     // of what was used, per report
	peerRoom  = 1.25                   // wanted, of what is used
)

// Begin makes p the peer of c, which is new, in place of the controller before.
func (p *Peer) Begin(now time.Duration, c *Controller) {
	p.told, p.known, p.counts, p.waited, p.held = 0, false, false, 0, busyAfter
	p.Scale(now, c)
}

// Scale tells c, a new controller, its part, and does not change p.
func (p *Peer) Scale(now time.Duration, c *Controller) {
	if p.part > 0 {
		c.Share(now, p.part, p.peers)
	}
}

// Due reports whether it is time to report.
func (p *Peer) Due(now time.Duration, c *Controller) bool {
	switch since := now - p.at; {
	case p.reports == 0 || since >= peerEvery:
		return true
	case since < peerSoon || p.cut:
		return false
	default:
		return p.short || c != nil && c.pace.calls > c.pace.span || p.held >= busyAfter && c != nil && c.version() != p.told && c.News(now) != nil
	}
}

// Report returns what to report at now. c may be nil. sent is the cost of what was sent so far,
// refused of what of it was rejected, and callers wait if waiting. The second result is false
// if the gate has not been used of late: it leaves the group, and need not report any more.
func (p *Peer) Report(now time.Duration, c *Controller, sent, refused float64, waiting bool) (peers.Report, bool) {
	took := max(peerSoon.Seconds(), (now - p.at).Seconds())
	used := (sent - p.sent) / took
	if p.idle++; used > 0 || waiting || p.reports == 0 {
		p.idle = 0
	}
	p.use = max(used, p.use*peerFades)
	net := max(0, sent-refused)
	granted := max(0, (net-p.net)/took)
	p.at, p.sent, p.net = now, sent, net
	p.reports++
	report := peers.Report{
		ID: p.id, Want: int64(min(mostNews, p.use*peerRoom/millionth)),
		Seen: p.stamp, Admitted: int64(net), Use: int64(min(mostNews, granted/millionth)),
	}
	if p.idle >= 2 {
		p.idle, p.reports = 0, 0
		report.Want = peers.Leaves
		return report, false
	}
	busy := p.busy(c)
	blocked := waiting && c != nil && c.blockage.on // it uses little because it may not
	if busy || blocked || p.reports == 1 {          // a new one does not know yet
		report.Want = peers.WantsAll
	}
	if c != nil && report.Want == peers.WantsAll && c.cfg.Max < mostNews*millionth {
		most := c.cfg.Max
		if !c.cfg.MaxCost {
			most *= c.ownCost()
		}
		report.Want = int64(min(mostNews, most*peerRoom/millionth))
	}
	if c != nil {
		p.known, p.ledger = true, c.ledger.sent-c.ledger.denied
	}
	if c != nil && !p.cut {
		p.telling = c.version()
		switch {
		case p.telling == p.told:
		case busy:
			report.News = c.News(now)
		default: // other calls than ours use the limit up, so we know little of it
			p.told = p.telling
		}
	}
	return report, true
}

// busy reports whether the pace of c has held calls up in the last two reports, or longer. A
// process that keeps to its own maximum is not busy: it does not know the limit.
func (p *Peer) busy(c *Controller) bool {
	if c == nil {
		p.held = 0
		return false
	}
	held := c.asked || c.pace.pasts != p.waited
	p.waited = c.pace.pasts
	if c.blockage.on || p.reports == 1 {
		return p.held >= busyAfter
	}
	if p.held++; !held || c.bounded() >= c.most() {
		p.held = 0
	}
	return p.held >= busyAfter
}

const busyAfter = 2 // reports

// Deregister returns what a gate reports that ends, and false if it is not in the group.
func (p *Peer) Deregister(sent, refused float64) (peers.Report, bool) {
	joined := p.reports > 0
	p.reports, p.idle = 0, 0
	return peers.Report{ID: p.id, Want: peers.Leaves, Admitted: int64(max(0, sent-refused)), Seen: p.stamp}, joined
}

// News reports whether a reply has news for a controller.
func (p *Peer) News(reply peers.Reply) bool {
	if len(reply.News) == 0 || reply.Stamp == p.stamp {
		return false
	}
	_, possible := read(reply.News)
	return possible
}

// Heard records the reply to a report. c may be nil if there are no News.
func (p *Peer) Heard(now time.Duration, c *Controller, report peers.Report, reply peers.Reply) {
	part := float64(reply.Share) / float64(peers.Whole)
	if p.cut && p.part > 0 && reply.Peers < p.peers {
		part = min(part, p.part) // the others have not come back yet
	}
	p.part, p.peers = max(leastPart, part), reply.Peers
	p.short = float64(reply.Due) > 1.1*p.part*float64(peers.Whole)
	was := p.cut
	p.cut = false
	if c == nil {
		p.stamp = reply.Stamp
		return
	}
	p.count(c, report, reply, was)
	c.Share(now, p.part, p.peers)
	switch {
	case report.News != nil && slices.Equal(report.News, reply.News):
		p.told = p.telling
	case p.News(reply):
		c.Adopt(now, reply.News, reply.Age)
		p.told = c.version()
	case was: // the estimate alone is no news
		p.told = c.version()
	}
	p.stamp = reply.Stamp
}

// lostCount is of how many seconds the calls are that a group has lost, and not estimated: it
// estimates what it was not told for 3 s at most.
const lostCount = 15.

// count corrects what c takes for accepted to all by what the group has counted.
func (p *Peer) count(c *Controller, report peers.Report, reply peers.Reply, gap bool) {
	if !p.known { // the controller is new
		return
	}
	others := float64(reply.Admitted - report.Admitted)
	counted := p.ledger
	own := float64(report.Admitted) - p.own
	since := others - p.others // less than 0 if the group had estimated too much
	if p.counts && !gap && since > -lostCount*c.pace.rate {
		wrong := since - (counted - p.counted - own)
		c.correct(p.at.Seconds(), wrong)
		counted += wrong
	}
	p.counts, p.others, p.counted, p.own = true, others, counted, float64(report.Admitted)
}

// Lost records that a report had no reply.
func (p *Peer) Lost(now time.Duration, c *Controller) {
	p.cut = true
	if c != nil && p.part > 0 {
		c.Share(now, p.part, 0)
	}
}
