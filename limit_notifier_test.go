package sluice_test

import (
	"context"
	"errors"
	"math"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/leaky"
	"github.com/sluice-go/sluice/limits"
	"github.com/sluice-go/sluice/window"
)

var (
	_ limits.Notifier = (*leaky.Bucket)(nil)
	_ limits.Notifier = (*window.Sliding)(nil)
	_ limits.Notifier = (*window.Fixed)(nil)
)

func made[T any](t *testing.T) func(v T, err error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// emptyLimiters returns limiters of 1000 an hour that have nothing left, and how to give back
// 900 by hand.
func emptyLimiters(t *testing.T) map[string]struct {
	limiter  limits.Limiter
	giveBack func()
} {
	type row = struct {
		limiter  limits.Limiter
		giveBack func()
	}
	adjust := func(m limits.Limiter) row {
		return row{m, func() { m.Adjust(context.Background(), -900, time.Second) }}
	}
	quota := limits.Rate{Count: 1000, Per: time.Hour, Burst: 1000}
	an := window.Quota{Limit: 1000, Window: time.Hour}
	bucket, log, counter := limits.Must(leaky.New(limits.Rate{Count: 1000, Per: time.Hour, Burst: 1000})), limits.Must(window.NewSliding(window.Quota{Limit: 1000, Window: time.Hour})), limits.Must(window.NewFixed(window.Quota{Limit: 1000, Window: time.Hour}))
	buckets := made[*leaky.Keyed[string]](t)(leaky.NewKeyed[string](quota, limits.KeyedConfig{}))
	logs := made[*window.Keyed[string]](t)(window.NewKeyedSliding[string](an, limits.KeyedConfig{}))
	counters := made[*window.Keyed[string]](t)(window.NewKeyedFixed[string](an, limits.KeyedConfig{}))
	tables := map[string]row{
		"bucket":                   adjust(limits.Must(leaky.New(limits.Rate{Count: 1000, Per: time.Hour, Burst: 1000}))),
		"bucket returned":          {bucket, func() { bucket.Adjust(context.Background(), -900, 0) }},
		"log":                      adjust(limits.Must(window.NewSliding(window.Quota{Limit: 1000, Window: time.Hour}))),
		"log returned":             {log, func() { log.Adjust(context.Background(), -900, 0) }},
		"counter":                  adjust(limits.Must(window.NewFixed(window.Quota{Limit: 1000, Window: time.Hour}))),
		"limit of a counter grows": {counter, func() { counter.SetQuota(window.Quota{Limit: 2000, Window: time.Hour}) }},
		"keyed bucket":             adjust(buckets.On("a")),
		"keyed log":                adjust(logs.On("a")),
		"keyed counter":            adjust(counters.On("a")),
		"keyed limit grows":        {logs.On("b"), func() { logs.SetQuota(window.Quota{Limit: 2000, Window: time.Hour}) }},
		"quotas grow": {buckets.On("c"), func() {
			buckets.SetRate(limits.Rate{Count: 2000, Per: time.Hour, Burst: 2000})
		}},
		"limits grow": {counters.On("c"), func() { counters.SetQuota(window.Quota{Limit: 2000, Window: time.Hour}) }},
	}
	grows, larger := limits.Must(leaky.New(limits.Rate{Count: 1000, Per: time.Hour, Burst: 1000})), limits.Must(window.NewSliding(window.Quota{Limit: 1000, Window: time.Hour}))
	tables["quota grows"] = row{grows, func() { grows.SetRate(limits.Rate{Count: 2000, Per: time.Hour, Burst: 2000}) }}
	tables["limit grows"] = row{larger, func() { larger.SetQuota(window.Quota{Limit: 2000, Window: time.Hour}) }}
	for name, r := range tables {
		if wait, err := r.limiter.Admit(t.Context(), 1000); wait > 0 || err != nil {
			t.Fatal(name, wait, err)
		}
	}
	return tables
}

// A call that waits for a limiter of this process, in a gate, its parent or a Queue, leaves
// at the instant at which enough is given back by hand.
func TestNotifier_ReturnLetsTheNextLeave(t *testing.T) {
	for name := range emptyLimiters(t) {
		for way, waits := range map[string]func(m limits.Limiter) func(ctx context.Context, n int64) error{
			"gate": func(m limits.Limiter) func(context.Context, int64) error {
				return acquireOf(sluice.Config{Limits: []sluice.Limit{{Limiter: m}}})
			},
			"with a rate": func(m limits.Limiter) func(context.Context, int64) error {
				return acquireOf(sluice.Config{Rate: sluice.Rate{Count: 1000, Per: time.Second}, Concurrency: 3, Limits: []sluice.Limit{{Limiter: limits.Must(leaky.New(limits.Rate{Count: 1, Per: time.Hour, Burst: 5000}))}, {Limiter: m}}})
			},
			"of the parent": func(m limits.Limiter) func(context.Context, int64) error {
				p, _ := sluice.New(sluice.Config{Limits: []sluice.Limit{{Limiter: m}}})
				return acquireOf(sluice.Config{Parent: p})
			},
			"beside a parent": func(m limits.Limiter) func(context.Context, int64) error {
				p, _ := sluice.New(sluice.Config{Concurrency: 7})
				return acquireOf(sluice.Config{Parent: p, Limits: []sluice.Limit{{Limiter: m}}})
			},
			"of the grandparent": func(m limits.Limiter) func(context.Context, int64) error {
				p, _ := sluice.New(sluice.Config{Limits: []sluice.Limit{{Limiter: m}}})
				q, _ := sluice.New(sluice.Config{Parent: p, Limits: []sluice.Limit{{Limiter: limits.Must(leaky.New(limits.Rate{Count: 1, Per: time.Hour, Burst: 5000}))}}})
				return acquireOf(sluice.Config{Parent: q})
			},
			"block": func(m limits.Limiter) func(context.Context, int64) error { return sluice.NewQueue(m).Acquire },
		} {
			t.Run(way+"/"+name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					r := emptyLimiters(t)[name]
					wait, began := waits(r.limiter), time.Now()
					go func() {
						time.Sleep(10*time.Second + 1)
						r.giveBack()
					}()
					if err := wait(t.Context(), 500); err != nil {
						t.Fatal(err)
					}
					if d := time.Since(began); d != 10*time.Second+1 {
						t.Errorf("left after %v", d)
					}
				})
			})
		}
	}
}

