package adaptive

import (
	"fmt"
	"testing"
)

// slowed returns a controller that bounds the calls in flight because of latency, which is normally 0.1 s.
func slowed(limit float64) *Controller {
	c := tracking(100)
	c.phase, c.capacity.limit = Slowed, limit
	c.latency.base, c.latency.known, c.latency.quickest = .1, 64, .1
	return c
}

// The first round has 8 calls, others have 48, and where the calls in flight are bounded eight times the bound, 256 at most.
func TestLatency_Size(t *testing.T) {
	for _, tc := range []struct {
		base, limit float64
		phase       Phase
		want        int
	}{{0, 40, Slowed, 8}, {.1, 5, Slowed, 48}, {.1, 10, Slowed, 80}, {.1, 40, Slowed, 256}, {.1, 40, Capped, 48}} {
		c := slowed(tc.limit)
		c.phase, c.latency.base = tc.phase, tc.base
		if got := c.latency.size(c); got != tc.want {
			t.Errorf("%+v: %d", tc, got)
		}
	}
}

// A round ends when all of its calls are back, or if half of them are and twice as many others, 64 at least, and three
// times as many as are in flight if these are not bounded. Its latency is the mean of those that were served, and one of a straggler counts as six times the normal one.
func TestLatency_Round(t *testing.T) {
	inFlight := int32(4)
	play := func(c *Controller, own, others int, took float64) {
		l := &c.latency
		for range own {
			l.ended(c, took, Call{round: l.round + 1, inFlight: inFlight}, true)
		}
		for range others {
			l.ended(c, took, Call{}, true)
		}
	}
	for _, tc := range []struct {
		own, others int
		want        uint32
	}{{47, 0, 0}, {48, 0, 1}, {24, 95, 0}, {24, 96, 1}, {23, 500, 0}} {
		c := slowed(5)
		if play(c, tc.own, tc.others, .1); c.latency.round != tc.want {
			t.Errorf("%+v: round %d", tc, c.latency.round)
		}
	}
	inFlight = 1000
	for others, want := range map[int]uint32{2999: 0, 3000: 1} {
		c := slowed(5)
		c.phase, c.capacity.limit = Tracking, c.capacity.most
		if play(c, 24, others, .1); c.latency.round != want {
			t.Errorf("1,000 in flight, %d others back: round %d", others, c.latency.round)
		}
	}
	inFlight = 4
	first := New(Config{})
	first.Started(0, 1, 0)
	play(first, 7, 0, .2)
	play(first, 1, 0, .4)
	equal(t, "normal latency", first.latency.base, .225)
	c := slowed(5)
	play(c, 1, 0, 60)
	equal(t, "a straggler", c.latency.sum, .6)
	c = slowed(5)
	if play(c, 8, 63, .2); c.latency.round != 0 {
		t.Error("a round ends by others")
	}
}

// The normal latency is the mean of the first 64 calls that had few in flight, or were not half as slow again. Later
// it falls by a fifth of the difference, and rises by 0.3 % a round.
func TestLatency_Base(t *testing.T) {
	for _, tc := range []struct {
		name            string
		known, mean, in float64
		limited         bool
		want            float64
	}{
		{"few in flight", 16, .4, 4, false, .1 + .3*48/64},
		{"more, but not slow", 16, .149, 5, false, .1 + .049*48/64},
		{"more, and slow", 16, .16, 5, false, .1003},
		{"63 calls", 63, .12, 4, false, .1 + .02*48/111},
		{"64", 64, .12, 4, false, .1003},
		{"quicker", 64, .05, 9, false, .09},
		{"while bounded", 64, .11, 9, true, .1},
	} {
		c := slowed(20)
		c.latency.known = tc.known
		if !tc.limited {
			c.phase, c.capacity.limit = Tracking, c.capacity.most
		}
		c.latency.judge(c, tc.mean, tc.in, 48)
		equal(t, tc.name, c.latency.base, tc.want)
	}
}

