package bench

import (
	"context"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/failsafe-go/failsafe-go/bulkhead"
	xsync "golang.org/x/sync/semaphore"

	"github.com/sluice-go/sluice/semaphore"
)

// BenchmarkSemaphorePair takes a permit and returns it; no caller ever waits.
func BenchmarkSemaphorePair(b *testing.B) {
	const limit = 1024
	ctx := context.Background()
	b.Run("floor", func(b *testing.B) {
		f := new(floorSemaphore)
		each(b, func(n int) {
			got := 0
			for range n {
				if f.acquire() && f.release() {
					got++
				}
			}
			sink.Store(int64(got))
		})
	})
	b.Run("sluice", func(b *testing.B) {
		s := semaphore.NewWeighted(limit)
		each(b, func(n int) {
			for range n {
				if err := s.Acquire(ctx, 1); err != nil {
					b.Error(err)
					return
				}
				s.Release(1)
			}
		})
	})
	b.Run("xsync", func(b *testing.B) {
		s := xsync.NewWeighted(limit)
		each(b, func(n int) {
			for range n {
				if err := s.Acquire(ctx, 1); err != nil {
					b.Error(err)
					return
				}
				s.Release(1)
			}
		})
	})
	b.Run("failsafe", func(b *testing.B) {
		s := bulkhead.NewBuilder[any](limit).Build()
		each(b, func(n int) {
			for range n {
				if err := s.AcquirePermit(ctx); err != nil {
					b.Error(err)
					return
				}
				s.ReleasePermit()
			}
		})
	})
	b.Run("chan", func(b *testing.B) {
		c := make(chan struct{}, limit)
		each(b, func(n int) { chanPairs(c, n) })
	})
	b.Run("chan+ctx", func(b *testing.B) {
		c := make(chan struct{}, limit)
		each(b, func(n int) { chanCtxPairs(b, ctx, c, n) })
	})
}

// BenchmarkSemaphoreContended is one permit and 64 goroutines that want it:
// each operation hands it from one to the next. All of them serve in order.
func BenchmarkSemaphoreContended(b *testing.B) {
	contended(b, 64, context.Background())
}

// BenchmarkSemaphoreContendedCancel is the same with a context that may be
// canceled (and never is), which costs whoever selects on it. chan, which
// has no context, is the same as there.
func BenchmarkSemaphoreContendedCancel(b *testing.B) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	contended(b, 64, ctx)
}

// BenchmarkSemaphoreGrow is SemaphoreContended with ever more goroutines.
func BenchmarkSemaphoreGrow(b *testing.B) { growContended(b, context.Background()) }

// BenchmarkSemaphoreGrowCancel is SemaphoreContendedCancel with ever more goroutines.
func BenchmarkSemaphoreGrowCancel(b *testing.B) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	growContended(b, ctx)
}

func growContended(b *testing.B, ctx context.Context) {
	for _, g := range []int{1, 4, 16, 64, 256, 1024, 4096, 16_384, 131_072, 1_048_576} {
		if g <= herdSize() || !testing.Short() {
			b.Run(fmt.Sprint(g), func(b *testing.B) { contended(b, g, ctx) })
		}
	}
}

func contended(b *testing.B, g int, ctx context.Context) {
	b.Run("sluice", func(b *testing.B) { pairs(b, g, ctx, semaphore.NewWeighted(1)) })
	b.Run("xsync", func(b *testing.B) { pairs(b, g, ctx, xsync.NewWeighted(1)) })
	b.Run("chan", func(b *testing.B) { contendChan(b, g) })
	b.Run("chan+ctx", func(b *testing.B) { contendChanCtx(b, g, ctx) })
}

// weighted is what sluice and xsync have in common. Calls through it cost both
// the same, a nanosecond or two, which does not show next to a switch of
// goroutines.
type weighted interface {
	Acquire(ctx context.Context, n int64) error
	TryAcquire(n int64) bool
	Release(n int64)
}

