package queue

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice/internal/alarm"
	"github.com/sluice-go/sluice/internal/testkit/synclog"
	"github.com/sluice-go/sluice/limits"
)

// An oracle is a limit that callers ask: it admits from an instant on, after a trip.
type oracle struct {
	*line
	from  time.Duration
	trip  time.Duration
	sure  bool
	by    *Bell
	err   error
	turns []Turn
}

func newOracle() *oracle {
	l := &line{Log: synclog.New(), admitter: every{interval: 100 * ms}}
	l.Init(&l.admitter, Config{}) // no forecast knows how long the oracle takes
	return &oracle{line: l}
}

func (o *oracle) ask(ctx context.Context, t Turn) (Wait, error) {
	o.turns = append(o.turns, t)
	time.Sleep(o.trip)
	wait := Wait{By: o.by}
	if now := o.Now(); o.from == Forever {
		wait.For = Forever
	} else if now < o.from {
		wait.For = o.from - now
	}
	if o.sure {
		wait.Sure = wait.For
	}
	return wait, o.err
}

func (o *oracle) acquire(who int, ctx context.Context, r Request) {
	r.Ask = o.ask
	o.line.acquire(who, ctx, r)
}

// Callers ask one after the other, in order, as often as it is worth while.
func TestAskFunc_InOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOracle()
		o.from, o.trip = 100*ms, 10*ms
		for who, n := range []int64{5, 7, 9} {
			o.acquire(who, bg, Request{N: n, Patience: time.Duration(who)})
		}
		time.Sleep(time.Hour)
		o.Want(t, synclog.At(0, 110*ms), synclog.At(1, 120*ms), synclog.At(2, 130*ms))
		want := []Turn{
			{N: 5, Due: 0, Left: Forever},
			{N: 5, Due: 100 * ms, Left: Forever},
			{N: 7, Due: 100 * ms, Left: Forever, Patience: 1}, // as late as the one before
			{N: 9, Due: 100 * ms, Left: Forever, Patience: 2},
		}
		if len(o.turns) != len(want) {
			t.Fatalf("got %v, want %v", o.turns, want)
		}
		for i, turn := range o.turns {
			if turn != want[i] {
				t.Errorf("turn %d: %+v, want %+v", i, turn, want[i])
			}
		}
	})
}

// Only a wait that is sure to be too long is rejected before it begins.
func TestAskFunc_SureAndFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, sure := range []bool{true, false} {
			o := newOracle()
			o.sure, o.from = sure, o.Now()+100*ms
			began := time.Since(o.Start)
			_, _, err := o.Acquire(bg, Request{N: 1, Max: 60 * ms, Ask: o.ask})
			took := time.Since(o.Start) - began
			if sure {
				wantWaitError(t, err, 100*ms, 60*ms)
			} else if err != limits.ErrTimeout {
				t.Error(err)
			}
			if want := map[bool]time.Duration{true: 0, false: 60 * ms}[sure]; took != want {
				t.Errorf("sure %v: took %v", sure, took)
			}
			if last := o.turns[len(o.turns)-1]; !sure && last.Left != 0 || o.turns[0].Left != 60*ms {
				t.Errorf("turns %v", o.turns)
			}
			if o.len() != 0 {
				t.Errorf("%d wait", o.len())
			}
		}
	})
}

// A bound that ends while the caller asks in vain ends its wait at the answer.
func TestAskFunc_BoundEndsWhileItAsks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOracle()
		o.from, o.trip = Forever, 50*ms
		o.acquire(0, bg, Request{Max: 20 * ms})
		time.Sleep(time.Hour)
		o.Want(t, synclog.Failed(0, 50*ms, limits.ErrTimeout))
	})
}

func TestAskFunc_Error(t *testing.T) {
	errAway := errors.New("away")
	synctest.Test(t, func(t *testing.T) {
		l := newOracle().line
		for who, err := range []error{errAway, nil} {
			l.acquire(who, bg, Request{Ask: func(context.Context, Turn) (Wait, error) {
				time.Sleep(10 * ms)
				return Wait{}, err
			}})
		}
		time.Sleep(time.Hour)
		l.Want(t, synclog.Failed(0, 10*ms, errAway), synclog.At(1, 20*ms))
	})
}