// A server is slow because of the calls in flight if it takes half as long again, with four of them, and 20 ms more.
// Then as many may be in flight as take the normal time, and 15 % more.
func TestLatency_Cuts(t *testing.T) {
	for _, tc := range []struct {
		name           string
		base, mean, in float64
		want           float64 // 0: it is not cut
	}{
		{"slow", .1, .2, 40, 40 / 2 * 1.15},
		{"half as slow again", .1, .149, 40, 0},
		{"and a little more", .1, .151, 40, 40 / 1.51 * 1.15},
		{"three in flight", .1, .2, 3.9, 0},
		{"four", .1, .2, 4, 2.3},
		{"two at least", .1, 1, 4, 2},
		{"19 ms", .01, .029, 40, 0},
		{"21 ms", .01, .031, 40, 40 / 3.1 * 1.15},
	} {
		c := slowed(40)
		c.phase, c.capacity.limit, c.latency.base = Tracking, c.capacity.most, tc.base
		c.pace.rate = 77
		c.latency.judge(c, tc.mean, tc.in, 48)
		switch {
		case tc.want == 0 && c.phase != Tracking:
			t.Errorf("%s: cut to %v", tc.name, c.capacity.limit)
		case tc.want > 0:
			// Latency that is not normal lets what is normal rise by 0.3 %.
			want := max(2, tc.in/(tc.mean/(tc.base*1.003))*1.15)
			equal(t, tc.name, c.capacity.limit, want)
			if d := want / tc.want; d < .99 || d > 1.01 {
				t.Errorf("%s: %v, want about %v", tc.name, want, tc.want)
			}
			equal(t, tc.name+", rate", c.pace.rate, 77)
		}
	}
	// A search has measured a rate: as many as were in flight, in the time that they took.
	c := slowed(40)
	c.phase, c.capacity.limit = Searching, c.capacity.most
	c.latency.judge(c, .2, 40, 48)
	equal(t, "rate", c.pace.rate, 200)
}

// A bound that holds calls back falls by 7 % if they take a fifth longer than normal, and rises if they take 12 %
// longer at most. One that does not, although fewer than half of it are in flight, rises by half.
func TestLatency_Moves(t *testing.T) {
	for _, tc := range []struct {
		name     string
		held     int
		mean, in float64
		want     float64
	}{
		{"21 % longer", 1, .121, 20, 18.6},
		{"19 %", 1, .119, 20, 20},
		{"13 %", 1, .113, 20, 20},
		{"11 %", 1, .111, 20, 21},
		{"it holds nothing back", 0, .111, 11, 20},
		{"and half of it are in flight", 0, .119, 9.9, 30},
		{"likewise, and they are slow", 0, .121, 9.9, 20},
	} {
		c := slowed(20)
		c.capacity.held = tc.held
		c.latency.judge(c, tc.mean, tc.in, 48)
		equal(t, tc.name, c.capacity.limit, tc.want)
	}
}

// A bound of at most half of what was fine before doubles, although the latency is up to half as long again. What was fine
// is forgotten a twentieth a round, and if the latency is that of a server that is loaded.
func TestLatency_Fine(t *testing.T) {
	for _, tc := range []struct {
		name        string
		held        int
		fine, mean  float64
		limit, left float64
	}{
		{"fine", 1, 40, .149, 40, 40},
		{"nearly", 1, 39, .149, 18.6, 39},
		{"not held", 0, 40, .149, 20, 40},
		{"slow", 1, 40, .2, 20 / 2. * 1.15, 0},
	} {
		c := slowed(20)
		c.capacity.held, c.latency.fine = tc.held, tc.fine
		c.latency.judge(c, tc.mean, 20, 48)
		equal(t, tc.name+", limit", c.capacity.limit, tc.limit)
		equal(t, tc.name+", fine", c.latency.fine, tc.left)
	}
	c := tracking(100)
	c.latency.base, c.latency.known = .1, 64
	for i, tc := range []struct{ mean, in, want float64 }{{.1, 100, 100}, {.1, 50, 95}, {.13, 200, 95}, {.1, 95, 95}} {
		c.latency.judge(c, tc.mean, tc.in, 48)
		equal(t, fmt.Sprint("fine in round ", i), c.latency.fine, tc.want)
	}
	c.phase, c.capacity.limit, c.latency.fine = Slowed, 14, 1000
	if got := c.latency.size(c); got != roundSize {
		t.Errorf("a round has %d calls", got)
	}
}

// While a lower bound is on trial, and 15 % fewer calls are in flight, they must take 12 % less. Otherwise the server
// is slow by itself: that is normal now, and 30 % more than before may be in flight.
func TestLatency_Trial(t *testing.T) {
	for _, tc := range []struct {
		name         string
		in, mean     float64
		limit, base  float64
		stillTesting bool
	}{
		{"as slow", 16, .27, 26, .27, false},
		{"a little quicker", 16, .265, 26, .265, false},
		{"quicker", 16, .26, 16 / 2.6 * 1.15, .1, true},
		{"as many in flight", 17.1, .27, 17.1 / 2.7 * 1.15, .1, true},
		{"a few less", 16.9, .27, 26, .27, false},
	} {
		c := slowed(30)
		l := &c.latency
		l.testing, l.wasIn, l.wasTook = true, 20, .3
		l.judge(c, tc.mean, tc.in, 48)
		equal(t, tc.name+", limit", c.capacity.limit, tc.limit)
		equal(t, tc.name+", normal", l.base, tc.base)
		if l.testing != tc.stillTesting {
			t.Errorf("%s: on trial %t", tc.name, l.testing)
		}
	}
}

