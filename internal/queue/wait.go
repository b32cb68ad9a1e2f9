package queue

import (
	"context"
	"time"

	"github.com/sluice-go/sluice/internal/alarm"
	"github.com/sluice-go/sluice/internal/sat"
	"github.com/sluice-go/sluice/limits"
)

// near is the longest wait that a caller that asks may be to be worth an exact end.
// Config.Fine knows only the request of the admitter, and the caller may wait for another
// limit, which may not catch up on lateness.
const near = 100 * time.Millisecond

// sleep is alarm.Sleep but in tests.
var sleep = alarm.Sleep

// wait blocks until w, which has heard m, is settled, and returns its grant. The
// queue is locked before and unlocked after. It is the one loop in which all callers wait:
//
//	locked    Is the wait over? Must w ask? Until when to sleep?
//	unlocked  sleep, until then, a message, or the end of the context
//	locked    hand over to all whose turn it is; give up if that is due
func (q *Queue) wait(ctx context.Context, w *Waiter, m Message) (g Grant, err error) {
	wake, done := w.wake, w.done // w is not to be touched once it was admitted
	var timer *time.Timer
	defer func() {
		if timer != nil {
			timer.Stop()
		}
	}()
	if w.rare != nil {
		defer w.rare.stopBells()
	}
	for next := sleepOn; ; {
		m, next, err = q.askInTurn(w, wake, m)
		switch {
		case m.Granted():
			q.Unlock()
			return m.grant(), nil
		case next == over:
			g = w.rare.grant
			if err == nil {
				q.putBack(w)
			}
			q.Unlock()
			return g, err
		case w.settled():
			q.Unlock()
			return g, w.result(ctx)
		}
		until, fine := q.sleepUntil(w)
		q.Unlock()
		cancelled := false
		switch {
		case until != Forever:
			m, cancelled = q.sleepFor(until-q.Now(), fine, wake, done, &timer)
		case done == nil:
			m = <-wake
		default:
			select {
			case m = <-wake:
			case <-done:
				m, cancelled = Look, true
			}
		}
		if m.Granted() {
			return m.grant(), nil
		}
		q.Lock()
		m = q.awoken(w, wake, m, cancelled)
	}
}

// askInTurn asks on behalf of w, which has heard m, if it is at the head and must, until it may sleep
// or its wait has ended. It returns the message w has received since.
func (q *Queue) askInTurn(w *Waiter, wake <-chan Message, m Message) (_ Message, next step, err error) {
	for {
		if m == Look {
			m = heard(wake)
		}
		if m.Granted() || w.settled() || !w.asks() || w != q.front {
			return m, sleepOn, nil
		}
		if next, err = q.askAtFront(w); next != lookAgain {
			return m, next, err
		}
	}
}

// sleepUntil returns until when the goroutine of w sleeps unless it gets a message, and
// whether it is worth while to wake it more exactly than timers do.
func (q *Queue) sleepUntil(w *Waiter) (until time.Duration, fine bool) {
	until = w.until // Forever, or set by askFor
	if until == awake {
		w.until = Forever
		if w == q.driver && !w.asks() {
			w.until = q.due // also if it sleeps for longer: later entries need not wake it
			fine = q.fine && q.cfg.Fine != nil && q.cfg.Fine()
			if !fine && q.ringFor(w, q.Now(), q.due) {
				return Forever, false
			}
		}
		until = q.wakeAt(w)
	}
	asks := w.asks() && w == q.front
	if asks && w.rare.paced {
		until = q.wakeAt(w)
	}
	if !q.cfg.Exact {
		until = min(until, w.maxAt())
	}
	if until != Forever && asks {
		fine = q.fine && (!w.rare.paced && until-q.Now() <= near || q.cfg.Fine != nil && q.cfg.Fine())
	}
	return until, fine
}

// wakeAt returns when w is to be woken, the driver or one that asks, which need not look
// before it sleeps no more.
func (q *Queue) wakeAt(w *Waiter) time.Duration {
	until := w.until
	at := sat.Add(until, q.hold())
	if at != until && q.endsBefore(at) {
		return until // a wait, of w or of one behind it, must not end before
	}
	return at
}

