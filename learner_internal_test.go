package sluice

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice/internal/adaptive"
	"github.com/sluice-go/sluice/internal/snapshot"
	"github.com/sluice-go/sluice/limits"
)

// A gate with a rate begins to learn at the second refusal within 500 calls if the server asks
// for waits, and at the third within 32 if not. Refusals of calls in flight together are one.
func TestStrikes_Add(t *testing.T) {
	type refusal struct {
		now, since time.Duration
		granted    int64
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
	g.learn(g.sofar(g.queue.Now()), 1)
	return g.learner
}

// A rate of calls is learned in calls, whatever they cost.
func TestLearner_TakeOver_InCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := limits.Must(New(Config{Rate: Rate{Count: 10, Per: time.Second}, RateUnit: Calls}))
		g.queue.Lock()
		defer g.queue.Unlock()
		g.granted, g.sent = 50, 5000
		g.learn(g.sofar(g.queue.Now()), 100)
		if got := g.learner.controller.CallsPerSecond(); got < 9 || got > 10 {
			t.Errorf("%v calls per second", got)
		}
	})
}

// Those who are late make up for MaxCatchUp at most, at a learned pace, too.
func TestLearner_Leave_MakesUpForCatchUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := learning(t, Config{Rate: Rate{Count: 10, Per: time.Second}, MaxCatchUp: 500 * time.Millisecond})
		now, n := 60*time.Second, 0
		for due := now - 10*time.Second; l.demand(now, want{1, nil, 1}) == 0; due += 100 * time.Millisecond {
			l.started(now, due, want{1, nil, 1})
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
	tokens.controller = l.controllers.further(tokens.unit)
	tokens.controller.TakeOver(0, adaptive.Past{Rate: 100, Calls: 10, Cost: 100})
	return l, tokens
}

// Who only looks is told the longest wait of all units.
func TestLearner_LooksLike_TheLongestWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, tokens := twoUnits(t)
		l.started(0, 0, want{1, Costs{"tokens": 300}, 1})
		calls, most := until(0, l.controller.Peek(0, 1)), until(0, tokens.controller.Peek(0, 1))
		if most < time.Second || calls > 200*time.Millisecond {
			t.Fatalf("waits of %v and %v", calls, most)
		}
		if got := l.peek(0, 1); got != most {
			t.Errorf("%v, want %v", got, most)
		}
	})
}

// Only the unit that holds a call up longest sees that it waits.
func TestLearner_Wait_IsDemandForTheLongest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, tokens := twoUnits(t)
		l.started(0, 0, want{1, Costs{"tokens": 300}, 1})
		call := Costs{"tokens": 100}
		if got, most := l.demand(0, want{1, call, 1}), until(0, tokens.controller.Peek(0, 1)); got != most {
			t.Errorf("waits %v, want %v", got, most)
		}
	})
}

// A unit that is not the first is bounded neither by the rate nor by the concurrency of the gate.
func TestGate_FurtherRule_IsNotBoundedByTheGate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, tokens := twoUnits(t)
		if at := tokens.controller.Peek(time.Minute, 7); at == adaptive.Never {
			t.Error("seven calls in flight hold a unit up")
		}
		if at := l.controller.Peek(time.Minute, 7); at != adaptive.Never {
			t.Errorf("seven calls in flight do not hold up the first unit: %v", at)
		}
		if b := tokens.controller.Belief(); b.Rate < 90 {
			t.Errorf("%v tokens per second", b.Rate)
		}
	})
}

