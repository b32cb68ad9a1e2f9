package sluiceredis

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-go/sluice/leaky"
)

// callers has that many goroutines do b.N calls between them.
func callers(b *testing.B, n int, call func(i int64) error) {
	var next atomic.Int64
	var wg sync.WaitGroup
	b.ReportAllocs()
	b.ResetTimer()
	for range n {
		wg.Go(func() {
			for i := next.Add(1); i <= int64(b.N); i = next.Add(1) {
				if err := call(i); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "calls/s")
}

// BenchmarkTake is one bucket, or 10,000, asked by that many callers of one
// machine, beside a bare script and a bare PING of go-redis.
func BenchmarkTake(b *testing.B) {
	r := onRedis(b)
	s := r.store(b)
	l := newLeaky(b, s, "bench", leaky.Quota{Capacity: 1 << 20, Count: 1 << 19, Per: time.Second})
	keys := make([]string, 10_000)
	for i := range keys {
		keys[i] = fmt.Sprint("key", i)
	}
	bare := NewScript("bare", "return {1}")
	for _, n := range []int{1, 64, 512} {
		b.Run(fmt.Sprint("one key/callers=", n), func(b *testing.B) {
			callers(b, n, func(int64) error { _, err := l.Take(bg, "k", 1); return err })
		})
		b.Run(fmt.Sprint("10000 keys/callers=", n), func(b *testing.B) {
			callers(b, n, func(i int64) error { _, err := l.Take(bg, keys[i%10_000], 1); return err })
		})
		b.Run(fmt.Sprint("a bare script/callers=", n), func(b *testing.B) {
			callers(b, n, func(int64) error { _, err := r.client.Run(bg, bare, nil, nil); return err })
		})
		b.Run(fmt.Sprint("PING/callers=", n), func(b *testing.B) {
			callers(b, n, func(int64) error { return r.redis.Ping(bg).Err() })
		})
	}
}
