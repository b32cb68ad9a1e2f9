package queue

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// every is a rule that lets one through each interval.
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
	// Its turn comes after 3 s, so if it was not cancelled it would succeed then.
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

// slots is a rule with one slot each interval, from 0 on, whose lateness is made up for.
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

// All whose slots come while the driver is held leave when it wakes. A caller that comes
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
// which those that are due must have left: a rule cannot know that they are late by our fault.
func TestQueue_Hold_ACallerWithADeadlineIsNotRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, start := held(ms/4, 3*ms/4, Config{Exact: true}), time.Now()
		q.rule = &forgetful{slots{interval: ms / 4}}
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
		q.Change(func(now time.Duration) { q.rule.(*slots).next = now })
		if got, want := <-got, []time.Duration{0, 5 * ms, 16 * ms}; !slices.Equal(got, want) {
			t.Errorf("left at %v, want %v", got, want)
		}
	})
}

// A caller that asks is held if it waits for the rate of its own queue, which makes up for
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
// as late as they were. Others are late by themselves.
func TestQueue_Hold_NoCallerLeftToLeave(t *testing.T) {
	for after, want := range map[time.Duration]time.Duration{3 * ms / 10: ms, ms: 2 * ms} {
		synctest.Test(t, func(t *testing.T) {
			q := held(ms/4, 3*ms/4, Config{Exact: true})
			w := &witness{slots: slots{interval: ms / 4}}
			q.rule = w
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
		q.rule = w
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
		q.rule = w
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
