package leaky_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/internal/testkit/built"
	"github.com/sluice-go/sluice/internal/testkit/mixed"
	"github.com/sluice-go/sluice/internal/testkit/queued"
	"github.com/sluice-go/sluice/internal/testkit/synclog"
	"github.com/sluice-go/sluice/leaky"
	"github.com/sluice-go/sluice/limits"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	ms  = time.Millisecond
	sec = time.Second
)

var bg = context.Background()

func allowed(limit, remaining int64, reset time.Duration) limits.Result {
	return limits.Result{Limit: limit, Remaining: remaining, ResetAfter: reset}
}

func refused(limit, remaining int64, retry, reset time.Duration) limits.Result {
	return limits.Result{Limit: limit, Remaining: remaining, RetryAfter: retry, ResetAfter: reset}
}

func want(t testing.TB, what string, got, want limits.Result) {
	t.Helper()
	if got != want {
		t.Errorf("%s:\n got %+v\nwant %+v", what, got, want)
	}
}

func TestBucket_Take(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := limits.Must(leaky.New(limits.Rate{Count: 1, Per: sec, Burst: 5}))
		want(t, "new", b.Take(0), allowed(5, 5, 0))
		want(t, "3 of 5", b.Take(3), allowed(5, 2, 3*sec))
		want(t, "2 more", b.Take(2), allowed(5, 0, 5*sec))
		want(t, "full", b.Take(1), refused(5, 0, sec, 5*sec))
		want(t, "full, 4", b.Take(4), refused(5, 0, 4*sec, 5*sec))
		want(t, "nothing", b.Take(0), allowed(5, 0, 5*sec))
		time.Sleep(sec - 1)
		want(t, "a nanosecond early", b.Take(1), refused(5, 0, 1, 4*sec+1))
		time.Sleep(time.Nanosecond)
		want(t, "in time", b.Take(1), allowed(5, 0, 5*sec))
		time.Sleep(2500 * ms)
		want(t, "two and a half", b.Take(0), allowed(5, 2, 2500*ms))
		time.Sleep(time.Hour)
		want(t, "drained", b.Take(5), allowed(5, 0, 5*sec))
	})
}

func TestBucket_Take_MoreThanTheCapacityIsNever(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := limits.Must(leaky.New(limits.Rate{Count: 1, Per: sec, Burst: 5}))
		for _, n := range []int64{6, math.MaxInt64} {
			want(t, "fresh", b.Take(n), refused(5, 5, limits.Never, 0))
		}
		b.Take(2)
		r := b.Take(6)
		want(t, "used", r, refused(5, 3, limits.Never, 2*sec))
		if !errors.Is(r.Err(), limits.ErrTooLarge) {
			t.Errorf("Err() = %v", r.Err())
		}
		if err := b.Take(5).Err(); err != nil {
			t.Errorf("refused for now: Err() = %v", err)
		}
		if err := b.Take(1).Err(); err != nil {
			t.Errorf("allowed: Err() = %v", err)
		}
		if wait, err := b.Admit(bg, 6); wait != 0 || err != limits.ErrTooLarge {
			t.Errorf("Admit(6) = %v, %v", wait, err)
		}
	})
}

func TestBucket_Adjust_GivesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := limits.Must(leaky.New(limits.Rate{Count: 1, Per: sec, Burst: 5}))
		b.Take(2)
		time.Sleep(500 * ms)
		before := b.Take(0)
		b.Take(3)
		b.Adjust(bg, -3, 0)
		want(t, "taken and given back", b.Take(0), before)
		b.Adjust(bg, 0, 0)
		want(t, "nothing given back", b.Take(0), before)
		b.Adjust(bg, -1, 0)
		want(t, "one of two", b.Take(0), allowed(5, 4, 500*ms))
		b.Adjust(bg, -math.MaxInt64, 0)
		want(t, "more than was in it", b.Take(0), allowed(5, 5, 0))
		want(t, "no emptier than empty", b.Take(6), refused(5, 5, limits.Never, 0))
		b.Take(5)
		want(t, "no emptier than empty", b.Take(1), refused(5, 0, sec, 5*sec))
	})
}

