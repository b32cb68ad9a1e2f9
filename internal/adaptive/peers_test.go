package adaptive

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/sluice-go/sluice/ext/peers"
	"github.com/sluice-go/sluice/internal/testkit/built"
)

// A company is several processes that call one server, and the group in which they share
// its limit. One driver steps them in virtual time, one after the other.
type company struct {
	t     *testing.T
	take  func(t float64) bool
	group peers.Groups
	procs []*process
	now   time.Duration
	each  func()        // is called after each exchange
	apart time.Duration // between the first looks of two processes

	ahead  time.Duration      // the clock of the group, of that of the processes
	mangle func(*peers.Reply) // changes what the group replies; nil: nothing does
	cfg    Config             // of processes that join
}

// A process is one of a company.
type process struct {
	*run
	peer    *Peer
	begins  time.Duration
	ends    time.Duration // 0: never
	away    bool          // the group cannot be reached
	looks   time.Duration // when it looks next whether to report
	every   time.Duration // between two calls that want to leave; 0: all callers want to
	wish    time.Duration // when the next call wants to leave
	reports []time.Duration
	stopped int // calls after which it was not used any more
}

func newCompany(t *testing.T, take func(t float64) bool) *company {
	return &company{t: t, take: take, each: func() {}, apart: 37 * time.Millisecond}
}

// join adds a process with so many callers.
func (c *company) join(callers int) *process {
	i := len(c.procs)
	r := newRun(c.t, c.cfg, server{take: c.take})
	r.callers = callers
	p := &process{
		run: r, peer: NewPeer(fmt.Sprint(i)), begins: c.now,
		looks: c.now + time.Duration(i)*c.apart,
	}
	r.now = c.now
	p.peer.Begin(c.now, p.controller)
	c.procs = append(c.procs, p)
	return p
}

// until lets all go on up to an instant, in seconds.
func (c *company) until(end float64) {
	for {
		at, next := seconds(end), -1
		for i, p := range c.procs {
			if next2 := p.next(c.now); next2 < at {
				at, next = next2, i
			}
		}
		c.now = max(c.now, at)
		if next < 0 {
			return
		}
		c.step(c.procs[next])
	}
}

// next returns when something happens to p.
func (p *process) next(now time.Duration) time.Duration {
	at := p.looks
	if p.gone(now) {
		at = Never
	} else if leaves := p.leaves(now); leaves < at {
		at = leaves
	}
	if len(p.replies) > 0 {
		at = min(at, p.replies[0].at)
	}
	return at
}

func (p *process) gone(now time.Duration) bool { return p.ends > 0 && now >= p.ends }

func (p *process) leaves(now time.Duration) time.Duration {
	if p.out >= p.callers {
		return Never
	}
	if p.every > 0 && p.wish > now {
		return p.wish
	}
	return max(now, p.controller.Demand(now, p.out))
}

func (c *company) step(p *process) {
	p.now = c.now
	switch {
	case len(p.replies) > 0 && p.replies[0].at <= c.now:
		r := p.replies[0]
		p.replies = p.replies[1:]
		if r.ended {
			p.server.busy--
			return
		}
		p.out--
		p.controller.Ended(c.now, r.call, r.reply)
	case p.looks <= c.now && !p.gone(c.now):
		p.looks = c.now + 50*time.Millisecond
		c.exchange(p)
	case !p.gone(c.now) && p.leaves(c.now) <= c.now:
		p.leave()
		if p.every > 0 {
			p.wish = max(p.wish, c.now-time.Second) + p.every
		}
	}
}

