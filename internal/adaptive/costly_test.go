package adaptive

import (
	"math"
	"testing"
)

// bounding returns a controller that keeps to a rate between two bounds, where a rejection costs 30 s.
func bounding(rate, low, high float64) *Controller {
	c := tracking(rate)
	c.costly.low, c.costly.high, c.costly.hold, c.costly.price = low, high, 100, 30
	c.phase = Bounding
	c.pace.learn(c, rate)
	return c
}

// Between its bounds the pace stays for hold calls and then rises to 97 % of the upper one: by a tenth with each 100 calls, or as
// many as hold, or doubling with half of hold, 48 calls at least, if the bounds are more than a factor of four apart. If they
// are less than 12 % apart it stays.
func TestCostly_Pace(t *testing.T) {
	for _, tc := range []struct{ low, high, hold, calls, want float64 }{
		{10, 30, 100, 100, 10},
		{10, 30, 100, 200, 11},
		{10, 30, 100, 300, 12.1},
		{10, 30, 200, 400, 11},
		{10, 30, 50, 150, 11},
		{10, 11.5, 100, 300, .97 * 11.5},
		{10, 11.1, 100, 300, 10},
		{10, 41, 100, 150, 20},
		{10, 39, 100, 200, 11},
		{10, 100, 100, 200, 40},
		{10, 100, 60, 60 + 48, 20},
		{10, 100, 100, 400, 97},
	} {
		c := bounding(10, tc.low, tc.high)
		c.costly.hold, c.pace.calls = tc.hold, tc.calls
		equal(t, "pace", c.costly.pace(c), tc.want)
	}
}

// Another look is paid for by so many calls that the rejection costs a twentieth of the time; where only ever a group
// could know, a fifth; twice as many if the first rejection was costly already; and no later than the time after which
// what was accepted before is tried.
func TestCostly_Paid(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(c *Controller)
		want   float64
	}{
		{"a twentieth", func(*Controller) {}, 6000},
		{"a group that knows nothing", func(c *Controller) { c.sharing.peers = 2 }, 1500},
		{"a group that knows the burst", func(c *Controller) { c.sharing.peers, c.costly.burst = 2, 5 }, 6000},
		{"a group with bounds that are near", func(c *Controller) { c.sharing.peers, c.costly.high = 2, 11 }, 6000},
		{"costly from the first", func(c *Controller) { c.cfg.Costly = true }, 12000},
		{"and held for longer", func(c *Controller) { c.cfg.Costly, c.costly.hold = true, 13000 }, 13000},
		{"not before the pace is at the upper bound", func(c *Controller) { c.costly.high, c.costly.price = 80, 1 }, 100 + 50*3},
		{"an incident", func(c *Controller) { c.pace.patience = 7 }, 70},
	} {
		c := bounding(10, 10, 30)
		tc.change(c)
		equal(t, tc.name, c.costly.paid(c), tc.want)
		calls := c.costly.paid(c)
		c.pace.calls = calls
		if c.costly.look(c, 1); c.costly.looking {
			t.Errorf("%s: a look before it is paid for", tc.name)
		}
		c.pace.calls = calls + 1
		if c.costly.look(c, 1); !c.costly.looking {
			t.Errorf("%s: no look", tc.name)
		}
	}
}

// A look doubles the pace with as many calls as a rejection costs, 32 to 128, and every other one of a group with three times as
// many. During an incident it does so within half of the time after which it is tried.
func TestCostly_Look(t *testing.T) {
	for _, tc := range []struct {
		price, patience float64
		slow            bool
		double          float64
	}{
		{1, math.Inf(1), false, 32}, {5, math.Inf(1), false, 50}, {30, math.Inf(1), false, 128}, {30, math.Inf(1), true, 384},
		{30, 4, false, 20}, {30, 40, false, 32}, {30, .1, false, 1},
	} {
		c := bounding(10, 10, 11)
		c.refusal = .001
		c.costly.price, c.pace.patience, c.costly.slow = tc.price, tc.patience, tc.slow
		c.pace.calls = c.costly.paid(c) + tc.double
		equal(t, "pace", c.costly.pace(c), 20)
	}
}

// endBan ends a ban: at 10 s a call at a pace of 12/s was rejected, and at 40 s one was accepted. Until then there were got.
func endBan(c *Controller, got float64) {
	c.ledger.denied = 0
	c.blockage.from, c.blockage.pace, c.blockage.last = point{at: 10, granted: got}, 12, 30
	c.costly.end(c, Call{sent: 40, cost: 1, before: got}, 30)
}

