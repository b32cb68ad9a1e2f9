package semaphore_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/sluice-go/sluice/internal/testkit/synclog"
	"github.com/sluice-go/sluice/limits"
	"github.com/sluice-go/sluice/semaphore"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	ms      = time.Millisecond
	forever = time.Duration(math.MaxInt64)
	huge    = int64(math.MaxInt64)
)

// bg is for waits that nothing but the semaphore ends.
var bg = context.Background()

// end returns how the call of who ended, which it must have.
func end(l *synclog.Log, who int) synclog.Left {
	left := l.Sofar()
	return left[slices.IndexFunc(left, func(c synclog.Left) bool { return c.Who == who })]
}

// took returns how long f took, in a bubble.
func took(f func()) time.Duration {
	start := time.Now()
	f()
	return time.Since(start)
}

// wantState checks everything that s tells about itself.
func wantState(t *testing.T, s *semaphore.Weighted, limit, inFlight int64, waiting int) {
	t.Helper()
	synctest.Wait()
	gotLimit, gotInFlight, gotAvailable, gotWaiting := s.Limit(), s.InFlight(), s.Available(), s.Waiting()
	if gotLimit != limit || gotInFlight != inFlight || gotAvailable != limit-inFlight || gotWaiting != waiting {
		t.Errorf("limit %d, in flight %d, available %d, waiting %d; want %d, %d, %d, %d",
			gotLimit, gotInFlight, gotAvailable, gotWaiting, limit, inFlight, limit-inFlight, waiting)
	}
}

// held returns a semaphore with n of its permits in flight.
func held(t *testing.T, limit, n int64) *semaphore.Weighted {
	t.Helper()
	s := semaphore.NewWeighted(limit)
	if !s.TryAcquire(n) {
		t.Fatalf("no %d of %d permits in a new semaphore", n, limit)
	}
	return s
}

func mustSetLimit(t *testing.T, s *semaphore.Weighted, limit int64) {
	t.Helper()
	if err := s.SetLimit(limit); err != nil {
		t.Fatal(err)
	}
}

func TestNewSemaphoreIsFree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, limit := range []int64{0, 1, 2, 1000, huge} {
			s := semaphore.NewWeighted(limit)
			wantState(t, s, limit, 0, 0)
			if err := s.Acquire(bg, limit); err != nil {
				t.Errorf("Acquire all %d: %v", limit, err)
			}
			wantState(t, s, limit, limit, 0)
			s.Release(limit)
			wantState(t, s, limit, 0, 0)
		}
	})
}

func TestCallersAreServedInTheOrderInWhichTheyCame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, l := held(t, 1, 1), synclog.New()
		var want []synclog.Left
		for i := range 64 {
			l.Call(i, func() error { return s.Acquire(bg, 1) })
			want = append(want, synclog.At(i, time.Duration(i+1)*ms))
		}
		wantState(t, s, 1, 1, 64)
		for range 64 {
			time.Sleep(ms)
			s.Release(1)
			synctest.Wait()
		}
		l.Want(t, want...)
		wantState(t, s, 1, 1, 0)
	})
}

// What AcquireWithin waits for and for how long makes no difference to the
// order: it has one place in the one queue.
func TestAllVerbsWaitInOneQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, l := held(t, 2, 2), synclog.New()
		ctx, cancel := context.WithTimeout(bg, time.Hour)
		defer cancel()
		l.Call(0, func() error { return s.AcquireWithin(bg, 2, time.Hour) })
		l.Call(1, func() error { return s.Acquire(bg, 1) })
		l.Call(2, func() error { return s.AcquireWithin(bg, 2, time.Minute) })
		l.Call(3, func() error { return s.Acquire(ctx, 2) })
		wantState(t, s, 2, 2, 4)
		for _, n := range []int64{2, 2, 1, 2} {
			time.Sleep(ms)
			s.Release(n)
		}
		l.Want(t, synclog.At(0, 1*ms), synclog.At(1, 2*ms), synclog.At(2, 3*ms), synclog.At(3, 4*ms))
	})
}

func TestOneReleaseServesAllWhoFit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, l := held(t, 6, 6), synclog.New()
		for i, n := range []int64{1, 2, 3, 1, 6} {
			l.Call(i, func() error { return s.Acquire(bg, n) })
		}
		time.Sleep(ms)
		s.Release(6)
		l.Want(t, synclog.At(0, ms), synclog.At(1, ms), synclog.At(2, ms))
		wantState(t, s, 6, 6, 2)
		time.Sleep(ms)
		s.Release(6)
		l.Want(t, synclog.At(0, ms), synclog.At(1, ms), synclog.At(2, ms), synclog.At(3, 2*ms))
		wantState(t, s, 6, 1, 1)
		s.Release(1)
		l.Want(t, synclog.At(0, ms), synclog.At(1, ms), synclog.At(2, ms), synclog.At(3, 2*ms), synclog.At(4, 2*ms))
	})
}

