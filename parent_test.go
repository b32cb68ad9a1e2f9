package sluice_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/internal/testkit/synclog"
	"github.com/sluice-go/sluice/leaky"
	"github.com/sluice-go/sluice/limits"
)

// # Limits of parents

func TestConfig_Parent_LimitsAreShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := mustGate(t, sluice.Config{Name: "all", Concurrency: 3, Rate: tenPerSecond})
		a := mustGate(t, sluice.Config{Name: "a", Concurrency: 2, Parent: all})
		b := mustGate(t, sluice.Config{Name: "b", Rate: sluice.Rate{Count: 5, Per: time.Second}, Parent: all})
		l := synclog.New()
		for i := range 3 {
			l.Call(10+i, func() error { return hold(a, time.Second) })
			l.Call(20+i, func() error { return hold(b, time.Second) })
		}
		time.Sleep(10 * time.Second)
		l.Want(t,
			synclog.At(10, 1000*ms), // left at 0
			synclog.At(20, 1100*ms), // at 100, the rate of all
			synclog.At(11, 1200*ms), // at 200; now all is full, and so is a
			synclog.At(21, 2000*ms), // at 1000, when 10 was back; the next slot of b was at 300
			synclog.At(12, 2100*ms), // at 1100
			synclog.At(22, 2200*ms), // at 1200
		)
		for _, g := range []*sluice.Gate{all, a, b} {
			if s := g.Stats(); s.InFlight != 0 || s.Waiting != 0 || s.Pacing != 0 || s.Admitted != s.Waits.Count() {
				t.Errorf("%+v", s)
			}
		}
		if n := all.Stats().Admitted; n != 6 {
			t.Errorf("all let %d through", n)
		}
	})
}

func TestConfig_Parent_SlowChildHoardsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := mustGate(t, sluice.Config{Concurrency: 1})
		slow := mustGate(t, sluice.Config{Rate: sluice.Rate{Count: 1, Per: time.Hour}, Parent: all})
		paused := mustGate(t, sluice.Config{Parent: all})
		quick := mustGate(t, sluice.Config{Parent: all})
		paused.PauseUntil(time.Now().Add(time.Hour), "")
		hold(slow, 0)
		ctx, cancel := context.WithCancel(bg)
		var wg sync.WaitGroup
		for range 10 {
			wg.Go(func() { slow.Acquire(ctx, 1) })
			wg.Go(func() { paused.Acquire(ctx, 1) })
		}
		synctest.Wait()
		if s := all.Stats(); s.InFlight != 0 || s.Pacing+s.Waiting != 0 {
			t.Errorf("while its children wait for themselves: %+v", s)
		}
		if _, ok := quick.TryAcquire(1); !ok {
			t.Error("a quick child is held up")
		}
		cancel()
		wg.Wait()
	})
}

// Settle applies to the parent as well, but takes no room there once the permit has
// been released.
func TestConfig_Parent_SettleAfterReleaseTakesNoRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, observer := range []func(sluice.Event){nil, newDiary().Observe} {
			all := mustGate(t, sluice.Config{Concurrency: 10, ConcurrencyUnit: sluice.Cost})
			child := mustGate(t, sluice.Config{Parent: all, Observer: observer})
			p, _ := child.Acquire(bg, 5)
			p.Release()
			p.Settle(7)
			if n := all.Stats().InFlight; n != 0 {
				t.Errorf("%d in flight", n)
			}
		}
	})
}

func TestConfig_Parent_FullOneWastesNoSlotOfItsChild(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		quota := &bucket{capacity: 10, interval: time.Hour}
		all := mustGate(t, sluice.Config{Name: "all", Concurrency: 1})
		child := mustGate(t, sluice.Config{
			Name: "child", Concurrency: 5, Rate: sluice.Rate{Count: 1, Per: time.Minute}, Parent: all,
			Limits: []sluice.Limit{{Name: "q", Limiter: quota}},
		})
		p, _ := all.Acquire(bg, 1)
		if _, ok := child.TryAcquire(1); ok {
			t.Error("passed a full parent")
		}
		if _, err := child.AcquireWithin(bg, 1, time.Second); !errors.Is(err, limits.ErrTimeout) || err.Error() != "sluice: child: all: waited for the concurrency of 1 as long as allowed" {
			t.Errorf("AcquireWithin: %v", err)
		}
		ctx, cancel := context.WithTimeout(bg, time.Second)
		defer cancel()
		if _, err := child.Acquire(ctx, 1); err != context.DeadlineExceeded {
			t.Errorf("Acquire: %v", err)
		}
		if s := child.Stats(); s.InFlight != 0 || s.Admitted != 0 || time.Until(s.NextSlot) > 0 || quota.missing() != 0 {
			t.Errorf("%d tokens gone, %+v", quota.missing(), s)
		}
		p.Release()
		if _, ok := child.TryAcquire(1); !ok {
			t.Error("a slot was wasted")
		}
		if quota.missing() != 1 || all.Stats().InFlight != 1 {
			t.Errorf("%d tokens gone, %+v", quota.missing(), all.Stats())
		}
	})
}

