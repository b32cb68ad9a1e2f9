package sluice_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/limits"
)

func mustKeyed(t testing.TB, cfg sluice.KeyedConfig, gate sluice.Config) (hosts *sluice.Keyed[string], made *atomic.Int64) {
	t.Helper()
	made = new(atomic.Int64)
	hosts, err := sluice.NewKeyed(func(host string) (*sluice.Gate, error) {
		made.Add(1)
		cfg := gate // newGate may run for several keys at once
		cfg.Name = host
		return sluice.New(cfg)
	}, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return hosts, made
}

func TestKeyed_Do_PacesEachKeyAndAllTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := mustGate(t, sluice.Config{Rate: sluice.Rate{Count: 4, Per: time.Second}})
		hosts, made := mustKeyed(t, sluice.KeyedConfig{}, sluice.Config{Rate: sluice.Rate{Count: 1, Per: time.Second}, Parent: all})
		start := time.Now()
		var wg sync.WaitGroup
		for range 3 {
			for host := range 6 {
				wg.Go(func() {
					if err := hosts.Do(bg, fmt.Sprint(host), nothing); err != nil {
						t.Error(err)
					}
				})
			}
		}
		wg.Wait()
		// 18 calls at 4/s in all; 1/s of each of six hosts would be faster.
		if got := time.Since(start); got != 17*250*ms {
			t.Errorf("took %v", got)
		}
		if made.Load() != 6 || hosts.Len() != 6 {
			t.Errorf("%d gates were made, %d are there", made.Load(), hosts.Len())
		}
		seen := 0
		hosts.Stats(func(host string, s sluice.Stats) bool {
			if s.Name != host || s.Admitted != 3 {
				t.Errorf("%s: %+v", host, s)
			}
			seen++
			return seen < 5
		})
		if seen != 5 {
			t.Errorf("Stats went on to %d", seen)
		}
	})
}

func TestKeyed_ForgetsIdleGates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hosts, made := mustKeyed(t, sluice.KeyedConfig{Idle: time.Minute}, sluice.Config{Rate: sluice.Rate{Count: 1, Per: time.Second}})
		for i := range 100 {
			hosts.Do(bg, fmt.Sprint(i), nothing)
		}
		time.Sleep(time.Minute - 1)
		hosts.Do(bg, "0", nothing)
		if n := hosts.Len(); n != 100 {
			t.Errorf("forgotten too early: %d left", n)
		}
		time.Sleep(time.Second)
		for range 49 {
			hosts.Do(bg, "0", nothing)
		}
		if n := hosts.Len(); n != 100-2*49 {
			t.Errorf("each use looks at two: %d left", n)
		}
		hosts.Do(bg, "0", nothing)
		if n := hosts.Len(); n != 1 {
			t.Errorf("%d left, want the one that is used", n)
		}
		hosts.Do(bg, "5", nothing)
		if made.Load() != 101 {
			t.Errorf("%d gates were made", made.Load())
		}
	})
}

