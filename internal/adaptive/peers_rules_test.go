package adaptive

import (
	"math"
	"testing"
	"time"

	"github.com/sluice-go/sluice/ext/peers"
)

// shared returns a controller at 10/s for all, which is one of so many processes with a part of it.
func shared(part float64, n int64) *Controller {
	c := tracking(10)
	c.Share(0, part, n)
	return c
}

// A process counts a call of its own as all that it stands for, has a thousandth of the limit at least, and an equal
// part when it asks whether a server accepts again.
func TestSharing_Scale(t *testing.T) {
	s := shared(.25, 4).sharing
	equal(t, "whole", s.whole(3), 12)
	equal(t, "quiet", s.quiet(8), 2)
	equal(t, "own", s.own(8), 8)
	equal(t, "lag", s.lag(), .5)
	equal(t, "enough", s.enough(), 48)
	equal(t, "most", s.most(4, 1), 4)
	equal(t, "asking", s.asking(.1), .25)
	equal(t, "asking", s.asking(.3), .3)
	s = shared(.1, 4).sharing
	equal(t, "own, waiting for a part", s.own(8), 3.2)
	equal(t, "most, waiting for a part", s.most(10, 1), 4)
	equal(t, "top", s.top(10, 12), 12)
	s = shared(0, 4).sharing
	equal(t, "part", s.part, .001)
	s = shared(.25, 0).sharing
	equal(t, "quiet, out of touch", s.quiet(8), 8)
	s = shared(1, 1).sharing
	equal(t, "own, alone", s.own(8), 8)
	equal(t, "lag, alone", s.lag(), 0)
	equal(t, "enough, alone", s.enough(), 12)
	equal(t, "top, alone", s.top(10, 12), 10)
	equal(t, "asking, alone", s.asking(.1), .1)
}

// Others should not call while rejections are costly, or a server is asked with gaps of more than two seconds: until
// three quarters of a second after the next poll, and two rejections.
func TestController_BlocksOthers(t *testing.T) {
	for _, tc := range []struct {
		name  string
		phase Phase
		polls int
		gap   float64
		want  float64
	}{
		{"costly", Bounding, 0, 0, 5 + .75 + .4},
		{"a long gap", Tracking, 1, 2.1, 5 + .75 + .4},
		{"a short one", Tracking, 1, 2, 0},
		{"it was not asked", Tracking, 0, 2.1, 0},
	} {
		c := tracking(10)
		c.phase, c.next, c.refusal = tc.phase, 15, .2
		c.blockage = blockage{on: true, polls: tc.polls, gap: tc.gap}
		equal(t, tc.name, c.blockedFor(10), tc.want)
		if tc.want > 0 {
			before := c.version()
			if c.blockage.polls++; c.version() == before {
				t.Errorf("%s: another poll is no news", tc.name)
			}
		}
		c.until = 99
		equal(t, tc.name+", in a pause", c.blockedFor(10), 89)
	}
}

// News of as much as before the trouble says that the rate has not fallen, unless its process was the last other one and has
// left.
func TestController_adopt_AsBeforeTheTrouble(t *testing.T) {
	for peers, fell := range map[int64]bool{0: true, 1: true, 2: false} {
		c, other := tracking(10), tracking(10)
		c.Share(0, 1, peers)
		c.service = service{rate: 10, since: 100, asked: 1, fell: true}
		if c.Adopt(110*second, other.News(110*second), 0); c.service.fell != fell {
			t.Errorf("%d peers: fell %t", peers, c.service.fell)
		}
	}
}

// News of a blockage end when they say, a day later at most, and what they say of a server is within what is possible.
func TestController_adopt(t *testing.T) {
	c := tracking(10)
	n := news{rate: 20, meanCost: 1, unsure: .9, quiet: 1000, refusal: 99, price: 1e6, until: 1e6, told: 9, since: 4, phase: Tracking}
	c.refusal = 0
	c.adopt(100, n, 2)
	equal(t, "refusal", c.refusal, 60)
	equal(t, "unsure", c.pace.unsure, .25)
	equal(t, "quiet", c.pace.quiet, 100)
	equal(t, "price", c.costly.price, 3600)
	equal(t, "until", c.sharing.until, 100+86400-2)
	equal(t, "told", c.sharing.told, 107)
	equal(t, "since", c.sharing.from, 94)
	equal(t, "rate", c.pace.rate, 20)
	if c.ToldToPeers() != 107*time.Second {
		t.Errorf("told until %v", c.ToldToPeers())
	}
	n.quiet, n.told, n.until, n.since = 1, 2, 3, 0
	c.adopt(100, n, 2)
	equal(t, "quiet", c.pace.quiet, 16)
	equal(t, "told, and over", c.sharing.told, 0)
	equal(t, "until", c.sharing.until, 101)
	if c.sharing.await {
		t.Error("the others are not blocked any more")
	}
}

// What a group has counted corrects the ledger, and in a ban the cycle that it has ended.
func TestController_correct(t *testing.T) {
	for _, ban := range []bool{false, true} {
		c := tracking(10)
		c.ledger.mark(point{at: 1, granted: 50})
		c.sharing.await = ban
		before := c.ledger.sent
		c.correct(2, 5)
		want := map[bool]float64{false: 50, true: 55}[ban]
		equal(t, "sent", c.ledger.sent, before+5)
		equal(t, "empty", c.ledger.empty[0].granted, want)
		equal(t, "refused", c.ledger.refused.granted, want)
		equal(t, "last", c.ledger.last.granted, want)
	}
}

