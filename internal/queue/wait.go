package queue

import (
	"context"
	"slices"
	"time"

	"github.com/sluice-go/sluice/internal/alarm"
	"github.com/sluice-go/sluice/internal/errs"
	"github.com/sluice-go/sluice/internal/sat"
	"github.com/sluice-go/sluice/limits"
)

// near is how long a wait of a caller that asks may be to be worth an exact end.
// Config.Fine knows only what the rule asks for, and it may wait for another limit.
const near = 100 * time.Millisecond

// sleep is alarm.Sleep but in tests.
var sleep = alarm.Sleep

// wait blocks until w is settled, and returns when it was granted. The queue is
// locked before and unlocked after.
func (q *Queue) wait(ctx context.Context, w *Waiter) (at time.Duration, err error) {
	var timer *time.Timer
	if r := w.rare; r != nil && r.ask != nil {
		defer r.leaveBells()
	}
	at, err = q.block(ctx, w, Look, &timer)
	if timer != nil {
		timer.Stop()
	}
	return at, err
}

// # Why does a semaphore sleep for itself?
//
// Most who wait for a semaphore have nothing to look at but whether it is their
// turn. The simplest of them called Acquire, like everybody else, and slept four
// calls deep. When a goroutine runs again, the processor expects it to return
// where the one before would have: it mispredicts each return, and finds none of
// these frames in its cache. Of 410 ns that a permit took from one goroutine to
// the next that was 40. So Join does what comes before the sleep, the semaphore
// receives from the channel itself, and Leave does what comes after.

// A Place is where a caller stands in a queue that does not know the time.
type Place struct {
	Wake  <-chan Message
	Done  <-chan struct{} // of its context
	Crowd <-chan error
	w     *Waiter
}

// Join is Acquire, without bounds, up to the sleep. If the Crowd of the place is set
// the caller must receive from that, once, and has the result. If the Wake is set it
// must receive from that, may wait for Done meanwhile, and must call Leave unless
// the message is a grant. If none is, that is over, with err.
func (q *Queue) Join(ctx context.Context, n int64) (p Place, err error) {
	done := ctx.Done()
	q.Lock()
	switch err := q.refuse(n); {
	case isDone(done):
		q.Unlock()
		return Place{}, errs.Done(ctx)
	case err != nil:
		q.Unlock()
		return Place{}, err
	case q.front == nil && q.rule.Admit(0, 0, n) == 0:
		q.Unlock()
		return Place{}, nil
	case q.full():
		q.Unlock()
		return Place{}, limits.ErrQueueFull
	}
	if n == 1 && done == nil && q.cfg.Latch != nil && q.joinCrowd() {
		room := q.crowd.room
		q.Unlock()
		return Place{Crowd: room}, nil
	}
	w := q.attended(0, n, done)
	q.push(w)
	q.Unlock()
	return Place{Wake: w.wake, Done: done, w: w}, nil
}

// Leave is what follows after a message m that is not a grant or, m being Look,
// when the context is done. It may block. Its error is that of Acquire.
func (q *Queue) Leave(ctx context.Context, p Place, m Message) error {
	q.Lock()
	if m == Look {
		m = heard(p.Wake)
	}
	if m == Look && isDone(p.Done) && !p.w.settled() {
		q.giveUp(p.w)
		q.Advance(0)
	}
	_, err := q.block(ctx, p.w, m, nil)
	return err
}

// block is wait, after m was heard, and stops no timer that it makes.
func (q *Queue) block(ctx context.Context, w *Waiter, m Message, timer **time.Timer) (at time.Duration, err error) {
	wake, done := w.wake, w.done
	for {
		if m == Look {
			m = heard(wake)
		}
		switch {
		case m.Granted():
			q.Unlock()
			return time.Duration(m), nil
		case w.settled():
			q.Unlock()
			return 0, w.result(ctx)
		case w.asks() && w == q.front:
			if isDone(done) {
				q.cancel(q.Now(), w)
				continue
			}
			if over, err := q.askFor(w); over {
				at = w.at
				if err == nil {
					q.putBack(w)
				}
				q.Unlock()
				return at, err
			}
			if w.settled() {
				continue
			}
			if q.listen(w) {
				continue // what came back before the bell knew of it has to be asked for
			}
			q.tellWaits(w) // whoever tells it to look meanwhile has filled its channel
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
			if w.asks() && w == q.front {
				fine = q.fine && (left <= near || q.cfg.Fine != nil && q.cfg.Fine())
			}
		}
		q.Unlock()

		cancelled := false
		m = Look
		switch {
		case until == Forever && done == nil:
			m = <-wake
		case until == Forever:
			select {
			case m = <-wake:
			case <-done:
				cancelled = true
			}
		case fine && left <= alarm.Reach && !bubbled() && sleep(left):
			// A change meanwhile does not wake it. If it asks, it sees the change when it
			// wakes, and counts as that late (rare.since); others are granted by the change.
			//
			// Of slots that are close together it may sleep for one after the
			// other, and come to the select below only after the last.
			cancelled = isDone(done)
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
			case m = <-wake:
			case <-(*timer).C:
			case <-done:
				cancelled = true
			}
		}
		if m.Granted() {
			return time.Duration(m), nil
		}

		q.Lock()
		if m == Look {
			m = heard(wake)
		}
		if m != Look || w.settled() {
			continue
		}
		w.at = awake
		now := q.Now()
		if cancelled {
			q.cancel(now, w)
			continue
		}
		q.Advance(now)
		if m = heard(wake); m != Look || w.settled() {
			continue
		}
		asks := w.asks() && w == q.front // and gives up by itself
		if !q.cfg.Exact && !asks && now >= w.maxAt() {
			q.drop(now, w, q.blame(now, 0, w, limits.ErrTimeout))
		}
	}
}