func TestBucket_SetRate_KeepsUnits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		set := func(b *leaky.Bucket, capacity, count int64, per time.Duration) {
			t.Helper()
			if err := b.SetRate(limits.Rate{Count: count, Per: per, Burst: capacity}); err != nil {
				t.Fatal(err)
			}
		}
		b := limits.Must(leaky.New(limits.Rate{Count: 30, Per: time.Minute, Burst: 16}))
		b.Take(16)
		set(b, 16, 300, time.Minute)
		want(t, "faster", b.Take(1), refused(16, 0, 200*ms, 3200*ms))
		time.Sleep(200 * ms)
		want(t, "after the wait", b.Take(1), allowed(16, 0, 3200*ms))

		b = limits.Must(leaky.New(limits.Rate{Count: 30, Per: time.Minute, Burst: 16}))
		b.Take(8)
		set(b, 32, 30, time.Minute)
		want(t, "larger", b.Take(0), allowed(32, 24, 16*sec))
		set(b, 4, 30, time.Minute)
		want(t, "smaller", b.Take(0), allowed(4, 0, 8*sec))
		set(b, 4, 1, time.Minute)
		want(t, "slower", b.Take(0), allowed(4, 0, 4*time.Minute))
		set(b, 32, 30, time.Minute)
		want(t, "large again", b.Take(0), allowed(32, 24, 16*sec))
		set(b, 4, 1, time.Minute)
		if q := b.Rate(); q != (limits.Rate{Count: 1, Per: time.Minute, Burst: 4}) {
			t.Errorf("Rate() = %v", q)
		}
	})
}

func TestNew_ImpossibleRates(t *testing.T) {
	for _, v := range []struct {
		rate limits.Rate
		text string
	}{
		{limits.Rate{}, "leaky: rate of 0 per 0s: the count must be positive"},
		{limits.Rate{Count: 1, Per: sec, Burst: -1}, "the burst of -1 is negative"},
		{limits.Rate{Count: 1, Per: sec, Burst: math.MinInt64}, "is negative"},
		{limits.Rate{Count: 0, Per: sec, Burst: 1}, "the count must be positive"},
		{limits.Rate{Count: -1, Per: sec, Burst: 1}, "the count must be positive"},
		{limits.Rate{Count: 1, Per: 0, Burst: 1}, "the period must be positive"},
		{limits.Rate{Count: 1, Per: -sec, Burst: 1}, "the period must be positive"},
		{limits.Rate{Count: 1_000_001, Per: sec, Burst: 1}, "more than 1000000 per second"},
		{limits.Rate{Count: math.MaxInt64, Per: 1, Burst: 1}, "more than one per nanosecond"},
		{limits.Rate{Count: 1, Per: sec, Burst: 1 << 62}, "would take longer than 146 years to drain"},
		{limits.Rate{Count: 1, Per: 24 * time.Hour, Burst: 146 * 366}, "would take longer than 146 years to drain"},
		{limits.Rate{Count: 1_000_000, Per: sec, Burst: 1}, ""},
		{limits.Rate{Count: 1, Per: 24 * time.Hour, Burst: 145 * 366}, ""},
	} {
		b := limits.Must(leaky.New(limits.Rate{Count: 1, Per: sec, Burst: 3}))
		b.Take(1)
		k, err := leaky.NewKeyed[int](limits.Rate{Count: 1, Per: sec, Burst: 3})
		if err != nil {
			t.Fatal(err)
		}
		_, errNew := leaky.New(v.rate)
		_, errKeyed := leaky.NewKeyed[string](v.rate)
		for name, err := range map[string]error{
			"New": errNew, "NewKeyed": errKeyed,
			"SetRate": b.SetRate(v.rate), "Keyed.SetRate": k.SetRate(v.rate),
			"TakeRate": panicOf(func() { k.TakeRate(1, v.rate, 1) }),
		} {
			switch {
			case v.text == "" && err != nil:
				t.Errorf("%s, %v: %v", name, v.rate, err)
			case v.text != "" && (err == nil || !strings.HasPrefix(err.Error(), "leaky: ") || !strings.Contains(err.Error(), v.text)):
				t.Errorf("%s, %v: %v, want %s", name, v.rate, err, v.text)
			}
		}
		if v.text != "" && (b.Rate() != limits.Rate{Count: 1, Per: sec, Burst: 3} || k.Rate() != b.Rate() || b.Take(0).Remaining != 2) {
			t.Errorf("%v changed something", v.rate)
		}
	}
}

// panicOf returns what f panics with, as an error.
func panicOf(f func()) (err error) {
	defer func() {
		if text, ok := recover().(string); ok {
			err = errors.New(text)
		}
	}()
	f()
	return nil
}

