package leaky_test

import (
	"errors"
	"runtime"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice/leaky"
	"github.com/sluice-go/sluice/limits"
)

func TestKeyed_KeysHaveBucketsOfTheirOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := mustKeyed[string](t, limits.Rate{Count: 1, Per: sec, Burst: 5}, 0)
		want(t, "ann", k.Take("ann", 4), allowed(5, 1, 4*sec))
		want(t, "bob", k.Take("bob", 1), allowed(5, 4, sec))
		want(t, "ann again", k.Take("ann", 2), refused(5, 1, sec, 4*sec))
		want(t, "too large", k.Take("ann", 6), refused(5, 1, limits.Never, 4*sec))
		want(t, "unknown", k.Take("cleo", 0), allowed(5, 5, 0))
		want(t, "too large and unknown", k.Take("cleo", 6), refused(5, 5, limits.Never, 0))
		want(t, "nothing of unknown", k.Take("cleo", 0), allowed(5, 5, 0))
		if k.Len() != 2 {
			t.Errorf("Len() = %d, want 2", k.Len())
		}
	})
}

// A new rate finds the units that are there, and a bucket that is never fuller than
// full; and a wait that was returned is right.
func TestKeyed_TakeRate_ChangesTheRateOfAKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := mustKeyed[string](t, limits.Rate{Count: 1, Per: sec, Burst: 1}, 0)
		before, smaller, faster := limits.Rate{Count: 30, Per: time.Minute, Burst: 16}, limits.Rate{Count: 30, Per: time.Minute, Burst: 4}, limits.Rate{Count: 300, Per: time.Minute, Burst: 16}
		want(t, "full", k.TakeRate("x", before, 16), allowed(16, 0, 32*sec))
		want(t, "smaller, looked at", k.TakeRate("x", smaller, 0), allowed(4, 0, 8*sec))
		want(t, "which changed nothing", k.TakeRate("x", before, 1), refused(16, 0, 2*sec, 32*sec))
		want(t, "faster", k.TakeRate("x", faster, 1), refused(16, 0, 200*ms, 3200*ms))
		time.Sleep(200 * ms)
		want(t, "after the wait", k.TakeRate("x", faster, 1), allowed(16, 0, 3200*ms))
		want(t, "slower: as many units", k.TakeRate("x", before, 1), refused(16, 0, 2*sec, 32*sec))
		time.Sleep(2 * sec)
		want(t, "after the wait", k.TakeRate("x", before, 1), allowed(16, 0, 32*sec))
		want(t, "the faster one has drained meanwhile", k.TakeRate("x", faster, 9), allowed(16, 0, 3200*ms))
	})
}

// A rate that is smaller and faster waits until it could have admitted what there is:
// earlier, both together would let more through than either.
func TestKeyed_TakeRate_SmallerAndFasterWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := mustKeyed[string](t, limits.Rate{Count: 1, Per: sec, Burst: 1}, 0)
		hourly, secondly := limits.Rate{Count: 100, Per: time.Hour, Burst: 100}, limits.Rate{Count: 1, Per: sec, Burst: 1}
		want(t, "100 an hour", k.TakeRate("x", hourly, 100), allowed(100, 0, time.Hour))
		want(t, "and 1 per second", k.TakeRate("x", secondly, 1), refused(1, 0, 100*sec, 100*sec))
		want(t, "which spilled nothing", k.TakeRate("x", hourly, 1), refused(100, 0, 36*sec, time.Hour))
		time.Sleep(100 * sec)
		want(t, "after the wait", k.TakeRate("x", secondly, 1), allowed(1, 0, sec))
		want(t, "100 s are two of the hour's units, and one is gone", k.TakeRate("x", hourly, 2), refused(100, 1, 8*sec, 3536*sec))

		want(t, "two keys", k.TakeRate("y hourly", hourly, 100), allowed(100, 0, time.Hour))
		want(t, "two keys", k.TakeRate("y secondly", secondly, 1), allowed(1, 0, sec))
		want(t, "two keys", k.TakeRate("y hourly", hourly, 1), refused(100, 0, 36*sec, time.Hour))
	})
}