// A look comes after four rounds in which the bound holds calls back, eight of a cap; if eight calls are in flight,
// and take six times what the quickest one did.
func TestLatency_Looks(t *testing.T) {
	for _, tc := range []struct {
		name     string
		phase    Phase
		mean, in float64
		rounds   int
		want     bool
	}{
		{"four rounds", Slowed, .61, 8, 4, false},
		{"five", Slowed, .61, 8, 5, true},
		{"a cap, eight", Capped, .61, 8, 8, false},
		{"a cap, nine", Capped, .61, 8, 9, true},
		{"not slow", Slowed, .29, 8, 5, false},
		{"three times as slow as the quickest call", Slowed, .31, 8, 5, true},
		{"a cap, not slow", Capped, .59, 8, 9, false},
		{"seven in flight", Slowed, .61, 7.9, 9, false},
		{"no bound", Tracking, .61, 8, 9, false},
	} {
		c := slowed(10)
		c.phase = tc.phase
		for range tc.rounds {
			c.capacity.held = 1
			c.latency.look(c, tc.mean, tc.in)
		}
		if c.latency.looking != tc.want {
			t.Errorf("%s: it looks: %t", tc.name, c.latency.looking)
		}
		if tc.want {
			equal(t, tc.name, c.capacity.limit, 5)
		}
	}
}

// A look shows that fewer calls are served faster if 95 % as many are served per second as in the best round before;
// of a cap half more. Otherwise the bound is what it was, and the next look comes after twice as many rounds, 256 at
// most. One that is not used for three rounds ends.
func TestLatency_Looked(t *testing.T) {
	for _, tc := range []struct {
		name   string
		phase  Phase
		mean   float64 // with 5 in flight, where the best was 10 per second
		faster bool
		rest   int
	}{
		{"9.6 per second", Slowed, 5 / 9.6, true, 0},
		{"9.4", Slowed, 5 / 9.4, false, 20},
		{"a cap, 15.1", Capped, 5 / 15.1, true, 0},
		{"a cap, 14.9", Capped, 5 / 14.9, false, 20},
	} {
		c := slowed(10)
		c.phase = tc.phase
		l := &c.latency
		l.looking, l.wasIn, l.wasLimit, l.best, l.rest = true, 10, 10, 10, 10
		l.bind(c, 5)
		l.look(c, tc.mean, 8.6) // most of this round started before
		if !l.looking {
			t.Errorf("%s: it ends with calls that started before it", tc.name)
		}
		l.look(c, tc.mean, 5)
		if l.looking || (c.capacity.limit == 5) != tc.faster || l.rest != tc.rest {
			t.Errorf("%s: looking %t, limit %v, %d rounds", tc.name, l.looking, c.capacity.limit, l.rest)
		}
		if tc.faster && (c.phase != Slowed || l.base != tc.mean || l.rounds != 4) { // the next look comes soon
			t.Errorf("%s: %v, normal is %v", tc.name, c.phase, l.base)
		}
		if tc.faster && tc.phase == Capped {
			equal(t, "rate", c.pace.rate, 15.1)
		}
	}
	c := slowed(10)
	l := &c.latency
	l.looking, l.wasIn, l.wasLimit = true, 10, 10
	l.bind(c, 5)
	for range 3 {
		l.look(c, .61, 9)
	}
	if !l.looking {
		t.Error("it ends after three rounds")
	}
	if l.look(c, .61, 9); l.looking || c.capacity.limit != 10 || l.rest != 256 {
		t.Errorf("after four rounds: looking %t, limit %v, %d rounds", l.looking, c.capacity.limit, l.rest)
	}
	c.capacity.held, l.rest = 1, 1000
	if l.look(c, .61, 9); l.rest != 256 {
		t.Errorf("%d rounds between two looks", l.rest)
	}
}

// A bound of 100,000 calls or more is none.
func TestLatency_Bind(t *testing.T) {
	c := slowed(20)
	c.latency.bind(c, 99000)
	equal(t, "limit", c.capacity.limit, 99000)
	c.latency.bind(c, 101000)
	if c.phase != Tracking || c.capacity.limit != c.capacity.most {
		t.Errorf("%v with a bound of %v", c.phase, c.capacity.limit)
	}
}
