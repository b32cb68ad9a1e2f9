package queue

import (
	"context"
	"math"
	"time"

	"github.com/sluice-go/sluice/internal/errs"
	"github.com/sluice-go/sluice/internal/sat"
	"github.com/sluice-go/sluice/limits"
)

// A Request is the demand of a caller.
type Request struct {
	N   int64         // the request to Admit
	Max time.Duration // longest wait; negative is treated as 0, Forever as no bound

	// Patience, if not 0, is handed to Config.GiveUp.
	Patience time.Duration

	// Ask, if set, decides in place of the admitter's Admit.
	Ask AskFunc

	// Came, if set, is when the caller would have come if we had not woken it late.
	// It is for callers that ask.
	Came time.Time

	// Refused is the number of times the server has throttled the call that wants to leave again, 0
	// if it goes behind all that wait. First is when it was first sent. See again.go.
	Refused int
	First   time.Time

	// Flow, if set, is the flow of the queue at whose head the caller waits until then. This queue is its
	// Behind.Above.
	Flow *Flow

	// Label, if not 0, is for TurnAway.
	Label uint32

	announced bool // Config.Waits was called
	asking    context.Context
	stop      context.CancelFunc // of asking
}

// receipt returns the receipt of the caller that Admit has just let through.
func (q *Queue) receipt() uint32 {
	if !q.hands {
		return 0
	}
	return q.admitter.(HasReceipt).Receipt()
}

// Try admits r if it can start immediately and the queue is empty.
func (q *Queue) Try(r Request) (g Grant, ok bool) {
	q.Lock()
	if q.refuse(r.N) != nil {
		q.Unlock()
		return g, false
	}
	now := q.tick()
	if q.front != nil {
		q.Advance(now)
	}
	ok = q.front == nil
	if ok && r.Ask == nil {
		if ok = q.admitter.Admit(now, now, r.N) == 0; ok {
			g.Receipt.Own = q.receipt()
		}
	} else if ok {
		r.asking, r.stop = context.WithCancel(context.Background()) // which is not the caller's own
		defer r.stop()
		g.Receipt, ok = q.tryAsk(now, &r)
	}
	g.At = now
	q.Unlock()
	return g, ok
}

// tryAsk is Try for a caller that asks, as the only one in the queue.
func (q *Queue) tryAsk(now time.Duration, r *Request) (Receipt, bool) {
	r.Max = 0
	w := q.attended(now, r.N, nil)
	w.setRequest(r, deadline{}, q, now)
	q.push(w)
	wait, err := q.ask(w)
	q.handOn(w)
	if w.state == granted {
		q.putBack(w)
	}
	return wait.Receipt, wait.For == 0 && err == nil
}

// Acquire blocks until the admitter admits r, in the order of the calls. waited is how long that
// took, 0 if it did not block. The error is ctx.Err(), the reason given to Close or by Refuse,
// limits.ErrQueueFull, a *limits.WaitError if the wait cannot end in time, or
// limits.ErrTimeout if it did not. After an error nothing is taken.
func (q *Queue) Acquire(ctx context.Context, r Request) (g Grant, waited time.Duration, err error) {
	if r.Ask != nil {
		// The context of the AskFunc is made here and not where it is called: that is
		// between two locks, and context.WithCancel calls methods of ctx.
		r.asking, r.stop = context.WithCancel(errs.Honest(ctx))
		defer r.stop()
	}
	w, now, err := q.admitOrQueue(ctx, &r, &g)
	if w == nil {
		return g, 0, err
	}
	g, err = q.wait(ctx, w, Look)
	return g, g.At - now, err
}

// admitOrQueue is Acquire up to the wait, at now. If r need not wait or must not it
// returns no entry, with the queue unlocked and g set; otherwise the entry, and the queue is
// locked.
func (q *Queue) admitOrQueue(ctx context.Context, r *Request, g *Grant) (w *Waiter, now time.Duration, err error) {
	done, deadline := ctx.Done(), q.deadline(ctx)
	q.Lock()
	// Looked at under the lock: a context that was done before our turn at
	// the lock fails even if there is room (golang.org/issue/63615).
	if isDone(done) {
		q.Unlock()
		return nil, 0, errs.Done(ctx)
	}
	if err := q.refuse(r.N); err != nil {
		q.Unlock()
		return nil, 0, err
	}
	now = q.tick()
	if q.front != nil && !(r.Max == Forever && q.asleep(now, deadline.set)) {
		q.Advance(now)
	}
	wait := Forever
	if q.front == nil && r.Ask == nil {
		if wait = q.admitter.Admit(now, q.dueNow(now), r.N); wait == 0 {
			g.At, g.Receipt.Own = now, q.receipt()
			q.Unlock()
			return nil, now, nil
		}
	}
	if q.cfg.Untimed && r.Max != Forever {
		now = q.Now()
	}
	place, ahead, tag := q.placeFor(r)
	w, err = q.newEntry(now, r, done, deadline, ahead)
	switch {
	case err != nil:
		q.recycle(w)
		q.Unlock()
		return nil, 0, err
	case q.cfg.Waits != nil && !r.announced && (q.front != nil || r.Ask == nil):
		r.announced = true
		q.recycle(w)
		q.Unlock()
		q.cfg.Waits(ctx, r.N)
		return q.admitOrQueue(ctx, r, g) // perhaps it need not wait any more
	}
	if r.Flow != nil {
		r.Flow.tag, r.Flow.kept = tag, false
	}
	q.enter(now, r, w, place, wait)
	return w, now, nil
}

