package bench

import (
	"context"
	"fmt"
	"hash/maphash"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sethvargo/go-limiter"
	"github.com/sethvargo/go-limiter/memorystore"
	"github.com/throttled/throttled/v2"
	"github.com/throttled/throttled/v2/store/memstore"
	"golang.org/x/time/rate"

	"github.com/sluice-go/sluice/leaky"
	"github.com/sluice-go/sluice/limits"
)

// BenchmarkKeyedTake takes from one of a million buckets, chosen at random. All
// of them exist, none is ever empty (and could be discarded) or full (and would
// reject). The keys are strings of 12 bytes, whose text is not counted in
// B/key: it is there before. With -short, which is for whoever only wants to
// know that it works, there are but 10,000.
func BenchmarkKeyedTake(b *testing.B) {
	if testing.Short() {
		keyed(b, 10_000, shortKey)
		return
	}
	keyed(b, 1_000_000, shortKey)
}

// BenchmarkKeyedLong is KeyedTake with keys of 36 bytes, as UUIDs have, which are
// too long for a Keyed to store in place of the header of the string.
func BenchmarkKeyedLong(b *testing.B) {
	if testing.Short() {
		keyed(b, 10_000, longKey)
		return
	}
	keyed(b, 1_000_000, longKey)
}

const (
	shortKey = "user:%07d"
	longKey  = "6ba7b810-9dad-11d1-80b4-00c04%07d"
)

// BenchmarkKeyedGrow is KeyedTake with fewer keys, down to what fits into a
// cache.
func BenchmarkKeyedGrow(b *testing.B) {
	for _, n := range []int{100, 1_000, 10_000, 100_000} {
		if testing.Short() && n > 10_000 {
			return
		}
		b.Run(fmt.Sprint(n), func(b *testing.B) { keyed(b, n, shortKey) })
	}
}

func keyed(b *testing.B, keys int, format string) {
	b.Run("sluice", func(b *testing.B) { takes(b, keys, format, newSluiceKeys) })
	b.Run("shardmap", func(b *testing.B) { takes(b, keys, format, newShards) })
	b.Run("syncmap+xtime", func(b *testing.B) { takes(b, keys, format, newXtimeKeys) })
	b.Run("throttled", func(b *testing.B) { takes(b, keys, format, newThrottledKeys) })
	b.Run("sethvargo", func(b *testing.B) { takes(b, keys, format, newSethvargoKeys) })
}

// keyTaker is a limiter of many keys.
type keyTaker interface{ take(key string) bool }

// filled is the limiter filled last, so that a benchmark that runs several
// times, with ever larger b.N, fills it once. Only one is kept.
var filled struct {
	name    string
	keys    []string
	asked   []string // keys in random order; see inRandomOrder
	limiter keyTaker
	perKey  float64
}

func fill(b *testing.B, keys int, format string, make func(b *testing.B) keyTaker) {
	if filled.name == b.Name() {
		return
	}
	filled.name, filled.limiter = "", nil
	if len(filled.keys) != keys || filled.keys[0] != fmt.Sprintf(format, 0) {
		filled.keys = nil
		for i := range keys {
			filled.keys = append(filled.keys, fmt.Sprintf(format, i))
		}
		filled.asked = inRandomOrder(filled.keys)
	}
	before := heap()
	filled.limiter = make(b)
	for _, key := range filled.keys {
		if !filled.limiter.take(key) {
			b.Fatal("refused", key)
		}
	}
	filled.perKey = float64(heap()-before) / float64(keys)
	filled.name = b.Name()
}

// inRandomOrder returns copies of keys in random order, their strings side by side,
// so that they are in the cache when it is their turn: a call's key has just been
// read from a request, and is not the copy that is remembered. To pick from keys
// instead waits for memory twice per call before the limiter is asked anything.
func inRandomOrder(keys []string) []string {
	order := rand.Perm(len(keys))
	var text strings.Builder
	for _, i := range order {
		text.WriteString(keys[i])
	}
	asked, rest := make([]string, 0, len(keys)), text.String()
	for _, i := range order {
		asked, rest = append(asked, rest[:len(keys[i])]), rest[len(keys[i]):]
	}
	return asked
}