// A gate forgets that it has learned when its own rate is granted, but not what it knows of
// other units.
func TestGate_ForgetLearned_NotWithSeveralUnits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, tokens := twoUnits(t)
		g := l.controllers.(*memory)
		for now := time.Duration(0); !l.controller.AtMax(); now = l.controller.Demand(now, 0) {
			if now > 24*time.Hour {
				t.Fatal("the rate is not granted")
			}
			l.controller.Ended(now, l.controller.Started(now, 1, 1), adaptive.Reply{})
		}
		l.blamed = &l.belief
		if g.forgetLearned(); g.learner == nil {
			t.Fatal("what was learned of tokens is forgotten")
		}
		l.more, tokens.controller = nil, nil
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
			g.learn(g.sofar(g.queue.Now()), 1)
			g.queue.Unlock()
			a, b := limits.Must(g.Acquire(t.Context(), 5)), limits.Must(g.Acquire(t.Context(), 5))
			if a.since != b.since {
				t.Fatal("they did not leave together")
			}
			b.Settle(50)
			a.Settle(5000)
			if refusedFirst {
				a.Done(ThrottledFor(context.DeadlineExceeded, 0))
				b.Release()
			} else {
				b.Release()
				a.Done(ThrottledFor(context.DeadlineExceeded, 0))
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
					p.Done(ThrottledFor(context.DeadlineExceeded, 0))
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
		l.controller.TakeOver(0, adaptive.Past{Rate: 50, Calls: 10, Cost: 10})
		m := l.controllers.(*memory)
		m.rate = Rate{Count: 10, Per: time.Second}
		if m.bound(0); l.controller.CallsPerSecond() < 45 {
			t.Errorf("%v calls per second", l.controller.CallsPerSecond())
		}
		m.rateUnit = Calls
		if m.bound(0); l.controller.CallsPerSecond() != 10 {
			t.Errorf("%v calls per second at a rate of 10", l.controller.CallsPerSecond())
		}
	})
}

// granted makes a call of 1 with costs that the server grants, and that is settled by actual.
func (l *learner) granted(now time.Duration, costs, actual Costs) {
	l.started(now, now, want{1, costs, 0})
	e := ending{now: now, since: now, n: 1, costs: costs, actual: actual, charges: l.departures.end(l.departures.receipt())}
	l.ended(&e, adaptive.Reply{Outcome: adaptive.Granted})
}

// blames returns which unit is to blame for a refusal of a call with costs.
func (l *learner) blames(now time.Duration, costs Costs) *belief {
	l.started(now, now, want{1, costs, 0})
	e := ending{now: now, since: now, n: 1, costs: costs, charges: l.departures.end(l.departures.receipt())}
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
		tokens.controller.Share(0, .5, 2) // of 100 per second
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
		l.started(0, 0, want{1, costs, 0})
		before := until(0, l.controller.Peek(0, 0))
		e := ending{n: 1, costs: costs, charges: l.departures.end(l.departures.receipt())}
		l.refused(&e, 0, "tokens")
		if got := until(0, l.controller.Peek(0, 0)); before < 50*time.Millisecond || got > before/2 {
			t.Errorf("the next call waits %v for calls, before the refusal %v", got, before)
		}
	})
}

// # The records of calls

// The record of a call is its own, in whatever order calls end, and is used again then.
func TestDepartures(t *testing.T) {
	var d departures
	random := rand.New(rand.NewPCG(1, 2))
	live := map[uint32]float64{}
	var order []uint32
	most := 0
	for i := range 100_000 {
		if len(order) < 50 || random.IntN(2) == 0 && len(order) < 1000 {
			r := d.add()
			r.charges = append(r.charges, charge{amount: float64(i)})
			number := d.receipt()
			if _, used := live[number]; used || number == 0 {
				t.Fatalf("number %d is in use", number)
			}
			live[number] = float64(i)
			order = append(order, number)
			most = max(most, len(order))
			continue
		}
		at := random.IntN(len(order))
		number := order[at]
		order[at] = order[len(order)-1]
		order = order[:len(order)-1]
		if got := d.end(number); len(got) != 1 || got[0].amount != live[number] {
			t.Fatalf("record %d: %v, want %v", number, got, live[number])
		}
		delete(live, number)
	}
	if len(d.records) != most || d.used != len(order) {
		t.Errorf("%d records, %d used, for %d calls and never more than %d", len(d.records), d.used, len(order), most)
	}
	for _, number := range order {
		d.end(number)
	}
	if d.used != 0 || len(d.records) != 0 {
		t.Errorf("%d records are kept for none, %d in use", len(d.records), d.used)
	}
	if d.end(0) != nil || d.receipt() != 0 {
		t.Error("a call without a record has one")
	}
}

// anyAmount is a limit that never refuses.
type anyAmount struct{}

func (anyAmount) Admit(context.Context, int64) (time.Duration, error) { return 0, nil }
func (anyAmount) Adjust(context.Context, int64, time.Duration) error  { return nil }