// placeFor returns the entry behind which r is to wait, nil if it is the first, the cost of those before it,
// and its tag in the order of fair shares.
func (q *Queue) placeFor(r *Request) (behind *Waiter, ahead int64, tag float64) {
	behind, ahead = q.back, q.weight.value()
	if r.Flow != nil {
		tag = q.tagOf(r.Flow)
	}
	switch {
	case r.Refused > 0:
		behind, ahead = q.behindWhom(r)
		if behind.hasFlow() {
			tag = behind.rare.flow.tag // whatever it is: this is its place
		}
	case r.Flow != nil && behind != nil:
		behind, ahead = q.placeOf(tag)
	}
	return behind, ahead, tag
}

// enter puts w, the entry of r, into the queue behind place, nil if it is the first. Then wait is the
// answer of the admitter to it.
func (q *Queue) enter(now time.Duration, r *Request, w, place *Waiter, wait time.Duration) {
	head := q.front
	switch {
	case place == q.back:
		q.push(w)
	case place == nil:
		q.overtake(w)
	case r.Flow != nil && r.Refused == 0:
		q.link(place, w) // those overtaken are looked at after the next change
	default:
		q.pushBehind(now, place, w)
	}
	if r.Refused > 1 {
		q.letOthersAsk(now, min(2*(r.Refused-1), mostOthers))
	}
	if w.listed {
		q.hurry(now, w)
	}
	if r.Flow != nil {
		q.cfg.Behind.noteBelow(Forever)
		q.foresee(now, q.found())
		q.failIn(r.Flow.Below)
	}
	if q.front == w && r.Ask != nil {
		w.rare.first = true // since it came, also if that should have been earlier
	}
	switch {
	case q.front == head:
	case q.front == w && wait != Forever:
		q.arm(now, sat.Add(now, wait))
	default: // what only a change ends may have ended before Busy showed that w waits
		q.Advance(now)
	}
}

// asleep reports whether a caller that comes at now, and can wait, need not look whether
// others may start. Without the time only a head that has given up can have moved
// anything, and will see to those behind it on its own. Otherwise the driver does when it
// wakes: all that are due leave then, with one wake-up. But the forecast for a caller with a
// deadline is true only when they have left.
func (q *Queue) asleep(now time.Duration, deadline bool) bool {
	if q.cfg.Untimed {
		return true
	}
	due := q.due
	if !deadline {
		due = sat.Add(due, q.hold())
	}
	return now < due && !q.full()
}

// newEntry returns an entry for r that is not in the queue yet, with the cost ahead of it, and
// why it must not be.
func (q *Queue) newEntry(now time.Duration, r *Request, done <-chan struct{}, d deadline, ahead int64) (w *Waiter, err error) {
	w = q.attended(now, r.N, done)
	w.setRequest(r, d, q, now)
	if w.rare != nil {
		err = q.hopeless(now, w, ahead)
		if err == nil && q.noteAbove(w) { // which may have learned something before it was told
			err = q.hopeless(now, w, ahead)
		}
	}
	if err == nil && q.full() {
		err = limits.ErrQueueFull
	}
	return w, err
}

// mustBeMade panics if Init was not called: q is part of the zero value of another type.
func (q *Queue) mustBeMade() {
	errs.Made(q.admitter != nil, "value of a Gate, Queue, Pacer or Weighted", "its New")
}

// refuse returns why n cannot enter, or nil.
func (q *Queue) refuse(n int64) error {
	q.mustBeMade()
	switch {
	case q.closed != nil:
		return q.closed
	case q.cfg.Refuse != nil:
		return q.cfg.Refuse(n)
	}
	return nil
}

func (q *Queue) full() bool {
	return q.cfg.MaxWaiting > 0 && q.Len() >= int(q.cfg.MaxWaiting)
}

// A deadline is the deadline of a context. It is read before the queue is locked: the context
// may be the caller's own, and its methods may use state that the lock guards.
type deadline struct {
	at  time.Time
	set bool
}

func (q *Queue) deadline(ctx context.Context) (d deadline) {
	if !q.cfg.Untimed { // otherwise no forecast could be compared with it
		d.at, d.set = ctx.Deadline()
	}
	return d
}

// setRequest notes the rare parts of a request, of a caller that comes at now with a context of
// deadline d: a bound on the wait, and the fields of callers that ask, or were rejected.
func (w *Waiter) setRequest(r *Request, d deadline, q *Queue, now time.Duration) {
	if r.Max != Forever {
		w.more().maxAt = sat.Add(now, r.Max)
	}
	if d.set {
		w.more().ctxAt = q.Instant(now, d.at)
	}
	if r.Ask == nil && r.Patience == 0 && r.Refused == 0 && r.Label == 0 {
		return
	}
	w.more().ask, w.rare.asking, w.rare.stop = r.Ask, r.asking, r.stop
	w.rare.patience, w.rare.announced, w.rare.flow, w.rare.label = r.Patience, r.announced, r.Flow, r.Label
	if w.rare.refused = int32(min(r.Refused, math.MaxInt32)); r.Refused > 0 {
		w.rare.left = r.First.Sub(q.epoch)
	}
	if w.rare.since = now; !r.Came.IsZero() {
		w.rare.since = min(now, r.Came.Sub(q.epoch))
	}
}
