package queue

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice/limits"
)

const ms = time.Millisecond

// wrong is a context that breaks its contract: Done is closed, and Err is nil.
type wrong struct {
	context.Context
	done chan struct{}
}

func (w wrong) Done() <-chan struct{} { return w.done }

func newWrong() wrong {
	w := wrong{context.Background(), make(chan struct{})}
	close(w.done)
	return w
}

// A context without an error is cancelled all the same once its Done is closed: nil would
// say that the caller was let through.
func TestQueue_Acquire_ContextWithoutAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		yes := func(context.Context, Turn) (Wait, error) { return Wait{}, nil }
		never := func(ctx context.Context, _ Turn) (Wait, error) { return Wait{For: Forever}, nil }
		for name, ask := range map[string]AskFunc{"by the rule": nil, "asks": yes, "asks in vain": never} {
			q := newRooms(0, Config{})
			if _, _, err := q.Acquire(newWrong(), Request{N: 1, Max: Forever, Ask: ask}); !errors.Is(err, context.Canceled) {
				t.Errorf("%s, done before: %v", name, err)
			}
			if name == "asks" {
				continue
			}
			ctx := newWrong()
			ctx.done = make(chan struct{})
			time.AfterFunc(time.Second, func() { close(ctx.done) })
			if _, _, err := q.Acquire(ctx, Request{N: 1, Max: Forever, Ask: ask}); !errors.Is(err, context.Canceled) {
				t.Errorf("%s, done while it waits: %v", name, err)
			}
			q.Lock()
			if n := q.Len(); n != 0 {
				t.Errorf("%s: %d wait", name, n)
			}
			q.Unlock()
		}
	})
}

// nosy is a context that looks whether the queue is locked whenever it is asked
// something: its methods are the caller's own code, and may use what the lock guards.
type nosy struct {
	context.Context
	q    *Queue
	t    *testing.T
	when string
}

func (c nosy) look(method string) {
	for range 1_000_000 { // another goroutine may hold the lock for a moment, or be kept from running with it
		if c.q.mu.TryLock() {
			c.q.mu.Unlock()
			return
		}
		runtime.Gosched()
	}
	c.t.Errorf("%s: %s is called with the queue locked", c.when, method)
}

func (c nosy) Deadline() (time.Time, bool) { c.look("Deadline"); return c.Context.Deadline() }
func (c nosy) Done() <-chan struct{}       { c.look("Done"); return c.Context.Done() }
func (c nosy) Err() error                  { c.look("Err"); return c.Context.Err() }
func (c nosy) Value(key any) any           { c.look("Value"); return c.Context.Value(key) }

func TestQueue_Acquire_CallsContextsUnlocked(t *testing.T) {
	forever := func(context.Context, Turn) (Wait, error) { return Wait{For: Forever}, nil }
	second := func(context.Context, Turn) (Wait, error) { return Surely(time.Second), nil }
	until := func(ctx context.Context, _ Turn) (Wait, error) { <-ctx.Done(); return Wait{}, ctx.Err() }
	acquire := func(r Request) func(q *Queue, ctx context.Context) error {
		r.N, r.Max = 1, max(r.Max, time.Hour)
		return func(q *Queue, ctx context.Context) error { _, _, err := q.Acquire(ctx, r); return err }
	}
	for _, exact := range []bool{true, false} {
		for name, enter := range map[string]func(q *Queue, ctx context.Context) error{
			"a slot":          acquire(Request{}),
			"bounded":         acquire(Request{Max: 2 * time.Hour}),
			"asks":            acquire(Request{Ask: forever}),
			"asks for a slot": acquire(Request{Ask: second}),
			"is asking":       acquire(Request{Ask: until}),
			"attends": func(q *Queue, ctx context.Context) error {
				w, _, err := q.Reserve(Request{N: 1, Max: Forever})
				if err != nil {
					return err
				}
				return q.Attend(ctx, w)
			},
			"without the time": acquire(Request{Max: Forever}),
		} {
			for how, end := range map[string]func(t *testing.T, ctx context.Context, q *Queue) context.Context{
				"done before": func(_ *testing.T, ctx context.Context, _ *Queue) context.Context {
					ctx, cancel := context.WithCancel(ctx)
					cancel()
					return ctx
				},
				"cancelled": func(_ *testing.T, ctx context.Context, _ *Queue) context.Context {
					ctx, cancel := context.WithCancel(ctx)
					time.AfterFunc(10*ms, cancel)
					return ctx
				},
				"closed": func(t *testing.T, ctx context.Context, q *Queue) context.Context {
					ctx, cancel := context.WithTimeout(ctx, 100*24*time.Hour)
					t.Cleanup(cancel)
					time.AfterFunc(10*ms, func() { q.Close(limits.ErrClosed) })
					return ctx
				},
				"hopeless": func(t *testing.T, ctx context.Context, q *Queue) context.Context {
					ctx, cancel := context.WithTimeout(ctx, 24*time.Hour)
					t.Cleanup(cancel)
					time.AfterFunc(10*ms, func() {
						q.Change(func(now time.Duration) { q.rule.(*every).next = now + 48*time.Hour })
					})
					return ctx
				},
			} {
				if name == "without the time" && (exact || how == "closed" || how == "hopeless") {
					continue // nothing else ends such a wait
				}
				t.Run(name+", "+how, func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						q := new(Queue)
						q.Init(&every{interval: time.Hour, next: time.Hour}, Config{Exact: exact, Untimed: name == "without the time"})
						ctx := nosy{end(t, context.Background(), q), q, t, name + ", " + how}
						if err := enter(q, ctx); err == nil {
							t.Error("let through")
						}
						q.Lock()
						defer q.Unlock()
						if q.Len() > 0 {
							t.Errorf("%d wait", q.Len())
						}
					})
				})
			}
		}
	}
}

// A caller that is failed while it asks: its context for that ends, and the error is why.
func TestAskFunc_FailedWhileItAsks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newRooms(0, Config{})
		time.AfterFunc(time.Second, func() { q.Close(limits.ErrClosed) })
		_, _, err := q.Acquire(t.Context(), Request{N: 1, Max: Forever, Ask: func(ctx context.Context, _ Turn) (Wait, error) {
			<-ctx.Done()
			return Wait{}, ctx.Err()
		}})
		if err != limits.ErrClosed {
			t.Error(err)
		}
	})
}
