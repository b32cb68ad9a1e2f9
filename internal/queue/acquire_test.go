package queue

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice/internal/sentence"
	"github.com/sluice-go/sluice/internal/testkit/synclog"
	"github.com/sluice-go/sluice/limits"
)

// A line is an exact queue of one call per 100 ms, and a log of how its callers end.
type line struct {
	Queue
	*synclog.Log
	admitter every
}

// newLine returns a line whose first slot is at first.
func newLine(first time.Duration, cfg Config) *line {
	l := &line{Log: synclog.New(), admitter: every{interval: 100 * ms, next: first}}
	cfg.Exact = true
	l.Init(&l.admitter, cfg)
	return l
}

// acquire has a caller come. A Max of 0 sets no bound.
func (l *line) acquire(who int, ctx context.Context, r Request) {
	r.N = max(1, r.N)
	if r.Max == 0 {
		r.Max = Forever
	}
	l.Call(who, func() error {
		_, _, err := l.Queue.Acquire(ctx, r)
		return err
	})
}

func (l *line) len() int {
	l.Lock()
	defer l.Unlock()
	return l.Len()
}

var bg = context.Background()

// wantWaitError wants err to be a WaitError with these numbers.
func wantWaitError(t *testing.T, err error, need, have time.Duration) {
	t.Helper()
	var wait *limits.WaitError
	if !errors.As(err, &wait) || wait.Need != need || wait.Have != have {
		t.Errorf("got %v, want a need of %v and %v to have", err, need, have)
	}
}

func TestQueue_Acquire_InOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLine(50*ms, Config{})
		for who, n := range []int64{1, 3, 1, 2, 1} {
			l.acquire(who, bg, Request{N: n})
		}
		if n := l.len(); n != 5 {
			t.Errorf("%d wait", n)
		}
		l.Lock()
		if w := l.Weight(); w != 8 {
			t.Errorf("they weigh %d", w)
		}
		var got []int64
		l.Each(func(n int64) bool { got = append(got, n); return len(got) < 4 })
		if len(got) != 4 || got[0] != 1 || got[1] != 3 || got[3] != 2 {
			t.Errorf("the first four weigh %v", got)
		}
		l.Unlock()
		time.Sleep(time.Hour)
		l.Want(t, synclog.At(0, 50*ms), synclog.At(1, 150*ms), synclog.At(2, 450*ms), synclog.At(3, 550*ms), synclog.At(4, 750*ms))
		if n := l.len(); n != 0 {
			t.Errorf("%d wait", n)
		}
		if l.Lock(); l.Weight() != 0 {
			t.Errorf("they weigh %d", l.Weight())
		}
		l.Unlock()
	})
}

// A caller that comes at the very slot of the head does not overtake it.
func TestQueue_Acquire_AtTheSlotOfAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLine(100*ms, Config{})
		time.AfterFunc(100*ms, func() { l.acquire(1, bg, Request{}) }) // fires before the driver's timer
		l.acquire(0, bg, Request{})
		time.Sleep(time.Hour)
		l.Want(t, synclog.At(0, 100*ms), synclog.At(1, 200*ms))
	})
}

func TestQueue_Acquire_ReturnsWhenAndHowLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLine(0, Config{})
		time.Sleep(30 * ms)
		for _, want := range [][2]time.Duration{{30 * ms, 0}, {130 * ms, 100 * ms}, {230 * ms, 100 * ms}} {
			g, waited, err := l.Acquire(bg, Request{N: 1, Max: Forever})
			if g.At != want[0] || waited != want[1] || err != nil {
				t.Errorf("%v, %v, %v; want %v", g.At, waited, err, want)
			}
		}
	})
}