// exchange lets p report, if it is time.
func (c *company) exchange(p *process) {
	if p.peer.reports == 0 && len(p.sent) == p.stopped {
		return // not used yet, or any more
	}
	if !p.peer.Due(c.now, p.controller) {
		return
	}
	waiting := p.out < p.callers && (p.every == 0 || p.wish <= c.now)
	report, used := p.peer.Report(c.now, p.controller, float64(len(p.sent)), float64(p.controller.refusals), waiting)
	p.reports = append(p.reports, c.now)
	if !used {
		p.stopped = len(p.sent)
		if !p.away {
			c.group.Exchange((c.now + c.ahead).Microseconds(), "", report)
		}
		return
	}
	if p.away {
		p.peer.Lost(c.now, p.controller)
		return
	}
	reply := c.group.Exchange((c.now + c.ahead).Microseconds(), "", report)
	if c.mangle != nil {
		c.mangle(&reply)
	}
	p.peer.Heard(c.now, p.controller, report, reply)
	c.each()
}

// granted returns how many calls of all were granted from one instant to another.
func (c *company) granted(from, to float64) (n int) {
	for _, p := range c.procs {
		n += count(p.granted, from, to)
	}
	return n
}

func (c *company) refused(from, to float64) (n int) {
	for _, p := range c.procs {
		n += count(p.refused, from, to)
	}
	return n
}

// jain returns Jain's index of what the processes were granted.
func (c *company) jain(from, to float64) float64 {
	sum, squares := 0., 0.
	for _, p := range c.procs {
		x := float64(count(p.granted, from, to))
		sum += x
		squares += x * x
	}
	return sum * sum / squares / float64(len(c.procs))
}

// together makes n processes that share a limit, and checks all along that their parts do not
// exceed it and that news reach each of them within a second.
func together(t *testing.T, take func(t float64) bool, n int) *company {
	c := newCompany(t, take)
	for range n {
		c.join(64 / n)
	}
	stamp, at := int64(0), time.Duration(0)
	seen := map[*process]time.Duration{}
	c.each = func() {
		sum := 0.
		for _, p := range c.procs {
			if p.peer.stamp > stamp {
				stamp, at = p.peer.stamp, c.now
			}
			if p.peer.stamp == stamp {
				seen[p] = c.now
			}
			if p.away || p.gone(c.now) || p.callers == 0 {
				continue
			}
			sum += p.peer.part
			if since := max(at, p.begins); stamp > 0 && seen[p] < since && c.now > since+time.Second {
				t.Errorf("at %v process %s has not had the news of %v", c.now, p.peer.id, at)
				seen[p] = since // say it once
			}
		}
		if stamp > 0 && c.now > at+time.Second && sum > 1+leastPart*float64(len(c.procs)) {
			t.Errorf("at %v the parts are %.3f of the limit", c.now, sum)
		}
	}
	return c
}

func TestPeers_UseTheWholeLimitEvenly(t *testing.T) {
	built.SkipRaced(t)
	for _, rate := range []float64{5, 50, 500} {
		for _, n := range []int{1, 2, 3, 8} {
			t.Run(fmt.Sprintf("%d on %g", n, rate), func(t *testing.T) {
				c := together(t, bucket(10, steady(rate)), n)
				c.until(300)
				got, refused := float64(c.granted(20, 300))/(280*rate), float64(c.refused(20, 300))
				refused /= refused + float64(c.granted(20, 300))
				t.Logf("goodput %.3f, refused %.4f, Jain %.4f", got, refused, c.jain(20, 300))
				if got < .92 || refused > .1 || refused > .05 && rate > 5 || c.jain(20, 300) < .99 {
					t.Error("too little, too many, or not even")
				}
			})
		}
	}
}

// upAndDown is a rate of 50/s that rises to 250/s at one instant and falls to 75/s at another.
func upAndDown(up, down float64) func(t float64) float64 {
	return func(t float64) float64 {
		switch {
		case t < up:
			return 50
		case t < down:
			return 250
		}
		return 75
	}
}

