package queue

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice/internal/testkit/synclog"
)

// every is an admitter that lets one through each interval.
type every struct{ interval, next time.Duration }

func (r *every) Admit(now, _ time.Duration, n int64) time.Duration {
	if wait := r.next - now; wait > 0 {
		return wait
	}
	r.next = max(now, r.next) + time.Duration(n)*r.interval
	return 0
}

func (r *every) Forecast(now time.Duration, ahead int64) time.Duration {
	return max(0, r.next+time.Duration(ahead)*r.interval-now)
}

func newFine(interval time.Duration) *Queue {
	q := new(Queue)
	q.Init(&every{interval: interval}, Config{Exact: true, Fine: func() bool { return true }})
	return q
}

// A caller that drives a queue of many slots that are close together sleeps for each of them
// exactly, and deaf. It must not be deaf to its context for all of them.
func TestQueue_Acquire_CancelDriverOfManyNearSlots(t *testing.T) {
	q := newFine(time.Millisecond)
	for range 3000 {
		if _, _, err := q.Reserve(Request{N: 1, Max: Forever}); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	time.AfterFunc(20*time.Millisecond, cancel)
	// Its turn comes after 3 s, so if it was not canceled it would succeed then.
	if _, _, err := q.Acquire(ctx, Request{N: 1, Max: Forever}); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}

// A queue that was made outside a bubble waits in it by its clock.
func TestQueue_InABubble_MadeOutside(t *testing.T) {
	q := newFine(time.Microsecond)
	q.Acquire(context.Background(), Request{N: 1, Max: Forever})
	synctest.Test(t, func(t *testing.T) {
		// The bubble begins in the year 2000, long before the queue was made.
		if _, _, err := q.Acquire(context.Background(), Request{N: 1, Max: Forever}); err != nil {
			t.Error(err)
		}
	})
}

func TestQueue_InABubble_MadeInside(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newFine(time.Millisecond)
		if q.fine {
			t.Error("the clock of a bubble is taken for that of the system")
		}
		began := time.Now()
		for range 3 {
			q.Acquire(context.Background(), Request{N: 1, Max: Forever})
		}
		if got := time.Since(began); got != 2*time.Millisecond {
			t.Errorf("took %v", got)
		}
	})
}

// slots is an admitter with one slot each interval, from 0 on, whose lateness is caught up.
type slots struct{ interval, next time.Duration }

func (r *slots) Admit(now, _ time.Duration, n int64) time.Duration {
	if wait := r.next - now; wait > 0 {
		return wait
	}
	r.next += time.Duration(n) * r.interval
	return 0
}

func (r *slots) Forecast(now time.Duration, ahead int64) time.Duration {
	return max(0, r.next+time.Duration(ahead)*r.interval-now)
}

// held is a queue of slots that is outside of a bubble as far as it knows: the clock of the
// bubble shows when its driver wakes.
func held(interval, hold time.Duration, cfg Config) *Queue {
	q := new(Queue)
	cfg.Hold = func() time.Duration { return hold }
	q.Init(&slots{interval: interval}, cfg)
	q.fine, q.clock = true, &clock{began: time.Now()}
	return q
}

// leave lets callers in after each of the times, and returns when they left.
func leave(q *Queue, r Request, after ...time.Duration) (left []time.Duration) {
	left = make([]time.Duration, len(after))
	start := time.Now()
	var callers sync.WaitGroup
	for i, d := range after {
		time.Sleep(time.Until(start.Add(d)))
		callers.Go(func() {
			if _, _, err := q.Acquire(context.Background(), r); err != nil {
				left[i] = -1
				return
			}
			left[i] = time.Since(start)
		})
		synctest.Wait()
	}
	callers.Wait()
	return left
}

// All whose slots come while the driver is held start when it wakes. A caller that comes
// meanwhile does not wake them, and leaves with them. Nothing is lost.
func TestQueue_Hold_LeaveTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := held(ms/4, 3*ms/4, Config{Exact: true})
		got := leave(q, Request{N: 1, Max: Forever}, 0, 0, 0, 0, 0, 0, ms/2, 7*ms/4, 5*ms)
		// Their slots are at 0, ¼, ½, ¾, 1, 1¼, 1½ and 1¾. The last finds a slot.
		if want := []time.Duration{0, ms, ms, ms, ms, 2 * ms, 2 * ms, 2 * ms, 5 * ms}; !slices.Equal(got, want) {
			t.Errorf("left at %v, want %v", got, want)
		}
	})
}