func TestQueue_Acquire_Cancel(t *testing.T) {
	ctxOf := func() (context.Context, func()) { return context.WithCancel(bg) }
	for name, c := range map[string]struct {
		cancel int
		want   []time.Duration // when the others leave
	}{
		"head":   {0, []time.Duration{100 * ms, 300 * ms, 400 * ms}},
		"middle": {1, []time.Duration{100 * ms, 200 * ms, 300 * ms}},
		"tail":   {3, []time.Duration{100 * ms, 200 * ms, 400 * ms}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLine(100*ms, Config{})
				var want []synclog.Left
				var cancels []func()
				for who, n := range []int64{1, 2, 1, 1} {
					ctx, cancel := ctxOf()
					defer cancel()
					cancels = append(cancels, cancel)
					l.acquire(who, ctx, Request{N: n})
					if who != c.cancel {
						want = append(want, synclog.At(who, c.want[len(want)]))
					}
				}
				time.Sleep(60 * ms)
				cancels[c.cancel]()
				if synctest.Wait(); l.len() != 3 {
					t.Errorf("%d wait", l.len())
				}
				time.Sleep(time.Hour)
				l.Want(t, append(want, synclog.Failed(c.cancel, 60*ms, context.Canceled))...)
			})
		})
	}
}

// Without the time: what the head waited for goes to the next immediately.
func TestQueue_Acquire_CancelWithoutTheTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, l := newRooms(1, Config{}), synclog.New()
		ctx, cancel := context.WithCancel(bg)
		for who, n := range []int64{2, 1, 1} {
			ctx := ctx
			if who > 0 {
				ctx = bg
			}
			l.Call(who, func() error { _, _, err := q.Acquire(ctx, Request{N: n, Max: Forever}); return err })
		}
		l.Want(t) // nothing overtakes the first
		time.Sleep(ms)
		cancel()
		l.Want(t, synclog.Failed(0, ms, context.Canceled), synclog.At(1, ms))
		time.Sleep(ms)
		q.release(1)
		l.Want(t, synclog.Failed(0, ms, context.Canceled), synclog.At(1, ms), synclog.At(2, 2*ms))
	})
}

func TestQueue_Acquire_DoneContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(bg)
		cancel()
		l := newLine(0, Config{})
		if _, _, err := l.Acquire(ctx, Request{N: 1, Max: Forever}); err != context.Canceled || l.admitter.next != 0 {
			t.Errorf("%v, and the next slot is at %v", err, l.admitter.next)
		}
	})
}

// A context that is done when its turn comes takes nothing, although its goroutine has
// not seen that yet.
func TestQueue_Advance_SkipsDoneContexts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, l := newRooms(0, Config{}), synclog.New()
		ctx, cancel := context.WithCancel(bg)
		l.Call(0, func() error { _, _, err := q.Acquire(ctx, Request{N: 1, Max: Forever}); return err })
		l.Call(1, func() error { _, _, err := q.Acquire(bg, Request{N: 1, Max: Forever}); return err })
		q.Lock()
		cancel()
		q.room.free++
		q.Advance(0)
		q.Unlock()
		l.Want(t, synclog.Failed(0, 0, context.Canceled), synclog.At(1, 0))
	})
}

func TestQueue_Acquire_Deadline(t *testing.T) {
	within := func(d time.Duration) (context.Context, context.CancelFunc) { return context.WithTimeout(bg, d) }
	synctest.Test(t, func(t *testing.T) {
		l := newLine(100*ms, Config{})
		l.acquire(0, bg, Request{})

		ctx, cancel := within(200 * ms) // at its slot it is done
		defer cancel()
		_, _, err := l.Acquire(ctx, Request{N: 1, Max: Forever})
		wantWaitError(t, err, 200*ms, 200*ms)
		_, _, err = l.Acquire(bg, Request{N: 1, Max: 200*ms - 1})
		wantWaitError(t, err, 200*ms, 200*ms-1)
		_, _, err = l.Acquire(bg, Request{N: 1, Max: -time.Hour})
		wantWaitError(t, err, 200*ms, 0)

		later, cancel := within(200*ms + 1)
		defer cancel()
		l.acquire(1, later, Request{})
		l.acquire(2, bg, Request{Max: 300 * ms}) // exactly as long is in time
		if n := l.len(); n != 3 {
			t.Errorf("%d wait", n)
		}
		time.Sleep(time.Hour)
		l.Want(t, synclog.At(0, 100*ms), synclog.At(1, 200*ms), synclog.At(2, 300*ms))
	})
}