// A gate is not forgotten while it has state that a new one would lack.
func TestKeyed_KeepsGatesInUseOrInDebt(t *testing.T) {
	for name, c := range map[string]struct {
		cfg sluice.Config
		use func(g *sluice.Gate) (undo func())
	}{
		"a permit is out": {sluice.Config{}, func(g *sluice.Gate) func() {
			p, _ := g.Acquire(bg, 1)
			return p.Release
		}},
		"in debt": {sluice.Config{Rate: sluice.Rate{Count: 1, Per: time.Hour}}, func(g *sluice.Gate) func() {
			g.Do(bg, nothing)
			return func() { time.Sleep(time.Hour) }
		}},
		"paused": {sluice.Config{}, func(g *sluice.Gate) func() {
			g.PauseUntil(time.Now().Add(time.Hour), "")
			return func() {
				g.Resume()
				time.Sleep(time.Minute) // for the slow start
			}
		}},
		"a call waits": {sluice.Config{Concurrency: 1}, func(g *sluice.Gate) func() {
			p, _ := g.Acquire(bg, 1)
			done := make(chan struct{})
			go func() {
				defer close(done)
				g.Do(bg, nothing)
			}()
			return func() { p.Release(); <-done }
		}},
		"more than half of the retry budget is spent": {sluice.Config{}, func(g *sluice.Gate) func() {
			for range 13 { // 65 of 100; a minute puts 10 back
				sluice.Retry(bg, g, func(context.Context) error { return errors.New("no") }, sluice.RetryPolicy{Attempts: 2, Backoff: sluice.Constant(ms)})
			}
			return func() {
				for range 5 {
					sluice.Retry(bg, g, nothing)
				}
			}
		}},
		"calls are spaced out": {sluice.Config{RetryBudget: 1}, func(g *sluice.Gate) func() {
			sluice.Retry(bg, g, func(context.Context) error { return errors.New("no") })
			return func() { time.Sleep(5 * time.Minute) }
		}},
		"the parent of a gate": {sluice.Config{}, func(g *sluice.Gate) func() {
			child, _ := sluice.New(sluice.Config{Parent: g})
			return child.Close
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				hosts, made := mustKeyed(t, sluice.KeyedConfig{Idle: -1}, c.cfg)
				var undo func()
				hosts.Use("x", func(g *sluice.Gate) error { undo = c.use(g); return nil })
				time.Sleep(time.Minute)
				hosts.Use("y", func(*sluice.Gate) error { return nil })
				hosts.Use("y", func(*sluice.Gate) error { return nil })
				if n := hosts.Len(); n != 2 {
					t.Errorf("forgotten: %d left", n)
				}
				undo()
				hosts.Use("y", func(*sluice.Gate) error { return nil })
				if n := hosts.Len(); n != 1 || made.Load() != 2 {
					t.Errorf("%d left, %d made", n, made.Load())
				}
			})
		})
	}
}

func TestKeyedConfig_MaxKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hosts, _ := mustKeyed(t, sluice.KeyedConfig{MaxKeys: 2}, sluice.Config{Rate: sluice.Rate{Count: 1, Per: time.Second}})
		hosts.Do(bg, "a", nothing)
		err := hosts.Use("b", func(*sluice.Gate) error {
			return hosts.Do(bg, "c", nothing) // a is in debt, b in use
		})
		if err != limits.ErrTooManyKeys || hosts.Len() != 2 {
			t.Errorf("%v, %d keys", err, hosts.Len())
		}
		time.Sleep(time.Second) // long before Idle, but their state is that of new ones
		if err := hosts.Do(bg, "c", nothing); err != nil || hosts.Len() > 2 {
			t.Errorf("%v, %d keys", err, hosts.Len())
		}
	})
}

// The classic defect: two first callers each make a gate, and one of the two is lost
// with all that it let through.
func TestKeyed_Use_FirstCallersShareOneGate(t *testing.T) {
	hosts, made := mustKeyed(t, sluice.KeyedConfig{}, sluice.Config{Rate: sluice.Rate{Count: 1, Per: time.Hour}})
	var through atomic.Int64
	var wg sync.WaitGroup
	for range 64 {
		wg.Go(func() {
			hosts.Use("x", func(g *sluice.Gate) error {
				if _, ok := g.TryAcquire(1); ok {
					through.Add(1)
				}
				return nil
			})
		})
	}
	wg.Wait()
	if through.Load() != 1 || made.Load() != 1 {
		t.Errorf("%d let through by %d gates", through.Load(), made.Load())
	}
}