func TestPeers_FollowTheLimit(t *testing.T) {
	for _, n := range []int{2, 8} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			c := together(t, bucket(10, upAndDown(60, 160)), n)
			c.until(250)
			if g := c.granted(90, 160); g < 70*250*9/10 {
				t.Errorf("30 s after a rise %d of 17,500 calls were granted in 70 s", g)
			}
			if g, f := c.granted(165, 250), c.refused(165, 250); g < 85*75*9/10 || f > g/15 {
				t.Errorf("5 s after a fall %d of 6,375 calls were granted in 85 s, %d refused", g, f)
			}
		})
	}
}

// Before the others know that the limit has fallen, one process may be blocked for seconds, because their calls
// use up what the server grants. That is no ban. It was taken for one in two companies of five: all then kept
// for minutes to half of the earlier limit, twice the new one.
func TestPeers_WhatOthersUseUpIsNoBan(t *testing.T) {
	built.SkipRaced(t)
	for start := 1.; start <= 30; start++ {
		c := newCompany(t, bucket(10, upAndDown(60, 100)))
		c.cfg.Start = start
		for range 8 {
			c.join(8)
		}
		c.until(150)
		if g, f := c.granted(105, 150), c.refused(105, 150); g < 45*75*9/10 || f > g/15 {
			t.Errorf("begun at %v/s: of 3,375 calls %d were granted in 45 s after a fall, %d refused", start, g, f)
		}
	}
}

// A process that joins begins with what the others have learned. One call may be refused before
// it has.
func TestPeers_JoinerIsWarmWithinASecond(t *testing.T) {
	c := together(t, bucket(10, steady(50)), 2)
	c.until(60)
	late := c.join(32)
	c.until(61)
	b := late.controller.Belief()
	if b.Why != Shared || b.Refusals > 1 || b.Peers != 3 || math.Abs(b.Share-1./3) > .01 || math.Abs(b.Pace-50./3) > 2 {
		t.Errorf("after a second: %+v", b)
	}
	c.until(120)
	if j := c.jain(61, 120); j < .999 {
		t.Errorf("Jain %.4f", j)
	}
}

func TestPeers_ThePartOfAProcessThatLeavesIsUsed(t *testing.T) {
	c := together(t, bucket(10, steady(50)), 2)
	c.until(60)
	stays, idle := c.procs[0], c.procs[1]
	idle.callers = 0
	c.until(62.1) // it says so after a second without calls
	if p := stays.peer; p.part != 1 || p.peers != 1 {
		t.Errorf("2 s after the other one became idle: %g, %d", p.part, p.peers)
	}
	n := len(idle.reports)
	c.until(70)
	if len(idle.reports) != n {
		t.Errorf("it reported %d times more", len(idle.reports)-n)
	}
	idle.callers = 32
	c.until(71)
	if p := idle.peer; math.Abs(p.part-.5) > .01 || p.peers != 2 {
		t.Errorf("1 s after it came back: %g, %d", p.part, p.peers)
	}
	idle.ends = c.now // without a word
	c.until(75)
	if p := stays.peer; p.part != 1 || p.peers != 1 {
		t.Errorf("4 s after the other one died: %g, %d", p.part, p.peers)
	}
}

// A process gets what it wants, if that is less than an equal part, and the others the rest.
func TestPeers_PartsAreByDemand(t *testing.T) {
	few, rest := 0, 0
	const runs = 5
	for i := range runs { // when who reports is chance, and so is whether the few calls are refused
		c := newCompany(t, bucket(10, steady(50)))
		c.apart = time.Duration(1+48*i) * time.Millisecond
		c.join(32).every = 100 * time.Millisecond
		c.join(32)
		c.until(60)
		few += count(c.procs[0].granted, 20, 60)
		rest += count(c.procs[1].granted, 20, 60)
		c.procs[0].every = 0
		c.until(62)
		if p := c.procs[0].peer; math.Abs(p.part-.5) > .01 {
			t.Errorf("2 s after it wants all: %g", p.part)
		}
	}
	if few < 385*runs || rest < 1500*runs {
		t.Errorf("in 40 s, %d of 400 calls and %d of 1,600", few/runs, rest/runs)
	}
}

