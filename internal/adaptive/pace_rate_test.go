package adaptive

import (
	"math"
	"testing"
	"time"
)

// The tests of this file check one number of pace.go or slot.go each, at exact paces and instants. What they expect is written
// out: a number that is compared with its own name can be any.

// tracking returns a controller whose calls cost 1, and that believes in a rate and knows that rejections come within 10 ms.
func tracking(rate float64) *Controller {
	c := New(Config{})
	c.Started(0, 1, 0)
	c.refusal = .01
	c.track(Tracking, rate, Measured)
	return c
}

// The pace begins 3 % below the rate, comes to it within span calls, exceeds it within rise calls by 3 %, or by as much as
// the rate is unsure, and then doubles.
func TestPace_AroundTheRate(t *testing.T) {
	for _, tc := range []struct{ rate, rise, unsure, calls, want float64 }{
		{100, 80, 0, 0, 97},
		{100, 80, 0, 20, 99.625}, // half of the way: an eighth of the 3 % is left
		{100, 80, 0, 40, 100},
		{100, 80, 0, 80, 100.375},
		{100, 80, 0, 120, 103},
		{100, 80, .2, 120, 120},
		{100, 80, .2, 0, 97},
		// It doubles with two thirds of rise, but with no more calls than three seconds have, or eight.
		{100, 90, 0, 40 + 90 + 60, 206},
		{10, 90, 0, 40 + 90 + 30, 20.6},
		{1, 90, 0, 40 + 90 + 8, 2.06},
	} {
		c := tracking(tc.rate)
		p := &c.pace
		p.span, p.rise, p.unsure, p.calls = 40, tc.rise, tc.unsure, tc.calls
		p.set(c)
		equal(t, "pace", p.now, tc.want)
	}
}

// A test whether rejections are chance is at nine tenths of the rate.
func TestPace_InATest(t *testing.T) {
	c := tracking(100)
	c.chance.testing = true
	c.pace.set(c)
	equal(t, "pace", c.pace.now, 90)
}

// A pace that doubles does so with as many calls, until it doubles within one and a half times what a rejection takes to
// arrive. From there on it grows by the same with each call, and with 40 doublings at most.
func TestPace_Doubling(t *testing.T) {
	const fast = 160. / 3 // 8 calls in 0.15 s
	slowed := math.Log2(fast / 10)
	for _, tc := range []struct{ calls, want float64 }{
		{-8, 10}, {0, 10}, {8, 20}, {16, 40},
		{32, fast + math.Ln2*fast*(4-slowed)},
		{320, fast + math.Ln2*fast*(40-slowed)},
		{3200, fast + math.Ln2*fast*(40-slowed)},
	} {
		c := tracking(10)
		c.refusal = .1
		equal(t, "pace", c.pace.doubling(c, 10, tc.calls, 8), tc.want)
	}
	c := tracking(10)
	c.refusal = .1
	equal(t, "from above", c.pace.doubling(c, 100, 8, 8), 100+math.Ln2*fast)
}

// A rejection takes what rejections took before, or else what answers take, but a second at most, or else 0.2 s. In a
// group others go on for half a second.
func TestPace_Delay(t *testing.T) {
	for _, tc := range []struct {
		refusal, answer float64
		peers           int64
		want            float64
	}{
		{.3, 5, 0, .3}, {0, .7, 0, .7}, {0, 5, 0, 1}, {0, 0, 0, .2}, {.3, 5, 2, .8}, {.3, 5, 1, .3},
	} {
		c := New(Config{})
		c.refusal, c.answer, c.sharing.peers = tc.refusal, tc.answer, tc.peers
		equal(t, "delay", c.pace.delay(c), tc.want)
	}
}