// If a child is paused, slowed down, resized or closed while its first call queues in
// the parent, the call gives up its place there, and others move up.
func TestConfig_Parent_ChildChangesWhileItsHeadQueues(t *testing.T) {
	for name, c := range map[string]struct {
		change func(g *sluice.Gate)
		want   synclog.Left // of the child's call
	}{
		"pause":  {func(g *sluice.Gate) { g.PauseUntil(time.Now().Add(time.Minute), "") }, synclog.At(1, time.Minute+time.Second)},
		"closed": {func(g *sluice.Gate) { g.Close() }, synclog.Failed(1, time.Second, limits.ErrClosed)},
		"slower": {func(g *sluice.Gate) { g.SetRate(sluice.Rate{Count: 1, Per: 10 * time.Second}) }, synclog.At(1, 10*time.Second)},
		"resized": {func(g *sluice.Gate) {
			g.Acquire(bg, 0)
			g.SetConcurrency(1)
			time.AfterFunc(time.Minute, func() { g.SetConcurrency(2) })
		}, synclog.At(1, time.Minute+time.Second)},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				all := mustGate(t, sluice.Config{Concurrency: 2})
				g := mustGate(t, sluice.Config{Concurrency: 2, Rate: sluice.Rate{Count: 1, Per: time.Nanosecond}, Parent: all})
				other := mustGate(t, sluice.Config{Parent: all})
				mine, _ := g.Acquire(bg, 1) // stays in flight: of the child one is free
				theirs, _ := all.Acquire(bg, 1)
				l := synclog.New()
				l.Call(1, enter(g, bg))
				l.Call(2, enter(other, bg))
				time.Sleep(time.Second)
				c.change(g)
				time.Sleep(time.Second)
				theirs.Release() // room for one: 1 if it still may, else 2
				time.Sleep(5 * time.Second)
				if got := l.Sofar(); len(got) == 0 || got[len(got)-1] != synclog.At(2, 2*time.Second) {
					t.Errorf("the other child: %v", got)
				}
				all.SetConcurrency(10)
				time.Sleep(time.Hour)
				l.Want(t, c.want, synclog.At(2, 2*time.Second))
				mine.Release()
			})
		})
	}
}

func TestConfig_Parent_ChangesReachChildren(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := mustGate(t, sluice.Config{Name: "all", Rate: sluice.Rate{Count: 1, Per: 10 * time.Second}})
		a := mustGate(t, sluice.Config{Name: "a", Parent: all})
		b := mustGate(t, sluice.Config{Name: "b", Parent: all})
		l := synclog.New()
		for i := range 2 {
			l.Call(10+i, enter(a, bg))
			l.Call(20+i, enter(b, bg))
		}
		l.Call(30, func() error { _, err := a.AcquireWithin(bg, 1, time.Minute); return err })
		time.Sleep(time.Second)
		all.SetRate(sluice.Rate{Count: 1000, Per: time.Second}) // 20 now, 11 and 21 each 1 ms later, 30 behind 11
		time.Sleep(time.Second)
		l.Want(t, synclog.At(10, 0), synclog.At(20, 1000*ms), synclog.At(11, 1001*ms), synclog.At(21, 1002*ms), synclog.At(30, 1003*ms))

		all.PauseUntil(time.Now().Add(time.Minute), "")
		var wait *limits.WaitError
		if _, err := b.AcquireWithin(bg, 1, time.Second); !errors.As(err, &wait) || wait.Need != time.Minute || wait.By != "all" {
			t.Errorf("child of a paused parent: %v", err)
		}
		all.Close()
		if _, err := b.Acquire(bg, 1); !errors.Is(err, limits.ErrClosed) {
			t.Errorf("child of a closed parent: %v", err)
		}
	})
}

func TestConfig_Parent_ThreeGenerations(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		root := mustGate(t, sluice.Config{Rate: tenPerSecond, Limits: []sluice.Limit{{Name: "root", Limiter: &bucket{capacity: 100, interval: time.Hour}}}})
		mid := mustGate(t, sluice.Config{Concurrency: 2, Parent: root})
		var leaves []*sluice.Gate
		for range 3 {
			leaves = append(leaves, mustGate(t, sluice.Config{Concurrency: 1, Parent: mid}))
		}
		var wg sync.WaitGroup
		start := time.Now()
		for i := range 30 {
			wg.Go(func() { hold(leaves[i%3], 450*ms) })
		}
		wg.Wait()
		// Two in flight for 450 ms each, an interval apart: pairs each 450 ms.
		if got, want := time.Since(start), 14*450*ms+100*ms+450*ms; got != want {
			t.Errorf("took %v, want %v", got, want)
		}
		for _, g := range append(leaves, mid, root) {
			if s := g.Stats(); s.InFlight != 0 {
				t.Errorf("%+v", s)
			}
		}
	})
}

