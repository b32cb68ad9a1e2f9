package semaphore_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice/internal/testkit/synclog"
	"github.com/sluice-go/sluice/limits"
)

func TestWeighted_SetLimit_ReachesWaiters(t *testing.T) {
	big := limits.ErrTooLarge
	for _, c := range []struct {
		limit, held int64
		waiting     []int64
		to          int64
		want        []synclog.Left // all at the time of the change
		inFlight    int64
	}{
		// Higher: the calls at the front that fit now leave.
		{4, 4, []int64{1, 1}, 5, []synclog.Left{synclog.At(0, ms)}, 5},
		{4, 4, []int64{1, 1}, 6, []synclog.Left{synclog.At(0, ms), synclog.At(1, ms)}, 6},
		{4, 4, []int64{3, 1}, 6, nil, 4}, // the head still does not fit: no call overtakes it
		{4, 4, []int64{3, 1}, 7, []synclog.Left{synclog.At(0, ms)}, 7},
		{4, 4, []int64{4, 4, 4}, huge, []synclog.Left{synclog.At(0, ms), synclog.At(1, ms), synclog.At(2, ms)}, 16},
		{1, 0, nil, 2, nil, 0},
		{0, 0, nil, 1, nil, 0},
		// Lower: calls for more than the limit fail.
		{4, 4, []int64{3, 1}, 2, []synclog.Left{synclog.Failed(0, ms, big)}, 4},
		{4, 4, []int64{1, 3, 2}, 2, []synclog.Left{synclog.Failed(1, ms, big)}, 4},
		{4, 4, []int64{4, 4, 3}, 3, []synclog.Left{synclog.Failed(0, ms, big), synclog.Failed(1, ms, big)}, 4},
		{4, 3, []int64{2, 1}, 0, []synclog.Left{synclog.Failed(0, ms, big), synclog.Failed(1, ms, big)}, 3},
		{4, 4, []int64{3, 1}, 3, nil, 4}, // 3 of 3 is not too much
		// Lower, and that lets a call through: the head that blocked is gone.
		{5, 2, []int64{4, 1, 3}, 3, []synclog.Left{synclog.Failed(0, ms, big), synclog.At(1, ms)}, 3},
		{5, 2, []int64{5, 4, 1, 1}, 3, []synclog.Left{synclog.Failed(0, ms, big), synclog.Failed(1, ms, big), synclog.At(2, ms)}, 3},
		{5, 1, []int64{5, 1, 1, 1}, 3, []synclog.Left{synclog.Failed(0, ms, big), synclog.At(1, ms), synclog.At(2, ms)}, 3},
		// Lower, and a call in the middle is gone: the head still blocks.
		{5, 3, []int64{3, 5, 1}, 4, []synclog.Left{synclog.Failed(1, ms, big)}, 3},
		// Lower, the blocking head is gone, and there is still no room.
		{5, 3, []int64{5, 1}, 3, []synclog.Left{synclog.Failed(0, ms, big)}, 3},
		// The same.
		{4, 3, []int64{2, 1}, 4, nil, 3},
		{0, 0, nil, 0, nil, 0},
	} {
		t.Run(fmt.Sprintf("%d of %d held, %v wait, now %d", c.held, c.limit, c.waiting, c.to), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, l := held(t, c.limit, c.held), synclog.New()
				ctx, cancel := context.WithCancel(bg)
				for i, n := range c.waiting {
					l.Call(i, func() error { return s.Acquire(ctx, n) })
				}
				time.Sleep(ms)
				mustSetLimit(t, s, c.to)
				l.Want(t, c.want...)
				wantState(t, s, c.to, c.inFlight, len(c.waiting)-len(c.want))
				cancel()
			})
		})
	}
}

func TestWeighted_SetLimit_BelowInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, l := held(t, 4, 4), synclog.New()
		mustSetLimit(t, s, 2)
		wantState(t, s, 2, 4, 0) // available: −2
		l.Call(0, func() error { return s.Acquire(bg, 1) })
		l.Call(1, func() error { return s.Acquire(bg, 2) })
		for range 2 {
			if s.TryAcquire(1) {
				t.Error("TryAcquire below zero")
			}
			if err := s.AcquireWithin(bg, 1, 0); err != limits.ErrTimeout {
				t.Errorf("AcquireWithin below zero: %v", err)
			}
			time.Sleep(ms)
			s.Release(1) // holders finish: available −1, then 0
			l.Want(t)
		}
		wantState(t, s, 2, 2, 2)
		time.Sleep(ms)
		s.Release(1)
		l.Want(t, synclog.At(0, 3*ms))
		wantState(t, s, 2, 2, 1)
		time.Sleep(ms)
		s.Release(2)
		l.Want(t, synclog.At(0, 3*ms), synclog.At(1, 4*ms))
		wantState(t, s, 2, 2, 0)
	})
}

func TestWeighted_SetLimit_LoweredAndRaisedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, l := held(t, 4, 3), synclog.New()
		l.Call(0, func() error { return s.Acquire(bg, 2) })
		time.Sleep(ms)
		mustSetLimit(t, s, 2)
		wantState(t, s, 2, 3, 1)
		time.Sleep(ms)
		mustSetLimit(t, s, 4)
		l.Want(t)
		time.Sleep(ms)
		mustSetLimit(t, s, 5)
		l.Want(t, synclog.At(0, 3*ms))
		wantState(t, s, 5, 5, 0)
	})
}

