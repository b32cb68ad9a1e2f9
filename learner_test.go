package sluice

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice/internal/adaptive"
	"github.com/sluice-go/sluice/limits"
)

// A gate with a rate begins to learn at the second refusal within 500 calls if the server asks
// for waits, and at the third within 32 if not. Refusals of calls in flight together are one.
func TestStrikes_Add(t *testing.T) {
	type refusal struct {
		now, since time.Duration
		granted    uint64
		told, want bool
	}
	const s = time.Second
	for name, refusals := range map[string][]refusal{
		"untold, the third of 33": {{1 * s, 0, 1, false, false}, {2 * s, 2 * s, 10, false, false}, {3 * s, 3 * s, 33, false, true}},
		"untold, a call too late": {{1 * s, 0, 1, false, false}, {2 * s, 2 * s, 10, false, false}, {3 * s, 3 * s, 34, false, false}, {4 * s, 4 * s, 40, false, true}},
		"told, the second of 501": {{1 * s, 0, 1, true, false}, {2 * s, 2 * s, 501, true, true}},
		"told, a call too late":   {{1 * s, 0, 1, true, false}, {2 * s, 2 * s, 502, true, false}, {3 * s, 3 * s, 503, true, true}},
		"in flight together":      {{1 * s, 0, 1, true, false}, {2 * s, s, 2, true, false}, {3 * s, s + 1, 3, true, true}},
	} {
		var strikes strikes
		for i, r := range refusals {
			if got := strikes.add(r.now, r.since, r.granted, r.told); got != r.want {
				t.Errorf("%s: refusal %d: %v", name, i+1, got)
			}
		}
	}
}

// learning returns the locked learner of a gate that has just begun to learn, and must be
// called in a bubble.
func learning(t *testing.T, cfg Config) *learner {
	t.Helper()
	g := limits.Must(New(cfg))
	g.queue.Lock()
	t.Cleanup(g.queue.Unlock)
	g.learn(g.queue.Now(), 1)
	return g.learner
}

// A rate of calls is learned in calls, whatever they cost.
func TestLearner_TakeOver_InCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := limits.Must(New(Config{Rate: Rate{Count: 10, Per: time.Second}, RateUnit: Calls}))
		g.queue.Lock()
		defer g.queue.Unlock()
		g.granted, g.sent = 50, 5000
		g.learn(g.queue.Now(), 100)
		if got := g.learner.rule.CallsPerSecond(); got < 9 || got > 10 {
			t.Errorf("%v calls per second", got)
		}
	})
}

// Those who are late make up for CatchUp at most, at a learned pace, too.
func TestLearner_Leave_MakesUpForCatchUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := learning(t, Config{Rate: Rate{Count: 10, Per: time.Second}, CatchUp: 500 * time.Millisecond})
		now, n := 60*time.Second, 0
		for due := now - 10*time.Second; l.wait(now, 1, nil, 1) == 0; due += 100 * time.Millisecond {
			l.leave(now, due, 1, nil, 1)
			n++
		}
		if n < 5 || n > 7 {
			t.Errorf("%d calls left at once after 10 s, of which 5 may make up for those missed", n)
		}
	})
}

// twoUnits returns a learner whose calls cost 1, at 10 per second, and take tokens, of which it
// knows 100 per second.
func twoUnits(t *testing.T) (l *learner, tokens *belief) {
	t.Helper()
	l = learning(t, Config{Rate: Rate{Count: 10, Per: time.Second}, Concurrency: 7})
	tokens = l.add("tokens")
	tokens.rule = l.gate.furtherRule(tokens.unit)
	tokens.rule.TakeOver(0, adaptive.Past{Rate: 100, Calls: 10, Cost: 100})
	return l, tokens
}