// A told maximum is one of the process, and what it leaves is for the others.
func TestPeers_KeepToTheirOwnMaximum(t *testing.T) {
	c := newCompany(t, bucket(10, steady(50)))
	slow := c.join(32)
	slow.controller = New(Config{Max: 5})
	c.join(32)
	c.until(100)
	if g, most := count(slow.granted, 20, 100), count(slow.sent, 0, 100); g < 240 || most > 5*100+2 {
		t.Errorf("in 80 s %d of 400 calls were granted, %d left in 100 s", g, most)
	}
	if g := count(c.procs[1].granted, 20, 100); g < 80*45*9/10 {
		t.Errorf("the other one was granted %d of 3,600", g)
	}
}

// Processes that are cut off go on alone, from the parts that they had. What they learn then
// is no news.
func TestPeers_Away(t *testing.T) {
	c := together(t, bucket(10, steady(50)), 2)
	c.until(60)
	for _, p := range c.procs {
		p.away = true
	}
	c.until(62)
	for _, p := range c.procs {
		if b := p.controller.Belief(); b.Share != .5 || b.Peers != 0 || b.Pace < 20 || b.Pace > 30 {
			t.Errorf("cut off: %+v", b)
		}
	}
	c.until(120)
	if g, f := c.granted(60, 120), c.refused(60, 120); g < 2850 || f > 200 {
		t.Errorf("alone, %d of 3,000 calls were granted, %d refused", g, f)
	}
	stamp := c.procs[0].peer.stamp
	each := c.each
	back := 0
	c.each = func() {
		if back++; back <= 2 && (c.procs[0].peer.stamp > stamp || c.procs[1].peer.stamp > stamp) {
			t.Error("what was learned alone came as news")
		}
	}
	for _, p := range c.procs {
		p.away = false
	}
	c.until(122)
	c.each = each
	c.until(180)
	if b := c.procs[0].controller.Belief(); b.Peers != 2 || math.Abs(b.Share-.5) > .01 {
		t.Errorf("together again: %+v", b)
	}
	if g := c.granted(130, 180); g < 2400 {
		t.Errorf("together again, %d of 2,500 calls were granted", g)
	}
}

// While one process asks whether a ban is over, the others are silent.
func TestPeers_OneAsksWhetherABanIsOver(t *testing.T) {
	var bans []float64
	ban, allowed := 0., bucket(5, steady(5))
	c := together(t, func(t float64) bool {
		if t < ban || !allowed(t) {
			if t >= ban {
				bans = append(bans, t)
			}
			ban = t + 30
			return false
		}
		return true
	}, 4)
	c.until(900)
	for i, from := range bans {
		to := 900.
		if i+1 < len(bans) {
			to = bans[i+1]
		}
		// All that left before the news, and the few that ask.
		if f := c.refused(from+1.5, to); i > 0 && f > 6 {
			t.Errorf("in the ban from %g on, %d calls were refused", from, f)
		}
	}
	if f, g := c.refused(0, 900), c.granted(0, 900); f > 40 || g < 1000 {
		t.Errorf("%d calls refused, %d granted", f, g)
	}
}

