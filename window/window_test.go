package window_test

import (
	"context"
	"errors"
	"math"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	// So that tests in other places than the tester's find these places.
	_ "time/tzdata"

	"go.uber.org/goleak"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/internal/testkit/queued"
	"github.com/sluice-go/sluice/internal/testkit/synclog"
	"github.com/sluice-go/sluice/limits"
	"github.com/sluice-go/sluice/window"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// bg is for waits that nothing but the limit ends.
var bg = context.Background()

// A limit is what Sliding and Fixed have in common.
type limit interface {
	limits.Limiter
	Take(n int64) limits.Result
	Snapshot() []byte
	Restore(data []byte) error
}

// kinds returns one of each kind, all of n per 24 h. In a bubble it is
// midnight.
func kinds(n int64) map[string]limit {
	return map[string]limit{
		"sliding":  limits.Must(window.NewSliding(window.Quota{Limit: n, Window: 24 * time.Hour})),
		"fixed":    limits.Must(window.NewFixed(window.Quota{Limit: n, Window: 24 * time.Hour})),
		"calendar": limits.Must(window.NewFixed(window.Quota{Limit: n, Per: window.Day})),
	}
}

var _ notifier = (*window.Counter)(nil)

type notifier interface {
	limits.Limiter
	OnChange(f func()) (stop func())
}

func want(t *testing.T, what string, got, want limits.Result) {
	t.Helper()
	if got != want {
		t.Errorf("%s: %+v, want %+v", what, got, want)
	}
}

func TestLimits_Verbs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const day = 24 * time.Hour
		for name, l := range kinds(3) {
			want(t, name, l.Take(0), limits.Result{Limit: 3, Remaining: 3})
			want(t, name, l.Take(0), l.Take(0))
			want(t, name, l.Take(2), limits.Result{Limit: 3, Remaining: 1, ResetAfter: day})
			want(t, name, l.Take(2), limits.Result{Limit: 3, Remaining: 1, RetryAfter: day, ResetAfter: day})
			want(t, name, l.Take(4), limits.Result{Limit: 3, Remaining: 1, RetryAfter: limits.Never, ResetAfter: day})
			if err := l.Take(4).Err(); !errors.Is(err, limits.ErrTooLarge) {
				t.Errorf("%s: 4 of 3: %v", name, err)
			}
			l.Adjust(bg, -1, 0)
			want(t, name, l.Take(2), limits.Result{Limit: 3, ResetAfter: day})
			want(t, name, l.Take(0), limits.Result{Limit: 3, ResetAfter: day})
			if wait, err := l.Admit(bg, 1); wait != day || err != nil {
				t.Errorf("%s: Admit when full: %v, %v", name, wait, err)
			}
			if wait, err := l.Admit(bg, 4); wait != 0 || err != limits.ErrTooLarge {
				t.Errorf("%s: Admit of too much: %v, %v", name, wait, err)
			}
			done, cancel := context.WithCancel(bg)
			cancel()
			l.Adjust(bg, -3, 0)
			if wait, err := l.Admit(done, 1); wait != 0 || err != context.Canceled || l.Take(0).Remaining != 3 {
				t.Errorf("%s: Admit with a done context: %v, %v, %+v", name, wait, err, l.Take(0))
			}
			if wait, err := l.Admit(bg, 3); wait != 0 || err != nil {
				t.Errorf("%s: Admit: %v, %v", name, wait, err)
			}
			if err := l.Adjust(done, -2, 0); err != nil || l.Take(0).Remaining != 2 {
				t.Errorf("%s: giving back with a done context: %v, %+v", name, err, l.Take(0))
			}
			l.Adjust(bg, 7, 0)
			l.Adjust(bg, -5, 0)
			want(t, name, l.Take(0), limits.Result{Limit: 3, ResetAfter: day})
			l.Adjust(bg, -math.MaxInt64, 0)
			want(t, name, l.Take(0), limits.Result{Limit: 3, Remaining: 3})
		}
	})
}

