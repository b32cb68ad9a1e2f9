package semaphore_test

import (
	"context"
	"fmt"
	"math"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice/internal/testkit/synclog"
	"github.com/sluice-go/sluice/limits"
	"github.com/sluice-go/sluice/semaphore"
)

func TestNewWeighted(t *testing.T) {
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

func TestWeighted_Acquire_FirstInFirstOut(t *testing.T) {
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

// AcquireWithin has one place in the same queue, whatever it waits for and however
// long.
func TestWeighted_AcquireWithin_SharesTheQueueOfAcquire(t *testing.T) {
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

func TestWeighted_Release_ServesAllThatFit(t *testing.T) {
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

func TestWeighted_Acquire_SmallDoNotOvertakeALargeOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, l := held(t, 4, 4), synclog.New()
		l.Call(0, func() error { return s.Acquire(bg, 4) })
		l.Call(1, func() error { return s.Acquire(bg, 1) })
		l.Call(2, func() error { return s.AcquireWithin(bg, 2, time.Hour) })
		for range 3 {
			time.Sleep(ms)
			s.Release(1)
			l.Want(t) // 1, 2, 3 are free, and no call takes them
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

func TestWeighted_Acquire_LargeIsNotStarved(t *testing.T) {
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
		l.Want(t, synclog.At(0, 11*ms)) // when the calls in flight are done, the last of which left at 10 ms
		wantState(t, s, 4, 4, 4)
		s.Release(4)
		workers.Wait()
		wantState(t, s, 4, 0, 0)
	})
}

func TestWeighted_TryAcquire(t *testing.T) {
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
		{3, 1, []int64{3}, 1, false}, // 2 are free, but a call waits for 3
		{3, 1, []int64{3}, 2, false},
		{3, 1, []int64{3, 1}, 1, false},
		{3, 3, []int64{1}, 1, false},
		{3, 1, []int64{3}, 0, true}, // n = 0 overtakes no call
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

func TestWeighted_Acquire_MoreThanTheLimitFailsAtOnce(t *testing.T) {
	for _, c := range []struct{ limit, held, n int64 }{
		{0, 0, 1},
		{0, 0, huge},
		{3, 0, 4},
		{3, 3, 4}, // fails, although a call for less would wait
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

// n = 0 is admitted immediately, whatever else is the case.
func TestWeighted_Acquire_ZeroIsGrantedAtOnce(t *testing.T) {
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

func TestWeighted_Release_InPartsAndSums(t *testing.T) {
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

func TestWeighted_Release_MoreThanHeldChangesNothing(t *testing.T) {
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

func TestWeighted_Mistakes(t *testing.T) {
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

func TestWeighted_Waiting(t *testing.T) {
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

func TestWeighted_HugeWeightsDoNotWrap(t *testing.T) {
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

// What happens before Release is visible after the Acquire or TryAcquire that uses
// the room. The race detector checks that.
func TestWeighted_Release_SynchronizesBeforeAcquire(t *testing.T) {
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

// All methods concurrently, on the real scheduler, for the race detector. What a crowd
// that is canceled does to the permits is tested by TestStressSemaphore of package
// sluice.
func TestWeighted_Stress(t *testing.T) {
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