func TestKeyedConfig_MaxKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := mustKeyed[int](t, limits.Rate{Count: 1, Per: sec, Burst: 2}, 100)
		for key := range 100 {
			want(t, "as many as may be", k.Take(key, 1), allowed(2, 1, sec))
		}
		r := k.Take(100, 1)
		want(t, "one more", r, refused(0, 0, limits.Never, 0))
		if !errors.Is(r.Err(), limits.ErrTooManyKeys) || r.Err() == limits.ErrTooLarge {
			t.Errorf("Err() = %v", r.Err())
		}
		want(t, "looked at", k.Take(100, 0), allowed(2, 2, 0))
		want(t, "an old one", k.Take(7, 1), allowed(2, 0, 2*sec))
		time.Sleep(sec)
		want(t, "when others have drained", k.Take(100, 1), allowed(2, 1, sec))
		want(t, "and 7 still holds something", k.Take(7, 0), allowed(2, 1, sec))
		if k.Len() > 100 {
			t.Errorf("Len() = %d", k.Len())
		}
	})
}

func TestKeyedConfig_MaxKeys_OutOfRange(t *testing.T) {
	for _, most := range []int64{-1, 1_000_000_000} {
		if _, err := leaky.NewKeyed[int](limits.Rate{Count: 1, Per: sec, Burst: 1}, limits.KeyedConfig{MaxKeys: most}); err == nil {
			t.Errorf("MaxKeys of %d", most)
		}
	}
}

// A drained bucket is discarded, whichever key is used afterwards.
func TestKeyed_ForgetsEmptyBuckets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := mustKeyed[int](t, limits.Rate{Count: 1, Per: sec, Burst: 3}, 0)
		for key := range 10_000 {
			k.Take(key, 1)
		}
		k.Take(1, 2)
		time.Sleep(2 * sec)
		for range 15_000 {
			k.TakeRate(-1, limits.Rate{Count: 1, Per: time.Hour, Burst: 1_000_000}, 1)
		}
		want(t, "the one that is not drained", k.Take(1, 3), refused(3, 2, sec, sec))
		if k.Len() != 2 {
			t.Errorf("Len() = %d, want 2", k.Len())
		}
	})
}

// While each call brings a new key, no more than about half as many stale ones
// are kept as are live.
func TestKeyed_SteadyStateOfNewKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := mustKeyed[int](t, limits.Rate{Count: 1, Per: sec, Burst: 1}, 0)
		most := 0
		for key := range 60_000 { // of which 10,000 are live at any time
			k.Take(key, 1)
			time.Sleep(100 * time.Microsecond)
			most = max(most, k.Len())
		}
		if most > 16_000 || most < 10_000 {
			t.Errorf("up to %d keys were remembered, 10000 are live", most)
		}
	})
}

func TestKeyed_MemoryPerKey(t *testing.T) {
	const n = 1 << 17
	keys := make([]string, n)
	for i := range keys {
		keys[i] = "tenant:" + strconv.Itoa(i)
	}
	k := mustKeyed[string](t, limits.Rate{Count: 1, Per: time.Hour, Burst: 10}, 0)
	before := heap()
	for _, key := range keys {
		k.Take(key, 1)
	}
	perKey := float64(heap()-before) / n
	t.Logf("%.1f B per key beyond its bytes; the string header is among them", perKey)
	if perKey > 64 {
		t.Errorf("%.1f B per key", perKey)
	}
	runtime.KeepAlive(keys)
	runtime.KeepAlive(k)
}

func heap() int64 {
	runtime.GC()
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return int64(stats.HeapAlloc)
}

// A rate whose bucket has drained and was discarded is not used for the first time:
// it does not find what a slower rate before it still holds.
func TestKeyed_ForgottenBucketBesideAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow, fast := limits.Rate{Count: 5, Per: sec, Burst: 100}, limits.Rate{Count: 50, Per: sec, Burst: 20}
		k := mustKeyed[int](t, slow, 0)
		k.Take(0, 1)
		if err := k.SetRate(fast); err != nil {
			t.Fatal(err)
		}
		for range 200 {
			k.Take(0, 1)
			time.Sleep(20 * ms)
		}
		for range 20 {
			time.Sleep(500 * ms)
			for other := range 3000 { // they forget what has drained
				k.Take(other+1, 1)
			}
			want(t, "after a pause", k.Take(0, 4), allowed(20, 16, 80*ms))
		}
	})
}
