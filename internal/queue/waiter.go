package queue

import (
	"context"
	"math"
	"math/bits"
	"time"

	"github.com/sluice-go/sluice/internal/errs"
	"github.com/sluice-go/sluice/internal/sat"
	"github.com/sluice-go/sluice/limits"
)

// A Waiter is one entry of a queue. Its fields are guarded by the queue's lock.
//
// 100,000 may wait, so it has what all of them need, 64 bytes. With the channel
// that makes 192, and the runtime adds 112 for each channel that a goroutine
// waits on.
//
// Its goroutine learns from a message how the wait ended. From a grant on the
// entry is the queue's again, for the next caller: the goroutine must not touch it
// any more, and asks its channel, under the lock, before it does.
type Waiter struct {
	prev, next *Waiter

	n    int64
	done <-chan struct{} // of its context
	wake chan Message    // nil if no goroutine waits
	rare *rare           // what few have, or nil

	// at is until when the goroutine sleeps unless told, Forever, an instant,
	// or awake; and once it was granted, when it left.
	at time.Duration

	seq    uint32 // its number, modulo 2³²: no queue is as long
	state  state
	shared bool // it may be used again
}

// A Message is what the goroutine of a waiter is told: the instant at which it was
// granted, or one of these.
type Message time.Duration

const (
	Look  Message = math.MinInt64 + iota // at the entry, under the lock
	sorry                                // it has failed
)

// Granted reports whether the wait ended well.
func (m Message) Granted() bool { return m > sorry }

// rare is what only an entry needs whose wait is bounded, or that asks, or that
// has failed.
type rare struct {
	patience time.Duration
	maxAt    time.Duration // when the longest wait the caller allows is over
	ctxAt    time.Duration // when its context will be done, as far as announced
	err      error

	// Of an entry that asks. What it is late by is our own fault: since min(since, due).
	ask    AskFunc
	asking context.Context    // for ask; ends with that of the caller, or when the entry fails
	stop   context.CancelFunc // of asking
	first  bool               // it is, or has been, at the head
	told   bool               // Config.Waits was called
	since  time.Duration      // when it came, got to the head or was told to ask; Forever: not since it asked
	due    time.Duration      // when it is to ask again, or was to when it asked
	by     *Bell              // of what refused it when it asked, or nil
	heeded []heeded           // the bells that it is noted at
}

// A heeded is a bell that an entry is noted at.
type heeded struct {
	bell *Bell
	stop func()
}

// A state is that of an entry. All but the first are final.
type state uint8

const (
	waiting state = iota // in the list
	granted              // left
	failed               // removed, err says why
	dropped              // removed because its context was done, or nobody attended it
)

// maxSpare bounds how many waiters are kept for later.
const maxSpare = 256

// awake marks a waiter whose goroutine will look for itself before it sleeps.
const awake = time.Duration(math.MinInt64)

// attended returns an entry for n with a goroutine, whose context has the
// channel done. The entry and its channel were used before if possible; in a
// testing/synctest bubble, to which channels belong, they never are.
func (q *Queue) attended(now time.Duration, n int64, done <-chan struct{}) *Waiter {
	if !q.cfg.Untimed {
		q.outside = q.fine && now >= 0 // before the queue was made: in a bubble it is the year 2000
	} else if q.front == nil {
		// To read the clock for each would be a tenth of what it costs to wait.
		// A bubble and somebody outside do not wait for one another.
		q.outside = q.fine && q.Now() >= 0
	}
	w := q.spares.front
	if w != nil && q.outside && len(w.wake) == 0 {
		q.spares.remove()
	} else {
		w = &Waiter{shared: q.fine && q.Now() >= 0}
	}
	w.attend(done)
	w.n = n
	return w
}

// askedFor notes what few requests have.
func (w *Waiter) askedFor(r *Request, q *Queue, now time.Duration) {
	if r.Ask == nil && r.Patience == 0 {
		return
	}
	w.more().ask, w.rare.asking, w.rare.stop = r.Ask, r.asking, r.stop
	w.rare.patience, w.rare.told = r.Patience, r.told
	if w.rare.since = now; !r.Came.IsZero() {
		w.rare.since = min(now, r.Came.Sub(q.epoch))
	}
}

// attend puts a goroutine behind w.
func (w *Waiter) attend(done <-chan struct{}) {
	w.done, w.at = done, awake
	if w.wake == nil {
		w.wake = make(chan Message, 1)
	}
}

