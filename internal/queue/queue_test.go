package queue

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// never is an admitter that admits nobody.
type never struct{}

func (never) Admit(time.Duration, time.Duration, int64) time.Duration { return Forever }
func (never) Forecast(time.Duration, int64) time.Duration             { return 0 }

// What would let the head through happens while it asks, after it has looked
// and before it sleeps. It must hear of it: with nobody else to wake it, it
// would sleep for ever.
func TestQueue_Kick_WhileAsking(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue()
		asked := 0
		_, _, err := q.Acquire(context.Background(), Request{N: 1, Max: Forever, Ask: func(context.Context, Turn) (Wait, error) {
			if asked++; asked > 1 {
				return Wait{}, nil
			}
			q.Lock() // the release of another caller, in between
			q.Advance(q.Now())
			q.Kick()
			q.Unlock()
			return Wait{For: Forever}, nil
		}})
		if err != nil || asked != 2 {
			t.Errorf("%v, asked %d times", err, asked)
		}
	})
}

// setBack returns t as it would read if the wall clock had been set by −d
// since: its wall part is off, its monotonic part is not.
func setBack(t time.Time, d time.Duration) time.Time {
	wall := (*uint64)(unsafe.Pointer(&t))
	*wall += uint64(d/time.Second) << 30
	return t
}

func TestQueue_Time_WallClockWasSet(t *testing.T) {
	for _, d := range []time.Duration{time.Hour, -time.Hour} {
		q := newQueue()
		q.epoch = setBack(q.epoch, d)
		now := q.Now()
		if now < 0 || now > time.Minute {
			t.Fatalf("the monotonic clock moved by %v", now)
		}
		about := func(what string, got time.Duration) {
			t.Helper()
			if got.Round(time.Minute) != 10*time.Minute {
				t.Errorf("clock set by %v: %s 10 min away is taken for %v", -d, what, got)
			}
		}
		at := time.Now().Round(0).Add(10 * time.Minute) // no monotonic part, as from a header
		about("a time", q.Instant(now, at)-now)
		about("a slot", time.Until(q.Time(now+10*time.Minute).Round(0)))
		ctx, cancel := context.WithDeadline(context.Background(), at)
		w := new(Waiter)
		w.setRequest(&Request{Max: Forever}, q.deadline(ctx), q, now)
		about("a deadline", w.rare.ctxAt-now)
		cancel()
	}
}

func TestTotal_ExactHoweverLarge(t *testing.T) {
	var sum total
	for range 5 {
		sum.add(1<<63 - 1)
	}
	if sum.value() != 1<<63-1 {
		t.Errorf("saturated: %d", sum.value())
	}
	for range 5 {
		sum.sub(1<<63 - 1)
	}
	sum.add(7)
	if sum.value() != 7 {
		t.Errorf("got %d, want 7", sum.value())
	}
}

func newQueue() *Queue {
	q := new(Queue)
	q.Init(never{}, Config{})
	return q
}

// 100,000 may wait, so an entry is as small as it can be.
func TestWaiter_IsSmall(t *testing.T) {
	if unsafe.Sizeof(uintptr(0)) != 8 {
		t.Skip("pointers are shorter here")
	}
	if size, rarely := unsafe.Sizeof(Waiter{}), unsafe.Sizeof(rare{}); size != 72 || rarely > 192 {
		t.Errorf("an entry takes %d bytes, and %d more if it is bounded, want 72 and 192", size, rarely)
	}
}