// Instants of one process mean nothing to another one.
func TestController_Adopt_ClocksMayDiffer(t *testing.T) {
	a, b := New(Config{}), New(Config{})
	a.Started(1000*time.Second, 1, 0)
	a.window.begin(a, 100, 60, 1000)
	a.until = 1020
	a.Share(1003*time.Second, .25, 4)
	all := a.News(1010 * time.Second)
	b.Share(5*time.Second, .5, 2)
	if !b.Adopt(5*time.Second, all, 2*time.Second) {
		t.Fatal("not adopted")
	}
	if w := b.window; w.count != 100 || w.length != 60 || math.Abs(w.from - -7) > 1e-6 {
		t.Errorf("the window began at %g: %+v", w.from, w)
	}
	if at := b.Demand(5*time.Second, 0); at != 13*time.Second {
		t.Errorf("the pause ends at %v", at)
	}
	if at := b.Peek(5*time.Second, 0); at != 13*time.Second {
		t.Errorf("to somebody who looks, it ends at %v", at)
	}
	b.Resume(6 * time.Second)
	if at := b.Demand(6*time.Second, 0); at != 6*time.Second {
		t.Errorf("after Resume it ends at %v", at)
	}
	if got := b.Belief(); got.Phase != Windowed || got.Why != Shared || math.Abs(got.Pace-front*100./60/2) > 1e-9 {
		t.Errorf("%+v", got)
	}
}

func TestController_Adopt_TellsImpossibleNews(t *testing.T) {
	a := newRun(t, Config{}, server{take: bucket(10, steady(80))})
	a.until(30)
	good := a.controller.News(a.now)
	for name, spoil := range map[string]func([]int64) []int64{
		"none":            func([]int64) []int64 { return nil },
		"too few":         func(n []int64) []int64 { return n[1:] },
		"too many":        func(n []int64) []int64 { return append(n, 0) },
		"negative":        func(n []int64) []int64 { n[2] = -1; return n },
		"huge":            func(n []int64) []int64 { n[2] = math.MaxInt64; return n },
		"no rate":         func(n []int64) []int64 { n[0] = 0; return n },
		"no unit":         func(n []int64) []int64 { n[1] = 0; return n },
		"searching":       func(n []int64) []int64 { n[len(n)-1] = int64(Searching); return n },
		"capped":          func(n []int64) []int64 { n[len(n)-1] = int64(Capped); return n },
		"no such phase":   func(n []int64) []int64 { n[len(n)-1] = 256 + int64(Tracking); return n },
		"without bounds":  func(n []int64) []int64 { n[len(n)-1] = int64(Bounding); return n },
		"without windows": func(n []int64) []int64 { n[len(n)-1] = int64(Windowed); return n },
	} {
		c := New(Config{})
		if c.Adopt(0, spoil(slices.Clone(good)), 0) || c.Changes() != 0 || c.phase != Searching {
			t.Errorf("%s: adopted %+v", name, c.Belief())
		}
	}
	c := New(Config{})
	if !c.Adopt(0, good, -time.Second) || c.Belief().Rate != math.Round(a.controller.pace.rate*1e6)/1e6 {
		t.Errorf("adopted %+v of %+v", c.Belief(), a.controller.Belief())
	}
}

// A bound of the calls in flight is one of the process, and stays.
func TestController_Adopt_KeepsABoundOfTheCallsInFlight(t *testing.T) {
	a := newRun(t, Config{}, server{take: bucket(10, steady(80))})
	a.until(30)
	capped := newRun(t, Config{}, server{slots: 10, service: func() float64 { return .1 + .1*math.Mod(float64(a.out), 3) }})
	capped.controller.phase = Capped
	capped.controller.capacity.limit = 9
	if capped.controller.News(0) != nil {
		t.Error("it is news for others")
	}
	if !capped.controller.Adopt(0, a.controller.News(a.now), 0) || capped.controller.phase != Capped || capped.controller.capacity.limit != 9 {
		t.Errorf("adopted %+v", capped.controller.Belief())
	}
}