func TestSmallRequestsDoNotOvertakeALargeOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, l := held(t, 4, 4), synclog.New()
		l.Call(0, func() error { return s.Acquire(bg, 4) })
		l.Call(1, func() error { return s.Acquire(bg, 1) })
		l.Call(2, func() error { return s.AcquireWithin(bg, 2, time.Hour) })
		for range 3 {
			time.Sleep(ms)
			s.Release(1)
			l.Want(t) // 1, 2, 3 are free, and nobody takes them
		}
		wantState(t, s, 4, 1, 3)
		time.Sleep(ms)
		s.Release(1)
		l.Want(t, synclog.At(0, 4*ms))
		time.Sleep(ms)
		s.Release(4)
		l.Want(t, synclog.At(0, 4*ms), synclog.At(1, 5*ms), synclog.At(2, 5*ms))
	})
}

func TestLargeRequestIsNotStarvedBySteadyTraffic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, l := semaphore.NewWeighted(4), synclog.New()
		var workers sync.WaitGroup
		for i := range 4 { // always 4 in flight, and one comes back every 250 µs
			workers.Go(func() {
				time.Sleep(time.Duration(i) * 250 * time.Microsecond)
				for range 100 {
					if err := s.Acquire(bg, 1); err != nil {
						t.Error(err)
					}
					time.Sleep(ms)
					s.Release(1)
				}
			})
		}
		time.Sleep(10*ms + 100*time.Microsecond)
		wantState(t, s, 4, 4, 0)
		l.Call(0, func() error { return s.Acquire(bg, 4) })
		time.Sleep(ms)
		l.Want(t, synclog.At(0, 11*ms)) // when those in flight are done, the last of whom left at 10 ms
		wantState(t, s, 4, 4, 4)
		s.Release(4)
		workers.Wait()
		wantState(t, s, 4, 0, 0)
	})
}

func TestTryAcquire(t *testing.T) {
	for _, c := range []struct {
		limit, held int64
		waiting     []int64
		n           int64
		want        bool
	}{
		{3, 0, nil, 1, true},
		{3, 0, nil, 3, true},
		{3, 1, nil, 2, true},
		{3, 1, nil, 3, false},
		{3, 3, nil, 1, false},
		{3, 0, nil, 4, false},
		{3, 0, nil, huge, false},
		{huge, 1, nil, huge - 1, true},
		{huge, 1, nil, huge, false},
		{0, 0, nil, 1, false},
		{0, 0, nil, 0, true},
		{3, 3, nil, 0, true},
		{3, 1, []int64{3}, 1, false}, // 2 are free, but somebody waits for 3
		{3, 1, []int64{3}, 2, false},
		{3, 1, []int64{3, 1}, 1, false},
		{3, 3, []int64{1}, 1, false},
		{3, 1, []int64{3}, 0, true}, // nothing is before nobody
	} {
		t.Run(fmt.Sprintf("%d of %d held, %v wait, try %d", c.held, c.limit, c.waiting, c.n), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, l := held(t, c.limit, c.held), synclog.New()
				ctx, cancel := context.WithCancel(bg)
				for i, n := range c.waiting {
					l.Call(i, func() error { return s.Acquire(ctx, n) })
				}
				if got := s.TryAcquire(c.n); got != c.want {
					t.Errorf("TryAcquire = %t", got)
				}
				inFlight := c.held
				if c.want {
					inFlight += c.n
				}
				wantState(t, s, c.limit, inFlight, len(c.waiting))
				l.Want(t)
				cancel()
			})
		})
	}
}

func TestMoreThanTheLimitFailsAtOnce(t *testing.T) {
	for _, c := range []struct{ limit, held, n int64 }{
		{0, 0, 1},
		{0, 0, huge},
		{3, 0, 4},
		{3, 3, 4}, // fails, although somebody who asks for less would wait
		{3, 1, huge},
		{huge - 1, huge - 1, huge},
	} {
		synctest.Test(t, func(t *testing.T) {
			s, l := held(t, c.limit, c.held), synclog.New()
			waiting := 0
			if c.held > 0 {
				l.Call(0, func() error { return s.Acquire(bg, c.limit) })
				waiting = 1
			}
			d := took(func() {
				for _, longest := range []time.Duration{-1, 0, time.Hour, forever} {
					if err := s.AcquireWithin(bg, c.n, longest); err != limits.ErrTooLarge {
						t.Errorf("AcquireWithin(%d, %v) of %d: %v", c.n, longest, c.limit, err)
					}
				}
				if err := s.Acquire(bg, c.n); err != limits.ErrTooLarge {
					t.Errorf("Acquire(%d) of %d: %v", c.n, c.limit, err)
				}
			})
			if d != 0 {
				t.Errorf("%d of %d: it took %v", c.n, c.limit, d)
			}
			if s.TryAcquire(c.n) {
				t.Errorf("TryAcquire(%d) of %d", c.n, c.limit)
			}
			wantState(t, s, c.limit, c.held, waiting)
			l.Want(t)
			s.Release(c.held)
			if waiting == 1 {
				l.Want(t, synclog.At(0, 0))
			}
		})
	}
}

