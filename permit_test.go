package sluice_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/internal/testkit/synclog"
	"github.com/sluice-go/sluice/limits"
	"github.com/sluice-go/sluice/semaphore"
)

// Acquire makes a permit for each call: beyond 64 bytes it takes a quarter longer.
func TestPermit_IsSmall(t *testing.T) {
	if unsafe.Sizeof(uintptr(0)) != 8 {
		t.Skip("its layout is for 64 bits")
	}
	if size := unsafe.Sizeof(sluice.Permit{}); size > 64 {
		t.Errorf("it takes %d bytes", size)
	}
}

// A caller that releases before it looks at the error loses nothing.
func TestPermit_Release_OfNilDoesNothing(t *testing.T) {
	g := mustGate(t, sluice.Config{Concurrency: 1})
	p, _ := g.Acquire(bg, 1)
	q, ok := g.TryAcquire(1)
	q.Release()
	if s := g.Stats(); ok || s.InFlight != 1 {
		t.Errorf("%v, %+v", ok, s)
	}
	p.Release()
}

func TestPermit_ReleaseAndSettleCountOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := mustGate(t, sluice.Config{Concurrency: 10, ConcurrencyUnit: sluice.Cost, Rate: tenPerSecond, RateUnit: sluice.Cost})
		p, _ := g.Acquire(bg, 4)
		q, _ := g.Acquire(bg, 2) // at 400 ms
		p.Release()
		p.Release()
		if s := g.Stats(); s.InFlight != 2 {
			t.Errorf("released twice: %d in flight, want 2", s.InFlight)
		}
		slot := func() time.Duration { return time.Until(g.Stats().NextSlot) }
		if got := slot(); got != 200*ms {
			t.Errorf("next slot in %v", got)
		}
		q.Settle(12) // debt, beyond the limit of 10 in flight, too
		q.Settle(1)
		if s := g.Stats(); s.InFlight != 12 || slot() != 1200*ms {
			t.Errorf("settled upwards: %d in flight, next slot in %v", s.InFlight, slot())
		}
		p.Settle(1) // after Release: 3 too many were taken
		if s := g.Stats(); s.InFlight != 12 || slot() != 900*ms {
			t.Errorf("settled downwards: %d in flight, next slot in %v", s.InFlight, slot())
		}
		q.Release()
		if s := g.Stats(); s.InFlight != 0 {
			t.Errorf("%d in flight after all was released", s.InFlight)
		}
	})
}

// # Permits of a semaphore

// shared is a semaphore as if it were on another machine.
type shared struct {
	*semaphore.Weighted
	lost chan struct{}
}

func (s shared) Acquire(ctx context.Context, n int64, longest time.Duration) (limits.Lease, error) {
	if err := s.AcquireWithin(ctx, n, longest); err != nil {
		return nil, err
	}
	return lease{s, n}, nil
}

type lease struct {
	shared
	n int64
}

func (l lease) Release()              { l.Weighted.Release(l.n) }
func (l lease) Lost() <-chan struct{} { return l.lost }

func TestConfig_Semaphore_Remote(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sem := shared{semaphore.NewWeighted(2), nil}
		g := mustGate(t, sluice.Config{Name: "api", Semaphore: sem, Rate: tenPerSecond})
		l := synclog.New()
		for i := range 3 {
			l.Call(i, func() error { return hold(g, time.Second) })
		}
		if _, ok := g.TryAcquire(1); ok {
			t.Error("overtook")
		}
		if _, err := g.AcquireWithin(bg, 1, 500*ms); !errors.Is(err, limits.ErrTimeout) {
			t.Errorf("AcquireWithin: %v", err)
		}
		// A permit in time, but then the slot is too late: the permit goes back.
		g.PauseUntil(time.Now().Add(time.Hour), "")
		sem.SetLimit(10)
		var wait *limits.WaitError
		if _, err := g.AcquireWithin(bg, 1, time.Second); !errors.As(err, &wait) {
			t.Errorf("AcquireWithin of a paused gate: %v", err)
		}
		g.Resume()
		time.Sleep(time.Minute)
		l.Want(t, synclog.At(0, time.Second), synclog.At(1, 1100*ms), synclog.At(2, 1500*ms))
		if sem.InFlight() != 0 {
			t.Errorf("%d permits lost", sem.InFlight())
		}
	})
}

