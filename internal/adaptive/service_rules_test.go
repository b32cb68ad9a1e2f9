package adaptive

import (
	"math"
	"testing"
)

// A good time is a minute at least. What was accepted in it is what was accepted lately, but no more than the rate.
func TestService_Trouble(t *testing.T) {
	for _, tc := range []struct {
		name        string
		at, begin   float64
		phase       Phase
		sent        float64
		since, rate float64
		believed    Phase
	}{
		{"59 s", 159, 100, Tracking, 100, 0, 0, Unlimited},
		{"a minute", 160, 100, Tracking, 100, 160, 5, Tracking},
		{"more than the rate", 160, 100, Tracking, 1000, 160, 10, Tracking},
		{"in a window", 160, 100, Windowed, 1000, 160, 50, Tracking},
		{"while rejections are costly", 160, 100, Bounding, 100, 160, 5, Bounding},
	} {
		c := tracking(10)
		c.phase, c.costly.low = tc.phase, 3
		c.ledger.earlier, c.ledger.sent = point{at: 140}, tc.sent
		s := &c.service
		s.begin, s.asked, s.fell, s.back = tc.begin, 9, true, 7
		s.trouble(c, point{at: tc.at})
		equal(t, tc.name+", since", s.since, tc.since)
		equal(t, tc.name+", rate", s.rate, tc.rate)
		if s.phase != tc.believed {
			t.Errorf("%s: %v", tc.name, s.phase)
		}
		if tc.since > 0 && (s.asked != 0 || s.fell || s.back != 0) {
			t.Errorf("%s: %+v", tc.name, *s)
		}
		if want := map[bool]float64{true: 3}[tc.believed != Unlimited && tc.phase != Windowed]; s.bounds.low != want {
			t.Errorf("%s: the bounds were %v", tc.name, s.bounds.low)
		}
	}
}

// Trouble that is as long as the good time before is the usual state, and a good time that began with it.
func TestService_UsualState(t *testing.T) {
	for at, want := range map[float64]float64{199: 100, 201: 201} {
		c := tracking(10)
		c.at, c.service = at, service{begin: 0, since: 100}
		c.service.trouble(c, point{at: at})
		equal(t, "since", c.service.since, want)
	}
}

// The pace has fallen if the rate is less than nine tenths of what was accepted; then the wait is a third of the trouble.
func TestService_Wait(t *testing.T) {
	for _, tc := range []struct{ rate, asked, want float64 }{{8.9, 1, 10}, {9, 1, math.Inf(1)}, {8.9, 6, 12}, {8.9, 0, math.Inf(1)}} {
		c := tracking(10)
		c.at, c.pace.rate = 130, tc.rate
		s := &c.service
		*s = service{begin: 0, since: 100, rate: 10, asked: tc.asked}
		if got := s.wait(c); got != tc.want && math.Abs(got-tc.want) > 1e-9 {
			t.Errorf("%+v: %v s", tc, got)
		}
		if s.fell != !math.IsInf(tc.want, 1) {
			t.Errorf("%+v: fell %t", tc, s.fell)
		}
	}
	s := service{asked: 5}
	s.refused(3)
	equal(t, "the longest wait counts", s.asked, 5)
	s.refused(7)
	equal(t, "the longest wait counts", s.asked, 7)
}

// Once the pace is back at nine tenths for more than ten seconds, or a third of the trouble, and half of that was
// accepted, the trouble is over.
func TestService_Over(t *testing.T) {
	for _, tc := range []struct {
		name         string
		pace         float64
		since        float64
		took, got    float64
		over, stands bool // the time is still counted from where it was
	}{
		{"ten seconds", 9, 90, 10, 100, false, true},
		{"a little longer", 9, 90, 10.1, 100, true, true},
		{"the pace is too low", 8.9, 90, 10.1, 100, false, false},
		{"a third of the trouble", 9, 40, 20, 200, false, true},
		{"and longer", 9, 40, 20.1, 200, true, true},
		{"half was accepted", 9, 90, 10.1, 50.6, true, true},
		{"less than half", 9, 90, 10.1, 50.4, false, false},
	} {
		c := tracking(10)
		c.pace.now = tc.pace
		c.ledger.sent = 1000 + tc.got
		c.service = service{begin: 0, since: tc.since, rate: 10, back: 100, before: 1000, fell: true}
		c.service.paced(c, 100+tc.took)
		if over := c.service.since == 0; over != tc.over {
			t.Errorf("%s: over %t", tc.name, over)
		}
		if tc.over {
			equal(t, tc.name+", the good time began", c.service.begin, 100)
		} else if stands := c.service.back == 100; stands != tc.stands {
			t.Errorf("%s: it is back since %v", tc.name, c.service.back)
		}
	}
}

// When the pace is back, what was believed before is believed again, 1 % less in a group.
func TestService_BelievesAgain(t *testing.T) {
	for peers, want := range map[int64]float64{0: 10, 1: 10, 2: 9.9} {
		c := tracking(10)
		c.phase, c.pace.now, c.sharing.peers = Bounding, 9, peers
		c.costly, c.blockage.quiet = costly{low: 1, high: 2, start: point{at: 77}}, 5
		c.service = service{begin: 0, since: 90, rate: 10, fell: true, phase: Bounding, bounds: costly{low: 8, high: 12}}
		c.service.paced(c, 100)
		equal(t, "rate", c.pace.rate, want)
		if c.costly.low != 8 || c.costly.start.at != 77 || c.blockage.quiet != 0 || c.why != Incident {
			t.Errorf("%+v because of %v", c.costly, c.why)
		}
	}
}

// A costly blockage ends a good time, but in trouble that may be an incident.
func TestService_Paid(t *testing.T) {
	for asked, want := range map[float64]float64{0: 130, 1: 0} {
		c := tracking(10)
		c.at, c.service = 130, service{begin: 0, since: 100, asked: asked}
		c.service.paid(c, 130)
		equal(t, "begin", c.service.begin, want)
	}
	for rate, want := range map[float64]bool{9: false, 8.9: true} {
		c := tracking(10)
		c.pace.rate, c.service = rate, service{rate: 10, fell: true}
		if c.service.measured(c); c.service.fell != want {
			t.Errorf("%v/s: fell %t", rate, c.service.fell)
		}
	}
	// A rejection that ends a look, or one of a group, has measured the rate. Others may be an incident.
	for _, tc := range []struct {
		peers   int64
		looking bool
		want    bool
	}{{2, false, false}, {1, true, false}, {1, false, true}} {
		c := bounding(10, 9.9, 11)
		c.costly.measured = true
		c.sharing.peers, c.costly.looking = tc.peers, tc.looking
		c.blockage.rate, c.blockage.pace = 10, 12
		c.at, c.service = 130, service{rate: 10, since: 100, asked: 60, fell: true}
		endBan(c, 60)
		if c.service.fell != tc.want {
			t.Errorf("%+v: fell %t, at %v/s", tc, c.service.fell, c.pace.rate)
		}
	}
}