// After the first ban the lower bound is what was accepted in all of the time and the upper one the rejected pace. The
// rate is half of that without the ban, but no more than half of what was accepted in a second; the pace stays for 1.3
// times what was accepted, and 8 calls.
func TestCostly_FirstBan(t *testing.T) {
	for _, tc := range []struct {
		name                  string
		got                   float64
		change                func(c *Controller)
		low, high, hold, rate float64
	}{
		{"100 in 10 s", 100, func(*Controller) {}, 2.5, 12, 138, 5},
		{"100 in half a second", 100, func(c *Controller) { c.costly.start.at = 9.5 }, 100 / 30.5, 12, 138, 50},
		{"two in half a second", 2, func(c *Controller) { c.costly.start.at = 9.5 }, 2 / 30.5, 12, 10.6, 1.25},
		{"nothing", 0, func(*Controller) {}, 0, 12, 8, 1.25},
		{"no more than what nearly all was", 380, func(*Controller) {}, 9.5, 12, 502, 19},
		{"a crowd: as a search that knows nothing", 100, func(c *Controller) { c.blockage.crowd = true }, 2.5, 10, 138, 5},
		{"a large one after a long silence", 160, func(c *Controller) { c.blockage.crowd, c.costly.start.at = true, 9 }, 160. / 31, 160, 216, 20},
		{"and a very large one", 800, func(c *Controller) { c.blockage.crowd, c.costly.start.at = true, 9 }, 800. / 31, 800, 1048, 40},
		{"that came slowly", 100, func(c *Controller) { c.blockage.crowd, c.costly.start.at, c.cfg.Start = true, -90, .1 }, 100. / 130, 200. / 130, 138, .98 * 100 / 130},
	} {
		c := tracking(10)
		tc.change(c)
		endBan(c, tc.got)
		if c.phase != Bounding {
			t.Errorf("%s: %v", tc.name, c.phase)
		}
		equal(t, tc.name+", low", c.costly.low, tc.low)
		equal(t, tc.name+", high", c.costly.high, tc.high)
		equal(t, tc.name+", hold", c.costly.hold, tc.hold)
		equal(t, tc.name+", rate", c.pace.rate, tc.rate)
		equal(t, tc.name+", price", c.costly.price, 30)
	}
	for blocked, want := range map[float64]float64{20: .98 * 160 / 31, 21: 20} { // after 20 s a window is soon found anyway
		c := tracking(10)
		c.blockage.crowd, c.costly.start.at = true, 9
		c.blockage.from, c.blockage.pace = point{at: 10, granted: 160}, 12
		c.costly.end(c, Call{sent: 40, cost: 1, before: 160}, blocked)
		equal(t, "rate", c.pace.rate, max(want, .98*160/31))
	}
}

// The price of a ban falls by three tenths at each that is shorter.
func TestCostly_Price(t *testing.T) {
	c := bounding(10, 5, 30)
	c.costly.price = 100
	endBan(c, 100)
	equal(t, "price", c.costly.price, 70)
}

// A later ban moves one bound. If the pace was that of the rate for so long that this was accepted, the rate is the
// lower bound, and the upper one the rejected pace, 5 % more at least. Else the pace is the upper bound, and the lower
// one falls to seven tenths of it if it is near. After two bans of which nearly nothing was accepted it is half at
// most.
func TestCostly_Narrow(t *testing.T) {
	for _, tc := range []struct {
		name                   string
		low, high, held, rate  float64
		got                    float64
		vain                   int
		pace                   float64
		wantLow, wantHigh, now float64
	}{
		{"held long", 5, 30, 101, 8, 100, 0, 12, 8, 12, math.Pow(8, .6) * math.Pow(12, .4)},
		{"held long, and the pace is near", 5, 30, 101, 11.8, 100, 0, 12, 11.8, 1.05 * 11.8, .98 * 11.8},
		{"held long, at a bound that is lower", 5, 10, 101, 8, 100, 0, 12, 8, 10, math.Pow(8, .6) * math.Pow(10, .4)},
		{"not held", 5, 30, 99, 8, 100, 0, 12, 5, 12, math.Pow(5, .6) * math.Pow(12, .4)},
		{"not held, far below", .1, 30, 99, 8, 100, 0, 12, .1, 12, 4.8},
		{"not held, and the bound is near", 11.7, 30, 99, 11.8, 100, 0, 12, 8.4, 12, math.Pow(8.4, .6) * math.Pow(12, .4)},
		{"and not so near", 11.6, 30, 99, 11.8, 100, 0, 12, 11.6, 12, .98 * 11.6},
		{"in vain once", 8, 30, 99, 8, 3, 0, 12, 8, 12, math.Pow(8, .6) * math.Pow(12, .4)},
		{"in vain twice", 8, 30, 99, 8, 3, 1, 12, 6, 12, math.Pow(6, .6) * math.Pow(12, .4)},
		{"not in vain", 8, 30, 99, 8, 4, 1, 12, 8, 12, math.Pow(8, .6) * math.Pow(12, .4)},
	} {
		c := bounding(10, tc.low, tc.high)
		c.costly.vain = tc.vain
		c.blockage.held, c.blockage.rate, c.blockage.pace = tc.held, tc.rate, tc.pace
		c.costly.narrow(c, tc.got, tc.got/40)
		equal(t, tc.name+", low", c.costly.low, tc.wantLow)
		equal(t, tc.name+", high", c.costly.high, tc.wantHigh)
		equal(t, tc.name+", rate", c.pace.rate, tc.now)
		hold := 1.3*tc.got + 8
		if tc.high > 1.12*c.costly.low { // half of the price may be missed
			hold = min(hold, .5*30*tc.now/(tc.wantHigh/tc.now-1))
		}
		equal(t, tc.name+", hold", c.costly.hold, max(100, hold))
	}
}

