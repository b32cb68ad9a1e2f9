package queue

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

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
	l := &line{Log: synclog.New(), rule: every{interval: 100 * ms}}
	l.Init(&l.rule, Config{}) // no forecast knows how long the oracle takes
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

// Only a wait that is sure to be too long is refused before it begins.
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
		l.acquire(2, bg, Request{}) // asks the rule
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

// A caller is registered at each bell that it waits for, once, until its wait is over,
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

// A wait that only a change can end is never refused before its bound.
func TestAskFunc_ForeverIsNotRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOracle()
		o.from, o.sure = Forever, true
		o.acquire(0, bg, Request{Max: 20 * ms})
		time.Sleep(time.Hour)
		o.Want(t, synclog.Failed(0, 20*ms, limits.ErrTimeout))
	})
}