func TestConfig_Parent_SettleAndEstimate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := mustGate(t, sluice.Config{Rate: tenPerSecond, RateUnit: sluice.Cost})
		g := mustGate(t, sluice.Config{Parent: all})
		p, _ := g.Acquire(bg, 10)
		p.Settle(5)
		p.Release()
		p.Release()
		if d := time.Until(all.Stats().NextSlot); d != 500*ms || all.Stats().InFlight != 0 {
			t.Errorf("the parent's next slot is in %v", d)
		}
		if f := g.Estimate(11); f.First != 500*ms || f.Last != 1500*ms || f.LimitedBy != limits.ByRate {
			t.Errorf("%+v", f)
		}
		if _, err := sluice.New(sluice.Config{Parent: mustGate(t, sluice.Config{Semaphore: shared{}})}); err == nil {
			t.Error("a parent with Permits")
		}
	})
}

// A call that waits in its parent's queue takes nothing of its limits while its own gate is
// paused meanwhile: they are asked once, when it can leave.
func TestConfig_Parent_LimitsAreAskedWhenTheGatesBelowCould(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := mustGate(t, sluice.Config{Concurrency: 1})
		b := &bucket{capacity: 5, interval: time.Hour}
		g := mustGate(t, sluice.Config{Parent: all, Limits: []sluice.Limit{{Name: "b", Limiter: b}}})
		first, err := all.Acquire(bg, 1)
		if err != nil {
			t.Fatal(err)
		}
		l := synclog.New()
		l.Call(1, enter(g, bg))
		synctest.Wait()
		g.PauseUntil(time.Now().Add(10*time.Second), "")
		time.Sleep(time.Second)
		first.Release()
		synctest.Wait()
		if n := b.asks(); n != 0 {
			t.Errorf("asked %d times while the gate is paused", n)
		}
		time.Sleep(time.Hour)
		if l.Want(t, synclog.At(1, 10*time.Second)); b.asks() != 1 {
			t.Errorf("asked %d times", b.asks())
		}
	})
}

// # Lateness

// lateness is by how much calls are woken late, in turn.
var lateness = []time.Duration{ms / 2, 0, 3 * ms / 10, ms / 10, 0}

// slow makes the first caller in a queue late by that for each interval from now on: it has
// asked and got the time to ask again, and before it sleeps until then it must call the
// observer, which is slow.
func slow(interval time.Duration) func(sluice.Event) {
	start, i := time.Now(), 0
	return func(e sluice.Event) {
		if e.Kind == sluice.EventQueued {
			late := lateness[i%len(lateness)]
			i++
			time.Sleep(time.Until(start.Add((time.Since(start)/interval+1)*interval + late)))
		}
	}
}

// A gate with limiters or a parent makes up for its own lateness like a plain one, on each
// level: each call is charged at its slot, and the next slot is an interval later.
func TestConfig_CatchUp_OnEachLevel(t *testing.T) {
	plenty := func() []sluice.Limit {
		return []sluice.Limit{{Name: "plenty", Limiter: &bucket{capacity: 1e6, interval: ms}}}
	}
	far := func() []sluice.Limit {
		return []sluice.Limit{{Name: "far", Limiter: &bucket{capacity: 1e6, interval: ms, trip: ms / 4}}}
	}
	late := func() sluice.Config { return sluice.Config{Rate: tenPerSecond, Observer: slow(100 * ms)} }
	with := func(quotas []sluice.Limit) sluice.Config { c := late(); c.Limits = quotas; return c }
	room := sluice.Config{Concurrency: 100}
	for name, c := range map[string]struct {
		gates func() []sluice.Config // the oldest first
		trip  time.Duration          // of a quota far away
	}{
		"quota":                   {func() []sluice.Config { return []sluice.Config{with(plenty())} }, 0},
		"far quota":               {func() []sluice.Config { return []sluice.Config{with(far())} }, ms / 4},
		"parent":                  {func() []sluice.Config { return []sluice.Config{room, late()} }, 0},
		"rate of the parent":      {func() []sluice.Config { return []sluice.Config{late(), room} }, 0},
		"rates of both":           {func() []sluice.Config { return []sluice.Config{{Rate: tenPerSecond}, late()} }, 0},
		"parent and quota":        {func() []sluice.Config { return []sluice.Config{room, with(plenty())} }, 0},
		"quota of the parent":     {func() []sluice.Config { return []sluice.Config{{Limits: plenty()}, late()} }, 0},
		"far quota of the parent": {func() []sluice.Config { return []sluice.Config{{Limits: far()}, late()} }, ms / 4},
		"grandparent":             {func() []sluice.Config { return []sluice.Config{room, {}, late()} }, 0},
		"rate of the one between": {func() []sluice.Config { return []sluice.Config{room, late(), {}} }, 0},
		"rate of the grandparent": {func() []sluice.Config { return []sluice.Config{late(), {}, {Limits: plenty()}} }, 0},
		"rates of all": {func() []sluice.Config {
			return []sluice.Config{{Rate: tenPerSecond, Limits: far()}, {Rate: tenPerSecond}, late()}
		}, ms / 4},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g, start := generations(t, c.gates()...), time.Now()
				for i := range 12 {
					want := time.Duration(i)*100*ms + c.trip
					if i > 0 {
						want += lateness[(i-1)%len(lateness)]
					}
					if _, err := g.Acquire(bg, 1); err != nil || time.Since(start) != want {
						t.Errorf("call %d left at %v, want %v (%v)", i, time.Since(start), want, err)
					}
				}
			})
		})
	}
}

