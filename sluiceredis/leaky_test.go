package sluiceredis

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice/internal/testkit/oracle"
	"github.com/sluice-go/sluice/limits"
)

const sec = time.Second

// A visit asks at a time for n by a quota, and expects what CL.THROTTLE
// replied.
type visit struct {
	at               time.Duration
	burst, count, ps int64
	n                int64
	cell             string
}

func text(five [5]int64) string { return strings.Trim(fmt.Sprint(five), "[]") }

// vector makes visits by one quota from "seconds n -> reply".
func vector(burst, count, ps int64, lines ...string) []visit {
	var all []visit
	for _, line := range lines {
		var seconds float64
		var n int64
		asked, reply, ok := strings.Cut(line, " -> ")
		if _, err := fmt.Sscan(asked, &seconds, &n); err != nil || !ok {
			panic(line)
		}
		all = append(all, visit{time.Duration(math.Round(seconds * 1e9)), burst, count, ps, n, reply})
	}
	return all
}

// vectors are what redis-cell 0.5.0 replied with a frozen clock.
var vectors = []struct {
	name   string
	visits []visit
}{
	{"V1 the README", vector(15, 30, 60, "0 1 -> 0 16 15 -1 2", "0 1 -> 0 16 14 -1 4")},
	{"V2 five, one per second", vector(4, 1, 1,
		"0 6 -> 1 5 5 -1 0", // more than the limit: never, and the bucket as it is
		"0 1 -> 0 5 4 -1 1", "0 1 -> 0 5 3 -1 2", "0 1 -> 0 5 2 -1 3", "0 1 -> 0 5 1 -1 4", "0 1 -> 0 5 0 -1 5",
		"0 1 -> 1 5 0 1 5",
		"3 1 -> 0 5 2 -1 3", "3.1 1 -> 0 5 1 -1 4", "4 1 -> 0 5 1 -1 4", "8 1 -> 0 5 4 -1 1",
		"9.5 1 -> 0 5 4 -1 1", "9.5 0 -> 0 5 4 -1 1", "9.5 2 -> 0 5 2 -1 3", "9.5 5 -> 1 5 2 3 3")},
	{"V3 sixteen, one per two seconds", vector(15, 30, 60,
		"0 1 -> 0 16 15 -1 2", "0 4 -> 0 16 11 -1 10", "0 11 -> 0 16 0 -1 32", "0 1 -> 1 16 0 2 32",
		"1.999 1 -> 1 16 0 1 31", "2 1 -> 0 16 0 -1 32", // exactly when it fits
		"2 17 -> 1 16 0 -1 32", "2 0 -> 0 16 0 -1 32",
		"42 0 -> 0 16 16 -1 0", "42 16 -> 0 16 0 -1 32", "42 1 -> 1 16 0 2 32")},
	{"V4 seven per minute, floored to 8,571,428,571 ns", vector(2, 7, 60,
		"0 1 -> 0 3 2 -1 9", "0 1 -> 0 3 1 -1 18", "0 1 -> 0 3 0 -1 26", "0 1 -> 1 3 0 9 26",
		"8.571428570 1 -> 1 3 0 0 18", "8.571428571 1 -> 0 3 0 -1 26")},
	{"V5 less than a millisecond is 0 seconds", vector(0, 1, 1,
		"0 1 -> 0 1 0 -1 1", "0.9991 1 -> 1 1 0 0 0", "1 1 -> 0 1 0 -1 1")},
	{"V6 two of one", vector(0, 1, 1, "0 2 -> 1 1 1 -1 0")},
	{"V6 none of one", vector(0, 1, 1, "0 0 -> 0 1 1 -1 0")},
	// The transcript of the tutorials, made with redis-cell 0.3.0: these pauses
	// fit it. Here as current versions round, and below as that one did.
	{"the transcript", vector(15, 30, 60,
		"0 1 -> 0 16 15 -1 2", "5 4 -> 0 16 12 -1 8", "6.5 4 -> 0 16 8 -1 15", "8.5 4 -> 0 16 5 -1 21", "9.5 4 -> 0 16 2 -1 28",
		"10.5 4 -> 1 16 2 3 27", "13.5 4 -> 0 16 0 -1 32", "16.5 17 -> 1 16 1 -1 29", "46.5 17 -> 1 16 16 -1 0")},
}

