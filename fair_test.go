package sluice_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/internal/reroute"
	"github.com/sluice-go/sluice/internal/testkit/built"
	"github.com/sluice-go/sluice/leaky"
	"github.com/sluice-go/sluice/limits"
)

// family returns a parent and a child of it for each weight.
func family(t *testing.T, cfg sluice.Config, weights ...int64) (parent *sluice.Gate, children []*sluice.Gate) {
	t.Helper()
	parent = mustGate(t, cfg)
	for _, w := range weights {
		children = append(children, mustGate(t, sluice.Config{Parent: parent, Weight: w, Adaptive: cfg.Adaptive}))
	}
	return parent, children
}

// A backlog is callers that make one call after the other.
type backlog struct {
	ctx  context.Context
	stop func() // ends them, and waits for that
	all  sync.WaitGroup
}

func newBacklog(t *testing.T) *backlog {
	ctx, cancel := context.WithCancel(t.Context())
	b := &backlog{ctx: ctx}
	b.stop = func() { cancel(); b.all.Wait() }
	return b
}

// of adds n callers of g, whose calls of a cost take a while, and end one after the other: of permits
// that become free at the same instant the second goes to another gate, because only the head of each
// waits for them.
func (b *backlog) of(g *sluice.Gate, n int, cost int64, takes time.Duration) {
	for range n {
		b.all.Go(func() {
			for {
				p, err := g.Acquire(b.ctx, cost)
				if err != nil {
					return
				}
				time.Sleep(takes + rand.N(takes/50+1))
				p.Release()
			}
		})
	}
}

// Weights hold within 2 % over 1,000 calls, whatever bounds the parent, and however many callers wait.
func TestConfig_Weight(t *testing.T) {
	bucket := func() sluice.Limit {
		return sluice.Limit{Limiter: limits.Must(leaky.New(limits.Rate{Count: 100, Per: time.Second}))}
	}
	for name, c := range map[string]struct {
		parent sluice.Config
		takes  time.Duration
	}{
		"rate":        {sluice.Config{Rate: sluice.Rate{Count: 100, Per: time.Second}}, time.Millisecond},
		"burst":       {sluice.Config{Rate: sluice.Rate{Count: 100, Per: time.Second, Burst: 10}}, time.Millisecond},
		"concurrency": {sluice.Config{Concurrency: 4}, 40 * time.Millisecond},
		"both":        {sluice.Config{Concurrency: 6, Rate: sluice.Rate{Count: 100, Per: time.Second}}, 40 * time.Millisecond},
		"limit":       {sluice.Config{Limits: []sluice.Limit{bucket()}}, time.Millisecond},
	} {
		for _, weights := range [][]int64{{1, 1}, {1, 2}, {1, 3, 6}, {15, 1}, {0, 99}} {
			t.Run(fmt.Sprint(name, weights), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					if c.parent.Limits != nil {
						c.parent.Limits = []sluice.Limit{bucket()} // of this bubble
					}
					_, children := family(t, c.parent, weights...)
					b := newBacklog(t)
					defer b.stop()
					for _, g := range children {
						b.of(g, 20, 1, c.takes)
					}
					time.Sleep(10*time.Second + time.Millisecond/2) // 1,000 calls
					total, sum := uint64(0), int64(0)
					for i, g := range children {
						total += g.Stats().Admitted
						sum += max(1, weights[i])
					}
					if total < 980 || total > 1020 {
						t.Errorf("%d calls", total)
					}
					for i, g := range children {
						got, want := float64(g.Stats().Admitted), float64(total)*float64(max(1, weights[i]))/float64(sum)
						if math.Abs(got-want) > 0.02*float64(total) {
							t.Errorf("weight %d: %v of %d calls, want %.0f", weights[i], got, total, want)
						}
					}
				})
			})
		}
	}
}