// What is beyond MaxCatchUp is lost: of 0.5 ms, 0.2 ms are made up for, and the next slot
// is 0.3 ms later.
func TestConfig_CatchUp_IsTheMost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := generations(t, sluice.Config{Concurrency: 9}, sluice.Config{Rate: tenPerSecond, MaxCatchUp: ms / 5, Observer: slow(100 * ms)})
		start := time.Now()
		for i, want := range []time.Duration{0, 100*ms + ms/2, 200*ms + 3*ms/10, 300*ms + 3*ms/10} {
			if g.Acquire(bg, 1); time.Since(start) != want {
				t.Errorf("call %d left at %v, want %v", i, time.Since(start), want)
			}
		}
	})
}

// After 70 ms of lateness 50 are made up for by default: the first at once, the others
// at twice the rate.
func TestConfig_CatchUp_IsFiftyMilliseconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start, late := time.Now(), true
		g := generations(t, sluice.Config{Concurrency: 99}, sluice.Config{Rate: sluice.Rate{Count: 100, Per: time.Second}, Observer: func(e sluice.Event) {
			if e.Kind == sluice.EventQueued && late {
				late = false
				time.Sleep(80 * ms)
			}
		}})
		for i, want := range []time.Duration{0, 80 * ms, 84 * ms, 89 * ms, 94 * ms, 99 * ms, 104 * ms, 109 * ms, 114 * ms, 119 * ms, 124 * ms, 130 * ms, 140 * ms} {
			if g.Acquire(bg, 1); time.Since(start) != want {
				t.Errorf("call %d left at %v, want %v", i, time.Since(start), want)
			}
		}
	})
}

// What a call waits for another limit is not lateness: the slots it missed meanwhile
// are gone.
func TestConfig_CatchUp_NotForWaitsInTheParent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := mustGate(t, sluice.Config{Concurrency: 2})
		g := mustGate(t, sluice.Config{Rate: tenPerSecond, Parent: all, Observer: slow(100 * ms)})
		l := synclog.New()
		l.Call(0, enter(g, bg))
		other, _ := all.Acquire(bg, 1)
		l.Call(1, enter(g, bg)) // asks its parent at 100.5, and there is no room
		time.Sleep(100*ms + 7*ms/10)
		other.Release()
		l.Want(t, synclog.At(0, 0), synclog.At(1, 100*ms+7*ms/10))
		if d := g.Stats().NextSlot.Sub(l.Start); d != 200*ms+7*ms/10 {
			t.Errorf("the next slot is at %v", d)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		all := mustGate(t, sluice.Config{Rate: tenPerSecond})
		g := mustGate(t, sluice.Config{Rate: tenPerSecond, Parent: all, Observer: slow(100 * ms)})
		l := synclog.New()
		l.Call(0, enter(g, bg))
		time.Sleep(50 * ms)
		l.Call(1, enter(all, bg)) // at 100
		l.Call(2, enter(g, bg))   // late for its slot at 100, early for that of its parent
		time.Sleep(150 * ms)
		l.Want(t, synclog.At(0, 0), synclog.At(1, 100*ms), synclog.At(2, 200*ms))
		for _, g := range []*sluice.Gate{g, all} {
			if d := g.Stats().NextSlot.Sub(l.Start); d != 300*ms {
				t.Errorf("the next slot is at %v", d)
			}
		}
	})
}

// Each limit is late only by what is left after the last of them let the call through.
func TestConfig_CatchUp_OfAChildAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := mustGate(t, sluice.Config{Rate: tenPerSecond})
		g := mustGate(t, sluice.Config{Rate: tenPerSecond, Parent: all, Observer: slow(100 * ms)})
		l := synclog.New()
		l.Call(0, enter(g, bg))
		all.SetRate(sluice.Rate{Count: 1000, Per: 100300 * ms}) // its next slot is at 100.3
		l.Call(1, enter(g, bg))                                 // asks its parent at 100.5 in place of 100
		time.Sleep(100*ms + ms/2)
		l.Want(t, synclog.At(0, 0), synclog.At(1, 100*ms+ms/2))
		if d := g.Stats().NextSlot.Sub(l.Start); d != 200*ms+3*ms/10 {
			t.Errorf("the next slot is at %v", d)
		}
	})
}

// A call that comes late by itself makes up for nothing, with or without limiters.
func TestConfig_CatchUp_NotForLateCallers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := generations(t, sluice.Config{Limits: []sluice.Limit{{Limiter: &bucket{capacity: 9, interval: ms}}}}, sluice.Config{Rate: tenPerSecond})
		l := synclog.New()
		l.Call(0, enter(g, bg))
		time.Sleep(100*ms + ms/2)
		l.Call(1, enter(g, bg))
		l.Call(2, enter(g, bg))
		time.Sleep(time.Second)
		l.Want(t, synclog.At(0, 0), synclog.At(1, 100*ms+ms/2), synclog.At(2, 200*ms+ms/2))
	})
}