func TestBucket_NegativeNPanics(t *testing.T) {
	b := limits.Must(leaky.New(limits.Rate{Count: 1, Per: sec, Burst: 1}))
	k, err := leaky.NewKeyed[int](b.Rate())
	if err != nil {
		t.Fatal(err)
	}
	for name, f := range map[string]func(){
		"Take":     func() { b.Take(-1) },
		"Admit":    func() { b.Admit(bg, -1) },
		"Keyed":    func() { k.Take(1, -1) },
		"TakeRate": func() { k.TakeRate(1, b.Rate(), -1) },
		"On":       func() { k.On(1).Admit(bg, -1) },
	} {
		if err := panicOf(f); err == nil || err.Error() != "leaky: n < 0: -1" {
			t.Errorf("%s: panic %v", name, err)
		}
	}
	want(t, "after all of these", b.Take(0), allowed(1, 1, 0))
}

// A limiter is what a Bucket and one key of a Keyed have in common.
type limiter struct {
	limits.Limiter
	peek    func() limits.Result
	take    func(int64) limits.Result
	setRate func(limits.Rate) error
}

func limiters(t *testing.T, q limits.Rate) map[string]limiter {
	b, err := leaky.New(q)
	if err != nil {
		t.Fatal(err)
	}
	k, err := leaky.NewKeyed[string](q)
	if err != nil {
		t.Fatal(err)
	}
	return map[string]limiter{
		"Bucket": {b, func() limits.Result { return b.Take(0) }, b.Take, b.SetRate},
		"Keyed": {
			k.On("x"),
			func() limits.Result { return k.Take("x", 0) },
			func(n int64) limits.Result { return k.Take("x", n) },
			k.SetRate,
		},
	}
}

// each runs f in a bubble for each kind of limiter.
func each(t *testing.T, q limits.Rate, f func(t *testing.T, m limiter)) {
	for _, name := range []string{"Bucket", "Keyed"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { f(t, limiters(t, q)[name]) })
		})
	}
}

func TestBucket_AdmitAndAdjust(t *testing.T) {
	each(t, limits.Rate{Count: 1, Per: sec, Burst: 5}, func(t *testing.T, m limiter) {
		done, cancel := context.WithCancel(bg)
		cancel()
		admit := func(n int64, wait time.Duration) {
			t.Helper()
			if got, err := m.Admit(bg, n); got != wait || err != nil {
				t.Errorf("Admit(%d) = %v, %v; want %v", n, got, err, wait)
			}
		}
		adjust := func(delta int64) {
			t.Helper()
			if err := m.Adjust(done, delta, 0); err != nil { // a done context loses nothing
				t.Error(err)
			}
		}
		if _, err := m.Admit(done, 1); err != context.Canceled {
			t.Errorf("Admit with a done context: %v", err)
		}
		if _, err := m.Admit(bg, 6); err != limits.ErrTooLarge {
			t.Errorf("6 of 5: %v", err)
		}
		admit(0, 0)
		want(t, "nothing taken", m.peek(), allowed(5, 5, 0))
		time.Sleep(time.Hour)
		adjust(2)
		want(t, "taken from now on", m.peek(), allowed(5, 3, 2*sec))
		adjust(-2)
		admit(4, 0)
		admit(3, 2*sec)
		adjust(-4)
		want(t, "given back", m.peek(), allowed(5, 5, 0))
		admit(5, 0)
		adjust(7) // 12 of 5
		want(t, "overdrawn", m.peek(), allowed(5, 0, 12*sec))
		want(t, "nothing is granted all the same", m.take(0), allowed(5, 0, 12*sec))
		admit(1, 8*sec)
		time.Sleep(8*sec - 1)
		admit(1, 1)
		time.Sleep(time.Nanosecond)
		admit(1, 0)
		adjust(math.MaxInt64)
		if r := m.peek(); r.Remaining != 0 || r.ResetAfter < 200*365*24*time.Hour {
			t.Errorf("overdrawn beyond all numbers: %+v", r)
		}
		adjust(math.MinInt64)
		want(t, "all given back", m.peek(), allowed(5, 5, 0))
	})
}

