package adaptive

import (
	"math"
	"testing"
	"time"
)

// evenly lets 200 calls leave in 20 s, each of which takes the amounts of one unit each.
func evenly(now time.Duration, units []Candidate, amounts ...float64) time.Duration {
	for range 200 {
		for i, u := range units {
			u.Started(now, amounts[i])
			u.Granted(now, amounts[i])
		}
		now += 100 * time.Millisecond
	}
	return now
}

// Which of two units is to blame for a refusal: 0 is calls, 1 is tokens.
func TestBlame(t *testing.T) {
	for _, c := range []struct {
		name   string
		tokens float64 // of the refused calls
		before float64 // tokens of 5 calls shortly before
		last   int
		want   int
	}{
		{"nothing tells: the last one", 50, 50, 0, 0},
		{"nothing tells: the last one, tokens", 50, 50, 1, 1},
		{"large calls are refused", 90, 50, 0, 1},
		{"small calls are refused", 5, 50, 1, 0},
		{"more tokens than ever", 50, 5000, 0, 1},
		{"a call without tokens", 0, 5000, 1, 0},
	} {
		units := []Candidate{{Suspect: new(Suspect)}, {Suspect: new(Suspect)}}
		now := evenly(0, units, 1, 50)
		for range 5 {
			units[0].Started(now, 1)
			units[1].Started(now, c.before)
			now += 100 * time.Millisecond
		}
		var blamed int
		for range 3 {
			units[0].Cost, units[1].Cost = 1, c.tokens
			blamed = Blame(now, units, c.last)
		}
		if blamed != c.want {
			t.Errorf("%s: unit %d is blamed: %+v, %+v", c.name, blamed, *units[0].Suspect, *units[1].Suspect)
		}
	}
}

// The unit of which the server grants the same from one refusal to the next is to blame.
func TestBlame_Cycles(t *testing.T) {
	for want := range 2 {
		units := []Candidate{{Suspect: new(Suspect)}, {Suspect: new(Suspect)}}
		now, last := time.Duration(0), 1-want
		for i := range 12 {
			amounts := []float64{1, 50}
			amounts[1-want] *= 1 + .4*float64(i%3)
			now = evenly(now, units, amounts...)
			units[0].Cost, units[1].Cost = 1, units[1].mean
			last = Blame(now, units, last)
		}
		if last != want {
			t.Errorf("unit %d is blamed, not %d: %+v, %+v", last, want, *units[0].Suspect, *units[1].Suspect)
		}
	}
}

// A controller that another unit was blamed for again and again has no pace any more.
func TestController_Acquit(t *testing.T) {
	c := New(Config{Unlimited: true, Paced: true})
	c.TakeOver(0, Past{Calls: 10, Cost: 500, Rate: 400})
	if c.CallsPerSecond() != 400*(1-margin)/50 {
		t.Fatalf("%v calls per second", c.CallsPerSecond())
	}
	c.acquit(time.Second)
	if b := c.Belief(); b.Phase != Unlimited || b.Pace != 0 || b.Why != Acquitted || c.CallsPerSecond() != 0 {
		t.Errorf("%+v", b)
	}
	if at := c.Demand(time.Second, 0); at != time.Second {
		t.Errorf("the next call leaves at %v", at)
	}
}

// A call that was refused elsewhere took nothing.
func TestController_Elsewhere(t *testing.T) {
	c := New(Config{Paced: true})
	c.TakeOver(0, Past{Calls: 1, Cost: 1, Rate: 10})
	c.Demand(0, 0)
	call := c.Started(0, 1, 0)
	before := c.Demand(0, 1)
	c.Elsewhere(0, call)
	if after := c.Demand(0, 0); after != 0 || before == 0 || c.ledger.sent-c.ledger.denied != 1 || c.Belief().Refusals != 0 {
		t.Errorf("the next call leaves at %v, before at %v: %+v", after, before, c.ledger)
	}
}

// FuzzBlame plays any history of three units. The evidence stays within its bounds, a unit is
// blamed of which the call takes, and the controllers keep their promises.
func FuzzBlame(f *testing.F) {
	f.Add([]byte{1, 2, 3, 4, 5, 6, 7, 8, 200, 100, 101, 250, 251, 130, 10, 64, 65, 128, 129, 192, 193})
	f.Fuzz(func(t *testing.T, history []byte) {
		if len(history) > 2000 {
			return
		}
		units := make([]Candidate, 3)
		for i := range units {
			c := New(Config{Unlimited: true, Paced: i > 0})
			c.TakeOver(0, Past{Calls: 1, Cost: 1})
			units[i] = Candidate{Suspect: new(Suspect), Controller: c}
		}
		var out [][3]Call
		now, last := time.Duration(0), 0
		for _, b := range history {
			n := int(b & 63)
			switch b >> 6 {
			case 0:
				now += time.Duration(math.Exp(float64(n)/63*22) * 1e3)
			case 1:
				var calls [3]Call
				for i := range units {
					cost := []float64{1, float64(n + 1), float64(n * n)}[i]
					units[i].Started(now, cost)
					calls[i] = units[i].Controller.Started(now, cost, len(out))
				}
				out = append(out, calls)
			default:
				if len(out) == 0 {
					continue
				}
				calls := out[n%len(out)]
				out = append(out[:n%len(out)], out[n%len(out)+1:]...)
				if b>>6 == 2 {
					for i := range units {
						units[i].Granted(now, calls[i].cost)
						units[i].Controller.Ended(now, calls[i], Reply{})
					}
					continue
				}
				for i := range units {
					units[i].Cost = calls[i].cost
				}
				last = Blame(now, units, last)
				if units[last].Cost == 0 {
					t.Fatalf("unit %d is blamed, of which the call takes nothing", last)
				}
				blames := units[last].Accuse(now, n%2 == 0)
				for i := range units {
					units[i].Denied(now, calls[i].cost)
					if i == last && blames {
						units[i].Controller.Ended(now, units[i].Controller.Accused(calls[i]), Reply{Outcome: Refused})
					} else {
						units[i].Controller.Elsewhere(now, calls[i])
					}
				}
			}
			for i, u := range units {
				s := u.Suspect
				for _, x := range []float64{s.use, s.won, s.high, s.mean, s.rate, s.proved, u.Controller.Belief().Pace, u.Controller.next} {
					if math.IsNaN(x) || math.IsInf(x, 0) || x < 0 {
						t.Fatalf("unit %d: %v in %+v", i, x, *s)
					}
				}
				if math.Abs(s.odds) > mostOdds+mostCycle {
					t.Fatalf("unit %d: odds %v", i, s.odds)
				}
			}
		}
	})
}
