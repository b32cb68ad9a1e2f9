package sluice_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/internal/testkit/built"
	"github.com/sluice-go/sluice/leaky"
	"github.com/sluice-go/sluice/limits"
	"github.com/sluice-go/sluice/window"
)

func unreachable(context.Context) error { return errors.New("no route to host") }

// every is a policy that waits d before each retry.
func every(d time.Duration) sluice.RetryPolicy {
	return sluice.RetryPolicy{Backoff: sluice.Constant(d)}
}

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
	built.SkipRaced(t)
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
							go sluice.Retry(bg, g, unreachable, every(ms))
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
							sluice.Retry(bg, g, unreachable, every(ms))
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
			k.Use(fmt.Sprint(host), func(g *sluice.Gate) error { return sluice.Retry(bg, g, unreachable, every(time.Minute)) })
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
			if err := gates.Do(bg, key, nothing); err != nil {
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

// # Limits that share a key

func TestKeyed_ForgetsGatesThatShareAKey(t *testing.T) {
	rate := limits.Rate{Count: 1000, Per: time.Second, Burst: 1000}
	quota := window.Quota{Limit: 1000, Window: time.Second}
	for name, on := range map[string]func() func(string) limits.Limiter{
		"leaky": func() func(string) limits.Limiter {
			return limits.Must(leaky.NewKeyed[string](rate)).On
		},
		"window": func() func(string) limits.Limiter {
			return limits.Must(window.NewKeyedSliding[string](quota)).On
		},
		"fixed": func() func(string) limits.Limiter {
			return limits.Must(window.NewKeyedFixed[string](quota)).On
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			on := on()
			k := limits.Must(sluice.NewKeyed(func(host string) (*sluice.Gate, error) {
				return sluice.New(sluice.Config{Name: host, Limits: []sluice.Limit{{Limiter: on("all")}}})
			}, sluice.KeyedConfig{Idle: time.Second}))
			for i := range 100 {
				_ = k.Do(t.Context(), fmt.Sprint(i), func(context.Context) error { return nil })
				time.Sleep(10 * time.Second)
			}
			if k.Len() > 3 {
				t.Errorf("%s: %d gates are kept", name, k.Len())
			}
		})
	}
}

// A key of a limit has its state in that limit, so the gate of one host may be forgotten
// although no other gate has its limiter.
func TestKeyed_KeyOfALimitOutlivesItsGate(t *testing.T) {
	const day = 24 * time.Hour
	for name, on := range map[string]func() func(string) limits.Limiter{
		"leaky": func() func(string) limits.Limiter {
			return limits.Must(leaky.NewKeyed[string](limits.Rate{Count: 1, Per: day})).On
		},
		"window": func() func(string) limits.Limiter {
			return limits.Must(window.NewKeyedSliding[string](window.Quota{Limit: 1, Window: day})).On
		},
		"fixed": func() func(string) limits.Limiter {
			return limits.Must(window.NewKeyedFixed[string](window.Quota{Limit: 1, Window: day})).On
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			on := on()
			k := limits.Must(sluice.NewKeyed(func(host string) (*sluice.Gate, error) {
				return sluice.New(sluice.Config{Name: host, Limits: []sluice.Limit{{Limiter: on(host)}}})
			}, sluice.KeyedConfig{Idle: time.Second}))
			for i := range 100 {
				_ = k.Do(t.Context(), fmt.Sprint(i), func(context.Context) error { return nil })
				time.Sleep(10 * time.Second)
			}
			if k.Len() > 3 {
				t.Errorf("%s: %d gates are kept", name, k.Len())
			}
			_ = k.Use("0", func(gate *sluice.Gate) error {
				if _, ok := gate.TryAcquire(1); ok {
					t.Errorf("%s: a second call on the day of the first", name)
				}
				return nil
			})
		})
	}
}

// # Eviction

// agree is an Evict that says yes, and notes what it was offered.
type agree struct {
	names []string
	owes  []bool
}

func (a *agree) evict(gate *sluice.Gate, owes bool) bool {
	a.names, a.owes = append(a.names, gate.Stats().Name), append(a.owes, owes)
	return true
}

// pauseLong pauses a gate for a year.
func pauseLong(g *sluice.Gate) error {
	g.PauseUntil(time.Now().Add(8760*time.Hour), "hostile")
	return nil
}

