package sluice

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice/internal/schedule"
	"github.com/sluice-go/sluice/limits"
)

// newFamily returns a gate of 10/s with room for 3, and its parent of 20/s with room for 2.
func newFamily(t *testing.T) (child, parent *Gate) {
	t.Helper()
	parent, err := New(Config{Concurrency: 2, Rate: Rate{Count: 20, Per: time.Second}})
	if err != nil {
		t.Fatal(err)
	}
	child, err = New(Config{Concurrency: 3, Rate: Rate{Count: 10, Per: time.Second}, Parent: parent})
	if err != nil {
		t.Fatal(err)
	}
	return child, parent
}

// wantFlight wants both gates to have n calls in flight, and granted.
func wantFlight(t *testing.T, when string, child, parent *Gate, inFlight int64, granted uint64) {
	t.Helper()
	for name, g := range map[string]*Gate{"child": child, "parent": parent} {
		if s := g.Stats(); s.InFlight != inFlight || s.Admitted != granted {
			t.Errorf("%s: the %s has %d in flight and granted %d, want %d and %d", when, name, s.InFlight, s.Admitted, inFlight, granted)
		}
	}
}

// A call that no gate makes wait leaves without a lock, and counts in all gates.
func TestGate_Do_WithAParent_LeavesUnlocked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		child, parent := newFamily(t)
		for i := range uint64(3) {
			child.Stats() // with the lock: a lane that was closed opens
			if at, v, _ := child.direct.admit(context.Background()); v != schedule.Leave || at != child.queue.Now() {
				t.Fatalf("call %d: %v at %v", i, v, at)
			}
			wantFlight(t, "in flight", child, parent, 1, i+1)
			if _, v, _ := child.direct.admit(context.Background()); v != schedule.Early {
				t.Errorf("another call of the same instant: %v", v)
			}
			child.open.finish(child.queue.Now())
			wantFlight(t, "afterwards", child, parent, 0, i+1)
			time.Sleep(100 * time.Millisecond)
		}
	})
}

// A call that one of the gates makes wait takes nothing of the others.
func TestGate_Do_WithAParent_TakesNothingIfOneRefuses(t *testing.T) {
	for name, hold := range map[string]func(child, parent *Gate){
		"child paused":  func(child, _ *Gate) { child.PauseUntil(time.Now().Add(time.Hour), "") },
		"parent paused": func(_, parent *Gate) { parent.PauseUntil(time.Now().Add(time.Hour), "") },
		"parent's slot": func(_, parent *Gate) { _ = parent.Wait(context.Background()) },
		"parent's room": func(_, parent *Gate) {
			for range 2 {
				_, _ = parent.Acquire(context.Background(), 1)
			}
			time.Sleep(time.Second)
		},
		"child closed":  func(child, _ *Gate) { child.Close() },
		"parent closed": func(_, parent *Gate) { parent.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				child, parent := newFamily(t)
				hold(child, parent)
				before := [2]Stats{child.Stats(), parent.Stats()}
				if _, v := child.direct.passAll(context.Background(), 1); v == schedule.Leave {
					t.Error("left")
				}
				if _, ok := child.TryAcquire(1); ok {
					t.Error("left when tried")
				}
				if after := [2]Stats{child.Stats(), parent.Stats()}; after[0].InFlight != before[0].InFlight || after[1].InFlight != before[1].InFlight ||
					after[0].Admitted != before[0].Admitted || after[1].Admitted != before[1].Admitted {
					t.Errorf("took something: %v, then %v", before, after)
				}
			})
		})
	}
}

// What a call has taken before another one closes a lane is given back, in each gate but one
// that a call has left since that did not wait for it.
func TestGate_Do_WithAParent_BacksOut(t *testing.T) {
	for _, another := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			child, parent := newFamily(t)
			time.Sleep(time.Second)
			var seen [mostGates]look
			for i, g := range child.direct {
				seen[i] = look{slots: g.lane.Slots(), now: g.queue.Now()}
			}
			child.direct.admit(context.Background())
			granted, wait := uint64(0), time.Duration(0)
			if another { // leaves the parent, and did not wait for the slot there
				time.Sleep(50 * time.Millisecond)
				_ = parent.Wait(context.Background())
				wait = 50 * time.Millisecond
			}
			child.direct.backOut(context.Background(), 2, 2, &seen)
			if s := child.Stats(); s.InFlight != 0 || s.Admitted != granted {
				t.Errorf("child: %v", s)
			}
			if s := parent.Stats(); s.InFlight != 0 {
				t.Errorf("parent: %v", s)
			}
			began := time.Now()
			if err := child.Wait(context.Background()); err != nil || time.Since(began) != wait {
				t.Errorf("another %v: the next leaves after %v, %v; want %v", another, time.Since(began), err, wait)
			}
		})
	}
}

