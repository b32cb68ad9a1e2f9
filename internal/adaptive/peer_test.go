package adaptive

import (
	"math"
	"testing"
	"time"

	"github.com/sluice-go/sluice/ext/peers"
)

// A process that makes few calls is not in the group for long, and tells nothing of its own.
func TestPeer_Report(t *testing.T) {
	p, c := NewPeer("a"), New(Config{})
	for i, step := range []struct {
		at   time.Duration
		due  bool
		want int64
		used bool
	}{
		{0, true, peers.WantsAll, true}, // it does not know yet
		{250 * time.Millisecond, false, 0, true},
		{500 * time.Millisecond, true, 3_500_000, true}, // 4 per second at first, a quarter more than what is left of that
		{time.Second, true, peers.Leaves, false},
		{time.Hour, true, peers.WantsAll, true},
	} {
		if due := p.Due(step.at, c); due != step.due {
			t.Fatalf("step %d: due %v", i, due)
		} else if !due {
			continue
		}
		report, used := p.Report(step.at, c, 1, 0, false)
		if used != step.used || report.Want != step.want || report.News != nil || report.ID != "a" {
			t.Errorf("step %d: %+v, %v", i, report, used)
		}
		if used {
			p.Heard(step.at, c, report, peers.Reply{Peers: 1, Share: peers.Whole, Due: peers.Whole})
		}
	}
}

// newsOf returns news of a controller that believes in rate.
func newsOf(t *testing.T, rate float64, change func(c *Controller)) []int64 {
	t.Helper()
	c := New(Config{})
	c.Started(0, 1, 0)
	c.phase = Tracking
	c.track(c.phase, rate, Measured)
	if change != nil {
		change(c)
	}
	all := c.News(0)
	if all == nil {
		t.Fatal("no news")
	}
	return all
}

func TestPeer_WhatIsLearnedAloneIsNoNews(t *testing.T) {
	p, c := NewPeer("a"), New(Config{})
	c.Started(0, 1, 0)
	now := time.Duration(0)
	stamp := int64(1)
	exchange := func(away bool) peers.Report {
		now += 500 * time.Millisecond
		c.asked = true // callers wait
		report, used := p.Report(now, c, 1, 0, true)
		if !used || report.Seen != p.stamp {
			t.Fatalf("at %v: %+v", now, report)
		}
		if away {
			p.Lost(now, c)
			return report
		}
		reply := peers.Reply{Peers: 2, Share: peers.Whole / 2, Due: peers.Whole / 2, Stamp: stamp, News: []int64{1}}
		if report.News != nil {
			stamp++
			reply.Stamp, reply.News = stamp, report.News
		}
		p.Heard(now, c, report, reply)
		return report
	}
	learn := func(rate float64) {
		c.phase = Tracking
		c.track(c.phase, rate, Measured)
	}
	for range 3 {
		exchange(false)
	}
	learn(10)
	if n := exchange(false).News; n == nil || n[0] != 10e6 {
		t.Errorf("news %v of a rate of 10", n)
	}
	if n := exchange(false).News; n != nil {
		t.Errorf("the same news twice: %v", n)
	}
	exchange(true)
	learn(20)
	for i, away := range []bool{true, true, false, false} {
		if n := exchange(away).News; n != nil {
			t.Errorf("exchange %d, after it was alone: %v", i, n)
		}
	}
	if c.pace.rate != 20 {
		t.Errorf("it has forgotten what it knew: %g", c.pace.rate)
	}
	learn(30)
	if n := exchange(false).News; n == nil || n[0] != 30e6 {
		t.Errorf("news %v of a rate of 30", n)
	}
}

