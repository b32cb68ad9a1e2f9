package gather

import (
	"context"
	"time"
)

// A queue is all callers that wait no longer than until some time, the first to leave
// at its head. Most wait equally long, so that they start in the order in which they
// came, and one timer is enough for all.
type queue[O any] struct {
	head, tail *waiter[O]
	timer      *time.Timer // calls expire
	at         time.Time   // when it will; zero: it is not set
}

// enqueue has w start when it has waited for too long. The lock is held.
func (c *Gatherer[K, O]) enqueue(w *waiter[O]) {
	q := &c.queue
	ahead := q.tail
	for ahead != nil && ahead.until.After(w.until) {
		ahead = ahead.ahead
	}
	w.ahead = ahead
	if ahead == nil {
		w.behind, q.head = q.head, w
	} else {
		w.behind, ahead.behind = ahead.behind, w
	}
	if w.behind == nil {
		q.tail = w
	} else {
		w.behind.ahead = w
	}
	if q.head == w && (q.at.IsZero() || w.until.Before(q.at)) {
		c.wake(w.until)
	}
}

// dequeue removes w, if it is there. A timer that is too early by then costs less than
// one that is set again for each call. The lock is held.
func (c *Gatherer[K, O]) dequeue(w *waiter[O]) {
	if w.until.IsZero() {
		return
	}
	if w.ahead == nil {
		c.queue.head = w.behind
	} else {
		w.ahead.behind = w.behind
	}
	if w.behind == nil {
		c.queue.tail = w.ahead
	} else {
		w.behind.ahead = w.ahead
	}
	w.ahead, w.behind, w.until = nil, nil, time.Time{}
}

// wake has expire called at that time. The lock is held.
func (c *Gatherer[K, O]) wake(at time.Time) {
	q := &c.queue
	if q.at = at; q.timer == nil {
		q.timer = time.AfterFunc(time.Until(at), c.expire)
		return
	}
	q.timer.Reset(time.Until(at))
}

// expire sends away callers that have waited for too long.
func (c *Gatherer[K, O]) expire() {
	c.mu.Lock()
	defer c.mu.Unlock()
	q, now := &c.queue, time.Now()
	for q.head != nil && !q.head.until.After(now) {
		w := q.head
		w.err <- c.abandon(w, context.DeadlineExceeded)
	}
	if q.at = (time.Time{}); q.head != nil {
		c.wake(q.head.until)
	}
}
