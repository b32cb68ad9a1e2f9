package queue

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice/limits"
)

// told is a queue of rooms that counts whom it told to wait, and calls then, if
// that is set, what a test wants to happen meanwhile.
type told struct {
	*rooms
	n    []int64
	then func()
}

func newTold(free int64, cfg Config) *told {
	t := new(told)
	cfg.Waits = func(_ context.Context, n int64) {
		t.n = append(t.n, n)
		if t.then != nil {
			t.then()
		}
	}
	t.rooms = newRooms(free, cfg)
	return t
}

func (q *told) length() int {
	q.Lock()
	defer q.Unlock()
	return q.Len()
}

func acquire(q *Queue, n int64, r Request) error {
	r.N = n
	if r.Max == 0 {
		r.Max = Forever
	}
	_, _, err := q.Acquire(context.Background(), r)
	return err
}

func TestConfig_Waits_BeforeThePlaceIsTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newTold(1, Config{})
		q.then = func() {
			if n := q.length(); n != 0 { // nor is it locked
				t.Errorf("%d wait already", n)
			}
		}
		acquire(&q.Queue, 1, Request{}) // there is room
		go acquire(&q.Queue, 2, Request{})
		synctest.Wait()
		if len(q.n) != 1 || q.n[0] != 2 || q.length() != 1 {
			t.Errorf("told %v, %d wait", q.n, q.length())
		}
		q.release(2)
	})
}

// What it waits for comes while it is told: it need not wait any more.
func TestConfig_Waits_ThenThereIsRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newTold(0, Config{})
		q.then = func() { q.release(1) }
		if err := acquire(&q.Queue, 1, Request{}); err != nil || len(q.n) != 1 {
			t.Errorf("%v, told %v", err, q.n)
		}
	})
}

func TestConfig_Waits_NotForThoseRefusedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newTold(0, Config{MaxWaiting: 1})
		if err := acquire(&q.Queue, 1, Request{Max: -1}); !errors.Is(err, limits.ErrTimeout) {
			t.Error(err)
		}
		go acquire(&q.Queue, 1, Request{})
		synctest.Wait()
		q.n = nil
		if err := acquire(&q.Queue, 1, Request{}); err != limits.ErrQueueFull {
			t.Error(err)
		}
		if _, ok := q.Try(Request{N: 1}); ok {
			t.Error("tried, and let through")
		}
		q.release(1)
		synctest.Wait()
		q.Close(limits.ErrClosed)
		if err := acquire(&q.Queue, 1, Request{}); err != limits.ErrClosed {
			t.Error(err)
		}
		if len(q.n) != 0 {
			t.Errorf("told %v", q.n)
		}
	})
}

// A caller that must ask knows only at the head whether it has to wait; behind
// others it knows before. Either way it is told once.
func TestConfig_Waits_OnceForThoseThatAsk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newTold(0, Config{})
		no, asked := [3]int{0, 2, 2}, [3]int{}
		for i := range asked {
			ask := func(context.Context, Turn) (Wait, error) {
				if asked[i]++; asked[i] <= no[i] {
					return Surely(time.Second), nil
				}
				return Wait{}, nil
			}
			go acquire(&q.Queue, int64(i), Request{Ask: ask})
			synctest.Wait()
			if i == 0 && len(q.n) != 0 {
				t.Error("the first need not wait")
			}
		}
		if len(q.n) != 2 || q.n[0] != 1 || q.n[1] != 2 {
			t.Errorf("told %v", q.n)
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if len(q.n) != 2 || asked != [3]int{1, 3, 3} {
			t.Errorf("told %v, asked %v times", q.n, asked)
		}
	})
}

// The head hears what it is told to look at, and that it has failed, while it
// tells that it waits.
func TestConfig_Waits_HeadMissesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, want := range []error{nil, limits.ErrClosed} {
			q := newTold(0, Config{})
			open := false
			q.then = func() {
				if want != nil {
					q.Close(want)
					return
				}
				q.Lock()
				open = true
				q.Advance(q.Now())
				q.Kick()
				q.Unlock()
			}
			err := acquire(&q.Queue, 1, Request{Ask: func(context.Context, Turn) (Wait, error) {
				if open {
					return Wait{}, nil
				}
				return Wait{For: Forever}, nil
			}})
			if err != want || len(q.n) != 1 {
				t.Errorf("%v, want %v; told %v", err, want, q.n)
			}
		}
	})
}

// A panic leaves the queue as if its caller had not come.
func TestConfig_Waits_Panics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, ask := range []AskFunc{nil, func(context.Context, Turn) (Wait, error) { return Wait{For: Forever}, nil }} {
			q := newTold(0, Config{})
			q.then = func() {
				q.then = nil
				go acquire(&q.Queue, 1, Request{}) // behind the one that panics
				synctest.Wait()
				panic("told")
			}
			func() {
				defer func() {
					if r := recover(); r != "told" {
						t.Errorf("recovered %v", r)
					}
				}()
				acquire(&q.Queue, 5, Request{Ask: ask})
			}()
			if n := q.length(); n != 1 {
				t.Errorf("%d wait", n)
			}
			q.release(1)
			synctest.Wait()
			if n := q.length(); n != 0 {
				t.Errorf("%d wait", n)
			}
		}
	})
}