func TestAskFunc_Panic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOracle()
		var asking context.Context
		l := o.line
		l.Call(0, func() (err error) {
			defer func() { err = recover().(error) }()
			l.Queue.Acquire(bg, Request{N: 1, Max: Forever, Ask: func(ctx context.Context, _ Turn) (Wait, error) {
				asking = ctx
				time.Sleep(10 * ms)
				panic(context.Canceled)
			}})
			return nil
		})
		o.acquire(1, bg, Request{})
		l.acquire(2, bg, Request{}) // asks the admitter
		time.Sleep(time.Hour)
		l.Want(t, synclog.Failed(0, 10*ms, context.Canceled), synclog.At(1, 10*ms), synclog.At(2, 10*ms))
		if asking.Err() == nil {
			t.Error("the context of the one that panicked goes on")
		}
		if n := l.len(); n != 0 {
			t.Errorf("%d wait", n)
		}
	})
}

func TestAskFunc_Cancel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOracle()
		o.from = Forever
		ctx, cancel := context.WithCancel(bg)
		o.acquire(0, ctx, Request{})
		o.acquire(1, bg, Request{})
		time.Sleep(10 * ms)
		o.from = 0
		cancel()
		o.Want(t, synclog.Failed(0, 10*ms, context.Canceled), synclog.At(1, 10*ms))
	})
}

// What a caller was given while it was failed is its own.
func TestAskFunc_GrantedWhileClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOracle()
		o.trip = 10 * ms
		o.acquire(0, bg, Request{})
		time.Sleep(5 * ms)
		o.Close(limits.ErrClosed)
		o.Want(t)
		time.Sleep(time.Hour)
		o.Want(t, synclog.At(0, 10*ms))
	})
}

// A change makes the head ask again.
func TestQueue_Kick(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOracle()
		o.from = Forever
		o.acquire(0, bg, Request{})
		o.acquire(1, bg, Request{})
		time.Sleep(10 * ms)
		o.Adjust(func(time.Duration) bool { o.from = 0; return false })
		o.Want(t, synclog.At(0, 10*ms), synclog.At(1, 10*ms))
		if due := o.turns[1].Due; due != 10*ms {
			t.Errorf("due at %v", due)
		}
	})
}

func TestQueue_Try_Asks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOracle()
		o.from, o.trip = 100*ms, 10*ms
		if _, ok := o.Try(Request{N: 3, Ask: o.ask}); ok || o.turns[0].Left != 0 || o.turns[0].N != 3 {
			t.Errorf("%v, turns %+v", ok, o.turns)
		}
		time.Sleep(100 * ms)
		if g, ok := o.Try(Request{N: 1, Ask: o.ask}); !ok || g.At != 110*ms {
			t.Errorf("%v, %v", g.At, ok)
		}
		o.err = limits.ErrTooLarge
		if _, ok := o.Try(Request{N: 1, Ask: o.ask}); ok || o.len() != 0 {
			t.Errorf("%v, %d wait", ok, o.len())
		}
	})
}

// A caller is registered at each bell that it waits for, once, until its wait has ended,
// and asks again after that and whenever the bell rings.
func TestBell(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOracle()
		var ring func()
		registered, stopped := 0, 0
		bell := Bell(func(f func()) (stop func()) {
			if !o.mu.TryLock() {
				t.Error("registered with the queue locked")
			} else {
				o.mu.Unlock()
			}
			registered++
			ring = f
			return func() { stopped++ }
		})
		o.by, o.from = &bell, time.Hour
		o.acquire(0, bg, Request{})
		if registered != 1 || len(o.turns) != 2 {
			t.Errorf("registered %d times, asked %d times", registered, len(o.turns))
		}
		time.Sleep(10 * ms)
		ring()
		if synctest.Wait(); registered != 1 || len(o.turns) != 3 || stopped != 0 {
			t.Errorf("registered %d times, asked %d times, stopped %d times", registered, len(o.turns), stopped)
		}
		time.Sleep(10 * ms)
		o.from = 0
		ring()
		o.Want(t, synclog.At(0, 20*ms))
		if registered != 1 || stopped != 1 {
			t.Errorf("registered %d times, stopped %d times", registered, stopped)
		}
	})
}

