package queue

import (
	"container/heap"
	"sync"
	"time"
)

// A clock wakes the queues of the process that need no exact wake-up, with one timer.
//
// Each driver could have its own timer, as it has where exact wake-ups matter. But
// to wake a goroutine so that it admits itself costs twice as much as to admit it:
// a timer, a select, and the lock once more. And when a driver has left, the next one
// must wake to set its timer. With 50 pacers of 1,000/s and one caller each that is a
// third of the processor time.
//
// So a queue asks the clock to ring at an instant, at most one for each queue. The clock
// keeps the queues in a heap. Its timer calls ring in a goroutine that ends when the queues
// that are due have let their callers start, so none is left when no caller waits.
//
// A timer that starts a goroutine wakes another thread of an idle program for it, which is
// more than a few queues save. So the clock serves only if many ask.
//
// The lock of the clock is taken with that of a queue held, never the other way round.
type clock struct {
	began time.Time // its instant 0

	mu      sync.Mutex
	queues  ringing     // those that are to be rung, the next first
	timer   *time.Timer // or nil
	ringing bool        // ring is running, and will set the timer

	least         int           // serve if more have asked within a while, or the while before
	since         time.Duration // the beginning of this while
	asked, before int
}

// while is twice the shortest time for which a queue sleeps that does so all the time.
const while = 2 * time.Millisecond

// theClock is the clock of all queues but in tests. It is not in a testing/synctest bubble.
var theClock = clock{began: time.Now(), least: 5}

// ringAt makes the clock ring q, which is locked, no later than at, or reports false if too
// few queues ask.
func (c *clock) ringAt(q *Queue, now, at time.Duration) bool {
	behind := q.epoch.Sub(c.began)
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.serves(now + behind) {
		return false
	}
	switch at += behind; {
	case q.place == 0:
		q.rings = at
		heap.Push(&c.queues, q)
	case at < q.rings:
		q.rings = at
		heap.Fix(&c.queues, int(q.place)-1)
	default:
		return true
	}
	if q.place == 1 && !c.ringing {
		c.set()
	}
	return true
}

// serves counts one that asks, and reports whether they are enough.
func (c *clock) serves(now time.Duration) bool {
	if past := now - c.since; past > while {
		if c.before = c.asked; past > 2*while {
			c.before = 0
		}
		c.since, c.asked = now, 0
	}
	c.asked++
	return max(c.asked, c.before) > c.least
}

// set sets the timer for the first queue.
func (c *clock) set() {
	d := c.queues[0].rings - time.Since(c.began)
	if c.timer == nil {
		c.timer = time.AfterFunc(d, c.ring)
	} else {
		c.timer.Reset(d)
	}
}

// ring rings the queues that are due.
func (c *clock) ring() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ringing { // set again before it was locked
		return
	}
	c.ringing = true
	for now := time.Since(c.began); len(c.queues) > 0 && c.queues[0].rings <= now; {
		q := heap.Pop(&c.queues).(*Queue)
		c.mu.Unlock()
		q.ring()
		c.mu.Lock()
	}
	if c.ringing = false; len(c.queues) > 0 {
		c.set()
	}
}

// ring lets all start whose turn it is.
func (q *Queue) ring() {
	q.Lock()
	defer q.Unlock()
	if d := q.driver; d != nil && d.until != awake && !d.asks() {
		d.until = Forever // no wake-up is on its way to it
	}
	now := q.Now()
	q.Advance(now)
	q.noteEmptied(now)
}

// ringing is a heap of queues.
type ringing []*Queue

func (r ringing) Len() int           { return len(r) }
func (r ringing) Less(i, j int) bool { return r[i].rings < r[j].rings }

func (r ringing) Swap(i, j int) {
	r[i], r[j] = r[j], r[i]
	r[i].place, r[j].place = int32(i+1), int32(j+1)
}

// Push implements heap.Interface.
func (r *ringing) Push(q any) {
	*r = append(*r, q.(*Queue))
	(*r)[len(*r)-1].place = int32(len(*r))
}

// Pop implements heap.Interface.
func (r *ringing) Pop() any {
	last := len(*r) - 1
	q := (*r)[last]
	(*r)[last], *r = nil, (*r)[:last]
	q.place = 0
	return q
}
