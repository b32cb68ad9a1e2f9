package queue

import (
	"context"
	"time"

	"github.com/sluice-go/sluice/internal/alarm"
	"github.com/sluice-go/sluice/internal/errs"
	"github.com/sluice-go/sluice/internal/sat"
)

// wait blocks until w is settled. The queue is locked before and unlocked
// after.
func (q *Queue) wait(ctx context.Context, w *Waiter) error {
	if q.cfg.Untimed && w.rare == nil {
		// The way of nearly all who wait for a semaphore: what follows, with
		// nothing to look at but whether it is their turn.
		w.at = Forever
		q.Unlock()
		if w.done == nil {
			<-w.wake
		} else {
			select {
			case <-w.wake:
			case <-w.done:
			}
		}
		if w.settled() {
			return w.result(ctx)
		}
		q.Lock()
		w.at = awake
		if isDone(w.done) && !w.settled() {
			q.drop(0, w, ctx.Err())
		}
	}
	var timer *time.Timer
	err := q.block(ctx, w, &timer)
	if timer != nil {
		timer.Stop()
	}
	return err
}

// block is wait, which stops the timer that it makes.
func (q *Queue) block(ctx context.Context, w *Waiter, timer **time.Timer) error {
	for {
		if w.asks() && w == q.front && !w.settled() {
			if over, err := q.askFor(ctx, w); over {
				q.Unlock()
				return err
			}
		}
		if w.settled() {
			q.Unlock()
			return w.result(ctx)
		}
		until, fine := w.at, false // Forever, or what askFor set
		if w.at == awake {
			w.at = Forever
			if w == q.driver && !w.asks() {
				w.at = q.due
				fine = q.fine && q.cfg.Fine != nil && q.cfg.Fine()
			}
			until = w.at
		}
		if !q.cfg.Exact {
			until = min(until, w.maxAt())
		}
		var left time.Duration
		if until != Forever {
			left = until - q.Now()
		}
		q.Unlock()

		cancelled := false
		switch {
		case until == Forever && w.done == nil:
			<-w.wake
		case until == Forever:
			select {
			case <-w.wake:
			case <-w.done:
				cancelled = true
			}
		case fine && left <= alarm.Reach && !bubbled() && alarm.Sleep(left):
			// Of slots that are close together it may sleep for one after the
			// other, and come to the select below only after the last.
			cancelled = isDone(w.done)
		default:
			if fine && left > alarm.Reach {
				left -= alarm.Reach // the rest when we are there
			}
			if *timer == nil {
				*timer = time.NewTimer(left)
			} else {
				(*timer).Reset(left)
			}
			select {
			case <-w.wake:
			case <-(*timer).C:
			case <-w.done:
				cancelled = true
			}
		}

		if w.settled() {
			return w.result(ctx)
		}
		q.Lock()
		if w.settled() {
			q.Unlock()
			return w.result(ctx)
		}
		w.at = awake
		now := q.Now()
		if cancelled {
			q.drop(now, w, ctx.Err())
			continue
		}
		q.Advance(now)
		asks := w.asks() && w == q.front // and gives up by itself
		if !w.settled() && !q.cfg.Exact && !asks && now >= w.maxAt() {
			q.drop(now, w, q.blame(now, 0, errs.ErrTimeout))
		}
	}
}

// askFor asks on behalf of w, the head. over reports that w's wait is over
// with err; otherwise w.at says when to ask again.
func (q *Queue) askFor(ctx context.Context, w *Waiter) (over bool, err error) {
	wait, err := q.ask(ctx, w)
	now := q.Now()
	switch {
	case err == nil && wait == 0:
		w.at = now
		// It may have been failed while it asked. It keeps what it was
		// given all the same: decided once, in favour of the grant.
	case w.settled():
		return true, w.result(ctx)
	case err == nil && wait == Forever:
		w.at, w.rare.due = Forever, Forever // nobody will be late for it
		if now < w.maxAt() {
			return false, nil
		}
		err = q.blame(now, 0, errs.ErrTimeout)
	case err == nil:
		w.at = sat.Add(now, wait)
		w.rare.due = w.at
		if err = q.blame(now, 0, w.tooLong(now, wait)); err == nil {
			return false, nil
		}
	}
	q.leave(w)
	return true, err
}

// ask calls the AskFunc of w with the queue unlocked. If that panics, w leaves
// and the panic flies on without our lock.
func (q *Queue) ask(ctx context.Context, w *Waiter) (wait time.Duration, err error) {
	r := w.rare
	r.asked = true
	now := q.Now()
	turn := Turn{N: w.n, Due: min(r.due, now), Left: Forever, Patience: r.patience}
	if r.maxAt != Forever {
		turn.Left = max(0, r.maxAt-now)
	}
	ctx, r.stopAsk = context.WithCancel(ctx)
	q.Unlock()
	returned := false
	defer func() {
		q.Lock()
		r.stopAsk()
		r.stopAsk = nil
		if !returned {
			q.leave(w)
			q.Unlock()
		}
	}()
	wait, err = r.ask(ctx, turn)
	returned = true
	return max(0, wait), err
}