// What a process restores alone is what it used, and not what all of them used.
func TestController_Snapshot_OfASharedLimit(t *testing.T) {
	c := together(t, bucket(10, steady(50)), 2)
	c.until(60)
	shared := c.procs[0].controller
	alone := New(Config{})
	if err := alone.Restore(shared.Snapshot()); err != nil {
		t.Fatal(err)
	}
	if b := alone.Belief(); math.Abs(b.Rate-shared.Belief().Rate/2) > .1 {
		t.Errorf("restored %+v from %+v", b, shared.Belief())
	}
	part := New(Config{})
	part.Share(0, .25, 4)
	if err := part.Restore(shared.Snapshot()); err != nil {
		t.Fatal(err)
	}
	if a, b := part.Belief(), alone.Belief(); math.Abs(a.Pace-b.Pace) > .01 || math.Abs(a.Rate-4*b.Rate) > .1 {
		t.Errorf("restored %+v, alone %+v", a, b)
	}
}

// A part that grows or shrinks moves the next call, which may be minutes away.
func TestController_Share_MovesTheNextCall(t *testing.T) {
	c := New(Config{Start: .5})
	c.Started(0, 1, 0)
	c.Share(0, .1, 10)
	if at := c.Demand(0, 0); at != 20*time.Second {
		t.Errorf("with a tenth, the next call leaves at %v", at)
	}
	c.Share(10*time.Second, .5, 2)
	if at := c.Demand(10*time.Second, 0); at != 12*time.Second {
		t.Errorf("with a half, the next call leaves at %v", at)
	}
	c.Share(10*time.Second, .5, 0)
	if at := c.Demand(10*time.Second, 0); at != 12*time.Second {
		t.Errorf("alone, the next call leaves at %v", at)
	}
}

// A part that is tiny for a moment, as that of a process that joins, leaves nothing behind. The
// pace of a call a minute bounded the calls meanwhile, and was taken for what the server grants.
func TestController_Share_ThatIsTinyForAMoment(t *testing.T) {
	for _, phase := range []Phase{Tracking, Searching} {
		c := New(Config{Start: .05})
		c.Share(0, .5, 2)
		c.Started(0, 1, 0)
		if phase == Tracking {
			c.track(phase, .1, Measured)
		}
		pace, slot := c.bounded(), c.Peek(0, 0)
		c.Share(0, leastPart, 2)
		if at := c.Peek(0, 0); at > 61*time.Second {
			t.Errorf("%v: the next call leaves at %v, and one a minute always may", phase, at)
		}
		c.Share(0, .5, 2)
		if now := c.bounded(); math.Abs(now/pace-1) > 1e-9 {
			t.Errorf("%v: the pace is %g, was %g", phase, now, pace)
		}
		if at := c.Peek(0, 0); max(at-slot, slot-at) > time.Microsecond {
			t.Errorf("%v: the next call leaves at %v, was %v", phase, at, slot)
		}
	}
}

// Nor does a part that is tiny when a blockage begins: others wait until the process asks. One that got its part a second
// later had let them wait for 23 minutes.
func TestController_Share_ThatIsTinyInABlockage(t *testing.T) {
	c := New(Config{})
	c.Share(0, .25, 4)
	call := c.Started(0, 1, 0)
	c.phase = Bounding
	c.costly.low, c.costly.high = .2, .7
	c.track(c.phase, .7, Measured)
	c.block(1, call, point{at: 1}, false)
	before := c.Peek(0, 0)
	for _, part := range []float64{leastPart, .1, .25} {
		c.Share(time.Second, part, 4)
		if at, until := c.Peek(0, 0), c.blockedFor(1); at != before || until > 10 {
			t.Errorf("with %v of the limit it asks at %v, was %v, and others wait %v s", part, at, before, until)
		}
	}
	c.Share(time.Second, .5, 4)
	if at := c.Peek(0, 0); at >= before {
		t.Errorf("with half of the limit it asks at %v, was %v", at, before)
	}
}

