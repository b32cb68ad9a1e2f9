package bench

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	xsync "golang.org/x/sync/semaphore"
	"golang.org/x/time/rate"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/limits"
	"github.com/sluice-go/sluice/pacer"
	"github.com/sluice-go/sluice/semaphore"
)

// BenchmarkGateDo makes a call that does nothing through concurrency and pace
// when neither blocks. parts is the sum of Sluice's own parts, a semaphore and
// a pacer asked one after the other; xsync+xtime the same of the rivals.
// Neither takes both or none, as the gate does, nor can be paused, counts
// anything or survives a panic.
func BenchmarkGateDo(b *testing.B) {
	const limit = 1024
	ctx := context.Background()
	call := func(context.Context) error { return nil }
	b.Run("floor", func(b *testing.B) {
		f, s := newFloorRate(), new(floorSemaphore)
		each(b, func(n int) {
			got := 0
			for range n {
				ok := s.acquire()
				if f.take() && call(ctx) == nil && s.release() && ok {
					got++
				}
			}
			sink.Store(int64(got))
		})
	})
	b.Run("sluice", func(b *testing.B) {
		g, err := sluice.New(sluice.Config{Concurrency: limit, Rate: sluice.Rate{Count: perNano, Per: time.Second}})
		if err != nil {
			b.Fatal(err)
		}
		each(b, func(n int) {
			got := 0
			for range n {
				if g.Do(ctx, call) == nil {
					got++
				}
			}
			grants(b, got, n)
		})
	})
	b.Run("parts", func(b *testing.B) {
		s, p := semaphore.NewWeighted(limit), limits.Must(pacer.New(sluice.Rate{Count: perNano, Per: time.Second}))
		each(b, func(n int) {
			got := 0
			for range n {
				if s.Acquire(ctx, 1) != nil {
					continue
				}
				if p.TryAcquire(1) && call(ctx) == nil {
					got++
				}
				s.Release(1)
			}
			grants(b, got, n)
		})
	})
	b.Run("xsync+xtime", func(b *testing.B) {
		s, l := xsync.NewWeighted(limit), rate.NewLimiter(perNano, slack)
		each(b, func(n int) {
			got := 0
			for range n {
				if s.Acquire(ctx, 1) != nil {
					continue
				}
				if l.Allow() && call(ctx) == nil {
					got++
				}
				s.Release(1)
			}
			grants(b, got, n)
		})
	})
}

// BenchmarkGateAdaptive makes a call that does nothing through a gate that learns, and is
// never delayed. Locked is a gate without a learner whose calls, of cost 1, take its lock
// as well, because its concurrency counts cost.
func BenchmarkGateAdaptive(b *testing.B) {
	ctx := context.Background()
	for _, c := range []struct {
		name string
		cfg  sluice.Config
	}{
		{"sluice", sluice.Config{Adaptive: sluice.Adaptive{Search: true, Start: sluice.Rate{Count: perNano, Per: time.Second}}}},
		{"locked", sluice.Config{Concurrency: 1 << 20, ConcurrencyUnit: sluice.Cost}},
		{"plain", sluice.Config{Concurrency: 1 << 20}},
	} {
		b.Run(c.name, func(b *testing.B) {
			g := limits.Must(sluice.New(c.cfg))
			each(b, func(n int) {
				got := 0
				for range n {
					if g.Do(ctx, func(context.Context) error { return nil }) == nil {
						got++
					}
				}
				grants(b, got, n)
			})
		})
	}
}

// BenchmarkGateParent is GateDo of a gate with a parent that has both limits as well. plain is
// the gate without the parent, twice one gate after the other: neither or both is taken only
// with the parent.
func BenchmarkGateParent(b *testing.B) {
	const limit = 1024
	ctx := context.Background()
	call := func(context.Context) error { return nil }
	config := func(parent *sluice.Gate) sluice.Config {
		return sluice.Config{Concurrency: limit, Rate: sluice.Rate{Count: perNano, Per: time.Second}, Parent: parent}
	}
	calls := func(b *testing.B, g *sluice.Gate, call func(context.Context) error) {
		each(b, func(n int) {
			got := 0
			for range n {
				if g.Do(ctx, call) == nil {
					got++
				}
			}
			grants(b, got, n)
		})
	}
	plain := limits.Must(sluice.New(config(nil)))
	b.Run("sluice", func(b *testing.B) { calls(b, limits.Must(sluice.New(config(plain))), call) })
	b.Run("plain", func(b *testing.B) { calls(b, plain, call) })
	b.Run("twice", func(b *testing.B) {
		outer := limits.Must(sluice.New(config(nil)))
		calls(b, outer, func(ctx context.Context) error { return plain.Do(ctx, call) })
	})
}

// BenchmarkGateChildren is the hand-over of the only place of a parent among the calls of its children,
// of which some always wait.
func BenchmarkGateChildren(b *testing.B) {
	for _, n := range []int{2, 16, 256} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			parent := limits.Must(sluice.New(sluice.Config{Concurrency: 1}))
			var all sync.WaitGroup
			b.ReportAllocs()
			for range n {
				g := limits.Must(sluice.New(sluice.Config{Parent: parent}))
				all.Go(func() {
					for range max(1, b.N/n) {
						_ = g.Do(context.Background(), func(context.Context) error { runtime.Gosched(); return nil })
					}
				})
			}
			all.Wait()
		})
	}
}
