package adaptive

import (
	"math"
	"testing"
	"time"
)

// Use is a mean of ten seconds, and the most that was accepted falls to a third in a minute.
func TestSuspect_Fades(t *testing.T) {
	var s Suspect
	s.Started(0, 20)
	s.Granted(0, 20)
	equal(t, "use", s.use, 2)
	equal(t, "high", s.high, 2)
	s.pass(10)
	equal(t, "use after 10 s", s.use, 2/math.E)
	equal(t, "accepted after 10 s", s.won, 2/math.E)
	s.pass(60)
	equal(t, "high after a minute", s.high, 2/math.E)
	s.Denied(60*time.Second, 5)
	equal(t, "use is not negative", s.use, 0)
	equal(t, "sent", s.sent, 15)
	s.Settle(30)
	equal(t, "use", s.use, 3)
	if s.sent != 45 || s.calls != 0 {
		t.Errorf("%v in %v calls", s.sent, s.calls)
	}
}

// What was used in a short time says what it is per second, of one second at least.
func TestSuspect_Recent(t *testing.T) {
	for at, want := range map[float64]float64{0: 1 / (1 - math.Exp(-.1)), 1: math.Exp(-.1) / (1 - math.Exp(-.1)), 5: math.Exp(-.5) / (1 - math.Exp(-.5))} {
		var s Suspect
		s.Started(0, 10)
		equal(t, "recent", s.recent(seconds(at)), want)
	}
}

// A controller that begins now is told of the last 15 to 30 seconds.
func TestSuspect_Past(t *testing.T) {
	var s Suspect
	for at := range 61 {
		s.Started(time.Duration(at)*time.Second, 2)
	}
	p := s.Past(time.Second)
	if p.Since != 32*time.Second || p.Calls != 29 || p.Cost != 58 || p.Answer != time.Second {
		t.Errorf("%+v", p)
	}
}

// The mean cost follows a call by a twentieth. A rejected call of m times the mean makes its unit so many times as
// likely, one of nothing a tenth, once eight calls were made; and of earlier evidence 97 % stay.
func TestSuspect_Size(t *testing.T) {
	var m Suspect
	m.Started(0, 10)
	m.Started(0, 30)
	equal(t, "mean", m.mean, 11)
	for _, tc := range []struct{ calls, cost, want float64 }{
		{8, 10, .485}, {8, 30, .485 + math.Log(2.8)}, {8, 0, .485 + math.Log(.1)}, {7, 30, .485},
	} {
		s := Candidate{Suspect: &Suspect{calls: tc.calls, mean: 10, odds: .5}, Cost: tc.cost}
		s.size()
		equal(t, "odds", s.odds, tc.want)
	}
}

// A unit that is used at its bound is as likely as one of which nothing is known; at half of it a sixteenth, and at
// twice it 16 times, but no more than e³.
func TestSuspect_Pressure(t *testing.T) {
	for _, tc := range []struct{ use, high, proved, want float64 }{
		{10, 10, 0, 0}, {5, 10, 0, 4 * math.Log(.5)}, {12, 10, 0, 4 * math.Log(1.2)}, {12, 10, 12, 0}, {1, 10, 0, -3}, {100, 10, 0, 3}, {0, 10, 0, 0}, {5, 0, 0, 0},
	} {
		s := Candidate{Suspect: &Suspect{use: tc.use, high: tc.high, proved: tc.proved}}
		equal(t, "pressure", s.pressure(), tc.want)
	}
}

// A cycle of 12 calls says by how much the rate differs, to 2 % and two calls.
func TestSuspect_Cycle(t *testing.T) {
	for _, tc := range []struct {
		calls         float64
		differs, most float64
		ok            bool
	}{{12, math.Log(12. / 10 / 5), .02 + 2./12, true}, {11, 0, 0, false}, {50, 0, .06, true}} {
		s := Suspect{sent: 100 + tc.calls, calls: 40 + tc.calls, empty: mark{10, 100, 40}, rate: 5}
		differs, most, ok := s.cycle(20)
		if ok != tc.ok {
			t.Errorf("%+v: %t", tc, ok)
		}
		equal(t, "differs", differs, tc.differs)
		equal(t, "error", most, tc.most)
		if ok {
			equal(t, "rate", s.rate, tc.calls/10)
		}
	}
}

// The unit that was blamed last has an advantage of 0.3, and evidence of earlier rejections counts for one at most.
func TestBlame_Last(t *testing.T) {
	for odds, want := range map[float64]int{.28: 0, .34: 1} {
		all := []Candidate{{Suspect: &Suspect{}, Cost: 1}, {Suspect: &Suspect{odds: odds}, Cost: 1}}
		if got := Blame(0, all, 0); got != want {
			t.Errorf("odds of %v: unit %d", odds, got)
		}
	}
	all := []Candidate{{Suspect: &Suspect{odds: 5}, Cost: 1}, {Suspect: &Suspect{odds: -5}, Cost: 1}}
	Blame(0, all, 0)
	equal(t, "odds", all[0].odds, 1)
	equal(t, "odds", all[1].odds, -1)
}

// A unit whose evidence is 1.2 more than that of each other one is certainly to blame, and the others are forgotten.
func TestBlame_Convicts(t *testing.T) {
	for odds, want := range map[float64]bool{.65: true, .55: false} {
		other := tracking(10)
		all := []Candidate{{Suspect: &Suspect{odds: odds / .97}, Cost: 1}, {Suspect: &Suspect{odds: -.6 / .97}, Controller: other, Cost: 1}}
		Blame(0, all, 0)
		if all[0].sure != want || (other.phase == Unlimited) != want {
			t.Errorf("odds of %v: sure %t, the other one is %v", odds, all[0].sure, other.phase)
		}
	}
}

// The first accusation without a time may be chance. Another within 25 calls is none, and the controller begins at
// what its unit was used.
func TestSuspect_Accuse(t *testing.T) {
	for _, tc := range []struct {
		later float64
		told  bool
		want  bool
	}{{25, false, true}, {26, false, false}, {26, true, true}} {
		c := New(Config{Unlimited: true})
		c.TakeOver(0, Past{Calls: 1, Cost: 1})
		s := Candidate{Suspect: &Suspect{calls: 10, rate: 7}, Controller: c}
		if s.Accuse(0, false) {
			t.Error("the first accusation is enough")
		}
		s.calls += tc.later
		if got := s.Accuse(0, tc.told); got != tc.want {
			t.Errorf("%+v: %t", tc, got)
		}
		if tc.want {
			equal(t, "rate", c.pace.rate, 7)
		}
	}
}

// What one cycle says counts for a half at most.
func TestCompare_Most(t *testing.T) {
	unit := func(sent float64) Candidate {
		return Candidate{Suspect: &Suspect{at: 20, sent: sent, calls: 40, empty: mark{10, 40, 20}, rate: 5}}
	}
	units := []Candidate{unit(90), unit(900)}
	compare(20*time.Second, units)
	equal(t, "the same was accepted", units[0].odds, .5)
	equal(t, "more was", units[1].odds, -.5)
}