func TestKeyed_Mistakes(t *testing.T) {
	if _, err := sluice.NewKeyed(func(int) (*sluice.Gate, error) { return nil, nil }, sluice.KeyedConfig{MaxKeys: -1}); err == nil {
		t.Error("negative MaxKeys")
	}
	if _, err := sluice.NewKeyed(func(int) (*sluice.Gate, error) { return nil, nil }, sluice.KeyedConfig{MaxKeys: 1e9}); err == nil {
		t.Error("10⁹ MaxKeys")
	}
	broken := errors.New("no gate today")
	answers := []error{broken, nil}
	k, err := sluice.NewKeyed(func(int) (*sluice.Gate, error) {
		err := answers[0]
		answers = answers[1:]
		return nil, err
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := k.Do(bg, 1, nothing); err != broken {
		t.Errorf("the error of newGate: %v", err)
	}
	if err := k.Do(bg, 1, nothing); err == nil || k.Len() != 0 {
		t.Errorf("no gate and no error: %v", err)
	}
	defer func() {
		if recover() == nil {
			t.Error("NewKeyed(nil) did not panic")
		}
	}()
	sluice.NewKeyed[int](nil)
}

func TestKeyed_KeepsGatesWithPermitsOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hosts, made := mustKeyed(t, sluice.KeyedConfig{Idle: -1}, sluice.Config{Concurrency: 1})
		var permit *sluice.Permit
		use := func(host string, f func(g *sluice.Gate) error) {
			t.Helper()
			if err := hosts.Use(host, f); err != nil {
				t.Fatal(err)
			}
		}
		use("a", func(g *sluice.Gate) (err error) {
			permit, err = g.Acquire(bg, 1)
			return err
		})
		look := func(*sluice.Gate) error { return nil }
		for range 10 {
			time.Sleep(time.Hour)
			use("b", look) // each looks at two
			use("c", look)
		}
		use("a", func(g *sluice.Gate) error {
			if _, ok := g.TryAcquire(1); ok {
				t.Error("two in flight where one may be")
			}
			return nil
		})
		permit.Release()
		before := made.Load()
		use("b", look)
		use("c", look)
		use("a", look)
		if made.Load() == before {
			t.Error("the gate is still there although its permit is back")
		}
	})
}

func TestKeyedConfig_Forget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		keep := true
		var asked []string
		hosts, made := mustKeyed(t, sluice.KeyedConfig{Forget: func(g *sluice.Gate) bool {
			asked = append(asked, g.Stats().Name)
			return !keep
		}}, sluice.Config{})
		use := func(host string) {
			t.Helper()
			if err := hosts.Do(bg, host, nothing); err != nil {
				t.Fatal(err)
			}
		}
		use("a")
		time.Sleep(time.Hour)
		use("b") // looks at a
		use("a")
		if made.Load() != 2 {
			t.Errorf("%d gates were made, want 2: the first was to be kept", made.Load())
		}
		keep = false
		time.Sleep(time.Hour)
		use("c") // looks at b and a
		use("a")
		if made.Load() != 4 {
			t.Errorf("%d gates were made, want 4", made.Load())
		}
		if got := fmt.Sprint(asked); got != "[a a b a]" { // each use looks at two: there was only a at first
			t.Errorf("asked about %v", got)
		}
	})
}

// # How gates are made

// tree returns a Keyed in which the gate of a.b.c has that of b.c as its parent.
func tree(t *testing.T, kc sluice.KeyedConfig, made *atomic.Int64) *sluice.Keyed[string] {
	t.Helper()
	var k *sluice.Keyed[string]
	k, err := sluice.NewKeyed(func(key string) (*sluice.Gate, error) {
		made.Add(1)
		cfg := sluice.Config{Name: key, Concurrency: 1}
		if _, domain, ok := strings.Cut(key, "."); ok {
			if err := k.Use(domain, func(g *sluice.Gate) error { cfg.Parent = g; return nil }); err != nil {
				return nil, err
			}
		}
		return sluice.New(cfg) // the parent is not lent any more, but still kept
	}, kc)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func TestNewKeyed_GatesMayBeParentsOfOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var made atomic.Int64
		k := tree(t, sluice.KeyedConfig{}, &made)
		var most, now atomic.Int64
		for i := range 20 {
			go func() {
				if err := k.Do(bg, fmt.Sprintf("h%d.example.com", i%7), func(ctx context.Context) error {
					most.Store(max(most.Load(), now.Add(1)))
					time.Sleep(time.Second)
					now.Add(-1)
					return nil
				}); err != nil {
					t.Error(err)
				}
			}()
		}
		time.Sleep(time.Hour)
		if made.Load() != 9 || k.Len() != 9 || most.Load() != 1 {
			t.Errorf("%d gates were made, %d are there, up to %d calls in flight below one parent", made.Load(), k.Len(), most.Load())
		}
		for range 20 {
			k.Do(bg, "other.org", nothing)
			time.Sleep(time.Minute)
		}
		if n := k.Len(); n != 2 {
			t.Errorf("%d gates are left, want other.org and org", n)
		}
	})
}

