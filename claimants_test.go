package sluice_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/limits"
)

// waitFor waits for g as a claimant.
func waitFor(ctx context.Context, g *sluice.Gate, who sluice.Claimant) error {
	return g.For(who, func(gate *sluice.Gate) error { return gate.Wait(ctx) })
}

// Classes get shares by their weights, and claimants of one class by theirs. Those without a name are one.
func TestGate_For(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := mustGate(t, sluice.Config{Name: "api", Rate: sluice.Rate{Count: 100, Per: time.Second}})
		b := newBacklog(t)
		defer b.stop()
		want := map[sluice.Claimant]float64{
			{}: 0.1, // of 1 + 3 + 6
			{Name: "a", Class: "users", ClassWeight: 3}:            0.1,
			{Name: "b", Weight: 2, Class: "users", ClassWeight: 3}: 0.2,
			{Name: "a", Weight: 6}:                                 0.6,
		}
		for who := range want {
			for range 10 {
				b.all.Go(func() {
					for waitFor(b.ctx, g, who) == nil {
					}
				})
			}
		}
		time.Sleep(10 * time.Second)
		names := map[string]bool{}
		g.Claimants(func(who sluice.Claimant, s sluice.Stats) bool {
			names[s.Name] = true
			if got := float64(s.Admitted) / 1000; who.Name+who.Class == "" || who.Name != "" {
				if share := want[who]; got < share-0.04 || got > share+0.04 {
					t.Errorf("%+v: %v of the calls, want %v", who, got, share)
				}
			}
			return true
		})
		if len(names) != 4 || !names["api"] || !names["api for a"] || !names["api for b"] || !names["api for users"] {
			t.Errorf("gates %v", names)
		}
	})
}

// What answers say counts for the gate, and for one claimant alone only if only its calls are refused.
func TestGate_For_Refused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := mustGate(t, sluice.Config{Name: "api"})
		call := func(name string, f func() error) error {
			return g.For(sluice.Claimant{Name: name}, func(gate *sluice.Gate) error {
				return gate.Do(bg, func(context.Context) error { return f() })
			})
		}
		_ = call("a", func() error { return sluice.ThrottledFor(errTooMany, time.Minute) })
		if left := time.Until(g.Stats().PausedUntil); left != time.Minute {
			t.Errorf("paused for %v", left)
		}
		began := time.Now()
		for i := range 100 {
			_ = call("b", func() error { return nil })
			if i%10 == 0 {
				_ = call("a", func() error { return sluice.ThrottledFor(errTooMany, time.Second) })
			}
		}
		if took := time.Since(began); took > 2*time.Minute {
			t.Errorf("took %v", took)
		}
		before := time.Now()
		if err := call("b", func() error { return nil }); err != nil || time.Since(before) > time.Second {
			t.Errorf("%v after %v", err, time.Since(before))
		}
	})
}

// Calls of claimants that wait are turned away like those of the gate, also behind others.
func TestGate_TurnAway_Claimants(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, other := mustGate(t, sluice.Config{}), mustGate(t, sluice.Config{})
		g.PauseUntil(time.Now().Add(time.Hour), "")
		var all sync.WaitGroup
		for i := range 6 {
			all.Go(func() {
				a := sluice.NewRetryLoop(g, sluice.RetryPolicy{MaxServerWait: -1})
				a.Label(uint32(1 + i%2))
				err := g.For(sluice.Claimant{Name: fmt.Sprint(i / 4)}, func(gate *sluice.Gate) error {
					a.Move(gate)
					_, err := a.Next(bg, 1)
					return err
				})
				if i%2 == 0 {
					if !errors.Is(err, sluice.ErrTurnedAway) {
						t.Errorf("call %d: %v", i, err)
					}
					a.Move(other)
					p, err := a.Next(bg, 1)
					if err != nil {
						t.Error(err)
					}
					p.Release()
				} else if err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		g.TurnAway(func(label uint32) bool { return label == 1 })
		synctest.Wait()
		if n := other.Stats().Admitted; n != 3 {
			t.Errorf("%d calls went on through another gate, want 3", n)
		}
		g.Resume()
		all.Wait()
	})
}

// A gate that is closed ends the waits of claimants, and one without a call is dropped.
func TestGate_For_CloseAndForget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := mustGate(t, sluice.Config{Name: "api", Rate: sluice.Rate{Count: 1, Per: time.Hour}})
		for i := range 5000 {
			_ = g.For(sluice.Claimant{Name: fmt.Sprint(i), Class: fmt.Sprint(i % 10)}, func(*sluice.Gate) error { return nil })
		}
		n := 0
		g.Claimants(func(sluice.Claimant, sluice.Stats) bool { n++; return true })
		if n > 1100 {
			t.Errorf("%d gates of claimants", n)
		}
		_ = g.Wait(bg)
		var all sync.WaitGroup
		for i := range 10 {
			all.Go(func() {
				if err := waitFor(bg, g, sluice.Claimant{Name: fmt.Sprint(i % 2)}); !errors.Is(err, limits.ErrClosed) {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		g.Close()
		all.Wait()
	})
}

// The gates of a Keyed are dropped although they had claimants.
func TestGate_For_InAKeyed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gates := must(sluice.NewKeyed(func(key string) (*sluice.Gate, error) { return sluice.New(sluice.Config{Name: key}) }, sluice.KeyedConfig{MaxKeys: 2}))
		for i := range 10 {
			if err := gates.Use(fmt.Sprint(i), func(g *sluice.Gate) error {
				return waitFor(bg, g, sluice.Claimant{Name: "a", Class: "b"})
			}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Hour)
		}
	})
}

func TestGate_For_Errors(t *testing.T) {
	f := func(*sluice.Gate) error { return nil }
	g := mustGate(t, sluice.Config{})
	for _, who := range []sluice.Claimant{{Weight: -1}, {Class: "a", ClassWeight: -1}, {Name: "a", Class: "a", ClassWeight: -1}} {
		if g.For(who, f) == nil {
			t.Errorf("%+v: no error", who)
		}
	}
	if mustGate(t, sluice.Config{Semaphore: shared{}}).For(sluice.Claimant{}, f) == nil {
		t.Error("no error for a gate with a Semaphore")
	}
}

// Callers of many claimants, with cancellations, at the same time: nothing is lost.
func TestGate_For_Stress(t *testing.T) {
	g := mustGate(t, sluice.Config{Concurrency: 2})
	var all sync.WaitGroup
	for i := range 16 {
		all.Go(func() {
			for n := range 300 {
				ctx, cancel := context.WithCancel(bg)
				if n%3 == 0 {
					go cancel()
				}
				_ = g.For(sluice.Claimant{Name: fmt.Sprint((i + n) % 5), Weight: int64(1 + (i+n)%5), Class: fmt.Sprint(n % 2)}, func(gate *sluice.Gate) error {
					return gate.Do(ctx, func(context.Context) error { runtime.Gosched(); return nil })
				})
				cancel()
			}
		})
	}
	all.Wait()
	if s := g.Stats(); s.InFlight != 0 || s.Waiting+s.Pacing != 0 {
		t.Errorf("%v", s)
	}
}
