package sluiceredis

import (
	"context"
	"runtime"
	"testing"
	"testing/synctest"
	"time"
)

// unaware is a context that has not noticed its deadline yet: contexts notice by a timer.
type unaware struct {
	context.Context
	deadline time.Time
}

func (u unaware) Deadline() (time.Time, bool) { return u.deadline, true }

func TestBounded(t *testing.T) {
	isDone := func(ctx context.Context) bool {
		select {
		case <-ctx.Done():
			return true
		default:
			return false
		}
	}
	type key struct{}
	ends := map[string]struct {
		parent func() (context.Context, context.CancelFunc)
		do     func(b *bounded, cancel context.CancelFunc)
		want   error
	}{
		"not yet": {do: func(*bounded, context.CancelFunc) { time.Sleep(sec - 1) }},
		"limit":   {do: func(*bounded, context.CancelFunc) { time.Sleep(sec) }, want: context.DeadlineExceeded},
		"end":     {do: func(b *bounded, _ context.CancelFunc) { b.end() }, want: context.Canceled},
		"caller cancels": {
			do: func(_ *bounded, cancel context.CancelFunc) { cancel(); synctest.Wait() }, want: context.Canceled},
		"the first of two ends": {
			do: func(b *bounded, cancel context.CancelFunc) {
				time.Sleep(2 * sec)
				_ = b.Err()
				cancel()
				b.end()
			}, want: context.DeadlineExceeded},
		"the caller's deadline": {
			parent: func() (context.Context, context.CancelFunc) { return context.WithTimeout(bg, sec/2) },
			do:     func(*bounded, context.CancelFunc) { time.Sleep(sec / 2); synctest.Wait() },
			want:   context.DeadlineExceeded},
		"the caller's deadline, of which it does not know yet": {
			parent: func() (context.Context, context.CancelFunc) {
				return unaware{bg, time.Now().Add(sec / 2)}, func() {}
			},
			do: func(*bounded, context.CancelFunc) { time.Sleep(sec/2 + 1) }},
	}
	for name, v := range ends {
		for _, waits := range []string{"at the end", "by a context of it", "from the beginning"} {
			synctest.Test(t, func(t *testing.T) {
				parent, cancel := context.WithCancel(bg)
				if v.parent != nil {
					parent, cancel = v.parent()
				}
				defer cancel()
				b := new(bounded)
				b.begin(context.WithValue(parent, key{}, 7), time.Now().Add(sec))
				defer b.end()
				want := time.Now().Add(sec)
				if at, ok := parent.Deadline(); ok {
					want = at
				}
				if at, ok := b.Deadline(); !ok || !at.Equal(want) || b.Err() != nil || b.timed != nil {
					t.Errorf("%s: before: %v, %v, %v", name, at, b.Err(), b.timed)
				}
				if waits == "from the beginning" && isDone(b) {
					t.Errorf("%s: done at once", name)
				}
				child := context.Context(b)
				if waits != "at the end" {
					before := runtime.NumGoroutine()
					var stop context.CancelFunc
					child, stop = context.WithCancel(b)
					defer stop()
					if n := runtime.NumGoroutine(); n != before && waits == "from the beginning" {
						t.Errorf("%s: %d goroutines more for a context of it", name, n-before)
					}
				}
				v.do(b, cancel)
				synctest.Wait()
				if got := b.Err(); got != v.want {
					t.Errorf("%s, waits %s: %v, want %v", name, waits, got, v.want)
				}
				if got := isDone(b); got != (v.want != nil) {
					t.Errorf("%s, waits %s: done: %v, %v", name, waits, got, v.want)
				}
				synctest.Wait()
				if got := child.Err(); got != v.want || b.Err() != v.want || b.Value(key{}) != 7 {
					t.Errorf("%s, waits %s: a context of it: %v, %v, %v", name, waits, got, b.Err(), b.Value(key{}))
				}
			})
		}
	}
}