// Of two calls of one cost that left at one instant, each is corrected by what it was charged
// itself, however it came through the gate.
func TestPermit_KeepsItsRecord(t *testing.T) {
	acquire := func(t *testing.T, g *Gate) *Permit { return limits.Must(g.Acquire(t.Context(), 5)) }
	try := func(t *testing.T, g *Gate) *Permit {
		p, ok := g.TryAcquire(5)
		if !ok {
			t.Fatal("refused")
		}
		return p
	}
	queued := func(t *testing.T, g *Gate) (p *Permit) {
		for top := g; ; top = top.parent {
			if top.parent == nil {
				limits.Must(0, top.SetConcurrency(top.room.calls.Calls()+1))
				defer top.SetConcurrency(0)
				break
			}
		}
		first := limits.Must(g.Acquire(t.Context(), 1))
		done := make(chan struct{})
		go func() {
			p = acquire(t, g)
			close(done)
		}()
		synctest.Wait()
		first.Release()
		<-done
		return p
	}
	plain := func() *Gate { return limits.Must(New(Config{})) }
	limited := func() *Gate { return limits.Must(New(Config{Limits: []Limit{{Limiter: anyAmount{}}}})) }
	under := func(parent *Gate) *Gate { return limits.Must(New(Config{Parent: parent})) }
	for name, c := range map[string]struct {
		gate    func() *Gate
		acquire func(*testing.T, *Gate) *Permit
	}{
		"Acquire":                  {plain, acquire},
		"TryAcquire":               {plain, try},
		"queued":                   {plain, queued},
		"a limit":                  {limited, acquire},
		"a limit, TryAcquire":      {limited, try},
		"a limit, queued":          {limited, queued},
		"a parent":                 {func() *Gate { return under(plain()) }, acquire},
		"a parent, TryAcquire":     {func() *Gate { return under(plain()) }, try},
		"a parent, queued":         {func() *Gate { return under(plain()) }, queued},
		"two parents and a limit":  {func() *Gate { return under(under(limited())) }, acquire},
		"two parents, all queued":  {func() *Gate { return under(under(plain())) }, queued},
		"a limit, two, TryAcquire": {func() *Gate { return under(under(limited())) }, try},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := c.gate()
				learns := g // or any of its parents
				for ; learns != nil; learns = learns.parent {
					learns.queue.Lock()
					learns.learn(learns.sofar(learns.queue.Now()), 5)
					learns.queue.Unlock()
				}
				settle := func(p *Permit, actual int64) {
					p.Settle(actual)
					p.Release()
				}
				early := acquire(t, g)
				a := c.acquire(t, g)
				settle(early, 25) // from now on calls are charged five times their estimate
				b := c.acquire(t, g)
				took := func(g *Gate) float64 {
					g.queue.Lock()
					defer g.queue.Unlock()
					return g.learner.known(Cost).suspect.Past(0).Cost
				}
				var before []float64
				for learns = g; learns != nil; learns = learns.parent {
					before = append(before, took(learns))
				}
				settle(a, 5) // as it was charged
				for learns = g; learns != nil; learns = learns.parent {
					if got := took(learns); got != before[0] {
						t.Errorf("%v taken, want %v as before", got, before[0])
					}
					before = before[1:]
				}
				settle(b, 5)
				for learns = g; learns != nil; learns = learns.parent {
					if n := learns.departures.used; n != 0 {
						t.Errorf("%d records are left", n)
					}
				}
			})
		})
	}
}

// # What calls will take