func TestSliding_AWholeDay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := limits.Must(window.NewSliding(window.Quota{Limit: 3, Window: 10 * time.Second}))
		for _, c := range []struct {
			at      time.Duration
			n       int64
			allowed bool
			wait    time.Duration
		}{
			{0, 1, true, 0}, {4, 2, true, 0}, {9, 1, false, 1}, {9, 3, false, 5}, {10, 1, true, 0}, {10, 1, false, 4}, {14, 2, true, 0},
		} {
			time.Sleep(time.Until(time.Date(2000, 1, 1, 0, 0, int(c.at), 0, time.UTC)))
			if got := l.Take(c.n); got.Allowed() != c.allowed || got.RetryAfter != c.wait*time.Second {
				t.Errorf("%d at %d s: %+v", c.n, c.at, got)
			}
		}
	})
}

// What the doc of Fixed warns of. A Sliding does not do it.
func TestFixed_TwiceTheLimitAroundMidnight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fixed, sliding := limits.Must(window.NewFixed(window.Quota{Limit: 5000, Per: window.Day})), limits.Must(window.NewSliding(window.Quota{Limit: 5000, Window: 24 * time.Hour}))
		time.Sleep(24*time.Hour - 1)
		got := [2]int{}
		for range 2 {
			for range 6000 {
				for i, l := range []limit{fixed, sliding} {
					if l.Take(1).Allowed() {
						got[i]++
					}
				}
			}
			time.Sleep(time.Nanosecond)
		}
		if got != [2]int{10_000, 5000} {
			t.Errorf("within a nanosecond %d calls pass the fixed window and %d the sliding one", got[0], got[1])
		}
	})
}

func TestLimits_SetQuota(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := limits.Must(window.NewSliding(window.Quota{Limit: 5, Window: 10 * time.Second}))
		for range 5 {
			l.Take(1)
			time.Sleep(time.Second)
		} // at 0, 1, 2, 3, 4; now it is 5
		if err := l.SetQuota(window.Quota{Limit: 2, Window: 10 * time.Second}); err != nil {
			t.Error(err)
		}
		if got := l.Take(1); got.RetryAfter != 8*time.Second || got.Limit != 2 || got.Remaining != 0 {
			t.Errorf("one of two, four too many: %+v", got) // when the one at 3 leaves
		}
		l.SetQuota(window.Quota{Limit: 5, Window: 3 * time.Second}) // 3, 4 are left
		if got := l.Take(3); !got.Allowed() || got.Remaining != 0 {
			t.Errorf("three of five in 3 s: %+v", got)
		}
		time.Sleep(time.Second)
		l.SetQuota(window.Quota{Limit: 5, Window: time.Hour}) // what has left does not come back: 4, 5, 5, 5 are left
		if got := l.Take(2); got.RetryAfter != time.Hour-2*time.Second || got.Remaining != 1 {
			t.Errorf("two of five in an hour: %+v", got)
		}

		c := limits.Must(window.NewFixed(window.Quota{Limit: 5, Per: window.Day}))
		c.Take(4)
		if err := c.SetQuota(window.Quota{Limit: 3, Per: window.Day}); err != nil || c.Take(0).Remaining != 0 || c.Take(1).RetryAfter != 24*time.Hour-6*time.Second {
			t.Errorf("%v, %+v", err, c.Take(0))
		}
		if err := c.SetQuota(window.Quota{Limit: 5, Per: window.Day}); err != nil || c.Take(0).Remaining != 1 || c.Take(0).Limit != 5 {
			t.Errorf("%v, %+v", err, c.Take(0))
		}
	})
}

// second returns the error of a constructor.
func second[L any](_ L, err error) error { return err }