func TestController_Adopt_InABlockage(t *testing.T) {
	blocked := func() *Controller {
		c := New(Config{})
		call := c.Started(0, 1, 0)
		c.phase = Tracking
		c.track(c.phase, 10, Measured)
		c.block(1, call, point{at: 1}, false)
		return c
	}
	c := blocked()
	if !c.Adopt(2*time.Second, newsOf(t, 20, nil), 0) || !c.Blocked() || c.pace.rate != 20 {
		t.Error("a process that asks whether a server grants again must go on")
	}
	wait := newsOf(t, 20, func(c *Controller) {
		c.phase, c.costly.low, c.costly.high = Bounding, 1, 2
		c.blockage = blockage{on: true}
		c.next = 30
	})
	c = blocked()
	if !c.Adopt(2*time.Second, wait, time.Second) || c.Blocked() {
		t.Error("another one asks: it must not ask, too")
	}
	if at := c.Demand(2*time.Second, 0); at != 31*time.Second+750*time.Millisecond {
		t.Errorf("it calls again at %v", at)
	}
}

// Each refused call that asks is news: the others must go on waiting.
func TestController_News_WhileBlocked(t *testing.T) {
	c := New(Config{})
	c.Started(0, 1, 0)
	c.phase = Tracking
	c.track(c.phase, 10, Measured)
	c.blockage = blockage{on: true, polls: 1, gap: .5}
	cheap := c.version()
	if until := c.blockedFor(1); until != 0 {
		t.Errorf("others wait %g s although a refusal is cheap", until)
	}
	c.blockage.gap, c.next = 4, 5
	first := c.version()
	c.blockage.polls++
	if second := c.version(); first == cheap || second == first {
		t.Errorf("versions %d, %d, %d", cheap, first, second)
	}
	if until := c.blockedFor(1); until != 4.75 {
		t.Errorf("others wait %g s", until)
	}
	c.until = 11
	if until := c.blockedFor(1); until != 10 {
		t.Errorf("others wait %g s, the pause is 10", until)
	}
}

// What counts calls of one process counts those of another one after it was told.
func TestController_Adopt_Scales(t *testing.T) {
	a := New(Config{})
	a.Started(0, 2, 0)
	a.Share(0, .25, 4)
	a.phase, a.costly.low, a.costly.high, a.costly.hold = Bounding, 30, 40, 10
	a.track(a.phase, 35, Measured)
	b := New(Config{Max: 5})
	b.Share(0, .5, 2)
	if !b.Adopt(0, a.News(0), 0) {
		t.Fatal("not adopted")
	}
	if k := b.costly; k.hold != 20 || k.low != 30 || k.high != 40 {
		t.Errorf("%+v", k)
	}
	if got := b.Belief(); got.Rate != 35 || got.Pace != 10 || b.meanCost != 4 || b.CallsPerSecond() != 5 {
		t.Errorf("%+v: the maximum of 5 calls of 2 is one of this process", got)
	}
}

// What others were granted in so short a time is not known.
func TestController_refine_NotInAGroup(t *testing.T) {
	for _, peers := range []int64{1, 2} {
		c := New(Config{})
		call := c.Started(0, 1, 0)
		c.Share(0, 1, peers)
		c.phase, c.pace.refusals = Tracking, 5
		c.track(c.phase, 10, Measured)
		c.ledger.mark(point{at: 1})
		c.ledger.last = point{at: 2, granted: 1}
		c.blockage.pace = 10
		c.refine(call)
		if alone := c.pace.rate < 10; alone != (peers == 1) {
			t.Errorf("with %d processes the rate is %g", peers, c.pace.rate)
		}
	}
}

// Gates without a rate begin with all that callers make, and then search together.
func TestPeers_SearchTogether(t *testing.T) {
	for _, n := range []int{2, 8} {
		c := together(t, bucket(20, steady(50)), n)
		for _, p := range c.procs {
			p.controller = New(Config{Unlimited: true})
			p.peer.Begin(0, p.controller)
		}
		c.until(30)
		if g, f := c.granted(10, 30), c.refused(10, 30); g < 800 || f > 150 {
			t.Errorf("%d processes: after 10 s, %d of 1,000 calls were granted, %d refused", n, g, f)
		}
	}
}