func TestConfig_Semaphore_LostLeaseEndsTheCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sem := shared{semaphore.NewWeighted(2), make(chan struct{})}
		g := mustGate(t, sluice.Config{Semaphore: sem})
		call := func(ctx context.Context) error {
			<-ctx.Done()
			return context.Cause(ctx)
		}
		var errDo, errCall error
		var wg sync.WaitGroup
		wg.Go(func() { errDo = g.Do(bg, call) })
		wg.Go(func() { errCall = sluice.Retry(bg, g, call, sluice.RetryPolicy{Attempts: 1}) })
		synctest.Wait()
		close(sem.lost)
		wg.Wait()
		if errDo != limits.ErrLeaseLost || !errors.Is(errCall, limits.ErrLeaseLost) {
			t.Errorf("Gate.Do: %v, Do: %v", errDo, errCall)
		}
		// A call that is done leaves no goroutine that waits for the loss.
		sem.lost = make(chan struct{})
		g = mustGate(t, sluice.Config{Semaphore: sem})
		if err := g.Do(bg, func(context.Context) error { return nil }); err != nil {
			t.Error(err)
		}
	})
}

func TestRetry_LostLeaseIsTheReason(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lost := make(chan struct{})
		close(lost)
		g := mustGate(t, sluice.Config{Semaphore: shared{semaphore.NewWeighted(1), lost}})
		err := sluice.Retry(bg, g, func(ctx context.Context) error {
			<-ctx.Done()
			return ctx.Err()
		}, sluice.RetryPolicy{Attempts: 1})
		if !errors.Is(err, limits.ErrLeaseLost) {
			t.Error(err)
		}
	})
}

func TestRetry_LostLeaseEndsTheAttemptOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lease := &brittleLease{}
		g := mustGate(t, sluice.Config{Semaphore: lease})
		s := newServer(func(ctx context.Context) error {
			go func() {
				time.Sleep(time.Second)
				close(lease.lost)
			}()
			<-ctx.Done()
			if cause := context.Cause(ctx); cause != limits.ErrLeaseLost {
				t.Errorf("the attempt ended because of %v", cause)
			}
			return ctx.Err()
		}, fine)
		if err := sluice.Retry(bg, g, s.call, each(time.Second)); err != nil {
			t.Error(err)
		}
		s.want(t, 0, 2*time.Second)
		if lease.lent != 2 || lease.back != 2 {
			t.Errorf("%d permits lent, %d given back", lease.lent, lease.back)
		}
	})
}

// brittleLease lends any number of permits, one after the other.
type brittleLease struct {
	lent, back int
	lost       chan struct{}
}

func (l *brittleLease) Acquire(context.Context, int64, time.Duration) (limits.Lease, error) {
	l.lent++
	l.lost = make(chan struct{})
	return l, nil
}

func (l *brittleLease) Release()              { l.back++ }
func (l *brittleLease) Lost() <-chan struct{} { return l.lost }

// What a call waited for its permit counts for AcquireWithin.
func TestConfig_Semaphore_WaitIsPartOfAcquireWithin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sem := semaphore.NewWeighted(1)
		g := mustGate(t, sluice.Config{Rate: sluice.Rate{Count: 1, Per: 12 * time.Second}, Semaphore: shared{sem, nil}})
		hold(g, 0)
		sem.TryAcquire(1)
		time.AfterFunc(6*time.Second, func() { sem.Release(1) })
		start := time.Now()
		_, err := g.AcquireWithin(bg, 1, 10*time.Second)
		var wait *limits.WaitError
		if !errors.As(err, &wait) || wait.Need != 6*time.Second || wait.Have != 4*time.Second || time.Since(start) != 6*time.Second {
			t.Errorf("%v after %v", err, time.Since(start))
		}
		if sem.InFlight() != 0 {
			t.Error("the permit was not given back")
		}
	})
}
