package bench

import (
	"context"
	"runtime"
	"runtime/metrics"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/failsafe-go/failsafe-go/ratelimiter"
	"golang.org/x/time/rate"

	"github.com/sluice-go/sluice/bench/internal/machine"
	"github.com/sluice-go/sluice/limits"
	"github.com/sluice-go/sluice/pacer"
)

// herdSize returns the number of callers that wait. With fewer the fixed costs would
// show; -short is for whoever only wants to know that it works.
func herdSize() int {
	if testing.Short() {
		return 1_000
	}
	return 100_000
}

// BenchmarkHerd lets 100,000 callers wait on one pacer of ten per second, in
// one context, looks at them, and cancels them. One operation is one herd:
//
//	B/waiter      the growth of the live heap over the herd ÷ 100,000; the
//	              goroutines have existed before (see warm)
//	stack-B/waiter the same for stacks: 2,048 is the least
//	cpu-ms/s      processor time of the process per second while they wait and
//	              ten of them leave
//	timers        timers that were made while they came and are not garbage, as
//	              the heap profile has them: those armed and some that were
//	queue-ns      time until all wait ÷ 100,000
//	cancel-ns     time until all have left after the cancel ÷ 100,000
//
// What a waiter costs beyond its goroutine is what it has above parked: a
// goroutine in a select between a channel and the context, for which the
// runtime takes 112 B for each of the two, whoever made them. blocked is one
// that receives from a single channel and honors no context. uber has no
// cancel, so that its herd would never leave, and is not here.
func BenchmarkHerd(b *testing.B) {
	b.Run("blocked", func(b *testing.B) {
		herd(b, func(time.Duration) waitFunc {
			return func(ctx context.Context) error {
				<-ctx.Done()
				return ctx.Err()
			}
		})
	})
	b.Run("parked", func(b *testing.B) {
		never := make(chan struct{})
		herd(b, func(time.Duration) waitFunc {
			return func(ctx context.Context) error {
				select {
				case <-never:
					return nil
				case <-ctx.Done():
					return ctx.Err()
				}
			}
		})
	})
	b.Run("sluice", func(b *testing.B) {
		herd(b, func(interval time.Duration) waitFunc {
			p := limits.Must(pacer.New(limits.Rate{Count: 1, Per: interval}))
			return func(ctx context.Context) error { return p.Acquire(ctx, 1) }
		})
	})
	b.Run("xtime", func(b *testing.B) {
		herd(b, func(interval time.Duration) waitFunc {
			return rate.NewLimiter(rate.Every(interval), 1).Wait
		})
	})
	b.Run("failsafe", func(b *testing.B) {
		herd(b, func(interval time.Duration) waitFunc {
			return ratelimiter.NewSmoothBuilder[any](1, interval).Build().AcquirePermit
		})
	})
}

type waitFunc func(ctx context.Context) error

func herd(b *testing.B, newPacer func(interval time.Duration) waitFunc) {
	warm()
	var total measured
	b.ResetTimer()
	for range b.N {
		total.add(oneHerd(newPacer(100 * time.Millisecond)))
	}
	b.StopTimer()
	timers := countTimers(newPacer(time.Hour))
	each := float64(b.N) * float64(herdSize())
	b.ReportMetric(float64(total.heap)/each, "B/waiter")
	b.ReportMetric(float64(total.stack)/each, "stack-B/waiter")
	b.ReportMetric(1000*total.cpu.Seconds()/total.idle.Seconds(), "cpu-ms/s")
	b.ReportMetric(float64(timers), "timers")
	b.ReportMetric(float64(total.queue)/each, "queue-ns")
	b.ReportMetric(float64(total.cancel)/each, "cancel-ns")
}

type measured struct {
	heap, stack              int64
	queue, idle, cpu, cancel time.Duration
}

func (m *measured) add(n measured) {
	m.heap += n.heap
	m.stack += n.stack
	m.queue += n.queue
	m.idle += n.idle
	m.cpu += n.cpu
	m.cancel += n.cancel
}

// gather starts the herd, returns when all of it waits, and what ends it.
func gather(wait waitFunc) (cancel func()) {
	return gatherN(herdSize(), context.Background(), wait)
}

// gatherN is gather for n that wait with a child of parent.
func gatherN(n int, parent context.Context, wait waitFunc) (cancel func()) {
	ctx, stop := context.WithCancel(parent)
	var gone sync.WaitGroup
	gone.Add(n)
	one := func() { // without arguments, so that go allocates nothing but the goroutine
		_ = wait(ctx)
		gone.Done()
	}
	for range n {
		go one()
	}
	settle()
	return func() {
		stop()
		gone.Wait()
	}
}

// settle returns when no goroutine but this one can run.
func settle() {
	state := []metrics.Sample{
		{Name: "/sched/goroutines/runnable:goroutines"},
		{Name: "/sched/goroutines/running:goroutines"},
	}
	for quiet := 0; quiet < 3; {
		time.Sleep(time.Millisecond)
		metrics.Read(state)
		if state[0].Value.Uint64() == 0 && state[1].Value.Uint64() <= 1 {
			quiet++
		} else {
			quiet = 0
		}
	}
}

var warmed sync.Once

// warm makes as many goroutines as there will be. The runtime keeps the
// descriptors of those that have ended, so that they are no part of the growth
// of the heap afterwards; stacks are counted apart.
func warm() {
	warmed.Do(func() {
		var ready atomic.Int64
		gather(func(ctx context.Context) error {
			ready.Add(1)
			<-ctx.Done()
			return nil
		})()
	})
}

func oneHerd(wait waitFunc) (m measured) {
	var before, after runtime.MemStats
	runtime.GC()
	runtime.GC() // the first empties the runtime's caches, the second counts
	runtime.ReadMemStats(&before)
	start := time.Now()
	cancel := gather(wait)
	m.queue = time.Since(start)
	runtime.GC()
	runtime.ReadMemStats(&after)
	m.heap = int64(after.HeapAlloc) - int64(before.HeapAlloc)
	m.stack = int64(after.StackInuse) - int64(before.StackInuse)

	cpu, began := machine.CPUTime(), time.Now()
	time.Sleep(500 * time.Millisecond)
	m.cpu, m.idle = machine.CPUTime()-cpu, time.Since(began)

	start = time.Now()
	cancel()
	m.cancel = time.Since(start)
	return m
}

// countTimers gathers another herd, with every allocation profiled. None of it
// leaves, so that no timer is given up while they are counted.
func countTimers(wait waitFunc) int64 {
	rate := runtime.MemProfileRate
	defer func() { runtime.MemProfileRate = rate }()
	before := liveTimers()
	runtime.MemProfileRate = 1
	cancel := gather(wait)
	runtime.MemProfileRate = rate
	n := liveTimers() - before
	cancel()
	return n
}

// liveTimers returns the number of live timers that were made while allocations
// were profiled.
func liveTimers() (n int64) {
	runtime.GC()
	runtime.GC() // the profile is that of the cycle before
	var records []runtime.MemProfileRecord
	for size := 1000; ; size *= 2 {
		records = make([]runtime.MemProfileRecord, size)
		k, ok := runtime.MemProfile(records, true)
		if ok {
			records = records[:k]
			break
		}
	}
	for _, r := range records {
		frames := runtime.CallersFrames(r.Stack())
		for more := true; more; {
			var f runtime.Frame
			f, more = frames.Next()
			if strings.HasPrefix(f.Function, "time.") {
				// A timer's channel is not counted as another one.
				if f.Function == "time.newTimer" || f.Function == "time.Sleep" {
					n += r.InUseObjects()
				}
				break
			}
		}
	}
	return n
}
