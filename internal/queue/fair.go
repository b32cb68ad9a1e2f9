package queue

// # In which order do the heads of several queues start that wait in one above?
//
// In the order in which they came, a queue with one call an hour waits as long as one with a million, and
// all get the same number of calls. By start-time fair queueing (Goyal, Vin and Cheng, SIGCOMM 1996) they
// get shares of the limit by their weights, and one that has not used its share goes first:
//
//	tag      of a head, when it comes: the virtual time, or the finish of the call of its flow before,
//	         if that is later
//	finish   of a call that starts: its tag + its cost ÷ the weight of its flow
//	         the least tag is first; of equal ones the one that came first
//	time     the virtual time is the tag of the call that started last
//
//	weights        a: 2   b: 1
//	finish         a  ½  1  1½  2        starts     a b a a b a a b …
//	               b     1      2
//
// A flow that was idle begins at the virtual time: it saves nothing up, and owes nothing. One whose
// head gives up pays nothing. No flow waits for longer than the largest call of each other flow
// takes, and the calls that heavier ones may start until then: none starves, whatever the weights.
//
// Only heads are here, at most one of each flow, so the list of the queue itself is in the order of the
// tags, and all forecasts hold: a caller may be overtaken, which makes its wait longer. Two stay where they
// are: a head that is asking its limits at this moment, until it has the answer, and a caller of the queue
// itself, without a flow, which is overtaken by nobody that comes later.
//
// A head that waits in a queue further above is asking all that time, which may be its whole wait, and the next
// call of the flow that was served last comes just after it has begun. So when its turn above has come it looks
// whether it has been passed (Passed), and leaves that queue for one that goes before it:
//
//	host       ◁─ batch's head: b      b's turn: a has come, and goes first: b leaves, and a asks, with the tag
//	            ▲ asks                 that b had here (Keep)
//	batch      b ◁─ a ◁─ …

// mostPassed is the number of entries at each end of the queue that one looks at for its place. With
// more flows than that a light one may come later than by its tag.
const mostPassed = 1000

// tagOf returns the tag of a call of f that comes now.
func (q *Queue) tagOf(f *Flow) float64 {
	if f.kept {
		return f.tag
	}
	return max(q.cfg.Behind.virtual, f.finish)
}

// Keep makes the next head of f go where the last one, which made room for it, has been.
func (q *Queue) Keep(f *Flow) {
	q.Lock()
	f.kept = true
	q.Unlock()
}

// cost returns the amount that a call of n takes of the share of f.
func (q *Queue) cost(f *Flow, n int64) float64 {
	if count := q.cfg.Behind.Count; count != nil {
		n = count(n)
	}
	return float64(n) / float64(max(1, f.Weight))
}

// served charges the flow of w, which starts.
func (q *Queue) served(w *Waiter) {
	if !w.hasFlow() {
		return
	}
	f, b := w.rare.flow, q.cfg.Behind
	b.virtual = max(b.virtual, f.tag)
	f.finish = max(f.finish, f.tag) + q.cost(f, w.n)
}

// Correct charges f with delta more, or less, than its call had when it started.
func (q *Queue) Correct(f *Flow, delta int64) {
	q.Lock()
	f.finish += q.cost(f, delta)
	q.Unlock()
}

// yieldsTo reports whether one with that tag goes before w.
func (w *Waiter) yieldsTo(tag float64) bool {
	return w.hasFlow() && !w.rare.inAsk && w.rare.flow.tag > tag
}

// placeOf returns the entry behind which one with that tag goes, nil if it is the first, and the cost ahead
// of it.
func (q *Queue) placeOf(tag float64) (w *Waiter, ahead int64) {
	back, upTo := q.back, q.weight
	var front *Waiter
	var sum total
	mixed := q.cfg.Behind.flows < q.length // then not all are in the order of tags
	for range mostPassed {
		if back == nil || !back.yieldsTo(tag) {
			break
		}
		upTo.sub(q.cfg.Weigh(back.n))
		back = back.prev
		if mixed {
			continue
		}
		next := q.front
		if front != nil {
			next = front.next
		}
		if next.yieldsTo(tag) {
			return front, sum.value()
		}
		sum.add(q.cfg.Weigh(next.n))
		front = next
	}
	return back, upTo.value()
}

// overtake puts w, which has a flow, in front of the head, which yields to it.
func (q *Queue) overtake(w *Waiter) {
	head := q.front
	q.link(head, w)
	q.yield(head)
}

// yield puts w, the head, behind those whose tags are less. It will ask when it is the head again.
func (q *Queue) yield(w *Waiter) {
	r := w.rare
	q.remove(w)
	r.first, r.since, r.due, r.paced = false, 0, Forever, false
	w.until = Forever
	place := q.front
	for place.next.hasFlow() && place.next.rare.flow.tag < r.flow.tag {
		place = place.next
	}
	q.link(place, w)
}

// passed reports whether one waits that goes before w, the head, or nil.
func (q *Queue) passed(w *Waiter) bool {
	return w.hasFlow() && w.next.hasFlow() && w.next.rare.flow.tag < w.rare.flow.tag
}

// yields puts w, the head, which has asked in vain, behind those that came meanwhile and go before it.
func (q *Queue) yields(w *Waiter) bool {
	if w != q.front || !q.passed(w) {
		return false
	}
	q.yield(w)
	return true
}

// Passed reports whether one waits that goes before the head, which is asking.
func (q *Queue) Passed() bool {
	q.Lock()
	defer q.Unlock()
	return q.passed(q.front)
}
