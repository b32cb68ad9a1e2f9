package sluice_test

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/internal/testkit/synclog"
)

// lateness is by how much calls are woken late, in turn.
var lateness = []time.Duration{ms / 2, 0, 3 * ms / 10, ms / 10, 0}

// slow makes the first caller in a queue late by that for each interval from now on: it has
// asked and got the time to ask again, and before it sleeps until then it must call the
// observer, which is slow.
func slow(interval time.Duration) sluice.Observer {
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

// What is beyond CatchUp is lost: of 0.5 ms, 0.2 ms are made up for, and the next slot
// is 0.3 ms later.
func TestConfig_CatchUp_IsTheMost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := generations(t, sluice.Config{Concurrency: 9}, sluice.Config{Rate: tenPerSecond, CatchUp: ms / 5, Observer: slow(100 * ms)})
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
// window W than B + (W + CatchUp)/T + n − 1.
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
					CatchUp: v.catchUp,
					Rate:    sluice.Rate{Count: 1, Per: v.interval, Burst: v.burst}, RateUnit: v.counts, Concurrency: random(9),
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
// late when the room came back, and the next one left up to CatchUp too early.
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