// A call that waits for the slot of one that backs out, and leaves meanwhile, does not delay
// those after it by that slot.
func TestGate_Do_WithAParent_BacksOutLate(t *testing.T) {
	const ms = time.Millisecond
	synctest.Test(t, func(t *testing.T) {
		child, parent := newFamily(t)
		time.Sleep(time.Second)
		var seen [mostGates]look
		for i, g := range child.direct {
			seen[i] = look{slots: g.lane.Slots(), now: g.queue.Now()}
		}
		began := time.Now()
		child.direct.admit(context.Background())
		time.Sleep(10 * ms)
		for i, want := range []time.Duration{50 * ms, 74 * ms, 100 * ms, 150 * ms} { // and not 50, 100, 150, 200
			if i == 1 {
				child.direct.backOut(context.Background(), 2, 2, &seen)
			}
			if err := parent.Wait(context.Background()); err != nil || time.Since(began) != want {
				t.Errorf("call %d leaves after %v, %v; want %v", i, time.Since(began), err, want)
			}
		}
	})
}

// A caller that waits when a slot comes back late leaves earlier.
func TestGate_Do_WithAParent_BacksOutLate_WakesWaiters(t *testing.T) {
	const ms = time.Millisecond
	synctest.Test(t, func(t *testing.T) {
		child, parent := newFamily(t)
		time.Sleep(time.Second)
		var seen [mostGates]look
		for i, g := range child.direct {
			seen[i] = look{slots: g.lane.Slots(), now: g.queue.Now()}
		}
		began := time.Now()
		child.direct.admit(context.Background())
		time.Sleep(10 * ms)
		left := make(chan time.Duration, 2)
		for range 2 {
			go func() {
				_ = parent.Wait(context.Background())
				left <- time.Since(began)
			}()
		}
		time.Sleep(50 * ms) // one of them has left, at 50 ms
		child.direct.backOut(context.Background(), 2, 2, &seen)
		if first, second := <-left, <-left; first != 50*ms || second != 74*ms {
			t.Errorf("left after %v and %v, want 50 and 74 ms", first, second)
		}
	})
}

// Calls of two children, past the locks and under them: no gate has more in flight than it may,
// and in the end none is, and the parent has granted what its children have.
func TestGate_Do_WithAParent_Stress(t *testing.T) {
	parent, err := New(Config{Concurrency: 3, Rate: Rate{Count: 200_000, Per: time.Second}})
	if err != nil {
		t.Fatal(err)
	}
	var inParent atomic.Int64
	var children []*Gate
	var callers sync.WaitGroup
	for range 2 {
		child, err := New(Config{Concurrency: 2, Rate: Rate{Count: 100_000, Per: time.Second}, Parent: parent})
		if err != nil {
			t.Fatal(err)
		}
		children = append(children, child)
		var inChild atomic.Int64
		for seed := range uint64(4) {
			callers.Go(func() {
				r := rand.New(rand.NewPCG(seed, 7))
				for range 1000 {
					call := func(context.Context) error {
						if inChild.Add(1) > 2 || inParent.Add(1) > 3 {
							t.Error("more in flight than may be")
						}
						inParent.Add(-1)
						inChild.Add(-1)
						return nil
					}
					switch r.IntN(20) {
					case 0:
						parent.PauseUntil(time.Now().Add(time.Microsecond), "")
					case 1:
						_ = child.SetRate(Rate{Count: 50_000 + 50_000*r.Int64N(2), Per: time.Second})
					case 2:
						child.Stats()
					case 3, 4, 5:
						if p, ok := child.TryAcquire(1); ok {
							_ = call(nil)
							p.Release()
						}
					default:
						_ = child.Do(context.Background(), call)
					}
				}
			})
		}
	}
	returns(t, "calls of gates with a parent", callers.Wait)
	sum := uint64(0)
	for _, child := range children {
		s := child.Stats()
		if sum += s.Admitted; s.InFlight != 0 {
			t.Errorf("child: %v", s)
		}
	}
	if s := parent.Stats(); s.InFlight != 0 || s.Admitted != sum || sum == 0 {
		t.Errorf("parent: %v; its children granted %d", s, sum)
	}
}

