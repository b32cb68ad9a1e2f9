package queue

import (
	"context"
	"math"
	"math/bits"
	"sync/atomic"
	"time"

	"github.com/sluice-go/sluice/internal/errs"
	"github.com/sluice-go/sluice/internal/sat"
)

// A Waiter is one entry of a queue. Its fields are guarded by the queue's
// lock, but for the state, and but for the others once the state is final.
//
// 100,000 may wait, so it has what all of them need, 64 bytes. With the channel
// that makes 176, and the runtime adds 112 for each channel that a goroutine
// waits on.
type Waiter struct {
	prev, next *Waiter

	n    int64
	done <-chan struct{} // of its context
	wake chan struct{}   // nil if no goroutine waits
	rare *rare           // what few have, or nil

	// at is until when the goroutine sleeps unless told, Forever, an instant,
	// or awake; and once it was granted, when it left.
	at time.Duration

	state atomic.Uint32
	seq   uint32 // its number, modulo 2³²: no queue is as long
}

// rare is what only an entry needs whose wait is bounded, or that asks, or that
// has failed.
type rare struct {
	patience time.Duration
	maxAt    time.Duration // when the longest wait the caller allows is over
	ctxAt    time.Duration // when its context will be done, as far as announced
	err      error

	ask     AskFunc
	asked   bool               // at least once
	stopAsk context.CancelFunc // while it asks
	due     time.Duration      // when it was to ask again

	once bool // it is not to be used again
}

// The states of an entry. All but the first are final.
const (
	waiting uint32 = iota // in the list
	granted               // left
	failed                // removed, err says why
	dropped               // removed because its context was done
)

// maxSpare bounds how many waiters are kept for later: those that were granted
// when no more than that were left.
const maxSpare = 256

// awake marks a waiter whose goroutine will look for itself before it sleeps.
const awake = time.Duration(math.MinInt64)

// attended returns an entry for r with a goroutine, whose context has the
// channel done. The entry and its channel were used before if possible; in a
// testing/synctest bubble, to which channels belong, they never are.
func (q *Queue) attended(now time.Duration, r *Request, done <-chan struct{}) *Waiter {
	w := q.spare.Load()
	switch {
	case !q.fine || now < 0: // before the queue was made: in a bubble it is the year 2000
		w = new(Waiter)
		w.more().once = true
	case w == nil:
		w = new(Waiter)
	default:
		// We hold the lock, so nobody else takes one off the list, and w and
		// what is next to it stay as they are until it is off.
		for !q.spare.CompareAndSwap(w, w.next) {
			w = q.spare.Load()
		}
		w.next = nil
		w.state.Store(waiting)
	}
	w.attend(done)
	w.n = r.N
	if r.Ask != nil || r.Patience != 0 {
		w.more().ask, w.rare.patience = r.Ask, r.Patience
	}
	return w
}

// attend puts a goroutine behind w.
func (w *Waiter) attend(done <-chan struct{}) {
	w.done, w.at = done, awake
	if w.wake == nil {
		w.wake = make(chan struct{}, 1)
	}
}

// recycle takes back w, which was made by attended and is granted or was never in
// the queue. It may still be told to look; then the next to use it looks in vain.
// Those that failed are few, and left to the collector.
func (q *Queue) recycle(w *Waiter) {
	if w.rare != nil {
		if w.rare.once {
			return
		}
		w.rare = nil
	}
	w.done = nil
	for {
		w.next = q.spare.Load()
		if q.spare.CompareAndSwap(w.next, w) {
			return
		}
	}
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

// tell makes the goroutine of w look at its state. If it was told already and
// has not looked yet, once is enough.
func (w *Waiter) tell() {
	select {
	case w.wake <- struct{}{}:
	default: // also if there is no goroutine
	}
}

// settle ends the wait of w, which has left the list.
func (w *Waiter) settle(state uint32, err error) {
	if err != nil {
		w.more().err = err
	}
	if w.rare != nil && w.rare.stopAsk != nil {
		w.rare.stopAsk()
	}
	told := w.wake
	w.state.Store(state) // w may be used for another caller from here on, who is then told in vain
	select {
	case told <- struct{}{}:
	default:
	}
}

// settled reports whether the wait is over.
func (w *Waiter) settled() bool { return w.state.Load() != waiting }

// result returns the outcome of a settled waiter.
func (w *Waiter) result(ctx context.Context) error {
	switch w.state.Load() {
	case granted:
		return nil
	case dropped:
		return ctx.Err()
	}
	return w.rare.err
}

// setLimits notes until when the caller can wait that comes with ctx at now
// and waits at most most.
func (w *Waiter) setLimits(ctx context.Context, q *Queue, now, most time.Duration) {
	if most != Forever {
		w.more().maxAt = sat.Add(now, max(0, most))
	}
	if q.cfg.Untimed { // nobody can know that the wait is too long
		return
	}
	if t, ok := ctx.Deadline(); ok {
		w.more().ctxAt = q.Instant(now, t)
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
		return &errs.WaitError{Need: need, Have: max(0, min(maxAt, ctxAt)-now)}
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