// recycle takes back w, which was granted or was never in the queue. Its goroutine
// may not have got the message yet: w can be used again when that is out of the
// channel. Those that failed are few, and left to the collector.
func (q *Queue) recycle(w *Waiter) {
	if w.shared && q.spares.n < maxSpare {
		w.done, w.rare, w.state = nil, nil, waiting
		q.spares.add(w)
	}
}

// putBack is recycle for an entry whose own goroutine calls it.
func (q *Queue) putBack(w *Waiter) {
	heard(w.wake) // it may have been told to look
	q.recycle(w)
}

// spares are entries to be used again. The first that was added is the first to
// be used: it is the likeliest to have its message out.
type spares struct {
	front, back *Waiter
	n           int32
}

func (s *spares) add(w *Waiter) {
	if s.n++; s.front == nil {
		s.front = w
	} else {
		s.back.next = w
	}
	s.back = w
}

// remove removes the first.
func (s *spares) remove() {
	w := s.front
	s.n--
	s.front, w.next = w.next, nil
}

// bubbled reports whether this is a testing/synctest bubble: times have no
// monotonic reading there.
func bubbled() bool {
	t := time.Now()
	return t == t.Round(0)
}

// more returns the rare part of w, which it makes if there is none.
func (w *Waiter) more() *rare {
	if w.rare == nil {
		w.rare = &rare{maxAt: Forever, ctxAt: Forever, due: Forever}
	}
	return w.rare
}

func (w *Waiter) asks() bool { return w.rare != nil && w.rare.ask != nil }

// maxAt returns when the longest wait the caller allows is over, or Forever.
func (w *Waiter) maxAt() time.Duration {
	if w.rare == nil {
		return Forever
	}
	return w.rare.maxAt
}

// tell makes the goroutine of w look. If it was told already and has not looked
// yet, once is enough.
func (w *Waiter) tell() {
	select {
	case w.wake <- Look:
	default: // also if there is no goroutine
	}
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

// send tells the goroutine of w, if there is one, how its wait ended.
func (w *Waiter) send(m Message) {
	if w.wake == nil {
		return
	}
	if len(w.wake) > 0 { // it was told to look, and may not have yet
		heard(w.wake)
	}
	w.wake <- m // under the lock, so nobody else has filled it
}

// heard returns what the goroutine of w was told. Unless that is the end of the
// wait, w is still its own, for as long as the queue stays locked.
func heard(wake <-chan Message) Message {
	select {
	case m := <-wake:
		return m
	default:
		return Look
	}
}

// settled reports whether the wait is over.
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

// A deadline is that of a context. It is read before the queue is locked: the context
// may be the caller's own, and its methods may use what the lock guards.
type deadline struct {
	at  time.Time
	set bool
}

func (q *Queue) deadline(ctx context.Context) (d deadline) {
	if !q.cfg.Untimed { // else nobody can know that the wait is too long
		d.at, d.set = ctx.Deadline()
	}
	return d
}

// setLimits notes until when the caller can wait that comes at now with a context of
// deadline d and waits at most most.
func (w *Waiter) setLimits(d deadline, q *Queue, now, most time.Duration) {
	if most != Forever {
		w.more().maxAt = sat.Add(now, max(0, most))
	}
	if d.set {
		w.more().ctxAt = q.Instant(now, d.at)
	}
}

// tooLong returns an error if w cannot wait for need from now on. Leaving
// exactly when the longest allowed wait is over is in time; leaving exactly at
// the deadline of a context is not, for then it is done.
func (w *Waiter) tooLong(now, need time.Duration) error {
	if need == 0 || w.rare == nil {
		return nil
	}
	at := sat.Add(now, need)
	maxAt, ctxAt := w.rare.maxAt, w.rare.ctxAt
	if maxAt != Forever && at > maxAt || ctxAt != Forever && at >= ctxAt {
		return &limits.WaitError{Need: need, Have: max(0, min(maxAt, ctxAt)-now)}
	}
	return nil
}

// total is a sum of weights. 128 bits hold any number of int64s, so that
// taking out what was put in is exact however large the sum was in between.
type total struct{ hi, lo uint64 }

func (t *total) add(n int64) {
	var carry uint64
	t.lo, carry = bits.Add64(t.lo, uint64(n), 0)
	t.hi += carry
}

func (t *total) sub(n int64) {
	var borrow uint64
	t.lo, borrow = bits.Sub64(t.lo, uint64(n), 0)
	t.hi -= borrow
}

// value returns the sum, saturated.
func (t total) value() int64 {
	if t.hi != 0 || t.lo > math.MaxInt64 {
		return math.MaxInt64
	}
	return int64(t.lo)
}