// Within a class, too: its head waits for the parent all the time, and calls of heavier gates come meanwhile.
func TestConfig_Weight_InAClass(t *testing.T) {
	bucket := func() sluice.Limit {
		return sluice.Limit{Limiter: limits.Must(leaky.New(limits.Rate{Count: 100, Per: time.Second}))}
	}
	for name, c := range map[string]struct {
		parent sluice.Config
		takes  time.Duration
	}{
		"rate":        {sluice.Config{Rate: sluice.Rate{Count: 100, Per: time.Second}}, time.Millisecond},
		"concurrency": {sluice.Config{Concurrency: 4}, 40 * time.Millisecond},
		"both":        {sluice.Config{Concurrency: 6, Rate: sluice.Rate{Count: 100, Per: time.Second}}, 40 * time.Millisecond},
		"limit":       {sluice.Config{Limits: []sluice.Limit{{}}}, time.Millisecond},
	} {
		for _, levels := range []int{1, 2} {
			t.Run(fmt.Sprint(name, levels), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					if c.parent.Limits != nil {
						c.parent.Limits = []sluice.Limit{bucket()} // of this bubble
					}
					above := mustGate(t, c.parent)
					for range levels - 1 {
						above = mustGate(t, sluice.Config{Parent: above})
					}
					weights := [][]int64{{6, 3, 1}, {1, 4}}
					classWeights := []int64{3, 1}
					var gates []*sluice.Gate
					var shares []float64
					for i, of := range weights {
						class := mustGate(t, sluice.Config{Parent: above, Weight: classWeights[i]})
						sum := int64(0)
						for _, w := range of {
							sum += w
						}
						for _, w := range of {
							gates = append(gates, mustGate(t, sluice.Config{Parent: class, Weight: w}))
							shares = append(shares, float64(classWeights[i])/4*float64(w)/float64(sum))
						}
					}
					b := newBacklog(t)
					defer b.stop()
					for _, g := range gates {
						b.of(g, 20, 1, c.takes)
					}
					time.Sleep(10*time.Second + time.Millisecond/2) // 1,000 calls
					total := uint64(0)
					for _, g := range gates {
						total += g.Stats().Admitted
					}
					if total < 980 || total > 1020 {
						t.Errorf("%d calls", total)
					}
					for i, g := range gates {
						if got, want := float64(g.Stats().Admitted), float64(total)*shares[i]; math.Abs(got-want) > 0.02*float64(total) {
							t.Errorf("gate %d: %v of %d calls, want %.0f", i, got, total, want)
						}
					}
				})
			})
		}
	}
}

// A child that is alone gets all of the parent's limit, whatever its weight.
func TestConfig_Weight_Alone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, children := family(t, sluice.Config{Rate: sluice.Rate{Count: 100, Per: time.Second}}, 99, 1)
		b := newBacklog(t)
		defer b.stop()
		b.of(children[1], 3, 1, time.Millisecond)
		time.Sleep(10*time.Second - time.Millisecond)
		if n := children[1].Stats().Admitted; n < 995 {
			t.Errorf("%d calls left, want 1000", n)
		}
	})
}

// Calls of users wait for at most two intervals, next to 100,000 waiting calls of a batch, and of
// many tenants that have a batch each.
func TestConfig_Weight_UsersBesideBatch(t *testing.T) {
	built.SkipRaced(t)
	const interval = 100 * time.Millisecond
	for _, tenants := range []int{1, 50} {
		synctest.Test(t, func(t *testing.T) {
			parent := mustGate(t, sluice.Config{Rate: sluice.Rate{Count: 1, Per: interval}})
			users := mustGate(t, sluice.Config{Parent: parent, Weight: 15})
			batch := mustGate(t, sluice.Config{Parent: parent})
			b := newBacklog(t)
			defer b.stop()
			var of []*sluice.Gate
			for range tenants {
				g := batch
				if tenants > 1 {
					g = mustGate(t, sluice.Config{Parent: batch})
				}
				of = append(of, g)
			}
			for i := range 100_000 {
				b.all.Go(func() { _ = of[i%tenants].Wait(b.ctx) })
			}
			synctest.Wait()
			var waits []time.Duration
			for i := range 200 {
				time.Sleep(time.Duration(137+i*i%211) * time.Millisecond) // about 4/s
				came := time.Now()
				if err := users.Wait(b.ctx); err != nil {
					t.Fatal(err)
				}
				waits = append(waits, time.Since(came))
			}
			slices.Sort(waits)
			if p99 := waits[len(waits)*99/100]; p99 > 2*interval {
				t.Errorf("%d tenants: p99 of the waits of users is %v", tenants, p99)
			}
			if n := batch.Stats().Admitted; n < 200 {
				t.Errorf("%d tenants: the batch has made %d calls", tenants, n)
			}
		})
	}
}

// Users that use all of the limit leave the batch its share.
func TestConfig_Weight_NobodyStarves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, children := family(t, sluice.Config{Rate: sluice.Rate{Count: 100, Per: time.Second}}, 15, 1)
		b := newBacklog(t)
		defer b.stop()
		b.of(children[0], 500, 1, 0)
		time.Sleep(time.Second)
		for range 20 { // one call at a time
			came := time.Now()
			if err := children[1].Wait(b.ctx); err != nil || time.Since(came) > 170*time.Millisecond {
				t.Errorf("waited for %v: %v", time.Since(came), err)
			}
		}
	})
}

