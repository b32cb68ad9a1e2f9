package queue

import "time"

// maxSpare bounds how many waiters are kept for later.
const maxSpare = 256

// attended returns an entry for n with a goroutine, whose context has the
// channel done. The entry and its channel were used before if possible; in a
// testing/synctest bubble, to which channels belong, they never are.
func (q *Queue) attended(now time.Duration, n int64, done <-chan struct{}) *Waiter {
	if !q.cfg.Untimed {
		q.outside = q.fine && now >= 0 // before the queue was made: in a bubble it is the year 2000
	} else if q.front == nil {
		// To read the clock for each would be a tenth of what it costs to wait.
		// A bubble and a caller outside of it do not wait for one another.
		q.outside = q.fine && q.Now() >= 0
	}
	w := q.spares.front
	if w != nil && q.outside && len(w.wake) == 0 {
		q.spares.remove()
		q.idle--
	} else {
		w = &Waiter{shared: q.fine && q.Now() >= 0}
	}
	w.attend(done)
	w.n, w.came = n, now
	return w
}

// recycle takes back w, which was granted or was never in the queue. Its goroutine
// may not have got the message yet: w can be used again when that is out of the
// channel. Those that failed are few, and left to the collector.
func (q *Queue) recycle(w *Waiter) {
	if w.shared && q.idle < maxSpare {
		w.done, w.rare, w.state = nil, nil, waiting
		q.spares.add(w)
		q.idle++
	}
}

// putBack is recycle for an entry whose own goroutine calls it.
func (q *Queue) putBack(w *Waiter) {
	heard(w.wake) // it may have been nudged
	q.recycle(w)
}

// spares are entries to be used again. The first that was added is the first to
// be used: it is the likeliest to have its message out.
type spares struct {
	front, back *Waiter
}

func (s *spares) add(w *Waiter) {
	if s.front == nil {
		s.front = w
	} else {
		s.back.next = w
	}
	s.back = w
}

// remove removes the first.
func (s *spares) remove() {
	w := s.front
	s.front, w.next = w.next, nil
}

// bubbled reports whether this is a testing/synctest bubble: times have no
// monotonic reading there.
func bubbled() bool {
	t := time.Now()
	return t == t.Round(0)
}
