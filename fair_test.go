package sluice_test

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice"
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