// After a cheap rejection the pace does not wait for as many calls as the cycle before had, unless clients are banned.
func TestCostly_NarrowAfterACheapRejection(t *testing.T) {
	const rate = 9.423 // between the bounds
	for _, tc := range []struct {
		price  float64
		costly bool
		want   float64
	}{{2, false, 100}, {20, false, .5 * 20 * rate / (12/rate - 1)}, {2, true, 1.3*1000 + 8}} {
		c := bounding(10, 5, 30)
		c.cfg.Costly, c.costly.price = tc.costly, tc.price
		c.blockage.held, c.blockage.rate, c.blockage.pace = 101, 8, 12
		c.costly.narrow(c, 1000, 25)
		if math.Abs(c.costly.hold/tc.want-1) > .01 {
			t.Errorf("%+v: hold %v", tc, c.costly.hold)
		}
	}
}

// The time in which the rate was learned counts for the first look, up to half of what that needs, if the server has asked for
// waits of more than 40 s. A look needs 20 times what a rejection costs. Time before the bounds, or with a rate that was
// measured, or in a group is none.
func TestCostly_Credit(t *testing.T) {
	for _, tc := range []struct {
		name                  string
		blocked, took, credit float64
		change                func(c *Controller)
	}{
		{"more than 40 s", 41, 100, 100, func(*Controller) {}},
		{"40 s", 40, 100, 0, func(*Controller) {}},
		{"half at most", 41, 1000, 410, func(*Controller) {}},
		{"not told", 41, 100, 0, func(c *Controller) { c.blockage.told = false }},
		{"measured before", 41, 100, 0, func(c *Controller) { c.costly.measured = true }},
		{"in a group", 41, 100, 0, func(c *Controller) { c.sharing.peers = 2 }},
		{"at first only the wait", 41, 1000, 41, func(c *Controller) { c.phase, c.costly.credit = Tracking, 300 }},
		{"without bounds", 41, 1000, 41, func(c *Controller) { c.costly.low, c.costly.credit = 0, 300 }},
	} {
		c := bounding(10, 5, 30)
		c.blockage.told = true
		tc.change(c)
		c.costly.learned(c, tc.took, tc.blocked)
		c.phase, c.costly.low, c.costly.price = Bounding, 5, tc.blocked
		if c.sharing.peers > 1 {
			equal(t, tc.name, c.costly.credit, 0)
		} else {
			equal(t, tc.name, c.costly.paid(c), 10*(20*tc.blocked-tc.credit))
		}
	}
	c := bounding(10, 5, 30)
	c.costly.credit, c.costly.looking = 100, true
	c.costly.narrow(c, 100, 5)
	equal(t, "credit after a look", c.costly.credit, 0)

	for name, f := range map[string]func(c *Controller){
		"windows": func(c *Controller) { c.costly.leave(c) },
		"restored": func(c *Controller) {
			c.costly.restore(c, costly{low: 5, high: 30, credit: 100, looking: true}, Call{cost: 1})
		},
		"an incident": func(c *Controller) {
			c.service = service{since: 90, rate: 10, fell: true, phase: Bounding, bounds: costly{low: 8, high: 12, credit: 100, looking: true}}
			c.service.paced(c, 100)
		},
	} {
		c := bounding(10, 5, 30)
		c.pace.now, c.costly.credit, c.costly.looking = 10, 100, true
		if f(c); c.costly.credit != 0 || c.costly.looking {
			t.Errorf("%s: credit %v, looking %t", name, c.costly.credit, c.costly.looking)
		}
	}
}

