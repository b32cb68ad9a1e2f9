package leaky_test

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice/internal/testkit/mixed"
	"github.com/sluice-go/sluice/leaky"
	"github.com/sluice-go/sluice/limits"
)

// Several rates on one key, and one bucket whose rate changes all the time, allow
// in no window more than the laxest of them does alone, and each wait is right.
func TestMixed_SeveralRates(t *testing.T) {
	for name, subject := range map[string]func() func(q limits.Rate, n int64) limits.Result{
		"TakeRate": func() func(q limits.Rate, n int64) limits.Result {
			k := mustKeyed[string](t, limits.Rate{Count: 1, Per: sec, Burst: 1}, 0)
			return func(q limits.Rate, n int64) limits.Result { return k.TakeRate("key", q, n) }
		},
		"Keyed.SetRate": func() func(q limits.Rate, n int64) limits.Result {
			k := mustKeyed[string](t, limits.Rate{Count: 1, Per: sec, Burst: 1}, 0)
			return func(q limits.Rate, n int64) limits.Result {
				if err := k.SetRate(q); err != nil {
					t.Error(err)
				}
				return k.Take("key", n)
			}
		},
		"Bucket.SetRate": func() func(q limits.Rate, n int64) limits.Result {
			b := limits.Must(leaky.New(limits.Rate{Count: 1, Per: sec, Burst: 1}))
			return func(q limits.Rate, n int64) limits.Result {
				if err := b.SetRate(q); err != nil {
					t.Error(err)
				}
				return b.Take(n)
			}
		},
		"Bucket.SetRate if it changes": func() func(q limits.Rate, n int64) limits.Result {
			b := limits.Must(leaky.New(limits.Rate{Count: 1, Per: sec, Burst: 1}))
			return func(q limits.Rate, n int64) limits.Result {
				if b.Rate() != q {
					if err := b.SetRate(q); err != nil {
						t.Error(err)
					}
				}
				return b.Take(n)
			}
		},
		"restarted": func() func(q limits.Rate, n int64) limits.Result {
			b := limits.Must(leaky.New(limits.Rate{Count: 1, Per: sec, Burst: 1}))
			return func(q limits.Rate, n int64) limits.Result {
				before := b.Rate()
				saved := b.Snapshot()
				b = mustBucket(t, before)
				if err := b.Restore(saved); err != nil {
					t.Error(err)
				}
				if err := b.SetRate(q); err != nil {
					t.Error(err)
				}
				return b.Take(n)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			for i, rates := range mixed.Sets {
				for seed := range uint64(20) {
					synctest.Test(t, func(t *testing.T) {
						if err := mixed.Run(seed, rates, 300, mixed.Subject{Sleep: time.Sleep, Take: subject()}); err != nil {
							t.Errorf("set %d, seed %d: %v", i, seed, err)
						}
					})
				}
			}
		})
	}
}

// Two tariffs for one user, used as fast as possible.
func TestMixed_TwoRatesInATightLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		free, pro := limits.Rate{Count: 1, Per: sec, Burst: 10}, limits.Rate{Count: 1, Per: sec, Burst: 100}
		k, b := mustKeyed[string](t, free, 0), mustBucket(t, free)
		inKeyed, inBucket := 0, 0
		for range 1000 {
			for _, q := range []limits.Rate{pro, free} {
				if k.TakeRate("u", q, 1).Allowed() {
					inKeyed++
				}
				if err := b.SetRate(q); err != nil {
					t.Fatal(err)
				}
				if b.Take(1).Allowed() {
					inBucket++
				}
			}
			time.Sleep(ms)
		}
		if inKeyed != 100 || inBucket != 100 {
			t.Errorf("in 1 s %d of a Keyed, %d of a Bucket; the laxer rate allows 100", inKeyed, inBucket)
		}
		time.Sleep(time.Hour)
		if !k.TakeRate("u", pro, 100).Allowed() {
			t.Error("an empty bucket is not")
		}
	})
}

// What was taken by a slow rate is in the bucket of a fast one that had been empty
// for long, and a bucket that is idle by a fast rate leaks by a slow one as well.
func TestMixed_SetRateAfterIdleness(t *testing.T) {
	fast, slow := limits.Rate{Count: 50, Per: sec, Burst: 100}, limits.Rate{Count: 1, Per: sec, Burst: 30}
	set := func(t *testing.T, b *leaky.Bucket, q limits.Rate) {
		t.Helper()
		if err := b.SetRate(q); err != nil {
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
		fast, slow := limits.Rate{Count: 50, Per: sec, Burst: 20}, limits.Rate{Count: 5, Per: sec, Burst: 100}
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

// What Adjust took beyond the capacity is still owed when the rate is changed back.
func TestMixed_DebtWhenTheRateIsChangedBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow, fast := limits.Rate{Count: 5, Per: sec, Burst: 100}, limits.Rate{Count: 50, Per: sec, Burst: 90}
		b := mustBucket(t, slow)
		b.Take(1)
		if err := errors.Join(b.SetRate(fast), b.Adjust(bg, 1000, 0), b.SetRate(slow)); err != nil {
			t.Fatal(err)
		}
		want(t, "slow", b.Take(0), allowed(100, 0, 1001*200*ms))
	})
}

// A rate that takes longer than two years to drain is kept in another form.
func TestMixed_WideRatesOfKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := mustKeyed[int](t, limits.Rate{Count: 1, Per: sec, Burst: 1}, 0)
		for i := range 5 {
			q := limits.Rate{Count: 1, Per: 300 * 24 * time.Hour, Burst: int64(100 + i)}
			for key := range 3 {
				want(t, fmt.Sprint(q, key), k.TakeRate(key+10*i, q, q.Burst), allowed(q.Burst, 0, time.Duration(q.Burst)*q.Per))
				if r := k.TakeRate(key+10*i, q, 1); r.Allowed() {
					t.Errorf("%+v", r)
				}
			}
		}
	})
}
