package adaptive

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

// The tests of this file look at one estimator each, with exact numbers. In a controller with
// several feedbacks one of them reversed is made up for by the others, so tests of whole
// controllers, and the worlds of bench/league, notice little of it.

func equal(t *testing.T, what string, got, want float64) {
	t.Helper()
	if math.Abs(got-want) > 1e-9*max(1, math.Abs(want)) {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

func TestAverage(t *testing.T) {
	var mean float64
	average(&mean, 4, .05)
	equal(t, "the first value", mean, 4)
	average(&mean, 8, .25)
	equal(t, "the second one", mean, 5)
}

func TestLatency_Rise(t *testing.T) {
	for _, tc := range []struct {
		limit float64
		rises int // before
		want  float64
	}{
		{10, 0, 11}, // at least one
		{80, 0, 84}, // a twentieth
		{80, 2, 84},
		{80, 3, 100}, // again and again
	} {
		c := New(Config{})
		l := &c.latency
		c.phase, c.capacity.limit, l.rises = Slowed, tc.limit, tc.rises
		l.rise(c)
		equal(t, "limit", c.capacity.limit, tc.want)
		if l.rises != tc.rises+1 {
			t.Errorf("%d rises", l.rises)
		}
	}
}

// A round ends early when twelve of its calls took three times what is normal, and not
// because of fewer, of quicker ones, or while a lower bound is on trial.
func TestLatency_EndsARoundEarly(t *testing.T) {
	for _, tc := range []struct {
		name    string
		calls   int
		took    float64
		testing bool
		want    bool
	}{
		{"twelve slow ones", 12, .31, false, true},
		{"eleven slow ones", 11, .31, false, false},
		{"twelve that are not slow enough", 12, .29, false, false},
		{"on trial", 12, .31, true, false},
	} {
		c := New(Config{})
		l := &c.latency
		l.base, l.known, l.testing = .1, knownAfter, tc.testing
		for range tc.calls {
			l.ended(c, tc.took, Call{round: l.started(c), cost: 1, inFlight: 20}, true)
		}
		if got := l.round == 1; got != tc.want {
			t.Errorf("%s: %v", tc.name, got)
		}
	}
}

// The unit of which the same was granted from one refusal to the next becomes more likely, the
// others less.
func TestCompare(t *testing.T) {
	grew := func(by float64) Candidate {
		// 20 calls in 10 s since the last refusal; 5 per second before.
		return Candidate{Suspect: &Suspect{at: 20, sent: 40 + 50*by, calls: 40, empty: mark{10, 40, 20}, rate: 5}}
	}
	for _, tc := range []struct {
		by, want []float64
	}{
		{[]float64{1, 2}, []float64{mostCycle, -mostCycle}},
		{[]float64{.5, 1}, []float64{-mostCycle, mostCycle}},
		{[]float64{1, 1}, []float64{0, 0}},
		{[]float64{2, 1, 3}, []float64{mostCycle, mostCycle, -mostCycle}}, // compared with the mean
	} {
		var units []Candidate
		for _, by := range tc.by {
			units = append(units, grew(by))
		}
		compare(20*time.Second, units)
		for i, u := range units {
			if math.Abs(u.odds-tc.want[i]) > 1e-9 {
				t.Errorf("%v: unit %d has odds %v, want %v", tc.by, i, u.odds, tc.want[i])
			}
		}
	}
}

// A poll after more than a second of refusals leaves half a second after the full minute, if
// that is earlier than the backoff says.
func TestBlockage_PollsAfterTheMinute(t *testing.T) {
	for _, tc := range []struct {
		t, gap, quiet float64
		clock         time.Duration
		want          float64
	}{
		{58, 2, 0, 0, 60.5},
		{59.8, 2, 0, 0, 60.8}, // a second, at least
		{58, .4, 0, 0, 58.8},  // earlier than the minute
		{30, 2, 0, 0, 34},
		{30, 2, 0, 28 * time.Second, 32.5}, // by the clock on the wall
		{58, 2, 1, 0, 62},                  // it is known how long the server is quiet
	} {
		c := New(Config{Clock: tc.clock})
		c.pace.now, c.ledger.start.at = 10, 3
		b := &c.blockage
		b.on, b.polls, b.gap, b.quiet = true, 1, tc.gap, tc.quiet
		b.again(c, tc.t, Call{cost: 1, sent: tc.t})
		equal(t, "next", c.next, tc.want)
	}
}

// A part that grows takes the calls that were counted, and those to go, along.
func TestController_SetShare_TakesCountsAlong(t *testing.T) {
	c := paced(t)
	c.Share(time.Second, 1, 2)
	c.pace.calls, c.pace.span, c.pace.rise, c.costly.hold = 40, 80, 20, 16
	c.Share(time.Second, .5, 2)
	equal(t, "calls", c.pace.calls, 20)
	equal(t, "span", c.pace.span, 40)
	equal(t, "rise", c.pace.rise, 10)
	equal(t, "hold", c.costly.hold, 8)
}

// What a call took more than was thought counts in the window that it left in.
func TestController_Settle_CountsInAWindow(t *testing.T) {
	c := paced(t)
	c.phase, c.window.from, c.window.count, c.window.length, c.window.used = Windowed, 10, 100, 60, 5
	c.Settle(20*time.Second, 12*time.Second, 7)
	equal(t, "used", c.window.used, 12)
	c.Settle(20*time.Second, 9*time.Second, 7) // of the window before
	equal(t, "used", c.window.used, 12)
}

// What a window does next depends on whether all of it was granted.
func TestWindow_Next(t *testing.T) {
	for _, tc := range []struct {
		name         string
		was          window
		count, extra float64
		patience     int
		right, wrong int
	}{
		{"more was granted", window{count: 10, extra: 1, used: 11, patience: 2}, 11, 2, 2, 0, 0},
		{"full", window{count: 10, used: 10, patience: 2}, 10, 0, 2, 1, 0},
		{"full, patience is over", window{count: 10, used: 10, patience: 2, right: 1}, 10, 1, 2, 0, 0},
		{"more was refused", window{count: 10, extra: 1, used: 10, denied: true, patience: 2}, 10, 0, 4, 0, 0},
		{"more was refused, often", window{count: 10, extra: 1, used: 10, denied: true, patience: 16}, 10, 0, 16, 0, 0},
		{"less was granted", window{count: 10, used: 7, denied: true, patience: 2}, 10, 0, 2, 0, 1},
		{"less was granted, again", window{count: 10, used: 7, denied: true, wrong: 1, patience: 2}, 7, 0, 2, 0, 2},
		{"much less was granted", window{count: 10, used: 1, denied: true, wrong: 1, patience: 2}, 5, 0, 2, 0, 2},
		{"less was asked for", window{count: 10, used: 7, patience: 2}, 10, 0, 2, 0, 0},
	} {
		c := paced(t)
		c.phase, c.window = Windowed, tc.was
		c.window.length = 60
		w := &c.window
		w.next(c)
		if w.count != tc.count || w.extra != tc.extra || w.patience != tc.patience || w.right != tc.right || w.wrong != tc.wrong {
			t.Errorf("%s: %+v", tc.name, *w)
		}
		if w.used != 0 || w.denied || c.phase != Windowed {
			t.Errorf("%s: %+v in phase %v", tc.name, *w, c.phase)
		}
	}
}

// The last empty point of a blockage goes forward in time and in what was granted.
func TestLedger_Again(t *testing.T) {
	var l ledger
	l.mark(point{at: 10, granted: 100})
	for _, tc := range []struct {
		p    point
		want float64
	}{
		{point{at: 11, granted: 104}, 11},
		{point{at: 12, granted: 103}, 11}, // fewer than before: the order of replies
		{point{at: 10.5, granted: 105}, 11},
		{point{at: 13, granted: 104}, 13},
	} {
		l.again(tc.p)
		equal(t, "at", l.last.at, tc.want)
	}
}

// Answers count for a cap if they left since it was set, with as many in flight.
func TestCapacity_CountsAnswersAtTheCap(t *testing.T) {
	for _, tc := range []struct {
		name     string
		since    uint32 // epochs ago
		inFlight int
		full     float64
	}{
		{"at the cap", 0, 8, 1},
		{"below it", 0, 7, 0},
		{"before it was set", 1, 8, 0},
	} {
		c := New(Config{})
		c.phase, c.epoch = Capped, 5
		k := &c.capacity
		k.limit, k.entry, k.patience = 8, 8, 1
		k.granted(c, Call{epoch: c.epoch - tc.since, inFlight: int32(tc.inFlight)})
		equal(t, tc.name, k.full, tc.full)
		k.full = 0
		if !k.refused(c, 1, Call{epoch: c.epoch - tc.since, inFlight: 8}, false) {
			t.Errorf("%s: a refusal at a cap is one of a rate", tc.name)
		}
		equal(t, tc.name+", refused", k.bad, float64(1-tc.since))
	}
}

// After six blockages that cost little refusals are not costly any more.
func TestCostly_Cheap(t *testing.T) {
	c := paced(t)
	c.phase = Bounding
	c.costly.low, c.costly.high = 5, 20
	for i := range 6 {
		if c.phase != Bounding {
			t.Fatalf("%v after %d", c.phase, i)
		}
		c.costly.cheap(c, Call{sent: 1})
	}
	if c.phase != Tracking || c.costly.high != 0 {
		t.Errorf("%v, %+v", c.phase, c.costly)
	}
}

// A cap whose rejections say how long to wait is found although one in a minute is all that comes of
// it, and then one at a time tests it. The same rejections by a bucket, whatever was in flight, are no cap.
func TestCapacity_FoundByRareRejections(t *testing.T) {
	service := func() func() float64 {
		random := rand.New(rand.NewPCG(1, 1))
		return func() float64 { return .1 * (.3 + 1.4*random.Float64()) }
	}
	waits := func(float64) time.Duration { return time.Second }
	r := newRun(t, Config{}, server{slots: 10, service: service(), retry: waits})
	r.callers, r.rtt = 32, .008
	r.until(100)
	if b := r.controller.Belief(); b.Phase != Capped || b.Concurrency < 9 || b.Concurrency > 11 {
		t.Errorf("it believes %+v of a cap of 10", b)
	}
	r.until(300)
	granted, refused := count(r.granted, 200, 300), count(r.refused, 200, 300)
	if granted < 80*100 || refused > 10 {
		t.Errorf("%d granted and %d refused in 100 s, of about 9,000", granted, refused)
	}

	r = newRun(t, Config{}, server{take: bucket(10, steady(60)), service: service(), retry: waits})
	r.callers, r.rtt = 32, .008
	for until := 10.; until <= 600; until++ {
		if r.until(until); r.controller.phase == Capped {
			t.Fatalf("after %v s it believes %+v of a bucket", until, r.controller.Belief())
		}
	}
}

// A cap separates all rejections, and not only those of one burst. At the limit of a bucket for calls
// of regular length a burst may find one more in flight than most calls do.
func TestCapacity_NotFoundByOneBurst(t *testing.T) {
	for _, tc := range []struct {
		name   string
		before int // in flight with calls that were rejected before the burst, and with most accepted ones
		burst  int // with those of the burst, and some accepted ones
		found  bool
	}{
		{"a bucket", 3, 4, false},
		{"a cap of 3", 4, 4, true},
		{"a cap of 36, as seen from far away", 36, 37, true},
	} {
		c := New(Config{})
		c.phase = Tracking
		k := &c.capacity
		call := func(inFlight int) Call { return Call{epoch: c.epoch, pace: 50, inFlight: int32(inFlight)} }
		for range 4 {
			k.refused(c, 1, call(tc.before), false)
		}
		for i := range 124 {
			switch {
			case i%6 == 0:
				k.granted(c, call(tc.burst))
			default:
				k.granted(c, call(min(tc.before, tc.burst-1)))
			}
		}
		found := false
		for range 4 {
			found = k.refused(c, 2, call(tc.burst), false)
		}
		if found != tc.found {
			t.Errorf("%s: found %v", tc.name, found)
		}
	}
}
