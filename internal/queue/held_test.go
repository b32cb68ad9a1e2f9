package queue

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice/internal/testkit/synclog"
)

// A heldLine is a queue with a slot each 5 ms from 5 ms on, whose driver may be held for
// 20 ms, and a log of how its callers end.
type heldLine struct {
	*Queue
	*synclog.Log
}

// eachClock runs f with drivers that have timers of their own, and with ones that share the
// clock.
func eachClock(t *testing.T, f func(t *testing.T, l heldLine)) {
	for name, least := range map[string]int{"own timers": 1000, "clock": 0} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q := held(5*ms, 20*ms, Config{Exact: true})
				q.clock.least = least
				q.rule.(*slots).next = 5 * ms
				f(t, heldLine{q, synclog.New()})
				time.Sleep(time.Hour)
			})
		})
	}
}

func (l heldLine) acquire(who int, ctx context.Context, r Request) {
	r.N = 1
	if r.Max == 0 {
		r.Max = Forever
	}
	l.Call(who, func() error {
		_, _, err := l.Acquire(ctx, r)
		return err
	})
}

// until returns a context that is done at an instant of the bubble's clock.
func (l heldLine) until(t *testing.T, at time.Duration) context.Context {
	ctx, cancel := context.WithDeadline(t.Context(), l.Epoch().Add(at))
	t.Cleanup(cancel)
	return ctx
}

// A caller behind the driver whose slot comes before its deadline, and whose deadline comes
// before the driver would wake, leaves at its slot, however it came.
func TestQueue_Hold_NotBeyondTheDeadlineOfACallerBehind(t *testing.T) {
	eachClock(t, func(t *testing.T, l heldLine) {
		l.acquire(0, bg, Request{})
		l.acquire(1, l.until(t, 12*ms), Request{})
		l.acquire(2, bg, Request{})
		time.Sleep(time.Second)
		// When the one with the deadline has left, the driver is held again.
		l.Want(t, synclog.At(0, 5*ms), synclog.At(1, 10*ms), synclog.At(2, 35*ms))
	})
	eachClock(t, func(t *testing.T, l heldLine) { // it comes when the driver sleeps
		l.acquire(0, bg, Request{})
		time.Sleep(3 * ms)
		l.acquire(1, l.until(t, 12*ms), Request{})
		time.Sleep(time.Second)
		l.Want(t, synclog.At(0, 5*ms), synclog.At(1, 10*ms))
	})
	eachClock(t, func(t *testing.T, l heldLine) { // it comes when the driver is held
		l.acquire(0, bg, Request{})
		time.Sleep(7 * ms)
		l.acquire(1, l.until(t, 12*ms), Request{})
		time.Sleep(time.Second)
		l.Want(t, synclog.At(0, 7*ms), synclog.At(1, 10*ms))
	})
	eachClock(t, func(t *testing.T, l heldLine) { // by a longest wait
		l.acquire(0, bg, Request{})
		l.acquire(1, bg, Request{Max: 11 * ms})
		time.Sleep(time.Second)
		l.Want(t, synclog.At(0, 5*ms), synclog.At(1, 10*ms))
	})
	eachClock(t, func(t *testing.T, l heldLine) { // it attends a reservation
		l.acquire(0, bg, Request{})
		w, _, _ := l.Reserve(Request{N: 1})
		l.Call(1, func() error { return l.Attend(l.until(t, 12*ms), w) })
		time.Sleep(time.Second)
		l.Want(t, synclog.At(0, 5*ms), synclog.At(1, 10*ms))
	})
}

// A deadline after the driver wakes changes nothing.
func TestQueue_Hold_ALateDeadlineBehind(t *testing.T) {
	eachClock(t, func(t *testing.T, l heldLine) {
		l.acquire(0, bg, Request{})
		l.acquire(1, l.until(t, 26*ms), Request{})
		time.Sleep(time.Second)
		l.Want(t, synclog.At(0, 25*ms), synclog.At(1, 25*ms))
	})
}

// A deadline that is no more, because its caller has cancelled, changes nothing either.
func TestQueue_Hold_ACancelledDeadlineBehind(t *testing.T) {
	eachClock(t, func(t *testing.T, l heldLine) {
		l.acquire(0, bg, Request{})
		ctx, cancel := context.WithCancel(l.until(t, 22*ms))
		l.acquire(1, ctx, Request{})
		l.acquire(2, bg, Request{})
		time.Sleep(ms)
		cancel()
		time.Sleep(time.Second)
		// The driver had been told to wake at its slot; the one behind it is held.
		l.Want(t, synclog.Failed(1, ms, context.Canceled), synclog.At(0, 5*ms), synclog.At(2, 30*ms))
	})
}

