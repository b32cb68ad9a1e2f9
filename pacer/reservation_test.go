package pacer_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice/internal/testkit/synclog"
	"github.com/sluice-go/sluice/limits"
	"github.com/sluice-go/sluice/pacer"
)

func TestReservation_Slot_IsAForecast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := limits.Must(pacer.New(limits.Rate{Count: 10, Per: time.Second}))
		start := time.Now()
		var rs []pacer.Reservation
		for range 4 {
			rs = append(rs, p.Reserve(1))
		}
		check := func(when string, want ...time.Duration) {
			t.Helper()
			for i, r := range rs {
				if want[i] < 0 {
					if !r.Slot().IsZero() || r.Delay() != limits.Never {
						t.Errorf("%s: cancelled reservation %d has slot %v", when, i, r.Slot().Sub(start))
					}
					continue
				}
				if got := r.Slot().Sub(start); got != want[i] {
					t.Errorf("%s: slot %d at %v, want %v", when, i, got, want[i])
				}
				if got, want := r.Delay(), max(0, want[i]-time.Since(start)); got != want {
					t.Errorf("%s: delay %d is %v, want %v", when, i, got, want)
				}
			}
		}
		check("reserved", 0, 100*ms, 200*ms, 300*ms)
		if rs[0].Cancel() {
			t.Error("cancelled a slot that had come")
		}
		if !rs[1].Cancel() || rs[1].Cancel() {
			t.Error("want Cancel to succeed once")
		}
		check("after a cancel", 0, -1, 100*ms, 200*ms)
		p.SetRate(limits.Rate{Count: 1, Per: time.Second})
		check("slower", 0, -1, 1000*ms, 2000*ms)
		p.PauseUntil(start.Add(5 * time.Second))
		check("paused", 0, -1, 5000*ms, 6000*ms)
		time.Sleep(time.Second)
		p.Resume()
		check("resumed", 0, -1, 1000*ms, 2000*ms)
		time.Sleep(10 * time.Second)
		check("all used up", 0, -1, 1000*ms, 2000*ms)
		if rs[3].Cancel() {
			t.Error("cancelled a reservation that was used up")
		}
		if !p.TryAcquire(1) {
			t.Error("abandoned reservations stall")
		}
	})
}

// A faster rate cannot let a reservation leave before the rate was changed,
// even if nobody looks until long after.
func TestReservation_AbandonedLeaveNoEarlierThanTheChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := limits.Must(pacer.New(limits.Rate{Count: 1, Per: 10 * time.Second}))
		start := time.Now()
		p.TryAcquire(1)
		first, second := p.Reserve(1), p.Reserve(1)
		time.Sleep(5 * time.Second)
		p.SetRate(limits.Rate{Count: 1, Per: 4 * time.Second}) // 4 s after the last departure is past: now
		time.Sleep(4500 * ms)
		if a, b := first.Slot().Sub(start), second.Slot().Sub(start); a != 5*time.Second || b != 9*time.Second {
			t.Errorf("left at %v and %v, want 5 s and 9 s", a, b)
		}
		if d := p.Reserve(1).Slot().Sub(start); d != 13*time.Second {
			t.Errorf("the next slot is at %v, want 13 s", d)
		}
	})
}

func TestReservation_Wait_EnforcesTheSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, l := limits.Must(pacer.New(limits.Rate{Count: 10, Per: time.Second})), synclog.New()
		early, used, late := p.Reserve(1), p.Reserve(1), p.Reserve(1)
		l.Call(0, func() error { return early.Wait(bg) })
		l.Call(2, func() error { return late.Wait(bg) })
		l.Call(3, func() error { return p.Acquire(bg, 1) })
		time.Sleep(150 * ms)
		l.Call(1, func() error { return used.Wait(bg) }) // its slot was at 100 ms
		time.Sleep(time.Minute)
		l.Want(t, synclog.At(0, 0), synclog.At(1, 150*ms), synclog.At(2, 200*ms), synclog.At(3, 300*ms))
		if err := late.Wait(bg); err != nil {
			t.Errorf("Wait for a reservation that has left: %v", err)
		}
	})
}

// An attended reservation ahead of one that is already attended takes over the
// timer.
func TestReservation_Wait_BeginsOutOfOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, l := limits.Must(pacer.New(limits.Rate{Count: 10, Per: time.Second})), synclog.New()
		p.TryAcquire(1)
		var rs []pacer.Reservation
		for range 5 {
			rs = append(rs, p.Reserve(1))
		}
		for _, i := range []int{4, 1, 3, 0} { // 2 is abandoned
			l.Call(i, func() error { return rs[i].Wait(bg) })
		}
		time.Sleep(time.Minute)
		l.Want(t, synclog.At(0, 100*ms), synclog.At(1, 200*ms), synclog.At(3, 400*ms), synclog.At(4, 500*ms))
	})
}