// Nothing is granted at once, whatever else is the case.
func TestNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		empty := semaphore.NewWeighted(0)
		full, l := held(t, 2, 2), synclog.New()
		l.Call(0, func() error { return full.Acquire(bg, 1) })
		overfull := held(t, 2, 2)
		mustSetLimit(t, overfull, 1)
		for name, s := range map[string]*semaphore.Weighted{"limit 0": empty, "full, one waits": full, "overfull": overfull} {
			limit, inFlight, waiting := s.Limit(), s.InFlight(), s.Waiting()
			d := took(func() {
				if err := s.Acquire(bg, 0); err != nil {
					t.Errorf("%s: Acquire: %v", name, err)
				}
				if err := s.AcquireWithin(bg, 0, -1); err != nil {
					t.Errorf("%s: AcquireWithin: %v", name, err)
				}
				if !s.TryAcquire(0) {
					t.Errorf("%s: TryAcquire", name)
				}
			})
			if d != 0 {
				t.Errorf("%s: it took %v", name, d)
			}
			s.Release(0)
			wantState(t, s, limit, inFlight, waiting)
		}
		full.Release(2)
		l.Want(t, synclog.At(0, 0))
	})
}

func TestSetLimitReachesThoseWhoWait(t *testing.T) {
	big := limits.ErrTooLarge
	for _, c := range []struct {
		limit, held int64
		waiting     []int64
		to          int64
		want        []synclog.Left // all at the instant of the change
		inFlight    int64
	}{
		// Higher: those at the front who fit now.
		{4, 4, []int64{1, 1}, 5, []synclog.Left{synclog.At(0, ms)}, 5},
		{4, 4, []int64{1, 1}, 6, []synclog.Left{synclog.At(0, ms), synclog.At(1, ms)}, 6},
		{4, 4, []int64{3, 1}, 6, nil, 4}, // the head still does not fit: nobody overtakes it
		{4, 4, []int64{3, 1}, 7, []synclog.Left{synclog.At(0, ms)}, 7},
		{4, 4, []int64{4, 4, 4}, huge, []synclog.Left{synclog.At(0, ms), synclog.At(1, ms), synclog.At(2, ms)}, 16},
		{1, 0, nil, 2, nil, 0},
		{0, 0, nil, 1, nil, 0},
		// Lower: who asks for too much now fails.
		{4, 4, []int64{3, 1}, 2, []synclog.Left{synclog.Failed(0, ms, big)}, 4},
		{4, 4, []int64{1, 3, 2}, 2, []synclog.Left{synclog.Failed(1, ms, big)}, 4},
		{4, 4, []int64{4, 4, 3}, 3, []synclog.Left{synclog.Failed(0, ms, big), synclog.Failed(1, ms, big)}, 4},
		{4, 3, []int64{2, 1}, 0, []synclog.Left{synclog.Failed(0, ms, big), synclog.Failed(1, ms, big)}, 3},
		{4, 4, []int64{3, 1}, 3, nil, 4}, // 3 of 3 is not too much
		// Lower, and that lets somebody through: the head that blocked is gone.
		{5, 2, []int64{4, 1, 3}, 3, []synclog.Left{synclog.Failed(0, ms, big), synclog.At(1, ms)}, 3},
		{5, 2, []int64{5, 4, 1, 1}, 3, []synclog.Left{synclog.Failed(0, ms, big), synclog.Failed(1, ms, big), synclog.At(2, ms)}, 3},
		{5, 1, []int64{5, 1, 1, 1}, 3, []synclog.Left{synclog.Failed(0, ms, big), synclog.At(1, ms), synclog.At(2, ms)}, 3},
		// Lower, and somebody in the middle is gone: the head still blocks.
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

func TestLoweredBelowWhatIsInFlight(t *testing.T) {
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

func TestLoweredAndRaisedAgain(t *testing.T) {
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

func TestAcquireWithinWaitsAsLongAsAllowedAndNoLonger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, longest := range []time.Duration{1, ms, time.Hour, 100 * 365 * 24 * time.Hour} {
			s, l := held(t, 1, 1), synclog.New()
			l.Call(0, func() error { return s.AcquireWithin(bg, 1, longest) })
			time.Sleep(longest - 1)
			l.Want(t)
			wantState(t, s, 1, 1, 1)
			time.Sleep(time.Nanosecond)
			l.Want(t, synclog.Failed(0, longest, limits.ErrTimeout))
			wantState(t, s, 1, 1, 0)
			s.Release(1)
			wantState(t, s, 1, 0, 0)
		}
	})
}

func TestTimeoutMatchesDeadlineExceeded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(bg, time.Hour)
		defer cancel()
		err := held(t, 1, 1).AcquireWithin(ctx, 1, ms)
		if !errors.Is(err, limits.ErrTimeout) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v: not ErrTimeout, or does not match context.DeadlineExceeded", err)
		}
		if err == context.DeadlineExceeded || ctx.Err() != nil {
			t.Error("a context is blamed that is not done")
		}
		var timeout interface{ Timeout() bool }
		if !errors.As(err, &timeout) || !timeout.Timeout() {
			t.Errorf("%v: Timeout() is not true", err)
		}
		if errors.Is(context.DeadlineExceeded, limits.ErrTimeout) || errors.Is(err, limits.ErrTooLarge) || errors.Is(err, context.Canceled) {
			t.Errorf("%v matches too much", err)
		}
	})
}