func TestBucket_DebtBeyondTheCapacityIsKept(t *testing.T) {
	each(t, limits.Rate{Count: 1, Per: sec, Burst: 5}, func(t *testing.T, m limiter) {
		set := func(capacity int64) {
			t.Helper()
			if err := m.setRate(limits.Rate{Count: 1, Per: sec, Burst: capacity}); err != nil {
				t.Fatal(err)
			}
		}
		m.Adjust(bg, 15, 0)
		set(2)
		want(t, "smaller", m.peek(), allowed(2, 0, 12*sec))
		if wait, err := m.Admit(bg, 1); wait != 11*sec || err != nil {
			t.Errorf("Admit(1) = %v, %v", wait, err)
		}
		set(5)
		want(t, "larger again", m.peek(), allowed(5, 0, 15*sec)) // as many as there were
		time.Sleep(12 * sec)
		want(t, "drained far enough", m.take(2), allowed(5, 0, 5*sec))
	})
}

func TestBucket_Take_OfZeroWritesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, twin := limits.Must(leaky.New(limits.Rate{Count: 3, Per: sec, Burst: 5})), limits.Must(leaky.New(limits.Rate{Count: 3, Per: sec, Burst: 5}))
		for i := range 200 {
			time.Sleep(time.Duration(i) * 7 * ms)
			b.Take(0)
			b.Take(0)
			n := int64(i%6 + 1)
			want(t, "the one that was looked at", b.Take(n), twin.Take(n))
		}
	})
}

func TestBucket_Take_DoesNotAllocate(t *testing.T) {
	b := limits.Must(leaky.New(limits.Rate{Count: 1, Per: time.Hour, Burst: 5}))
	k, err := leaky.NewKeyed[string](b.Rate())
	if err != nil {
		t.Fatal(err)
	}
	rate := limits.Rate{Count: 1, Per: time.Hour, Burst: 7}
	k.Take("key", 1)
	for name, f := range map[string]func(){
		"Take":            func() { b.Take(1) },
		"Keyed.Take":      func() { k.Take("key", 1) },
		"Keyed.TakeRate":  func() { k.TakeRate("key", rate, 1) },
		"Keyed.Take of 0": func() { k.Take("key", 0) },
	} {
		if n := testing.AllocsPerRun(100, f); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

// # Queues

var _ notifier = (*leaky.Bucket)(nil)

type notifier interface {
	limits.Limiter
	OnChange(f func()) (stop func())
}

// The verbs that wait, on a bucket that only answers.

func TestQueue_OfABucket_FirstInFirstOut(t *testing.T) {
	each(t, limits.Rate{Count: 10, Per: sec, Burst: 3}, func(t *testing.T, m limiter) {
		b, l := queued.For(m), synclog.New()
		for i, n := range []int64{2, 1, 3, 1, 0, 2} {
			l.Call(i, func() error { return b.Acquire(bg, n) })
		}
		if b.Waiting() != 3 || b.TryAcquire(1) {
			t.Errorf("%d wait, want 3", b.Waiting())
		}
		time.Sleep(time.Minute)
		l.Want(t,
			synclog.At(0, 0), synclog.At(1, 0), synclog.At(4, 0),
			synclog.At(2, 300*ms), // the small one behind it does not overtake
			synclog.At(3, 400*ms),
			synclog.At(5, 600*ms),
		)
	})
}

func TestQueue_OfABucket_CancelIsExact(t *testing.T) {
	each(t, limits.Rate{Count: 1, Per: sec, Burst: 3}, func(t *testing.T, m limiter) {
		b, l := queued.For(m), synclog.New()
		if !b.TryAcquire(3) {
			t.Fatal("an empty bucket refused")
		}
		ctx, cancel := context.WithCancel(bg)
		l.Call(0, func() error { return b.Acquire(ctx, 3) })
		l.Call(1, func() error { return b.Acquire(bg, 2) })
		l.Call(2, func() error { return b.Acquire(ctx, 3) })
		l.Call(3, func() error { return b.Acquire(bg, 1) })
		time.Sleep(1500 * ms)
		cancel()
		l.Want(t, synclog.Failed(0, 1500*ms, context.Canceled), synclog.Failed(2, 1500*ms, context.Canceled))
		want(t, "nothing of it is taken", m.peek(), allowed(3, 1, 1500*ms))
		time.Sleep(time.Minute)
		l.Want(t,
			synclog.Failed(0, 1500*ms, context.Canceled), synclog.Failed(2, 1500*ms, context.Canceled),
			synclog.At(1, 2*sec), synclog.At(3, 3*sec),
		)
	})
}

func TestQueue_OfABucket_ErrorHasTheWait(t *testing.T) {
	each(t, limits.Rate{Count: 1, Per: sec, Burst: 3}, func(t *testing.T, m limiter) {
		b := queued.For(m)
		if err := b.Acquire(bg, 3); err != nil {
			t.Fatal(err)
		}
		before := m.peek()
		for name, f := range map[string]func() error{
			"AcquireWithin": func() error { return b.AcquireWithin(bg, 2, 1999*ms) },
			"Acquire": func() error {
				ctx, cancel := context.WithTimeout(bg, 1999*ms)
				defer cancel()
				return b.Acquire(ctx, 2)
			},
		} {
			var wait *limits.WaitError
			if err := f(); !errors.As(err, &wait) || wait.Need != 2*sec || wait.Have != 1999*ms {
				t.Errorf("%s: %v", name, err)
			}
		}
		if err := b.Acquire(bg, 4); !errors.Is(err, limits.ErrTooLarge) {
			t.Errorf("4 of 3: %v", err)
		}
		want(t, "nothing of it is taken", m.peek(), before)
		start := time.Now()
		if err := b.AcquireWithin(bg, 2, 2*sec); err != nil || time.Since(start) != 2*sec {
			t.Errorf("after %v: %v", time.Since(start), err)
		}
	})
}

func TestQueue_OfAKey_TooManyKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k, err := leaky.NewKeyed[string](limits.Rate{Count: 1, Per: sec, Burst: 1}, limits.KeyedConfig{MaxKeys: 1})
		if err != nil {
			t.Fatal(err)
		}
		a, b := queued.For(k.On("a")), queued.For(k.On("b"))
		if err := a.Acquire(bg, 1); err != nil {
			t.Error(err)
		}
		if err := b.Acquire(bg, 1); !errors.Is(err, limits.ErrTooManyKeys) {
			t.Errorf("the second of one key: %v", err)
		}
		if err := k.On("b").Adjust(bg, 1, 0); err != limits.ErrTooManyKeys {
			t.Errorf("Adjust: %v", err)
		}
		if err := k.On("b").Adjust(bg, -1, 0); err != nil {
			t.Errorf("Adjust down: %v", err)
		}
		time.Sleep(sec)
		if err := b.Acquire(bg, 1); err != nil {
			t.Errorf("when the first has drained: %v", err)
		}
	})
}