func TestReservation_Wait_CancelGivesTheSlotBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, l := limits.Must(pacer.New(limits.Rate{Count: 10, Per: time.Second})), synclog.New()
		p.TryAcquire(1)
		hopeless, cancelled, taken, done := p.Reserve(1), p.Reserve(1), p.Reserve(1), p.Reserve(1)
		l.Call(9, func() error { return p.Acquire(bg, 1) })

		short, cancel := context.WithTimeout(bg, 50*ms)
		defer cancel()
		l.Call(0, func() error { return hopeless.Wait(short) })
		ctx, cancel := context.WithCancel(bg)
		l.Call(1, func() error { return cancelled.Wait(ctx) })
		time.Sleep(10 * ms)
		cancel()
		l.Call(2, func() error { return taken.Wait(bg) })
		taken.Cancel()
		l.Call(3, func() error { return done.Wait(ctx) })
		time.Sleep(time.Minute)
		l.Want(t,
			synclog.Failed(0, 0, context.DeadlineExceeded),
			synclog.Failed(1, 10*ms, context.Canceled),
			synclog.Failed(2, 10*ms, limits.ErrCanceled),
			synclog.Failed(3, 10*ms, context.Canceled),
			synclog.At(9, 100*ms),
		)
		if err := hopeless.Wait(bg); err == nil {
			t.Error("a reservation that was given back was granted")
		}
	})
}

// Only the first of those who wait sets a timer. If it is canceled the next must,
// also behind a reservation for which nobody waits.
func TestReservation_Cancel_OfTheFirstWakesTheNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, l := limits.Must(pacer.New(limits.Rate{Count: 10, Per: time.Second})), synclog.New()
		p.TryAcquire(1)
		first := p.Reserve(1)
		l.Call(0, func() error { return first.Wait(bg) })
		l.Call(1, func() error { return p.Acquire(bg, 1) })
		first.Cancel()
		time.Sleep(time.Minute)
		l.Want(t, synclog.Failed(0, 0, limits.ErrCanceled), synclog.At(1, 100*ms))
	})
	synctest.Test(t, func(t *testing.T) {
		p, l := limits.Must(pacer.New(limits.Rate{Count: 10, Per: time.Second})), synclog.New()
		p.TryAcquire(1)
		p.Reserve(1)
		ctx, cancel := context.WithCancel(bg)
		l.Call(0, func() error { return p.Acquire(ctx, 1) })
		l.Call(1, func() error { return p.Acquire(bg, 1) })
		cancel()
		time.Sleep(time.Minute)
		l.Want(t, synclog.Failed(0, 0, context.Canceled), synclog.At(1, 200*ms))
	})
}

// A reservation that was canceled before anybody waited for it says so, also to
// somebody who is not to wait.
func TestReservation_Wait_AfterCancel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := limits.Must(pacer.New(limits.Rate{Count: 1, Per: time.Hour}))
		p.TryAcquire(1)
		r := p.Reserve(1)
		r.Cancel()
		done, cancel := context.WithCancel(bg)
		cancel()
		for _, ctx := range []context.Context{bg, done} {
			if err := r.Wait(ctx); err != limits.ErrCanceled {
				t.Errorf("Wait: %v, want ErrCancelled", err)
			}
		}
		if r.Cancel() || !r.Slot().IsZero() || r.Delay() != limits.Never || p.Waiting() != 0 {
			t.Errorf("cancelled again, or it has slot %v, or %d wait", r.Slot(), p.Waiting())
		}
	})
}

// However the end of a wait is noticed, by the one who waits or by somebody who
// looks first, the reservation is gone.
func TestReservation_Wait_AfterACancelledWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for range 100 {
			p := limits.Must(pacer.New(limits.Rate{Count: 1, Per: time.Hour}))
			p.TryAcquire(1)
			r := p.Reserve(1)
			ctx, cancel := context.WithCancel(bg)
			var first error
			go func() { first = r.Wait(ctx) }()
			synctest.Wait()
			cancel()
			p.Waiting()
			synctest.Wait()
			if err := r.Wait(bg); first != context.Canceled || err == nil || !r.Slot().IsZero() {
				t.Fatalf("first %v, second %v, slot %v", first, err, r.Slot())
			}
		}
	})
}

func TestReservation_OfZero(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := limits.Must(pacer.New(limits.Rate{Count: 1, Per: time.Hour}))
		p.TryAcquire(1)
		r := p.Reserve(0)
		if r.Err() != nil || r.Delay() != 0 || !r.Slot().Equal(time.Now()) || r.Wait(bg) != nil || r.Cancel() || p.Waiting() != 0 {
			t.Error("n = 0 consumes nothing and is granted at once")
		}
	})
}

func TestReservation_Wait_TwicePanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, l := limits.Must(pacer.New(limits.Rate{Count: 1, Per: time.Hour})), synclog.New()
		p.TryAcquire(1)
		r := p.Reserve(1)
		l.Call(0, func() error { return r.Wait(bg) })
		func() {
			defer func() {
				if recover() == nil {
					t.Error("no panic")
				}
			}()
			r.Wait(bg)
		}()
		r.Cancel()
		l.Want(t, synclog.Failed(0, 0, limits.ErrCanceled))
	})
}