// The time that a call was in flight counts in each gate by its own clock.
func TestGate_Do_WithAParent_MeasuresHowLongCallsTake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		parent, err := New(Config{Concurrency: 2})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		child, err := New(Config{Concurrency: 2, Parent: parent})
		if err != nil {
			t.Fatal(err)
		}
		_ = child.Do(context.Background(), func(context.Context) error { time.Sleep(time.Second); return nil })
		if child.hold.Mean() != time.Second || parent.hold.Mean() != time.Second {
			t.Errorf("%v in the child, %v in the parent", child.hold.Mean(), parent.hold.Mean())
		}
	})
}

// verbsUnderAParent make one call of 10 ms through a gate, but Wait, which makes none.
var verbsUnderAParent = map[string]func(g *Gate){
	"Do":   func(g *Gate) { _ = g.Do(context.Background(), tenMillis) },
	"Wait": func(g *Gate) { _ = g.Wait(context.Background()); time.Sleep(10 * time.Millisecond) },
	"Acquire": func(g *Gate) {
		p, _ := g.Acquire(context.Background(), 1)
		_ = tenMillis(context.Background())
		p.Release()
	},
	"TryAcquire": func(g *Gate) {
		p, _ := g.TryAcquire(1)
		_ = tenMillis(context.Background())
		p.Release()
	},
	"Retry": func(g *Gate) { _ = Retry(context.Background(), g, tenMillis) },
	"Do that panics": func(g *Gate) {
		defer func() { _ = recover() }()
		_ = g.Do(context.Background(), func(ctx context.Context) error { _ = tenMillis(ctx); panic("f") })
	},
	"Do that exits": func(g *Gate) {
		var calls sync.WaitGroup
		calls.Go(func() {
			_ = g.Do(context.Background(), func(ctx context.Context) error { _ = tenMillis(ctx); runtime.Goexit(); return nil })
		})
		calls.Wait()
	},
}

func tenMillis(context.Context) error {
	time.Sleep(10 * time.Millisecond)
	return nil
}

// A call under a parent returns all that it took, in whichever gate and whoever made it: with
// cost in flight, 100 calls by Do wedged a gate of 100 for ever.
func TestGate_WithAParent_ReturnsCostInFlight(t *testing.T) {
	for verb, call := range verbsUnderAParent {
		for where, units := range map[string][2]Unit{"child": {Cost, Calls}, "parent": {Calls, Cost}, "both": {Cost, Cost}} {
			t.Run(verb+", "+where, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					parent := limits.Must(New(Config{Concurrency: 3, ConcurrencyUnit: units[1]}))
					child := limits.Must(New(Config{Concurrency: 3, ConcurrencyUnit: units[0], Parent: parent}))
					began := time.Now()
					for i := range uint64(20) {
						call(child)
						wantFlight(t, "afterwards", child, parent, 0, i+1)
					}
					if took := time.Since(began); took != 200*time.Millisecond {
						t.Errorf("20 calls of 10 ms took %v", took)
					}
				})
			})
		}
	}
}

// After a pause, each response lets two more calls leave, however the calls are made. The
// answers to calls of Do were not counted: each of them waited 10 s for the one before.
func TestGate_WithAParent_CountsAnswersInASlowStart(t *testing.T) {
	for verb, call := range verbsUnderAParent {
		if verb == "Do that panics" || verb == "Do that exits" {
			continue // no server has answered
		}
		for _, off := range []bool{false, true} {
			for _, above := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s, off %t, parent paused %t", verb, off, above), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						parent := limits.Must(New(Config{Adaptive: Adaptive{Disabled: off}}))
						child := limits.Must(New(Config{Adaptive: Adaptive{Disabled: off}, Parent: parent}))
						paused := child
						if above {
							paused = parent
						}
						paused.PauseUntil(time.Now().Add(time.Second), "")
						time.Sleep(time.Second)
						began := time.Now()
						for range 20 {
							call(child)
						}
						if took := time.Since(began); took != 200*time.Millisecond {
							t.Errorf("20 calls of 10 ms took %v", took)
						}
					})
				})
			}
		}
	}
}

// A gate that learns is told how each of its calls ended, and keeps nothing of them.
func TestGate_WithAParent_LearnsFromAllCalls(t *testing.T) {
	for verb, call := range verbsUnderAParent {
		for _, above := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, parent learns %t", verb, above), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					parent := limits.Must(New(Config{Adaptive: Adaptive{Search: above}}))
					child := limits.Must(New(Config{Adaptive: Adaptive{Search: !above}, Parent: parent}))
					learns := child
					if above {
						learns = parent
					}
					for range 100 {
						time.Sleep(time.Second)
						call(child)
					}
					if n := learns.departures.used; n > 0 {
						t.Errorf("%d calls are in flight, as far as it knows", n)
					}
				})
			})
		}
	}
}