// The rest of a lateness is not lost when a limiter takes a moment to answer the next
// call. The second call is 0.99 ms late at 4,000/s; those behind it leave as soon as
// their limiter has answered, until the delay is made up for.
func TestConfig_CatchUp_RestSurvivesARemoteLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const trip = ms / 100
		start, late := time.Now(), true
		g := mustGate(t, sluice.Config{
			Rate:   sluice.Rate{Count: 4000, Per: time.Second},
			Limits: []sluice.Limit{{Limiter: &bucket{capacity: 1e6, interval: ms, trip: trip}}},
			Observer: func(e sluice.Event) {
				if e.Kind == sluice.EventQueued && late {
					late = false
					time.Sleep(time.Until(start.Add(ms/4 + 99*ms/100 - trip)))
				}
			},
		})
		for i := range 9 {
			g.Acquire(bg, 1)
			want := time.Duration(i)*ms/4 + trip
			if i > 0 {
				want = max(want, ms/4+99*ms/100+time.Duration(i-1)*trip)
			}
			if d := time.Since(start); d != want {
				t.Errorf("call %d at %v, want %v", i, d, want)
			}
		}
	})
}

// Whatever is late and for whatever reason, on no level do more permits leave in a
// window W than B + (W + MaxCatchUp)/T + n − 1.
func TestConfig_CatchUp_WindowBound(t *testing.T) {
	for seed := range uint64(40) {
		synctest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 13))
			var mu sync.Mutex
			random := func(n int64) int64 {
				mu.Lock()
				defer mu.Unlock()
				return r.Int64N(n)
			}
			type level struct {
				burst    int64
				interval time.Duration
				counts   sluice.Unit
				catchUp  time.Duration
			}
			var levels []level
			var cfgs []sluice.Config
			for range 1 + random(3) {
				v := level{1 + random(3), time.Duration(1 + random(int64(2*ms))), []sluice.Unit{sluice.Calls, sluice.Cost}[random(2)], []time.Duration{0, ms, 5 * ms}[random(3)]}
				cfg := sluice.Config{
					MaxCatchUp: v.catchUp,
					Rate:       sluice.Rate{Count: 1, Per: v.interval, Burst: v.burst}, RateUnit: v.counts, Concurrency: random(9),
					Observer: func(e sluice.Event) {
						if e.Kind == sluice.EventQueued {
							time.Sleep(time.Duration(random(int64(3 * ms))))
						}
					},
				}
				for range random(3) {
					cfg.Limits = append(cfg.Limits, sluice.Limit{Limiter: &bucket{capacity: 20, interval: ms / 2, trip: time.Duration(random(int64(ms)))}})
				}
				levels, cfgs = append(levels, v), append(cfgs, cfg)
			}
			g := generations(t, cfgs...)
			type grant struct {
				at time.Duration
				n  int64
			}
			var grants []grant
			start := time.Now()
			var callers sync.WaitGroup
			for range 1 + random(8) {
				callers.Go(func() {
					for range 60 {
						ctx, cancel := context.WithTimeout(bg, time.Duration(1+random(int64(40*ms))))
						n := 1 + random(3)
						if p, err := g.Acquire(ctx, n); err == nil {
							mu.Lock()
							grants = append(grants, grant{time.Since(start), n})
							mu.Unlock()
							time.Sleep(time.Duration(random(int64(2 * ms))))
							p.Release()
						}
						cancel()
					}
				})
			}
			callers.Wait()
			if len(grants) < 20 {
				t.Errorf("seed %d: only %d calls were let through", seed, len(grants))
			}
			for i, v := range levels {
				if v.catchUp == 0 {
					v.catchUp = 50 * ms
				}
				for from := range grants {
					sum, largest := int64(0), int64(0)
					for _, next := range grants[from:] {
						n := next.n
						if v.counts == sluice.Calls {
							n = 1
						}
						sum, largest = sum+n, max(largest, n)
						w := next.at - grants[from].at
						if bound := v.burst + int64((w+v.catchUp)/v.interval) + largest - 1; sum > bound {
							t.Fatalf("seed %d, level %d, %+v: %d permits within %v, at most %d may be", seed, i, v, sum, w, bound)
						}
					}
				}
			}
		})
	}
}

// Regression: a call that had waited for its slot and then for room counted as woken
// late when the room came back, and the next one left up to MaxCatchUp too early.
func TestConfig_CatchUp_NotForWaitsForConcurrency(t *testing.T) {
	for name, quotas := range map[string][]sluice.Limit{
		"no quota": nil,
		"a quota":  {{Name: "q", Limiter: &bucket{capacity: 100, interval: ms}}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g, l := mustGate(t, sluice.Config{Rate: tenPerSecond, Concurrency: 2, Limits: quotas}), synclog.New()
				p, _ := g.Acquire(bg, 1)
				l.Call(0, enter(g, bg)) // its slot is at 100 ms
				l.Call(1, enter(g, bg))
				g.SetConcurrency(1)
				time.Sleep(100*ms + ms/2)
				g.SetConcurrency(2)
				time.Sleep(ms)
				p.Release()
				time.Sleep(time.Minute)
				l.Want(t, synclog.At(0, 100*ms+ms/2), synclog.At(1, 200*ms+ms/2))
			})
		})
	}
}