func TestGate_OfABucket_ReturnsAndSettles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		requests := limits.Must(leaky.New(limits.Rate{Count: 1, Per: sec, Burst: 10}))
		tokens, err := leaky.NewKeyed[string](limits.Rate{Count: 10, Per: sec, Burst: 100})
		if err != nil {
			t.Fatal(err)
		}
		g, err := sluice.New(sluice.Config{Name: "api", Limits: []sluice.Limit{
			{Name: "requests", Limiter: requests, Unit: sluice.Calls},
			{Name: "tokens", Limiter: tokens.On("me")},
		}})
		if err != nil {
			t.Fatal(err)
		}
		p, err := g.Acquire(bg, 60)
		if err != nil {
			t.Fatal(err)
		}
		r, k := requests.Take(0), tokens.Take("me", 0)
		want(t, "one request", r, allowed(10, 9, sec))
		want(t, "60 tokens", k, allowed(100, 40, 6*sec))
		if _, ok := g.TryAcquire(50); ok {
			t.Error("50 of 40")
		}
		want(t, "refused by one, consumed from none", requests.Take(0), r)
		want(t, "refused by one, consumed from none", tokens.Take("me", 0), k)
		p.Settle(250) // 2.5 times what fits
		want(t, "settled", tokens.Take("me", 0), allowed(100, 0, 25*sec))
		want(t, "a call is a call", requests.Take(0), r)
		start := time.Now()
		q, err := g.Acquire(bg, 50)
		if err != nil || time.Since(start) != 20*sec {
			t.Errorf("after %v: %v", time.Since(start), err)
		}
		q.Settle(0)
		want(t, "free of charge", tokens.Take("me", 0), allowed(100, 50, 5*sec))
	})
}

// # Rates that change

// Several rates on one key, and one bucket whose rate changes all the time, allow
// in no window more than the laxest of them does alone, and each wait is right.
func TestMixed_SeveralRates(t *testing.T) {
	built.SkipRaced(t)
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