// The real scheduler, gates that are forgotten at once, hardly any room for them.
func TestNewKeyed_ParentsAreNeverDoubledUnderStress(t *testing.T) {
	for _, maxKeys := range []int{0, 60} {
		var made atomic.Int64
		k := tree(t, sluice.KeyedConfig{Idle: -1, MaxKeys: maxKeys}, &made)
		var inFlight [3]atomic.Int64
		var calls atomic.Int64
		var wg sync.WaitGroup
		for w := range 8 {
			wg.Go(func() {
				for i := range 2000 {
					domain := (w + i) % 3
					err := k.Do(bg, fmt.Sprintf("h%d.d%d", i%5, domain), func(context.Context) error {
						calls.Add(1)
						if n := inFlight[domain].Add(1); n > 1 {
							t.Errorf("%d in flight in one domain", n)
						}
						runtime.Gosched()
						inFlight[domain].Add(-1)
						return nil
					})
					if err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		wg.Wait()
		if made.Load() < 20 || calls.Load() != 16000 {
			t.Errorf("%d gates made for %d calls", made.Load(), calls.Load())
		}
	}
}

func TestNewKeyed_BlockingGateHoldsUpItsKeyOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		var made atomic.Int64
		k, _ := sluice.NewKeyed(func(key string) (*sluice.Gate, error) {
			made.Add(1)
			if key == "slow" {
				time.Sleep(time.Hour)
			}
			return sluice.New(sluice.Config{})
		})
		k.Do(bg, "old", nothing)
		for range 3 {
			go func() {
				if err := k.Do(bg, "slow", nothing); err != nil || time.Since(start) != time.Hour {
					t.Errorf("%v after %v", err, time.Since(start))
				}
			}()
		}
		synctest.Wait()
		for _, key := range []string{"old", "new"} {
			if err := k.Do(bg, key, nothing); err != nil || time.Since(start) > 0 {
				t.Errorf("%s: %v after %v", key, err, time.Since(start))
			}
		}
		if n := 0; true {
			k.Stats(func(string, sluice.Stats) bool { n++; return true })
			if n != 2 || k.Len() != 3 {
				t.Errorf("%d gates in Stats, %d in all", n, k.Len())
			}
		}
		time.Sleep(2 * time.Hour)
		if made.Load() != 3 {
			t.Errorf("%d gates were made", made.Load())
		}
	})
}

// What callers get that wait for a newGate that fails, panics or exits.
func TestNewKeyed_FailureReachesAllWaiters(t *testing.T) {
	broken := errors.New("no gate today")
	for name, c := range map[string]struct {
		fail func() (*sluice.Gate, error)
		want error // of the callers that waited, nil if one of them makes a gate
	}{
		"error":   {func() (*sluice.Gate, error) { return nil, broken }, broken},
		"nothing": {func() (*sluice.Gate, error) { return nil, nil }, errors.New("sluice: no gate was made for key x")},
		"panic":   {func() (*sluice.Gate, error) { panic(broken) }, nil},
		"Goexit":  {func() (*sluice.Gate, error) { runtime.Goexit(); return nil, nil }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var made atomic.Int64
				k, _ := sluice.NewKeyed(func(string) (*sluice.Gate, error) {
					time.Sleep(time.Second)
					if made.Add(1) == 1 {
						return c.fail()
					}
					return sluice.New(sluice.Config{})
				}, sluice.KeyedConfig{MaxKeys: 1})
				go func() {
					defer func() {
						if r := recover(); (r != nil) != (name == "panic") {
							t.Errorf("recovered %v", r)
						}
					}()
					k.Do(bg, "x", nothing)
				}()
				synctest.Wait()
				for range 3 {
					go func() {
						if err := k.Do(bg, "x", nothing); fmt.Sprint(err) != fmt.Sprint(c.want) {
							t.Errorf("got %v, want %v", err, c.want)
						}
					}()
				}
				time.Sleep(time.Minute)
				if err := k.Do(bg, "x", nothing); err != nil || made.Load() != 2 || k.Len() != 1 {
					t.Errorf("%v, %d made, %d there", err, made.Load(), k.Len())
				}
			})
		})
	}
}