// # Hopeless waits

// A slowPath is a path of gates on which every call has to wait for an hour.
type slowPath struct {
	gate *sluice.Gate
	free func() // ends that, at once
}

var perHour = sluice.Rate{Count: 1, Per: time.Hour}

// slowPaths are the ways in which only the first caller of a gate can know that it has to wait.
var slowPaths = map[string]func(t *testing.T) slowPath{
	"a paused parent": func(t *testing.T) slowPath {
		p := mustGate(t, sluice.Config{})
		p.PauseUntil(time.Now().Add(time.Hour), "a test")
		return slowPath{generation(t, p), p.Resume}
	},
	"the rate of a parent": func(t *testing.T) slowPath {
		p := mustGate(t, sluice.Config{Rate: perHour})
		_ = p.Wait(bg)
		return slowPath{generation(t, p), func() { _ = p.SetRate(sluice.Rate{}) }}
	},
	"a paused parent of a parent": func(t *testing.T) slowPath {
		p := mustGate(t, sluice.Config{})
		p.PauseUntil(time.Now().Add(time.Hour), "a test")
		return slowPath{generation(t, generation(t, p)), p.Resume}
	},
	"the rate of a parent of a parent": func(t *testing.T) slowPath {
		p := mustGate(t, sluice.Config{Rate: perHour})
		_ = p.Wait(bg)
		return slowPath{generation(t, generation(t, p)), func() { _ = p.SetRate(sluice.Rate{}) }}
	},
	"a paused parent that is used directly": func(t *testing.T) slowPath {
		p := mustGate(t, sluice.Config{})
		p.PauseUntil(time.Now().Add(time.Hour), "a test")
		ctx, cancel := context.WithTimeout(bg, 2*time.Hour)
		go p.Do(ctx, nothing)
		t.Cleanup(cancel)
		synctest.Wait()
		return slowPath{generation(t, p), p.Resume}
	},
	"a limit": func(t *testing.T) slowPath {
		b := limits.Must(leaky.New(limits.Rate{Count: 1, Per: time.Hour, Burst: 10}))
		b.Take(10)
		g := mustGate(t, sluice.Config{Limits: []sluice.Limit{{Limiter: b}}})
		return slowPath{g, func() { b.Adjust(bg, -10, 0) }}
	},
	"a limit of a parent": func(t *testing.T) slowPath {
		b := limits.Must(leaky.New(limits.Rate{Count: 1, Per: time.Hour, Burst: 10}))
		b.Take(10)
		p := mustGate(t, sluice.Config{Limits: []sluice.Limit{{Limiter: b}}})
		return slowPath{generation(t, p), func() { b.Adjust(bg, -10, 0) }}
	},
	"a limit far away": func(t *testing.T) slowPath {
		b := &bucket{capacity: 1, interval: time.Hour, trip: 200 * ms, full: time.Now().Add(time.Hour)}
		return slowPath{mustGate(t, sluice.Config{Limits: []sluice.Limit{{Limiter: b}}}), nil}
	},
}

func generation(t *testing.T, parent *sluice.Gate) *sluice.Gate {
	return mustGate(t, sluice.Config{Parent: parent})
}

// A call behind one that waits does not wait for what that one knows to take too long.
func TestGate_Hopeless_BehindAnother(t *testing.T) {
	minute := func(f func(ctx context.Context) error) error {
		ctx, cancel := context.WithTimeout(bg, time.Minute)
		defer cancel()
		return f(ctx)
	}
	verbs := map[string]func(g *sluice.Gate) error{
		"Acquire":       func(g *sluice.Gate) error { return minute(func(ctx context.Context) error { return enter(g, ctx)() }) },
		"AcquireWithin": func(g *sluice.Gate) error { _, err := g.AcquireWithin(bg, 1, time.Minute); return err },
		"AcquireWithin, a large call": func(g *sluice.Gate) error {
			_, err := g.AcquireWithin(bg, 5, time.Minute)
			return err
		},
		"Do": func(g *sluice.Gate) error {
			return minute(func(ctx context.Context) error { return g.Do(ctx, nothing) })
		},
		"Wait": func(g *sluice.Gate) error { return minute(g.Wait) },
		"Retry": func(g *sluice.Gate) error {
			return minute(func(ctx context.Context) error { return sluice.Retry(ctx, g, nothing) })
		},
		"Keyed": func(g *sluice.Gate) error {
			gates := must(sluice.NewKeyed(func(string) (*sluice.Gate, error) { return sluice.New(sluice.Config{Parent: g}) }))
			return minute(func(ctx context.Context) error {
				return gates.Do(ctx, "a", nothing)
			})
		},
	}
	for path, make := range slowPaths {
		for verb, call := range verbs {
			t.Run(path+"/"+verb, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := make(t)
					ctx, cancel := context.WithCancel(bg)
					l := synclog.New()
					l.Call(0, enter(s.gate, ctx))
					time.Sleep(time.Second) // it has asked
					began := time.Now()
					err := call(s.gate)
					var wait *limits.WaitError
					if !errors.As(err, &wait) || !errors.Is(err, context.DeadlineExceeded) || time.Since(began) > 0 {
						t.Errorf("after %v: %v, want a WaitError at once", time.Since(began), err)
					} else if least := time.Hour - 2*time.Second; wait.Need < least || wait.Need > 2*time.Hour {
						t.Errorf("it says %v, want an hour: %v", wait.Need, err)
					}
					cancel()
					l.Want(t, synclog.Failed(0, time.Second, context.Canceled))
				})
			})
		}
	}
}

