package bench

import (
	"context"
	"strconv"
	"testing"
	"time"

	"golang.org/x/time/rate"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/limits"
)

// The benchmarks of this file change a gate of one call per minute for which ever more
// callers wait: none has a deadline (sluice), or all have one that the change does not make
// unreachable (deadlines). While a gate is changed no call starts.
//
// xtime changes the rate of an x/time/rate Limiter. That does not reach those that wait: they
// sleep for as long as the old rate says.

// BenchmarkSetRateGrow makes the rate slower and faster alternately.
func BenchmarkSetRateGrow(b *testing.B) {
	growWaiting(b, 1_000_000, func(b *testing.B, n int) {
		changes(b, n, func(b *testing.B, g *sluice.Gate) {
			for i := range b.N {
				if err := g.SetRate(perMinute(1000 - i&1)); err != nil {
					b.Fatal(err)
				}
			}
		})
		l := rate.NewLimiter(1, 1)
		defer gatherN(n, context.Background(), l.Wait)()
		b.Run("xtime", func(b *testing.B) {
			b.ReportAllocs()
			for i := range b.N {
				l.SetLimit(rate.Limit(1 - float64(i&1)/1000))
			}
		})
	})
}

// BenchmarkSetConcurrencyGrow makes the concurrency lower and higher
// alternately.
func BenchmarkSetConcurrencyGrow(b *testing.B) {
	growWaiting(b, 1_000_000, func(b *testing.B, n int) {
		changes(b, n, func(b *testing.B, g *sluice.Gate) {
			for i := range b.N {
				if err := g.SetConcurrency(1000 - int64(i&1)); err != nil {
					b.Fatal(err)
				}
			}
		})
	})
}

// BenchmarkPauseUntilGrow prolongs a pause.
func BenchmarkPauseUntilGrow(b *testing.B) {
	growWaiting(b, 1_000_000, func(b *testing.B, n int) {
		until := time.Now().Add(time.Minute)
		changes(b, n, func(b *testing.B, g *sluice.Gate) {
			for range b.N {
				until = until.Add(1)
				g.PauseUntil(until, "")
			}
		})
	})
}

// BenchmarkSettleGrow corrects the cost of a call upwards: the next slot comes later.
func BenchmarkSettleGrow(b *testing.B) {
	growWaiting(b, 100_000, func(b *testing.B, n int) {
		for _, kind := range kinds {
			b.Run(kind.name, func(b *testing.B) {
				ctx, cancel := contextOf(kind.wait)
				defer cancel()
				g := newCostGate()
				permits := make([]*sluice.Permit, b.N) // of calls that start before others wait
				for i := range permits {
					permits[i], _ = g.TryAcquire(1)
				}
				defer lineUp(b, g, n, ctx)()
				b.ReportAllocs()
				b.ResetTimer()
				for _, p := range permits {
					p.Settle(2)
				}
				b.StopTimer()
			})
		}
	})
}

// growWaiting runs f with ever more that wait, up to most.
func growWaiting(b *testing.B, most int, f func(b *testing.B, n int)) {
	for n := 1; n <= most && (n <= herdSize() || !testing.Short()); n *= 10 {
		b.Run(strconv.Itoa(n), func(b *testing.B) { f(b, n) })
	}
}

// A kind of those that wait: a name, and the context they wait with.
var kinds = []struct {
	name string
	wait time.Duration
}{{"sluice", 0}, {"deadlines", 100 * 365 * 24 * time.Hour}}

func contextOf(wait time.Duration) (context.Context, func()) {
	if wait == 0 {
		return context.Background(), func() {}
	}
	return context.WithTimeout(context.Background(), wait)
}

// changes measures change, with n that wait. They are the same for each b.N.
func changes(b *testing.B, n int, change func(b *testing.B, g *sluice.Gate)) {
	for _, kind := range kinds {
		ctx, cancel := contextOf(kind.wait)
		g := newCostGate()
		end := lineUp(b, g, n, ctx)
		b.Run(kind.name, func(b *testing.B) {
			b.ReportAllocs()
			change(b, g)
		})
		end()
		cancel()
	}
}

func newCostGate() *sluice.Gate {
	// If it learned, its first burst would start in steps.
	return limits.Must(sluice.New(sluice.Config{RateUnit: sluice.Cost, Adaptive: sluice.Adaptive{Disabled: true}}))
}

// lineUp makes n callers wait for g, at one per minute, and returns what ends that.
func lineUp(b *testing.B, g *sluice.Gate, n int, ctx context.Context) (end func()) {
	b.Helper()
	if err := g.SetRate(perMinute(1000)); err != nil {
		b.Fatal(err)
	}
	stop := gatherN(n+1, ctx, g.Wait) // the first starts immediately
	return func() {
		b.Helper()
		if s := g.Stats(); s.Pacing+s.Waiting < int64(n)-1 { // with a concurrency not all are Pacing
			b.Errorf("%d of %d wait", s.Pacing+s.Waiting, n)
		}
		stop()
	}
}

// perMinute is a rate of thousandths per minute.
func perMinute(n int) sluice.Rate { return sluice.Rate{Count: int64(n), Per: 1000 * time.Minute} }