func TestCorrection(t *testing.T) {
	var c correction
	if got := c.of(7); got != 7 {
		t.Errorf("nothing is known: %v", got)
	}
	for range 1000 { // estimates that are right, and differ
		for _, n := range []float64{1, 3, 1e6, .1} {
			c.learn(n, n)
		}
	}
	if c.factor() != 1 {
		t.Errorf("without Settle: %v", c.factor())
	}

	c = correction{}
	c.learn(2, 2000)
	if got := c.of(3); got != 3000 {
		t.Errorf("after one call: %v", got)
	}
	for range 300 {
		c.learn(2, 4)
	}
	if got := c.factor(); math.Abs(got-2) > .2 {
		t.Errorf("after 300 of another kind: %v", got)
	}
	before := c.factor()
	c.learn(2, 4e9)
	if got := c.factor(); got > before*1.2 {
		t.Errorf("one that is far off: %v, was %v", got, before)
	}
	for range 2000 {
		c.learn(2, 4000)
	}
	if got := c.factor(); math.Abs(got-2000) > 20 {
		t.Errorf("all are far off: %v", got)
	}
	for range 2000 {
		c.learn(2, 0)
	}
	if got := c.of(64); got != 1 {
		t.Errorf("calls that take nothing: %v", got)
	}
	for range 500 {
		c.learn(2, 200)
	}
	if got := c.factor(); got < 90 {
		t.Errorf("calls that took nothing once: %v", got)
	}
}

// A call that is settled after its end counts as if it had been settled before.
func TestCorrection_Amend(t *testing.T) {
	var before, after correction
	for range 100 {
		before.learn(10, 30)
		after.learn(10, 10)
		after.amend(20)
	}
	if a, b := before.factor(), after.factor(); math.Abs(a-b) > .1 {
		t.Errorf("settled before the end: %v, after it: %v", a, b)
	}
	after.amend(-1e9)
	if f := after.factor(); f != leastCorrection {
		t.Errorf("%v", f)
	}
}

// The throttled calls of an estimate that was forgotten are none of the next estimate's.
func TestMemory_Forget_CountsAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := limits.Must(New(Config{}))
		for range 3 {
			_ = g.Do(t.Context(), func(context.Context) error { return ThrottledFor(context.DeadlineExceeded, time.Second) })
		}
		if g.tally.learned == 0 || g.learner == nil {
			t.Fatal("three throttled calls left no estimate")
		}
		g.Forget()
		if n := g.tally.learned; n != 0 || g.learner != nil {
			t.Errorf("after Forget: an estimate of %d throttled calls", n)
		}
	})
}

// Calls in flight when the gate forgets were a burst of the time before. When a gate that searched learned from
// them, it kept to 5/s for ever.
func TestGate_Forget_CallsInFlightTeachNothing(t *testing.T) {
	for name, cfg := range map[string]Config{
		"no limits": {},
		"told":      {Rate: Rate{Count: 200, Per: time.Second}},
		"search":    {Adaptive: Adaptive{Search: true}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := limits.Must(New(cfg))
				defer g.Close()
				var calls sync.WaitGroup
				for i := range 32 {
					calls.Go(func() {
						_ = g.Do(t.Context(), func(context.Context) error {
							time.Sleep(4 * time.Second)
							if i%2 == 0 {
								return ThrottledFor(errors.New("429"), time.Second)
							}
							return nil
						})
					})
				}
				time.Sleep(3 * time.Second) // a search begins at 20/s
				g.Forget()
				calls.Wait()
				if g.learner != nil && g.learner.controller.Belief().Phase != adaptive.Searching {
					t.Errorf("learned: %v", g.Stats().Learned)
				}
				start := time.Now()
				for range 400 {
					_ = g.Do(t.Context(), func(context.Context) error { return nil })
				}
				if took := time.Since(start); took > 5*time.Second {
					t.Errorf("400 calls took %v", took)
				}
			})
		})
	}
}

// # Any snapshot, any config

// FuzzRestore restores anything: bytes, and the same as the state of one and of several units under a true
// checksum. What is rejected changes nothing. What is accepted makes a gate that lets calls start,
// and whose own snapshot is accepted again.
func FuzzRestore(f *testing.F) {
	searching := limits.Must(New(Config{Adaptive: Adaptive{Search: true}}))
	f.Add(searching.Snapshot())
	searching.Close()
	f.Add([]byte("null"))
	f.Add([]byte(`{"version":1,"crc32":0,"units":[]}`))
	f.Add([]byte(`[{"unit":"tokens","rule":{}},{"unit":"","rule":null}]`))
	f.Fuzz(func(t *testing.T, data []byte) {
		synctest.Test(t, func(t *testing.T) {
			restoreGate(t, data)
			if !json.Valid(data) { // which cannot be sealed
				return
			}
			restoreGate(t, snapshot.Seal(unitsKind, []unitSnapshot{{Unit: Calls, Learned: data}, {Unit: "tokens", Learned: data}}))
		})
	})
}