// A search doubles with every 8 calls, with every 128 if the first rejection is costly, not within 1.5 times what a
// rejection takes, and above what a first burst has shown with as many calls as that had.
func TestPace_Search(t *testing.T) {
	for _, tc := range []struct {
		name    string
		cfg     Config
		refusal float64
		crowd   crowd
		calls   int
		want    float64
	}{
		{"quick", Config{}, .001, crowd{}, 8, 40},
		{"costly", Config{Costly: true}, .001, crowd{}, 128, 10},
		{"slow rejections", Config{}, 1, crowd{}, 1, 20 * math.Exp2(1./30)},
		{"below the crowd's rate", Config{}, .001, crowd{rate: 21, size: 50}, 1, 20 * math.Exp2(1./8)},
		{"above it", Config{}, .001, crowd{rate: 20, size: 50}, 1, 20 * math.Exp2(1./50)},
		{"bounded", Config{Max: 22}, .001, crowd{}, 8, 22},
	} {
		c := New(tc.cfg)
		c.meanCost, c.refusal, c.crowd = 1, tc.refusal, tc.crowd
		for range tc.calls {
			c.pace.search(c)
		}
		equal(t, tc.name, c.pace.now, tc.want)
	}
}

// While the burst of a crowd is answered the search does not begin: it waits for three calls, or until all are answered.
func TestPace_SearchWaitsForTheCrowd(t *testing.T) {
	after := func(out, calls int) float64 {
		c := New(Config{})
		c.meanCost, c.refusal, c.pace.now = 1, .001, 10
		c.crowd.answered(c)
		c.crowd.out = out
		for range calls {
			c.pace.search(c)
		}
		return c.pace.now
	}
	equal(t, "after two calls", after(5, 2), 10)
	equal(t, "after three", after(5, 3), 20)
	equal(t, "all are answered", after(0, 1), 20)
}

// A flood is the mean number of rejections after the first in a blockage, 32 at most, from the third blockage on.
func TestPace_Flood(t *testing.T) {
	for _, tc := range []struct {
		number   uint64
		refusals float64
		want     float64
	}{{1, 11, 0}, {2, 11, 0}, {3, 11, 3}, {3, 33, 9.6}, {3, 90, 9.6}} {
		p := pace{refusals: tc.refusals}
		p.blocked(tc.number)
		equal(t, "flood", p.flood, tc.want)
		equal(t, "refusals", p.refusals, 1)
	}
}

// For how many calls a rate is kept before more is tried: for what quiet says, and 1.5 s, and the time in which two
// rejections arrive. It is more if rejections come in floods or cost a pause.
func TestPace_Span(t *testing.T) {
	for _, tc := range []struct {
		name       string
		rate       float64
		change     func(c *Controller)
		span, rise float64
	}{
		{"32 calls", 10, func(*Controller) {}, 32, 32},
		{"1.5 s", 100, func(*Controller) {}, 150, 150},
		{"two rejections", 100, func(c *Controller) { c.refusal = 1 }, 200, 200},
		{"a flood", 10, func(c *Controller) { c.pace.flood = 17 }, 400, 400},
		{"each costs 100 s", 10, func(c *Controller) { c.costly.price, c.pace.unsure = 100, .08 }, 25000, 96},
		{"and little is unsure", 10, func(c *Controller) { c.costly.price = 100 }, 50000, 96},
		{"and the pace was rejected far above", 10, func(c *Controller) { c.costly.price, c.pace.refuted = 100, 17 }, 5000, 96},
		{"likewise, and estimates agree", 10, func(c *Controller) { c.costly.price, c.pace.refuted, c.pace.agreed = 100, 17, 2 }, 20000, 96},
		{"a million at most", 1000, func(c *Controller) { c.costly.price = 1000 }, 1e6, 4500},
		{"what was accepted before is tried after 10 s", 10, func(c *Controller) {
			c.costly.price, c.at = 100, 130
			c.service = service{begin: 0, since: 100, asked: 1, rate: 100}
		}, 50, 50},
	} {
		c := New(Config{})
		c.meanCost = 1
		tc.change(c)
		c.pace.learn(c, tc.rate)
		equal(t, tc.name+", span", c.pace.span, tc.span)
		equal(t, tc.name+", rise", c.pace.rise, tc.rise)
	}
}

