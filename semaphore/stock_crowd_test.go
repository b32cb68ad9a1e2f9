package semaphore_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice/internal/testkit/synclog"
	"github.com/sluice-go/sluice/limits"
	"github.com/sluice-go/sluice/semaphore"
)

// Calls for 1 that cannot be canceled sleep together, as a crowd.

func TestCrowd_IsServedInOrderOfTheCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, l := held(t, 2, 2), synclog.New()
		ctx, cancel := context.WithCancel(bg)
		defer cancel()
		for caller, acquire := range []func() error{
			func() error { return s.Acquire(bg, 1) },
			func() error { return s.Acquire(bg, 1) },
			func() error { return s.Acquire(ctx, 1) }, // of the crowd no more
			func() error { return s.Acquire(bg, 1) },
			func() error { return s.Acquire(bg, 2) },
			func() error { return s.Acquire(bg, 1) },
			func() error { return s.AcquireWithin(bg, 1, time.Hour) },
		} {
			l.Call(caller, acquire)
			wantState(t, s, 2, 2, caller+1)
			if s.TryAcquire(1) {
				t.Error("overtook")
			}
		}
		for range 7 {
			time.Sleep(time.Second)
			s.Release(1)
			synctest.Wait()
		}
		time.Sleep(time.Second)
		s.Release(2)
		l.Want(t, synclog.At(0, time.Second), synclog.At(1, 2*time.Second), synclog.At(2, 3*time.Second), synclog.At(3, 4*time.Second),
			synclog.At(4, 6*time.Second), synclog.At(5, 7*time.Second), synclog.At(6, 8*time.Second))
		wantState(t, s, 2, 1, 0)
	})
}

// More is released than the crowd wants, or than is out.
func TestCrowd_GetsWhatItWantsAndNoMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, l := held(t, 3, 3), synclog.New()
		for caller := range 2 {
			l.Call(caller, func() error { return s.Acquire(bg, 1) })
		}
		wantState(t, s, 3, 3, 2)
		func() {
			defer func() {
				if r := fmt.Sprint(recover()); !strings.Contains(r, "released more than held: 4 of 3") {
					t.Errorf("Release of 4 panics with %s", r)
				}
			}()
			s.Release(4)
		}()
		wantState(t, s, 3, 3, 2)
		s.Release(3)
		wantState(t, s, 3, 2, 0)
		l.Call(2, func() error { return s.Acquire(bg, 1) })
		l.Call(3, func() error { return s.Acquire(bg, 1) })
		wantState(t, s, 3, 3, 1)
		time.Sleep(time.Second)
		s.Release(1)
		l.Want(t, synclog.At(0, 0), synclog.At(1, 0), synclog.At(2, 0), synclog.At(3, time.Second))
	})
}

func TestCrowd_FailsWhenTheLimitSinks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, l := held(t, 1, 1), synclog.New()
		var want []synclog.Left
		for caller := range 20 {
			l.Call(caller, func() error { return s.Acquire(bg, 1) })
			want = append(want, synclog.Failed(caller, 0, limits.ErrTooLarge))
		}
		wantState(t, s, 1, 1, 20)
		mustSetLimit(t, s, 0)
		wantState(t, s, 0, 1, 0)
		s.Release(1)
		mustSetLimit(t, s, 1)
		if err := s.Acquire(bg, 1); err != nil {
			t.Error(err)
		}
		l.Call(20, func() error { return s.Acquire(bg, 1) })
		mustSetLimit(t, s, 2) // which lets one more go
		l.Want(t, append(want, synclog.At(20, 0))...)
		wantState(t, s, 2, 2, 0)
	})
}

// A call that can be canceled is not part of a crowd.
func TestCrowd_CancelBehindIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, l := held(t, 1, 1), synclog.New()
		ctx, cancel := context.WithCancel(bg)
		l.Call(0, func() error { return s.Acquire(bg, 1) })
		l.Call(1, func() error { return s.Acquire(ctx, 1) })
		time.Sleep(time.Second)
		cancel()
		wantState(t, s, 1, 1, 1)
		l.Call(2, func() error { return s.Acquire(bg, 1) })
		s.Release(1)
		synctest.Wait()
		s.Release(1)
		l.Want(t, synclog.At(0, time.Second), synclog.Failed(1, time.Second, context.Canceled), synclog.At(2, time.Second))
	})
}

// A semaphore that was made outside of a bubble is used in one, and outside again.
func TestCrowd_InABubbleAndOutside(t *testing.T) {
	s := held(t, 1, 1)
	inside := func() {
		synctest.Test(t, func(t *testing.T) {
			l := synclog.New()
			for caller := range 3 {
				l.Call(caller, func() error { return s.Acquire(bg, 1) })
			}
			for range 3 {
				time.Sleep(time.Hour) // passes immediately if all of them are seen to sleep
				s.Release(1)
				synctest.Wait()
			}
			l.Want(t, synclog.At(0, time.Hour), synclog.At(1, 2*time.Hour), synclog.At(2, 3*time.Hour))
		})
	}
	outside := func() {
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				if err := s.Acquire(bg, 1); err != nil {
					t.Error(err)
				}
				s.Release(1)
			})
		}
		for s.Waiting() < 3 {
			time.Sleep(time.Microsecond)
		}
		s.Release(1)
		wg.Wait()
		s.TryAcquire(1)
	}
	inside()
	outside()
	inside()
	outside()
}

// Many calls come and go at the same time, some with a context that can be canceled, for one
// permit and for more, while the limit changes.
func TestCrowd_Stress(t *testing.T) {
	s := semaphore.NewWeighted(3)
	var wg, done sync.WaitGroup
	stop := make(chan struct{})
	done.Go(func() {
		for i := int64(0); ; i++ {
			select {
			case <-stop:
				return
			default:
				mustSetLimit(t, s, i%4) // at 0 all waiting calls fail
				s.Waiting()
			}
			time.Sleep(50 * time.Microsecond)
		}
	})
	for worker := range 24 {
		wg.Go(func() {
			for i := range 3000 {
				ctx, cancel := bg, context.CancelFunc(func() {})
				if (i+worker)%7 == 0 {
					ctx, cancel = context.WithTimeout(bg, time.Duration(i%100)*time.Microsecond)
				}
				n := int64(1)
				if worker%8 == 0 {
					n = 2
				}
				if err := s.Acquire(ctx, n); err == nil {
					s.Release(n)
				}
				cancel()
			}
		})
	}
	wg.Wait()
	close(stop)
	done.Wait()
	if s.InFlight() != 0 || s.Waiting() != 0 {
		t.Errorf("%d are in flight, %d wait", s.InFlight(), s.Waiting())
	}
}