func TestAcquireWithinNoTimeDoesNotBlock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, longest := range []time.Duration{0, -1, -time.Hour, math.MinInt64} {
			s, l := held(t, 3, 1), synclog.New()
			now := func(n int64, want error) {
				t.Helper()
				var err error
				if d := took(func() { err = s.AcquireWithin(bg, n, longest) }); err != want || d != 0 {
					t.Errorf("AcquireWithin(%d, %v) = %v after %v, want %v", n, longest, err, d, want)
				}
			}
			now(2, nil)
			s.Release(2)
			now(3, limits.ErrTimeout)
			l.Call(0, func() error { return s.Acquire(bg, 3) })
			now(1, limits.ErrTimeout) // 2 are free, but somebody waits for 3
			wantState(t, s, 3, 1, 1)
			s.Release(1)
			l.Want(t, synclog.At(0, 0))
		}
	})
}

func TestAcquireWithinForever(t *testing.T) {
	const century = 100 * 365 * 24 * time.Hour
	synctest.Test(t, func(t *testing.T) {
		s, l := held(t, 1, 1), synclog.New()
		l.Call(0, func() error { return s.AcquireWithin(bg, 1, forever) })
		l.Call(1, func() error { return s.AcquireWithin(bg, 1, forever-1) })
		time.Sleep(century)
		wantState(t, s, 1, 1, 2)
		s.Release(1)
		l.Want(t, synclog.At(0, century))
		time.Sleep(century)
		s.Release(1)
		l.Want(t, synclog.At(0, century), synclog.At(1, 2*century))
	})
}

func TestPermitOnTheLastNanosecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, l := held(t, 1, 1), synclog.New()
		l.Call(0, func() error { return s.AcquireWithin(bg, 1, ms) })
		time.Sleep(ms - 1)
		s.Release(1)
		l.Want(t, synclog.At(0, ms-1))

		s, l = held(t, 1, 1), synclog.New()
		l.Call(0, func() error { return s.AcquireWithin(bg, 1, ms) })
		time.Sleep(ms + 1)
		s.Release(1)
		l.Want(t, synclog.Failed(0, ms, limits.ErrTimeout))
		wantState(t, s, 1, 0, 0)
	})
}

// A permit that comes at the very instant at which the wait is over may be in
// time or too late: timers of one instant go off in any order, in a bubble as
// outside. It is one of the two: got and held, or not got and free.
func TestPermitExactlyWhenTheWaitIsOver(t *testing.T) {
	outcomes := map[error]int{}
	synctest.Test(t, func(t *testing.T) {
		for range 1000 {
			s, l := held(t, 2, 2), synclog.New()
			time.AfterFunc(ms, func() { s.Release(2) })
			l.Call(0, func() error { return s.AcquireWithin(bg, 2, ms) })
			l.Call(1, func() error { return s.Acquire(bg, 1) })
			time.Sleep(ms)
			synctest.Wait()
			got := end(l, 0)
			outcomes[got.Err]++
			if got.Err == nil {
				l.Want(t, synclog.At(0, ms))
				wantState(t, s, 2, 2, 1)
				s.Release(2)
			}
			l.Want(t, synclog.Failed(0, ms, got.Err), synclog.At(1, ms))
			wantState(t, s, 2, 1, 0)
			if t.Failed() {
				return
			}
		}
	})
	if outcomes[nil]+outcomes[limits.ErrTimeout] != 1000 {
		t.Errorf("outcomes: %v", outcomes)
	}
}