// Shares are of the cost where the parent counts it, as settled, and of calls otherwise.
func TestConfig_Weight_Cost(t *testing.T) {
	built.SkipRaced(t)
	for _, c := range []struct {
		unit    sluice.Unit
		settled int64
		ratio   float64 // of calls of cost 1 to those of cost 4
	}{{sluice.Calls, 4, 1}, {sluice.Cost, 4, 4}, {sluice.Cost, 2, 2}, {sluice.Cost, 8, 8}} {
		synctest.Test(t, func(t *testing.T) {
			_, children := family(t, sluice.Config{Rate: sluice.Rate{Count: 1000, Per: time.Second}, RateUnit: c.unit}, 1, 1)
			b := newBacklog(t)
			defer b.stop()
			b.of(children[0], 20, 1, 0)
			for range 20 {
				b.all.Go(func() {
					for {
						p, err := children[1].Acquire(b.ctx, 4)
						if err != nil {
							return
						}
						p.Settle(c.settled)
						p.Release()
					}
				})
			}
			time.Sleep(20 * time.Second)
			one, four := float64(children[0].Stats().Admitted), float64(children[1].Stats().Admitted)
			if math.Abs(one/four-c.ratio) > 0.08*c.ratio { // a call may be settled when the next has its place
				t.Errorf("%v, settled by %d: %v calls of cost 1, %v of cost 4", c.unit, c.settled, one, four)
			}
		})
	}
}

// A child that was idle has saved nothing and owes nothing, and a call that gives up pays nothing.
func TestConfig_Weight_SavesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, children := family(t, sluice.Config{Rate: sluice.Rate{Count: 100, Per: time.Second}}, 1, 1)
		b := newBacklog(t)
		defer b.stop()
		b.of(children[0], 5, 1, 0)
		time.Sleep(10 * time.Second)
		for range 100 {
			within, stop := context.WithCancel(b.ctx)
			go func() { _ = children[1].Wait(within) }()
			synctest.Wait()
			stop()
			synctest.Wait()
		}
		before := [2]uint64{children[0].Stats().Admitted, children[1].Stats().Admitted}
		b.of(children[1], 5, 1, 0)
		time.Sleep(time.Second)
		got := [2]uint64{children[0].Stats().Admitted - before[0], children[1].Stats().Admitted - before[1]}
		if got[0] < 49 || got[0] > 51 || got[1] < 49 || got[1] > 51 {
			t.Errorf("%v calls in a second, want 50 each", got)
		}
	})
}

// A child that is held up by a limit of its own takes no turn of the others, and gets its own limit.
func TestConfig_Weight_OwnLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		parent, children := family(t, sluice.Config{Rate: sluice.Rate{Count: 100, Per: time.Second}}, 1, 1)
		slow := mustGate(t, sluice.Config{Parent: parent, Weight: 50, Rate: sluice.Rate{Count: 10, Per: time.Second}})
		b := newBacklog(t)
		defer b.stop()
		for _, g := range append(children, slow) {
			b.of(g, 5, 1, 0)
		}
		time.Sleep(10 * time.Second)
		for i, g := range append(children, slow) {
			want := []uint64{455, 455, 90}[i] // its slot comes, and then a call of the others may be first
			if got := g.Stats().Admitted; got+9 < want || got > want+9 {
				t.Errorf("child %d: %d calls, want %d", i, got, want)
			}
		}
	})
}

// Calls of the parent itself are overtaken by none that comes later.
func TestConfig_Weight_OwnCallsOfAParent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		parent, children := family(t, sluice.Config{Rate: sluice.Rate{Count: 10, Per: time.Second}}, 1000)
		b := newBacklog(t)
		defer b.stop()
		b.of(children[0], 5, 1, 0)
		synctest.Wait()
		came := time.Now()
		if err := parent.Wait(b.ctx); err != nil || time.Since(came) > 200*time.Millisecond {
			t.Errorf("waited for %v: %v", time.Since(came), err)
		}
	})
}

// More children wait than are looked at for a place: none starves.
func TestConfig_Weight_ManyChildren(t *testing.T) {
	built.SkipRaced(t)
	synctest.Test(t, func(t *testing.T) {
		weights := make([]int64, 3000)
		for i := range weights {
			weights[i] = 1 + int64(i%2)*9
		}
		_, children := family(t, sluice.Config{Rate: sluice.Rate{Count: 1000, Per: time.Second}}, weights...)
		b := newBacklog(t)
		defer b.stop()
		for _, g := range children {
			b.of(g, 2, 1, 0)
		}
		time.Sleep(50 * time.Second)
		least, most := [2]uint64{1 << 40, 1 << 40}, [2]uint64{}
		for i, g := range children {
			n := g.Stats().Admitted
			least[i%2], most[i%2] = min(least[i%2], n), max(most[i%2], n)
		}
		if least[0] < 2 || most[0] > 8 || least[1] < 10 {
			t.Errorf("children of weight 1 made %d to %d calls, of weight 10 %d to %d", least[0], most[0], least[1], most[1])
		}
	})
}

