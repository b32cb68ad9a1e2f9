package adaptive

import "testing"

// capped returns a controller with a cap on calls in flight, whose answers take 0.1 s.
func capped(limit float64) *Controller {
	c := tracking(10)
	c.answer = .1
	c.capacity.enter(c, 1, int(limit)+1)
	return c
}

// answered tells a controller of so many accepted calls with as many in flight as are allowed.
func answered(c *Controller, calls int) {
	for range calls {
		c.capacity.granted(c, Call{epoch: c.epoch, inFlight: int32(c.capacity.limit)})
	}
}

// throttled tells it of so many rejected ones.
func throttled(c *Controller, calls int, told bool) {
	for range calls {
		c.capacity.refused(c, 1, Call{epoch: c.epoch, inFlight: int32(c.capacity.limit)}, told)
	}
}

// After 100 answers at the cap, one more is tried, and then twice as many each time, up to half of the cap.
func TestCapacity_Raises(t *testing.T) {
	c := capped(8)
	answered(c, 99)
	equal(t, "after 99 answers", c.capacity.limit, 8)
	for _, want := range []float64{9, 11, 15, 22, 33} {
		answered(c, 100)
		equal(t, "limit", c.capacity.limit, want)
	}
	c = capped(1)
	answered(c, 100)
	equal(t, "of one", c.capacity.limit, 2)
	c = capped(8)
	c.capacity.price = 10 // calls: lost by a rejection, so 5 % of the calls
	answered(c, 199)
	equal(t, "after 199 answers", c.capacity.limit, 8)
	answered(c, 1)
	equal(t, "after 200", c.capacity.limit, 9)
	c = capped(8)
	c.capacity.patience = 3
	answered(c, 299)
	equal(t, "after 299 answers", c.capacity.limit, 8)
	answered(c, 1)
	equal(t, "after 300", c.capacity.limit, 9)
}

// Three rejections at the cap, and more than 2 % of the calls, lower it by what it was raised last, one at least. One
// is enough if the server says how long to wait. Each time twice as many answers must come before more is tried: 16
// times as many at most, or 64.
func TestCapacity_Lowers(t *testing.T) {
	c := capped(20)
	throttled(c, 2, false)
	equal(t, "after two", c.capacity.limit, 20)
	throttled(c, 1, false)
	equal(t, "after three", c.capacity.limit, 19)
	equal(t, "patience", c.capacity.patience, 2)
	c = capped(20)
	throttled(c, 1, true)
	equal(t, "after one with a time", c.capacity.limit, 19)
	c.capacity.patience, c.capacity.entry = 48, 1
	throttled(c, 1, true)
	equal(t, "patience", c.capacity.patience, 64)
	c.capacity.patience = 12
	throttled(c, 3, false)
	equal(t, "patience", c.capacity.patience, 16)

	for full, want := range map[float64]float64{146: 19, 147: 20} { // 3 of 149 are more than 2 %, and of 150 they are not
		c = capped(20)
		c.capacity.full = full
		throttled(c, 3, false)
		equal(t, "limit", c.capacity.limit, want)
	}
	c = capped(20)
	c.capacity.raise = 5
	throttled(c, 3, false)
	equal(t, "after a raise by five", c.capacity.limit, 15)
	equal(t, "raise", c.capacity.raise, 0)
}

// It was no cap if it fell eight times, or below 55 % of what it was. One that was guessed may fall once.
func TestCapacity_GivesUp(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(k *capacity)
		want   Phase
	}{
		{"six times before", func(k *capacity) { k.falls = 6 }, Capped},
		{"seven times", func(k *capacity) { k.falls = 7 }, Tracking},
		{"guessed", func(k *capacity) { k.guessed = true }, Capped},
		{"and once before", func(k *capacity) { k.guessed, k.falls = true, 1 }, Tracking},
		{"to 56 %", func(k *capacity) { k.limit, k.entry = 57, 100 }, Capped},
		{"to 54 %", func(k *capacity) { k.limit, k.entry = 55, 100 }, Tracking},
		{"to none", func(k *capacity) { k.limit, k.entry = 1, 1 }, Tracking},
	} {
		c := capped(20)
		tc.change(&c.capacity)
		if throttled(c, 3, false); c.phase != tc.want {
			t.Errorf("%s: %v, want %v", tc.name, c.phase, tc.want)
		}
	}
	// Then none is looked for until 500 replies later, four times as many each time.
	c := capped(20)
	for _, want := range []int{500, 2000, 8000} {
		total := c.capacity.total
		c.capacity.giveUp(c)
		if got := c.capacity.ban - total; got != want {
			t.Errorf("%d replies, want %d", got, want)
		}
		equal(t, "quiet", c.pace.quiet, 16)
	}
	// A search goes on at the pace that the cap allowed, if that is less.
	c = capped(20)
	c.pace.rate, c.pace.now, c.answer = 0, 1000, .5
	c.capacity.giveUp(c)
	equal(t, "pace", c.pace.now, 40)
}

