package queue

import "time"

// A bounds knows the entries whose wait is bounded: by the deadline of a context, by a
// longest wait or by a patience. Reservations are listed from the beginning, because a
// caller with a deadline may attend them later. All others cost nothing here.
type bounds struct {
	n       int           // how many are listed
	early   int           // of these, how many have no slot, see again.go
	soonest time.Duration // no bound is earlier; those of entries that have left may be
	index   *index        // nil while the queue is short
}

// indexFrom is the length from which on a queue is worth an index: a shorter one is walked through.
const indexFrom = fan

// noteBound lists w, which has just joined the queue, if its wait is bounded or may be. The weight
// of the queue is the weight of the entries ahead of w.
func (q *Queue) noteBound(w *Waiter) {
	if w.bounded() {
		q.list(w)
	}
	switch b := q.bounds; {
	case b == nil || b.n == b.early: // an index would have no slot
	case b.index != nil && w.listed:
		b.index.trim(q.front)
		b.index.compact(b.n, q.unitTime())
		b.index.add(w, q.weight, q.unitTime())
	case b.index != nil || q.length < indexFrom:
	case b.n == 1 && w.listed:
		b.index = new(index)
		b.index.add(w, q.weight, q.unitTime())
	default: // the queue is long only now
		b.index = new(index)
		var ahead total
		for w := q.front; w != nil; w = w.next {
			if w.listed && !w.early {
				b.index.add(w, ahead, q.unitTime())
			}
			ahead.add(q.cfg.Weigh(w.n))
		}
	}
}

// list lists w.
func (q *Queue) list(w *Waiter) {
	if q.bounds == nil {
		q.bounds = &bounds{soonest: Forever}
	}
	w.listed = true
	q.bounds.n++
	q.bounds.soonest = min(q.bounds.soonest, w.bound())
}

// unitTime returns the UnitTime of the admitter, or 0.
func (q *Queue) unitTime() float64 {
	if r, ok := q.admitter.(HasUnitTime); ok {
		return r.UnitTime()
	}
	return 0
}

// boundLater notes the bound of w, a reservation that a caller now attends.
func (q *Queue) boundLater(w *Waiter) {
	b := q.bounds
	b.soonest = min(b.soonest, w.bound())
	if b.index != nil {
		b.index.setBound(w)
	}
}

// forgetBound is called for each entry that leaves the queue, before it does.
func (q *Queue) forgetBound(w *Waiter) {
	b := q.bounds
	if b.index != nil {
		b.index.remove(w, q.cfg.Weigh(w.n))
	}
	if !w.listed {
		return
	}
	w.listed = false
	if w.early {
		w.early = false
		b.early--
	}
	if b.n--; b.n > 0 {
		return
	}
	b.soonest = Forever
	if b.index != nil && q.length >= indexFrom {
		b.index.reset() // for the next one
	} else {
		b.index = nil
	}
}

// endsBefore reports whether the wait of an entry must end before t.
func (q *Queue) endsBefore(t time.Duration) bool {
	b := q.bounds
	if b == nil || b.soonest >= t {
		return false
	}
	if b.index != nil {
		b.soonest = min(b.index.soonest(t), q.soonestEarly())
		return b.soonest < t
	}
	b.soonest = Forever // look for one that has not left
	for w := q.front; w != nil; w = w.next {
		b.soonest = min(b.soonest, w.bound())
	}
	return b.soonest < t
}

// failHopeless ends each wait that cannot end in time any more.
func (q *Queue) failHopeless(now time.Duration) {
	switch b := q.bounds; {
	case b == nil || b.n == 0:
	case b.index != nil:
		if q.failEarly(now); b.n == 0 {
			return
		}
		b.index.trim(q.front)
		p := pass{q: q, index: b.index, now: now, sure: q.surely(), unitTime: q.unitTime()}
		for i := 0; i < len(p.index.nodes[levels-1]) && p.node(levels-1, i); i++ {
		}
	default:
		var ahead total
		for w := q.front; w != nil; {
			next := w.next
			if err := q.hopeless(now, w, ahead.value()); err != nil {
				q.fail(w, err)
			} else {
				ahead.add(q.cfg.Weigh(w.n))
			}
			w = next
		}
	}
}

// failEarly ends the hopeless waits of those that have no slot.
func (q *Queue) failEarly(now time.Duration) {
	var ahead total
	for w, left := q.front, q.bounds.early; left > 0; {
		next := w.next
		if w.early {
			left--
			if err := q.hopeless(now, w, ahead.value()); err != nil {
				q.fail(w, err)
				w = next
				continue
			}
		}
		ahead.add(q.cfg.Weigh(w.n))
		w = next
	}
}

// soonestEarly returns the earliest bound of those that have no slot.
func (q *Queue) soonestEarly() (soonest time.Duration) {
	soonest = Forever
	for w, left := q.front, q.bounds.early; left > 0; w = w.next {
		if w.early {
			left--
			soonest = min(soonest, w.bound())
		}
	}
	return soonest
}