func TestVectorsOfRedisCell(t *testing.T) {
	onBackends(t, func(t *testing.T, b *backend) {
		for _, v := range vectors {
			t.Run(v.name, func(t *testing.T) {
				s, clock := b.freeze(t)
				l := newLeaky(t, s, "vectors", limits.Rate{Count: 1, Per: sec})
				for _, visit := range v.visits {
					clock.set(visit.at)
					res, err := l.TakeRate(bg, v.name, limits.Rate{Burst: visit.burst + 1, Count: visit.count, Per: time.Duration(visit.ps) * sec}, visit.n)
					if err != nil {
						t.Fatal(err)
					}
					if got := text(oracle.Cell(res)); got != visit.cell {
						t.Errorf("%d at %v: %s, redis-cell said %s", visit.n, visit.at, got, visit.cell)
					}
				}
			})
		}
	})
}

// What the tutorials print is what versions up to 0.3.0 made of the same.
func TestTranscriptOfTheTutorials(t *testing.T) {
	onBackends(t, func(t *testing.T, b *backend) {
		s, clock := b.freeze(t)
		l := newLeaky(t, s, "tutorials", limits.Rate{Burst: 16, Count: 30, Per: 60 * sec})
		for _, v := range vector(15, 30, 60,
			"0 1 -> 0 16 15 -1 2", "5 4 -> 0 16 12 -1 8", "6.5 4 -> 0 16 8 -1 14", "8.5 4 -> 0 16 5 -1 20", "9.5 4 -> 0 16 2 -1 27",
			"10.5 4 -> 1 16 2 2 26", "13.5 4 -> 0 16 0 -1 31", "16.5 17 -> 1 16 1 -1 28", "46.5 17 -> 1 16 16 -1 0") {
			clock.set(v.at)
			res, err := l.Take(bg, "laoqian:reply", v.n)
			if got := text(oracle.CellLegacy(res)); err != nil || got != v.cell {
				t.Errorf("%d at %v: %s, %v; the transcript says %s", v.n, v.at, got, err, v.cell)
			}
		}
	})
}

// V7, V8 in their native form: a bucket is never fuller than full.
func TestNativeBucketIsNeverFullerThanFull(t *testing.T) {
	onBackends(t, func(t *testing.T, b *backend) {
		s, clock := b.freeze(t)
		rate := limits.Rate{Burst: 16, Count: 30, Per: 60 * sec}
		l := newLeaky(t, s, "n1", rate)
		take := func(key string, quota limits.Rate, n int64, want limits.Result) {
			t.Helper()
			if res, err := l.TakeRate(bg, key, quota, n); err != nil || res != want {
				t.Errorf("%d by %v: %+v, %v; want %+v", n, quota, res, err, want)
			}
		}
		take("smaller", rate, 16, limits.Result{Limit: 16, ResetAfter: 32 * sec})
		take("smaller", limits.Rate{Burst: 4, Count: 30, Per: 60 * sec}, 0, limits.Result{Limit: 4, ResetAfter: 8 * sec})
		take("smaller", rate, 0, limits.Result{Limit: 16, ResetAfter: 32 * sec}) // looking changed nothing
		take("faster", rate, 16, limits.Result{Limit: 16, ResetAfter: 32 * sec})
		take("faster", limits.Rate{Burst: 16, Count: 300, Per: 60 * sec}, 1,
			limits.Result{Limit: 16, RetryAfter: 200 * time.Millisecond, ResetAfter: 3200 * time.Millisecond})

		five := limits.Rate{Burst: 5, Count: 1, Per: sec}
		clock.set(10 * sec)
		take("back", five, 3, limits.Result{Limit: 5, Remaining: 2, ResetAfter: 3 * sec})
		clock.set(0)
		take("back", five, 1, limits.Result{Limit: 5, RetryAfter: sec, ResetAfter: 5 * sec})
		clock.set(sec) // the repair was written: the bucket leaks again
		take("back", five, 1, limits.Result{Limit: 5, ResetAfter: 5 * sec})
		if got := s.Stats().Repaired; got != 1 {
			t.Errorf("clamped %d times, want 1: where the clock stepped back", got)
		}
	})
}