func restoreGate(t *testing.T, data []byte) {
	t.Helper()
	g := limits.Must(New(Config{Name: "fuzz", Concurrency: 2}))
	defer g.Close()
	before := g.Snapshot()
	if err := g.Restore(data); err != nil {
		if !errors.Is(err, limits.ErrSnapshot) {
			t.Errorf("%q: %v", data, err)
		}
		if after := g.Snapshot(); !bytes.Equal(after, before) {
			t.Errorf("%q: %v, and changed to %s", data, err, after)
		}
		return
	}
	if err := limits.Must(New(Config{})).Restore(g.Snapshot()); err != nil {
		t.Errorf("%q was accepted, and its own snapshot is not: %v", data, err)
	}
	if p, err := g.AcquireWithin(t.Context(), 1, 400*24*time.Hour); err != nil {
		t.Errorf("%q: no call starts within a year: %v", data, err)
	} else {
		p.Release()
	}
}

// FuzzConfig makes gates of any numbers. New returns an error, or a gate whose calls start in the
// end or are rejected for a reason, and that can be changed to any numbers, too.
func FuzzConfig(f *testing.F) {
	f.Add(int64(1), int64(10), int64(time.Second), int64(1), int64(0), int64(0), 0, int64(1), "calls")
	f.Add(int64(-1), int64(-1), int64(-1), int64(-1), int64(-1), int64(-1), -1, int64(1)<<62, "")
	f.Add(int64(1)<<62, int64(1)<<62, int64(1), int64(1)<<62, int64(1)<<62, int64(1)<<62, 1<<30, int64(3), "cost")
	f.Fuzz(func(t *testing.T, concurrency, count, per, burst, catchUp, grain int64, waiting int, n int64, unit string) {
		synctest.Test(t, func(t *testing.T) {
			rate := Rate{Count: count, Per: time.Duration(per), Burst: burst}
			g, err := New(Config{
				Concurrency: concurrency, ConcurrencyUnit: Unit(unit), Rate: rate, RateUnit: Unit(unit),
				MaxCatchUp: time.Duration(catchUp), TimerResolution: time.Duration(grain), MaxWaiting: waiting,
			})
			if err != nil {
				g = limits.Must(New(Config{}))
				_ = g.SetRate(rate)
				_ = g.SetConcurrency(concurrency)
			}
			defer g.Close()
			n = max(0, n)
			for range 3 {
				switch p, err := g.AcquireWithin(t.Context(), n, time.Hour); {
				case err == nil:
					p.Settle(n / 2)
					p.Release()
				case !errors.As(err, new(*limits.WaitError)) && !errors.Is(err, limits.ErrTooLarge) && !errors.Is(err, limits.ErrTimeout):
					t.Errorf("%v", err)
				}
			}
			_ = g.SetRate(rate)
			_ = g.SetConcurrency(concurrency)
			if s := g.Stats(); s.InFlight != 0 || s.Waiting != 0 {
				t.Errorf("%d in flight and %d waiting", s.InFlight, s.Waiting)
			}
		})
	})
}

// A call in flight that is settled after Forget does not tell a search that has not begun what a call costs.
func TestGate_Forget_SettledLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := limits.Must(New(Config{Rate: Rate{Count: 1e6, Per: time.Second}, RateUnit: Cost, Adaptive: Adaptive{Search: true}}))
		defer g.Close()
		call := func(meanwhile func()) {
			p := limits.Must(g.Acquire(t.Context(), 1000))
			meanwhile()
			p.Settle(900)
			p.Release()
		}
		call(func() { time.Sleep(time.Second); g.Forget() })
		start := time.Now()
		for range 20 {
			call(func() {})
		}
		if took := time.Since(start); took > 5*time.Second {
			t.Errorf("20 calls took %v", took)
		}
	})
}