// An admitter that cannot forecast: callers wait as long as they may.
func TestQueue_Acquire_DeadlineWithoutForecast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, l := newRooms(0, Config{}), synclog.New()
		acquire := func(who int, ctx context.Context, most time.Duration) {
			l.Call(who, func() error { _, _, err := q.Acquire(ctx, Request{N: 1, Max: most}); return err })
		}
		ctx, cancel := context.WithTimeout(bg, 30*ms)
		defer cancel()
		acquire(0, bg, 50*ms)
		acquire(1, ctx, Forever)
		acquire(2, ctx, 10*ms)
		acquire(3, bg, -ms)
		acquire(4, bg, 0)
		acquire(5, bg, 50*ms)
		time.Sleep(50*ms - 1)
		q.release(1)
		time.Sleep(time.Hour)
		l.Want(t, synclog.Failed(3, 0, limits.ErrTimeout), synclog.Failed(4, 0, limits.ErrTimeout), synclog.Failed(2, 10*ms, limits.ErrTimeout),
			synclog.Failed(1, 30*ms, context.DeadlineExceeded), synclog.At(0, 50*ms-1), synclog.Failed(5, 50*ms, limits.ErrTimeout))
	})
}

// What a head waited for whose bound has ended goes to the next immediately.
func TestQueue_Acquire_BoundOfTheHead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, l := newRooms(1, Config{}), synclog.New()
		l.Call(0, func() error { _, _, err := q.Acquire(bg, Request{N: 2, Max: 10 * ms}); return err })
		l.Call(1, func() error { _, _, err := q.Acquire(bg, Request{N: 1, Max: Forever}); return err })
		time.Sleep(time.Hour)
		l.Want(t, synclog.Failed(0, 10*ms, limits.ErrTimeout), synclog.At(1, 10*ms))
	})
}

func TestQueue_Acquire_MaxWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLine(0, Config{MaxWaiting: 2})
		for who := range 4 { // the first need not wait
			l.acquire(who, bg, Request{})
		}
		if _, _, err := l.Reserve(Request{N: 1}); err != limits.ErrQueueFull {
			t.Error(err)
		}
		time.Sleep(100 * ms)
		l.acquire(4, bg, Request{})
		time.Sleep(time.Hour)
		l.Want(t, synclog.At(0, 0), synclog.Failed(3, 0, limits.ErrQueueFull), synclog.At(1, 100*ms), synclog.At(2, 200*ms), synclog.At(4, 300*ms))
	})
}

func TestQueue_Try_NeverOvertakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, l := newRooms(1, Config{}), synclog.New()
		l.Call(0, func() error { _, _, err := q.Acquire(bg, Request{N: 2, Max: Forever}); return err })
		yes := func(context.Context, Turn) (Wait, error) { t.Error("asked"); return Wait{}, nil }
		if _, ok := q.Try(Request{N: 1}); ok {
			t.Error("overtook")
		}
		if _, ok := q.Try(Request{N: 1, Ask: yes}); ok {
			t.Error("overtook by asking")
		}
		q.release(2)
		if _, ok := q.Try(Request{N: 2}); ok || q.room.free != 1 {
			t.Errorf("2 of %d", q.room.free)
		}
		if _, ok := q.Try(Request{N: 1}); !ok || q.room.free != 0 {
			t.Errorf("not 1 of %d", q.room.free)
		}
		l.Want(t, synclog.At(0, 0))

		line := newLine(100*ms, Config{})
		line.acquire(0, bg, Request{})
		time.Sleep(100 * ms) // now it is the turn of the one that waits, not of a newcomer
		if g, ok := line.Try(Request{N: 1}); ok || g.At != 100*ms {
			t.Errorf("at %v: %v", g.At, ok)
		}
		time.Sleep(100 * ms)
		if g, ok := line.Try(Request{N: 1}); !ok || g.At != 200*ms {
			t.Errorf("at %v: %v", g.At, ok)
		}
	})
}

func TestConfig_Refuse(t *testing.T) {
	errOdd := errors.New("odd")
	synctest.Test(t, func(t *testing.T) {
		odd := int64(3)
		l := newLine(100*ms, Config{Refuse: func(n int64) error {
			if n >= odd {
				return errOdd
			}
			return nil
		}})
		cancelled, cancel := context.WithCancel(bg)
		l.acquire(0, bg, Request{N: 3})
		l.acquire(1, bg, Request{N: 2})
		l.acquire(2, cancelled, Request{N: 2})
		l.acquire(3, bg, Request{N: 1})
		if _, ok := l.Try(Request{N: 3}); ok {
			t.Error("tried, and let through")
		}
		if _, _, err := l.Reserve(Request{N: 3}); err != errOdd {
			t.Error(err)
		}
		l.Lock()
		odd = 2
		cancel() // it failed before
		l.Recheck()
		l.Advance(l.Now())
		l.Unlock()
		l.acquire(4, bg, Request{N: 2})
		time.Sleep(time.Hour)
		l.Want(t, synclog.Failed(0, 0, errOdd), synclog.Failed(1, 0, errOdd), synclog.Failed(2, 0, context.Canceled),
			synclog.Failed(4, 0, errOdd), synclog.At(3, 100*ms))
	})
}