// If the driver cancels, the next one is woken for the deadline behind it, too.
func TestQueue_Hold_TheDriverCancels(t *testing.T) {
	eachClock(t, func(t *testing.T, l heldLine) {
		ctx, cancel := context.WithCancel(bg)
		l.acquire(0, ctx, Request{})
		l.acquire(1, bg, Request{})
		l.acquire(2, l.until(t, 16*ms), Request{}) // its slot is at 15 ms, and then at 10
		time.Sleep(ms)
		cancel()
		time.Sleep(time.Second)
		l.Want(t, synclog.Failed(0, ms, context.Canceled), synclog.At(1, 5*ms), synclog.At(2, 10*ms))
	})
}

// A pause moves the slots: the deadline behind the driver counts at the new ones.
func TestQueue_Hold_APauseBeforeTheDeadlineBehind(t *testing.T) {
	eachClock(t, func(t *testing.T, l heldLine) {
		l.acquire(0, bg, Request{})
		l.acquire(1, l.until(t, 112*ms), Request{})
		time.Sleep(2 * ms)
		l.Change(func(time.Duration) { l.rule.(*slots).next = 100 * ms })
		time.Sleep(time.Second)
		l.Want(t, synclog.At(0, 100*ms), synclog.At(1, 105*ms))
	})
}

// A call that only tries neither overtakes them nor holds the driver up.
func TestQueue_Hold_TryBesideADeadlineBehind(t *testing.T) {
	eachClock(t, func(t *testing.T, l heldLine) {
		l.acquire(0, bg, Request{})
		l.acquire(1, l.until(t, 12*ms), Request{})
		time.Sleep(2 * ms)
		if _, ok := l.Try(Request{N: 1}); ok {
			t.Error("overtook those that wait")
		}
		time.Sleep(time.Second)
		l.Want(t, synclog.At(0, 5*ms), synclog.At(1, 10*ms))
	})
}

// With a parent or limits the callers ask. The head is held while it waits for its own rate,
// but not beyond the deadline of a caller behind it.
func TestQueue_Hold_OfACallerThatAsks_TheDeadlineOfACallerBehind(t *testing.T) {
	for _, before := range []time.Duration{0, 3 * ms} {
		eachClock(t, func(t *testing.T, l heldLine) {
			l.cfg.Exact = false
			next, asked := 5*ms, 0
			ask := func(context.Context, Turn) (Wait, error) {
				asked++
				if wait := next - l.Now(); wait > 0 {
					return Wait{For: wait, Sure: wait, Paced: true}, nil
				}
				next += 5 * ms
				return Wait{}, nil
			}
			l.rule = nobody{}
			l.acquire(0, bg, Request{Ask: ask})
			time.Sleep(before)
			l.acquire(1, l.until(t, 12*ms), Request{Ask: ask})
			time.Sleep(time.Second)
			l.Want(t, synclog.At(0, 5*ms), synclog.At(1, 10*ms))
		})
	}
}

// A head that waits for another limit is not held, so a deadline behind it does not make it
// ask again.
func TestQueue_Hold_ADeadlineBehindACallerThatWaitsForALimit(t *testing.T) {
	eachClock(t, func(t *testing.T, l heldLine) {
		l.cfg.Exact = false
		l.rule = nobody{}
		asked := 0
		l.acquire(0, bg, Request{Ask: func(context.Context, Turn) (Wait, error) {
			asked++
			return Wait{For: max(0, 2*near-l.Now())}, nil
		}})
		time.Sleep(ms)
		l.acquire(1, l.until(t, 2*near+ms), Request{Ask: func(context.Context, Turn) (Wait, error) { return Wait{}, nil }})
		time.Sleep(time.Second)
		l.Want(t, synclog.At(0, 2*near), synclog.At(1, 2*near))
		if asked != 2 {
			t.Errorf("asked %d times", asked)
		}
	})
}

// A caller that fails by its deadline gets the error of its context, as before.
func TestQueue_Hold_ADeadlineBeforeTheSlot(t *testing.T) {
	eachClock(t, func(t *testing.T, l heldLine) {
		l.acquire(0, bg, Request{})
		if _, _, err := l.Acquire(l.until(t, 9*ms), Request{N: 1, Max: Forever}); !errors.Is(err, context.DeadlineExceeded) || l.Now() != 0 {
			t.Errorf("%v at %v", err, l.Now())
		}
		time.Sleep(time.Second)
		l.Want(t, synclog.At(0, 25*ms))
	})
}
