package leaky_test

import (
	"encoding/json"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-go/sluice/leaky"
	"github.com/sluice-go/sluice/limits"
)

// On the real scheduler and clock.

const callers = 64

// inParallel runs f in many goroutines until d has passed, at least once, and
// returns the time that took.
func inParallel(d time.Duration, f func(caller int)) time.Duration {
	start := time.Now()
	var wg sync.WaitGroup
	for i := range callers {
		wg.Go(func() {
			for first := true; first || time.Since(start) < d; first = false {
				f(i)
			}
		})
	}
	wg.Wait()
	return time.Since(start)
}

// x/time/rate let up to 3.3 times too much through at this.
func TestStress_NeverMoreThanCapacityAndWhatLeaked(t *testing.T) {
	for _, q := range []limits.Rate{{Count: 1_000_000, Per: sec, Burst: 100}, {Count: 20_000, Per: sec, Burst: 10}, {Count: 300, Per: sec, Burst: 1}, {Count: 1, Per: time.Hour, Burst: 5}} {
		start := time.Now()
		b, k := limits.Must(leaky.New(q)), mustKeyed[string](t, q, 0)
		var single, keyed atomic.Int64
		inParallel(200*ms, func(caller int) {
			n := int64(caller%3 + 1)
			if b.Take(n).Allowed() {
				single.Add(n)
			}
			if k.Take("key", n).Allowed() {
				keyed.Add(n)
			}
		})
		most := q.Burst + int64(time.Since(start)/(q.Per/time.Duration(q.Count)))
		for name, n := range map[string]int64{"Bucket": single.Load(), "Keyed": keyed.Load()} {
			if n > most || n < 1 {
				t.Errorf("%s, %v: %d allowed, at most %d may be", name, q, n, most)
			}
		}
	}
}

func TestStress_ReturnedUnitsAreThereAgain(t *testing.T) {
	b := limits.Must(leaky.New(limits.Rate{Count: 1, Per: 24 * time.Hour, Burst: 8}))
	k := mustKeyed[int](t, b.Rate(), 0)
	var held, most atomic.Int64
	inParallel(200*ms, func(caller int) {
		n := int64(caller%4 + 1)
		if b.Take(n).Allowed() {
			for h, m := held.Add(n), int64(0); h > m; {
				if m = most.Load(); most.CompareAndSwap(m, h) {
					break
				}
			}
			held.Add(-n)
			b.Adjust(bg, -n, 0)
		}
		if k.Take(7, n).Allowed() {
			if err := k.On(7).Adjust(bg, -n, 0); err != nil {
				t.Error(err)
			}
		}
	})
	want(t, "Bucket", b.Take(0), allowed(8, 8, 0))
	want(t, "Keyed", k.Take(7, 0), allowed(8, 8, 0))
	if most.Load() > 8 {
		t.Errorf("%d of 8 were held at once", most.Load())
	}
}

// Two rates of equal depth, one with units of 3.6 s and one of half of that:
// whichever a call met, the unit it took must be in the bucket.
func TestStress_SetRateLosesNothing(t *testing.T) {
	large, small := limits.Rate{Count: 1, Per: time.Hour / 1000, Burst: 10_000_000}, limits.Rate{Count: 2, Per: time.Hour / 1000, Burst: 20_000_000}
	b := limits.Must(leaky.New(large))
	var taken atomic.Int64
	inParallel(300*ms, func(caller int) {
		if caller < 2 {
			for _, q := range []limits.Rate{small, large} {
				if err := b.SetRate(q); err != nil {
					t.Error(err)
				}
			}
			return
		}
		if r := b.Take(1); !r.Allowed() {
			t.Errorf("%+v", r)
		}
		taken.Add(1)
	})
	q := b.Rate()
	held := float64(b.Take(0).ResetAfter) / float64(q.Per/time.Duration(q.Count))
	if lost := float64(taken.Load()) - held; lost < -1 || lost > 1 { // 300 ms are a sixth of a unit
		t.Errorf("%d were taken, %.3f are in the bucket", taken.Load(), held)
	}
}

