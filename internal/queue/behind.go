package queue

import (
	"math"
	"sync/atomic"
	"time"

	"github.com/sluice-go/sluice/internal/sat"
)

// # What do those know who wait behind a head that asks?
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
// the head is another. It must not be too high, so whatever may let the head leave earlier (Kick,
// a change of the admitter, a head that leaves) forgets what was said and the head asks anew.
//
// If the instant moves, those that wait already may have become hopeless: in the queue itself,
// and in each queue below whose head waits here. A parent may have 10,000 of these. It looks at
// them only if one of their bounds, soonestBelow, is before that instant. Locks are taken from the
// root down.

// A Behind is what a queue has so that callers behind a head that asks know what the head knows.
type Behind struct {
	// Above is the queue in which the callers of this one ask, with Request.Below, or nil. It is
	// fixed, has a Behind, and there is no circle.
	Above *Queue

	// sure is the instant before which no caller leaves for sure; 0 if that is not known.
	sure atomic.Int64

	// soonestBelow: no bound in a queue below, whose head waits here, is earlier; those of entries
	// that have left may be. In instants of this queue. 0: no head of another has waited here.
	soonestBelow atomic.Int64
}

// worthTelling is how long a wait must be that those in the queues below are told of. Each call
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

// foresee notes that no caller leaves before at, as the head has found, nor before the admitter lets
// it. It does nothing if there is nobody to whom that is news.
func (q *Queue) foresee(now, at time.Duration) {
	b := q.cfg.Behind
	if b == nil || b.soonestBelow.Load() == 0 && (q.front == nil || !q.front.asks()) {
		q.forget()
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

// found returns what foresee has noted.
func (q *Queue) found() time.Duration {
	if q.cfg.Behind == nil {
		return 0
	}
	return time.Duration(q.cfg.Behind.sure.Load())
}

// forget drops what the head has found when it asked.
func (q *Queue) forget() {
	if q.cfg.Behind != nil {
		q.cfg.Behind.set(0)
	}
}

// set writes only what is new: callers of other queues read it.
func (b *Behind) set(sure time.Duration) {
	if b.sure.Load() != int64(sure) {
		b.sure.Store(int64(sure))
	}
}

// failBehind ends the waits behind the head, here and below, that have become hopeless because of
// what the head has found.
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
		if w.rare != nil && w.rare.below != nil {
			q.failIn(w.rare.below)
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
		b.endsBefore(b.surely()) // looks anew
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

func (b *Behind) noteBelow(bound time.Duration) {
	for {
		soonest := b.soonestBelow.Load()
		if soonest != 0 && soonest <= int64(bound) || b.soonestBelow.CompareAndSwap(soonest, int64(bound)) {
			return
		}
	}
}
