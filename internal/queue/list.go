package queue

import (
	"math"
	"math/bits"
)

// push adds w at the end.
func (q *Queue) push(w *Waiter) {
	w.prev = q.back
	if w.n > q.heaviest {
		q.heaviest = w.n
	}
	if q.back == nil {
		q.front = w
		q.busy.Store(true)
	} else {
		q.back.next = w
	}
	q.back = w
	q.length++
	if q.cfg.Untimed { // then these are not needed
		return
	}
	if w.hasFlow() {
		q.cfg.Behind.flows++
	}
	q.seq++
	w.seq = q.seq
	if q.bounds != nil || w.rare != nil || w.wake == nil {
		q.noteBound(w)
	}
	q.weight.add(q.cfg.Weigh(w.n))
	if q.driver == nil && w.wake != nil {
		q.driver = w
	}
}

// link adds w behind p.
func (q *Queue) link(p, w *Waiter) {
	if p == q.back {
		q.push(w)
		return
	}
	w.prev, w.next = p, p.next
	p.next, w.next.prev = w, w
	q.length++
	if w.hasFlow() {
		q.cfg.Behind.flows++
	}
	q.heaviest = max(q.heaviest, w.n)
	w.seq = p.seq // whose slot, if there is one, is the last before it
	if w.bounded() {
		q.list(w)
		w.early = true
		q.bounds.early++
	}
	if q.bounds != nil && q.bounds.index != nil {
		q.bounds.index.insert(w, q.cfg.Weigh(w.n))
	}
	q.weight.add(q.cfg.Weigh(w.n))
}

// remove takes w out of the list.
func (q *Queue) remove(w *Waiter) {
	q.length--
	if !q.cfg.Untimed {
		if w.hasFlow() {
			q.cfg.Behind.flows--
		}
		q.weight.sub(q.cfg.Weigh(w.n))
		if q.bounds != nil {
			q.forgetBound(w)
		}
		if w == q.driver {
			q.driver = w.next
			for q.driver != nil && q.driver.wake == nil {
				q.driver = q.driver.next
			}
			if d := q.driver; d != nil && d.until != awake {
				d.until = Forever // if it drove before, the clock rang for the one that leaves
			}
		}
	}
	if w.prev == nil {
		if b := q.cfg.Behind; b != nil {
			b.set(0) // the answer to the head
		}
		if q.front = w.next; q.front == nil && q.closed == nil {
			q.busy.Store(false)
		}
	} else {
		w.prev.next = w.next
	}
	if w.next == nil {
		q.back = w.prev
	} else {
		w.next.prev = w.prev
	}
	w.prev, w.next = nil, nil
}

// Each calls f with the costs of the entries in order until it returns
// false, with that of a crowd once. The queue must be locked.
func (q *Queue) Each(f func(n int64) bool) {
	for w := q.front; w != nil && f(w.n); w = w.next {
	}
}

// AheadOfLast returns the cost of all entries but the last. The queue must be locked, and timed.
func (q *Queue) AheadOfLast() int64 {
	if q.back == nil {
		return 0
	}
	ahead := q.weight
	ahead.sub(q.cfg.Weigh(q.back.n))
	return ahead.value()
}

// total is a sum of costs. 128 bits hold any number of int64s, so that taking out a value that was
// put in is exact however large the sum was in between.
type total struct{ hi, lo uint64 }

func (t *total) add(n int64) {
	var carry uint64
	t.lo, carry = bits.Add64(t.lo, uint64(n), 0)
	t.hi += carry
}

func (t *total) sub(n int64) {
	var borrow uint64
	t.lo, borrow = bits.Sub64(t.lo, uint64(n), 0)
	t.hi -= borrow
}

func (t *total) plus(o total) {
	var carry uint64
	t.lo, carry = bits.Add64(t.lo, o.lo, 0)
	t.hi += o.hi + carry
}

func (t *total) minus(o total) {
	var borrow uint64
	t.lo, borrow = bits.Sub64(t.lo, o.lo, 0)
	t.hi -= o.hi + borrow
}

// beyond returns by how much t is more than o, saturated; 0 if it is not.
func (t total) beyond(o total) int64 {
	if t.hi < o.hi || t.hi == o.hi && t.lo < o.lo {
		return 0
	}
	t.minus(o)
	return t.value()
}

// value returns the sum, saturated.
func (t total) value() int64 {
	if t.hi != 0 || t.lo > math.MaxInt64 {
		return math.MaxInt64
	}
	return int64(t.lo)
}