// A process that is refused while others use the limit up knows little of it.
func TestPeer_OnlyWhoIsBusyTellsNews(t *testing.T) {
	p, c := NewPeer("a"), New(Config{})
	c.Started(0, 1, 0)
	now := time.Duration(0)
	exchange := func(asked bool) peers.Report {
		now += 500 * time.Millisecond
		c.asked = asked
		report, _ := p.Report(now, c, now.Seconds(), 0, true)
		p.Heard(now, c, report, peers.Reply{Peers: 2, Share: peers.Whole / 2, Due: peers.Whole / 2})
		return report
	}
	for range 3 {
		exchange(false)
	}
	c.phase = Tracking
	c.track(c.phase, 10, Measured)
	for _, asked := range []bool{false, true, true, true} {
		if n := exchange(asked).News; n != nil {
			t.Errorf("at %v: news %v", now, n)
		}
	}
	c.track(c.phase, 20, Measured)
	if report := exchange(true); report.News == nil || report.Want != peers.WantsAll {
		t.Errorf("busy: %+v", report)
	}
}

// After an outage, the others may not be back yet.
func TestPeer_Heard_WaitsForTheOthersAfterAnOutage(t *testing.T) {
	p, c := NewPeer("a"), New(Config{})
	c.Started(0, 1, 0)
	now := time.Duration(0)
	for i, step := range []struct {
		part  int64 // −1: away
		want  float64
		short bool
	}{
		{peers.Whole / 2, .5, false},
		{-1, .5, false},
		{peers.Whole, .5, true},
		{peers.Whole, 1, false},
		{-1, 1, false},
		{peers.Whole / 4, .25, false},
	} {
		now += time.Second
		report, _ := p.Report(now, c, 1, 0, true)
		if step.part < 0 {
			p.Lost(now, c)
		} else {
			others := int64(2)
			if step.part == peers.Whole {
				others = 1
			}
			p.Heard(now, c, report, peers.Reply{Peers: others, Share: step.part, Due: step.part})
		}
		if p.part != step.want || c.sharing.part != step.want || p.short != step.short {
			t.Errorf("step %d: part %g, %g, short %v", i, p.part, c.sharing.part, p.short)
		}
	}
}

// What was refused counts as use, but not as granted, and the group is told nothing below 0.
func TestPeer_Report_OfRefusedCalls(t *testing.T) {
	p := NewPeer("a")
	for i, step := range []struct {
		sent, refused float64
		granted, use  int64
	}{
		{10, 0, 10, 40e6},
		{15, 3, 12, 4e6},
		{16, 10, 6, 0},
		{20, 14, 6, 0},
		{20, 30, 0, 0},
	} {
		report, used := p.Report(time.Duration(i)*500*time.Millisecond, nil, step.sent, step.refused, false)
		if !used || report.Admitted != step.granted || report.Use != step.use || report.Want == 0 {
			t.Errorf("step %d: %+v, %v", i, report, used)
		}
	}
}

// A controller that was made during an exchange has nothing to do with what was reported.
func TestPeer_count_OfANewController(t *testing.T) {
	p, old := NewPeer("a"), New(Config{})
	for i := range 100 {
		old.Started(time.Duration(i)*time.Second, 1, 0)
	}
	report, _ := p.Report(0, old, 100, 0, true)
	reply := peers.Reply{Peers: 2, Share: peers.Whole, Due: peers.Whole, Admitted: 100}
	p.Heard(0, old, report, reply)
	report, _ = p.Report(time.Second, old, 100, 0, true)
	c := New(Config{})
	p.Begin(time.Second, c)
	c.TakeOver(time.Second, Past{Since: 0, Calls: 10, Cost: 10})
	for i := range 3 {
		p.Heard(time.Second, c, report, reply)
		if c.ledger.sent != 10 {
			t.Errorf("reply %d: %g sent, want 10", i, c.ledger.sent)
		}
		report, _ = p.Report(time.Duration(2+i)*time.Second, c, 100, 0, true)
	}
	reply.Admitted += 5 // to the other one
	p.Heard(5*time.Second, c, report, reply)
	if c.ledger.sent != 15 {
		t.Errorf("%g sent, want 15", c.ledger.sent)
	}
}