// A rate between the bounds that two cycles or the bucket of a crowd have shown is believed, less half of its error,
// and kept until a tenth of the time pays for a rejection.
func TestCostly_NarrowByAFit(t *testing.T) {
	c := bounding(10, 5, 30)
	c.cycles.found = fit{9, .04}
	c.blockage.held, c.blockage.pace = 0, 12
	c.costly.narrow(c, 40, 1)
	equal(t, "rate", c.pace.rate, 9*.98)
	equal(t, "hold", c.costly.hold, 30*9*.98/.1)
	c = bounding(10, 5, 30)
	c.cycles.found = fit{13, .04} // above the bound
	c.blockage.held, c.blockage.pace = 0, 12
	c.costly.narrow(c, 40, 1)
	equal(t, "rate", c.pace.rate, math.Pow(5, .6)*math.Pow(12, .4))

	for told, want := range map[bool]float64{false: math.Pow(5, .6) * math.Pow(12, .4), true: 6 * .95} {
		c := bounding(10, 5, 30)
		c.blockage.told, c.blockage.pace = told, 12
		c.crowd.first, c.crowd.mean = part{1, 26.5}, .5
		c.cycles.past[1-c.cycles.next] = cycle{n: 1, parts: [cyclePoints]part{{20, 140}}} // a bucket of 20
		c.costly.narrow(c, 140, 3)
		equal(t, "rate", math.Round(1e4*c.pace.rate)/1e4, math.Round(1e4*want)/1e4)
	}
}

// The rate of a group keeps 1 % below what was rejected.
func TestCostly_NarrowInAGroup(t *testing.T) {
	c := bounding(10, 5, 30)
	c.blockage.held, c.blockage.rate, c.blockage.pace, c.sharing.peers = 101, 11.9, 11.6, 2
	c.costly.narrow(c, 100, 1)
	equal(t, "rate", c.pace.rate, .99*11.6)
}

// A look shows the rate at which the bucket explains it. Up to a tenth more is what looks differ by; more is a server
// that has become faster. 99 % of it are believed.
func TestCostly_Looked(t *testing.T) {
	for _, tc := range []struct{ granted, rate, high, hold float64 }{
		{10*10 + 20, 10, 14, 100},           // nothing new
		{10*10.8 + 20, .99 * 10.8, 14, 100}, // a little faster
		{10*11.2 + 20, .99 * 11.2, 14, 30 * .99 * 11.2 / .1},
	} {
		c := bounding(10, 8, 30)
		k := &c.costly
		k.looking, k.burst = true, 20
		c.blockage.rate, c.blockage.pace = 10, 14
		c.cycles.past[1-c.cycles.next] = cycle{n: 1, parts: [cyclePoints]part{{10, tc.granted}}}
		k.looked(c)
		equal(t, "rate", math.Round(1e4*c.pace.rate)/1e4, math.Round(1e4*tc.rate)/1e4)
		equal(t, "low", k.low, 10)
		equal(t, "high", k.high, tc.high)
		equal(t, "hold", math.Round(k.hold), math.Round(tc.hold))
		if k.looking {
			t.Error("it still looks")
		}
	}
}

// If rejections are costly from the first, 16 calls must have been accepted to say anything: then the rate is three
// quarters of the pace, and the lower bound half of it. Before it is the mean of both bounds, and of nothing a quarter
// of the pace of a search. The pace stays ten times as long as it would take to gain what a rejection costs.
func TestCostly_Patiently(t *testing.T) {
	for _, tc := range []struct{ got, mean, rate, low, hold float64 }{
		{.5, .01, 1.25, 0, 10 * 30 * 1.25 / 15},
		{15, 5, 10, 0, 10 * 30 * 10},
		{16, 5, 15, 10, 10 * 30 * 15 * 3},
		{16, 11, 15, 11, 10 * 30 * 15 * 3},
	} {
		c := New(Config{Costly: true})
		c.meanCost, c.blockage.pace = 1, 20
		equal(t, "rate", c.costly.patiently(c, tc.got, tc.mean, 30), tc.rate)
		equal(t, "low", c.costly.low, tc.low)
		equal(t, "hold", c.costly.hold, tc.hold)
	}
}

// The first poll of such a ban comes after 31 s, or when the last one had ended.
func TestCostly_FirstPoll(t *testing.T) {
	for quiet, want := range map[float64]float64{0: 31, 20: 31, 50: 50} {
		b := blockage{quiet: quiet}
		equal(t, "gap", b.beginPatiently(), want)
		if b.gap != want || b.polls != 1 {
			t.Errorf("%+v", b)
		}
	}
}
