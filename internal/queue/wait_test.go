package queue

import (
	"context"
	"errors"
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
	began := time.Now()
	_, _, err := q.Acquire(ctx, Request{N: 1, Max: Forever})
	if took := time.Since(began); !errors.Is(err, context.Canceled) || took > time.Second {
		t.Errorf("%v after %v; its turn was after 3 s", err, took)
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