// What a group had estimated and takes back is not counted as granted: each call of the others
// would be counted nearly twice. What it has lost is not taken back.
func TestPeer_count_EstimatesAreTakenBack(t *testing.T) {
	p, c := NewPeer("a"), New(Config{})
	c.Started(0, 1, 0)
	c.phase = Tracking
	c.track(c.phase, 10, Measured)
	now := time.Duration(0)
	hear := func(granted int64) {
		now += time.Second
		report, _ := p.Report(now, c, 1, 0, true)
		p.Heard(now, c, report, peers.Reply{Peers: 2, Share: peers.Whole / 2, Due: peers.Whole / 2, Admitted: 1 + granted})
	}
	hear(1000)
	was := c.ledger.sent
	for i, step := range []struct{ granted, want int64 }{
		{1010, 10}, {1005, 5}, {1012, 12}, // estimated too much
		{0, 12}, {7, 19}, // a group that begins anew
	} {
		hear(step.granted)
		if got := c.ledger.sent - was; math.Abs(got-float64(step.want)) > 1e-6 {
			t.Errorf("step %d: %g granted to the others, want %d", i, got, step.want)
		}
	}
}

// A process that may not call uses nothing, and wants all the same.
func TestPeer_Report_Blocked(t *testing.T) {
	p, c := NewPeer("a"), New(Config{})
	c.Started(0, 1, 0)
	for i, step := range []struct {
		blocked, waiting bool
		all              bool
	}{{false, true, true}, {false, true, false}, {true, true, true}, {true, false, false}, {false, true, false}} {
		now := time.Duration(i) * time.Second
		c.blockage.on = step.blocked
		report, _ := p.Report(now, c, 1, 0, step.waiting)
		if all := report.Want == peers.WantsAll; all != step.all {
			t.Errorf("step %d: it wants %d", i, report.Want)
		}
		p.Heard(now, c, report, peers.Reply{Peers: 2, Share: peers.Whole / 2, Due: peers.Whole / 2})
	}
}

// A gate that ends leaves the group if it is in it, and tells what it was granted.
func TestPeer_Leave(t *testing.T) {
	p := NewPeer("a")
	if _, joined := p.Deregister(0, 0); joined {
		t.Error("it leaves before it has joined")
	}
	_, _ = p.Report(0, nil, 1, 0, true)
	r, joined := p.Deregister(7, 2)
	if !joined || r.ID != "a" || r.Want != peers.Leaves || r.Admitted != 5 || r.News != nil {
		t.Errorf("%+v, %v", r, joined)
	}
	if _, joined := p.Deregister(7, 2); joined {
		t.Error("it leaves twice")
	}
}

// A store that fails in every other exchange does not keep a process at the part that it had
// before it joined: the others are still there, so what they leave is known.
func TestPeer_Heard_TheStoreFailsEveryOtherTime(t *testing.T) {
	p, c := NewPeer("a"), New(Config{})
	at := time.Duration(0)
	reply := func(part float64, n int64) {
		at += peerEvery
		report, _ := p.Report(at, c, 0, 0, true)
		p.Heard(at, c, report, peers.Reply{Share: int64(part * float64(peers.Whole)), Peers: n})
	}
	lose := func() {
		at += peerEvery
		p.Report(at, c, 0, 0, true)
		p.Lost(at, c)
	}
	reply(.001, 2)
	for range 3 {
		lose()
		reply(.5, 2)
	}
	if p.part != .5 {
		t.Errorf("its part is %v, want 0.5", p.part)
	}
	lose()
	if reply(1, 1); p.part != .5 {
		t.Errorf("before the others are back its part is %v, want 0.5", p.part)
	}
	if reply(.7, 2); p.part != .7 {
		t.Errorf("when they are back its part is %v, want 0.7", p.part)
	}
}