func TestConfig_Weight_Negative(t *testing.T) {
	if _, err := sluice.New(sluice.Config{Weight: -1}); err == nil {
		t.Error("no error")
	}
}

// # Claimants

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
		_ = call("a", func() error { return sluice.ThrottledFor(errBusy, time.Minute) })
		if left := time.Until(g.Stats().PausedUntil); left != time.Minute {
			t.Errorf("paused for %v", left)
		}
		began := time.Now()
		for i := range 100 {
			_ = call("b", func() error { return nil })
			if i%10 == 0 {
				_ = call("a", func() error { return sluice.ThrottledFor(errBusy, time.Second) })
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
				in := new(sluice.Permit)
				reroute.Label(in, uint32(1+i%2))
				err := g.For(sluice.Claimant{Name: fmt.Sprint(i / 4)}, func(gate *sluice.Gate) error {
					a.Move(gate)
					_, err := a.Next(bg, 1, in)
					return err
				})
				if i%2 == 0 {
					if !errors.Is(err, reroute.ErrTurnedAway) {
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
		reroute.TurnAway(g, func(label uint32) bool { return label == 1 })
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

// # Calls that go on to another gate

// Calls that are turned away take nothing, go on through another gate, and keep their order; those with
// another label, or none, stay.
func TestGate_TurnAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		host := must(sluice.New(sluice.Config{Name: "host", Rate: sluice.Rate{Count: 1, Per: time.Second}}))
		part, err := partOf(host)
		if err != nil {
			t.Fatal(err)
		}
		host.PauseUntil(time.Now().Add(10*time.Second), "told")
		var mu sync.Mutex
		var order []int
		var all sync.WaitGroup
		for i := range 6 {
			all.Go(func() {
				a := sluice.NewRetryLoop(host, sluice.RetryPolicy{})
				in := new(sluice.Permit)
				reroute.Label(in, uint32(i%3+1)) // 1 and 2 are turned away
				permit, err := a.Next(t.Context(), 1, in)
				if turned := errors.Is(err, reroute.ErrTurnedAway); turned != (i%3 < 2) {
					t.Errorf("call %d: %v", i, err)
				} else if turned {
					a.Move(part)
					permit, err = a.Next(t.Context(), 1)
				}
				if err != nil {
					t.Errorf("call %d: %v", i, err)
				}
				mu.Lock()
				order = append(order, i)
				mu.Unlock()
				permit.Release()
			})
			time.Sleep(time.Millisecond)
		}
		part.PauseUntil(time.Now().Add(20*time.Second), "told")
		reroute.TurnAway(host, func(label uint32) bool { return label < 3 })
		synctest.Wait()
		if h, p := host.Stats(), part.Stats(); h.Pacing != 2 || p.Pacing != 4 {
			t.Errorf("%d wait for the host and %d for the part", h.Pacing, p.Pacing)
		}
		all.Wait()
		if !slices.Equal(order[:2], []int{2, 5}) {
			t.Errorf("left in the order %v", order)
		}
		if rest := order[3:]; !slices.IsSorted(rest) {
			t.Errorf("left in the order %v: all but the first as they came", order)
		}
		if s := host.Stats(); s.Admitted != 6 || s.InFlight != 0 || s.Rejected != (sluice.Rejections{}) {
			t.Errorf("host: %v", s)
		}
	})
}

// A refusal that is moved pauses the other gate, and the one before learns nothing from it.
func TestAttempts_Move_Refused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		host := must(sluice.New(sluice.Config{Name: "host"}))
		part, err := partOf(host)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		a := sluice.NewRetryLoop(host, sluice.RetryPolicy{})
		permit, err := a.Next(t.Context(), 1)
		if err != nil {
			t.Fatal(err)
		}
		a.Move(part)
		a.Move(part) // changes nothing
		if again, err := a.Done(t.Context(), sluice.ThrottledFor(errors.New("429"), time.Minute)); !again || err != nil {
			t.Fatal(again, err)
		}
		permit.Release()
		if h, p := host.Stats(), part.Stats(); !h.PausedUntil.IsZero() || h.Learned != nil || time.Until(p.PausedUntil) != time.Minute {
			t.Errorf("host %v, part %v", h, p)
		}
		if permit, err = a.Next(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
		if again, err := a.Done(t.Context(), nil); again || err != nil {
			t.Error(again, err)
		}
		permit.Release()
		if h, p := host.Stats(), part.Stats(); h.InFlight != 0 || p.InFlight != 0 || h.Admitted != 2 || p.Admitted != 1 {
			t.Errorf("host %v, part %v", h, p)
		}
	})
}