// Estimates within 6 % of each other make the pace wait half as long again, up to 100 calls; others half as long, down to 16.
func TestPace_Agree(t *testing.T) {
	for _, tc := range []struct{ old, rate, quiet, want, agreed float64 }{
		{100, 105, 32, 48, 6}, {100, 95, 32, 48, 6}, {100, 107, 40, 20, 0}, {0, 100, 40, 20, 0}, {100, 100, 90, 100, 6}, {100, 200, 20, 16, 0},
	} {
		p := pace{quiet: tc.quiet, agreed: 5}
		p.agree(tc.old, tc.rate)
		equal(t, "quiet", p.quiet, tc.want)
		equal(t, "agreed", p.agreed, tc.agreed)
	}
}

// The pace of a rejection is known 16 calls ago, when the call that was rejected started.
func TestPace_Earlier(t *testing.T) {
	c := New(Config{})
	c.meanCost, c.refusal = 1, .001
	var paces []float64
	for range 40 {
		paces = append(paces, c.pace.now)
		c.pace.advance(c, &Call{})
		equal(t, "earlier", c.pace.earlier(), paces[max(0, len(paces)-16)])
	}
}

// A search stands still for no more than 32 calls, however many answers are in doubt.
func TestPace_Doubts(t *testing.T) {
	c := New(Config{})
	for range 40 {
		c.Doubted()
	}
	if c.pace.doubts != 32 {
		t.Errorf("%d calls", c.pace.doubts)
	}
}

// A call that starts late is caught up with by a millisecond, and by what Late says.
func TestController_CatchesUp(t *testing.T) {
	for late, want := range map[time.Duration]float64{0: 2 - .001 + .1, 30 * time.Millisecond: 2 - .031 + .1} {
		c := tracking(10)
		c.pace.now = 10
		c.next = 1
		c.Late(late)
		c.take(2, 1)
		equal(t, "next", c.next, want)
		c.take(2.05, 1)
		equal(t, "the one after it", c.next, want+.1)
	}
}

// A rate that changes moves the next call: it is as far behind the last one as the new rate says.
func TestController_Stretch(t *testing.T) {
	for _, tc := range []struct{ now, at, want float64 }{
		{10, 5.05, 5.1}, // nothing has changed
		{5, 5.05, 5.2},
		{20, 5.02, 5.05},
		{20, 5.07, 5.07}, // not before now
		{5, 5.15, 5.1},   // it was due
	} {
		c := tracking(10)
		c.started, c.recent[0], c.next = 1, 5, 5.1
		c.pace.now = tc.now
		c.stretch(tc.at, 10)
		equal(t, "next", c.next, tc.want)
	}
}

// A part that becomes twice as large halves what the next call has to wait, after a pause that the server has asked for.
func TestController_Rescale(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(c *Controller)
		want   float64
	}{
		{"the pace stays", func(*Controller) {}, 12},
		{"the pace doubles", func(c *Controller) { c.pace.now = 20 }, 11},
		{"after a pause", func(c *Controller) { c.until = 12 }, 13},
		{"it is due", func(c *Controller) { c.next = 9 }, 9},
		{"it asks", func(c *Controller) { c.blockage.on, c.blockage.polls = true, 1 }, 14},
		{"without a pace", func(c *Controller) { c.phase = Capped; c.pace.now = 20 }, 12},
		{"in a blockage", func(c *Controller) { c.blockage.on, c.sharing.part, c.sharing.peers = true, .8, 2 }, 12.5},
	} {
		c := tracking(10)
		c.pace.now, c.next = 10, 14
		tc.change(c)
		c.rescale(10, 2, 10)
		equal(t, tc.name, c.next, tc.want)
	}
}
