package sluice_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/internal/testkit/synclog"
	"github.com/sluice-go/sluice/limits"
)

func TestQueue_Acquire_InOrderAndOnlyTheFirstAsks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &bucket{capacity: 2, interval: 100 * ms}
		b, l := sluice.NewQueue(m), synclog.New()
		for i, n := range []int64{1, 1, 2, 1, 0} {
			l.Call(i, func() error { return b.Acquire(bg, n) })
		}
		if b.TryAcquire(1) || b.Waiting() != 2 || m.asks() != 3 {
			t.Errorf("%d wait and the bucket was asked %d times", b.Waiting(), m.asks())
		}
		time.Sleep(time.Minute)
		l.Want(t, synclog.At(0, 0), synclog.At(1, 0), synclog.At(4, 0), synclog.At(2, 200*ms), synclog.At(3, 300*ms))
		// 0 and 1 at once; 2 twice, 3 twice.
		if m.asks() != 6 {
			t.Errorf("the bucket was asked %d times, want 6", m.asks())
		}
		if !b.TryAcquire(2) || b.TryAcquire(1) || !b.TryAcquire(0) {
			t.Error("TryAcquire does not return what the bucket answers")
		}
	})
}

func TestQueue_Acquire_CancelAndDeadlines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &bucket{capacity: 1, interval: time.Second}
		b, l := sluice.NewQueue(m), synclog.New()
		b.TryAcquire(1)
		ctx, cancel := context.WithCancel(bg)
		short, cancelShort := context.WithTimeout(bg, 300*ms)
		defer cancelShort()
		within := func(d time.Duration) func() error {
			return func() error { return b.AcquireWithin(bg, 1, d) }
		}
		l.Call(0, within(999*ms)) // it is first in the queue, so it fails at once
		l.Call(1, func() error { return b.Acquire(short, 1) })
		l.Call(2, func() error { return b.Acquire(ctx, 1) })   // first in the queue from now on
		l.Call(3, within(0))                                   // another call waits
		l.Call(4, within(500*ms))                              // 2 has 1 s to wait, and leaves first
		l.Call(5, func() error { return b.Acquire(short, 1) }) // likewise
		l.Call(6, within(1000*ms))                             // exactly in time, when 2 is gone
		l.Call(7, within(2000*ms))
		l.Call(8, within(2999*ms))
		time.Sleep(600 * ms)
		cancel()
		time.Sleep(time.Minute)
		var wait *limits.WaitError
		for _, left := range l.Sofar() {
			switch left.Caller {
			case 0, 1, 3, 4, 5, 8:
				if !errors.As(left.Err, &wait) {
					t.Errorf("caller %d: %v, want a WaitError", left.Caller, left.Err)
				}
			}
		}
		l.Want(t,
			synclog.Failed(0, 0, context.DeadlineExceeded),
			synclog.Failed(1, 0, context.DeadlineExceeded),
			synclog.Failed(3, 0, context.DeadlineExceeded),
			synclog.Failed(4, 0, context.DeadlineExceeded),
			synclog.Failed(5, 0, context.DeadlineExceeded),
			synclog.Failed(2, 600*ms, context.Canceled),
			synclog.At(6, 1000*ms),
			synclog.At(7, 2000*ms),
			synclog.Failed(8, 2000*ms, context.DeadlineExceeded),
		)
		if b.Waiting() != 0 {
			t.Errorf("%d wait", b.Waiting())
		}
		done, cancel := context.WithCancel(bg)
		cancel()
		asked := m.asks()
		if err := b.Acquire(done, 1); err != context.Canceled || m.asks() != asked {
			t.Errorf("done before the call: %v", err)
		}
		if err := b.Acquire(done, 0); err != context.Canceled {
			t.Errorf("done before the call of nothing: %v", err)
		}
	})
}

func TestQueue_Acquire_ReturnsErrorsOfTheLimiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &bucket{capacity: 3, interval: time.Second}
		b := sluice.NewQueue(m)
		if err := b.Acquire(bg, 4); err != limits.ErrTooLarge {
			t.Errorf("4 of 3: %v", err)
		}
		broken := errors.New("away")
		m.err = broken
		if err := b.Acquire(bg, 1); err != broken || b.TryAcquire(1) {
			t.Errorf("a limit that cannot be asked: %v", err)
		}
		m.err = nil
		if !b.TryAcquire(3) {
			t.Error("something was taken")
		}
	})
}

// A limit may take its time to answer. Meanwhile callers queue, cancel, and
// the lock of the queue is free.
func TestQueue_Acquire_SlowLimiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &bucket{capacity: 1, interval: 100 * ms, trip: 10 * ms}
		b, l := sluice.NewQueue(m), synclog.New()
		ctx, cancel := context.WithCancel(bg)
		l.Call(0, func() error { return b.Acquire(bg, 1) })
		l.Call(1, func() error { return b.Acquire(ctx, 1) })
		l.Call(2, func() error { return b.Acquire(bg, 1) })
		if b.Waiting() != 3 {
			t.Errorf("%d wait while the first asks", b.Waiting())
		}
		time.Sleep(15 * ms) // 0 is through, 1 asks
		cancel()
		time.Sleep(time.Minute)
		l.Want(t,
			synclog.At(0, 10*ms),
			synclog.Failed(1, 15*ms, context.Canceled),
			synclog.At(2, 120*ms), // asked from 15 to 25, refused until 110, asked again
		)
	})
}

type panicking struct{}

func (panicking) Admit(context.Context, int64) (time.Duration, error) { panic("mine") }
func (panicking) Adjust(context.Context, int64, time.Duration) error  { return nil }

func TestQueue_Acquire_LimiterPanics(t *testing.T) {
	b := sluice.NewQueue(panicking{})
	for range 2 {
		for name, f := range map[string]func(){
			"Acquire":    func() { b.Acquire(bg, 1) },
			"TryAcquire": func() { b.TryAcquire(1) },
			"Wait":       func() { b.Wait(bg) },
		} {
			func() {
				defer func() {
					if recover() != "mine" {
						t.Errorf("%s: the panic did not propagate", name)
					}
				}()
				f()
			}()
		}
	}
	if b.Waiting() != 0 {
		t.Errorf("%d wait", b.Waiting())
	}
}

// If only a change can make a limiter let the first call through, calls that queue
// behind it do not ask the limiter again.
func TestQueue_Acquire_NewcomersDoNotMakeTheFirstAskAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asks := 0
		b := sluice.NewQueue(answering(func(context.Context, int64) (time.Duration, error) {
			asks++
			return limits.Never, nil
		}))
		ctx, cancel := context.WithCancel(bg)
		var wg sync.WaitGroup
		for range 100 {
			wg.Go(func() { b.Acquire(ctx, 1) })
			synctest.Wait()
			b.TryAcquire(1)
		}
		if asks != 1 {
			t.Errorf("asked %d times", asks)
		}
		cancel()
		wg.Wait()
	})
}

func TestQueue_TryAcquire_ZeroIsGrantedAtOnce(t *testing.T) {
	asks := 0
	q := sluice.NewQueue(answering(func(context.Context, int64) (time.Duration, error) {
		asks++
		return limits.Never, nil
	}))
	if !q.TryAcquire(0) || q.Acquire(bg, 0) != nil || q.AcquireWithin(bg, 0, 0) != nil || asks > 0 {
		t.Errorf("nothing is refused, or was asked for %d times", asks)
	}
}