// acquireOf returns how to wait in a gate of cfg, and keep the permit.
func acquireOf(cfg sluice.Config) func(ctx context.Context, n int64) error {
	g, err := sluice.New(cfg)
	return func(ctx context.Context, n int64) error {
		if err != nil {
			return err
		}
		_, err := g.Acquire(ctx, n)
		return err
	}
}

// What one gate settles lets callers leave in another gate that has the same limiter.
func TestNotifier_SettleReachesOtherGates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := limits.Must(leaky.New(limits.Rate{Count: 1000, Per: time.Hour, Burst: 1000}))
		one := made[*sluice.Gate](t)(sluice.New(sluice.Config{Limits: []sluice.Limit{{Limiter: m}}}))
		p := made[*sluice.Permit](t)(one.Acquire(t.Context(), 1000))
		began := time.Now()
		go func() {
			time.Sleep(3 * time.Second)
			p.Settle(100)
		}()
		if err := acquireOf(sluice.Config{Limits: []sluice.Limit{{Limiter: m}}})(t.Context(), 500); err != nil {
			t.Fatal(err)
		}
		if d := time.Since(began); d != 3*time.Second {
			t.Errorf("left after %v", d)
		}
	})
}

// If less than the first call needs is given back, it waits on, and what is given back
// later reaches it, too.
func TestNotifier_TooLittleReturned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := limits.Must(window.NewSliding(window.Quota{Limit: 1000, Window: time.Hour}))
		m.Take(1000)
		began := time.Now()
		go func() {
			for range 5 {
				time.Sleep(time.Second)
				m.Adjust(context.Background(), -100, 0)
			}
		}()
		if err := sluice.NewQueue(m).Acquire(t.Context(), 500); err != nil {
			t.Fatal(err)
		}
		if d := time.Since(began); d != 5*time.Second {
			t.Errorf("left after %v", d)
		}
	})
}

// An askedLimiter is a bucket that counts the calls that wait for it and how often it is
// asked.
type askedLimiter struct {
	*leaky.Bucket
	waiting, asked atomic.Int64
}

func (m *askedLimiter) Admit(ctx context.Context, n int64) (time.Duration, error) {
	m.asked.Add(1)
	return m.Bucket.Admit(ctx, n)
}

func (m *askedLimiter) OnChange(f func()) (stop func()) {
	m.waiting.Add(1)
	end := m.Bucket.OnChange(f)
	return func() {
		m.waiting.Add(-1)
		end()
	}
}

// Two gates that ask two limiters in opposite order do not wake each other with what they
// give back.
func TestNotifier_OppositeOrdersDoNotWakeEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := &askedLimiter{Bucket: limits.Must(leaky.New(limits.Rate{Count: 1, Per: time.Hour, Burst: 100}))}, &askedLimiter{Bucket: limits.Must(leaky.New(limits.Rate{Count: 1, Per: time.Hour, Burst: 100}))}
		a.Take(90)
		b.Take(90)
		ctx, cancel := context.WithTimeout(t.Context(), 1000*time.Hour)
		defer cancel()
		ended := make(chan error, 2)
		units := func(first, second limits.Limiter) []sluice.Limit {
			return []sluice.Limit{{Limiter: first, Unit: sluice.Calls}, {Limiter: second}}
		}
		for _, q := range [][]sluice.Limit{units(a, b), units(b, a)} {
			go func() {
				g, _ := sluice.New(sluice.Config{Limits: q})
				_, err := g.AcquireWithin(ctx, 12, 900*time.Hour)
				ended <- err
			}()
		}
		synctest.Wait()
		if n := a.asked.Load() + b.asked.Load(); n > 16 {
			t.Errorf("asked %d times at once", n)
		}
		a.Adjust(context.Background(), -20, 0)
		b.Adjust(context.Background(), -20, 0)
		synctest.Wait()
		for range 2 {
			select {
			case err := <-ended:
				if err != nil {
					t.Error(err)
				}
			default:
				t.Error("a call waits although both limiters have enough")
			}
		}
		if n := a.waiting.Load() + b.waiting.Load(); n != 0 {
			t.Errorf("the limiters still have %d listeners", n)
		}
	})
}

