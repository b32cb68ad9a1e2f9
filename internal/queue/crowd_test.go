package queue

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice/internal/testkit/synclog"
	"github.com/sluice-go/sluice/limits"
)

// A latched is a queue of a room with a latch, and notes what becomes of the latch.
type latched struct {
	*synclog.Log
	Queue
	room   room
	open   bool
	asleep int
	got    []int // Open(n), or -1 for Close
}

// lockOnce takes the lock and releases it, which closes and opens the latch.
func (l *latched) lockOnce() {
	l.Lock()
	defer l.Unlock()
}

func (l *latched) Close() int {
	l.open = false
	l.got = append(l.got, -1)
	return l.asleep
}

func (l *latched) Open(asleep int) bool {
	if asleep > 0 && l.room.free > 0 {
		return false
	}
	l.open, l.asleep = true, asleep
	l.got = append(l.got, asleep)
	return true
}

func (l *latched) Admit(now, due time.Duration, n int64) time.Duration {
	return l.room.Admit(now, due, n)
}
func (l *latched) Forecast(time.Duration, int64) time.Duration { return 0 }

func newLatched(free int64) *latched {
	l := &latched{room: room{free}, Log: synclog.New()}
	l.Queue.Init(latch{l}, Config{Untimed: true, Latch: latch{l}, Refuse: func(n int64) error {
		if n > 5 {
			return limits.ErrTooLarge
		}
		return nil
	}})
	return l
}

// latch has the methods of the admitter and of the latch, which a Queue has as well.
type latch struct{ l *latched }

func (r latch) Close() int                                          { return r.l.Close() }
func (r latch) Open(n int) bool                                     { return r.l.Open(n) }
func (r latch) Admit(now, due time.Duration, n int64) time.Duration { return r.l.Admit(now, due, n) }
func (r latch) Forecast(time.Duration, int64) time.Duration         { return 0 }

// join has a caller that cannot be canceled join.
func (l *latched) join(who int) { l.joinWith(who, bg, 1) }

// joinWith has a caller join, and sleep as package semaphore does.
func (l *latched) joinWith(who int, ctx context.Context, n int64) {
	l.Call(who, func() error {
		p, err := l.Join(ctx, n)
		switch {
		case p.Crowd != nil:
			return <-p.Crowd
		case p.Wake == nil:
			return err
		}
		m := Look
		select {
		case m = <-p.Wake:
		case <-ctx.Done():
		}
		if m.Granted() {
			return nil
		}
		return l.Finish(ctx, p, m)
	})
}

func (l *latched) acquire(who int, ctx context.Context, n int64) {
	l.Call(who, func() error { _, _, err := l.Acquire(ctx, Request{N: n, Max: Forever}); return err })
}

func (l *latched) release(n int64) {
	l.Lock()
	l.room.free += n
	l.Advance(0)
	l.Unlock()
}

func (l *latched) want(t *testing.T, what string, got ...int) {
	t.Helper()
	if !slices.Equal(l.got, got) {
		t.Errorf("%s: got %v, want %v", what, l.got, got)
	}
	l.got = nil
}

func TestLatch_OpenWhileNothingWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLatched(1)
		l.want(t, "made", 0)
		l.acquire(0, bg, 1)
		l.want(t, "a caller that need not wait", -1, 0)
		l.acquire(1, bg, 1)
		l.want(t, "a caller that waits", -1)
		l.acquire(2, bg, 1)
		l.lockOnce()
		l.want(t, "another")
		l.release(1)
		l.want(t, "one still waits")
		l.release(1)
		l.want(t, "none waits", 0)
		l.Queue.Close(limits.ErrClosed)
		l.want(t, "closed", -1)
		l.lockOnce()
		l.want(t, "closed for good")
	})
}

func TestQueue_Join(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLatched(1)
		l.join(0)
		l.want(t, "room", 0, -1, 0)
		l.join(1)
		l.want(t, "a crowd", -1, 1)
		l.join(2)
		l.want(t, "two", -1, 2)
		l.Lock()
		if n := l.Len(); n != 2 {
			t.Errorf("%d wait", n)
		}
		l.Unlock()
		l.got = nil
		ctx, cancel := context.WithCancel(bg)
		defer cancel()
		l.acquire(3, ctx, 1)
		l.acquire(4, bg, 2)
		l.join(5) // not of the crowd: others wait before it
		l.Lock()
		if n := l.Len(); n != 5 {
			t.Errorf("%d wait", n)
		}
		l.Unlock()
		l.want(t, "behind a crowd", -1)
		for range 6 {
			time.Sleep(ms)
			l.release(1)
			if synctest.Wait(); len(l.Sofar()) == 3 {
				cancel()
			}
		}
		l.Want(t, synclog.At(0, 0), synclog.At(1, ms), synclog.At(2, 2*ms), synclog.Failed(3, 2*ms, context.Canceled),
			synclog.At(4, 4*ms), synclog.At(5, 5*ms))
	})
}

func TestQueue_Join_Fails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLatched(0)
		for who := range 3 {
			l.join(who)
		}
		l.acquire(3, bg, 1)
		time.Sleep(ms)
		l.Queue.Close(limits.ErrClosed)
		l.join(4)
		l.Want(t, synclog.Failed(0, ms, limits.ErrClosed), synclog.Failed(1, ms, limits.ErrClosed), synclog.Failed(2, ms, limits.ErrClosed),
			synclog.Failed(3, ms, limits.ErrClosed), synclog.Failed(4, ms, limits.ErrClosed))
	})
}

func TestQueue_Join_ManyAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLatched(0)
		for who := range 3 {
			l.join(who)
		}
		time.Sleep(ms)
		l.release(2)
		l.Want(t, synclog.At(0, ms), synclog.At(1, ms))
		l.release(1)
		l.Want(t, synclog.At(0, ms), synclog.At(1, ms), synclog.At(2, ms))
	})
}