// In a bubble a wake-up costs nothing.
func TestQueue_Hold_NotInABubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := held(ms/4, 3*ms/4, Config{Exact: true})
		q.fine = false
		if got, want := leave(q, Request{N: 1, Max: Forever}, 0, 0, 0), []time.Duration{0, ms / 4, ms / 2}; !slices.Equal(got, want) {
			t.Errorf("left at %v, want %v", got, want)
		}
	})
}

// What cannot wait until the driver wakes does not: a caller for whom the queue would be
// full, or that waits for a bounded time. The slots have come, after all.
func TestQueue_Hold_NotForACallerThatCannotWait(t *testing.T) {
	for name, r := range map[string]Request{"full": {N: 1, Max: Forever}, "at once": {N: 1}} {
		synctest.Test(t, func(t *testing.T) {
			q := held(ms/4, 3*ms/4, Config{Exact: true, MaxWaiting: map[string]int32{"full": 2}[name]})
			got := make(chan []time.Duration)
			go func() { got <- leave(q, Request{N: 1, Max: Forever}, 0, 0, 0) }()
			time.Sleep(3 * ms / 4)
			if _, waited, err := q.Acquire(context.Background(), r); err != nil || waited != 0 {
				t.Errorf("%s: %v, after %v", name, err, waited)
			}
			if got, want := <-got, []time.Duration{0, 3 * ms / 4, 3 * ms / 4}; !slices.Equal(got, want) {
				t.Errorf("%s: left at %v, want %v", name, got, want)
			}
		})
	}
}

// A context that is done between the slot and the end of the grain does not lose the call.
func TestQueue_Hold_NotBeyondTheDeadline(t *testing.T) {
	for _, deadline := range []time.Duration{ms / 2, ms, 3 * ms / 2} {
		synctest.Test(t, func(t *testing.T) {
			q, start := held(ms/4, 3*ms/4, Config{Exact: true}), time.Now()
			q.Acquire(context.Background(), Request{N: 1, Max: Forever})
			ctx, cancel := context.WithTimeout(context.Background(), deadline)
			defer cancel()
			want := ms / 4
			if deadline > ms {
				want = ms
			}
			if _, _, err := q.Acquire(ctx, Request{N: 1, Max: Forever}); err != nil || time.Since(start) != want {
				t.Errorf("deadline at %v: left at %v with %v, want %v", deadline, time.Since(start), err, want)
			}
		})
	}
}

// A caller with a deadline that comes while the driver is held is told the true wait, for
// which those that are due must have left: an admitter cannot know that they are late by our fault.
func TestQueue_Hold_ACallerWithADeadlineIsNotRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, start := held(ms/4, 3*ms/4, Config{Exact: true}), time.Now()
		q.admitter = &forgetful{slots{interval: ms / 4}}
		go leave(q, Request{N: 1, Max: Forever}, 0, 0, 0) // slots at 0, ¼ and ½
		time.Sleep(3 * ms / 4)
		ctx, cancel := context.WithDeadline(context.Background(), start.Add(11*ms/10))
		defer cancel()
		if _, waited, err := q.Acquire(ctx, Request{N: 1, Max: Forever}); err != nil || waited != 0 {
			t.Errorf("%v, after %v", err, waited)
		}
	})
}

// forgetful forecasts as if slots that have passed were lost.
type forgetful struct{ slots }

func (r *forgetful) Forecast(now time.Duration, ahead int64) time.Duration {
	return max(0, max(r.next, now)+time.Duration(ahead)*r.interval-now)
}

// Nor does it lose the call of a caller that asks.
func TestQueue_Hold_OfACallerThatAsks_NotBeyondTheDeadline(t *testing.T) {
	for deadline, want := range map[time.Duration]time.Duration{3 * ms / 2: ms, 5 * ms / 2: 2 * ms} {
		synctest.Test(t, func(t *testing.T) {
			q, start := held(0, ms, Config{}), time.Now()
			ctx, cancel := context.WithTimeout(context.Background(), deadline)
			defer cancel()
			_, _, err := q.Acquire(ctx, Request{N: 1, Max: Forever, Ask: func(context.Context, Turn) (Wait, error) {
				return Wait{For: max(0, time.Until(start.Add(ms))), Paced: true}, nil
			}})
			if took := time.Since(start); err != nil || took != want {
				t.Errorf("deadline at %v: left after %v with %v, want %v", deadline, took, err, want)
			}
		})
	}
}