// A ban of others ends a cycle where it began, and begins the next one where it ends.
func TestController_othersBan(t *testing.T) {
	c := tracking(10)
	c.ledger.sent, c.costly.looking, c.costly.cheaps = 100, true, 3
	c.othersBlocked(12, 10, 30)
	equal(t, "empty", c.ledger.refused.at, 10)
	c.ledger.sent = 120
	c.othersResumed(40)
	k := &c.costly
	equal(t, "granted", k.before.granted, 120)
	equal(t, "rate", k.before.active, 12)
	equal(t, "took", k.before.took, 40)
	equal(t, "start", k.start.at, 40)
	if k.looking || k.cheaps != 0 || c.sharing.await {
		t.Errorf("%+v, waits %t", k, c.sharing.await)
	}
	equal(t, "start of the good time", c.service.begin, 40)
}

// A process reports every half a second; after a quarter if it has a part to come, or if its pace is tested.
func TestPeer_Due_Soon(t *testing.T) {
	for _, tc := range []struct {
		name   string
		at     time.Duration
		change func(p *Peer, c *Controller)
		want   bool
	}{
		{"half a second", 500, func(*Peer, *Controller) {}, true},
		{"less", 499, func(*Peer, *Controller) {}, false},
		{"a part to come", 250, func(p *Peer, _ *Controller) { p.short = true }, true},
		{"sooner", 249, func(p *Peer, _ *Controller) { p.short = true }, false},
		{"a pace above the rate", 250, func(_ *Peer, c *Controller) { c.pace.calls = c.pace.span + 1 }, true},
		{"news", 250, func(p *Peer, c *Controller) { p.held = 2; c.track(Tracking, 12, Measured) }, true},
		{"news of one that is not busy", 250, func(p *Peer, c *Controller) { p.held = 1; c.track(Tracking, 12, Measured) }, false},
		{"old news", 250, func(p *Peer, c *Controller) { p.held, p.told = 2, c.version() }, false},
		{"out of touch", 250, func(p *Peer, _ *Controller) { p.short, p.cut = true, true }, false},
	} {
		p, c := NewPeer("a"), tracking(10)
		p.Report(0, c, 1, 0, true)
		tc.change(p, c)
		if got := p.Due(tc.at*time.Millisecond, c); got != tc.want {
			t.Errorf("%s: %t", tc.name, got)
		}
	}
}

// A process wants a quarter more than it used, of which 70 % are left after each report without a call; and no more
// than a quarter above its own maximum.
func TestPeer_Wants(t *testing.T) {
	p := NewPeer("a")
	p.Report(0, nil, 0, 0, true)
	for i, want := range []int64{12_500_000, 8_750_000} {
		report, _ := p.Report(time.Duration(i+1)*time.Second, nil, 10, 0, false)
		if report.Want != want || report.Admitted != 10 {
			t.Errorf("report %d: %+v", i, report)
		}
	}
	c := tracking(10)
	c.cfg.Max = 8
	p = NewPeer("b")
	if report, _ := p.Report(0, c, 0, 0, true); report.Want != 10_000_000 {
		t.Errorf("with a maximum: %+v", report)
	}
}

// A process is busy when its pace has held calls up in two reports, and not while that is its own maximum.
func TestPeer_Busy(t *testing.T) {
	p, c := NewPeer("a"), tracking(10)
	p.reports = 2
	for i, tc := range []struct {
		asked bool
		max   float64
		want  bool
	}{{true, 100, false}, {true, 100, true}, {false, 100, false}, {true, 100, false}, {true, 5, false}, {true, 100, false}, {true, 100, true}} {
		c.asked, c.cfg.Max = tc.asked, tc.max
		if got := p.busy(c); got != tc.want {
			t.Errorf("report %d: %t", i, got)
		}
	}
	if p.busy(nil) || p.held != 0 {
		t.Error("busy without a controller")
	}
}

// A part that is a tenth less than what it is to be is still to come.
func TestPeer_Short(t *testing.T) {
	for due, want := range map[float64]bool{.54: false, .56: true} {
		p := NewPeer("a")
		p.Heard(0, nil, peers.Report{}, peers.Reply{Peers: 2, Share: peers.Whole / 2, Due: int64(due * float64(peers.Whole))})
		if p.short != want {
			t.Errorf("of %v it has a half: short %t", due, p.short)
		}
	}
	p := NewPeer("a")
	p.Heard(0, nil, peers.Report{}, peers.Reply{Peers: 2})
	equal(t, "part", p.part, .001)
}

// What a group takes back is counted if it is no more than 15 s of calls: more was lost.
func TestPeer_count_Lost(t *testing.T) {
	for back, want := range map[int64]float64{149: -149, 151: 0} {
		p, c := NewPeer("a"), tracking(10)
		p.known, p.counts, p.others = true, true, 1000
		c.ledger.sent = 5000
		p.count(c, peers.Report{}, peers.Reply{Admitted: 1000 - back}, false)
		equal(t, "corrected by", c.ledger.sent-5000, want)
	}
}

// News are counted in millionths, 2⁵³ at most, and what is impossible is none.
func TestNews_Bounds(t *testing.T) {
	c := tracking(10)
	c.pace.refuted = math.Inf(1)
	all := c.News(0)
	if all[0] != 10_000_000 || all[2] != 1<<53 {
		t.Errorf("%v", all)
	}
	for i, bad := range map[int]int64{0: 0, 1: 0, 2: -1, 3: 1<<53 + 1} {
		wrong := append([]int64(nil), all...)
		wrong[i] = bad
		if _, possible := read(wrong); possible {
			t.Errorf("number %d may be %d", i, bad)
		}
	}
}
