package queue

import "time"

// # Where does a call go that the server has throttled?
//
// Behind all others, it waits for as long as it did before, and if it has a deadline that is too
// long: it fails because of a rejection that concerned all. At the head, a call that is rejected
// again and again is all that the server ever sees. So after its k-th rejection it goes behind the
// first k in line, which are one more each time, and there among those rejected in the order in
// which they came first:
//
//	in line     first     a b c d          1 and 2 have left, and are refused
//	2 is back   a 2 b c d
//	1 is back   a 1 2 b c d                the head stays the head: it may be asking its limits
//	            1 2 b c d                  a leaves, then 1, which is refused again
//	1 is back   2 b 1 c d                  behind two now
//
// Five calls that are rejected again and again are all that the server sees, too, if the others came
// later. A server that is asked by one call at a time then seems to reject everybody: a batch that
// began with five bad addresses lost the 200 good ones. So from its second rejection on, 2(k − 1) calls
// that were not rejected before, up to 8, go behind the head before those that were. (With k − 1, five
// bad addresses after 30 good ones held up the others for 80 s in the median of 100 runs, and now 31. With 8 at once, a call at a
// window that others use lost all its attempts.)
//
//	3 is back   2 1 a b c                  for the second time: a has not been rejected yet
//	            2 a b 1 3 c
//
// Those behind it wait for its slot as well, as if it had never left. That may be too long for
// them, so it is a change of the queue.
//
// To find its place, and to look at those without a slot after a change, takes the longer the more
// of them there are: 10,000 took 3 s. So only mostAgain keep a place, and further ones go behind all.
// A server that rejects so many rejects everybody.
//
// Such an entry has no slot in the index, whose slots are in order. Its cost is in the gap of the
// slot behind it, as that of any entry without a bound, and its bound is looked at on its own: it
// is near the front.

// mostAgain is the number of throttled calls, and about the number of those in line, that one looks
// at for a place.
const mostAgain = 1000

// mostOthers is the number of calls that one lets go before those that were rejected, at most.
const mostOthers = 8

// behindWhom returns the entry behind which a caller of r, which was rejected, goes, and the cost
// ahead of it.
func (q *Queue) behindWhom(r *Request) (w *Waiter, ahead int64) {
	w = q.front
	if w == nil || q.bounds != nil && q.bounds.early >= mostAgain {
		return q.back, q.weight.value()
	}
	var sum total
	sum.add(q.cfg.Weigh(w.n))
	first := r.First.Sub(q.epoch)
	for k := 1; w.next != nil && (k < r.Refused || w.next.refusedBefore(first)); k++ {
		if k == mostAgain {
			return q.back, q.weight.value()
		}
		w = w.next
		sum.add(q.cfg.Weigh(w.n))
	}
	return w, sum.value()
}

// letOthersAsk puts the first n calls that were not rejected before behind the head, if the head was.
func (q *Queue) letOthersAsk(now time.Duration, n int) {
	place := q.front
	if place == nil || !place.again() || place.hasFlow() {
		return
	}
	moved := false
	next := place.next
	for range mostAgain {
		w := next
		if w == nil || w.hasFlow() || n == 0 {
			break
		}
		if next = w.next; w.again() || w.wake == nil { // a reservation has its time
			continue
		}
		if w.prev != place {
			q.remove(w)
			q.link(place, w)
			moved = true
		}
		place = w
		n--
	}
	if moved {
		q.failHopeless(now)
	}
}

// HasNew reports whether a caller waits whose call was not rejected before. It looks at mostOthers, of which more
// are few rejected ones. The queue must be locked.
func (q *Queue) HasNew() bool {
	w := q.front
	for range mostOthers {
		if w == nil || !w.again() {
			return w != nil
		}
		w = w.next
	}
	return true
}

// again reports whether w was rejected before.
func (w *Waiter) again() bool { return w.rare != nil && w.rare.refused > 0 }

// refusedBefore reports whether w was rejected, and left no later than at first.
func (w *Waiter) refusedBefore(first time.Duration) bool {
	return w.again() && w.rare.left <= first
}

// pushBehind adds w behind p, which is not the last one, and ends the waits that become hopeless
// by that.
func (q *Queue) pushBehind(now time.Duration, p, w *Waiter) {
	q.link(p, w)
	q.failHopeless(now)
}