// A head that is woken to ask, and whose context is done by then, does not ask.
func TestAskFunc_NotWithADoneContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for range 20 { // its goroutine may see the one or the other first
			o := newOracle()
			o.from = Forever
			ctx, cancel := context.WithCancel(bg)
			o.acquire(0, ctx, Request{})
			o.Lock()
			o.from = 0
			o.Kick()
			cancel()
			o.Unlock()
			o.Want(t, synclog.Failed(0, 0, context.Canceled))
			if n := len(o.turns); n != 1 {
				t.Errorf("asked %d times", n)
			}
		}
	})
}

// A wait that only a change can end is never rejected before its bound.
func TestAskFunc_ForeverIsNotRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOracle()
		o.from, o.sure = Forever, true
		o.acquire(0, bg, Request{Max: 20 * ms})
		time.Sleep(time.Hour)
		o.Want(t, synclog.Failed(0, 20*ms, limits.ErrTimeout))
	})
}

// # Turns

// dues is a queue of callers who ask, and notes the Due of their turns.
type dues struct {
	Queue
	late map[int64]time.Duration // until when somebody is kept from its sleep, by n
	got  []time.Duration
}

func newDues() *dues {
	q := &dues{late: map[int64]time.Duration{}}
	q.Init(nobody{}, Config{Waits: func(_ context.Context, n int64) { time.Sleep(q.late[n] - q.Now()) }})
	return q
}

// nobody is the admitter of a queue in which all ask.
type nobody struct{}

func (nobody) Admit(time.Duration, time.Duration, int64) time.Duration { panic("asked the admitter") }
func (nobody) Forecast(time.Duration, int64) time.Duration             { return 0 }

// slot asks for a slot at an instant.
func (q *dues) slot(at time.Duration) AskFunc {
	return func(_ context.Context, t Turn) (Wait, error) {
		now := q.Now()
		if now >= at {
			q.got = append(q.got, t.Due)
		}
		return Surely(max(0, at-now)), nil
	}
}

func (q *dues) want(t *testing.T, want ...time.Duration) {
	t.Helper()
	if synctest.Wait(); !slices.Equal(q.got, want) {
		t.Errorf("due at %v, want %v", q.got, want)
	}
}

func (q *dues) call(ctx context.Context, n int64, ask AskFunc) {
	go q.Acquire(ctx, Request{N: n, Max: Forever, Ask: ask})
	synctest.Wait()
}

// Those behind a caller that was late are as late as it was: they could have asked
// as much earlier.
func TestTurn_Due_OneLateMakesThoseBehindItLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newDues()
		q.late[1] = 100*ms + ms/2
		q.call(t.Context(), 1, q.slot(100*ms))
		q.call(t.Context(), 2, q.slot(0))
		q.call(t.Context(), 3, q.slot(0))
		time.Sleep(time.Second)
		q.want(t, 100*ms, 100*ms, 100*ms)
	})
}

// But no later than it came.
func TestTurn_Due_OneThatComesAfterwards(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newDues()
		q.late[1] = 101 * ms
		q.call(t.Context(), 1, q.slot(100*ms))
		time.Sleep(100*ms + ms/2)
		q.call(t.Context(), 2, q.slot(0))
		time.Sleep(time.Second)
		q.want(t, 100*ms, 100*ms+ms/2)
	})
}

func TestTurn_Due_LateAndCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newDues()
		ctx, cancel := context.WithCancel(t.Context())
		q.late[1] = 100*ms + ms/2
		q.call(ctx, 1, q.slot(100*ms))
		q.call(t.Context(), 2, q.slot(0))
		cancel() // it learns when it is back
		time.Sleep(time.Second)
		q.want(t, 100*ms)
	})
}

// One that is canceled before its slot is not late, nor is the next.
func TestTurn_Due_CancelledInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newDues()
		ctx, cancel := context.WithCancel(t.Context())
		q.call(ctx, 1, q.slot(100*ms))
		q.call(t.Context(), 2, q.slot(0))
		time.Sleep(50 * ms)
		cancel()
		q.want(t, 50*ms)
	})
}

