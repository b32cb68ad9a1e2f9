package queue

import (
	"context"
	"math"
	"time"

	"github.com/sluice-go/sluice/internal/errs"
	"github.com/sluice-go/sluice/internal/sat"
)

// awake marks a waiter whose goroutine will look for itself before it sleeps.
const awake = time.Duration(math.MinInt64)

// wait blocks until w is settled. The queue is locked before and unlocked
// after.
func (q *Queue) wait(ctx context.Context, w *Waiter) error {
	done := ctx.Done()
	var timer *time.Timer
	for {
		if w.ask != nil && w == q.front && w.state == waiting {
			if settled, err := q.askFor(ctx, w); settled {
				q.mu.Unlock()
				return err
			}
		}
		if w.state != waiting {
			q.mu.Unlock()
			return w.result(ctx)
		}
		until := w.armed // Forever, or what askFor set
		if w.armed == awake {
			w.armed = Forever
			if w == q.driver && w.ask == nil {
				w.armed = q.due
			}
			until = w.armed
		}
		if !q.cfg.Exact {
			until = min(until, w.maxAt)
		}
		now := q.Now()
		q.mu.Unlock()

		var alarm <-chan time.Time
		if until != Forever {
			if timer == nil {
				timer = time.NewTimer(until - now)
				defer timer.Stop()
			} else {
				timer.Reset(until - now)
			}
			alarm = timer.C
		}
		cancelled := false
		select {
		case v := <-w.wake:
			if v == settled {
				return w.result(ctx)
			}
		case <-alarm:
		case <-done:
			cancelled = true
		}

		q.mu.Lock()
		w.armed = awake
		if w.state != waiting {
			q.mu.Unlock()
			return w.result(ctx)
		}
		now = q.Now()
		if cancelled {
			q.drop(now, w, ctx.Err())
		} else {
			q.Advance(now)
			asks := w.ask != nil && w == q.front // and gives up by itself
			if w.state == waiting && !q.cfg.Exact && !asks && now >= w.maxAt {
				q.drop(now, w, q.blame(now, 0, errs.ErrTimeout))
			}
		}
	}
}

// askFor asks on behalf of w, the head. settled reports that w's wait is over
// with err; otherwise w.armed says when to ask again.
func (q *Queue) askFor(ctx context.Context, w *Waiter) (over bool, err error) {
	wait, err := q.ask(ctx, w)
	now := q.Now()
	switch {
	case err == nil && wait == 0:
		// It may have been failed while it asked. It keeps what it was
		// given all the same: decided once, in favour of the grant.
	case w.state != waiting:
		return true, w.result(ctx)
	case err == nil && wait == Forever:
		w.armed, w.due = Forever, Forever // nobody will be late for it
		if now < w.maxAt {
			return false, nil
		}
		err = q.blame(now, 0, errs.ErrTimeout)
	case err == nil:
		w.armed = sat.Add(now, wait)
		w.due = w.armed
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
	w.asked = true
	now := q.Now()
	turn := Turn{N: w.n, Due: min(w.due, now), Left: Forever, Patience: w.patience}
	if w.maxAt != Forever {
		turn.Left = max(0, w.maxAt-now)
	}
	ctx, w.stopAsk = context.WithCancel(ctx)
	q.mu.Unlock()
	returned := false
	defer func() {
		q.mu.Lock()
		w.stopAsk()
		w.stopAsk = nil
		if !returned {
			q.leave(w)
			q.mu.Unlock()
		}
	}()
	wait, err = w.ask(ctx, turn)
	returned = true
	return max(0, wait), err
}