func TestTimedOutHeadLetsTheNextThrough(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, l := held(t, 4, 2), synclog.New()
		l.Call(0, func() error { return s.AcquireWithin(bg, 4, 5*ms) })
		l.Call(1, func() error { return s.AcquireWithin(bg, 1, 3*ms) }) // not at the head, times out earlier
		l.Call(2, func() error { return s.Acquire(bg, 1) })
		l.Call(3, func() error { return s.AcquireWithin(bg, 1, 9*ms) })
		l.Call(4, func() error { return s.AcquireWithin(bg, 1, 9*ms) })
		time.Sleep(time.Hour)
		l.Want(t,
			synclog.Failed(1, 3*ms, limits.ErrTimeout),
			synclog.Failed(0, 5*ms, limits.ErrTimeout),
			synclog.At(2, 5*ms),
			synclog.At(3, 5*ms),
			synclog.Failed(4, 9*ms, limits.ErrTimeout),
		)
		wantState(t, s, 4, 4, 0)
	})
}

// Each bound on the wait has an error of its own, and the earlier one counts.
func TestDeadlineAndLongestWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, l := held(t, 1, 1), synclog.New()
		ctx, cancel := context.WithTimeout(bg, 5*ms)
		defer cancel()
		l.Call(0, func() error { return s.Acquire(ctx, 1) })
		l.Call(1, func() error { return s.AcquireWithin(ctx, 1, 4*ms) })
		l.Call(2, func() error { return s.AcquireWithin(ctx, 1, 6*ms) })
		time.Sleep(time.Hour)
		want := []synclog.Left{
			synclog.Failed(1, 4*ms, limits.ErrTimeout),
			synclog.Failed(0, 5*ms, context.DeadlineExceeded),
			synclog.Failed(2, 5*ms, context.DeadlineExceeded),
		}
		if got := l.Sofar(); !slices.Equal(got, want) { // exactly: one matches the other
			t.Errorf("got %v, want %v", got, want)
		}
		wantState(t, s, 1, 1, 0)
	})
}

func TestDoneContextFailsBeforeAnythingIsTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cancelled, cancel := context.WithCancelCause(bg)
		cancel(errors.New("a reason")) // that is for context.Cause
		expired, cancel2 := context.WithTimeout(bg, ms)
		defer cancel2()
		time.Sleep(ms)
		synctest.Wait()
		past, cancel3 := context.WithDeadline(bg, time.Now().Add(-time.Hour))
		defer cancel3()

		for _, ctx := range []context.Context{cancelled, expired, past} {
			for _, s := range []*semaphore.Weighted{semaphore.NewWeighted(2), held(t, 2, 2), semaphore.NewWeighted(0)} {
				limit, inFlight := s.Limit(), s.InFlight()
				d := took(func() {
					for _, n := range []int64{0, 1, 2, 3, huge} { // n > limit: the context comes first
						if err := s.Acquire(ctx, n); err != ctx.Err() {
							t.Errorf("Acquire(%v, %d) = %v", ctx.Err(), n, err)
						}
						for _, longest := range []time.Duration{-1, 0, time.Hour, forever} {
							if err := s.AcquireWithin(ctx, n, longest); err != ctx.Err() {
								t.Errorf("AcquireWithin(%v, %d, %v) = %v", ctx.Err(), n, longest, err)
							}
						}
					}
				})
				if d != 0 {
					t.Errorf("%v: it took %v", ctx.Err(), d)
				}
				wantState(t, s, limit, inFlight, 0)
			}
		}
	})
}

func TestCancelLosesThePlaceAndNothingElse(t *testing.T) {
	gone := context.Canceled
	for _, c := range []struct {
		name    string
		waiting []int64
		cancel  []int
		want    []synclog.Left
	}{ // 2 of 4 are held; the cancel is at 1 ms, 2 are released at 2 ms
		{"the head, and the next goes at once", []int64{4, 2, 1}, []int{0}, []synclog.Left{synclog.Failed(0, ms, gone), synclog.At(1, ms), synclog.At(2, 2*ms)}},
		{"the head, and two go at once", []int64{4, 1, 1, 1}, []int{0}, []synclog.Left{synclog.Failed(0, ms, gone), synclog.At(1, ms), synclog.At(2, ms), synclog.At(3, 2*ms)}},
		{"the head, and the next is as large", []int64{4, 4, 1}, []int{0}, []synclog.Left{synclog.Failed(0, ms, gone), synclog.At(1, 2*ms)}},
		{"one in the middle: the head still blocks", []int64{4, 2, 1}, []int{1}, []synclog.Left{synclog.Failed(1, ms, gone), synclog.At(0, 2*ms)}},
		{"the last", []int64{3, 2, 1}, []int{2}, []synclog.Left{synclog.Failed(2, ms, gone), synclog.At(0, 2*ms)}},
		{"two at the head", []int64{4, 3, 2}, []int{0, 1}, []synclog.Left{synclog.Failed(0, ms, gone), synclog.Failed(1, ms, gone), synclog.At(2, ms)}},
		{"two at the head, the second first", []int64{4, 3, 2}, []int{1, 0}, []synclog.Left{synclog.Failed(0, ms, gone), synclog.Failed(1, ms, gone), synclog.At(2, ms)}},
		{"the only one", []int64{3}, []int{0}, []synclog.Left{synclog.Failed(0, ms, gone)}},
		{"all", []int64{3, 1, 4}, []int{0, 1, 2}, []synclog.Left{synclog.Failed(0, ms, gone), synclog.At(1, ms), synclog.Failed(2, ms, gone)}}, // 1 went before it was cancelled
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, l := held(t, 4, 2), synclog.New()
				cancel := make([]context.CancelCauseFunc, len(c.waiting))
				for i, n := range c.waiting {
					var ctx context.Context
					ctx, cancel[i] = context.WithCancelCause(bg)
					l.Call(i, func() error { return s.Acquire(ctx, n) })
				}
				time.Sleep(ms)
				for _, i := range c.cancel {
					cancel[i](errors.New("a reason")) // that is for context.Cause
					synctest.Wait()
				}
				time.Sleep(ms)
				s.Release(2)
				synctest.Wait()
				for _, cancel := range cancel {
					cancel(nil)
				}
				// Those who wait until the end are cancelled at 2 ms, too.
				for i := range c.waiting {
					if !slices.ContainsFunc(c.want, func(d synclog.Left) bool { return d.Who == i }) {
						c.want = append(c.want, synclog.Failed(i, 2*ms, gone))
					}
				}
				l.Want(t, c.want...)
				inFlight := int64(0)
				for _, d := range c.want {
					if d.Err == nil {
						inFlight += c.waiting[d.Who]
					}
				}
				wantState(t, s, 4, inFlight, 0)
			})
		})
	}
}