// A bound that rejects no entry is not compared with each of them.
func TestQueue_Recheck_LooksAtNoneThatMerelyWait(t *testing.T) {
	errLarge := errors.New("too large")
	synctest.Test(t, func(t *testing.T) {
		most, looked := int64(10), 0
		l := newLine(time.Hour, Config{Refuse: func(n int64) error {
			if looked++; n > most {
				return errLarge
			}
			return nil
		}})
		set := func(limit int64, want int) {
			t.Helper()
			l.Lock()
			most, looked = limit, 0
			l.Recheck()
			l.Unlock()
			if looked != want {
				t.Errorf("looked at %d entries to set %d, want %d", looked, limit, want)
			}
			synctest.Wait()
		}
		ctx, cancel := context.WithCancel(context.Background())
		l.acquire(0, ctx, Request{N: 1})
		for i := range 9 {
			l.acquire(i+1, ctx, Request{N: int64(i%3 + 1)})
		}
		l.acquire(10, ctx, Request{N: 5})
		set(20, 1)
		set(5, 1)
		set(4, 1+11) // the one of 5 fails
		set(3, 1)
		set(4, 1)
		set(2, 1+10) // three of 3 fail
		set(2, 1)
		cancel()
		synctest.Wait()
		l.acquire(11, context.Background(), Request{N: 2})
		set(2, 1)
		set(1, 1+1)
		time.Sleep(time.Hour)
	})
}

func TestConfig_GiveUp(t *testing.T) {
	errNever := errors.New("patience is over")
	synctest.Test(t, func(t *testing.T) {
		held := 50 * ms
		l := newLine(100*ms, Config{GiveUp: func(now, patience time.Duration) error {
			if held > patience {
				return errNever
			}
			return nil
		}})
		l.acquire(0, bg, Request{Patience: 49 * ms})
		l.acquire(1, bg, Request{Patience: 50 * ms})
		l.acquire(2, bg, Request{Patience: 60 * ms})
		l.acquire(3, bg, Request{Max: time.Hour}) // without a Patience
		time.Sleep(10 * ms)
		l.Change(func(time.Duration) { held = 55 * ms })
		time.Sleep(time.Hour)
		l.Want(t, synclog.Failed(0, 0, errNever), synclog.Failed(1, 10*ms, errNever), synclog.At(2, 100*ms), synclog.At(3, 200*ms))
	})
}

func TestConfig_Blame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var need time.Duration
		blame := func(_, d time.Duration, n int64) sentence.Wait {
			need = d
			return sentence.Wait{For: "rule " + string(rune('0'+n)), Why: "why"}
		}
		l := newLine(time.Second, Config{Blame: blame})
		_, _, err := l.Acquire(bg, Request{N: 7, Max: ms})
		var wait *limits.WaitError
		if !errors.As(err, &wait) || wait.For != "rule 7" || wait.Why != "why" || need != time.Second {
			t.Errorf("%v, for a need of %v", err, need)
		}
		q := newRooms(0, Config{Blame: blame})
		for _, most := range []time.Duration{-1, ms} {
			need = -1
			if _, _, err := q.Acquire(bg, Request{N: 2, Max: most}); !errors.Is(err, limits.ErrTimeout) || need != 0 || err.Error() == limits.ErrTimeout.Error() {
				t.Errorf("%v, for a need of %v", err, need)
			}
		}
	})
}

