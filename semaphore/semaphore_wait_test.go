package semaphore_test

import (
	"context"
	"errors"
	"math"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice/internal/testkit/synclog"
	"github.com/sluice-go/sluice/limits"
	"github.com/sluice-go/sluice/semaphore"
)

func TestWeighted_AcquireWithin_WaitsAsLongAsAllowed(t *testing.T) {
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

func TestWeighted_AcquireWithin_MatchesDeadlineExceeded(t *testing.T) {
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

func TestWeighted_AcquireWithin_ZeroDoesNotBlock(t *testing.T) {
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
			now(1, limits.ErrTimeout) // 2 are free, but a call waits for 3
			wantState(t, s, 3, 1, 1)
			s.Release(1)
			l.Want(t, synclog.At(0, 0))
		}
	})
}

func TestWeighted_AcquireWithin_Forever(t *testing.T) {
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

func TestWeighted_AcquireWithin_PermitOnTheLastNanosecond(t *testing.T) {
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

// A permit that comes at the very time at which the wait has ended may be in
// time or too late: timers of one time go off in any order, in a bubble as
// outside. It is one of the two: got and held, or not got and free.
func TestWeighted_AcquireWithin_PermitExactlyAtTheEnd(t *testing.T) {
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

func TestWeighted_AcquireWithin_TimedOutHeadLetsTheNextThrough(t *testing.T) {
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

// Each bound on the wait has its own error, and the earlier one counts.
func TestWeighted_AcquireWithin_EarlierBoundCounts(t *testing.T) {
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

func TestWeighted_Acquire_DoneContextTakesNothing(t *testing.T) {
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

func TestWeighted_Acquire_CancelLosesThePlaceOnly(t *testing.T) {
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
		{"all", []int64{3, 1, 4}, []int{0, 1, 2}, []synclog.Left{synclog.Failed(0, ms, gone), synclog.At(1, ms), synclog.Failed(2, ms, gone)}}, // 1 went before it was canceled
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
				// Calls that wait until the end are canceled at 2 ms as well.
				for i := range c.waiting {
					if !slices.ContainsFunc(c.want, func(d synclog.Left) bool { return d.Caller == i }) {
						c.want = append(c.want, synclog.Failed(i, 2*ms, gone))
					}
				}
				l.Want(t, c.want...)
				inFlight := int64(0)
				for _, d := range c.want {
					if d.Err == nil {
						inFlight += c.waiting[d.Caller]
					}
				}
				wantState(t, s, 4, inFlight, 0)
			})
		})
	}
}

// The context is done before there is room: the call must fail, although it may
// notice both only afterwards (golang/go#63615). Calls behind it are served even if its
// goroutine has not run.
func TestWeighted_Acquire_CancelThenRelease(t *testing.T) {
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

// The context ends when the permits are admitted, and nearly always before the goroutine
// notices: then they go to the next call. If it has noticed, it keeps them.
func TestWeighted_Acquire_ReleaseThenCancel(t *testing.T) {
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

// A canceled head does not block newcomers either, although its goroutine has not left
// the queue yet.
func TestWeighted_Acquire_CancelledHeadDoesNotBlockNewcomers(t *testing.T) {
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

func TestWeighted_Acquire_CancelRacingAGrantLosesNoPermit(t *testing.T) {
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
