package clienttest

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/leaky"
	"github.com/sluice-go/sluice/limits"
	"github.com/sluice-go/sluice/semaphore"
	"github.com/sluice-go/sluice/sluiceredis"
	"github.com/sluice-go/sluice/window"
)

// The guarantees of a limit do not depend on where it is kept. Each kind must pass the same
// tests in memory and through a client. Its limit is 5, in an hour, so that nothing comes
// back in between.

// kinds of meters, each by how it is made; in memory where s is nil.
var kinds = map[string]func(t *testing.T, s *sluiceredis.Store) limits.Limiter{
	"leaky": func(t *testing.T, s *sluiceredis.Store) limits.Limiter {
		q := limits.Rate{Burst: 5, Count: 5, Per: time.Hour}
		if s == nil {
			return limits.Must(leaky.New(limits.Rate{Count: q.Count, Per: q.Per, Burst: q.Burst}))
		}
		return must[*sluiceredis.Bucket](t)(s.Bucket("conform", q)).On("k")
	},
	"log": func(t *testing.T, s *sluiceredis.Store) limits.Limiter {
		if s == nil {
			return limits.Must(window.NewSliding(window.Quota{Limit: 5, Window: time.Hour}))
		}
		return must[*sluiceredis.Counter](t)(s.Sliding("conform", 5, time.Hour)).On("k")
	},
	"anchored": func(t *testing.T, s *sluiceredis.Store) limits.Limiter {
		if s == nil {
			return limits.Must(window.NewFixed(window.Quota{Limit: 5, Window: time.Hour}))
		}
		return must[*sluiceredis.Counter](t)(s.Fixed("conform", sluiceredis.FixedConfig{Limit: 5, Window: time.Hour})).On("k")
	},
	"together": func(t *testing.T, s *sluiceredis.Store) limits.Limiter {
		q := limits.Rate{Burst: 5, Count: 5, Per: time.Hour}
		if s == nil {
			return limits.Must(leaky.New(limits.Rate{Count: q.Count, Per: q.Per, Burst: q.Burst})) // in memory a gate does it
		}
		return together{must[*sluiceredis.Bucket](t)(s.Bucket("conform/a", q)).On("k").Join(
			must[*sluiceredis.Counter](t)(s.Sliding("conform/b", 5, time.Hour)).On("k"),
			must[*sluiceredis.Counter](t)(s.Fixed("conform/c", sluiceredis.FixedConfig{Limit: 5, Window: time.Hour})).On("k"))}
	},
	"aligned": func(t *testing.T, s *sluiceredis.Store) limits.Limiter {
		if s == nil {
			return limits.Must(window.NewFixed(window.Quota{Limit: 5, Per: window.Month}))
		}
		cfg := sluiceredis.FixedConfig{Limit: 5, Window: 100 * 24 * time.Hour, Aligned: true}
		return must[*sluiceredis.Counter](t)(s.Fixed("conform", cfg)).On("k")
	},
}

// A together is three limits as one.
type together struct{ limits.Joint }

func (j together) Admit(ctx context.Context, n int64) (time.Duration, error) {
	wait, _, err := j.AdmitAll(ctx, []int64{n, n, n}, nil)
	return wait, err
}

func (j together) Adjust(ctx context.Context, delta int64, age time.Duration) error {
	return errors.Join(j.AdjustAll(ctx, []int64{delta, delta, delta}, age)...)
}

// everyLimit tests all kinds, through c or, if that is nil, in memory.
func everyLimit(t *testing.T, c sluiceredis.Client) {
	for kind, create := range kinds {
		for name, test := range map[string]func(t *testing.T, m limits.Limiter){
			"meter": meter, "gate": inGate, "blocking": blocking,
		} {
			t.Run(name+" "+kind, func(t *testing.T) {
				var s *sluiceredis.Store
				if c != nil {
					s = store(t, c)
				}
				test(t, create(t, s))
			})
		}
	}
	t.Run("permits", func(t *testing.T) {
		if c == nil {
			permits(t, local{semaphore.NewWeighted(5)})
			return
		}
		permits(t, must[*sluiceredis.Semaphore](t)(store(t, c).Semaphore("conform", 5, sluiceredis.SemaphoreConfig{Poll: ms})))
	})
}

