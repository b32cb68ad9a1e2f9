package window_test

import (
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/sluice-go/sluice/limits"
	"github.com/sluice-go/sluice/window"
)

func BenchmarkTake(b *testing.B) {
	for _, c := range []struct {
		name string
		l    limit
	}{
		{"Sliding/1000", limits.Must(window.NewSliding(window.Quota{Limit: 1000, Window: time.Microsecond}))}, // allowed, and forgotten
		{"Sliding/1000/refused", limits.Must(window.NewSliding(window.Quota{Limit: 1000, Window: time.Hour}))},
		{"Sliding/100000", limits.Must(window.NewSliding(window.Quota{Limit: 100_000, Window: 20 * time.Millisecond}))},
		{"Fixed", limits.Must(window.NewFixed(window.Quota{Limit: 1 << 40, Window: time.Hour}))},
		{"Calendar", limits.Must(window.NewFixed(window.Quota{Limit: 1 << 40, Per: window.Day}))},
	} {
		b.Run(c.name, func(b *testing.B) {
			for range 1000 {
				c.l.Take(1)
			}
			b.ReportAllocs()
			for b.Loop() {
				c.l.Take(1)
			}
		})
	}
}

func BenchmarkTakeParallel(b *testing.B) {
	l := limits.Must(window.NewSliding(window.Quota{Limit: 1000, Window: time.Microsecond}))
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			l.Take(1)
		}
	})
}

// BenchmarkMemory reports what a full Sliding takes, and a key.
func BenchmarkMemory(b *testing.B) {
	measure := func(b *testing.B, count int, make func() any) {
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		x := make()
		runtime.GC()
		runtime.ReadMemStats(&after)
		runtime.KeepAlive(x)
		b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/float64(count), "B/each")
		b.ReportMetric(0, "ns/op")
	}
	for _, n := range []int64{1000, 100_000} {
		b.Run("Sliding/"+strconv.FormatInt(n, 10), func(b *testing.B) {
			measure(b, 1, func() any {
				l := limits.Must(window.NewSliding(window.Quota{Limit: n, Window: time.Hour}))
				for l.Take(1).Allowed() {
				}
				return l
			})
		})
	}
	const count = 1 << 16
	keys := make([]string, count)
	for i := range keys {
		keys[i] = "user " + strconv.Itoa(i)
	}
	b.Run("KeyedSliding", func(b *testing.B) { // one call each
		measure(b, count, func() any {
			k, _ := window.NewKeyedSliding[string](window.Quota{Limit: 10, Window: time.Hour})
			for _, key := range keys {
				k.Take(key, 1)
			}
			return k
		})
	})
	b.Run("KeyedFixed", func(b *testing.B) {
		measure(b, count, func() any {
			k, _ := window.NewKeyedFixed[string](window.Quota{Limit: 10, Window: time.Hour})
			for _, key := range keys {
				k.Take(key, 1)
			}
			return k
		})
	})
}
