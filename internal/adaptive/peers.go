package adaptive

import (
	"math"
	"slices"
	"time"

	"github.com/sluice-go/sluice/limits"
)

// # How do several processes learn one limit?
//
// Each has a rule, and sees only the replies to its own calls. What it must know of the
// others is how much of the limit it may use, its part. Then each of its calls stands for
// 1/part calls of all, and the rule measures the whole limit: between two refusals it was
// granted its part, and the others theirs.
//
//	calls of a, part 1/3     |  |  |  |  |  |  x     count as 3 each
//	calls of b, part 2/3     | | || | || | || | |    count as 1.5 each
//
// So all rules have rates of the same limit, and news is simply the newest belief: the
// others begin there. There is no leader. A process that is cut off keeps its part as a scale,
// and goes on as if it were alone.
//
// That the others use their parts is a guess, and it confirms itself: a process that takes
// more than its part seems to be granted more. So the group also counts what was granted to
// all, and that corrects the ledger of the rule with each reply. Counts alone would not do:
// they come a few times a second, and refusals fall in between.

// A sharing is what a Rule knows of the processes with which it shares a limit.
type sharing struct {
	part  float64 // 0: all of it
	peers int64   // this one included; 0: the others are out of touch
	until float64 // another process is blocked, and asks then whether the server grants again
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

// top returns an upper bound of the rate, given the pace of a refused call and a lower bound.
// Others may have called at another pace.
func (s *sharing) top(pace, low float64) float64 {
	if s.peers > 1 {
		return math.Max(pace, low)
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
func (r *Rule) Share(now time.Duration, part float64, peers int64) {
	part = math.Max(leastPart, math.Min(1, part))
	f := part * r.sharing.scale() // by which the part has grown
	r.sharing.part, r.sharing.peers = part, peers
	if f == 1 {
		return
	}
	r.unit /= f
	if t := now.Seconds(); r.next > t && !(r.blockage.on && r.blockage.polls > 0) {
		r.next = t + (r.next-t)/f
	}
	// These count calls of this process.
	p := &r.pace
	p.calls *= f
	p.span *= f
	p.rise *= f
	r.costly.hold *= f
	if !r.began && r.phase == Searching || r.phase == Unlimited {
		return
	}
	p.now = r.within(p.now)
}

// news is a Belief for other processes. All of it is of the whole limit, and no time in it
// depends on a clock.
type news struct {
	rate, unit, refuted, unsure, quiet, refusal float64
	price, low, high, hold                      float64
	count, length, begun                        float64 // window, how long ago it began
	until                                       float64 // for how long no call should leave
	phase                                       Phase
}

// numbers returns the addresses of the fields of n, the rate first.
func (n *news) numbers() []*float64 {
	return []*float64{
		&n.rate, &n.unit, &n.refuted, &n.unsure, &n.quiet, &n.refusal,
		&n.price, &n.low, &n.high, &n.hold, &n.count, &n.length, &n.begun, &n.until,
	}
}

const (
	millionth = 1e-6
	mostNews  = 1 << 53
)

// meanCost returns what a call of this process costs, in the mean.
func (r *Rule) meanCost() float64 {
	if r.unit == 0 {
		return 1
	}
	return r.unit / r.sharing.scale()
}

// opens returns until when no call may leave: the server has asked for a pause, or another
// process is blocked.
func (r *Rule) opens() float64 { return math.Max(r.until, r.sharing.until) }

const (
	mostPause = 86400. // seconds that another process can be blocked
	newsTakes = .75    // seconds, at most, until others have news
	newsLag   = .5     // the same, usually
	longWait  = 2.     // seconds between two calls that ask whether a server grants again
)

// blockedFor returns for how long the others should not call either. One process asks
// whether a server grants again: if each did, a server that begins its ban anew with each
// call granted nothing, and each took the one refusal for news of its own.
func (r *Rule) blockedFor(t float64) float64 {
	until := r.until
	if r.blocksOthers() {
		until = math.Max(until, r.next+2*r.refusal+newsTakes)
	}
	return math.Max(0, until-t)
}

// blocksOthers reports whether others should not call either: refusals are known to be costly,
// or the server has refused one call at a time for some time.
func (r *Rule) blocksOthers() bool {
	b := &r.blockage
	return b.on && (r.phase == Bounding || b.polls > 0 && b.gap > longWait)
}

// version returns a number that changes when there are news.
func (r *Rule) version() uint64 {
	v := r.changes << 8
	if r.blocksOthers() {
		v += uint64(r.blockage.polls & 255)
	}
	return v
}

// News returns what r believes, for other processes, or nil if that is nothing that they
// could use: a bound of the calls in flight is one of this process.
func (r *Rule) News(now time.Duration) []int64 {
	if r.phase != Tracking && r.phase != Bounding && r.phase != Windowed || r.unit == 0 {
		return nil
	}
	t, p, scale := now.Seconds(), &r.pace, r.sharing.scale()
	n := news{
		rate: p.rate, unit: r.unit / scale, refuted: p.refuted, unsure: p.unsure, quiet: p.quiet, refusal: r.refusal,
		price: r.costly.price, low: r.costly.low, high: r.costly.high, hold: r.costly.hold * scale,
		until: r.blockedFor(t), phase: r.phase,
	}
	if r.phase == Windowed {
		n.count, n.length, n.begun = r.window.count, r.window.length, math.Max(0, t-r.window.from)
	}
	var all []int64
	for _, x := range n.numbers() {
		all = append(all, int64(math.Min(mostNews, math.Round(*x/millionth))))
	}
	return append(all, int64(n.phase))
}

// Adopt makes r believe the news of another process, which are of that age. It reports
// whether they are possible.
func (r *Rule) Adopt(now time.Duration, all []int64, age time.Duration) bool {
	var n news
	numbers := n.numbers()
	if len(all) != len(numbers)+1 {
		return false
	}
	for i, x := range numbers {
		if all[i] < 0 || all[i] > mostNews {
			return false
		}
		*x = float64(all[i]) * millionth
	}
	n.phase = Phase(all[len(numbers)])
	switch {
	case all[len(numbers)] != int64(n.phase) || n.rate == 0 || n.unit == 0:
		return false
	case n.phase == Bounding && !(n.low > 0 && n.high >= n.low):
		return false
	case n.phase == Windowed && !(n.count > 0 && n.length > 0):
		return false
	case n.phase != Tracking && n.phase != Bounding && n.phase != Windowed:
		return false
	}
	if r.phase != Capped && r.phase != Slowed {
		r.adopt(now.Seconds(), n, math.Max(0, age.Seconds()))
	}
	return true
}

// adopt is Adopt for possible news.
func (r *Rule) adopt(t float64, n news, age float64) {
	r.at = math.Max(r.at, t)
	if r.unit == 0 {
		r.unit = r.sharing.whole(n.unit)
	}
	if r.refusal == 0 {
		r.refusal = math.Min(n.refusal, 60)
	}
	r.sharing.until = t + math.Min(n.until, mostPause) - age
	p := &r.pace
	p.refuted, p.unsure = n.refuted, math.Min(n.unsure, .25)
	p.quiet = math.Max(quietMin, math.Min(quietMax, n.quiet))
	k := &r.costly
	k.price = math.Min(n.price, 3600)
	k.low, k.high, k.hold = n.low, n.high, n.hold/r.sharing.scale()
	if n.phase == Windowed {
		r.window.begin(r, n.count, n.length, t-age-n.begun)
	}
	r.phase = n.phase
	if n.until > 0 {
		r.blockage.end() // another one asks whether it is over
	}
	if !r.blockage.on {
		r.epoch++ // calls that left before say nothing of the news
	}
	p.learn(r, n.rate, Shared)
}

// A Peer is what one process knows of the group that shares a limit: what it reports, and
// what it takes from the others. Instants are those of its Rule, which may begin later.
type Peer struct {
	id      string
	part    float64 // 0: none yet
	peers   int64
	stamp   int64  // of the newest news seen
	told    uint64 // version of the rule that was told, or came from others
	telling uint64 // likewise, of the report on its way
	waited  int    // saturated calls, at the last report
	held    int    // reports in a row that callers had waited for the pace
	sent    float64
	net     float64       // sent and not refused
	at      time.Duration // of the last report
	reports int
	idle    int     // of them, the last ones without a call
	use     float64 // per second
	cut     bool    // the last report had no reply
	short   bool    // another process still has some of the part

	// See count.
	known   bool    // ledger is that of the rule
	counts  bool    // counted, own and others are there
	ledger  float64 // granted to all by the ledger of the rule, at the last report
	counted float64 // the same when it was corrected, at the last reply
	own     float64 // granted to this process, at the last reply
	others  float64 // granted to the others, at the last reply
}

// NewPeer returns the peer of the rule of a gate. No two have the same id.
func NewPeer(id string) *Peer { return &Peer{id: id} }

const (
	peerEvery = 500 * time.Millisecond // between two reports
	peerSoon  = 250 * time.Millisecond // if there are news, or a part to come
	peerFades = .7                     // of what was used, per report
	peerRoom  = 1.25                   // wanted, of what is used
)

// Begin sets what a new rule must know.
func (p *Peer) Begin(now time.Duration, r *Rule) {
	p.told, p.known, p.counts, p.waited, p.held = 0, false, false, 0, busyAfter
	if p.part > 0 {
		r.Share(now, p.part, p.peers)
	}
}

// Due reports whether it is time to report.
func (p *Peer) Due(now time.Duration, r *Rule) bool {
	switch since := now - p.at; {
	case p.reports == 0 || since >= peerEvery:
		return true
	case since < peerSoon || p.cut:
		return false
	default:
		return p.short || r != nil && r.pace.calls > r.pace.span || p.held >= busyAfter && r != nil && r.version() != p.told && r.News(now) != nil
	}
}

// Report returns what to report at now. r may be nil. sent is the cost of what was sent so far,
// refused of what of it was refused, and callers wait if waiting. The second result is false
// if the gate has not been used of late: it leaves the group, and need not report any more.
func (p *Peer) Report(now time.Duration, r *Rule, sent, refused float64, waiting bool) (limits.PeerReport, bool) {
	took := math.Max(peerSoon.Seconds(), (now - p.at).Seconds())
	used := (sent - p.sent) / took
	if p.idle++; used > 0 || waiting || p.reports == 0 {
		p.idle = 0
	}
	p.use = math.Max(used, p.use*peerFades)
	net := math.Max(0, sent-refused)
	granted := math.Max(0, (net-p.net)/took)
	p.at, p.sent, p.net = now, sent, net
	p.reports++
	report := limits.PeerReport{
		ID: p.id, Want: int64(math.Min(mostNews, p.use*peerRoom/millionth)),
		Seen: p.stamp, Granted: int64(net), Use: int64(math.Min(mostNews, granted/millionth)),
	}
	if p.idle >= 2 {
		p.idle, p.reports = 0, 0
		report.Want = limits.PeerLeaves
		return report, false
	}
	busy := p.busy(r)
	if busy || p.reports == 1 { // a new one does not know yet
		report.Want = limits.PeerWantsAll
	}
	if r != nil && report.Want == limits.PeerWantsAll && r.cfg.Max < mostNews*millionth {
		report.Want = int64(r.cfg.Max * r.meanCost() * peerRoom / millionth)
	}
	if r != nil {
		p.known, p.ledger = true, r.ledger.sent-r.ledger.denied
	}
	if r != nil && !p.cut {
		p.telling = r.version()
		switch {
		case p.telling == p.told:
		case busy:
			report.News = r.News(now)
		default: // other calls than ours use the limit up, so we know little of it
			p.told = p.telling
		}
	}
	return report, true
}

// busy reports whether the pace of r has held calls up in the last two reports, or longer. A
// process that keeps to its own maximum is not busy: it does not know the limit.
func (p *Peer) busy(r *Rule) bool {
	if r == nil {
		p.held = 0
		return false
	}
	held := r.asked || r.pace.pasts != p.waited
	p.waited = r.pace.pasts
	if r.blockage.on || p.reports == 1 {
		return p.held >= busyAfter
	}
	if p.held++; !held || r.bounded() >= r.cfg.Max*r.unit {
		p.held = 0
	}
	return p.held >= busyAfter
}

const busyAfter = 2 // reports

// News reports whether a reply has news for a rule.
func (p *Peer) News(reply limits.PeerReply) bool {
	return len(reply.News) > 0 && reply.Stamp != p.stamp
}

// Heard records the reply to a report. r may be nil if there are no News.
func (p *Peer) Heard(now time.Duration, r *Rule, report limits.PeerReport, reply limits.PeerReply) {
	part := float64(reply.Part) / float64(limits.PeerPart)
	if p.cut && p.part > 0 {
		part = math.Min(part, p.part) // the others have not come back yet
	}
	p.part, p.peers = math.Max(leastPart, part), reply.Peers
	p.short = float64(reply.Due) > 1.1*p.part*float64(limits.PeerPart)
	was := p.cut
	p.cut = false
	if r == nil {
		p.stamp = reply.Stamp
		return
	}
	p.count(r, report, reply, was)
	r.Share(now, p.part, p.peers)
	switch {
	case report.News != nil && slices.Equal(report.News, reply.News):
		p.told = p.telling
	case p.News(reply):
		r.Adopt(now, reply.News, reply.Age)
		p.told = r.version()
	case was: // what was learned alone is no news
		p.told = r.version()
	}
	p.stamp = reply.Stamp
}

// count corrects what r takes for granted to all by what the group has counted.
func (p *Peer) count(r *Rule, report limits.PeerReport, reply limits.PeerReply, gap bool) {
	if !p.known { // the rule is new
		return
	}
	others := float64(reply.Granted - report.Granted)
	counted := p.ledger
	own := float64(report.Granted) - p.own
	if p.counts && !gap {
		wrong := math.Max(0, others-p.others) - (counted - p.counted - own)
		r.ledger.sent += wrong
		counted += wrong
	}
	p.counts, p.others, p.counted, p.own = true, others, counted, float64(report.Granted)
}

// Lost records that a report had no reply.
func (p *Peer) Lost(now time.Duration, r *Rule) {
	p.cut = true
	if r != nil && p.part > 0 {
		r.Share(now, p.part, 0)
	}
}

// enough returns over how many calls of this process a rate is measured: more if the calls of
// others are only known roughly.
func (s *sharing) enough() float64 {
	if s.peers > 1 {
		return 48
	}
	return 12
}
