package queue

import (
	"math"
	"slices"
	"time"

	"github.com/sluice-go/sluice/internal/sat"
	"github.com/sluice-go/sluice/limits"
)

// A step is the next action after a caller has asked.
type step int

const (
	sleepOn   step = iota // until it is worth asking again
	lookAgain             // immediately
	over                  // the wait has ended
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
		return lookAgain, nil // for units that came back before the bell knew of w
	}
	q.announceHead(w) // a message that comes before stays in its channel
	return sleepOn, nil
}

// askFor asks on behalf of w, the head. ended reports that w's wait has ended
// with err; otherwise w is settled, or w sleeps until it is to ask again.
func (q *Queue) askFor(w *Waiter) (ended bool, err error) {
	wait, err := q.ask(w)
	now := q.Now()
	switch {
	case err == nil && wait.For == 0:
		q.served(w)
		w.rare.grant = Grant{now, wait.Receipt}
		// It may have been failed while it asked. It keeps the units it was given all the same:
		// decided once, in favor of the admission.
		if !w.settled() {
			q.setDue(min(w.rare.due, now)) // of the next, which is as late as this one
		}
	case w.settled():
		return false, nil
	case err == nil:
		again := sat.Add(now, wait.For)
		w.until = again
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
			if q.yields(w) {
				q.Advance(now)
			}
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

// listen registers w, the head, at the bell of the limit that rejected it, and reports
// whether that is new. It stays registered until its wait has ended. If it ended when
// another limit rejects, two limits that reject alternately would make it ask without
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

// stopBells undoes listen. The queue must not be locked: a bell rings with its own lock, and takes
// the queue's.
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
	turn := Turn{N: w.n, Due: min(r.since, r.due, now), Left: Forever, Patience: r.patience, Refused: int(r.refused)}
	if r.refused > 0 {
		turn.First = q.epoch.Add(r.left)
	}
	if r.maxAt != Forever {
		turn.Left = max(0, r.maxAt-now)
	}
	r.since, r.due, r.inAsk = Forever, turn.Due, true
	q.unlocked(w, func() { wait, err = r.ask(r.asking, turn) })
	r.inAsk = false
	wait.For = max(0, wait.For)
	return wait, err
}

// # How much do callers know behind a head that asks?
//
// The admitter forecasts the wait for each entry. A limit that must be asked tells it only to the
// head: a quota that is used up for an hour, a parent that is paused. Nobody overtakes the head,
// so that is also the least for all behind it, and a caller with a deadline of a minute must not
// wait for it in vain:
//
//	parent   paused for 1 h                    sure: in 1 h
//	           ▲ waits there
//	gate     head ◁── deadline 1 min ◁── none
//	                  fails now
//
// So each queue has the instant before which its head does not leave for sure, in an atomic word
// that the queues below it read. It is a lower bound and may be too low: nobody has asked yet, or
// the head is another. It must not be too high, so whatever may let the head start earlier (Kick,
// a change of the admitter, a head that leaves) forgets the answer and the head asks again.
//
// If the instant moves, those that wait already may have become hopeless: in the queue itself,
// and in each queue below whose head waits here. A parent may have 10,000 of these. It looks at
// them only if one of their bounds, soonestBelow, is before that instant. Locks are taken from the
// root down.

// worthTelling is the length of a wait from which on those in the queues below are told of. Each call
// that leaves a parent makes the next wait for its slot, and to look at the queues of 10,000
// children takes half a millisecond.
const worthTelling = 100 * time.Millisecond

// surely returns the instant before which no caller behind the head of q leaves, as far as that
// was asked, here or above. It is 0 if that is not known.
func (q *Queue) surely() (at time.Duration) {
	b := q.cfg.Behind
	if b == nil || q.front == nil {
		return 0
	}
	if !isDone(q.front.done) { // otherwise it is about to leave the queue
		at = time.Duration(b.sure.Load())
	}
	for up := b.Above; up != nil; up = up.cfg.Behind.Above {
		if sure := time.Duration(up.cfg.Behind.sure.Load()); sure > 0 {
			at = max(at, sat.Add(sure, up.epoch.Sub(q.epoch)))
		}
	}
	return at
}

// foresee notes that no caller starts before at, as the head has found, nor before the admitter lets
// it. It does nothing if there is nobody to whom that is news.
func (q *Queue) foresee(now, at time.Duration) {
	b := q.cfg.Behind
	if b == nil {
		return
	}
	if b.soonestBelow.Load() == 0 && (q.front == nil || !q.front.asks()) {
		b.set(0)
		return
	}
	if ruled := q.admitter.Forecast(now, 0); ruled > 0 {
		at = max(at, sat.Add(now, ruled))
	}
	if at <= now {
		at = 0
	}
	b.set(at)
}

// found returns the note of foresee.
func (q *Queue) found() time.Duration {
	if q.cfg.Behind == nil {
		return 0
	}
	return time.Duration(q.cfg.Behind.sure.Load())
}

// failBehind ends the waits behind the head, here and below, that have become hopeless because of
// the answer to the head.
func (q *Queue) failBehind(now time.Duration) {
	if q.cfg.Behind == nil {
		return
	}
	at := q.surely()
	if q.endsBefore(at) {
		q.failHopeless(now)
		q.Advance(now) // the head may be another
	}
	q.failBelow(now, at)
}

// failBelow ends the hopeless waits in the queues below, if no caller of q leaves before at.
func (q *Queue) failBelow(now, at time.Duration) {
	b := q.cfg.Behind
	if b == nil || sat.Sub(at, now) < worthTelling {
		return
	}
	if soonest := b.soonestBelow.Load(); soonest == 0 || soonest >= int64(at) {
		return
	}
	b.soonestBelow.Store(math.MaxInt64)
	for w := q.front; w != nil; w = w.next {
		if w.hasFlow() {
			q.failIn(w.rare.flow.Below)
		}
	}
}

// failIn ends the hopeless waits in b, a queue below q, and notes the soonest bound of the others.
func (q *Queue) failIn(b *Queue) {
	b.Lock()
	defer b.Unlock()
	if b.bounds == nil && b.cfg.Behind.soonestBelow.Load() == 0 {
		return
	}
	b.failBehind(b.Now())
	soonest := time.Duration(Forever)
	if b.bounds != nil {
		b.endsBefore(b.surely()) // looks again
		soonest = b.bounds.soonest
	}
	if below := time.Duration(b.cfg.Behind.soonestBelow.Load()); below != 0 {
		soonest = min(soonest, below)
	}
	if soonest != Forever {
		q.cfg.Behind.noteBelow(sat.Add(soonest, b.epoch.Sub(q.epoch)))
	}
}

// noteAbove tells the queues above q of the bound of w, a caller that is about to wait in q, and
// reports whether there are any.
func (q *Queue) noteAbove(w *Waiter) bool {
	bound := w.bound()
	if bound == Forever || q.cfg.Behind == nil || q.cfg.Behind.Above == nil {
		return false
	}
	for up := q.cfg.Behind.Above; up != nil; up = up.cfg.Behind.Above {
		up.cfg.Behind.noteBelow(sat.Add(bound, q.epoch.Sub(up.epoch)))
	}
	return true
}