func meter(t *testing.T, m limits.Limiter) {
	admit := func(n int64, fits bool, want error) time.Duration {
		t.Helper()
		wait, err := m.Admit(bg, n)
		if err != want || (wait == 0) != (fits || want != nil) {
			t.Errorf("%d: %v, %v; want it to fit: %v, %v", n, wait, err, fits, want)
		}
		return wait
	}
	adjust := func(delta int64) {
		t.Helper()
		if err := m.Adjust(bg, delta, 0); err != nil {
			t.Errorf("adjust by %d: %v", delta, err)
		}
	}
	admit(0, true, nil)
	admit(6, false, limits.ErrTooLarge)
	admit(3, true, nil)
	admit(6, false, limits.ErrTooLarge)
	if wait := admit(3, false, nil); wait > 100*24*time.Hour || wait < time.Microsecond {
		t.Errorf("a wait of %v", wait)
	}
	admit(2, true, nil) // a rejection took nothing
	admit(1, false, nil)
	admit(0, true, nil)
	adjust(-2) // units just taken are returned
	admit(3, false, nil)
	admit(2, true, nil)
	adjust(3) // beyond the limit
	adjust(-3)
	admit(1, false, nil)
	adjust(-5)
	admit(5, true, nil)
	ctx, cancel := context.WithCancel(bg)
	cancel()
	if _, err := m.Admit(ctx, 1); err != context.Canceled {
		t.Errorf("a context that is done: %v", err)
	}
	func() {
		defer func() {
			if recover() == nil {
				t.Error("n < 0 does not panic")
			}
		}()
		_, _ = m.Admit(bg, -1)
	}()
}

// All of a gate's limits or none: if one rejects, the others have lost nothing.
func inGate(t *testing.T, m limits.Limiter) {
	other := limits.Must(window.NewSliding(window.Quota{Limit: 2, Window: time.Hour}))
	gate := must[*sluice.Gate](t)(sluice.New(sluice.Config{
		Limits: []sluice.Limit{{Name: "here", Limiter: m}, {Name: "other", Limiter: other}},
	}))
	for range 2 {
		if _, ok := gate.TryAcquire(1); !ok {
			t.Fatal("two fit")
		}
	}
	for range 3 {
		if _, ok := gate.TryAcquire(1); ok {
			t.Fatal("three do not")
		}
	}
	if wait, err := m.Admit(bg, 3); wait != 0 || err != nil {
		t.Errorf("three of five are left: %v, %v", wait, err)
	}
	if got := gate.Stats().Unreturned; got != 0 {
		t.Errorf("%d stranded", got)
	}
}

// Many concurrent callers get exactly the limit, here through the blocking verbs.
func blocking(t *testing.T, m limits.Limiter) {
	gate := limits.Must(sluice.New(sluice.Config{Limits: []sluice.Limit{{Limiter: m}}}))
	var got atomic.Int64
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			if _, err := gate.AcquireWithin(bg, 1, 10*sec); err == nil {
				got.Add(1)
			}
		})
	}
	wg.Wait()
	if got.Load() != 5 {
		t.Errorf("%d got through, 5 fit", got.Load())
	}
}

// local adapts a semaphore in memory to a gate.
type local struct{ *semaphore.Weighted }

type localLease struct{ release func() }

func (l localLease) Release()              { l.release() }
func (l localLease) Lost() <-chan struct{} { return nil }

func (l local) Acquire(ctx context.Context, n int64, longest time.Duration) (limits.Lease, error) {
	if err := l.AcquireWithin(ctx, n, longest); err != nil {
		return nil, err
	}
	return localLease{func() { l.Weighted.Release(n) }}, nil
}

func permits(t *testing.T, p limits.Semaphore) {
	lend := func(n int64, want error) limits.Lease {
		t.Helper()
		l, err := p.Acquire(bg, n, 0)
		if err != want {
			t.Errorf("%d: %v, want %v", n, err, want)
		}
		return l
	}
	three := lend(3, nil)
	lend(6, limits.ErrTooLarge)
	two := lend(2, nil)
	lend(1, limits.ErrTimeout)
	three.Release()
	three = lend(3, nil)
	two.Release()
	three.Release()
	lend(5, nil).Release()
	var out, peak atomic.Int64
	gate := must[*sluice.Gate](t)(sluice.New(sluice.Config{Semaphore: p}))
	var wg sync.WaitGroup
	for range 40 {
		wg.Go(func() {
			if err := gate.Do(bg, func(context.Context) error {
				for now := out.Add(1); ; {
					if old := peak.Load(); now <= old || peak.CompareAndSwap(old, now) {
						break
					}
				}
				time.Sleep(100 * time.Microsecond)
				out.Add(-1)
				return nil
			}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if peak.Load() > 5 {
		t.Errorf("%d at once", peak.Load())
	}
	lend(5, nil).Release()
}