// A forecast counts what Weigh says of those ahead.
func TestConfig_Weigh(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLine(100*ms, Config{Weigh: func(int64) int64 { return 1 }})
		l.acquire(0, bg, Request{N: 1})
		l.acquire(1, bg, Request{N: 5})
		_, _, err := l.Acquire(bg, Request{N: 1, Max: 300*ms - 1})
		wantWaitError(t, err, 300*ms, 300*ms-1)
		w, _, err := l.Reserve(Request{N: 1})
		if slot, _, ok := l.Slot(w); err != nil || !ok || slot != 300*ms {
			t.Errorf("%v, %v, %v", slot, ok, err)
		}
		l.Change(func(now time.Duration) { l.admitter.next = Forever / 2 })
		l.Close(limits.ErrClosed)
	})
}

// A place in the queue is free at the slot of the head, before its timer fires.
func TestConfig_MaxWaiting_AtTheSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLine(100*ms, Config{MaxWaiting: 1})
		time.AfterFunc(100*ms, func() { l.acquire(1, bg, Request{}) }) // fires before the driver's timer
		l.acquire(0, bg, Request{})
		time.Sleep(time.Hour)
		l.Want(t, synclog.At(0, 100*ms), synclog.At(1, 200*ms))
	})
}

// One timer for all: only the driver sleeps for a time.
func TestQueue_OneTimer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLine(100*ms, Config{})
		for who := range 3 {
			l.acquire(who, bg, Request{})
		}
		l.Lock()
		var until []time.Duration
		for w := l.front; w != nil; w = w.next {
			until = append(until, w.until)
		}
		l.Unlock()
		if want := []time.Duration{100 * ms, Forever, Forever}; !slices.Equal(until, want) {
			t.Errorf("they sleep until %v, want %v", until, want)
		}
		time.Sleep(time.Hour)
	})
}

// # Contexts

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

// A context without an error is canceled all the same once its Done is closed: nil would
// say that the caller was let through.
func TestQueue_Acquire_ContextWithoutAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		yes := func(context.Context, Turn) (Wait, error) { return Wait{}, nil }
		never := func(ctx context.Context, _ Turn) (Wait, error) { return Wait{For: Forever}, nil }
		for name, ask := range map[string]AskFunc{"by the admitter": nil, "asks": yes, "asks in vain": never} {
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
						q.Change(func(now time.Duration) { q.admitter.(*every).next = now + 48*time.Hour })
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

// # Calls that are told to wait

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

// # Receipts

// numbered hands a number to each caller that it admits.
type numbered struct {
	every
	last uint32
}

func (r *numbered) Admit(now, due time.Duration, n int64) time.Duration {
	wait := r.every.Admit(now, due, n)
	if wait == 0 {
		r.last += 10
	}
	return wait
}

func (r *numbered) Receipt() uint32 { return r.last }

// Each caller gets the receipt of its own admission, whoever lets it leave.
func TestQueue_Receipt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		admitter := &numbered{every: every{interval: 100 * ms}}
		var q Queue
		q.Init(admitter, Config{Exact: true})
		acquire := func(r Request) uint32 {
			g, _, err := q.Acquire(bg, r)
			if err != nil || g.Receipt.Up != nil {
				t.Errorf("%+v, %v", g, err)
			}
			return g.Receipt.Own
		}
		if got := acquire(Request{N: 1, Max: Forever}); got != 10 {
			t.Errorf("at once: %d", got)
		}
		got := make([]uint32, 3)
		for i := range got {
			go func() { got[i] = acquire(Request{N: 1, Max: Forever}) }()
			synctest.Wait()
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if !slices.Equal(got, []uint32{20, 30, 40}) {
			t.Errorf("in the queue: %d", got)
		}
		if g, ok := q.Try(Request{N: 1}); !ok || g.Receipt.Own != 50 {
			t.Errorf("Try: %+v, %v", g, ok)
		}
		ask := func(context.Context, Turn) (Wait, error) { return Wait{Receipt: Receipt{7, []uint32{8}}}, nil }
		if g, ok := q.Try(Request{N: 1, Ask: ask}); !ok || g.Receipt.Own != 7 || !slices.Equal(g.Receipt.Up, []uint32{8}) {
			t.Errorf("Try, asks: %+v, %v", g, ok)
		}
		if g, _, err := q.Acquire(bg, Request{N: 1, Max: Forever, Ask: ask}); err != nil || g.Receipt.Own != 7 || !slices.Equal(g.Receipt.Up, []uint32{8}) {
			t.Errorf("asks: %+v, %v", g, err)
		}
	})
}