// The next call starts when half of the time has passed in which one of those in flight ends.
func TestCapacity_NextCall(t *testing.T) {
	c := capped(5)
	throttled(c, 1, false)
	equal(t, "next", c.next, 1+.5*.1/5)
	c.until = 3
	equal(t, "calls that a pause costs", c.capacity.lost(c, 1), 2*5/.1)
	c.answer = 0
	equal(t, "of an answer in no time", c.capacity.lost(c, 1), 2*5/1e-3)
}

// seen tells a controller of the replies to n calls at 50/s.
func seen(c *Controller, n, inFlight int, refused bool) (found bool) {
	for range n {
		call := Call{epoch: c.epoch, pace: 50, cost: 1, inFlight: int32(inFlight)}
		if refused {
			found = c.capacity.refused(c, 2, call, false)
		} else {
			c.capacity.granted(c, call)
		}
	}
	return found
}

// A cap separates rejected calls from accepted ones: four of the last at least, and of 25, by more than three quarters.
func TestCapacity_Separates(t *testing.T) {
	for _, tc := range []struct {
		name      string
		below, at int // accepted calls below the cap, and with as many as it
		bad       int
		found     bool
		cap       float64
	}{
		{"four rejected calls", 40, 0, 4, true, 9},
		{"three", 40, 0, 3, false, 0},
		{"21 accepted ones", 21, 0, 4, true, 9},
		{"20", 20, 0, 4, false, 0},
		{"23 % of the accepted ones are at it", 77, 23, 4, true, 9},
		{"25 %", 75, 25, 4, false, 0},
	} {
		c := tracking(50)
		seen(c, tc.below, 6, false)
		seen(c, tc.at, 10, false)
		found := false
		for range tc.bad {
			found = found || seen(c, 1, 10, true)
		}
		if found != tc.found || found && c.capacity.limit != tc.cap {
			t.Errorf("%s: found %t, %v", tc.name, found, c.capacity.limit)
		}
	}
	// Calls at another pace are not comparable: 65 % more or less.
	for pace, want := range map[float64]int{80: 11, 83: 1, 31: 11, 30: 1} {
		c := tracking(50)
		seen(c, 10, 6, false)
		c.capacity.granted(c, Call{epoch: c.epoch, pace: pace, inFlight: 6})
		if c.capacity.n != want {
			t.Errorf("at %v/s there are %d, want %d", pace, c.capacity.n, want)
		}
	}
}

// The share of the last eight rejections that had nine tenths of the cap in flight.
func TestCapacity_Agreement(t *testing.T) {
	k := capacity{rejects: 4}
	for i, n := range []int32{20, 18, 17, 10} {
		k.rejected[i].inFlight = n
	}
	equal(t, "agreement", k.agreement(20), .5)
}

// Few rejections show a cap if accepted calls hardly ever have as many in flight: with probability 1 in 10,000, over
// four rounds of calls, and if the number in flight varies by three.
func TestCapacity_Rare(t *testing.T) {
	play := func(low, high, above int, rejected int, pace float32) int {
		var k capacity
		for i := range 100 {
			n := low
			switch {
			case i < above:
				n = 20
			case i%2 == 0:
				n = high
			}
			k.seen[k.n] = sighting{int32(n), int32(k.n), pace, false}
			k.n++
		}
		for i := range rejected {
			k.rejected[i] = sighting{20, 0, 50, true}
		}
		k.rejects, k.total = rejected, 200
		return k.rare()
	}
	for _, tc := range []struct {
		name                       string
		low, high, above, rejected int
		pace                       float32
		want                       int
	}{
		{"two, and none of 100", 5, 10, 0, 2, 50, 20}, // (1/101)² = .98e-4
		{"two, and one", 5, 10, 1, 2, 50, 0},
		{"three, and three", 5, 10, 3, 3, 50, 20}, // (4/101)³ = .62e-4
		{"three, and four", 5, 10, 4, 3, 50, 0},   // 1.2e-4
		{"one", 5, 10, 0, 1, 50, 0},
		{"it varies by three", 7, 10, 0, 2, 50, 20},
		{"it varies by two", 8, 10, 0, 2, 50, 0},
		{"accepted calls were nearly as fast", 5, 10, 0, 2, 48.6, 20},
		{"or slower", 5, 10, 0, 2, 48, 0},
	} {
		if got := play(tc.low, tc.high, tc.above, tc.rejected, tc.pace); got != tc.want {
			t.Errorf("%s: %d, want %d", tc.name, got, tc.want)
		}
	}
	for total, want := range map[int]int{79: 0, 80: 20} {
		var k capacity
		for i := range 100 {
			k.seen[i] = sighting{int32(5 + i%2*5), 0, 50, false}
		}
		k.n, k.rejects, k.total = 100, 2, total
		k.rejected[0], k.rejected[1] = sighting{20, 0, 50, true}, sighting{20, 0, 50, true}
		if got := k.rare(); got != want {
			t.Errorf("after %d calls: %d, want %d", total, got, want)
		}
	}
}

