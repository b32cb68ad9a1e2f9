package adaptive

import (
	"math"
	"testing"
	"time"
)

// The tests of this file look at one estimator each, with exact numbers. In a rule with
// several feedbacks one of them reversed is made up for by the others, so tests of whole
// rules, and the worlds of bench/league, notice little of it.

func equal(t *testing.T, what string, got, want float64) {
	t.Helper()
	if math.Abs(got-want) > 1e-9*math.Max(1, math.Abs(want)) {
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
	for _, c := range []struct {
		limit, knee float64
		rises       int // before
		want        float64
		wantKnee    float64
	}{
		{10, 0, 0, 11, 0},       // no knee is known
		{80, 0, 3, 100, 0},      // far from it, again and again
		{50, 100, 0, 75, 100},   // to where the server was not slow
		{80, 100, 0, 84, 100},   // a twentieth
		{12, 15, 0, 13, 15},     // at least one
		{90, 100, 0, 90.5, 100}, // near the knee
		{180, 200, 0, 180.9, 200},
		{120, 100, 0, 126, 0}, // past it
		{120, 100, 3, 150, 0},
	} {
		r := New(Config{})
		l := &r.latency
		r.phase, r.capacity.limit, l.knee, l.rises = Slowed, c.limit, c.knee, c.rises
		l.rise(r)
		equal(t, "limit", r.capacity.limit, c.want)
		equal(t, "knee", l.knee, c.wantKnee)
		if l.rises != c.rises+1 {
			t.Errorf("%d rises", l.rises)
		}
	}
}

// A round ends early when twelve of its calls took three times what is normal, and not
// because of fewer, of quicker ones, or while a lower bound is on trial.
func TestLatency_EndsARoundEarly(t *testing.T) {
	for _, c := range []struct {
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
		r := New(Config{})
		l := &r.latency
		l.base, l.known, l.testing = .1, knownAfter, c.testing
		for range c.calls {
			l.done(r, c.took, Call{round: l.leave(r), cost: 1, inFlight: 20}, true)
		}
		if got := l.round == 1; got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}

// The unit of which the same was granted from one refusal to the next becomes more likely, the
// others less.
func TestCompare(t *testing.T) {
	grew := func(by float64) Unit {
		// 20 calls in 10 s since the last refusal; 5 per second before.
		return Unit{Suspect: &Suspect{at: 20, sent: 40 + 50*by, calls: 40, empty: mark{10, 40, 20}, rate: 5}}
	}
	for _, c := range []struct {
		by, want []float64
	}{
		{[]float64{1, 2}, []float64{mostCycle, -mostCycle}},
		{[]float64{.5, 1}, []float64{-mostCycle, mostCycle}},
		{[]float64{1, 1}, []float64{0, 0}},
		{[]float64{2, 1, 3}, []float64{mostCycle, mostCycle, -mostCycle}}, // compared with the mean
	} {
		var units []Unit
		for _, by := range c.by {
			units = append(units, grew(by))
		}
		compare(20*time.Second, units)
		for i, u := range units {
			if math.Abs(u.odds-c.want[i]) > 1e-9 {
				t.Errorf("%v: unit %d has odds %v, want %v", c.by, i, u.odds, c.want[i])
			}
		}
	}
}

// A poll after more than a second of refusals leaves half a second after the full minute, if
// that is earlier than the backoff says.
func TestBlockage_PollsAfterTheMinute(t *testing.T) {
	for _, c := range []struct {
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
		r := New(Config{Clock: c.clock})
		r.pace.now = 10
		b := &r.blockage
		b.on, b.polls, b.gap, b.quiet = true, 1, c.gap, c.quiet
		b.again(r, c.t, Call{cost: 1, sent: c.t})
		equal(t, "next", r.next, c.want)
	}
}

// A part that grows takes the calls that were counted, and those to go, along.
func TestRule_SetShare_TakesCountsAlong(t *testing.T) {
	r := paced(t)
	r.Share(time.Second, 1, 2)
	r.pace.calls, r.pace.span, r.pace.rise, r.costly.hold = 40, 80, 20, 16
	r.Share(time.Second, .5, 2)
	equal(t, "calls", r.pace.calls, 20)
	equal(t, "span", r.pace.span, 40)
	equal(t, "rise", r.pace.rise, 10)
	equal(t, "hold", r.costly.hold, 8)
}

// What a call took more than was thought counts in the window that it left in.
func TestRule_Settle_CountsInAWindow(t *testing.T) {
	r := paced(t)
	r.phase, r.window.from, r.window.count, r.window.length, r.window.used = Windowed, 10, 100, 60, 5
	r.Settle(20*time.Second, 12*time.Second, 7)
	equal(t, "used", r.window.used, 12)
	r.Settle(20*time.Second, 9*time.Second, 7) // of the window before
	equal(t, "used", r.window.used, 12)
}

// What a window does next depends on whether all of it was granted.
func TestWindow_Next(t *testing.T) {
	for _, c := range []struct {
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
		r := paced(t)
		r.phase, r.window = Windowed, c.was
		r.window.length = 60
		w := &r.window
		w.next(r)
		if w.count != c.count || w.extra != c.extra || w.patience != c.patience || w.right != c.right || w.wrong != c.wrong {
			t.Errorf("%s: %+v", c.name, *w)
		}
		if w.used != 0 || w.denied || r.phase != Windowed {
			t.Errorf("%s: %+v in phase %v", c.name, *w, r.phase)
		}
	}
}

// The last empty point of a blockage goes forward in time and in what was granted.
func TestLedger_Again(t *testing.T) {
	var l ledger
	l.mark(point{at: 10, granted: 100})
	for _, c := range []struct {
		p    point
		want float64
	}{
		{point{at: 11, granted: 104}, 11},
		{point{at: 12, granted: 103}, 11}, // fewer than before: the order of replies
		{point{at: 10.5, granted: 105}, 11},
		{point{at: 13, granted: 104}, 13},
	} {
		l.again(c.p)
		equal(t, "at", l.last.at, c.want)
	}
}

// Answers count for a cap if they left since it was set, with as many in flight.
func TestCapacity_CountsAnswersAtTheCap(t *testing.T) {
	for _, c := range []struct {
		name     string
		since    uint32 // epochs ago
		inFlight int
		full     float64
	}{
		{"at the cap", 0, 8, 1},
		{"below it", 0, 7, 0},
		{"before it was set", 1, 8, 0},
	} {
		r := New(Config{})
		r.phase, r.epoch = Capped, 5
		k := &r.capacity
		k.limit, k.entry, k.patience = 8, 8, 1
		k.granted(r, Call{epoch: r.epoch - c.since, inFlight: int32(c.inFlight)})
		equal(t, c.name, k.full, c.full)
		k.full = 0
		if !k.refused(r, 1, Call{epoch: r.epoch - c.since, inFlight: 8}) {
			t.Errorf("%s: a refusal at a cap is one of a rate", c.name)
		}
		equal(t, c.name+", refused", k.bad, float64(1-c.since))
	}
}

// After six blockages that cost little refusals are not costly any more.
func TestCostly_Cheap(t *testing.T) {
	r := paced(t)
	r.phase = Bounding
	r.costly.low, r.costly.high = 5, 20
	for i := range 6 {
		if r.phase != Bounding {
			t.Fatalf("%v after %d", r.phase, i)
		}
		r.costly.cheap(r, Call{sent: 1})
	}
	if r.phase != Tracking || r.costly.high != 0 {
		t.Errorf("%v, %+v", r.phase, r.costly)
	}
}