// cancel removes w, whose context is done. Its goroutine does that, and fills in the
// error when the queue is unlocked.
func (q *Queue) cancel(now time.Duration, w *Waiter) {
	if w.asks() && w == q.front {
		q.setDue(min(w.rare.since, w.rare.due, now)) // of the next, which is as late as this one
	}
	q.giveUp(w)
	q.Advance(now)
}

// askFor asks on behalf of w, the head. over reports that w's wait is over
// with err; otherwise w is settled, or w.at says when to ask again.
func (q *Queue) askFor(w *Waiter) (over bool, err error) {
	wait, err := q.ask(w)
	now := q.Now()
	switch {
	case err == nil && wait.For == 0:
		w.at = now
		// It may have been failed while it asked. It keeps what it was
		// given all the same: decided once, in favour of the grant.
		if !w.settled() {
			q.setDue(min(w.rare.due, now)) // of the next, which is as late as this one
		}
	case w.settled():
		return false, nil
	case err == nil:
		w.at, w.rare.by = sat.Add(now, wait.For), wait.By
		w.rare.due = w.at // Forever: no wake-up can be late
		if wait.For != Forever {
			err = w.tooLong(now, wait.Sure)
		}
		if err == nil && now >= w.maxAt() {
			err = limits.ErrTimeout
		}
		if err == nil {
			return false, nil
		}
		err = q.blame(now, 0, w, err)
	}
	q.leave(w)
	return true, err
}

// tellWaits calls Config.Waits, once, for w, which has asked and must wait.
func (q *Queue) tellWaits(w *Waiter) {
	if q.cfg.Waits == nil || w.rare.told {
		return
	}
	w.rare.told = true
	q.unlocked(w, func() { q.cfg.Waits(w.n) })
}

// listen registers w, the head, at the bell of the limit that refused it, and reports
// whether that is new. It stays registered until its wait is over: not only until it is refused by
// another limit, or two that refuse it in turn would have it ask without end.
func (q *Queue) listen(w *Waiter) bool {
	r, by := w.rare, w.rare.by
	if by == nil || slices.ContainsFunc(r.heeded, func(h heeded) bool { return h.bell == by }) {
		return false
	}
	q.unlocked(w, func() {
		stop := (*by)(func() {
			q.Lock()
			defer q.Unlock()
			q.Kick()
		})
		r.heeded = append(r.heeded, heeded{by, stop})
	})
	return true
}

// leaveBells undoes listen. The queue must not be locked: a bell rings with a lock of its
// own, and takes the queue's.
func (r *rare) leaveBells() {
	for _, h := range r.heeded {
		h.stop()
	}
}

// unlocked calls f with the queue unlocked. If that panics, w leaves and the panic
// propagates without our lock.
func (q *Queue) unlocked(w *Waiter, f func()) {
	q.Unlock()
	returned := false
	defer func() {
		q.Lock()
		if !returned {
			q.leave(w)
			q.Unlock()
		}
	}()
	f()
	returned = true
}

// ask calls the AskFunc of w with the queue unlocked.
func (q *Queue) ask(w *Waiter) (wait Wait, err error) {
	r := w.rare
	now := q.Now()
	turn := Turn{N: w.n, Due: min(r.since, r.due, now), Left: Forever, Patience: r.patience}
	if r.maxAt != Forever {
		turn.Left = max(0, r.maxAt-now)
	}
	r.since, r.due = Forever, turn.Due
	q.unlocked(w, func() { wait, err = r.ask(r.asking, turn) })
	wait.For = max(0, wait.For)
	return wait, err
}
