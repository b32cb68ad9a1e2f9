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
)

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

// A newGate that waits for itself, in any number of steps, gets an error.
func TestNewKeyed_GateThatNeedsItselfFails(t *testing.T) {
	for name, next := range map[string]map[string]string{
		"itself":          {"a": "a"},
		"in two steps":    {"a": "b", "b": "a"},
		"in three":        {"a": "b", "b": "c", "c": "a"},
		"a step aside":    {"a": "b", "b": "b"},
		"with a way in":   {"a": "b", "b": "c", "c": "b"},
		"what is not odd": {"a": "b", "b": "c"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				for _, together := range []bool{false, true} {
					var k *sluice.Keyed[string]
					var errs atomic.Int64
					k, _ = sluice.NewKeyed(func(key string) (*sluice.Gate, error) {
						time.Sleep(time.Second) // so that others begin, too
						if other := next[key]; other != "" {
							if err := k.Use(other, func(*sluice.Gate) error { return nil }); err != nil {
								errs.Add(1)
								if !strings.HasPrefix(err.Error(), "sluice: ") {
									t.Error(err)
								}
							}
						}
						return sluice.New(sluice.Config{}) // all the same
					}, sluice.KeyedConfig{})
					keys := []string{"a"}
					if together {
						keys = []string{"a", "b", "c"}
					}
					for _, key := range keys {
						go func() {
							if err := k.Do(bg, key, nothing); err != nil {
								t.Error(err)
							}
						}()
					}
					time.Sleep(time.Minute) // synctest reports a hang
					want := int64(1)
					if name == "what is not odd" {
						want = 0
					}
					if errs.Load() != want {
						t.Errorf("%d uses failed, want %d", errs.Load(), want)
					}
				}
			})
		})
	}
}

// A goroutine that was waiting for a gate does not count as waiting once the gate has
// been made, even if it has not run since.
func TestNewKeyed_MadeGateIsNoCycle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for range 100 {
			var k *sluice.Keyed[string]
			k, _ = sluice.NewKeyed(func(key string) (*sluice.Gate, error) {
				if key == "parent" {
					time.Sleep(time.Second)
				} else if err := k.Use("parent", func(*sluice.Gate) error { return nil }); err != nil {
					return nil, err
				}
				return sluice.New(sluice.Config{})
			}, sluice.KeyedConfig{})
			go func() {
				for _, key := range []string{"parent", "child"} { // which the other makes
					if err := k.Do(bg, key, nothing); err != nil {
						t.Error(err)
					}
				}
			}()
			synctest.Wait()
			go k.Do(bg, "child", nothing)
			time.Sleep(time.Minute)
		}
	})
}

// Two Keyeds that use each other.
func TestNewKeyed_TwoThatNeedEachOtherFail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var k [2]*sluice.Keyed[int]
		var failed atomic.Int64
		for i := range k {
			k[i], _ = sluice.NewKeyed(func(key int) (*sluice.Gate, error) {
				time.Sleep(time.Second)
				if err := k[1-i].Use(key, func(*sluice.Gate) error { return nil }); err != nil {
					failed.Add(1)
				}
				return sluice.New(sluice.Config{})
			}, sluice.KeyedConfig{})
		}
		go k[0].Do(bg, 1, nothing)
		go k[1].Do(bg, 1, nothing)
		go k[0].Do(bg, 2, nothing)
		time.Sleep(time.Minute)
		if failed.Load() != 2 { // one for each key
			t.Errorf("%d uses failed", failed.Load())
		}
	})
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
		}, sluice.KeyedConfig{})
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