func newLeaky(t testing.TB, s *Store, name string, quota limits.Rate, onOutage ...OutagePolicy) *Bucket {
	t.Helper()
	l, err := s.Bucket(name, quota, onOutage...)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// N3: looking never writes.
func TestTakeOfZeroNeverWrites(t *testing.T) {
	onBackends(t, func(t *testing.T, b *backend) {
		s := b.store(t)
		l := newLeaky(t, s, "n3", limits.Rate{Burst: 3, Count: 1, Per: time.Hour})
		if res, err := l.Take(bg, "k", 0); err != nil || res.Remaining != 3 {
			t.Errorf("%+v, %v", res, err)
		}
		if n := b.redis.Exists(bg, s.key("b1", "n3", "k", "")).Val(); n != 0 {
			t.Errorf("%d keys were made", n)
		}
	})
}

// A correction takes beyond the capacity, which stays owed, and returns
// exactly or not at all.
func TestAdjust(t *testing.T) {
	onBackends(t, func(t *testing.T, b *backend) {
		s, clock := b.freeze(t)
		m := newLeaky(t, s, "adjust", limits.Rate{Burst: 5, Count: 1, Per: sec}).on("k")
		admit := func(n int64, want time.Duration) {
			t.Helper()
			if wait, err := m.Admit(bg, n); wait != want || err != nil {
				t.Errorf("%d: %v, %v; want %v", n, wait, err, want)
			}
		}
		adjust := func(delta int64, age time.Duration, want error) {
			t.Helper()
			ctx, cancel := context.WithCancel(bg)
			cancel() // whoever gave up, what was taken is returned
			if err := m.Adjust(ctx, delta, age); !errors.Is(err, want) {
				t.Errorf("adjust by %d after %v: %v, want %v", delta, age, err, want)
			}
		}
		admit(5, 0)
		adjust(7, 0, nil) // 12 s owed, 7 s beyond the capacity
		admit(1, 8*sec)
		clock.set(7 * sec)
		admit(1, sec)
		clock.set(8 * sec)
		admit(1, 0)
		admit(1, sec)
		adjust(-2, 2*sec-1, nil)
		admit(2, 0)
		admit(1, sec)
		adjust(-2, 2*sec, errStranded)
		admit(1, sec)
		adjust(-100, 0, nil) // no fuller than a bucket was it
		admit(5, 0)
		adjust(-5, 0, nil)
		if n := b.redis.Exists(bg, s.key("b1", "adjust", "k", "")).Val(); n != 0 {
			t.Error("an empty bucket is remembered")
		}
		adjust(math.MaxInt64, 0, nil)
		if wait, err := m.Admit(bg, 1); err != nil || wait < 100*24*time.Hour {
			t.Errorf("after a debt without bound: %v, %v", wait, err)
		}
		// What is owed beyond the capacity stays owed when a clock steps back.
		other := newLeaky(t, s, "adjust", limits.Rate{Burst: 5, Count: 1, Per: sec}).on("other")
		if err := other.Adjust(bg, 12, 0); err != nil {
			t.Error(err)
		}
		clock.set(-time.Hour)
		for range 3 {
			if wait, err := other.Admit(bg, 1); wait != 8*sec || err != nil {
				t.Errorf("%v, %v; want 8s", wait, err)
			}
		}
		if got := s.Stats(); got.Refunded != 2+5+5 || got.Unreturned != 2 || got.Repaired != 1 {
			t.Errorf("%+v", got)
		}
	})
}

// A key lives as long as its debt, and no longer.
func TestExpiryOfBuckets(t *testing.T) {
	onBackends(t, func(t *testing.T, b *backend) {
		s := b.store(t)
		l := newLeaky(t, s, "ttl", limits.Rate{Burst: 5, Count: 1, Per: 7 * 24 * time.Hour})
		for i := range 3 {
			if _, err := l.Take(bg, "k", 1); err != nil {
				t.Fatal(err)
			}
			debt := time.Duration(i+1) * 7 * 24 * time.Hour
			ttl := b.redis.PTTL(bg, s.key("b1", "ttl", "k", "")).Val()
			if ttl > debt+2*time.Millisecond || ttl < debt-time.Minute {
				t.Errorf("after %d: forgotten in %v, empty in %v", i+1, ttl, debt)
			}
		}
	})
}

// A key that is asked by two quotas lives as long as the longer debt.
func TestExpiryOfSeveralQuotas(t *testing.T) {
	onBackends(t, func(t *testing.T, b *backend) {
		s := b.store(t)
		l := newLeaky(t, s, "ttl2", limits.Rate{Burst: 3, Count: 3, Per: time.Hour})
		if _, err := l.TakeRate(bg, "k", limits.Rate{Burst: 9, Count: 3, Per: time.Hour}, 9); err != nil {
			t.Fatal(err)
		}
		if res, err := l.Take(bg, "k", 1); err != nil || res.RetryAfter.Round(sec) != 20*time.Minute {
			t.Errorf("%+v, %v", res, err)
		}
		ttl := b.redis.PTTL(bg, s.key("b1", "ttl2", "k", "")).Val()
		if ttl > 180*time.Minute+2*time.Millisecond || ttl < 179*time.Minute {
			t.Errorf("forgotten in %v, empty in 3 h", ttl)
		}
	})
}

// What a faster quota admitted may have leaked, though the current one would still
// hold it: then it is not returned.
func TestReturnAfterSetQuota(t *testing.T) {
	onBackends(t, func(t *testing.T, b *backend) {
		s := b.store(t)
		l := newLeaky(t, s, "r/l", limits.Rate{Burst: 10, Count: 10, Per: sec})
		set := newSet(t, s, l.on("k"))
		for _, n := range []int64{5, 2} {
			if res, err := l.Take(bg, "k", n); err != nil || !res.Allowed() {
				t.Fatal(res, err)
			}
		}
		if err := l.SetRate(limits.Rate{Burst: 10, Count: 1, Per: sec}); err != nil {
			t.Fatal(err)
		}
		for _, give := range []func(delta int64, age time.Duration) error{
			func(delta int64, age time.Duration) error { return l.on("k").Adjust(bg, delta, age) },
			func(delta int64, age time.Duration) error { return set.adjust(bg, delta, age) },
		} {
			if err := give(-2, 200*ms); !errors.Is(err, errStranded) {
				t.Errorf("2 units that took 200 ms to leak: %v", err)
			}
			if err := give(-2, 200*ms-1); err != nil {
				t.Errorf("a nanosecond earlier: %v", err)
			}
		}
	})
}

// A bucket is small on the server.
func TestMemoryOfABucket(t *testing.T) {
	b := onRedis(t)
	s := b.store(t)
	l := newLeaky(t, s, "memory", limits.Rate{Burst: 5, Count: 1, Per: time.Hour})
	if _, err := l.Take(bg, "k", 1); err != nil {
		t.Fatal(err)
	}
	key := s.key("b1", "memory", "k", "")
	if n := b.redis.MemoryUsage(bg, key).Val(); n > int64(len(key))+90 {
		t.Errorf("%d bytes, %d of them the key", n, len(key))
	} else {
		t.Logf("%d bytes, %d of them the key", n, len(key))
	}
}

func TestStore_BucketRefusesWhatCannotBe(t *testing.T) {
	s := (&backend{prefix: "none"}).storeOn(t, unreachable{})
	l := newLeaky(t, s, "ok", limits.Rate{Count: 1, Per: sec})
	for _, v := range []struct {
		rate limits.Rate
		want string
	}{
		{limits.Rate{Burst: -1, Count: 1, Per: sec}, "burst of -1"},
		{limits.Rate{Count: 0, Per: sec}, "count must be positive"},
		{limits.Rate{Count: -1, Per: sec}, "count must be positive"},
		{limits.Rate{Count: 1, Per: 0}, "period must be positive"},
		{limits.Rate{Count: 1_000_000_001, Per: sec}, "more than one per nanosecond"},
		{limits.Rate{Burst: 105, Count: 1, Per: 24 * time.Hour}, "104 days"},
		{limits.Rate{Count: 1, Per: math.MaxInt64}, "146 years"},
	} {
		_, made := s.Bucket("new", v.rate)
		_, taken := l.TakeRate(bg, "k", v.rate, 1)
		for _, err := range []error{made, taken, l.SetRate(v.rate)} {
			if err == nil || !strings.Contains(err.Error(), v.want) {
				t.Errorf("%v: %v, want %q", v.rate, err, v.want)
			}
		}
	}
	defer func() {
		if r := recover(); fmt.Sprint(r) != "sluiceredis: n < 0: -1" {
			t.Errorf("n < 0: %v", r)
		}
	}()
	_, _ = l.Take(bg, "k", -1)
}

// The quota of the buckets: what is in them stays in units, and nothing is fuller than
// full.
func TestSetQuota(t *testing.T) {
	onBackends(t, func(t *testing.T, b *backend) {
		s, clock := b.freeze(t)
		l := newLeaky(t, s, "set", limits.Rate{Burst: 16, Count: 30, Per: 60 * sec})
		take := func(n int64, ok bool, retry, reset time.Duration) {
			t.Helper()
			if res, err := l.Take(bg, "k", n); err != nil || res.Allowed() != ok || res.RetryAfter != retry || res.ResetAfter != reset {
				t.Errorf("%d: %+v, %v; want %v, %v, %v", n, res, err, ok, retry, reset)
			}
		}
		take(16, true, 0, 32*sec)
		clock.set(20 * sec)
		if err := l.SetRate(limits.Rate{Burst: 16, Count: 60, Per: 60 * sec}); err != nil {
			t.Fatal(err)
		}
		take(4, true, 0, 10*sec) // 6 units were in it, as before, and 4 more are
		take(7, false, sec, 10*sec)
		if err := l.SetRate(limits.Rate{Burst: 4, Count: 60, Per: 60 * sec}); err != nil {
			t.Fatal(err)
		}
		take(1, false, sec, 4*sec) // full, and no fuller
		if err := l.on("k").Adjust(bg, 3, 0); err != nil {
			t.Fatal(err)
		}
		if err := l.SetRate(limits.Rate{Burst: 2, Count: 60, Per: 60 * sec}); err != nil {
			t.Fatal(err)
		}
		take(1, false, 4*sec, 5*sec) // what was overdrawn stays owed
		if err := l.SetRate(limits.Rate{}); err == nil || l.limit.Load().Limit() != 2 {
			t.Errorf("%v, a burst of %d", err, l.limit.Load().Limit())
		}
	})
}

// A unit is returned also if it is all that the bucket holds and a part of it has
// leaked. It was, but was reported as stranded.
func TestLastUnitIsGivenBack(t *testing.T) {
	test := func(t *testing.T, s *Store, sleep func()) {
		l := newLeaky(t, s, "last", limits.Rate{Burst: 10, Count: 1, Per: sec})
		for i, n := range []int64{1, 3} {
			if res, err := l.Take(bg, "k", n); err != nil || !res.Allowed() {
				t.Fatal(res, err)
			}
			sleep()
			if err := l.on("k").Adjust(bg, -n, 100*ms); err != nil {
				t.Errorf("%d: %v", n, err)
			}
			if res, err := l.Take(bg, "k", 0); err != nil || res.ResetAfter != 0 {
				t.Error(res, err)
			}
			if got, want := s.Stats(), []uint64{1, 4}[i]; got.Refunded != want || got.Unreturned != 0 {
				t.Errorf("%d refunded, %d stranded; want %d, 0", got.Refunded, got.Unreturned, want)
			}
		}
	}
	onBackends(t, func(t *testing.T, b *backend) {
		s, clock := b.freeze(t)
		at := time.Duration(0)
		test(t, s, func() {
			at += 100 * ms
			clock.set(at)
		})
	})
	t.Run("in process", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) { test(t, inThisProcess(t), func() { time.Sleep(100 * ms) }) })
	})
}