// A gate that was told 5/s meets a server that grants 5 in any second and, after one call too many, nothing for
// half a minute. As calls take unequal time to it, that happens now and then. The half minute says nothing of
// the rate: counted as time at that rate it had led to 0.23/s, and 300 calls took ten minutes.
func TestGate_Told_ALockoutIsNoRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		random := rand.New(rand.NewPCG(1, 2))
		var mu sync.Mutex
		var last []time.Time
		var until time.Time
		grants := func() error {
			mu.Lock()
			defer mu.Unlock()
			now := time.Now()
			last = slices.DeleteFunc(last, func(at time.Time) bool { return now.Sub(at) >= time.Second })
			if now.Before(until) || len(last) >= 5 {
				if !now.Before(until) {
					until = now.Add(30 * time.Second)
				}
				return ThrottledFor(errors.New("429"), until.Sub(now)+time.Millisecond)
			}
			last = append(last, now)
			return nil
		}
		g := limits.Must(New(Config{Rate: PerSecond(5)}))
		defer g.Close()
		start := time.Now()
		var calls sync.WaitGroup
		for range 300 {
			calls.Go(func() {
				err := Retry(t.Context(), g, func(context.Context) error {
					mu.Lock()
					trip := time.Duration(8+random.IntN(15)) * time.Millisecond
					mu.Unlock()
					time.Sleep(trip)
					return grants()
				})
				if err != nil {
					t.Error(err)
				}
			})
		}
		calls.Wait()
		if took := time.Since(start); took > 150*time.Second {
			t.Errorf("300 calls at 5/s took %v", took)
		}
	})
}

// Calls that use up a window of a second just before it ends are no reason to believe in half of the limit. The
// estimate was 22 to 28 of 50 per second in some runs.
func TestRetry_WindowThatEndsSoonAfterIt(t *testing.T) {
	for seed := range uint64(24) {
		synctest.Test(t, func(t *testing.T) {
			g := limits.Must(New(Config{}))
			var mu sync.Mutex
			random := rand.New(rand.NewPCG(seed, 2))
			latency := func() time.Duration {
				mu.Lock()
				defer mu.Unlock()
				return time.Duration(8+random.IntN(15)) * time.Millisecond
			}
			var end time.Time
			used := 0
			grant := func() bool {
				mu.Lock()
				defer mu.Unlock()
				if now := time.Now(); !now.Before(end) {
					end, used = now.Add(time.Second), 0
				}
				used++
				return used <= 50
			}
			call := func(context.Context) error {
				lat := latency()
				time.Sleep(lat)
				if ok := grant(); !ok {
					time.Sleep(lat)
					return ThrottledFor(errors.New("429"), 0)
				}
				time.Sleep(lat + 5*time.Millisecond)
				return nil
			}
			began := time.Now()
			var callers sync.WaitGroup
			var left atomic.Int64
			left.Store(300)
			for range 64 {
				callers.Go(func() {
					for left.Add(-1) >= 0 {
						if err := Retry(t.Context(), g, call); err != nil {
							t.Error(err)
						}
					}
				})
			}
			callers.Wait()
			took := time.Since(began)
			if took > 7*time.Second {
				t.Errorf("seed %d: 300 calls at 50/s took %v: %v", seed, took, g.Stats().Learned)
			}
		})
	}
}

// Calls that were throttled before there was a learner were not accepted: of 64 calls a server has accepted 20, and the
// first call that is throttled later, with about as many in flight, shows that this is a cap.
func TestMemory_TakeOver_WithoutTheThrottled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := limits.Must(New(Config{}))
		busy := make(chan struct{}, 20)
		var group sync.WaitGroup
		for i := range 64 {
			group.Go(func() {
				time.Sleep(time.Duration(i) * 10 * time.Microsecond) // or all replies come at the same time
				for range 5 {
					_ = g.Do(t.Context(), func(context.Context) error {
						time.Sleep(10 * time.Millisecond) // the way there
						select {
						case busy <- struct{}{}:
						default:
							time.Sleep(10 * time.Millisecond)
							return Throttled(errors.New("too many calls"))
						}
						time.Sleep(100 * time.Millisecond)
						<-busy
						time.Sleep(10 * time.Millisecond)
						return nil
					})
				}
			})
		}
		group.Wait()
		if b := g.Stats().Learned; b == nil || b.Phase != "capped" || b.Concurrency < 20 || b.Concurrency > 23 {
			t.Errorf("of a cap of 20: %v", b)
		}
	})
}
