package queue

import (
	"context"
	"math"
	"time"

	"github.com/sluice-go/sluice/internal/errs"
)

// A Waiter is one entry of a queue. Its fields are guarded by the queue's lock.
//
// 100,000 may wait, so it has the fields that all of them need, 72 bytes. With the channel
// that makes 208, and the runtime adds 112 for each channel that a goroutine
// waits on.
//
// A message on its channel ends the sleep of its goroutine. Once admitted the entry
// belongs to the queue again, for the next caller: the goroutine must not touch it any
// more, and looks into its channel, under the lock, before it does.
type Waiter struct {
	prev, next *Waiter

	n    int64
	done <-chan struct{} // of its context
	wake chan Message    // nil if no goroutine waits
	rare *rare           // the rarely used fields, or nil

	// until is until when the goroutine sleeps unless it gets a message: an instant, Forever,
	// or awake. If the entry asks, that is when to ask again. Once the entry is admitted, nothing
	// sleeps for it, and until is when that was.
	until time.Duration
	came  time.Duration // when it was made for its caller; 0 in a queue that is untimed

	seq    uint32 // its number, modulo 2³²: no queue is as long
	state  state
	shared bool // it may be used again
	listed bool // it is one of the bounds of the queue
	early  bool // it is listed, and has no slot in the index
}

// rare has the fields of an entry whose wait is bounded, or that asks, or that
// has failed.
type rare struct {
	patience time.Duration
	maxAt    time.Duration // when the longest wait the caller allows has ended
	ctxAt    time.Duration // when its context will be done, as far as announced
	err      error

	// Of an entry that asks. It is late, by our fault, since min(since, due).
	ask       AskFunc
	asking    context.Context    // for ask; ends with that of the caller, or when the entry fails
	stop      context.CancelFunc // of asking
	first     bool               // it is, or has been, at the head
	announced bool               // Config.Waits was called
	paced     bool               // see Wait
	inAsk     bool               // ask is being called
	since     time.Duration      // when it came, got to the head or was woken to ask; Forever: not since it asked
	due       time.Duration      // when it is to ask again, or was to when it asked
	by        *Bell              // of the limit that rejected it when it asked, or nil
	grant     Grant              // the units that it got; it may have failed while it asked
	bells     []hung             // the bells it is registered at
	flow      *Flow              // of the queue at whose head it waits, or nil

	label   uint32        // see Request.Label
	refused int32         // see Request.Refused
	left    time.Duration // when it was first sent, if it was rejected
}

// A hung is a bell at which an entry is registered.
type hung struct {
	bell *Bell
	stop func()
}

// A state is that of an entry. All but the first are final.
type state uint8

const (
	waiting state = iota // in the list
	granted              // left
	failed               // removed, err says why
	dropped              // removed because its context was done, or it was canceled with no goroutine
)

// awake, as an instant until which a goroutine sleeps, says that it does not: it will look
// before it sleeps.
const awake = time.Duration(math.MinInt64)

// attend puts a goroutine behind w.
func (w *Waiter) attend(done <-chan struct{}) {
	w.done = done
	w.until = awake
	if w.wake == nil {
		w.wake = make(chan Message, 1)
	}
}

// more returns the rare part of w, which it makes if there is none.
func (w *Waiter) more() *rare {
	if w.rare == nil {
		w.rare = &rare{maxAt: Forever, ctxAt: Forever, due: Forever}
	}
	return w.rare
}

func (w *Waiter) asks() bool { return w.rare != nil && w.rare.ask != nil }

// hasFlow reports whether w is the head of another queue.
func (w *Waiter) hasFlow() bool { return w != nil && w.rare != nil && w.rare.flow != nil }

// maxAt returns when the longest wait the caller allows has ended, or Forever.
func (w *Waiter) maxAt() time.Duration {
	if w.rare == nil {
		return Forever
	}
	return w.rare.maxAt
}

// bound returns the last instant at which w may start in time.
func (w *Waiter) bound() time.Duration {
	switch {
	case w.rare == nil:
		return Forever
	case w.rare.ctxAt == Forever:
		return w.rare.maxAt
	}
	return min(w.rare.maxAt, w.rare.ctxAt-1)
}

// patience returns the patience of w, or Forever if it has none.
func (w *Waiter) patience() time.Duration {
	if w.rare == nil || w.rare.patience == 0 {
		return Forever
	}
	return w.rare.patience
}

// bounded reports whether the wait of w is bounded, or may be.
func (w *Waiter) bounded() bool {
	return w.wake == nil || w.bound() != Forever || w.patience() != Forever
}

// fail ends the wait of w, which has left the list.
func (w *Waiter) fail(err error) {
	w.more().err = err
	if w.rare.stop != nil {
		go w.rare.stop() // not here: it calls methods of the caller's context
	}
	w.state = failed
	w.send(sorry)
}

func isDone(done <-chan struct{}) bool {
	if done == nil {
		return false
	}
	select {
	case <-done:
		return true
	default:
		return false
	}
}

// settled reports whether the wait has ended.
func (w *Waiter) settled() bool { return w.state != waiting }

// result returns the outcome of a settled waiter. It calls a method of ctx, so the
// queue must not be locked.
func (w *Waiter) result(ctx context.Context) error {
	switch w.state {
	case granted:
		return nil
	case dropped:
		return errs.Done(ctx)
	}
	return w.rare.err
}

// spares are entries to be used again. The first that was added is the first to
// be used: it is the likeliest to have its message out.
type spares struct{ front, back *Waiter }

// A Message to the goroutine of a waiter says that it was admitted, at which instant and with
// which receipt, or is one of these. It has two words and no pointer: so a channel for it takes
// as much memory as for one word.
type Message struct {
	at      time.Duration
	receipt uint32
}

var (
	Look  = Message{at: math.MinInt64}     // at the entry, under the lock
	sorry = Message{at: math.MinInt64 + 1} // it has failed
)

// Granted reports whether the wait ended well.
func (m Message) Granted() bool { return m.at > math.MinInt64+1 }

// grant is the meaning of such a message.
func (m Message) grant() Grant { return Grant{At: m.at, Receipt: Receipt{Own: m.receipt}} }

// nudge makes the goroutine of w look. If it has a message that it has not seen yet,
// one is enough.
func (w *Waiter) nudge() {
	select {
	case w.wake <- Look:
	default: // also if there is no goroutine
	}
}

// send sends to the goroutine of w, if there is one, how its wait ended.
func (w *Waiter) send(m Message) {
	if w.wake == nil {
		return
	}
	if len(w.wake) > 0 { // it was nudged, and may not have looked yet
		heard(w.wake)
	}
	w.wake <- m // under the lock, so nothing else has filled it
}

// heard returns the message that waits in wake, or Look. Unless that is the end of the
// wait, the entry is still the goroutine's own for as long as the queue stays locked.
func heard(wake <-chan Message) Message {
	select {
	case m := <-wake:
		return m
	default:
		return Look
	}
}

// bubbled reports whether this is a testing/synctest bubble: times have no
// monotonic reading there.
func bubbled() bool {
	t := time.Now()
	return t == t.Round(0)
}
