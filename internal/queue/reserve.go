package queue

import (
	"context"
	"time"

	"github.com/sluice-go/sluice/internal/errs"
	"github.com/sluice-go/sluice/internal/sat"
	"github.com/sluice-go/sluice/limits"
)

// Reserve adds an entry with no goroutine behind it. It is treated as used at its slot,
// whenever that is looked at, so an abandoned one does not stall the queue. If its slot
// is now there is no entry: w is nil and at is now. The queue must be exact.
func (q *Queue) Reserve(r Request) (w *Waiter, at time.Duration, err error) {
	q.Lock()
	defer q.Unlock()
	if err := q.refuse(r.N); err != nil {
		return nil, 0, err
	}
	now := q.Now()
	q.Advance(now)
	if q.front == nil && q.admitter.Admit(now, now, r.N) == 0 {
		return nil, now, nil
	}
	if q.full() {
		return nil, 0, limits.ErrQueueFull
	}
	w = &Waiter{n: r.N}
	w.until = Forever // no goroutine looks
	q.push(w)
	if q.front == w {
		q.Advance(now)
	}
	return w, 0, nil
}

// Attend blocks until w, an entry made by Reserve, is admitted, and returns the same as Acquire. If
// it returns an error the entry is gone. It panics if another goroutine attends w.
func (q *Queue) Attend(ctx context.Context, w *Waiter) error {
	done, deadline := ctx.Done(), q.deadline(ctx)
	q.Lock()
	now := q.Now()
	q.Advance(now)
	switch {
	case w.state == dropped: // canceled, or a goroutine that attended it before gave up
		q.Unlock()
		return limits.ErrCanceled
	case w.settled():
		q.Unlock()
		return w.result(ctx)
	case w.wake != nil:
		q.Unlock()
		panic("pacer: two goroutines wait for one reservation")
	case isDone(done):
		q.giveUp(w)
		q.Advance(now)
		q.Unlock()
		return errs.Done(ctx)
	}
	if deadline.set {
		w.more().ctxAt = q.Instant(now, deadline.at)
		if err := q.hopeless(now, w, q.ahead(w)); err != nil {
			q.drop(now, w, err)
			q.Unlock()
			return err
		}
	}
	w.attend(done)
	q.boundLater(w)
	if w.listed {
		q.hurry(now, w)
	}
	if q.driver == nil || int32(w.seq-q.driver.seq) < 0 {
		// Any could drive; the first should, for it is the next to leave and then
		// needs no second wake-up.
		q.driver = w
	}
	_, err := q.wait(ctx, w, Look)
	return err
}

// Cancel removes w, an entry made by Reserve, unless it is settled: then it
// reports false. A goroutine that attends it gets limits.ErrCanceled.
func (q *Queue) Cancel(w *Waiter) bool {
	q.Lock()
	defer q.Unlock()
	now := q.Now()
	q.Advance(now)
	if w.settled() {
		return false
	}
	if w.wake == nil { // fail allocates the reason, which no goroutine would read
		q.giveUp(w)
	} else {
		q.fail(w, limits.ErrCanceled)
	}
	q.Advance(now)
	return true
}

// Slot returns when w leaves or, if it is settled, left, and the current instant. ok is false if w
// was removed without leaving.
func (q *Queue) Slot(w *Waiter) (slot, now time.Duration, ok bool) {
	q.Lock()
	defer q.Unlock()
	now = q.Now()
	q.Advance(now)
	switch w.state {
	case waiting:
		return sat.Add(now, q.admitter.Forecast(now, q.ahead(w))), now, true
	case granted:
		return w.until, now, true
	}
	return 0, now, false
}

// ahead returns the cost ahead of w. It walks from both ends, so that
// a reservation just made costs no more than one about to leave.
func (q *Queue) ahead(w *Waiter) int64 {
	var before total
	after := q.weight
	for l, r := q.front, q.back; ; l, r = l.next, r.prev {
		if l == w {
			return before.value()
		}
		after.sub(q.cfg.Weigh(r.n))
		if r == w {
			return after.value()
		}
		before.add(q.cfg.Weigh(l.n))
	}
}