// A call that is moved is one call less: the gate before estimates the limit as if it had not been made.
func TestAttempts_Move_NotAccepted(t *testing.T) {
	for _, search := range []bool{false, true} {
		learned := func(moved int) (l sluice.Learned) {
			synctest.Test(t, func(t *testing.T) {
				host := must(sluice.New(sluice.Config{Name: "host", Concurrency: 40, Adaptive: sluice.Adaptive{Search: search, Start: sluice.PerSecond(1000)}}))
				part := must(partOf(host))
				end := func(err error, move bool) func() {
					a := sluice.NewRetryLoop(host, sluice.RetryPolicy{})
					permit, failed := a.Next(t.Context(), 1)
					if failed != nil {
						t.Fatal(failed)
					}
					return func() {
						defer permit.Release()
						if move {
							a.Move(part)
						}
						if again, failed := a.Done(t.Context(), err); again == (err == nil) {
							t.Fatal(again, failed)
						}
					}
				}
				throttled := sluice.ThrottledFor(errors.New("429"), 30*time.Second)
				var ends []func()
				for i := range 40 {
					switch {
					case i < 10:
						ends = append(ends, end(nil, false))
					case i < 20:
						ends = append(ends, end(throttled, false))
					case i < 20+moved:
						ends = append(ends, end(throttled, true))
					}
				}
				time.Sleep(time.Second)
				for i := len(ends) - 1; i >= 0; i-- { // those that are moved first, before the gate learns
					ends[i]()
				}
				end(nil, false)()
				l = *host.Stats().Learned
			})
			return l
		}
		few, many := learned(0), learned(20)
		if few.AcceptedRate == 0 || few.Pace == 0 {
			t.Fatal("nothing was learned:", few)
		}
		if fmt.Sprint(many) != fmt.Sprint(few) {
			t.Errorf("search %v: learned\n%v, without the calls that were moved\n%v", search, many, few)
		}
	}
}

// A retracted attempt is none: its permit is back, and the next one is the first.
func TestAttempts_Retract(t *testing.T) {
	gate := must(sluice.New(sluice.Config{Concurrency: 1}))
	a := sluice.NewRetryLoop(gate, sluice.RetryPolicy{Attempts: 1})
	for range 3 {
		if _, err := a.Next(context.Background(), 1); err != nil {
			t.Fatal(err)
		}
		a.Done(context.Background(), reroute.ErrTurnedAway)
		a.Done(context.Background(), reroute.ErrTurnedAway) // changes nothing
	}
	permit, err := a.Next(context.Background(), 1)
	if err != nil {
		t.Fatal(err)
	}
	if reroute.AdmittedAt(permit).IsZero() {
		t.Error("no time")
	}
	if again, err := a.Done(context.Background(), nil); again || err != nil {
		t.Error(again, err)
	}
	permit.Release()
	if s := gate.Stats(); s.InFlight != 0 {
		t.Error(s)
	}
	var none *sluice.Permit
	if !reroute.AdmittedAt(none).IsZero() {
		t.Error("the nil permit was granted")
	}
}

// Part has what the gate has besides limits, and those of the gate hold for it.
func TestGate_Part(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		host := must(sluice.New(sluice.Config{Name: "host", Concurrency: 1, MaxWaiting: 1, RetryBudget: 7}))
		part, err := partOf(host)
		if err != nil {
			t.Fatal(err)
		}
		if s := part.Stats(); s.Parent != "host" || s.Name != "part" || s.Concurrency != 0 || s.RetryTokens != 7 {
			t.Error(s)
		}
		p, err := host.Acquire(t.Context(), 1)
		if err != nil {
			t.Fatal(err)
		}
		if _, ok := part.TryAcquire(1); ok {
			t.Error("two in flight")
		}
		p.Release()
		if _, err := partOf(must(sluice.New(sluice.Config{Semaphore: shared{}}))); err == nil {
			t.Error("a part of a gate with a semaphore")
		}
	})
}

// partOf returns a part of gate.
func partOf(gate *sluice.Gate) (*sluice.Gate, error) {
	part, err := reroute.Part(gate, "part", nil)
	if err != nil {
		return nil, err
	}
	return part.(*sluice.Gate), nil
}