// The context is done before there is room: the call must fail, although it
// may learn of both only afterwards (golang/go#63615). Its goroutine need not
// have run for those behind it to be served.
func TestCancelThenRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for range 1000 {
			s, l := held(t, 2, 2), synclog.New()
			ctx, cancel := context.WithCancel(bg)
			l.Call(0, func() error { return s.Acquire(ctx, 2) })
			l.Call(1, func() error { return s.Acquire(ctx, 1) })
			l.Call(2, func() error { return s.Acquire(bg, 1) })
			cancel()
			s.Release(1)
			l.Want(t, synclog.Failed(0, 0, context.Canceled), synclog.Failed(1, 0, context.Canceled), synclog.At(2, 0))
			wantState(t, s, 2, 2, 0)
			if t.Failed() {
				return
			}
		}
	})
}

// The context ends when the permits are granted, and nearly always before the
// goroutine knows: then they go to the next. If it knew, they are its own.
func TestReleaseThenCancel(t *testing.T) {
	const rounds = 1000
	passedOn := 0
	synctest.Test(t, func(t *testing.T) {
		for range rounds {
			s, l := held(t, 2, 2), synclog.New()
			ctx, cancel := context.WithCancel(bg)
			l.Call(0, func() error { return s.Acquire(ctx, 2) })
			l.Call(1, func() error { return s.Acquire(bg, 1) })
			s.Release(2)
			cancel()
			if got := end(l, 0); got.Err == context.Canceled {
				passedOn++
				l.Want(t, got, synclog.At(1, 0))
			} else {
				l.Want(t, synclog.At(0, 0))
				wantState(t, s, 2, 2, 1)
				s.Release(2)
			}
			wantState(t, s, 2, 1, 0)
			if t.Failed() {
				return
			}
		}
	})
	if passedOn == 0 {
		t.Errorf("in none of %d rounds the permits went to the next", rounds)
	}
}

// Drain counts permits that are just being handed to a call, so it may forget
// them as it may forget any. If the call is cancelled then, and has them to
// give back, it must not panic for that.
func TestReleaseThenDrainBelowZeroThenCancel(t *testing.T) {
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

// A dead head does not block newcomers either, although its goroutine has not
// told the semaphore yet that it is dead.
func TestCancelThenCome(t *testing.T) {
	for name, come := range map[string]func(s *semaphore.Weighted) bool{
		"TryAcquire":    func(s *semaphore.Weighted) bool { return s.TryAcquire(1) },
		"AcquireWithin": func(s *semaphore.Weighted) bool { return s.AcquireWithin(bg, 1, 0) == nil },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				for range 1000 {
					s, l := held(t, 2, 1), synclog.New()
					ctx, cancel := context.WithCancel(bg)
					l.Call(0, func() error { return s.Acquire(ctx, 2) })
					cancel()
					if !come(s) {
						t.Fatal("was refused a permit that is free")
					}
					l.Want(t, synclog.Failed(0, 0, context.Canceled))
					wantState(t, s, 2, 2, 0)
				}
			})
		})
	}
}

