package sluiceredis

import (
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-go/sluice/limits"
	"github.com/sluice-go/sluice/sluiceredis/internal/redistest"
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
// machine, next to a bare script and a bare PING of go-redis.
func BenchmarkTake(b *testing.B) {
	r := onRedis(b)
	s := r.store(b)
	l := newLeaky(b, s, "bench", limits.Rate{Burst: 1 << 20, Count: 1 << 19, Per: time.Second})
	keys := make([]string, 10_000)
	for i := range keys {
		keys[i] = fmt.Sprint("key", i)
	}
	bare := newScript("bare", "return {1}")
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

// BenchmarkStrict is what strict mode costs: calls, and how long a script keeps
// the server busy by its own count.
func BenchmarkStrict(b *testing.B) {
	server := redistest.Start(b)
	r := newBackend(b, server.Addr)
	keys := make([]string, 10_000)
	for i := range keys {
		keys[i] = fmt.Sprint("key", i)
	}
	for _, v := range []struct{ callers, keys int64 }{{1, 1}, {512, 1}, {512, 10_000}} {
		for _, strict := range []bool{false, true} {
			b.Run(fmt.Sprintf("keys=%d/callers=%d/strict=%v", v.keys, v.callers, strict), func(b *testing.B) {
				s := r.store(b)
				s.strict = strict
				l := newLeaky(b, s, "bench", limits.Rate{Burst: 1 << 20, Count: 1 << 19, Per: time.Second})
				r.redis.ConfigResetStat(bg)
				callers(b, int(v.callers), func(i int64) error { _, err := l.Take(bg, keys[i%v.keys], 1); return err })
				for line := range strings.Lines(r.redis.Info(bg, "commandstats").Val()) {
					if _, rest, ok := strings.Cut(line, "cmdstat_evalsha:"); ok {
						_, rest, _ = strings.Cut(rest, "usec_per_call=")
						us, _, _ := strings.Cut(rest, ",")
						f, err := strconv.ParseFloat(us, 64)
						if err != nil {
							b.Fatal(err)
						}
						b.ReportMetric(f, "µs/script")
					}
				}
			})
		}
	}
}

// BenchmarkWithoutAServer is one bucket, or 10,000, in this process: of a store that
// has no server, and of one whose server is unavailable.
func BenchmarkWithoutAServer(b *testing.B) {
	quota := limits.Rate{Burst: 1 << 20, Count: 1 << 19, Per: time.Second}
	keys := make([]string, 10_000)
	for i := range keys {
		keys[i] = fmt.Sprint("key", i)
	}
	away, err := New(&line{to: newRemote(), fails: errRefused}, Config{OnOutage: LocalShare, Instances: 2, FailureThreshold: 1, ProbeInterval: time.Hour})
	if err != nil {
		b.Fatal(err)
	}
	for name, s := range map[string]*Store{"in process": inThisProcess(b), "away": away} {
		l := newLeaky(b, s, "bench", quota)
		for _, n := range []int{1, 64} {
			b.Run(fmt.Sprint(name, "/one key/callers=", n), func(b *testing.B) {
				callers(b, n, func(int64) error { _, err := l.Take(bg, "k", 1); return err })
			})
			b.Run(fmt.Sprint(name, "/10000 keys/callers=", n), func(b *testing.B) {
				callers(b, n, func(i int64) error { _, err := l.Take(bg, keys[i%10_000], 1); return err })
			})
		}
	}
}