// A caller that is told to ask is late from then on, not from when it was to ask next.
func TestTurn_Due_Kicked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, first := range []time.Duration{time.Hour, Forever} {
			q, open := newDues(), false
			q.call(t.Context(), 1, func(_ context.Context, t Turn) (Wait, error) {
				if !open {
					return Wait{For: first}, nil
				}
				q.got = append(q.got, t.Due)
				return Wait{}, nil
			})
			time.Sleep(50 * ms)
			q.Lock()
			open = true
			q.Kick()
			q.Unlock()
			q.want(t, 50*ms)
		}
	})
}

// A caller that is told to ask while it does is late from then on.
func TestTurn_Due_KickedWhileItAsks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, asked := newDues(), 0
		q.call(t.Context(), 1, func(_ context.Context, t Turn) (Wait, error) {
			if asked++; asked == 1 {
				time.Sleep(10 * ms)
				return Wait{For: Forever}, nil
			}
			q.got = append(q.got, t.Due)
			return Wait{}, nil
		})
		time.Sleep(4 * ms)
		q.Lock()
		q.Kick()
		q.Unlock()
		time.Sleep(time.Second)
		q.want(t, 4*ms)
	})
}

// A caller may come late by our fault: from another queue, in which it was woken late.
func TestRequest_Came(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newDues()
		time.Sleep(100 * ms)
		for _, late := range []time.Duration{ms / 2, 0, -ms} {
			q.Acquire(t.Context(), Request{N: 1, Max: Forever, Ask: q.slot(0), Came: time.Now().Add(-late)})
		}
		q.want(t, 100*ms-ms/2, 100*ms, 100*ms) // never after now
	})
}

// sleeps is what alarm.Sleep is asked for, in the place of sleeping.
func sleeps(t *testing.T) func() []time.Duration {
	var all []time.Duration
	sleep = func(d time.Duration) bool {
		all = append(all, d)
		return false // a timer does it
	}
	t.Cleanup(func() { sleep = alarm.Sleep })
	return func() []time.Duration { return all }
}

// The last part of a wait is slept exactly, also if the whole is longer than what is worth
// an exact sleep. If the machine stalls there is no last part, so one of many will do.
func TestConfig_Fine_LastPartOfALongWait(t *testing.T) {
	const wait = 2 * alarm.Reach
	for name, acquire := range map[string]func(q *Queue){
		"by the admitter": func(q *Queue) { q.Acquire(context.Background(), Request{N: 1, Max: Forever}) },
		"asked": func(q *Queue) {
			slot := q.Now() + wait
			q.Acquire(context.Background(), Request{N: 1, Max: Forever, Ask: func(context.Context, Turn) (Wait, error) {
				return Surely(max(0, slot-q.Now())), nil
			}})
		},
	} {
		t.Run(name, func(t *testing.T) {
			slept := sleeps(t)
			q := newFine(wait)
			for range 1000 {
				acquire(q)
				for _, d := range slept() {
					if d > alarm.Reach {
						t.Fatalf("asked for an exact sleep of %v", d)
					}
					return
				}
			}
			t.Error("never asked for an exact sleep")
		})
	}
}

// A short wait that a caller asked for is exact whatever the admitter says: it may be one
// for another limit. A long one is if the admitter says so.
func TestConfig_Fine_CallersThatAsk(t *testing.T) {
	for _, fine := range []bool{true, false} {
		for wait, want := range map[time.Duration]bool{alarm.Reach / 2: true, near + 50*ms: fine} {
			slept := sleeps(t)
			for range 20 {
				q := new(Queue)
				q.Init(nobody{}, Config{Fine: func() bool { return fine }})
				until := q.Now() + wait
				q.Acquire(context.Background(), Request{N: 1, Max: Forever, Ask: func(context.Context, Turn) (Wait, error) {
					return Surely(max(0, until-q.Now())), nil
				}})
				if len(slept()) > 0 || !want && wait > near {
					break
				}
			}
			if got := len(slept()) > 0; got != want {
				t.Errorf("a wait of %v, fine %v: exact %v, want %v", wait, fine, got, want)
			}
		}
	}
}