// A change reaches a driver that is held.
func TestQueue_Hold_AChangeIsNotHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := held(10*ms, ms, Config{Exact: true})
		got := make(chan []time.Duration)
		go func() { got <- leave(q, Request{N: 1, Max: Forever}, 0, 0, 0) }()
		time.Sleep(5 * ms)
		q.Change(func(now time.Duration) { q.admitter.(*slots).next = now })
		if got, want := <-got, []time.Duration{0, 5 * ms, 16 * ms}; !slices.Equal(got, want) {
			t.Errorf("left at %v, want %v", got, want)
		}
	})
}

// A caller that asks is held if it waits for the rate of its own queue, which catches up on
// it, and not if it waits for another limit, which does not.
func TestQueue_Hold_OfACallerThatAsks(t *testing.T) {
	for paced, want := range map[bool]time.Duration{true: 2 * ms, false: ms} {
		synctest.Test(t, func(t *testing.T) {
			q, start, asked, due := held(0, ms, Config{}), time.Now(), 0, time.Duration(0)
			_, _, err := q.Acquire(context.Background(), Request{N: 1, Max: Forever, Ask: func(_ context.Context, turn Turn) (Wait, error) {
				asked, due = asked+1, turn.Due
				if time.Since(start) < ms {
					return Wait{For: ms, Sure: ms, Paced: paced}, nil
				}
				return Wait{}, nil
			}})
			if took := time.Since(start); err != nil || took != want || asked != 2 || due != ms {
				t.Errorf("paced %v: asked %d times, left after %v as if due at %v, %v", paced, asked, took, due, err)
			}
		})
	}
}

// witness notes since when the callers could have left that do.
type witness struct {
	slots
	due  []time.Duration
	full bool
}

func (r *witness) Admit(now, due time.Duration, n int64) time.Duration {
	if r.full {
		return Forever
	}
	wait := r.slots.Admit(now, due, n)
	if wait == 0 {
		r.due = append(r.due, due)
	}
	return wait
}

// If more could have left when the driver woke, the first of those that come soon after is
// as late as they were. Others are late on their own.
func TestQueue_Hold_NoCallerLeftToLeave(t *testing.T) {
	for after, want := range map[time.Duration]time.Duration{3 * ms / 10: ms, ms: 2 * ms} {
		synctest.Test(t, func(t *testing.T) {
			q := held(ms/4, 3*ms/4, Config{Exact: true})
			w := &witness{slots: slots{interval: ms / 4}}
			q.admitter = w
			for range 2 {
				q.Acquire(context.Background(), Request{N: 1, Max: Forever}) // at 0, and at 1 ms
			}
			for range 2 {
				time.Sleep(after)
				q.Acquire(context.Background(), Request{N: 1, Max: Forever})
			}
			if want := []time.Duration{0, ms / 4, want, ms + 2*after}; !slices.Equal(w.due, want) {
				t.Errorf("%v after: due at %v, want %v", after, w.due, want)
			}
		})
	}
	synctest.Test(t, func(t *testing.T) { // none could
		q := held(6*ms/10, 4*ms/10, Config{Exact: true})
		w := &witness{slots: slots{interval: 6 * ms / 10}}
		q.admitter = w
		for range 2 {
			q.Acquire(context.Background(), Request{N: 1, Max: Forever}) // at 0, and at 1 ms
		}
		time.Sleep(3 * ms / 10)
		q.Acquire(context.Background(), Request{N: 1, Max: Forever})
		if want := []time.Duration{0, 6 * ms / 10, 13 * ms / 10}; !slices.Equal(w.due, want) {
			t.Errorf("due at %v, want %v", w.due, want)
		}
	})
	synctest.Test(t, func(t *testing.T) { // one waits for something else
		q := held(ms/4, 3*ms/4, Config{Exact: true})
		w := &witness{slots: slots{interval: ms / 4}}
		q.admitter = w
		q.Acquire(context.Background(), Request{N: 1, Max: Forever})
		time.AfterFunc(ms/2, func() {
			q.Lock()
			defer q.Unlock()
			w.full = true
		})
		time.AfterFunc(12*ms/10, func() { q.Change(func(time.Duration) { w.full = false }) })
		q.Acquire(context.Background(), Request{N: 1, Max: Forever})
		time.Sleep(ms / 10)
		q.Acquire(context.Background(), Request{N: 1, Max: Forever})
		if want := []time.Duration{0, 12 * ms / 10, 13 * ms / 10}; !slices.Equal(w.due, want) {
			t.Errorf("due at %v, want %v", w.due, want)
		}
	})
}

