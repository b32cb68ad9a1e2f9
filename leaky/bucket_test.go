package leaky_test

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

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

func TestTake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := leaky.New(5, 1, sec)
		want(t, "new", b.Peek(), allowed(5, 5, 0))
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
		want(t, "two and a half", b.Peek(), allowed(5, 2, 2500*ms))
		time.Sleep(time.Hour)
		want(t, "drained", b.Take(5), allowed(5, 0, 5*sec))
		b.Reset()
		want(t, "reset", b.Peek(), allowed(5, 5, 0))
	})
}

func TestMoreThanTheCapacityIsNever(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := leaky.New(5, 1, sec)
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

func TestReturn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := leaky.New(5, 1, sec)
		b.Take(2)
		time.Sleep(500 * ms)
		before := b.Peek()
		b.Take(3)
		b.Return(3)
		want(t, "taken and given back", b.Peek(), before)
		b.Return(0)
		want(t, "nothing given back", b.Peek(), before)
		b.Return(1)
		want(t, "one of two", b.Peek(), allowed(5, 4, 500*ms))
		b.Return(math.MaxInt64)
		want(t, "more than was in it", b.Peek(), allowed(5, 5, 0))
		want(t, "no emptier than empty", b.Take(6), refused(5, 5, limits.Never, 0))
		b.Take(5)
		want(t, "no emptier than empty", b.Take(1), refused(5, 0, sec, 5*sec))
	})
}

func TestSetQuotaKeepsUnits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		set := func(b *leaky.Bucket, capacity, count int64, per time.Duration) {
			t.Helper()
			if err := b.SetQuota(leaky.Quota{Capacity: capacity, Count: count, Per: per}); err != nil {
				t.Fatal(err)
			}
		}
		b := leaky.New(16, 30, time.Minute)
		b.Take(16)
		set(b, 16, 300, time.Minute)
		want(t, "faster", b.Take(1), refused(16, 0, 200*ms, 3200*ms))
		time.Sleep(200 * ms)
		want(t, "when told", b.Take(1), allowed(16, 0, 3200*ms))

		b = leaky.New(16, 30, time.Minute)
		b.Take(8)
		set(b, 32, 30, time.Minute)
		want(t, "larger", b.Peek(), allowed(32, 24, 16*sec))
		set(b, 4, 30, time.Minute)
		want(t, "smaller", b.Peek(), allowed(4, 0, 8*sec))
		set(b, 4, 1, time.Minute)
		want(t, "slower", b.Peek(), allowed(4, 0, 4*time.Minute))
		set(b, 32, 30, time.Minute)
		want(t, "large again", b.Peek(), allowed(32, 24, 16*sec))
		set(b, 4, 1, time.Minute)
		if q := b.Quota(); q != (leaky.Quota{Capacity: 4, Count: 1, Per: time.Minute}) {
			t.Errorf("Quota() = %v", q)
		}
	})
}

