package queue

import (
	"time"

	"github.com/sluice-go/sluice/internal/errs"
	"github.com/sluice-go/sluice/internal/sat"
	"github.com/sluice-go/sluice/limits"
)

// Change settles due entries, calls f to change the admitter, and applies the
// change to all entries: those it makes hopeless fail, those it lets through start, and
// the driver sleeps for the new time. It looks only at entries whose bound is near, see
// index.
func (q *Queue) Change(f func(now time.Duration)) {
	q.Adjust(func(now time.Duration) (later bool) {
		f(now)
		return true
	})
}

// Adjust is Change, but looks for hopeless entries only if f reports that a forecast may be
// later now: an earlier forecast makes no wait hopeless.
func (q *Queue) Adjust(f func(now time.Duration) (later bool)) {
	q.Lock()
	defer q.Unlock()
	q.mustBeMade()
	now := q.Now()
	q.Advance(now)
	later := f(now)
	q.changed, q.due = now, now // to be looked at again
	if later {
		q.failHopeless(now)
	}
	q.Advance(now)
	q.Kick()
}

// Recheck ends the wait of each entry that Refuse would reject now. It looks at the entries
// only if it would reject the heaviest. The queue must be locked. Call Advance afterwards:
// the head may be another.
func (q *Queue) Recheck() {
	if q.refuse(q.heaviest) == nil {
		return
	}
	q.heaviest = 0
	for w := q.front; w != nil; {
		next := w.next
		switch err := q.refuse(w.n); {
		case err == nil:
			q.heaviest = max(q.heaviest, w.n)
		case isDone(w.done): // it failed before
			q.giveUp(w)
		default:
			q.fail(w, err)
		}
		w = next
	}
}

// Close fails all entries, and all callers that come later. Only the first call has an effect.
func (q *Queue) Close(reason error) {
	q.Lock()
	defer q.Unlock()
	q.mustBeMade()
	if q.closed != nil {
		return
	}
	q.Advance(q.Now())
	q.closed = reason
	q.busy.Store(true)
	q.Recheck()
}

// Advance hands over to every entry whose turn it is at now. The queue must be
// locked. It must be called after anything that may let the head through.
func (q *Queue) Advance(now time.Duration) {
	for w := q.front; w != nil; w = q.front {
		if q.isCrowd(w) {
			if q.admitter.Admit(now, now, 1) > 0 {
				return
			}
			q.releaseCrowd(1, nil)
			continue
		}
		if w.asks() {
			if r := w.rare; !r.first {
				// It is late by as much as the one that was first before it.
				r.first, r.since = true, max(r.since, min(q.due, now))
				if w.until == Forever {
					w.nudge()
				}
			}
			break
		}
		at, due := now, min(q.due, now)
		if w.wake == nil {
			// No goroutine sleeps for it, so none can be late: it is charged as if it
			// had been looked at exactly at its slot. That is due, whichever entry is
			// at the head, unless due has ended or Change has reset it.
			at = q.due
			if at <= now || at == Forever {
				at = sat.Add(q.changed, q.admitter.Forecast(q.changed, 0))
			}
			if at > now {
				q.arm(now, at) // also for a driver that is new
				return
			}
			due = at
		}
		if isDone(w.done) {
			q.giveUp(w)
			continue
		}
		if wait := q.admitter.Admit(at, due, w.n); wait > 0 {
			q.arm(now, sat.Add(now, wait))
			return
		}
		q.remove(w)
		w.until, w.state = at, granted
		w.send(Message{at, q.receipt()})
		q.recycle(w)
	}
	q.setDue(Forever)
}

// Kick makes a head that asks do so again, also if it is asking at this moment and may
// have looked too early. The queue must be locked. Call it after anything that may let
// such a head through; for other heads Advance asks the admitter.
func (q *Queue) Kick() {
	asks := q.front != nil && q.front.asks()
	if !asks && q.found() == 0 {
		return
	}
	now := q.Now()
	q.foresee(now, 0) // until it has asked
	if asks {
		q.front.rare.since = min(q.front.rare.since, now)
		q.front.nudge()
	}
}

// setDue writes only changes: every caller reads the fields next to due, on all
// processors, and in a semaphore it never changes.
func (q *Queue) setDue(due time.Duration) {
	if q.due != due {
		q.due = due
	}
}

// arm makes the driver wake at due.
func (q *Queue) arm(now, due time.Duration) {
	q.setDue(due)
	if b := q.cfg.Behind; b != nil && b.soonestBelow.Load() != 0 {
		q.foresee(now, 0)
		q.failBelow(now, q.surely())
	}
	if d := q.driver; d != nil && d.until > due && !q.ringFor(d, now, due) {
		d.nudge()
	}
}

// hopeless returns an error if w, with the cost ahead of it, cannot start in time.
func (q *Queue) hopeless(now time.Duration, w *Waiter, ahead int64) error {
	if w.rare == nil { // whatever it takes
		return nil
	}
	if w.rare.patience != 0 && q.cfg.GiveUp != nil {
		if err := q.cfg.GiveUp(now, w.rare.patience); err != nil {
			return err
		}
	}
	need := q.admitter.Forecast(now, ahead)
	if w != q.front { // which knows
		if sure := sat.Sub(q.surely(), now); sure > need {
			return q.blame(now, 0, w, q.tooLong(w, now, sure))
		}
	}
	asks := w.asks() && (q.front == nil || q.front == w) // and then knows
	if need == 0 && w.maxAt() <= now && !asks {
		return q.blame(now, 0, w, limits.ErrTimeout)
	}
	return q.blame(now, need, w, q.tooLong(w, now, need))
}

// tooLong returns an error if w cannot wait for need from now on. Leaving
// exactly when the longest allowed wait ends is in time; leaving exactly at
// the deadline of a context is not, for then it is done.
func (q *Queue) tooLong(w *Waiter, now, need time.Duration) error {
	if need == 0 || w.rare == nil {
		return nil
	}
	at := sat.Add(now, need)
	maxAt, ctxAt := w.rare.maxAt, w.rare.ctxAt
	if maxAt != Forever && at > maxAt || ctxAt != Forever && at >= ctxAt {
		err := &limits.WaitError{Need: need, Have: max(0, min(maxAt, ctxAt)-now)}
		if at != Forever {
			err.Until = q.Time(at)
		}
		return err
	}
	return nil
}

// blame returns err, with which the wait of w ends, with the limit that is to blame. A
// nil err stays nil.
func (q *Queue) blame(now, need time.Duration, w *Waiter, err error) error {
	if err == nil || q.cfg.Blame == nil {
		return err
	}
	return errs.For(q.cfg.Blame(now, need, w.n), err)
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

// drop removes w, which then has failed with err, and lets those behind it
// move up.
func (q *Queue) drop(now time.Duration, w *Waiter, err error) {
	q.fail(w, err)
	q.Advance(now)
}

// giveUp removes w without a message: its context is done, and its goroutine sees that
// on its own, or it has none.
func (q *Queue) giveUp(w *Waiter) {
	q.remove(w)
	w.state = dropped
}

func (q *Queue) fail(w *Waiter, err error) {
	if q.isCrowd(w) {
		q.releaseCrowd(q.crowd.left, err)
		return
	}
	q.remove(w)
	w.fail(err)
}

// handOn takes w out of the queue, if it is still in it, and calls the next.
func (q *Queue) handOn(w *Waiter) {
	if !w.settled() {
		q.remove(w)
		w.state = granted
	}
	q.Advance(q.Now())
}
