package sluice_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/leaky"
	"github.com/sluice-go/sluice/limits"
	"github.com/sluice-go/sluice/window"
)

func unreachable(context.Context) error { return errors.New("no route to host") }

// keyed returns a Keyed whose gates are of the config that cfg returns.
func keyed[K comparable](t *testing.T, kc sluice.KeyedConfig, cfg func(key K) sluice.Config) *sluice.Keyed[K] {
	t.Helper()
	k, err := sluice.NewKeyed(func(key K) (*sluice.Gate, error) { return sluice.New(cfg(key)) }, kc)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// lookAround uses one gate of k until all others were looked at.
func lookAround(t *testing.T, k *sluice.Keyed[string]) {
	t.Helper()
	for range k.Len() + 2 {
		if err := k.Use("another", func(*sluice.Gate) error { return nil }); err != nil {
			t.Fatal(err)
		}
	}
}

// Hosts that are down leave no more behind than others, whatever they have cost, once
// they were left alone for a while.
func TestKeyed_ForgetsDeadHosts(t *testing.T) {
	shared := limits.Must(leaky.New(limits.Rate{Count: 1000, Per: time.Second, Burst: 1 << 20}))
	parent := mustGate(t, sluice.Config{})
	for name, c := range map[string]struct {
		cfg   func() sluice.Config
		calls int           // to each
		after time.Duration // of quiet
	}{
		"failed once":    {func() sluice.Config { return sluice.Config{} }, 1, time.Second},
		"with a rate":    {func() sluice.Config { return sluice.Config{Rate: sluice.Rate{Count: 1, Per: time.Second}} }, 1, 2 * time.Second},
		"with quotas":    {func() sluice.Config { return sluice.Config{Limits: []sluice.Limit{{Limiter: shared}}} }, 1, time.Second},
		"below a parent": {func() sluice.Config { return sluice.Config{Parent: parent} }, 1, time.Second},
		"with a limiter of its own": {func() sluice.Config {
			return sluice.Config{Limits: []sluice.Limit{{Limiter: limits.Must(leaky.New(limits.Rate{Count: 1, Per: time.Second, Burst: 10}))}}}
		}, 1, time.Minute},
		"with a window of its own": {func() sluice.Config {
			return sluice.Config{Limits: []sluice.Limit{{Limiter: limits.Must(window.NewFixed(window.Quota{Limit: 10, Window: time.Minute}))}}}
		}, 1, 2 * time.Minute},
		"the budget is empty": {func() sluice.Config { return sluice.Config{} }, 30, 10 * time.Minute},
		"hardly any budget":   {func() sluice.Config { return sluice.Config{RetryBudget: 1} }, 3, 10 * time.Minute},
		"free retries":        {func() sluice.Config { return sluice.Config{RetryBudget: -1} }, 30, time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				if name == "below a parent" {
					parent = mustGate(t, sluice.Config{})
				}
				shared = limits.Must(leaky.New(limits.Rate{Count: 1000, Per: time.Second, Burst: 1 << 20}))
				k := keyed(t, sluice.KeyedConfig{Idle: time.Millisecond}, func(string) sluice.Config { return c.cfg() })
				for host := range 300 {
					for range c.calls {
						k.Use(fmt.Sprint(host), func(g *sluice.Gate) error {
							go sluice.Retry(bg, g, each(ms), unreachable)
							return nil
						})
					}
				}
				time.Sleep(time.Hour) // all calls are over: so is what they have left behind
				lookAround(t, k)
				if n := k.Len(); n > 2 {
					t.Errorf("%d gates are left", n)
				}
				for host := range 300 {
					for range c.calls {
						k.Use(fmt.Sprint(host), func(g *sluice.Gate) error {
							sluice.Retry(bg, g, each(ms), unreachable)
							return nil
						})
					}
				}
				time.Sleep(c.after)
				lookAround(t, k)
				if n := k.Len(); n > 2 {
					t.Errorf("%d gates are left after %v", n, c.after)
				}
			})
		})
	}
}

// Where there is no room, what is remembered of failures is worth less than a call.
func TestKeyed_DeadHostsDoNotFillMaxKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := keyed(t, sluice.KeyedConfig{MaxKeys: 100}, func(string) sluice.Config { return sluice.Config{RetryBudget: 1} })
		for host := range 100 {
			k.Use(fmt.Sprint(host), func(g *sluice.Gate) error { return sluice.Retry(bg, g, each(time.Minute), unreachable) })
		}
		for host := range 1000 {
			if err := k.Do(bg, fmt.Sprint("good", host), nothing); err != nil {
				t.Fatalf("host %d: %v", host, err)
			}
		}
	})
}

