package queue

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice/limits"
)

// room is an admitter that lets n in while there is room.
type room struct{ free int64 }

func (r *room) Admit(_, _ time.Duration, n int64) time.Duration {
	if n > r.free {
		return Forever
	}
	r.free -= n
	return 0
}

func (*room) Forecast(time.Duration, int64) time.Duration { return 0 }

type rooms struct {
	Queue
	room room
}

func newRooms(free int64, cfg Config) *rooms {
	r := &rooms{room: room{free}}
	cfg.Untimed = true
	r.Init(&r.room, cfg)
	return r
}

func (r *rooms) release(n int64) {
	r.Lock()
	r.room.free += n
	r.Advance(0)
	r.Unlock()
}

// herd lets n callers wait at the same time, and go.
func (r *rooms) herd(t *testing.T, n int) {
	t.Helper()
	var callers sync.WaitGroup
	for range n {
		callers.Go(func() {
			if _, _, err := r.Acquire(context.Background(), Request{N: 1, Max: Forever}); err != nil {
				t.Error(err)
			}
		})
	}
	for waiting := 0; waiting < n; runtime.Gosched() {
		r.Lock()
		waiting = r.Len()
		r.Unlock()
	}
	r.release(int64(n))
	callers.Wait()
}

// kept returns how many waiters are kept, each once.
func (r *rooms) kept(t *testing.T) int {
	t.Helper()
	r.Lock()
	defer r.Unlock()
	seen := map[*Waiter]bool{}
	for w := r.spares.front; w != nil; w = w.next {
		if seen[w] {
			t.Fatal("a waiter is kept twice")
		}
		seen[w] = true
		if w.done != nil || w.rare != nil || w.wake == nil || w.settled() {
			t.Errorf("kept: %+v", w)
		}
		if w.next == nil && w != r.spares.back {
			t.Error("the last one is not the last")
		}
	}
	if int(r.idle) != len(seen) {
		t.Errorf("%d are kept, said to be %d", len(seen), r.idle)
	}
	return len(seen)
}

func TestSpares_UsedAgain(t *testing.T) {
	r := newRooms(0, Config{})
	r.herd(t, 10)
	if n := r.kept(t); n != 10 {
		t.Errorf("of 10 waiters %d are kept", n)
	}
	for range 20 {
		r.herd(t, 7)
	}
	if n := r.kept(t); n != 10 {
		t.Errorf("of 10 waiters %d are left", n)
	}
}

func TestSpares_HerdIsGivenBack(t *testing.T) {
	r := newRooms(0, Config{})
	for range 3 {
		r.herd(t, 4*maxSpare)
		if n := r.kept(t); n != maxSpare {
			t.Errorf("%d waiters are kept, want about %d", n, maxSpare)
		}
	}
}

// A caller that is rejected before it waits, or only tries, keeps the waiter for others.
func TestSpares_RefusedCallersUseUpNone(t *testing.T) {
	r := newRooms(0, Config{MaxWaiting: 1})
	r.herd(t, 1)
	full := make(chan struct{})
	go func() {
		defer close(full)
		r.Acquire(context.Background(), Request{N: 1, Max: Forever})
	}()
	for waiting := 0; waiting < 1; runtime.Gosched() {
		r.Lock()
		waiting = r.Len()
		r.Unlock()
	}
	refused := func(want error, most time.Duration) float64 {
		return testing.AllocsPerRun(100, func() {
			if _, _, err := r.Acquire(context.Background(), Request{N: 1, Max: most}); !errors.Is(err, want) {
				t.Errorf("%v, want %v", err, want)
			}
		})
	}
	if n := refused(limits.ErrQueueFull, Forever); n > 0 {
		t.Errorf("a caller for whom the queue is full allocates %v times", n)
	}
	if n := refused(limits.ErrTimeout, 0); n > 1 { // for its bound
		t.Errorf("a caller who does not wait allocates %v times", n)
	}
	r.release(1)
	<-full
	asked := Request{N: 1, Ask: func(context.Context, Turn) (Wait, error) { return Wait{}, nil }}
	r.Try(asked)
	if n := testing.AllocsPerRun(100, func() { r.Try(asked) }); n > 3 { // a context, and that it asks
		t.Errorf("a caller who tries, and asks, allocates %v times", n)
	}
}

// A waiter is not used again before its goroutine has its message: it would get
// that of another.
func TestSpares_KeepTheirMessages(t *testing.T) {
	r := newRooms(0, Config{})
	r.herd(t, 1)
	w := r.spares.front
	w.wake <- Message{} // as to a goroutine that does not run
	r.herd(t, 1)
	if n := r.kept(t); n != 2 || r.spares.front != w {
		t.Errorf("%d are kept", n)
	}
	<-w.wake
	r.herd(t, 1)
	if n := r.kept(t); n != 2 || r.spares.back != w {
		t.Errorf("%d are kept", n)
	}
}

// A caller that was told to look is told how the wait ended all the same.
func TestMessage_GrantAfterNudge(t *testing.T) {
	for _, most := range []time.Duration{Forever, time.Hour} {
		r := newRooms(0, Config{})
		r.herd(t, 1)
		for range 100 {
			done := make(chan error)
			go func() {
				_, _, err := r.Acquire(context.Background(), Request{N: 1, Max: most})
				done <- err
			}()
			for waiting := false; !waiting; {
				r.Lock()
				if waiting = r.front != nil; waiting {
					r.front.nudge()
					r.room.free++
					r.Advance(0)
				}
				r.Unlock()
			}
			if err := <-done; err != nil {
				t.Fatal(err)
			}
		}
		if n := r.kept(t); n == 0 || n > 2 {
			t.Errorf("%d are kept", n)
		}
	}
}

// How a wait ended replaces a message that its goroutine has not looked at: whoever
// sends holds the lock, and must not wait for one that may be waiting for the lock.
func TestWaiter_Send_DoesNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &Waiter{wake: make(chan Message, 1)}
		w.nudge()
		w.send(Message{at: 5})
		if m := heard(w.wake); m != (Message{at: 5}) {
			t.Errorf("heard %v", m)
		}
	})
}

// Its error is in it until its caller has read it.
func TestSpares_NotOfFailedCallers(t *testing.T) {
	r := newRooms(0, Config{})
	ctx, cancel := context.WithCancel(context.Background())
	time.AfterFunc(time.Millisecond, cancel)
	if _, _, err := r.Acquire(ctx, Request{N: 1, Max: Forever}); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if n := r.kept(t); n != 0 {
		t.Errorf("%d are kept", n)
	}
}

// What waited in a testing/synctest bubble is not kept for somebody outside, who could not
// use its channel, also if the queue was made outside.
func TestSpares_NotOfABubble(t *testing.T) {
	q := newFine(50 * time.Microsecond)
	acquire := func() {
		for range 3 { // the second waits
			if _, _, err := q.Acquire(context.Background(), Request{N: 1, Max: Forever}); err != nil {
				t.Error(err)
			}
		}
	}
	synctest.Test(t, func(*testing.T) {
		q.admitter.(*every).next = q.Now() // long before the queue was made
		acquire()
	})
	if q.idle > 0 {
		t.Errorf("%d are kept", q.idle)
	}
	acquire()
}
