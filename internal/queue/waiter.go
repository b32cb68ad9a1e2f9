package queue

import (
	"context"
	"math"
	"math/bits"
	"time"

	"github.com/sluice-go/sluice/internal/errs"
	"github.com/sluice-go/sluice/internal/sat"
)

// A Waiter is one entry of a queue. Its fields are guarded by the queue's
// lock; err and leftAt may be read without it once the entry is settled.
type Waiter struct {
	prev, next *Waiter

	n, weight int64
	seq       uint64
	attended  bool            // a goroutine waits
	done      <-chan struct{} // of its context
	patience  time.Duration
	ask       AskFunc
	asked     bool               // at least once
	stopAsk   context.CancelFunc // while it asks
	wake      chan verdict

	maxAt time.Duration // when the longest wait the caller allows is over
	ctxAt time.Duration // when its context will be done, as far as announced

	// armed is until when the goroutine sleeps unless told: Forever, an
	// instant, or awake.
	armed time.Duration
	due   time.Duration // when it was to ask again

	state  state
	err    error
	leftAt time.Duration
}

type state uint8

const (
	waiting state = iota // in the list
	granted              // left
	failed               // removed, err says why
	dropped              // removed because its context was done
)

// A verdict is what a waiter is told.
type verdict uint8

const (
	look    verdict = iota // something changed: look for yourself
	settled                // your wait is over
)

// newWaiter returns an entry without a goroutine.
func newWaiter(r Request) *Waiter {
	return &Waiter{
		n: r.N, weight: r.Weight, patience: r.Patience, ask: r.Ask,
		maxAt: Forever, ctxAt: Forever, armed: Forever, due: Forever,
		wake: make(chan verdict, 1),
	}
}

// tell sends v. A verdict that was not read yet is overtaken. Only holders of
// the lock send, so that there is room after taking the old one out.
func (w *Waiter) tell(v verdict) {
	select {
	case <-w.wake:
	default:
	}
	w.wake <- v
}

func (w *Waiter) settle(s state, err error) {
	w.state, w.err = s, err
	if w.stopAsk != nil {
		w.stopAsk()
	}
	w.tell(settled)
}

// result returns the outcome of a settled waiter.
func (w *Waiter) result(ctx context.Context) error {
	if w.state == dropped {
		return ctx.Err()
	}
	return w.err
}

// setLimits notes until when the caller can wait that comes with ctx at now
// and waits at most most.
func (w *Waiter) setLimits(ctx context.Context, q *Queue, now, most time.Duration) {
	w.maxAt, w.ctxAt = Forever, Forever
	if most != Forever {
		w.maxAt = sat.Add(now, max(0, most))
	}
	if t, ok := ctx.Deadline(); ok {
		w.ctxAt = q.Instant(now, t)
	}
}

// tooLong returns an error if w cannot wait for need from now on. Leaving
// exactly when the longest allowed wait is over is in time; leaving exactly at
// the deadline of a context is not, for then it is done.
func (w *Waiter) tooLong(now, need time.Duration) error {
	if need == 0 {
		return nil
	}
	at := sat.Add(now, need)
	if w.maxAt != Forever && at > w.maxAt || w.ctxAt != Forever && at >= w.ctxAt {
		return &errs.WaitError{Need: need, Have: max(0, min(w.maxAt, w.ctxAt)-now)}
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