func TestKeyedConfig_Evict_PausedGatesMakeRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var a agree
		rate := sluice.Rate{Count: 1, Per: time.Second}
		hosts, _ := mustKeyed(t, sluice.KeyedConfig{MaxKeys: 100, Evict: a.evict}, sluice.Config{Rate: rate})
		use := func(host string, f func(g *sluice.Gate) error) {
			t.Helper()
			if err := hosts.Use(host, f); err != nil {
				t.Errorf("%s: %v", host, err)
			}
			if n := hosts.Len(); n > 100 {
				t.Fatalf("%d gates", n)
			}
		}
		for i := range 5000 {
			use(fmt.Sprint("evil", i), pauseLong)
		}
		for i := range 80 {
			use(fmt.Sprint("good", i), func(g *sluice.Gate) error { return g.Do(bg, nothing) })
		}
		if n := slices.Index(a.owes, true); n >= 0 {
			t.Errorf("%s owed its rate a call, and 20 paused ones did not", a.names[n])
		}
		// When nothing cheaper is left, those that owe are offered, the longest
		// unused first.
		a = agree{}
		for i := range 20 {
			use(fmt.Sprint("more", i), func(g *sluice.Gate) error { return g.Do(bg, nothing) })
		}
		if slices.Contains(a.owes, true) {
			t.Errorf("evicted %v", a.names)
		}
		use("last", func(g *sluice.Gate) error { return g.Do(bg, nothing) })
		if n := len(a.owes); n < 1 || !a.owes[n-1] {
			t.Errorf("evicted %v, owes %v", a.names, a.owes)
		}
	})
}

// What is in use is never evicted, whatever else there is.
func TestKeyedConfig_Evict_NotGatesInUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var a agree
		hosts, _ := mustKeyed(t, sluice.KeyedConfig{MaxKeys: 3, Evict: a.evict}, sluice.Config{Concurrency: 1})
		var held *sluice.Permit
		hosts.Use("held", func(g *sluice.Gate) (err error) {
			held, err = g.Acquire(bg, 1)
			return errors.Join(err, pauseLong(g))
		})
		hosts.Use("closed", func(g *sluice.Gate) error { g.Close(); return nil })
		leave := make(chan struct{})
		var wg sync.WaitGroup
		wg.Go(func() {
			hosts.Use("used", func(g *sluice.Gate) error {
				pauseLong(g)
				<-leave
				return nil
			})
		})
		synctest.Wait()
		for range 3 {
			if err := hosts.Do(bg, "new", nothing); err != limits.ErrTooManyKeys {
				t.Errorf("got %v, want ErrTooManyKeys", err)
			}
		}
		if len(a.names) > 0 {
			t.Errorf("offered %v", a.names)
		}
		close(leave)
		wg.Wait()
		if err := hosts.Do(bg, "new", nothing); err != nil || a.names[0] != "used" {
			t.Errorf("got %v, evicted %v", err, a.names)
		}
		held.Release()
		if err := hosts.Do(bg, "newer", nothing); err != nil {
			t.Error(err)
		}
	})
}

// A hook that says no keeps the gate, but is asked again at once: it may have had
// to let go of it.
func TestKeyedConfig_Evict_MayRefuse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := make(map[string]int)
		keep := func(g *sluice.Gate, _ bool) bool {
			name := g.Stats().Name
			asked[name]++
			return name == "b" && asked[name] > 1
		}
		hosts, _ := mustKeyed(t, sluice.KeyedConfig{MaxKeys: 2, Evict: keep}, sluice.Config{})
		hosts.Use("a", pauseLong)
		hosts.Use("b", pauseLong)
		if err := hosts.Do(bg, "c", nothing); err != nil || asked["a"] != 2 || asked["b"] != 2 {
			t.Errorf("%v, asked %v", err, asked)
		}
		paused := false
		hosts.Use("a", func(g *sluice.Gate) error { paused = !g.Stats().PausedUntil.IsZero(); return nil })
		if !paused {
			t.Error("a was dropped although Evict kept it")
		}
	})
}