// A limiter has no listener of a call whose wait is over, however it ended.
func TestNotifier_OnlyWaitersAreRegistered(t *testing.T) {
	for name, end := range map[string]struct {
		end  func(g *sluice.Gate, m *askedLimiter, cancel func())
		want error
	}{
		"granted":   {func(g *sluice.Gate, m *askedLimiter, cancel func()) { m.Adjust(context.Background(), math.MinInt64, 0) }, nil},
		"in time":   {func(g *sluice.Gate, m *askedLimiter, cancel func()) { time.Sleep(2 * time.Hour) }, nil},
		"cancelled": {func(g *sluice.Gate, m *askedLimiter, cancel func()) { cancel() }, context.Canceled},
		"closed":    {func(g *sluice.Gate, m *askedLimiter, cancel func()) { g.Close() }, limits.ErrClosed},
		"shut down": {func(g *sluice.Gate, m *askedLimiter, cancel func()) { g.Shutdown(context.Background()) }, limits.ErrClosed},
		"too small": {func(g *sluice.Gate, m *askedLimiter, cancel func()) {
			m.SetRate(limits.Rate{Count: 1, Per: time.Hour, Burst: 5})
		}, limits.ErrTooLarge},
		"paused": {func(g *sluice.Gate, m *askedLimiter, cancel func()) {
			g.PauseUntil(time.Now().Add(time.Minute), "")
			m.Adjust(context.Background(), math.MinInt64, 0)
			time.Sleep(time.Minute)
		}, nil},
		"not enough": {func(g *sluice.Gate, m *askedLimiter, cancel func()) {
			m.Adjust(context.Background(), -1, 0)
			time.Sleep(time.Second)
			m.Adjust(context.Background(), -9, 0)
		}, nil},
	} {
		for _, parent := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					m := &askedLimiter{Bucket: limits.Must(leaky.New(limits.Rate{Count: 10, Per: time.Hour, Burst: 10}))}
					m.Take(10)
					quotas := []sluice.Limit{{Limiter: m}}
					cfg := sluice.Config{Limits: quotas}
					if parent {
						p, _ := sluice.New(cfg)
						cfg = sluice.Config{Parent: p, Limits: []sluice.Limit{{Limiter: limits.Must(leaky.New(limits.Rate{Count: 1, Per: time.Hour, Burst: 100}))}}}
					}
					g, _ := sluice.New(cfg)
					ctx, cancel := context.WithCancel(t.Context())
					defer cancel()
					ended := make(chan error, 1)
					go func() {
						_, err := g.Acquire(ctx, 10)
						ended <- err
					}()
					synctest.Wait()
					if n := m.waiting.Load(); n != 1 {
						t.Fatalf("%d noted", n)
					}
					end.end(g, m, cancel)
					synctest.Wait()
					if err := <-ended; !errors.Is(err, end.want) {
						t.Errorf("got %v, want %v", err, end.want)
					}
					synctest.Wait()
					if n := m.waiting.Load(); n != 0 {
						t.Errorf("%d still noted", n)
					}
				})
			})
		}
	}
}

// What is given back after the answer and before the call listens is not missed.
type returnsOnChange struct{ *leaky.Bucket }

func (m returnsOnChange) OnChange(f func()) func() {
	m.Adjust(context.Background(), -1, 0)
	return m.Bucket.OnChange(f)
}

func TestNotifier_ReturnBeforeRegistration(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := returnsOnChange{limits.Must(leaky.New(limits.Rate{Count: 1, Per: time.Hour, Burst: 1}))}
		m.Take(1)
		began := time.Now()
		if err := acquireOf(sluice.Config{Limits: []sluice.Limit{{Limiter: m}}})(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
		if d := time.Since(began); d != 0 {
			t.Errorf("left after %v", d)
		}
	})
}

// A limiter whose OnChange panics does not stall other calls.
type panicsOnChange struct{ *leaky.Bucket }

func (panicsOnChange) OnChange(func()) func() { panic("no") }

func TestNotifier_OnChangePanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := panicsOnChange{limits.Must(leaky.New(limits.Rate{Count: 1, Per: time.Second, Burst: 1}))}
		b := sluice.NewQueue(m)
		m.Take(1)
		func() {
			defer func() {
				if recover() == nil {
					t.Error("no panic")
				}
			}()
			b.Acquire(t.Context(), 1)
		}()
		if n := b.Waiting(); n != 0 {
			t.Errorf("%d wait", n)
		}
		time.Sleep(time.Second)
		if err := b.Acquire(t.Context(), 1); err != nil {
			t.Error(err)
		}
	})
}
