package adaptive

import (
	"math"
	"testing"
	"time"
)

// Demand that holds the pace up is a call that came before its slot, and calls that used at least half of the slots of
// the last 16; a third in a search, and of the last four while the pace goes back to what was accepted before a
// trouble.
func TestController_Saturated(t *testing.T) {
	for _, tc := range []struct {
		name     string
		phase    Phase
		started  uint64
		pace     float64
		patience float64
		asked    bool
		want     bool
	}{
		{"half", Tracking, 16, 20, math.Inf(1), true, true},
		{"less", Tracking, 16, 20.1, math.Inf(1), true, false},
		{"a third, in a search", Searching, 16, 30, math.Inf(1), true, true},
		{"less than that", Searching, 16, 30.1, math.Inf(1), true, false},
		{"no call came early", Tracking, 16, 5, math.Inf(1), false, false},
		{"15 calls", Tracking, 15, 1000, math.Inf(1), true, true},
		{"there is no pace", Capped, 16, 1000, math.Inf(1), true, true},
		{"the last four were faster", Tracking, 16, 80, 5, true, true},
		{"but not so much", Tracking, 16, 81, 5, true, false},
	} {
		c := New(Config{})
		c.phase, c.started, c.pace.now, c.meanCost, c.asked, c.pace.patience = tc.phase, tc.started, tc.pace, 1, tc.asked, tc.patience
		for i := range 12 {
			c.recent[i] = 10 + float64(i)/10 // 16 calls in 1.6 s
		}
		for i := 12; i < 16; i++ {
			c.recent[i] = 11.5 + float64(i-12)/40 // 4 in 0.1 s
		}
		if got := c.saturated(11.6); got != tc.want {
			t.Errorf("%s: %t", tc.name, got)
		}
	}
}

// The mean cost follows a call, or what it took more than was thought, by a fiftieth; the mean time of an answer
// follows by a twentieth, and that of a rejection by a fifth.
func TestController_Means(t *testing.T) {
	c := New(Config{})
	first := c.Started(0, 10, 0)
	second := c.Started(0, 60, 1)
	equal(t, "mean cost", c.meanCost, 11)
	c.Settle(0, 0, 50)
	equal(t, "mean cost", c.meanCost, 12)
	c.Ended(time.Second, first, Reply{})
	c.Ended(3*time.Second, second, Reply{})
	equal(t, "answer", c.answer, 1.1)
	for _, took := range []time.Duration{1, 2} {
		c.Ended((3+took)*time.Second, Call{sent: 3, cost: 10, epoch: c.epoch}, Reply{Outcome: Refused})
	}
	equal(t, "rejection", c.refusal, 1.2)
}

// A pace is a call per minute at least, a search begins at 20/s, and finding out may cost 2 % of the calls.
func TestConfig_Defaults(t *testing.T) {
	c := New(Config{})
	if c.cfg.Start != 20 || c.cfg.Min != 1./60 || !math.IsInf(c.cfg.Max, 1) || c.cfg.Price != .02 || c.phase != Searching {
		t.Errorf("%+v, %v", c.cfg, c.phase)
	}
	if c = New(Config{Costly: true, Unlimited: true}); c.cfg.Start != 5 || c.phase != Unlimited {
		t.Errorf("%+v, %v", c.cfg, c.phase)
	}
	c = tracking(10)
	c.track(Tracking, 1e-6, Measured)
	equal(t, "pace", c.Belief().Pace, 1./60)
}

// Rejections are to be expected from nine tenths of the calls on that the pace keeps below the rate, and in a window
// when it is used up.
func TestController_Expected(t *testing.T) {
	for _, tc := range []struct {
		phase Phase
		calls float64
		want  bool
	}{{Tracking, 90, true}, {Tracking, 89, false}, {Bounding, 45, true}, {Bounding, 44, false}, {Windowed, 20, true}, {Windowed, 19, false}, {Searching, 0, true}} {
		c := New(Config{})
		c.phase, c.pace.calls, c.pace.span, c.costly.hold, c.window.used, c.window.count = tc.phase, tc.calls, 100, 50, tc.calls, 20
		if got := c.expected(); got != tc.want {
			t.Errorf("%+v: %t", tc, got)
		}
	}
}

// AtMax is after twice the calls that the pace keeps below the rate, if it is 99.9 % of the maximum.
func TestController_AtMax_Pace(t *testing.T) {
	for _, tc := range []struct {
		calls, pace float64
		want        bool
	}{{200, 9.991, true}, {199, 9.991, false}, {200, 9.989, false}} {
		c := tracking(10)
		c.cfg.Max = 10
		c.pace.span, c.pace.calls, c.pace.now = 100, tc.calls, tc.pace
		if got := c.AtMax(); got != tc.want {
			t.Errorf("%+v: %t", tc, got)
		}
	}
}