// A snapshot is of one state: a rate, and what was taken while it was current. One goroutine
// changes the rate, so that on two processors it does so at each point of Snapshot.
func TestStress_SnapshotWhileTheRateChanges(t *testing.T) {
	large, small := limits.Rate{Count: 1, Per: time.Hour, Burst: 1000}, limits.Rate{Count: 1, Per: 2 * time.Hour, Burst: 5}
	b := mustBucket(t, large)
	done := make(chan struct{})
	var wg sync.WaitGroup
	defer wg.Wait()
	defer close(done)
	wg.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
			}
			if err := b.SetRate(large); err != nil {
				t.Error(err)
			}
			b.Take(900)
			runtime.Gosched() // if there is one processor
			if err := b.SetRate(small); err != nil {
				t.Error(err)
			}
			runtime.Gosched()
		}
	})
	full, other := 0, 0
	for start := time.Now(); time.Since(start) < 200*ms; {
		data := b.Snapshot()
		var s struct {
			Bucket struct {
				Capacity, Count int64
				Per, Level      time.Duration
			}
		}
		if err := json.Unmarshal(data, &s); err != nil {
			t.Fatal(err)
		}
		got := s.Bucket
		if depth := got.Per / time.Duration(got.Count) * time.Duration(got.Capacity); got.Level > depth {
			t.Fatalf("%v in a bucket of %v", got.Level, depth)
		}
		if got.Capacity == small.Burst {
			other++
		} else if got.Level > 899*time.Hour {
			full++
		}
		if err := b.Restore(data); err != nil && !errors.Is(err, limits.ErrSnapshot) {
			t.Fatal(err)
		}
		runtime.Gosched()
	}
	if full == 0 || other == 0 {
		t.Errorf("%d times full, %d times of the small rate: too few to show anything", full, other)
	}
}

// Restore meets SetRate: either it finds the new rate, and fails, or what it
// restored is carried over to that.
func TestStress_RestoreIsNotLost(t *testing.T) {
	q, other := limits.Rate{Count: 1, Per: time.Hour, Burst: 100}, limits.Rate{Count: 1, Per: time.Hour, Burst: 200}
	full := mustBucket(t, q)
	full.Take(100)
	saved := full.Snapshot()
	restored, late := 0, 0
	for start := time.Now(); time.Since(start) < 200*ms; {
		b := mustBucket(t, q)
		var wg sync.WaitGroup
		wg.Go(func() {
			if err := b.SetRate(other); err != nil {
				t.Error(err)
			}
		})
		err := b.Restore(saved)
		wg.Wait()
		switch level := b.Take(0).ResetAfter; {
		case err == nil && level > 99*time.Hour:
			restored++
		case errors.Is(err, limits.ErrSnapshot) && level == 0:
			late++
		default:
			t.Fatalf("%v, and holds %v", err, level)
		}
	}
	t.Logf("%d restored, %d too late", restored, late)
}

// Many keys come and go while others are used: no call is lost and
// none is minted.
func TestStress_KeysComeAndGo(t *testing.T) {
	k := mustKeyed[int](t, limits.Rate{Count: 1, Per: time.Hour, Burst: 3}, 0)
	var next atomic.Int64
	var asked, admitted [callers]int
	inParallel(400*ms, func(caller int) {
		key := int(next.Add(1))
		if !k.TakeRate(key, limits.Rate{Count: 1, Per: ms, Burst: 1}, 1).Allowed() {
			t.Errorf("new key %d was refused", key)
		}
		asked[caller]++
		if k.Take(-1-caller, 1).Allowed() {
			admitted[caller]++
		}
	})
	for caller, n := range admitted {
		if n != min(3, asked[caller]) {
			t.Errorf("caller %d asked %d times for 3 and was allowed %d times", caller, asked[caller], n)
		}
	}
	for n := 0; k.Len() > callers; n++ {
		if n > 100_000_000 {
			t.Fatalf("%d keys are remembered of %d", k.Len(), next.Load())
		}
		k.Take(-1, 1)
	}
}

func mustKeyed[K comparable](t testing.TB, q limits.Rate, most int64) *leaky.Keyed[K] {
	t.Helper()
	k, err := leaky.NewKeyed[K](q, limits.KeyedConfig{MaxKeys: most})
	if err != nil {
		t.Fatal(err)
	}
	return k
}
