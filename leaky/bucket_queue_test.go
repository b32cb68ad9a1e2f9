package leaky_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/internal/testkit/synclog"
	"github.com/sluice-go/sluice/leaky"
	"github.com/sluice-go/sluice/limits"
)

var _ limits.Notifier = (*leaky.Bucket)(nil)

// The verbs that wait, on a bucket that only answers.

func TestQueue_OfABucket_FirstInFirstOut(t *testing.T) {
	each(t, limits.Rate{Count: 10, Per: sec, Burst: 3}, func(t *testing.T, m limiter) {
		b, l := sluice.NewQueue(m), synclog.New()
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
		b, l := sluice.NewQueue(m), synclog.New()
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
		b := sluice.NewQueue(m)
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
		if err := b.Acquire(bg, 4); err != limits.ErrTooLarge {
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
		a, b := sluice.NewQueue(k.On("a")), sluice.NewQueue(k.On("b"))
		if err := a.Acquire(bg, 1); err != nil {
			t.Error(err)
		}
		if err := b.Acquire(bg, 1); err != limits.ErrTooManyKeys {
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
		tokens, err := leaky.NewKeyed[string](limits.Rate{Count: 10, Per: sec, Burst: 100}, limits.KeyedConfig{})
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