// Who only looks is told the longest wait of all units.
func TestLearner_LooksLike_TheLongestWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, tokens := twoUnits(t)
		l.leave(0, 0, 1, Costs{"tokens": 300}, 1)
		calls, most := until(0, l.rule.Wait(0, 1)), until(0, tokens.rule.Wait(0, 1))
		if most < time.Second || calls > 200*time.Millisecond {
			t.Fatalf("waits of %v and %v", calls, most)
		}
		if got := l.looksLike(0, 1); got != most {
			t.Errorf("%v, want %v", got, most)
		}
	})
}

// Only the unit that holds a call up longest sees that it waits.
func TestLearner_Wait_IsDemandForTheLongest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, tokens := twoUnits(t)
		l.leave(0, 0, 1, Costs{"tokens": 300}, 1)
		call := Costs{"tokens": 100}
		if got, want := l.wait(0, 1, call, 1), until(0, tokens.rule.Wait(0, 1)); got != want {
			t.Errorf("waits %v, want %v", got, want)
		}
	})
}

// A unit that is not the first is bounded neither by the rate nor by the concurrency of the gate.
func TestGate_FurtherRule_IsNotBoundedByTheGate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, tokens := twoUnits(t)
		if at := tokens.rule.Wait(time.Minute, 7); at == adaptive.Never {
			t.Error("seven calls in flight hold a unit up")
		}
		if at := l.rule.Wait(time.Minute, 7); at != adaptive.Never {
			t.Errorf("seven calls in flight do not hold up the first unit: %v", at)
		}
		if b := tokens.rule.Belief(); b.Rate < 90 {
			t.Errorf("%v tokens per second", b.Rate)
		}
	})
}

// A gate forgets that it has learned when its own rate is granted, but not what it knows of
// other units.
func TestGate_ForgetLearned_NotWithSeveralUnits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, tokens := twoUnits(t)
		g := l.gate
		for now := time.Duration(0); !l.rule.AtMax(); now = l.rule.Next(now, 0) {
			if now > 24*time.Hour {
				t.Fatal("the rate is not granted")
			}
			l.rule.Done(now, l.rule.Leave(now, 1, 1), adaptive.Reply{})
		}
		l.blamed = &l.belief
		if g.forgetLearned(); g.learner == nil {
			t.Fatal("what was learned of tokens is forgotten")
		}
		l.more, tokens.rule = nil, nil
		if g.forgetLearned(); g.learner != nil {
			t.Error("it goes on learning at its rate")
		}
	})
}

// Of two calls of one cost that left at one instant each keeps what it is settled by: what the one
// that is refused has taken is not counted, and the other's is.
func TestPermit_Settle_OfTwoAlike(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, refusedFirst := range []bool{false, true} {
			g := limits.Must(New(Config{}))
			g.queue.Lock()
			g.learn(g.queue.Now(), 1)
			g.queue.Unlock()
			a, b := limits.Must(g.Acquire(t.Context(), 5)), limits.Must(g.Acquire(t.Context(), 5))
			if a.since != b.since {
				t.Fatal("they did not leave together")
			}
			b.Settle(50)
			a.Settle(5000)
			if refusedFirst {
				a.Ended(RetryAfter(context.DeadlineExceeded, 0))
				b.Release()
			} else {
				b.Release()
				a.Ended(RetryAfter(context.DeadlineExceeded, 0))
			}
			a.Release()
			if u := g.learner.known(Cost).usual; u.estimated != 5 || u.actual != 50 {
				t.Errorf("refused first: %v: %+v", refusedFirst, u)
			}
		}
	})
}

// A gate forgets what it has learned when its own rate is granted, whatever that counts.
func TestGate_ForgetLearned_WhateverTheRateCounts(t *testing.T) {
	for unit, n := range map[Unit]int64{Calls: 1, Cost: 100} {
		synctest.Test(t, func(t *testing.T) {
			g := limits.Must(New(Config{Rate: Rate{Count: 10 * n, Per: time.Second}, RateUnit: unit}))
			most := 10 * float64(n)
			for i := range 10_000 {
				p := limits.Must(g.Acquire(t.Context(), n))
				if i < 12 && i%3 == 2 { // chance
					p.Ended(RetryAfter(context.DeadlineExceeded, 0))
				}
				p.Release()
				switch l := g.Stats().Learned; {
				case i == 12 && l == nil:
					t.Fatalf("%s: it does not learn", unit)
				case i > 12 && l == nil:
					return
				case i > 12 && l.Pace > most*1.001:
					t.Fatalf("%s: a pace of %v/s at a rate of %v/s", unit, l.Pace, most)
				}
			}
			t.Errorf("%s: it has not forgotten: %v", unit, g.Stats().Learned)
		})
	}
}