// EvictAt is a soft limit: gates in use are more, and fewer again afterwards.
func TestKeyedConfig_EvictAt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var a agree
		hosts, _ := mustKeyed(t, sluice.KeyedConfig{EvictAt: 10, Evict: a.evict}, sluice.Config{})
		leave := make(chan struct{})
		var wg sync.WaitGroup
		for i := range 50 {
			wg.Go(func() {
				if err := hosts.Use(fmt.Sprint(i), func(g *sluice.Gate) error { pauseLong(g); <-leave; return nil }); err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		if n := hosts.Len(); n != 50 {
			t.Errorf("%d gates, want 50", n)
		}
		close(leave)
		wg.Wait()
		for i := range 50 {
			hosts.Use(fmt.Sprint("late", i), pauseLong)
		}
		if n := hosts.Len(); n > 10 {
			t.Errorf("%d gates are left", n)
		}
		if _, err := sluice.NewKeyed(func(string) (*sluice.Gate, error) { return nil, nil }, sluice.KeyedConfig{EvictAt: -1}); err == nil {
			t.Error("a negative EvictAt is no error")
		}
	})
}

// However often gates are evicted, there are never two in use for a key.
func TestKeyedConfig_Evict_LeavesOneGatePerKey(t *testing.T) {
	const keys, callers, each = 6, 8, 2000
	var inFlight [keys]atomic.Int32
	hosts, made := mustKeyed(t, sluice.KeyedConfig{MaxKeys: 4, Evict: func(*sluice.Gate, bool) bool { return true }},
		sluice.Config{Concurrency: 1, Rate: sluice.Rate{Count: 1e9, Per: time.Second}}) // it does not start slowly after a pause
	var wg sync.WaitGroup
	var refused atomic.Int64
	for c := range callers {
		wg.Go(func() {
			for i := range each {
				key := (c + i) % keys
				err := hosts.Use(fmt.Sprint(key), func(g *sluice.Gate) error {
					p, err := g.Acquire(bg, 1)
					if err != nil {
						return err
					}
					if n := inFlight[key].Add(1); n > 1 {
						t.Errorf("%d in flight for one key", n)
					}
					if i%3 == 0 { // it outlives Use
						wg.Go(func() {
							runtime.Gosched()
							inFlight[key].Add(-1)
							p.Release()
						})
						return nil
					}
					runtime.Gosched()
					inFlight[key].Add(-1)
					g.PauseUntil(time.Now().Add(20*time.Microsecond), "")
					p.Release()
					return nil
				})
				switch err {
				case nil:
				case limits.ErrTooManyKeys:
					refused.Add(1)
				default:
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if made.Load() <= keys {
		t.Error("nothing was ever evicted")
	}
	t.Logf("%d gates were made, %d calls refused", made.Load(), refused.Load())
}

// A paused gate makes room for another host; a gate with debt does not.
func ExampleKeyedConfig() {
	hosts, err := sluice.NewKeyed(func(host string) (*sluice.Gate, error) {
		return sluice.New(sluice.Config{Name: host})
	}, sluice.KeyedConfig{
		MaxKeys: 2,
		Evict: func(gate *sluice.Gate, owes bool) bool {
			fmt.Println("forget", gate.Stats().Name)
			return !owes
		},
	})
	if err != nil {
		panic(err)
	}
	for _, host := range []string{"a.example", "b.example", "c.example"} {
		err := hosts.Use(host, func(gate *sluice.Gate) error {
			gate.PauseUntil(time.Now().Add(time.Hour), "it said so")
			return nil
		})
		fmt.Println(host, err)
	}
	// Output:
	// a.example <nil>
	// b.example <nil>
	// forget a.example
	// c.example <nil>
}

// A gate that is the parent of another is in use. One with a quota of its own owes
// what that remembers; one whose quota is shared does not.
func TestKeyedConfig_Evict_ParentsAndLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared := limits.Must(leaky.New(limits.Rate{Count: 1, Per: time.Hour, Burst: 10}))
		var a agree
		var hosts *sluice.Keyed[string]
		hosts, err := sluice.NewKeyed(func(key string) (*sluice.Gate, error) {
			cfg := sluice.Config{Name: key, Limits: []sluice.Limit{{Name: "shared", Limiter: shared}}}
			switch key {
			case "child":
				cfg.Rate = sluice.Rate{Count: 1, Per: time.Hour} // it owes that a call
				err := hosts.Use("parent", func(g *sluice.Gate) error { cfg.Parent = g; return nil })
				if err != nil {
					return nil, err
				}
			case "own":
				cfg.Limits = []sluice.Limit{{Name: "own", Limiter: limits.Must(leaky.New(limits.Rate{Count: 1, Per: time.Hour, Burst: 10}))}}
			}
			return sluice.New(cfg)
		}, sluice.KeyedConfig{MaxKeys: 4, Evict: a.evict})
		if err != nil {
			t.Fatal(err)
		}
		for _, key := range []string{"child", "own", "failed"} {
			hosts.Do(bg, key, func(context.Context) error { return nil })
		}
		hosts.Use("failed", pauseLong)
		hosts.Use("parent", pauseLong)
		for i, want := range []string{"failed", "new0", "new1"} {
			a = agree{}
			key := fmt.Sprint("new", i)
			if err := hosts.Use(key, pauseLong); err != nil || len(a.names) != 1 || a.names[0] != want || a.owes[0] {
				t.Errorf("%s: %v, evicted %v, owes %v; want %s", key, err, a.names, a.owes, want)
			}
		}
		// When the child goes, so may the parent.
		hosts.Use("child", pauseLong)
		a = agree{}
		for i := range 8 {
			hosts.Use(fmt.Sprint("late", i), pauseLong)
		}
		if child, parent := slices.Index(a.names, "child"), slices.Index(a.names, "parent"); child < 0 || parent < child {
			t.Errorf("evicted %v", a.names)
		}
	})
}

// Evict gets which gates owe something of their own.
func TestKeyedConfig_Evict_SaysWhatIsOwed(t *testing.T) {
	shared := sluice.Limit{Name: "shared", Limiter: limits.Must(leaky.New(limits.Rate{Count: 1, Per: time.Hour, Burst: 10}))}
	own := func() sluice.Config {
		return sluice.Config{Limits: []sluice.Limit{{Name: "own", Limiter: limits.Must(leaky.New(limits.Rate{Count: 1, Per: time.Hour, Burst: 10}))}}}
	}
	rate := sluice.Config{Rate: sluice.Rate{Count: 1, Per: time.Hour}}
	for name, c := range map[string]struct {
		cfg    func() sluice.Config
		paused bool
		owes   bool
	}{
		"a rate":                   {func() sluice.Config { return rate }, false, true},
		"a rate, paused":           {func() sluice.Config { return rate }, true, false},
		"a quota of its own":       {own, false, true},
		"the same, paused":         {own, true, false},
		"a quota of several gates": {func() sluice.Config { return sluice.Config{Limits: []sluice.Limit{shared}} }, true, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			var a agree
			hosts, err := sluice.NewKeyed(func(string) (*sluice.Gate, error) { return sluice.New(c.cfg()) },
				sluice.KeyedConfig{MaxKeys: 1, Evict: a.evict})
			if err != nil {
				t.Fatal(err)
			}
			hosts.Use("first", func(g *sluice.Gate) error {
				if c.paused {
					defer pauseLong(g)
				}
				return g.Do(bg, nothing)
			})
			if err := hosts.Use("second", func(*sluice.Gate) error { return nil }); err != nil || !slices.Equal(a.owes, []bool{c.owes}) {
				t.Errorf("%s: %v, owes %v, want %v", name, err, a.owes, c.owes)
			}
		})
	}
}

// Evict may refuse each gate once, because it has to let go of it first.
func TestKeyedConfig_Evict_MayRefuseEachGateOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := make(map[*sluice.Gate]int)
		k, _ := mustKeyed(t, sluice.KeyedConfig{
			MaxKeys: 100,
			Evict:   func(gate *sluice.Gate, owes bool) bool { asked[gate]++; return asked[gate] > 1 },
		}, sluice.Config{})
		for i := range 100 { // more than Evict is asked about at once
			if err := k.Use(fmt.Sprint(i), pauseLong); err != nil {
				t.Fatal(err)
			}
		}
		if err := k.Do(bg, "new", nothing); err != nil {
			t.Errorf("%v, with %d gates that were refused once", err, len(asked))
		}
	})
}
