package adaptive

import (
	"math"
	"testing"
)

// The first rejection after a search has a full bucket in what was accepted, so seven tenths of that are a guess. The
// last 15 s, or up to 30, are what was accepted lately.
func TestLedger_Rates(t *testing.T) {
	var l ledger
	l.begin(1)
	equal(t, "first", l.first(point{at: 11, granted: 100}), 7)
	equal(t, "lately, at once", l.lately(1), 0)
	for at := 1.; at < 100; at += .5 {
		l.started(at, 1)
		if l.recent.at > 1 && (at-l.recent.at > 15 || at-l.earlier.at <= 15) {
			t.Fatalf("at %v the checkpoints are at %v and %v", at, l.recent.at, l.earlier.at)
		}
	}
	if got := l.lately(99.5); math.Abs(got-2) > .1 {
		t.Errorf("of 2/s %v were accepted lately", got)
	}
	equal(t, "until 15.5 s after it", l.earlier.at+15.5, l.recent.at)
}

// In a blockage a call more or less bounds the rate, and jitter is most of a time that is too short.
func TestLedger_Blocked(t *testing.T) {
	l := ledger{refused: point{at: 10, granted: 100}, last: point{at: 12, granted: 120}}
	low, high := l.blocked(1, .1)
	equal(t, "low", low, 9.5)
	equal(t, "high", high, 10.5)
	if low, high = l.blocked(1, 2); low != 0 || !math.IsInf(high, 1) {
		t.Errorf("in a time that is too short it is %v to %v", low, high)
	}
	l.last.granted = 100.5
	low, _ = l.blocked(1, .1)
	equal(t, "low", low, 0)
}

// A slope goes back to an empty point that is enough calls away, but not to before a change: what was accepted since
// then, and one call, bounds it.
func TestLedger_Slope(t *testing.T) {
	for _, tc := range []struct {
		marks  []point
		enough float64
		want   float64
	}{
		{[]point{{at: 5, granted: 50}, {at: 10, granted: 80}}, 12, 7}, // 14 calls are enough
		{[]point{{at: 5, granted: 50}, {at: 10, granted: 80}}, 14, 7},
		{[]point{{at: 5, granted: 50}, {at: 10, granted: 80}}, 15, 44. / 7},
		{[]point{{at: 5, granted: 32}, {at: 10, granted: 80}}, 15, 14. / 2}, // 62 in 7 s are more than 14 and 2 in 2 s
		{[]point{{at: 5, granted: 37.1}, {at: 10, granted: 80}}, 15, 56.9 / 7},
	} {
		var l ledger
		l.begin(0)
		for _, p := range tc.marks {
			l.mark(p)
		}
		rate, ok := l.slope(point{at: 12, granted: 94}, tc.enough, 1)
		if !ok {
			t.Errorf("%+v: none", tc)
		}
		equal(t, "slope", rate, tc.want)
	}
}

// One rejection does not take the rate below two fifths of what was accepted lately. If the same was accepted three
// times, and oftener, it is seven tenths of that for each.
func TestController_Least(t *testing.T) {
	for lows, want := range map[int]float64{0: 4, 2: 4, 3: 2.8, 5: 4 * .343} {
		c := tracking(10)
		c.ledger.sent, c.pace.lows = 100, lows
		equal(t, "least", c.least(10), want)
	}
}

// Rates are the same if a tenth apart, and only those below the least that one rejection may lead to count.
func TestPace_Sink(t *testing.T) {
	for _, tc := range []struct {
		low  float64
		want int
	}{{10, 3}, {10.9, 3}, {11.1, 0}, {9.1, 3}, {8.9, 0}, {30, 0}} {
		p := pace{low: 10, lows: 2}
		if p.sink(tc.low, 20); p.lows != tc.want || p.low != tc.low {
			t.Errorf("%v: %d times", tc.low, p.lows)
		}
	}
}

// estimated returns a controller that believed in 10/s and was rejected at a pace, where low was accepted for 20 s.
func estimated(low, pace float64, change func(c *Controller)) *Controller {
	c := tracking(10)
	c.ledger.mark(point{at: 0})
	c.ledger.sent, c.ledger.earlier, c.ledger.recent = 20*low, point{}, point{}
	if change != nil {
		change(c)
	}
	c.blockage.told = true // no trial
	c.estimate(Call{sent: 20, cost: 1, before: 20 * low, pace: pace}, point{at: 20, granted: 20 * low})
	return c
}

// A rejection where one was to be expected leads to the middle of what was accepted and the rejected pace, an early
// one to their geometric mean, and that of a search to what was accepted; within bounds.
func TestController_Estimate(t *testing.T) {
	expected := func(c *Controller) { c.pace.calls = c.pace.span }
	search := func(c *Controller) { c.phase = Searching }
	for _, tc := range []struct {
		name      string
		low, pace float64
		change    func(c *Controller)
		want      float64
		unsure    float64
	}{
		{"expected", 9, 11, expected, 10, .5 * (1 - 9./11)},
		{"early", 4, 9, nil, 6, .25},
		{"early, but little", 8, 9, nil, math.Sqrt(72), .5 / 9},
		{"early, far above: the pace was no more than four times the rate", 9, 60, nil, 20, .25},
		{"at 90 % of the span", 4, 9, func(c *Controller) { c.pace.calls = .9 * c.pace.span }, 6.5, .25},
		{"before", 4, 9, func(c *Controller) { c.pace.calls = .89 * c.pace.span }, 6, .25},
		{"half of the rejected pace at least", 1, 9, nil, 4.5, .25},
		{"a search", 50, 100, search, 50, .25},
		{"85 % of its pace", 95, 100, search, 85, .025},
		{"a quarter of it", 2, 100, search, 25, .25},
		{"without a pace: four times what was accepted", 9, 1000, func(c *Controller) { c.phase = Capped }, 9, .25},
		{"a fit", 4, 9, func(c *Controller) { c.cycles.found, c.costly.price = fit{5, .08}, .21 }, 4.8, .08},
		{"a fit where a rejection costs nothing", 4, 9, func(c *Controller) { c.cycles.found, c.costly.price = fit{5, .08}, .2 }, 6, .25},
	} {
		c := estimated(tc.low, tc.pace, tc.change)
		equal(t, tc.name, c.pace.rate, tc.want)
		equal(t, tc.name+", unsure", c.pace.unsure, tc.unsure)
	}
}