// heap returns the bytes of reachable objects.
func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

func takes(b *testing.B, keys int, format string, make func(b *testing.B) keyTaker) {
	fill(b, keys, format, make)
	l, asked := filled.limiter, filled.asked
	each(b, func(n int) {
		i, got := rand.IntN(len(asked)), 0
		for range n {
			if l.take(asked[i]) {
				got++
			}
			if i++; i == len(asked) {
				i = 0
			}
		}
		if got != n {
			b.Errorf("granted %d of %d", got, n)
		}
	})
	b.ReportMetric(filled.perKey, "B/key")
}

type sluiceKeys struct{ *leaky.Keyed[string] }

func newSluiceKeys(b *testing.B) keyTaker {
	k, err := leaky.NewKeyed[string](limits.Rate{Count: 1, Per: time.Hour, Burst: 1_000_000})
	if err != nil {
		b.Fatal(err)
	}
	return sluiceKeys{k}
}

func (k sluiceKeys) take(key string) bool { return k.Take(key, 1).Allowed() }

// shards is the least one could write: a sharded map of int64 time points. It
// never forgets a key, has one quota for all, and answers yes or no.
type shards struct {
	seed  maphash.Seed
	epoch time.Time
	of    [64]shard
}

type shard struct {
	mu  sync.Mutex
	tat map[string]int64
	_   [48]byte
}

func newShards(*testing.B) keyTaker {
	s := &shards{seed: maphash.MakeSeed(), epoch: time.Now()}
	for i := range s.of {
		s.of[i].tat = make(map[string]int64)
	}
	return s
}

func (s *shards) take(key string) bool {
	const interval, depth = int64(time.Hour), 1_000_000 * int64(time.Hour)
	of := &s.of[maphash.String(s.seed, key)%64]
	of.mu.Lock()
	now := int64(time.Since(s.epoch))
	tat := max(of.tat[key], now) + interval
	ok := tat <= now+depth
	if ok {
		of.tat[key] = tat
	}
	of.mu.Unlock()
	return ok
}

// xtimeKeys is what many programs have: a sync.Map of limiters. It never
// forgets a key.
type xtimeKeys struct{ sync.Map }

func newXtimeKeys(*testing.B) keyTaker { return new(xtimeKeys) }

func (m *xtimeKeys) take(key string) bool {
	l, ok := m.Load(key)
	if !ok {
		l, _ = m.LoadOrStore(key, rate.NewLimiter(rate.Every(time.Hour), 1_000_000))
	}
	return l.(*rate.Limiter).Allow()
}

type throttledKeys struct{ *throttled.GCRARateLimiterCtx }

func newThrottledKeys(b *testing.B) keyTaker {
	store, err := memstore.NewCtx(0)
	if err != nil {
		b.Fatal(err)
	}
	l, err := throttled.NewGCRARateLimiterCtx(store, throttled.RateQuota{MaxRate: throttled.PerHour(1), MaxBurst: 999_999})
	if err != nil {
		b.Fatal(err)
	}
	return throttledKeys{l}
}

func (k throttledKeys) take(key string) bool {
	limited, _, err := k.RateLimitCtx(context.Background(), key, 1)
	return err == nil && !limited
}

type sethvargoKeys struct{ limiter.Store }

// newSethvargoKeys has no purge, which would only run after hours.
func newSethvargoKeys(b *testing.B) keyTaker {
	s, err := memorystore.New(&memorystore.Config{Tokens: 1_000_000, Interval: time.Hour, DisablePurge: true})
	if err != nil {
		b.Fatal(err)
	}
	return sethvargoKeys{s}
}

func (k sethvargoKeys) take(key string) bool {
	_, _, _, ok, err := k.Take(context.Background(), key)
	return err == nil && ok
}