func TestImpossibleQuotas(t *testing.T) {
	for _, v := range []struct {
		quota leaky.Quota
		text  string
	}{
		{leaky.Quota{0, 1, sec}, "leaky: quota of 0, 1 per 1s: the capacity must be positive"},
		{leaky.Quota{math.MinInt64, 1, sec}, "the capacity must be positive"},
		{leaky.Quota{1, 0, sec}, "the count must be positive"},
		{leaky.Quota{1, -1, sec}, "the count must be positive"},
		{leaky.Quota{1, 1, 0}, "the period must be positive"},
		{leaky.Quota{1, 1, -sec}, "the period must be positive"},
		{leaky.Quota{1, 1_000_001, sec}, "more than 1000000 per second"},
		{leaky.Quota{1, math.MaxInt64, 1}, "more than 1000000 per second"},
		{leaky.Quota{1 << 62, 1, sec}, "takes longer than 146 years to drain"},
		{leaky.Quota{146 * 366, 1, 24 * time.Hour}, "takes longer than 146 years to drain"},
		{leaky.Quota{1, 1_000_000, sec}, ""},
		{leaky.Quota{145 * 366, 1, 24 * time.Hour}, ""},
	} {
		b := leaky.New(3, 1, sec)
		b.Take(1)
		k, err := leaky.NewKeyed[int](leaky.Quota{3, 1, sec}, leaky.KeyedConfig{})
		if err != nil {
			t.Fatal(err)
		}
		_, errWith := leaky.NewWith(v.quota)
		_, errKeyed := leaky.NewKeyed[string](v.quota, leaky.KeyedConfig{})
		for name, err := range map[string]error{
			"Check": v.quota.Check(), "NewWith": errWith, "NewKeyed": errKeyed,
			"SetQuota": b.SetQuota(v.quota), "Keyed.SetQuota": k.SetQuota(v.quota),
			"New":       panicOf(func() { leaky.New(v.quota.Capacity, v.quota.Count, v.quota.Per) }),
			"TakeQuota": panicOf(func() { k.TakeQuota(1, v.quota, 1) }),
		} {
			switch {
			case v.text == "" && err != nil:
				t.Errorf("%s, %v: %v", name, v.quota, err)
			case v.text != "" && (err == nil || !strings.HasPrefix(err.Error(), "leaky: ") || !strings.Contains(err.Error(), v.text)):
				t.Errorf("%s, %v: %v, want %s", name, v.quota, err, v.text)
			}
		}
		if v.text != "" && (b.Quota() != leaky.Quota{3, 1, sec} || k.Quota() != b.Quota() || b.Peek().Remaining != 2) {
			t.Errorf("%v changed something", v.quota)
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

func TestNegativeNPanics(t *testing.T) {
	b := leaky.New(1, 1, sec)
	k, err := leaky.NewKeyed[int](b.Quota(), leaky.KeyedConfig{})
	if err != nil {
		t.Fatal(err)
	}
	for name, f := range map[string]func(){
		"Take":      func() { b.Take(-1) },
		"Return":    func() { b.Return(-1) },
		"Admit":     func() { b.Admit(bg, -1) },
		"Keyed":     func() { k.Take(1, -1) },
		"TakeQuota": func() { k.TakeQuota(1, b.Quota(), -1) },
		"On":        func() { k.On(1).Admit(bg, -1) },
	} {
		if err := panicOf(f); err == nil || err.Error() != "leaky: n < 0: -1" {
			t.Errorf("%s: panic %v", name, err)
		}
	}
	want(t, "after all of these", b.Peek(), allowed(1, 1, 0))
}

// A meter is what a Bucket and one key of a Keyed have in common.
type meter struct {
	limits.Limiter
	peek     func() limits.Result
	take     func(int64) limits.Result
	setQuota func(leaky.Quota) error
}

func meters(t *testing.T, q leaky.Quota) map[string]meter {
	b, err := leaky.NewWith(q)
	if err != nil {
		t.Fatal(err)
	}
	k, err := leaky.NewKeyed[string](q, leaky.KeyedConfig{})
	if err != nil {
		t.Fatal(err)
	}
	return map[string]meter{
		"Bucket": {b, b.Peek, b.Take, b.SetQuota},
		"Keyed": {
			k.On("x"),
			func() limits.Result { return k.Peek("x") },
			func(n int64) limits.Result { return k.Take("x", n) },
			k.SetQuota,
		},
	}
}

// each runs f in a bubble for each kind of meter.
func each(t *testing.T, q leaky.Quota, f func(t *testing.T, m meter)) {
	for _, name := range []string{"Bucket", "Keyed"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { f(t, meters(t, q)[name]) })
		})
	}
}

func TestAdmitAndAdjust(t *testing.T) {
	each(t, leaky.Quota{5, 1, sec}, func(t *testing.T, m meter) {
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

func TestWhatIsOwedBeyondTheCapacityIsNotSpilled(t *testing.T) {
	each(t, leaky.Quota{5, 1, sec}, func(t *testing.T, m meter) {
		set := func(capacity int64) {
			t.Helper()
			if err := m.setQuota(leaky.Quota{capacity, 1, sec}); err != nil {
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

func TestPeekWritesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, twin := leaky.New(5, 3, sec), leaky.New(5, 3, sec)
		for i := range 200 {
			time.Sleep(time.Duration(i) * 7 * ms)
			b.Peek()
			b.Take(0)
			n := int64(i%6 + 1)
			want(t, "the one that was looked at", b.Take(n), twin.Take(n))
		}
	})
}

func TestTakeDoesNotAllocate(t *testing.T) {
	b := leaky.New(5, 1, time.Hour)
	k, err := leaky.NewKeyed[string](b.Quota(), leaky.KeyedConfig{})
	if err != nil {
		t.Fatal(err)
	}
	quota := leaky.Quota{Capacity: 7, Count: 1, Per: time.Hour}
	k.Take("key", 1)
	for name, f := range map[string]func(){
		"Take":            func() { b.Take(1) },
		"Keyed.Take":      func() { k.Take("key", 1) },
		"Keyed.TakeQuota": func() { k.TakeQuota("key", quota, 1) },
		"Keyed.Peek":      func() { k.Peek("key") },
	} {
		if n := testing.AllocsPerRun(100, f); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}