// A limiter that only one gate has would lose its state with that gate.
func TestKeyed_KeepsAGateUntilItsOwnLimiterIsAsNew(t *testing.T) {
	for name, c := range map[string]struct {
		limiter func() limits.Limiter
		until   time.Duration // 0: for good
	}{
		"a bucket": {func() limits.Limiter { return limits.Must(leaky.New(limits.Rate{Count: 1, Per: time.Hour, Burst: 2})) }, time.Hour},
		"a log": {func() limits.Limiter {
			return limits.Must(window.NewSliding(window.Quota{Limit: 2, Window: time.Hour}))
		}, time.Hour},
		"a counter":               {func() limits.Limiter { return limits.Must(window.NewFixed(window.Quota{Limit: 2, Window: time.Hour})) }, time.Hour},
		"one that does not say":   {func() limits.Limiter { return &bucket{capacity: 2, interval: time.Hour} }, 0},
		"one that cannot compare": {func() limits.Limiter { return odd{bucket: &bucket{capacity: 2, interval: time.Hour}} }, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				k := keyed(t, sluice.KeyedConfig{Idle: -1}, func(string) sluice.Config {
					return sluice.Config{Limits: []sluice.Limit{{Limiter: c.limiter()}}}
				})
				k.Do(bg, "a", nothing)
				time.Sleep(time.Hour - 1)
				lookAround(t, k)
				if n := k.Len(); n != 2 {
					t.Errorf("forgotten too early: %d left", n)
				}
				time.Sleep(time.Hour)
				lookAround(t, k)
				want := 1
				if c.until == 0 {
					want = 2
				}
				if n := k.Len(); n != want {
					t.Errorf("%d left, want %d", n, want)
				}
			})
		})
	}
}

// odd is a limiter that cannot be a key of a map.
type odd struct {
	*bucket
	_ []int
}

func TestKeyed_SharedLimiterKeepsNoGate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tenants := map[byte]limits.Limiter{'a': &bucket{capacity: 9, interval: time.Hour}, 'b': &bucket{capacity: 9, interval: time.Hour}}
		k := keyed(t, sluice.KeyedConfig{Idle: -1}, func(key string) sluice.Config {
			return sluice.Config{Limits: []sluice.Limit{{Limiter: tenants[key[0]]}}}
		})
		for _, key := range []string{"a1", "a2", "b1"} {
			k.Do(bg, key, nothing)
		}
		for range 10 {
			k.Do(bg, "a3", nothing)
		}
		if n := k.Len(); n != 2 { // a3 and b1, the only one so far that has its limiter
			t.Errorf("%d left", n)
		}
	})
}

// NaN is not even equal to itself.
func TestKeyed_NaNKeysDoNotLeak(t *testing.T) {
	t.Run("NaN", func(t *testing.T) { oddKeys(t, func(int) float64 { return math.NaN() }, 1) })
	t.Run("in an array", func(t *testing.T) {
		oddKeys(t, func(int) [2]float64 { return [2]float64{1, math.NaN()} }, [2]float64{1, 2})
	})
	t.Run("in an interface", func(t *testing.T) { oddKeys(t, func(int) any { return math.NaN() }, any("x")) })
}

func oddKeys[K comparable](t *testing.T, odd func(int) K, even K) {
	synctest.Test(t, func(t *testing.T) {
		forgotten := 0
		k := keyed(t, sluice.KeyedConfig{MaxKeys: 10, Forget: func(*sluice.Gate) bool { forgotten++; return true }}, func(K) sluice.Config { return sluice.Config{Concurrency: 1} })
		var permit *sluice.Permit
		k.Use(odd(0), func(g *sluice.Gate) (err error) {
			permit, err = g.Acquire(bg, 1)
			return err
		})
		for i := range 1000 {
			if err := k.Do(bg, odd(i), nothing); err != nil { // a gate of its own
				t.Fatal(err)
			}
		}
		seen := 0
		k.Stats(func(K, sluice.Stats) bool { seen++; return true })
		if n := k.Len(); n > 10 || n != seen || forgotten != 1001-n {
			t.Errorf("%d gates, %d in Stats, %d forgotten", n, seen, forgotten)
		}
		permit.Release()
		time.Sleep(time.Hour)
		for range 10 {
			k.Do(bg, even, nothing)
		}
		if n := k.Len(); n != 1 {
			t.Errorf("%d gates are left", n)
		}
	})
}

// Parents.

