package sluice_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/leaky"
	"github.com/sluice-go/sluice/limits"
)

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