// Calls that wait already fail as soon as the first one learns that it takes too long.
func TestGate_Hopeless_WhenTheFirstLearnsIt(t *testing.T) {
	for name, make := range map[string]func(t *testing.T) (g *sluice.Gate, learns func()){
		"a parent is paused": func(t *testing.T) (*sluice.Gate, func()) {
			p := mustGate(t, sluice.Config{Concurrency: 1})
			_, _ = p.Acquire(bg, 1)
			return generation(t, p), func() { p.PauseUntil(time.Now().Add(time.Hour), "a test") }
		},
		"a parent is paused, and the gate has a rate": func(t *testing.T) (*sluice.Gate, func()) {
			p := mustGate(t, sluice.Config{Concurrency: 1})
			_, _ = p.Acquire(bg, 1)
			g := mustGate(t, sluice.Config{Rate: sluice.Rate{Count: 1000, Per: time.Second}, Parent: p})
			return g, func() { p.PauseUntil(time.Now().Add(time.Hour), "a test") }
		},
		"a parent is used directly": func(t *testing.T) (*sluice.Gate, func()) {
			p := mustGate(t, sluice.Config{Concurrency: 1})
			_, _ = p.Acquire(bg, 1)
			go p.AcquireWithin(bg, 1, 40*time.Hour)
			synctest.Wait()
			return generation(t, p), func() { p.PauseUntil(time.Now().Add(time.Hour), "a test") }
		},
		"a parent of a parent is paused": func(t *testing.T) (*sluice.Gate, func()) {
			p := mustGate(t, sluice.Config{Concurrency: 1})
			_, _ = p.Acquire(bg, 1)
			return generation(t, generation(t, p)), func() { p.PauseUntil(time.Now().Add(time.Hour), "a test") }
		},
		"a parent gets a rate": func(t *testing.T) (*sluice.Gate, func()) {
			p := mustGate(t, sluice.Config{Rate: sluice.Rate{Count: 1, Per: 20 * time.Second}})
			_ = p.Wait(bg)
			return generation(t, p), func() { _ = p.SetRate(perHour) }
		},
		"the answer of a limit far away": func(t *testing.T) (*sluice.Gate, func()) {
			b := &bucket{capacity: 1, interval: time.Hour, trip: 10 * time.Second, full: time.Now().Add(time.Hour)}
			return mustGate(t, sluice.Config{Limits: []sluice.Limit{{Limiter: b}}}), func() {}
		},
		"a call of another child": func(t *testing.T) (*sluice.Gate, func()) {
			p := mustGate(t, sluice.Config{Concurrency: 1, Rate: perHour})
			permit, _ := p.Acquire(bg, 1)
			_ = p.SetRate(sluice.Rate{})
			go generation(t, p).Wait(bg) // is the first there
			synctest.Wait()
			return generation(t, p), func() {
				_ = p.SetRate(perHour)
				permit.Release()
			}
		},
	} {
		for _, many := range []int{1, 100} { // that wait before it, and in the second case make an index worth while
			t.Run(fmt.Sprint(name, "/", many), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					g, learns := make(t)
					ctx, cancel := context.WithCancel(bg)
					defer cancel()
					l := synclog.New()
					for range many {
						go g.Acquire(ctx, 1)
						synctest.Wait()
					}
					deadline, stop := context.WithTimeout(bg, time.Minute)
					defer stop()
					l.Call(1, enter(g, deadline))
					l.Call(2, func() error { _, err := g.AcquireWithin(bg, 1, 2*time.Minute); return err })
					l.Call(3, func() error { _, err := g.AcquireWithin(bg, 1, 48*time.Hour); return err })
					time.Sleep(10 * time.Second)
					learns()
					l.Want(t, synclog.Failed(1, 10*time.Second, context.DeadlineExceeded), synclog.Failed(2, 10*time.Second, context.DeadlineExceeded))
					for _, left := range l.Sofar() {
						var wait *limits.WaitError
						if !errors.As(left.Err, &wait) || wait.Need < 50*time.Minute {
							t.Errorf("call %d: %v, want a WaitError of an hour", left.Caller, left.Err)
						}
					}
					g.Close()
					time.Sleep(48 * time.Hour)
				})
			})
		}
	}
}