// Where each rejection costs a pause, what an early one has shown is confirmed by two others at the same rate, and may
// be 1 % too low.
func TestController_Estimate_Shown(t *testing.T) {
	for _, tc := range []struct {
		low, price float64
		shows      int
		want       float64
	}{
		{9, .21, 0, 9.09}, {9, .3, 1, 9.09}, {9, .3, 2, 10}, {9, .2, 0, 10}, {8, .3, 0, 9.5}, {8.2, .3, 0, 9.09}, {9.5, .3, 0, 1.01 * 9.5}, {9.6, .3, 0, 10.3},
	} {
		c := estimated(tc.low, 11, func(c *Controller) {
			c.pace.calls, c.costly.price = c.pace.span, tc.price
			c.pace.shown, c.pace.shows = 9, tc.shows
		})
		equal(t, "rate", c.pace.rate, tc.want)
	}
}

// A configured rate is thought to be 2 % too fast, twice, unless much less was accepted or the pace was not near it.
func TestController_Nudged(t *testing.T) {
	for _, tc := range []struct {
		low, pace float64
		nudges    int
		want      float64
	}{
		{8, 9.7, 0, 9.8}, {8, 9.7, 1, 9.8 * .98}, {8, 9.7, 2, math.Sqrt(8 * 9.7)}, {4, 9.7, 0, 9.8}, {3.9, 9.7, 0, math.Sqrt(3.9 * 9.7)}, {8, 9, 0, 9.8}, {8, 8.9, 0, math.Sqrt(8 * 8.9)},
	} {
		c := estimated(tc.low, tc.pace, func(c *Controller) { c.cfg.Max, c.pace.nudges = 10, tc.nudges })
		equal(t, "rate", c.pace.rate, max(4.85, tc.want))
	}
}

// While rejections are costly the lower bound was accepted for long.
func TestController_Estimate_Bounding(t *testing.T) {
	c := estimated(4, 9, func(c *Controller) { c.phase, c.costly.low = Bounding, 9 })
	equal(t, "rate", c.pace.rate, .98*9)
	c = estimated(4, 9, func(c *Controller) { c.phase, c.costly.low, c.costly.hold = Bounding, 5, 100 })
	equal(t, "rate", c.pace.rate, 6)
}

// Until a call is accepted again, the server accepts what it can: three rejections in a quarter of a second bound the
// rate, two may be chance.
func TestController_Refine(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(c *Controller)
		want   float64
	}{
		{"three rejections", func(c *Controller) { c.pace.refusals = 3 }, 6},
		{"two", func(c *Controller) { c.pace.refusals = 2 }, 10},
		{"in a quarter of a rejection", func(c *Controller) { c.pace.refusals, c.refusal = 3, 8 }, 10},
		{"and longer", func(c *Controller) { c.pace.refusals, c.refusal = 3, 7.9 }, 6},
		{"in a group", func(c *Controller) { c.pace.refusals, c.sharing.peers = 3, 2 }, 10},
		{"a cycle was accepted more", func(c *Controller) { c.pace.refusals, c.ledger.start.granted = 3, -42 }, 7},
		{"what was accepted lately was more", func(c *Controller) { c.pace.refusals, c.ledger.earlier.granted = 3, -400 }, .4 * 442 / 22},
	} {
		c := tracking(10)
		c.refusal = .001
		c.ledger.mark(point{at: 18, granted: 100})
		c.ledger.empties, c.ledger.start = 1, point{at: 0, granted: 100}
		c.ledger.last = point{at: 20, granted: 111}
		c.ledger.sent, c.ledger.earlier.granted = 42, 42
		c.blockage = blockage{from: point{at: 18}, pace: 12, last: 18}
		tc.change(c)
		c.refine(Call{sent: 22, cost: 1, before: 112})
		equal(t, tc.name, c.pace.rate, tc.want)
	}
}

// Where rejected calls may be lost, a rate that two rejections have shown is not exceeded, and a rate that estimates agree
// on is kept for twice as long. A clear rejection ends that.
func TestController_Losing(t *testing.T) {
	for _, tc := range []struct {
		low, before float64
		losing      bool
		want        float64
	}{
		{8, 8.2, true, 8.2}, {8, 7.6, true, 8}, {8, 8.2, false, 8.5}, {8, 8.6, true, 8.5}, {8, 7.5, true, 8.5}, {8, 0, true, 8.5},
	} {
		c := estimated(tc.low, 9, func(c *Controller) {
			c.pace.calls, c.pace.low = c.pace.span, tc.before
			c.Losing(true)
			c.Losing(tc.losing)
		})
		equal(t, "rate", c.pace.rate, tc.want)
	}
	span := func(losing bool, agreed int) float64 {
		c := tracking(10)
		c.Losing(losing)
		c.pace.agreed = float64(agreed)
		c.pace.learn(c, 10)
		return c.pace.span
	}
	equal(t, "span after estimates that agree", span(true, 1), 2*span(false, 1))
	equal(t, "span after one", span(true, 0), span(false, 0))
}