// hurry wakes the driver at its slot, if it would be held until after the wait of w, which
// is bounded and has just joined, must end.
func (q *Queue) hurry(now time.Duration, w *Waiter) {
	d := q.driver
	switch {
	case d == nil || d == w || d.until == awake || d.until == Forever:
	case sat.Add(d.until, q.hold()) <= w.bound():
	case d.asks() && !d.rare.paced: // it is not held
	case d.asks() || !q.ringFor(d, now, d.until):
		d.nudge()
	}
}

// ringFor makes the clock ring for w, the driver, which need not look before due, or
// reports false if w must have its own timer: for an exact wake-up or one that is far
// away, in a testing/synctest bubble, or because the end of its wait is another instant.
func (q *Queue) ringFor(w *Waiter, now, due time.Duration) bool {
	if !q.fine || now < 0 || due-now > near || q.cfg.Hold == nil ||
		!q.cfg.Exact && w.maxAt() != Forever || q.cfg.Fine != nil && q.cfg.Fine() {
		return false
	}
	before := w.until
	w.until = due
	if !q.clock.ringAt(q, now, q.wakeAt(w)) {
		w.until = before
		return false
	}
	return true
}

// hold returns the time after due for which the driver sleeps, see Config.Hold.
func (q *Queue) hold() time.Duration {
	if !q.fine || q.cfg.Hold == nil {
		return 0
	}
	return q.cfg.Hold()
}

// sleepFor sleeps for d, with a timer that it makes if there is none.
func (q *Queue) sleepFor(d time.Duration, fine bool, wake <-chan Message, done <-chan struct{}, timer **time.Timer) (m Message, cancelled bool) {
	if fine && d <= alarm.Reach && !bubbled() && sleep(d) {
		// A change until then does not wake it. If it asks, it sees the change when it
		// wakes, and counts as that late (rare.since); others are admitted by the change.
		//
		// For slots that are close together it may sleep here once for each, and come
		// to the select below only after the last.
		return Look, isDone(done)
	}
	if fine && d > alarm.Reach {
		d -= alarm.Reach // the rest when we are there
	}
	if *timer == nil {
		*timer = time.NewTimer(d)
	} else {
		(*timer).Reset(d)
	}
	select {
	case m = <-wake:
		return m, false
	case <-(*timer).C:
		return Look, false
	case <-done:
		return Look, true
	}
}

// awoken is the next step of w after a sleep that ended with m: it lets all start whose turn
// it is, or leaves the queue itself. It returns the message w has received until then.
func (q *Queue) awoken(w *Waiter, wake <-chan Message, m Message, cancelled bool) Message {
	if m == Look {
		m = heard(wake)
	}
	if m != Look || w.settled() {
		return m
	}
	w.until = awake
	if q.cfg.Untimed && w.rare == nil { // there is nothing to do at a time
		if cancelled {
			q.cancel(0, w)
		}
		return Look
	}
	now := q.Now()
	if cancelled {
		q.cancel(now, w)
		return Look
	}
	q.Advance(now)
	q.noteEmptied(now)
	if m = heard(wake); m != Look || w.settled() {
		return m
	}
	asks := w.asks() && w == q.front // and gives up on its own
	if !q.cfg.Exact && !asks && now >= w.maxAt() {
		q.drop(now, w, q.blame(now, 0, w, limits.ErrTimeout))
	}
	return Look
}

// noteEmptied notes that the driver, which was held, has let all start at now, and more
// could. Then a caller that comes soon, as those do that have just left, is late by our
// fault: no caller was there to leave until its goroutine was awake.
func (q *Queue) noteEmptied(now time.Duration) {
	if q.front == nil && q.hold() > 0 && q.admitter.Forecast(now, 0) == 0 {
		q.emptied = now
	}
}

// dueNow returns since when a caller that comes at now to an empty queue could have left,
// as far as it was not late on its own.
func (q *Queue) dueNow(now time.Duration) (due time.Duration) {
	due = now
	if q.emptied > 0 {
		if now-q.emptied <= q.hold() {
			due = q.emptied
		}
		q.emptied = 0
	}
	return due
}