func TestWeighted_Drain(t *testing.T) {
	for _, c := range []struct {
		limit, held, lowered int64
		waiting              []int64
		want                 int64
	}{
		{4, 0, 4, nil, 4},
		{4, 1, 4, nil, 3},
		{4, 4, 4, nil, 0},
		{0, 0, 0, nil, 0},
		{4, 4, 1, nil, -3},
		{4, 4, 0, nil, -4},
		{4, 4, 3, nil, -1},
		{huge, huge, 0, nil, -huge},
		{huge, 0, huge, nil, huge},
		{4, 2, 4, []int64{3, 1}, 2}, // what is free is taken, although a call waits for more
		{4, 4, 4, []int64{1}, 0},
		{4, 4, 2, []int64{1, 2}, -2}, // permits that are never released serve no call
	} {
		t.Run(fmt.Sprintf("%d of %d held, limit now %d, %v wait", c.held, c.limit, c.lowered, c.waiting), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, l := held(t, c.limit, c.held), synclog.New()
				ctx, cancel := context.WithCancel(bg)
				for i, n := range c.waiting {
					l.Call(i, func() error { return s.Acquire(ctx, n) })
				}
				mustSetLimit(t, s, c.lowered)
				if got := s.Drain(); got != c.want {
					t.Errorf("Drain() = %d, want %d", got, c.want)
				}
				wantState(t, s, c.lowered, c.lowered, len(c.waiting))
				if got := s.Drain(); got != 0 {
					t.Errorf("the second Drain() = %d", got)
				}
				l.Want(t)
				if s.TryAcquire(1) {
					t.Error("a permit after Drain")
				}
				// Of what is out, exactly the limit may come back.
				mustPanic(t, "Release of more than that", func() { s.Release(c.lowered + 1) })
				wantState(t, s, c.lowered, c.lowered, len(c.waiting))
				cancel()
				synctest.Wait()
				s.Release(c.lowered)
				wantState(t, s, c.lowered, 0, 0)
				mustPanic(t, "Release of one more", func() { s.Release(1) })
			})
		})
	}
}

func TestWeighted_Drain_PermitsAreReleasedLikeOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, l := held(t, 4, 1), synclog.New()
		l.Call(0, func() error { return s.Acquire(bg, 4) })
		l.Call(1, func() error { return s.Acquire(bg, 1) })
		got := s.Drain()
		time.Sleep(ms)
		s.Release(got)
		l.Want(t)
		time.Sleep(ms)
		s.Release(1)
		l.Want(t, synclog.At(0, 2*ms))
		s.Release(4)
		l.Want(t, synclog.At(0, 2*ms), synclog.At(1, 2*ms))
	})
}

// 4 are out, the limit is lowered to 1, Drain forgets 3: one of the 4 is
// released, the others never, and the semaphore is as good as new.
func TestWeighted_Drain_ForgottenPermits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, l := held(t, 4, 4), synclog.New()
		mustSetLimit(t, s, 1)
		l.Call(0, func() error { return s.Acquire(bg, 1) })
		if got := s.Drain(); got != -3 {
			t.Errorf("Drain() = %d", got)
		}
		time.Sleep(ms)
		s.Release(1)
		l.Want(t, synclog.At(0, ms))
		wantState(t, s, 1, 1, 0)
		s.Release(1)
		mustSetLimit(t, s, 4)
		if !s.TryAcquire(4) {
			t.Error("not all 4 are there")
		}
	})
}

// A done context fails its call first, also if the limit sinks below the request
// before the goroutine notices; and what it waited for goes to the next call.
func TestWeighted_SetLimit_AfterCancel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for range 1000 {
			s, l := held(t, 4, 2), synclog.New()
			ctx, cancel := context.WithCancel(bg)
			l.Call(0, func() error { return s.Acquire(ctx, 4) })
			cancel()
			mustSetLimit(t, s, 3)
			l.Want(t, synclog.Failed(0, 0, context.Canceled))

			ctx, cancel = context.WithCancel(bg)
			l.Call(1, func() error { return s.Acquire(ctx, 3) })
			l.Call(2, func() error { return s.Acquire(bg, 1) })
			cancel()
			if got := s.Drain(); got != 0 {
				t.Fatalf("Drain took %d that belonged to the next", got)
			}
			l.Want(t, synclog.Failed(0, 0, context.Canceled), synclog.Failed(1, 0, context.Canceled), synclog.At(2, 0))
			if t.Failed() {
				return
			}
		}
	})
}

// Drain counts permits that are just being handed to a call, so it may forget
// them as it may forget any. If the call is canceled then, and has them to
// return, it must not panic for that.
func TestWeighted_Drain_BelowZeroThenCancel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for range 1000 {
			s, l := held(t, 4, 4), synclog.New()
			ctx, cancel := context.WithCancel(bg)
			l.Call(0, func() (err error) {
				defer func() {
					if p := recover(); p != nil {
						err = fmt.Errorf("panic: %v", p)
					}
				}()
				return s.Acquire(ctx, 4)
			})
			s.Release(4)
			mustSetLimit(t, s, 1)
			if got := s.Drain(); got != -3 {
				t.Fatalf("Drain() = %d", got)
			}
			cancel()
			switch got := end(l, 0); got.Err {
			case nil: // it has 4, of which 3 must never be released
				wantState(t, s, 1, 1, 0)
			case context.Canceled:
				wantState(t, s, 1, 0, 0)
			default:
				t.Fatalf("Acquire: %v", got.Err)
			}
		}
	})
}
