package leaky_test

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice/internal/buckets/bucketstest"
	"github.com/sluice-go/sluice/leaky"
	"github.com/sluice-go/sluice/limits"
)

// Several quotas on one key, and one bucket whose quota changes all the time, admit
// in no window more than the laxest of them does alone, and each wait is right.
func TestSeveralQuotas(t *testing.T) {
	for name, subject := range map[string]func() func(q leaky.Quota, n int64) limits.Result{
		"TakeQuota": func() func(q leaky.Quota, n int64) limits.Result {
			k := mustKeyed[string](t, leaky.Quota{1, 1, sec}, 0)
			return func(q leaky.Quota, n int64) limits.Result { return k.TakeQuota("key", q, n) }
		},
		"Keyed.SetQuota": func() func(q leaky.Quota, n int64) limits.Result {
			k := mustKeyed[string](t, leaky.Quota{1, 1, sec}, 0)
			return func(q leaky.Quota, n int64) limits.Result {
				if err := k.SetQuota(q); err != nil {
					t.Error(err)
				}
				return k.Take("key", n)
			}
		},
		"Bucket.SetQuota": func() func(q leaky.Quota, n int64) limits.Result {
			b := leaky.New(1, 1, sec)
			return func(q leaky.Quota, n int64) limits.Result {
				if err := b.SetQuota(q); err != nil {
					t.Error(err)
				}
				return b.Take(n)
			}
		},
		"Bucket.SetQuota if it changes": func() func(q leaky.Quota, n int64) limits.Result {
			b := leaky.New(1, 1, sec)
			return func(q leaky.Quota, n int64) limits.Result {
				if b.Quota() != q {
					if err := b.SetQuota(q); err != nil {
						t.Error(err)
					}
				}
				return b.Take(n)
			}
		},
		"restarted": func() func(q leaky.Quota, n int64) limits.Result {
			b := leaky.New(1, 1, sec)
			return func(q leaky.Quota, n int64) limits.Result {
				before := b.Quota()
				saved := b.Snapshot()
				b = mustBucket(t, before)
				if err := b.Restore(saved); err != nil {
					t.Error(err)
				}
				if err := b.SetQuota(q); err != nil {
					t.Error(err)
				}
				return b.Take(n)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			for i, quotas := range bucketstest.Sets {
				for seed := range uint64(20) {
					synctest.Test(t, func(t *testing.T) {
						if err := bucketstest.Run(seed, quotas, 300, bucketstest.Subject{Sleep: time.Sleep, Take: subject()}); err != nil {
							t.Errorf("set %d, seed %d: %v", i, seed, err)
						}
					})
				}
			}
		})
	}
}

// Two tariffs for one user, asked as fast as they can be.
func TestTwoTariffsInATightLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		free, pro := leaky.Quota{10, 1, sec}, leaky.Quota{100, 1, sec}
		k, b := mustKeyed[string](t, free, 0), mustBucket(t, free)
		inKeyed, inBucket := 0, 0
		for range 1000 {
			for _, q := range []leaky.Quota{pro, free} {
				if k.TakeQuota("u", q, 1).Allowed() {
					inKeyed++
				}
				if err := b.SetQuota(q); err != nil {
					t.Fatal(err)
				}
				if b.Take(1).Allowed() {
					inBucket++
				}
			}
			time.Sleep(ms)
		}
		if inKeyed != 100 || inBucket != 100 {
			t.Errorf("in 1 s %d of a Keyed, %d of a Bucket; the laxer quota allows 100", inKeyed, inBucket)
		}
		time.Sleep(time.Hour)
		if k.Reset("u"); !k.TakeQuota("u", pro, 100).Allowed() {
			t.Error("an empty bucket is not")
		}
	})
}

// What was taken by a slow quota is in the bucket of a fast one that had been empty
// for long, and a bucket that is idle by a fast quota leaks by a slow one as well.
func TestSetQuotaAfterIdleness(t *testing.T) {
	fast, slow := leaky.Quota{100, 50, sec}, leaky.Quota{30, 1, sec}
	set := func(t *testing.T, b *leaky.Bucket, q leaky.Quota) {
		t.Helper()
		if err := b.SetQuota(q); err != nil {
			t.Fatal(err)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		b := mustBucket(t, fast)
		b.Take(10)
		set(t, b, slow)
		time.Sleep(10 * sec)
		want(t, "slow", b.Take(20), allowed(30, 10, 20*sec))
		set(t, b, fast)
		want(t, "fast", b.Take(81), refused(100, 80, 20*ms, 400*ms))
	})
	synctest.Test(t, func(t *testing.T) {
		fast, slow := leaky.Quota{20, 50, sec}, leaky.Quota{100, 5, sec}
		b := mustBucket(t, slow)
		b.Take(1)
		set(t, b, fast)
		time.Sleep(time.Hour)
		b.Take(1)
		time.Sleep(20 * ms)
		set(t, b, slow)
		want(t, "slow", b.Take(100), allowed(100, 0, 20*sec))
	})
}

// What Adjust took beyond the capacity is still owed when the quota is changed back.
func TestOwedWhenTheQuotaIsChangedBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow, fast := leaky.Quota{100, 5, sec}, leaky.Quota{90, 50, sec}
		b := mustBucket(t, slow)
		b.Take(1)
		if err := errors.Join(b.SetQuota(fast), b.Adjust(bg, 1000, 0), b.SetQuota(slow)); err != nil {
			t.Fatal(err)
		}
		want(t, "slow", b.Peek(), allowed(100, 0, 1001*200*ms))
	})
}

// Reset empties the buckets of all quotas.
func TestResetOfSeveralQuotas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		small, large := leaky.Quota{2, 1, sec}, leaky.Quota{50, 1, sec}
		k, b := mustKeyed[string](t, small, 0), mustBucket(t, large)
		k.TakeQuota("u", large, 50)
		k.TakeQuota("u", small, 1)
		k.Reset("u")
		want(t, "Keyed", k.TakeQuota("u", large, 0), allowed(50, 50, 0))
		b.Take(50)
		for _, q := range []leaky.Quota{small, large} {
			if err := b.SetQuota(q); err != nil {
				t.Fatal(err)
			}
			if q == small {
				b.Reset()
			}
		}
		want(t, "Bucket", b.Peek(), allowed(50, 50, 0))
	})
}

// A quota that takes longer than two years to drain is kept in another form.
func TestWideQuotasOfKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := mustKeyed[int](t, leaky.Quota{1, 1, sec}, 0)
		for i := range 5 {
			q := leaky.Quota{int64(100 + i), 1, 300 * 24 * time.Hour}
			for key := range 3 {
				want(t, fmt.Sprint(q, key), k.TakeQuota(key+10*i, q, q.Capacity), allowed(q.Capacity, 0, time.Duration(q.Capacity)*q.Per))
				if r := k.TakeQuota(key+10*i, q, 1); r.Allowed() {
					t.Errorf("%+v", r)
				}
			}
		}
	})
}
