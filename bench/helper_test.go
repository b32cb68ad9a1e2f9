package bench

import (
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// each has loop do b.N operations in all, on as many goroutines as -cpu says.
// loop gets how many to do, so that neither a call of a closure nor
// anything else of ours is part of an operation.
func each(b *testing.B, loop func(n int)) {
	workers(b, runtime.GOMAXPROCS(0), 1024, func(_, n int) { loop(n) })
}

// workers is each on g goroutines, which help themselves to grain operations
// at a time so that none is left over alone at the end.
func workers(b *testing.B, g, grain int, loop func(worker, n int)) {
	crew{size: g, grain: grain}.run(b, loop)
}

// A crew does the operations of a benchmark.
type crew struct {
	size, grain int

	// opening, if set, is called when all of them have begun and can do
	// nothing more before it is.
	opening func()
}

func (c crew) run(b *testing.B, loop func(worker, n int)) {
	b.ReportAllocs()
	if c.size == 1 && c.opening == nil {
		b.ResetTimer()
		loop(0, b.N)
		return
	}
	var next atomic.Int64
	var done sync.WaitGroup
	start := make(chan struct{})
	for w := range c.size {
		done.Go(func() {
			<-start
			for {
				begin := int(next.Add(int64(c.grain))) - c.grain
				if begin >= b.N {
					return
				}
				loop(w, min(c.grain, b.N-begin))
			}
		})
	}
	var before, after runtime.MemStats
	if c.opening == nil {
		runtime.ReadMemStats(&before)
		b.ResetTimer()
		close(start)
	} else {
		close(start)
		settle()
		runtime.ReadMemStats(&before)
		b.ResetTimer()
		c.opening()
	}
	done.Wait()
	b.StopTimer()
	runtime.ReadMemStats(&after)
	// allocs/op is rounded down to a whole number, and an allocation in one of
	// two operations is worth knowing.
	b.ReportMetric(float64(after.Mallocs-before.Mallocs)/float64(b.N), "mallocs/op")
}

// grants checks that an operation did what its name says: all n were admitted.
// Where several goroutines ask at a rate of one per nanosecond a tenth may be
// rejected, since some read the clock before they enter and are overtaken.
func grants(b *testing.B, got, n int) {
	least := n
	if runtime.GOMAXPROCS(0) > 1 {
		least = n - n/10 - 1
	}
	if got < least {
		b.Errorf("granted %d of %d", got, n)
	}
}

// refuses checks that all n were rejected.
func refuses(b *testing.B, got, n int) {
	if got != 0 {
		b.Errorf("granted %d of %d, and none should have been", got, n)
	}
}

// floorRate is what no limiter of a rate can be cheaper than. It stands alone
// in its cache lines.
type floorRate struct {
	_     [128]byte
	epoch time.Time
	at    atomic.Int64
	_     [128]byte
}

func newFloorRate() *floorRate { return &floorRate{epoch: time.Now()} }

func (f *floorRate) take() bool {
	old := f.at.Load()
	return f.at.CompareAndSwap(old, int64(time.Since(f.epoch)))
}

// floorSemaphore is what no semaphore can be cheaper than.
type floorSemaphore struct {
	_ [128]byte
	n atomic.Int64
	_ [128]byte
}

func (f *floorSemaphore) acquire() bool { n := f.n.Load(); return f.n.CompareAndSwap(n, n+1) }
func (f *floorSemaphore) release() bool { n := f.n.Load(); return f.n.CompareAndSwap(n, n-1) }

// sink keeps results that nothing else looks at.
var sink atomic.Int64

// draws returns a source of random numbers that is the same in each run.
func draws(seed int) *rand.PCG { return rand.NewPCG(1, uint64(seed)) }