// contend has loop run by g goroutines. It begins when all of them wait for
// the one permit, which opening returns: they would need a while to find
// themselves queueing, on one CPU a long one, and then never stop.
func contend(b *testing.B, g int, opening func(), loop func(n int)) {
	// Small bites, so that the goroutines end at about the same time.
	grain := max(1, min(16, b.N/(4*g)))
	crew{g, grain, opening}.run(b, func(_, n int) { loop(n) })
}

func pairs[S weighted](b *testing.B, g int, ctx context.Context, s S) {
	s.TryAcquire(1)
	contend(b, g, func() { s.Release(1) }, func(n int) {
		for range n {
			if err := s.Acquire(ctx, 1); err != nil {
				b.Error(err)
				return
			}
			s.Release(1)
		}
	})
}

func contendChan(b *testing.B, g int) {
	c := make(chan struct{}, 1)
	c <- struct{}{}
	contend(b, g, func() { <-c }, func(n int) { chanPairs(c, n) })
}

func contendChanCtx(b *testing.B, g int, ctx context.Context) {
	c := make(chan struct{}, 1)
	c <- struct{}{}
	contend(b, g, func() { <-c }, func(n int) { chanCtxPairs(b, ctx, c, n) })
}

func chanPairs(c chan struct{}, n int) {
	for range n {
		c <- struct{}{}
		<-c
	}
}

func chanCtxPairs(b *testing.B, ctx context.Context, c chan struct{}, n int) {
	for range n {
		select {
		case c <- struct{}{}:
		case <-ctx.Done():
			b.Error(ctx.Err())
			return
		}
		<-c
	}
}

// BenchmarkSemaphoreMixed is what a server does to a semaphore: 32 goroutines
// share 10 permits; calls weigh 1 to 4 and yield while they hold them; one in
// 16 has 50 µs, one in 16 is canceled from next to, one in 16 only tries. A
// call that was rejected counts as one. harness is the same without a
// semaphore: contexts, yields and random numbers. What it allocates is in the
// others, too (and most of what they do).
func BenchmarkSemaphoreMixed(b *testing.B) {
	b.Run("harness", func(b *testing.B) { mixed(b, free{}) })
	b.Run("sluice", func(b *testing.B) { mixed(b, semaphore.NewWeighted(10)) })
	b.Run("xsync", func(b *testing.B) { mixed(b, xsync.NewWeighted(10)) })
}

// free is a semaphore without a limit.
type free struct{}

func (free) Acquire(context.Context, int64) error { return nil }
func (free) TryAcquire(int64) bool                { return true }
func (free) Release(int64)                        {}

func mixed[S weighted](b *testing.B, s S) {
	const goroutines = 32
	var served atomic.Int64
	// A goroutine that was let go late does not wait for its neighbor: the
	// cancel of one is called by whoever comes past next.
	var beside atomic.Pointer[context.CancelFunc]
	background := context.Background()
	workers(b, goroutines, max(1, min(16, b.N/(4*goroutines))), func(worker, n int) {
		random := draws(worker)
		got := 0
		for range n {
			r := random.Uint64()
			weight := int64(1 + r&3)
			if cancel := beside.Swap(nil); cancel != nil {
				(*cancel)()
			}
			var err error
			switch ctx := background; r >> 8 & 15 {
			case 0:
				ctx, cancel := context.WithTimeout(ctx, 50*time.Microsecond)
				err = s.Acquire(ctx, weight)
				cancel()
			case 1:
				ctx, cancel := context.WithCancel(ctx)
				if old := beside.Swap(&cancel); old != nil {
					(*old)()
				}
				err = s.Acquire(ctx, weight)
			case 2:
				if !s.TryAcquire(weight) {
					err = context.DeadlineExceeded
				}
			default:
				err = s.Acquire(ctx, weight)
			}
			if err != nil {
				continue
			}
			got++
			runtime.Gosched()
			s.Release(weight)
		}
		served.Add(int64(got))
	})
	if cancel := beside.Swap(nil); cancel != nil {
		(*cancel)()
	}
	b.ReportMetric(100*float64(served.Load())/float64(b.N), "served%")
}