// # Deadlines behind a driver that is held

// A heldLine is a queue with a slot every 5 ms from 5 ms on, whose driver may be held for
// 20 ms, and a log of how its callers end.
type heldLine struct {
	*Queue
	*synclog.Log
}

// eachClock runs f with drivers that have their own timers, and with ones that share the
// clock.
func eachClock(t *testing.T, f func(t *testing.T, l heldLine)) {
	for name, least := range map[string]int{"own timers": 1000, "clock": 0} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q := held(5*ms, 20*ms, Config{Exact: true})
				q.clock.least = least
				q.admitter.(*slots).next = 5 * ms
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

// A deadline that is no more, because its caller has canceled, changes nothing either.
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

// If the driver cancels, the next one is woken for the deadline behind it as well.
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
		l.Change(func(time.Duration) { l.admitter.(*slots).next = 100 * ms })
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
			l.admitter = nobody{}
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
		l.admitter = nobody{}
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

// # A clock of many queues

// rung is held without a hold: the clock rings at each slot.
func rung(interval time.Duration) *Queue { return held(interval, 0, Config{Exact: true}) }

// Queues with different intervals share a clock, which rings each at its slots. When none
// waits it has nothing left.
func TestClock_ManyQueues(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, start := &clock{began: time.Now()}, time.Now()
		time.Sleep(ms) // the queues are not as old as the clock
		var callers sync.WaitGroup
		for i := range 20 {
			q := rung(time.Duration(i+1) * ms)
			q.clock = c
			for k := range 7 {
				callers.Go(func() {
					_, _, err := q.Acquire(context.Background(), Request{N: 1, Max: Forever})
					if got := time.Since(start) - ms; err != nil || got%(time.Duration(i+1)*ms) != 0 || got > time.Duration(6*(i+1))*ms {
						t.Errorf("queue %d, caller %d left at %v, %v", i, k, got, err)
					}
				})
			}
		}
		callers.Wait()
		synctest.Wait()
		if len(c.queues) > 0 || c.ringing {
			t.Errorf("%d queues are to be rung, ringing %v", len(c.queues), c.ringing)
		}
	})
}

// A clock that few ask serves none.
func TestClock_OnlyIfManyAsk(t *testing.T) {
	const while = 2 * ms
	for name, asks := range map[string]struct {
		at   []time.Duration
		last bool
	}{
		"few":                 {[]time.Duration{0, 0, ms}, false},
		"many":                {[]time.Duration{0, 0, ms, ms}, true},
		"slowly":              {[]time.Duration{0, ms, 3 * ms, 4 * ms, 6 * ms, 7 * ms}, false},
		"many a while before": {[]time.Duration{0, 0, ms, ms, while + 1}, true},
		"many long before":    {[]time.Duration{0, 0, ms, ms, 2*while + 1}, false},
	} {
		c, got := &clock{least: 3}, false
		for _, at := range asks.at {
			got = c.serves(at)
		}
		if got != asks.last {
			t.Errorf("%s: %v", name, got)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		q := rung(ms)
		q.clock.least = 1000
		if got, want := leave(q, Request{N: 1, Max: Forever}, 0, 0, 0), []time.Duration{0, ms, 2 * ms}; !slices.Equal(got, want) || q.clock.timer != nil {
			t.Errorf("left at %v, want %v, without the clock", got, want)
		}
	})
}

// What has no part in an ordinary slot has its own timer.
func TestClock_NotFor(t *testing.T) {
	for name, f := range map[string]func(q *Queue, r *Request){
		"a bubble":         func(q *Queue, _ *Request) { q.fine = false },
		"exact wake-ups":   func(q *Queue, _ *Request) { q.cfg.Fine = func() bool { return true } },
		"far away":         func(q *Queue, _ *Request) { q.admitter.(*slots).interval = near + 1 },
		"bounds and Exact": func(q *Queue, r *Request) { q.cfg.Exact, r.Max = false, 50*ms },
		"no Hold":          func(q *Queue, _ *Request) { q.cfg.Hold = nil },
	} {
		synctest.Test(t, func(t *testing.T) {
			q, r := rung(ms), Request{N: 1, Max: Forever}
			f(q, &r)
			t1 := q.admitter.(*slots).interval
			if got, want := leave(q, r, 0, 0, 0), []time.Duration{0, t1, 2 * t1}; !slices.Equal(got, want) || q.clock.timer != nil {
				t.Errorf("%s: left at %v, want %v, without the clock", name, got, want)
			}
		})
	}
}