// The first call learns what holds it up in the parent only when it has left its own gate.
func TestGate_Hopeless_WhenTheFirstGetsThere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := mustGate(t, sluice.Config{})
		g := mustGate(t, sluice.Config{Parent: p, Rate: sluice.Rate{Count: 1, Per: 10 * time.Second}})
		if err := g.Wait(bg); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(bg)
		l := synclog.New()
		l.Call(0, enter(g, ctx)) // to the parent in 10 s
		l.Call(1, func() error { _, err := g.AcquireWithin(bg, 1, 5*time.Minute); return err })
		time.Sleep(5 * time.Second)
		l.Call(2, enter(generation(t, p), ctx))
		p.PauseUntil(time.Now().Add(time.Hour), "a test")
		l.Call(3, enter(p, ctx))
		time.Sleep(10 * time.Minute)
		cancel()
		at := 10*time.Minute + 5*time.Second
		l.Want(t, synclog.At(2, 5*time.Second), synclog.Failed(1, 10*time.Second, context.DeadlineExceeded),
			synclog.Failed(0, at, context.Canceled), synclog.Failed(3, at, context.Canceled))
	})
}

// A wait that has just become shorter is no reason to refuse a call, although the first caller has
// not asked again yet.
func TestGate_Hopeless_NoMore(t *testing.T) {
	for path, make := range slowPaths {
		t.Run(path, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := make(t)
				if s.free == nil {
					return // it cannot say so
				}
				l := synclog.New()
				l.Call(0, func() error { return s.gate.Do(bg, nothing) })
				time.Sleep(time.Second)
				s.free()
				p, err := s.gate.AcquireWithin(bg, 1, time.Second)
				if err != nil {
					t.Errorf("the first has room: %v", err)
				}
				p.Release()
				l.Want(t, synclog.At(0, time.Second))
			})
		})
		t.Run(path+"/the first gives up", func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := make(t)
				if s.free == nil {
					return
				}
				ctx, cancel := context.WithCancel(bg)
				l := synclog.New()
				l.Call(0, enter(s.gate, ctx))
				cancel()
				s.free()
				if _, err := s.gate.AcquireWithin(bg, 1, time.Second); err != nil {
					t.Errorf("nobody waits: %v", err)
				}
				l.Want(t, synclog.Failed(0, 0, context.Canceled))
			})
		})
	}
}

// A bound of 0 is no sign that there is none: the deadline of a caller a nanosecond after the parent was made hid from later
// ones how long the parent pauses, and they waited in vain for as long as they were allowed.
func TestGate_Hopeless_AfterABoundAtTheBeginning(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := mustGate(t, sluice.Config{Name: "all", Adaptive: sluice.Adaptive{Disabled: true}})
		a, b := mustGate(t, sluice.Config{Name: "a", Parent: all}), mustGate(t, sluice.Config{Name: "b", Parent: all})
		p, _ := all.TryAcquire(1)
		all.PauseUntil(time.Now().Add(time.Minute), "")
		ctx, cancel := context.WithCancel(t.Context())
		defer synctest.Wait()
		defer cancel()
		for _, g := range []*sluice.Gate{all, b} {
			go g.Acquire(ctx, 1)
			synctest.Wait()
		}
		soon, stop := context.WithTimeout(ctx, 1)
		defer stop()
		start := time.Now()
		_, errA := a.Acquire(soon, 1)
		p.Release()
		_, errB := b.AcquireWithin(ctx, 1, time.Second)
		for _, err := range []error{errA, errB} {
			if !errors.As(err, new(*limits.WaitError)) || !time.Now().Equal(start) {
				t.Errorf("%v after %v", err, time.Since(start))
			}
		}
	})
}

// A large call that waits for a limit holds up those behind it only while it waits.
func TestGate_Hopeless_NotAfterALargeCallGaveUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := limits.Must(leaky.New(limits.Rate{Count: 1, Per: time.Hour, Burst: 10}))
		b.Take(5)
		g := mustGate(t, sluice.Config{Limits: []sluice.Limit{{Limiter: b}}})
		ctx, cancel := context.WithCancel(bg)
		l := synclog.New()
		l.Call(0, func() error { _, err := g.Acquire(ctx, 10); return err })
		if _, err := g.AcquireWithin(bg, 1, time.Minute); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("behind a call that waits for 5 h: %v", err)
		}
		cancel()
		if _, err := g.AcquireWithin(bg, 1, time.Minute); err != nil {
			t.Errorf("behind a call whose context is done: %v", err)
		}
		l.Want(t, synclog.Failed(0, 0, context.Canceled))
	})
}

// What one call has learned from a limit is not said of the next one, which is still asking.
func TestGate_Hopeless_NotWhileTheNextOneAsks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &bucket{capacity: 10, interval: time.Hour, trip: 200 * ms, full: time.Now().Add(5 * time.Hour)}
		g := mustGate(t, sluice.Config{Limits: []sluice.Limit{{Limiter: b}}})
		ctx, cancel := context.WithCancel(bg)
		l := synclog.New()
		l.Call(0, func() error { _, err := g.Acquire(ctx, 10); return err })
		l.Call(1, enter(g, bg))
		time.Sleep(time.Second)
		cancel()
		time.Sleep(100 * ms)
		l.Call(2, func() error { _, err := g.AcquireWithin(bg, 1, time.Minute); return err })
		time.Sleep(time.Minute)
		l.Want(t, synclog.Failed(0, time.Second, context.Canceled), synclog.At(1, 1200*ms), synclog.At(2, 1400*ms))
	})
}