func TestNew_BadNumbers(t *testing.T) {
	panics := func(what string, f func()) {
		t.Helper()
		defer func() {
			if msg, _ := recover().(string); !strings.HasPrefix(msg, "window: ") {
				t.Errorf("%s panics with %q", what, msg)
			}
		}()
		f()
	}
	fails := func(err error) {
		t.Helper()
		if err == nil || !strings.HasPrefix(err.Error(), "window: ") {
			t.Errorf("error %v", err)
		}
	}
	l, c := limits.Must(window.NewSliding(window.Quota{Limit: 3, Window: time.Hour})), limits.Must(window.NewFixed(window.Quota{Limit: 3, Window: time.Hour}))
	l.Take(1)
	c.Take(1)
	for _, n := range []int64{0, -1, math.MinInt64} {
		fails(second(window.NewSliding(window.Quota{Limit: n, Window: time.Hour})))
		fails(second(window.NewSliding(window.Quota{Limit: 1, Window: time.Duration(n)})))
		fails(second(window.NewFixed(window.Quota{Limit: n, Window: time.Hour})))
		fails(second(window.NewFixed(window.Quota{Limit: 1, Window: time.Duration(n)})))
		fails(second(window.NewFixed(window.Quota{Limit: n, Per: window.Day})))
		if l.SetQuota(window.Quota{Limit: n, Window: time.Hour}) == nil || l.SetQuota(window.Quota{Limit: 1, Window: time.Duration(n)}) == nil || c.SetQuota(window.Quota{Limit: n, Window: time.Hour}) == nil || c.SetQuota(window.Quota{Limit: 3, Window: 2 * time.Hour}) == nil {
			t.Errorf("%d is accepted", n)
		}
	}
	fails(second(window.NewFixed(window.Quota{Limit: 1, Per: "year"})))
	for name, l := range kinds(3) {
		panics(name+" Take", func() { l.Take(-1) })
		panics(name+" Admit", func() { l.Admit(bg, math.MinInt64) })
	}
	for _, r := range []limits.Result{l.Take(0), c.Take(0)} {
		if r.Limit != 3 || r.Remaining != 2 {
			t.Errorf("after refused numbers: %+v", r)
		}
	}
	for _, bad := range []struct {
		quota   window.Quota
		sliding bool // bad for a Sliding only
		message string
	}{
		{window.Quota{}, false, "window: quota of 0 per 0s: the limit must be positive"},
		{window.Quota{Limit: 1}, false, "window: quota of 1 per 0s: the window must be positive"},
		{window.Quota{Limit: 1, Per: "year"}, false, `window: no such calendar: "year"`},
		{window.Quota{Limit: 1, Per: "Day"}, false, `window: no such calendar: "Day"`},
		{window.Quota{Limit: 1, Per: window.Day, Window: time.Hour}, false, "window: quota of 1 per day in UTC: window of 1h0m0s besides a calendar"},
		{window.Quota{Limit: 1, Window: time.Hour, Location: time.UTC}, false, "window: quota of 1 per 1h0m0s: a location needs a calendar"},
		{window.Quota{Limit: 1, Per: window.Day}, true, "window: quota of 1 per day in UTC: a sliding window has no calendar"},
	} {
		_, err := window.NewFixed(bad.quota)
		if !bad.sliding && (err == nil || err.Error() != bad.message) || bad.sliding && err != nil {
			t.Errorf("Fixed of %v: %v, want %s", bad.quota, err, bad.message)
		}
		_, keyedErr := window.NewKeyedFixed[string](bad.quota)
		if (keyedErr == nil) != (err == nil) {
			t.Errorf("Keyed of %v: %v", bad.quota, keyedErr)
		}
		_, err = window.NewSliding(bad.quota)
		if err == nil || bad.sliding && err.Error() != bad.message {
			t.Errorf("Sliding of %v: %v", bad.quota, err)
		}
		if _, err := window.NewKeyedSliding[string](bad.quota); err == nil {
			t.Errorf("Keyed of %v is accepted", bad.quota)
		}
	}
}