// The driver need not be the same when the clock rings, nor its slot.
func TestClock_OtherThanExpected(t *testing.T) {
	bg := context.Background()
	for name, f := range map[string]func(t *testing.T, q *Queue, left func(after time.Duration)){
		// The second waits behind a reservation, drives, and drives again after it.
		"a reservation is attended": func(t *testing.T, q *Queue, left func(time.Duration)) {
			q.Reserve(Request{N: 1})
			w, _, _ := q.Reserve(Request{N: 1})
			go func() {
				q.Acquire(bg, Request{N: 1, Max: Forever})
				left(20 * ms)
			}()
			time.Sleep(ms)
			if err := q.Attend(bg, w); err != nil {
				t.Error(err)
			}
			left(10 * ms)
		},
		"the driver gives up": func(t *testing.T, q *Queue, left func(time.Duration)) {
			q.Acquire(bg, Request{N: 1, Max: Forever})
			ctx, cancel := context.WithCancel(bg)
			go q.Acquire(ctx, Request{N: 1, Max: Forever})
			time.Sleep(ms)
			time.AfterFunc(5*ms, cancel)
			q.Acquire(bg, Request{N: 1, Max: Forever})
			left(10 * ms)
			q.Acquire(bg, Request{N: 1, Max: Forever})
			left(20 * ms)
		},
		"later": func(t *testing.T, q *Queue, left func(time.Duration)) {
			q.Acquire(bg, Request{N: 1, Max: Forever})
			time.AfterFunc(5*ms, func() { q.Change(func(time.Duration) { q.admitter.(*slots).next = 30 * ms }) })
			q.Acquire(bg, Request{N: 1, Max: Forever})
			left(30 * ms)
		},
		"earlier": func(t *testing.T, q *Queue, left func(time.Duration)) {
			q.Acquire(bg, Request{N: 1, Max: Forever})
			time.AfterFunc(5*ms, func() { q.Change(func(time.Duration) { q.admitter.(*slots).next = 7 * ms }) })
			q.Acquire(bg, Request{N: 1, Max: Forever})
			left(7 * ms)
		},
		"only a change helps": func(t *testing.T, q *Queue, left func(time.Duration)) {
			w := &witness{slots: slots{interval: 10 * ms}}
			q.admitter = w
			q.Acquire(bg, Request{N: 1, Max: Forever})
			time.AfterFunc(5*ms, func() {
				q.Lock()
				defer q.Unlock()
				w.full = true
			})
			time.AfterFunc(15*ms, func() { q.Change(func(time.Duration) { w.full, w.next = false, 18*ms }) })
			q.Acquire(bg, Request{N: 1, Max: Forever})
			left(18 * ms)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				f(t, rung(10*ms), func(want time.Duration) {
					if got := time.Since(start); got != want {
						t.Errorf("left at %v, want %v", got, want)
					}
				})
				time.Sleep(50 * ms) // also for those that wait next to
			})
		})
	}
}

// On the real clock, with callers that give up at any instant, all waits end.
func TestClock_Stress(t *testing.T) {
	var callers sync.WaitGroup
	var granted, gaveUp atomic.Int64
	for i := range 40 {
		q := new(Queue)
		q.Init(&slots{interval: time.Duration(i+1) * 50 * time.Microsecond}, Config{
			Exact: true, Hold: func() time.Duration { return time.Duration(i%3) * ms / 2 },
		})
		for k := range 4 {
			callers.Go(func() {
				r := rand.New(rand.NewPCG(uint64(i), uint64(k)))
				for range 50 {
					ctx, cancel := context.WithCancel(context.Background())
					if r.IntN(3) == 0 {
						time.AfterFunc(time.Duration(r.Int64N(int64(2*ms))), cancel)
					}
					if r.IntN(5) == 0 {
						if w, _, err := q.Reserve(Request{N: 1}); err == nil && w != nil && r.IntN(2) == 0 {
							_ = q.Attend(ctx, w)
						}
					}
					switch _, _, err := q.Acquire(ctx, Request{N: 1, Max: Forever}); {
					case err == nil:
						granted.Add(1)
					case errors.Is(err, context.Canceled):
						gaveUp.Add(1)
					default:
						t.Error(err)
					}
					cancel()
				}
			})
		}
	}
	callers.Wait()
	if n := granted.Load() + gaveUp.Load(); n != 40*4*50 || granted.Load() == 0 {
		t.Errorf("%d waits ended, %d of them well", n, granted.Load())
	}
}