// A rate that counts cost does not bound a learner that counts calls.
func TestLearner_Bound_InItsUnit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := learning(t, Config{Concurrency: 5, RateUnit: Cost})
		l.rule.TakeOver(0, adaptive.Past{Rate: 50, Calls: 10, Cost: 10})
		l.gate.rate = Rate{Count: 10, Per: time.Second}
		if l.bound(0); l.rule.CallsPerSecond() < 45 {
			t.Errorf("%v calls per second", l.rule.CallsPerSecond())
		}
		l.gate.rateUnit = Calls
		if l.bound(0); l.rule.CallsPerSecond() != 10 {
			t.Errorf("%v calls per second at a rate of 10", l.rule.CallsPerSecond())
		}
	})
}

// granted makes a call of 1 with costs that the server grants, and that is settled by actual.
func (l *learner) granted(now time.Duration, costs, actual Costs) {
	l.leave(now, now, 1, costs, 0)
	e := ending{now: now, since: now, n: 1, costs: costs, actual: actual, charges: l.gate.departures.end(l.gate.departures.receipt())}
	l.ended(&e, adaptive.Reply{Outcome: adaptive.Granted})
}

// blames returns which unit is to blame for a refusal of a call with costs.
func (l *learner) blames(now time.Duration, costs Costs) *belief {
	l.leave(now, now, 1, costs, 0)
	e := ending{now: now, since: now, n: 1, costs: costs, charges: l.gate.departures.end(l.gate.departures.receipt())}
	return l.blame(&e, "", true)
}

// What was granted of a unit is what calls really took: who uses as much as ever is not suspect.
func TestLearner_Blame_ComparesWithWhatCallsTook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, tokens := twoUnits(t)
		call := Costs{"tokens": 1}
		now := time.Duration(0)
		for ; now < time.Minute; now += time.Second {
			l.granted(now, call, Costs{"tokens": 1000})
		}
		if b := l.blames(now, call); b != &l.belief || b == tokens {
			t.Errorf("tokens are blamed, of which no more was used than ever: %+v", tokens.suspect)
		}
	})
}

// Of a limit that others share, a gate may use its share: if it does, that limit is suspect.
func TestLearner_Told_OfAShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, tokens := twoUnits(t)
		tokens.rule.Share(0, .5, 2) // of 100 per second
		l.told(tokens, true)
		call := Costs{"tokens": 5}
		now := time.Duration(0)
		for ; now < time.Minute; now += 100 * time.Millisecond {
			l.granted(now, call, nil)
		}
		if b := l.blames(now, call); b != tokens {
			t.Errorf("calls are blamed, although all of the share of tokens is used: %+v", tokens.suspect)
		}
	})
}

// A call that the limit of one unit has refused took nothing of the others: its slot is free.
func TestLearner_Refused_ByAnotherUnit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, _ := twoUnits(t)
		costs := Costs{"tokens": 1}
		l.leave(0, 0, 1, costs, 0)
		before := until(0, l.rule.Wait(0, 0))
		e := ending{n: 1, costs: costs, charges: l.gate.departures.end(l.gate.departures.receipt())}
		l.refused(&e, 0, "tokens")
		if got := until(0, l.rule.Wait(0, 0)); before < 50*time.Millisecond || got > before/2 {
			t.Errorf("the next call waits %v for calls, before the refusal %v", got, before)
		}
	})
}