func TestQueue_OfAWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := synclog.New()
		b := queued.For(limits.Must(window.NewSliding(window.Quota{Limit: 2, Window: 10 * time.Second})))
		l.Call(0, func() error { return b.Acquire(bg, 1) })
		time.Sleep(3 * time.Second)
		ctx, cancel := context.WithCancel(bg)
		l.Call(1, func() error { return b.Acquire(bg, 1) })
		l.Call(2, func() error { return b.Acquire(ctx, 2) })
		l.Call(3, func() error { return b.Acquire(bg, 1) })
		l.Call(4, func() error { return b.Acquire(bg, 3) })
		l.Call(5, func() error { return b.Acquire(bg, 1) })
		time.Sleep(time.Second)
		cancel()
		time.Sleep(time.Hour)
		l.Want(t,
			synclog.At(0, 0),
			synclog.At(1, 3*time.Second),
			synclog.Failed(2, 4*time.Second, context.Canceled),
			synclog.At(3, 10*time.Second),
			synclog.Failed(4, 10*time.Second, limits.ErrTooLarge), // its turn has come
			synclog.At(5, 13*time.Second),
		)
	})
}

// Whatever is rejected by another limit, canceled or hopeless leaves a quota
// exactly as before.
func TestGate_OfAWindow_IsLeftAsBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, l := range kinds(10) {
			other := limits.Must(window.NewSliding(window.Quota{Limit: 2, Window: time.Minute}))
			g, err := sluice.New(sluice.Config{Limits: []sluice.Limit{{Name: "first", Limiter: l}, {Name: "second", Limiter: other}}})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := g.Acquire(bg, 1); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
			before := l.Take(0)
			state := func() string { return string(l.Snapshot()) }
			saved := state()
			if _, ok := g.TryAcquire(2); ok {
				t.Errorf("%s: 2 of 1", name)
			}
			if _, err := g.Acquire(bg, 3); !errors.Is(err, limits.ErrTooLarge) {
				t.Errorf("%s: 3 of 2: %v", name, err)
			}
			var wait *limits.WaitError
			if _, err := g.AcquireWithin(bg, 2, time.Second); !errors.As(err, &wait) || wait.Need != 59*time.Second {
				t.Errorf("%s: %v", name, err)
			}
			ctx, cancel := context.WithCancel(bg)
			log := synclog.New()
			log.Call(0, func() error { _, err := g.Acquire(ctx, 2); return err })
			cancel()
			log.Want(t, synclog.Failed(0, 0, context.Canceled))
			want(t, name, l.Take(0), before)
			if got := state(); got != saved {
				t.Errorf("%s: %s, was %s", name, got, saved)
			}

			p, err := g.Acquire(bg, 1)
			if err != nil {
				t.Fatal(err)
			}
			p.Settle(15) // debt
			if got := l.Take(0); got.Remaining != 0 || l.Take(1).Allowed() {
				t.Errorf("%s: settled for 16 of 10: %+v", name, got)
			}
			if s := g.Stats(); s.Unreturned != 0 {
				t.Errorf("%s: %d stranded", name, s.Unreturned)
			}
			g.Close()
			time.Sleep(24*time.Hour - time.Second) // midnight
		}
	})
}