// A call that is rejected with as many others in flight as the first burst was granted shows a cap: as many at least
// if the server says how long to wait, four fifths otherwise, and no more than an eighth above it, and those that end
// while the reply is on its way.
func TestCapacity_Again(t *testing.T) {
	for _, tc := range []struct {
		name   string
		others int
		told   bool
		change func(c *Controller)
		want   bool
	}{
		{"as many", 20, true, nil, true},
		{"fewer", 19, true, nil, false},
		{"four fifths", 16, false, nil, true},
		{"fewer than that", 15, false, nil, false},
		{"an eighth more, and one on its way", 23, true, nil, true},
		{"and another", 24, true, nil, false},
		{"it works no longer than a rejection takes", 20, true, func(c *Controller) { c.refusal = .35 }, false},
		{"or nearly", 20, true, func(c *Controller) { c.refusal = .3 }, true},
		{"the search was four times as fast as it allows", 20, true, func(c *Controller) { c.answer = 1.65 }, false},
		{"or nearly", 20, true, func(c *Controller) { c.answer = 1.55 }, true},
		{"the second blockage", 20, true, func(c *Controller) { c.blocked = 2 }, false},
		{"a call of twice the cost", 20, true, func(c *Controller) { c.meanCost = .5; c.crowd.first.granted = 10 }, false},
	} {
		c := tracking(50)
		c.blocked, c.answer, c.refusal = 1, 1, .02
		c.crowd.first = part{.01, 20}
		if tc.change != nil {
			tc.change(c)
		}
		call := Call{epoch: c.epoch, pace: 50, cost: 1, inFlight: int32(tc.others + 1)}
		if got := c.capacity.again(c, call, tc.told); got != tc.want {
			t.Errorf("%s: %t", tc.name, got)
		}
	}
}

// The server may say that it was because of the calls in flight: then three of them are enough, if it was not one of
// the first burst.
func TestCapacity_Named(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(c *Controller, call *Call)
		want   bool
	}{
		{"three", func(*Controller, *Call) {}, true},
		{"two", func(_ *Controller, call *Call) { call.inFlight = 2 }, false},
		{"it does not say so", func(_ *Controller, call *Call) { call.atOnce = false }, false},
		{"a call of the burst", func(c *Controller, _ *Call) { c.crowd.sent = 11 }, false},
		{"the first rejection", func(c *Controller, _ *Call) { c.phase = Unlimited }, false},
		{"in a blockage", func(c *Controller, _ *Call) { c.blockage.on = true }, false},
		{"old news", func(c *Controller, _ *Call) { c.epoch++ }, false},
		{"only the pace is bounded", func(c *Controller, _ *Call) { c.cfg.Paced = true }, false},
		{"it was none before", func(c *Controller, _ *Call) { c.capacity.ban = 1 }, false},
		{"a call of 2 % more", func(_ *Controller, call *Call) { call.cost = 1.02 }, false},
		{"and of nearly the mean", func(_ *Controller, call *Call) { call.cost = 1.009 }, true},
	} {
		c := tracking(50)
		call := Call{epoch: c.epoch, pace: 50, cost: 1, inFlight: 3, atOnce: true, before: 10}
		tc.change(c, &call)
		if got := c.capacity.named(c, call); got != tc.want {
			t.Errorf("%s: %t", tc.name, got)
		}
	}
}

// The bound holds calls back if some were, and seven tenths of it are in flight.
func TestCapacity_Binds(t *testing.T) {
	k := capacity{limit: 10, most: 10, held: 1}
	if !k.binds(7) || k.binds(6.9) {
		t.Error("not from seven tenths on")
	}
	if k.held = 0; k.binds(10) {
		t.Error("it held no call back")
	}
	if k.held, k.most = 1, 9; k.binds(10) {
		t.Error("the configured bound held it back")
	}
}
