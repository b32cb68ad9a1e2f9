package queue

import (
	"context"
	"slices"
	"time"

	"github.com/sluice-go/sluice/internal/sat"
	"github.com/sluice-go/sluice/limits"
)

// An AskFunc decides in place of Admitter.Admit for a caller whose limits must block
// to answer, because one of them lives elsewhere. It is called only while the
// caller is at the head of the queue, in the caller's goroutine and with the
// queue unlocked. It returns like Admit; an error is the caller's answer and
// ends its wait. ctx ends with the caller's wait, whatever ends that; only then
// may the next caller ask before the call has returned.
type AskFunc func(ctx context.Context, t Turn) (Wait, error)

// A Wait is how long the caller at the head of a queue has to wait. The zero Wait
// is none.
type Wait struct {
	// For is how long to wait before it is worth asking again: Forever when only
	// a change can help.
	For time.Duration

	// Sure is how much of that it will be at least, whatever others do. Only a
	// wait that is sure to be too long is refused before it begins; one that
	// only a change can end never is.
	Sure time.Duration

	// Paced reports that it is for the rate of the queue's own admitter, which makes up for
	// lateness. Fine and Hold of the queue's Config then say how exactly it is to end.
	Paced bool

	// Receipt is handed to the caller if it need not wait.
	Receipt Receipt

	// By, if set, calls back when it is worth asking again earlier. The caller is
	// registered there, and then asks once more: something may have come back before.
	By *Bell
}

// sureAt returns until when w lasts for sure, if it began now.
func (w Wait) sureAt(now time.Duration) time.Duration {
	if w.For == Forever { // which a change may end at any time
		return 0
	}
	return sat.Add(now, w.Sure)
}

// A Bell registers f at a limit outside the queue. The limit calls f whenever it may
// admit a caller earlier than it said, until stop is called. f does not block.
type Bell func(f func()) (stop func())

// Surely is a wait that nothing will make shorter.
func Surely(d time.Duration) Wait { return Wait{For: d, Sure: d} }

// A Turn describes the caller for which an AskFunc is called.
type Turn struct {
	N    int64
	Due  time.Duration // ≤ now, since when it could have asked: the rest is our lateness
	Left time.Duration // how long the caller will still wait, Forever for no bound

	Patience time.Duration // of the request

	Refused int // of the request
	First   time.Time
}

// A step is what follows after a caller has asked.
type step int

const (
	sleepOn   step = iota // until it is worth asking again
	lookAgain             // at once
	over                  // the wait is over
)

// askAtFront asks on behalf of w, the head, and registers it where it is to hear that
// asking again is worth while.
func (q *Queue) askAtFront(w *Waiter) (next step, err error) {
	if isDone(w.done) {
		q.cancel(q.Now(), w)
		return lookAgain, nil
	}
	if ended, err := q.askFor(w); ended {
		return over, err
	}
	if w.settled() {
		return lookAgain, nil
	}
	if q.listen(w) {
		return lookAgain, nil // for what came back before the bell knew of w
	}
	q.announceHead(w) // a message that comes meanwhile stays in its channel
	return sleepOn, nil
}

// askFor asks on behalf of w, the head. ended reports that w's wait is over
// with err; otherwise w is settled, or w sleeps until it is to ask again.
func (q *Queue) askFor(w *Waiter) (ended bool, err error) {
	wait, err := q.ask(w)
	now := q.Now()
	switch {
	case err == nil && wait.For == 0:
		w.rare.grant = Grant{now, wait.Receipt}
		// It may have been failed while it asked. It keeps what it was
		// given all the same: decided once, in favour of the grant.
		if !w.settled() {
			q.setDue(min(w.rare.due, now)) // of the next, which is as late as this one
		}
	case w.settled():
		return false, nil
	case err == nil:
		again := sat.Add(now, wait.For)
		w.sleep(again)
		w.rare.by, w.rare.paced = wait.By, wait.Paced
		w.rare.due = again // Forever: no wake-up can be late
		if wait.For != Forever {
			err = q.tooLong(w, now, wait.Sure)
		}
		if err == nil && now >= w.maxAt() {
			err = limits.ErrTimeout
		}
		if err == nil {
			q.foresee(now, wait.sureAt(now))
			q.failBehind(now)
			return false, nil
		}
		err = q.blame(now, 0, w, err)
	}
	q.handOn(w)
	return true, err
}

// announceHead calls Config.Waits, once, for w, which has asked and must wait.
func (q *Queue) announceHead(w *Waiter) {
	if q.cfg.Waits == nil || w.rare.announced {
		return
	}
	w.rare.announced = true
	q.unlocked(w, func() { q.cfg.Waits(w.rare.asking, w.n) })
}

// listen registers w, the head, at the bell of the limit that refused it, and reports
// whether that is new. It stays registered until its wait is over. If it ended when
// another limit refuses, two limits that refuse alternately would make it ask without
// end.
func (q *Queue) listen(w *Waiter) bool {
	r, by := w.rare, w.rare.by
	if by == nil || slices.ContainsFunc(r.bells, func(h hung) bool { return h.bell == by }) {
		return false
	}
	q.unlocked(w, func() {
		stop := (*by)(func() {
			q.Lock()
			defer q.Unlock()
			q.Kick()
		})
		r.bells = append(r.bells, hung{by, stop})
	})
	return true
}

// stopBells undoes listen. The queue must not be locked: a bell rings with a lock of its
// own, and takes the queue's.
func (r *rare) stopBells() {
	for _, h := range r.bells {
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
			q.handOn(w)
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
	turn := Turn{N: w.n, Due: min(r.since, r.due, now), Left: Forever, Patience: r.patience, Refused: r.refused}
	if r.refused > 0 {
		turn.First = q.epoch.Add(r.left)
	}
	if r.maxAt != Forever {
		turn.Left = max(0, r.maxAt-now)
	}
	r.since, r.due = Forever, turn.Due
	q.unlocked(w, func() { wait, err = r.ask(r.asking, turn) })
	wait.For = max(0, wait.For)
	return wait, err
}