// However many ask at the same time, the limit is what gets through, and what is returned can be
// had again.
func TestStress_Limits(t *testing.T) {
	const callers, each = 8, 2000
	keys, err := window.NewKeyedSliding[int](window.Quota{Limit: 1000, Window: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	counters, err := window.NewKeyedFixed[int](window.Quota{Limit: 1000, Per: window.Month})
	if err != nil {
		t.Fatal(err)
	}
	all := kinds(1000)
	takes := map[string]func(int64) limits.Result{
		"keyed sliding": func(n int64) limits.Result { return keys.Take(7, n) },
		"keyed fixed":   func(n int64) limits.Result { return counters.Take(7, n) },
	}
	adjusts := map[string]func(context.Context, int64, time.Duration) error{
		"keyed sliding": keys.On(7).Adjust,
		"keyed fixed":   counters.On(7).Adjust,
	}
	for name, l := range all {
		takes[name], adjusts[name] = l.Take, l.Adjust
	}
	for name, take := range takes {
		var mu sync.Mutex
		var got int64
		var wg sync.WaitGroup
		for caller := range callers {
			wg.Go(func() {
				var mine int64
				for i := range each {
					n := int64(1 + (caller+i)%3)
					if !take(n).Allowed() {
						continue
					}
					if i%4 == 0 {
						adjusts[name](bg, -n, 0)
					} else {
						mine += n
					}
					if l, ok := all[name]; ok && i%16 == 0 {
						l.Snapshot()
						l.Take(0)
					}
				}
				mu.Lock()
				defer mu.Unlock()
				got += mine
			})
		}
		wg.Wait()
		for take(1).Allowed() {
			got++
		}
		if got != 1000 {
			t.Errorf("%s: %d of 1000 got through", name, got)
		}
	}
}

// What a call did not use is returned at its own place: returning the
// newest would free a place that lasts longer than its own.
func TestSliding_Adjust_FreesItsOwnPlace(t *testing.T) {
	for name, newLimiter := range map[string]func() (limits.Limiter, error){
		"sliding": func() (limits.Limiter, error) {
			return limits.Must(window.NewSliding(window.Quota{Limit: 3, Window: 10 * time.Second})), nil
		},
		"keyed sliding": func() (limits.Limiter, error) {
			k, err := window.NewKeyedSliding[string](window.Quota{Limit: 3, Window: 10 * time.Second})
			return k.On("k"), err
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m, err := newLimiter()
				if err != nil {
					t.Fatal(err)
				}
				g, err := sluice.New(sluice.Config{Limits: []sluice.Limit{{Limiter: m}}})
				if err != nil {
					t.Fatal(err)
				}
				first, err := g.Acquire(bg, 2)
				if err != nil {
					t.Fatal(err)
				}
				time.Sleep(4 * time.Second)
				second, err := g.Acquire(bg, 1)
				if err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Second) // 5 s
				first.Settle(1)
				if _, ok := g.TryAcquire(1); !ok {
					t.Error("what was given back was not there")
				}
				time.Sleep(5 * time.Second) // 10 s: the first has left
				if _, ok := g.TryAcquire(2); ok {
					t.Error("the calls at 4 s and 5 s are in the window, and two more would be four")
				}
				if _, ok := g.TryAcquire(1); !ok {
					t.Error("the place of the first call is not free")
				}
				time.Sleep(4500 * time.Millisecond) // 14.5 s: the second has left
				second.Settle(0)
				if _, ok := g.TryAcquire(2); ok {
					t.Error("given back after it had left")
				}
			})
		})
	}
}

func TestFixed_Adjust_DoesNotReachIntoTheNextWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, c := range map[string]*window.Counter{
			"anchored": limits.Must(window.NewFixed(window.Quota{Limit: 3, Window: 10 * time.Second})),
			"calendar": limits.Must(window.NewFixed(window.Quota{Limit: 3, Per: window.Minute})),
		} {
			g, err := sluice.New(sluice.Config{Limits: []sluice.Limit{{Limiter: c}}})
			if err != nil {
				t.Fatal(err)
			}
			p, err := g.Acquire(bg, 3)
			if err != nil {
				t.Fatal(err)
			}
			q, err := g.Acquire(bg, 3)
			if err != nil {
				t.Fatal(err)
			}
			p.Settle(0)
			if got := c.Take(0).Remaining; got != 0 {
				t.Errorf("%s: %d of another window given back", name, got)
			}
			q.Settle(1)
			if got := c.Take(0).Remaining; got != 2 {
				t.Errorf("%s: %d remain, want 2 of its own window", name, got)
			}
		}
	})
}