// A trial counts the rejected share of 64 calls. So many that a trial ends are four more than 15 %, or than half more
// than were rejected before.
func TestTrial_Excess(t *testing.T) {
	for share, want := range map[float64]float64{0: 2 - .15, .1: 2 - .15, .2: 2 - .3} {
		c := tracking(10)
		r := trial{on: true, share: share, excess: 2}
		r.call(c, 1)
		equal(t, "excess", r.excess, want)
	}
	r := trial{on: true, excess: 2.9}
	if !r.refused(false) {
		t.Error("3.9 rejections end it")
	}
	if r.excess = 3; r.refused(false) || r.failed != 1 {
		t.Error("four rejections do not end it")
	}
}

// Two cycles say more if one is half as long again, and the rate is looked for in steps of less than a percent.
func TestCycles_Both(t *testing.T) {
	for _, tc := range []struct{ long, want float64 }{{16, 10}, {14, 0}} {
		var k cycles
		k.past[0] = cycle{look: 10, n: 1, parts: [cyclePoints]part{{10, 120}}}
		k.past[1] = cycle{look: tc.long, n: 1, parts: [cyclePoints]part{{tc.long, 20 + 10*tc.long + .5}}}
		got := k.both(7, 14, 1)
		if got < tc.want*.992 || got > tc.want {
			t.Errorf("%+v: %v", tc, got)
		}
	}
}

// A fit is good from an error of a tenth on.
func TestCycles_Good(t *testing.T) {
	if (fit{10, .1}).good() || !(fit{10, .099}).good() || (fit{0, .01}).good() {
		t.Error("a fit with an error of a tenth is good, or one with less is not")
	}
}

// The points of a cycle are 24 at most. Then every other one stays, besides the first two, and every other call makes one.
func TestCycles_Stride(t *testing.T) {
	var k cycles
	var l ledger
	l.begin(0)
	k.begin(l.start)
	for i := 1; i <= 25; i++ {
		k.started(float64(i), &l)
		l.started(float64(i), 1)
		if i == 23 && (k.n != 24 || k.stride != 1) {
			t.Errorf("after 23 calls %d points, every %d calls", k.n, k.stride)
		}
	}
	want := []float64{0, 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 24}
	if k.n != len(want) || k.stride != 2 {
		t.Fatalf("after 25 calls %d points, every %d calls", k.n, k.stride)
	}
	for i, at := range want {
		equal(t, "point", k.points[i].at, at)
	}
}

// Before a look of a group every other one of the last twelve points stays.
func TestCycles_LookKeepsPoints(t *testing.T) {
	var k cycles
	for i := range 20 {
		k.points[i].at = float64(i)
	}
	k.n = 20
	k.look(point{at: 99})
	want := []float64{8, 10, 12, 14, 16, 18, 99}
	if k.n != len(want) {
		t.Fatalf("%d points", k.n)
	}
	for i, at := range want {
		equal(t, "point", k.points[i].at, at)
	}
	equal(t, "looking", k.looking, 99)
}

// A bucket of 20 that gets 10/s, and was paused for 5 s, explains two cycles of different length, to two calls. Its
// rate is less than most, and more than what was accepted in any of them that did not begin with a full bucket.
func TestCycles_Common(t *testing.T) {
	paused := func(took float64) *cycle {
		granted := 20 + 10*(took-5)
		return &cycle{n: 2, parts: [cyclePoints]part{{took, granted}, {took - 5, granted}}}
	}
	f := common(paused(10), paused(22), 24, 1)
	if f.rate < 9.8 || f.rate > 10.2 || f.error < .01 || f.error > .03 {
		t.Errorf("found %+v", f)
	}
	if f := common(paused(10), paused(22), 8, 1); f.rate != 0 {
		t.Errorf("the rate is less than what was accepted: %+v", f)
	}
	full := paused(22)
	full.full = true
	if full.mean() != 0 {
		t.Errorf("a cycle that began with a full bucket bounds the rate: %v", full.mean())
	}
}

// A trial begins if the rate has sunk to less than 85 %.
func TestTrial_Sunk(t *testing.T) {
	for low, want := range map[float64]bool{17.1: false, 16.9: true} {
		r := trial{top: 20, low: 17.2, sunk: 5, calls: 100}
		if r.lesson(tracking(10), low); r.on != want {
			t.Errorf("from 20 to %v: a trial %t", low, r.on)
		}
	}
}
