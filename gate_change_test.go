package sluice_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/internal/testkit/synclog"
)

func TestGate_SetRate_ReachesWaiters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, l := mustGate(t, sluice.Config{Rate: sluice.Rate{Count: 1, Per: 10 * time.Second}, Concurrency: 2}), synclog.New()
		for i := range 4 {
			l.Call(i, enter(g, bg))
		}
		time.Sleep(time.Second)
		g.SetRate(sluice.Rate{Count: 1000, Per: time.Second})
		time.Sleep(time.Second)
		l.Want(t, synclog.At(0, 0), synclog.At(1, time.Second)) // now it is full
		g.SetConcurrency(3)
		time.Sleep(time.Second)
		g.SetConcurrency(0)
		time.Sleep(time.Second)
		l.Want(t, synclog.At(0, 0), synclog.At(1, time.Second), synclog.At(2, 2*time.Second), synclog.At(3, 3*time.Second))
	})
}

func TestGate_SetConcurrency_LetsHoldersFinish(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, l := mustGate(t, sluice.Config{Concurrency: 3}), synclog.New()
		for i := range 3 {
			l.Call(i, func() error { return hold(g, time.Duration(i+1)*time.Second) })
		}
		g.SetConcurrency(1)
		l.Call(9, enter(g, bg))
		if s := g.Stats(); s.InFlight != 3 || s.Waiting != 1 || s.Concurrency != 1 {
			t.Errorf("after the shrink: %+v", s)
		}
		time.Sleep(time.Minute)
		l.Want(t, synclog.At(0, time.Second), synclog.At(1, 2*time.Second), synclog.At(2, 3*time.Second), synclog.At(9, 3*time.Second))
	})
}

func TestGate_SetRate_UnlimitedAndBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, l := mustGate(t, sluice.Config{Rate: tenPerSecond}), synclog.New()
		for i := range 4 {
			l.Call(i, enter(g, bg))
		}
		time.Sleep(150 * ms)
		g.SetRate(sluice.Rate{})
		l.Want(t, synclog.At(0, 0), synclog.At(1, 100*ms), synclog.At(2, 150*ms), synclog.At(3, 150*ms))
		g.SetRate(sluice.Rate{Count: 1, Per: time.Second})
		l.Call(4, enter(g, bg)) // one new interval after the last one left
		time.Sleep(time.Minute)
		if got := l.Sofar(); got[4] != synclog.At(4, 1150*ms) {
			t.Errorf("got %v", got[4])
		}
	})
}

func TestGate_SetRate_CountsFromTheLastUnlimitedCall(t *testing.T) {
	for _, at := range []time.Duration{0, time.Second} {
		for n := range int64(3) {
			synctest.Test(t, func(t *testing.T) {
				g := mustGate(t, sluice.Config{})
				if at > 0 {
					g.PauseUntil(time.Now().Add(at), "so that the lane opens at that very instant")
				}
				time.Sleep(at)
				began := time.Now()
				if n > 0 { // 1 leaves past the lock, 2 under it
					if p, err := g.Acquire(context.Background(), n); err == nil {
						p.Release()
					}
				}
				time.Sleep(300 * time.Millisecond)
				if err := g.SetRate(sluice.Rate{Count: 1, Per: time.Second}); err != nil {
					t.Fatal(err)
				}
				want := time.Second
				if n == 0 {
					want = 300 * time.Millisecond
				}
				if p, err := g.Acquire(context.Background(), 1); err == nil {
					p.Release()
				}
				if got := time.Since(began); got != want {
					t.Errorf("after a call of %d at %v the next leaves after %v, want %v", n, at, got, want)
				}
			})
		}
	}
}

func TestGate_SetRate_UnlimitedOwesNothing(t *testing.T) {
	for _, n := range []int64{1, 2} {
		synctest.Test(t, func(t *testing.T) {
			g := mustGate(t, sluice.Config{Rate: withBurst(tenPerSecond, 11)})
			time.Sleep(time.Minute)
			for range 11 {
				if _, ok := g.TryAcquire(1); !ok {
					t.Fatal("the burst is 11 calls")
				}
			}
			g.SetRate(sluice.Rate{})
			if _, ok := g.TryAcquire(n); !ok {
				t.Errorf("a call of %d is refused", n)
			}
		})
	}
}

// SetConcurrency holds from now on in a gate that learns, as in any other: 20 callers use all
// of each new limit.
func TestGate_SetConcurrency_Learned(t *testing.T) {
	refuse := func(t *testing.T, g *sluice.Gate) {
		_ = g.Do(bg, always(sluice.RetryAfter(errBusy, 10*ms)))
		time.Sleep(time.Second)
		if g.Stats().Learned == nil {
			t.Fatal("the gate does not learn")
		}
	}
	none := func(*testing.T, *sluice.Gate) {}
	for name, c := range map[string]struct {
		cfg           sluice.Config
		before, after func(*testing.T, *sluice.Gate) // the first SetConcurrency
		n             int64
	}{
		"before the rule": {sluice.Config{}, none, refuse, 1},
		"after the rule":  {sluice.Config{}, refuse, none, 1},
		"search":          {sluice.Config{Adaptive: sluice.Adaptive{Search: true}}, none, none, 1},
		"several units":   {sluice.Config{Adaptive: sluice.Adaptive{Search: true}}, none, none, 3},
		"unit of cost":    {sluice.Config{ConcurrencyUnit: sluice.Cost, Adaptive: sluice.Adaptive{Search: true}}, none, none, 1},
		"restored": {sluice.Config{}, func(t *testing.T, g *sluice.Gate) {
			other := mustGate(t, sluice.Config{Rate: sluice.Rate{Count: 1000, Per: time.Second}, Adaptive: sluice.Adaptive{Search: true}})
			refuse(t, other)
			if err := g.Restore(other.Snapshot()); err != nil {
				t.Fatal(err)
			}
		}, none, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cfg := c.cfg
				cfg.Concurrency = 3
				cfg.Adaptive.Start = sluice.Rate{Count: 1000, Per: time.Second}
				g := mustGate(t, cfg)
				c.before(t, g)
				limits := []int64{2, 10, 1, 6, 0, 4}
				ctx, cancel := context.WithTimeout(bg, time.Duration(len(limits)+2)*time.Minute)
				defer cancel()
				g.SetConcurrency(limits[0])
				c.after(t, g)
				for range 20 {
					go func() {
						for {
							p, err := g.Acquire(ctx, c.n)
							if err != nil {
								return
							}
							time.Sleep(time.Second)
							p.Release()
						}
					}()
				}
				for _, limit := range limits {
					if err := g.SetConcurrency(limit); err != nil {
						t.Fatal(err)
					}
					time.Sleep(time.Minute + 500*ms)
					want := limit
					if limit == 0 {
						want = 20
					}
					s := g.Stats()
					for range 20 { // the pace may hold one for a millisecond
						time.Sleep(time.Millisecond)
						if now := g.Stats(); now.InFlight > s.InFlight {
							s = now
						}
					}
					if s.InFlight != want || s.Learned == nil {
						t.Errorf("limit %d: %v", limit, s)
					}
				}
				cancel()
				synctest.Wait()
				time.Sleep(2 * time.Second)
			})
		})
	}
}