func TestKeyed_KeepsParentsWithChildren(t *testing.T) {
	for name, end := range map[string]func(t *testing.T, hosts *sluice.Keyed[string], child *sluice.Gate){
		"closed": func(_ *testing.T, _ *sluice.Keyed[string], child *sluice.Gate) {
			child.Close()
			child.Close()
		},
		"forgotten": func(t *testing.T, hosts *sluice.Keyed[string], _ *sluice.Gate) { lookAround(t, hosts) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				domains := keyed(t, sluice.KeyedConfig{Idle: -1}, func(string) sluice.Config { return sluice.Config{Concurrency: 1} })
				hosts, err := sluice.NewKeyed(func(host string) (child *sluice.Gate, err error) {
					err = domains.Use(host, func(parent *sluice.Gate) error {
						child, err = sluice.New(sluice.Config{Parent: parent})
						return err
					})
					return child, err
				}, sluice.KeyedConfig{Idle: -1})
				if err != nil {
					t.Fatal(err)
				}
				var child, parent *sluice.Gate
				hosts.Use("example.com", func(g *sluice.Gate) error { child = g; return nil })
				domains.Use("example.com", func(g *sluice.Gate) error { parent = g; return nil })
				for range 3 {
					time.Sleep(time.Hour)
					domains.Use("x", func(*sluice.Gate) error { return nil })
					domains.Use("y", func(*sluice.Gate) error { return nil })
				}
				permit, err := child.Acquire(bg, 1)
				if err != nil {
					t.Fatal(err)
				}
				domains.Use("example.com", func(g *sluice.Gate) error {
					if _, ok := g.TryAcquire(1); ok || g != parent {
						t.Error("two in flight where one may be")
					}
					return nil
				})
				permit.Release()
				end(t, hosts, child)
				lookAround(t, domains)
				again := parent
				domains.Use("example.com", func(g *sluice.Gate) error { again = g; return nil })
				if again == parent {
					t.Error("the parent is kept although its child is gone")
				}
			})
		})
	}
}

// A child that is garbage does not hold its parent.
func TestKeyed_CollectedChildReleasesItsParent(t *testing.T) {
	k := keyed(t, sluice.KeyedConfig{Idle: -1}, func(string) sluice.Config { return sluice.Config{} })
	k.Use("parent", func(g *sluice.Gate) error {
		child, err := sluice.New(sluice.Config{Parent: g})
		if err == nil {
			err = child.Do(bg, nothing)
		}
		return err
	})
	for i := 0; ; i++ { // the runtime says when
		lookAround(t, k)
		if k.Len() == 1 {
			return
		}
		if i == 1000 {
			t.Fatal("the parent is kept")
		}
		runtime.GC()
		runtime.Gosched()
	}
}

// A Forget that panics keeps the gate, which can be used and forgotten later.
func TestKeyedConfig_Forget_PanicLosesNoGate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken := true
		gates, err := sluice.NewKeyed(func(string) (*sluice.Gate, error) { return sluice.New(sluice.Config{}) }, sluice.KeyedConfig{
			Idle: -1,
			Forget: func(*sluice.Gate) bool {
				if broken {
					panic("broken")
				}
				return true
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		use := func(key string) (panicked any) {
			defer func() { panicked = recover() }()
			if err := gates.Do(bg, key, fine); err != nil {
				t.Error(err)
			}
			return nil
		}
		use("a")
		if got := use("b"); got != "broken" {
			t.Errorf("panic %v", got)
		}
		broken = false
		if got := use("a"); got != nil {
			t.Errorf("panic %v", got)
		}
		if use("b"); gates.Len() != 1 {
			t.Errorf("%d gates, want 1", gates.Len())
		}
	})
}

// A limiter that one gate has twice is not shared by several gates: it keeps its gate.
func TestKeyed_LimiterTwiceInOneGateIsNotShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gates, err := sluice.NewKeyed(func(string) (*sluice.Gate, error) {
			day := limits.Must(leaky.New(limits.Rate{Count: 2, Per: 24 * time.Hour, Burst: 2}))
			return sluice.New(sluice.Config{Limits: []sluice.Limit{
				{Name: "calls", Limiter: day, Unit: sluice.Calls}, {Name: "cost", Limiter: day},
			}})
		}, sluice.KeyedConfig{Idle: -1})
		if err != nil {
			t.Fatal(err)
		}
		granted := 0
		for range 3 {
			gates.Use("a", func(g *sluice.Gate) error {
				if p, ok := g.TryAcquire(1); ok {
					granted++
					p.Release()
				}
				return nil
			})
			gates.Use("b", func(*sluice.Gate) error { return nil }) // looks at others
		}
		if granted != 1 {
			t.Errorf("%d calls granted, want 1: each takes all of the quota", granted)
		}
	})
}