func TestCancelRacingAGrantLosesNoPermit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for range 5000 {
			s, l := held(t, 2, 1), synclog.New()
			ctx, cancel := context.WithCancel(bg)
			l.Call(0, func() error { return s.Acquire(ctx, 2) })
			l.Call(1, func() error { return s.Acquire(bg, 1) })
			var there atomic.Int32
			together := func(f func()) {
				for there.Add(1); there.Load() < 2; runtime.Gosched() {
				}
				f()
			}
			go together(cancel)
			go together(func() { s.Release(1) })
			synctest.Wait()
			got := end(l, 0)
			if got.Err == nil {
				l.Want(t, synclog.At(0, 0))
				wantState(t, s, 2, 2, 1)
				s.Release(2)
			}
			l.Want(t, got, synclog.At(1, 0))
			wantState(t, s, 2, 1, 0)
			if err := got.Err; err != nil && err != context.Canceled {
				t.Errorf("got %v", err)
			}
			if t.Failed() {
				return
			}
		}
	})
}

func TestDrain(t *testing.T) {
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
		{4, 2, 4, []int64{3, 1}, 2}, // what is free is taken, although somebody waits for more
		{4, 4, 4, []int64{1}, 0},
		{4, 4, 2, []int64{1, 2}, -2}, // what is forgotten serves nobody
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

func TestDrainedPermitsAreReleasedLikeAnyOthers(t *testing.T) {
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
func TestAfterDrainForgotPermits(t *testing.T) {
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

func TestReleaseInPartsAndSums(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := held(t, 6, 5)
		s.Release(1)
		s.Release(2)
		s.Release(2)
		wantState(t, s, 6, 0, 0)
		for range 3 {
			if err := s.Acquire(bg, 2); err != nil {
				t.Fatal(err)
			}
		}
		s.Release(6)
		wantState(t, s, 6, 0, 0)
	})
}

func TestReleaseOfMoreThanHeldChangesNothing(t *testing.T) {
	for _, c := range []struct {
		limit, held int64
		waiting     []int64
		n           int64
	}{
		{0, 0, nil, 1},
		{4, 0, nil, 1},
		{4, 0, nil, 4},
		{4, 2, nil, 3},
		{4, 2, nil, huge},
		{4, 2, []int64{3, 1}, 3},
		{huge, huge - 1, nil, huge},
	} {
		synctest.Test(t, func(t *testing.T) {
			s, l := held(t, c.limit, c.held), synclog.New()
			ctx, cancel := context.WithCancel(bg)
			for i, n := range c.waiting {
				l.Call(i, func() error { return s.Acquire(ctx, n) })
			}
			mustPanic(t, fmt.Sprintf("Release(%d) of %d", c.n, c.held), func() { s.Release(c.n) })
			wantState(t, s, c.limit, c.held, len(c.waiting))
			l.Want(t)
			cancel()
			synctest.Wait()
			s.Release(c.held)
			wantState(t, s, c.limit, 0, 0)
		})
	}
}

func TestMistakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		done, cancel := context.WithCancel(bg)
		cancel()
		s, l := held(t, 4, 2), synclog.New()
		l.Call(0, func() error { return s.Acquire(bg, 3) })
		for _, n := range []int64{-1, -2, -huge, math.MinInt64} {
			mustPanic(t, "NewWeighted", func() { semaphore.NewWeighted(n) })
			mustPanic(t, "Acquire", func() { s.Acquire(bg, n) })
			mustPanic(t, "Acquire, ctx done", func() { s.Acquire(done, n) })
			mustPanic(t, "AcquireWithin", func() { s.AcquireWithin(bg, n, time.Hour) })
			mustPanic(t, "AcquireWithin no time", func() { s.AcquireWithin(bg, n, 0) })
			mustPanic(t, "TryAcquire", func() { s.TryAcquire(n) })
			mustPanic(t, "Release", func() { s.Release(n) })
			if err := s.SetLimit(n); err == nil || !strings.HasPrefix(err.Error(), "semaphore: ") {
				t.Errorf("SetLimit(%d): %v", n, err)
			}
			wantState(t, s, 4, 2, 1)
			l.Want(t)
		}
		s.Release(1) // and it is not left locked
		l.Want(t, synclog.At(0, 0))
		wantState(t, s, 4, 4, 0)
	})
}

func mustPanic(t *testing.T, what string, f func()) {
	t.Helper()
	defer func() {
		if msg, ok := recover().(string); !ok || !strings.HasPrefix(msg, "semaphore: ") {
			t.Errorf("%s: want a panic with the package's prefix, got %q", what, msg)
		}
	}()
	f()
}

func TestWaitingCountsThoseWhoWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, l := held(t, 2, 2), synclog.New()
		ctx, cancel := context.WithCancel(bg)
		wantState(t, s, 2, 2, 0)
		l.Call(0, func() error { return s.Acquire(bg, 2) })
		wantState(t, s, 2, 2, 1)
		l.Call(1, func() error { return s.AcquireWithin(bg, 1, ms) })
		wantState(t, s, 2, 2, 2) // callers, not permits
		l.Call(2, func() error { return s.Acquire(ctx, 1) })
		wantState(t, s, 2, 2, 3)
		l.Call(3, func() error { return s.Acquire(bg, 0) })
		l.Call(4, func() error { return s.Acquire(bg, 3) })
		s.TryAcquire(1)
		wantState(t, s, 2, 2, 3)
		cancel()
		wantState(t, s, 2, 2, 2)
		time.Sleep(ms)
		wantState(t, s, 2, 2, 1)
		s.Release(2)
		wantState(t, s, 2, 2, 0)
	})
}

func TestHugeWeightsDoNotWrap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, l := held(t, huge, huge), synclog.New()
		for i := range 4 {
			l.Call(i, func() error { return s.Acquire(bg, huge) })
		}
		l.Call(4, func() error { return s.Acquire(bg, 1) })
		mustSetLimit(t, s, 0)
		l.Want(t,
			synclog.Failed(0, 0, limits.ErrTooLarge), synclog.Failed(1, 0, limits.ErrTooLarge),
			synclog.Failed(2, 0, limits.ErrTooLarge), synclog.Failed(3, 0, limits.ErrTooLarge),
			synclog.Failed(4, 0, limits.ErrTooLarge),
		)
		wantState(t, s, 0, huge, 0) // available: −2⁶³ + 1
		if s.TryAcquire(1) || s.TryAcquire(huge) {
			t.Error("a permit from a semaphore overfull to the brim")
		}
		mustSetLimit(t, s, huge)
		l = synclog.New()
		l.Call(0, func() error { return s.Acquire(bg, huge) })
		s.Release(huge - 1)
		l.Want(t)
		s.Release(1)
		l.Want(t, synclog.At(0, 0))
	})
}

// What is done before Release is seen after the Acquire or TryAcquire that
// uses the room. The race detector is the judge.
func TestReleaseSynchronizesBeforeAcquire(t *testing.T) {
	s := semaphore.NewWeighted(1)
	guarded := 0
	acquire := []func() bool{
		func() bool { return s.Acquire(bg, 1) == nil },
		func() bool { return s.AcquireWithin(bg, 1, time.Hour) == nil },
		func() bool { return s.TryAcquire(1) },
	}
	const rounds = 1000
	var callers sync.WaitGroup
	for _, acquire := range acquire {
		callers.Go(func() {
			for range rounds {
				for !acquire() {
					runtime.Gosched()
				}
				guarded++
				s.Release(1)
			}
		})
	}
	callers.Wait()
	if want := rounds * len(acquire); guarded != want {
		t.Errorf("%d of %d increments", guarded, want)
	}
}

// All methods at once, on the real scheduler. The race detector is the judge
// here, too; what a crowd that is cancelled does to the permits is tested by
// TestStressSemaphore of package sluice.
func TestAllMethodsAtOnce(t *testing.T) {
	const limit, rounds = 4, 500
	s := semaphore.NewWeighted(limit)
	between := func(what string, got, least, most int64) {
		if got < least || got > most {
			t.Errorf("%s() = %d, want %d to %d", what, got, least, most)
		}
	}
	var callers sync.WaitGroup
	for _, f := range []func(round int64){
		func(int64) {
			if err := s.Acquire(bg, 3); err != nil {
				t.Error(err)
			} else {
				s.Release(3)
			}
		},
		func(int64) {
			if err := s.AcquireWithin(bg, 2, time.Hour); err != nil {
				t.Error(err)
			} else {
				s.Release(2)
			}
		},
		func(int64) {
			if s.TryAcquire(1) {
				s.Release(1)
			}
		},
		func(int64) { s.Release(s.Drain()) },
		func(round int64) { // only ever raised: Drain is never below zero
			if err := s.SetLimit(limit + round); err != nil {
				t.Error(err)
			}
		},
		// Each on its own, so that no other call orders it.
		func(int64) { between("Limit", s.Limit(), limit, limit+rounds) },
		func(int64) { between("InFlight", s.InFlight(), 0, limit+rounds) },
		func(int64) { between("Available", s.Available(), 0, limit+rounds) },
		func(int64) { between("Waiting", int64(s.Waiting()), 0, 2) },
	} {
		callers.Go(func() {
			for round := range int64(rounds) {
				f(round)
				runtime.Gosched()
			}
		})
	}
	callers.Wait()
	if s.InFlight() != 0 || s.Waiting() != 0 || s.Limit() != limit+rounds-1 {
		t.Errorf("afterwards %d permits of %d are out and %d wait", s.InFlight(), s.Limit(), s.Waiting())
	}
}

// A context that is done fails first, also if the limit sinks below the request
// before its goroutine knows; and what it waited for belongs to the next.
func TestCancelThenShrinkOrDrain(t *testing.T) {
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
