package sluiceredis

import (
	"sync"
	"sync/atomic"
	"time"
)

// An Event is a change of the mode of a server, or of the number of live instances.
type Event struct {
	At     time.Time
	Mode   Mode   // from now on
	Server string // of several; "" if there is one, or the client is not a [Topology] that tells
	Cause  error  // why it is away; else nil

	// Instances is their number, if that is what has changed; else 0.
	Instances int
}

// events are reported in order, by a goroutine that holds no lock and on which no call
// waits: so the function that is called may use the store.
type events struct {
	tell func(Event) // or nil

	pending atomic.Int64 // len(waiting)
	mu      sync.Mutex
	waiting []Event
	telling bool
}

// add has e told by the next flush.
func (q *events) add(e Event) {
	if q.tell == nil {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.waiting = append(q.waiting, e)
	q.pending.Add(1)
}

// flush has what waits told, by a goroutine of its own unless there is one. The
// caller's own could not: others of his key wait for him, and if the function that is
// told asks for that key it would wait for itself.
func (q *events) flush() {
	if q.pending.Load() == 0 {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.telling && len(q.waiting) > 0 {
		q.telling = true
		go q.tellAll()
	}
}

// tellAll tells what waits.
func (q *events) tellAll() {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.waiting) > 0 {
		e := q.waiting[0]
		q.waiting = q.waiting[1:]
		q.pending.Add(-1)
		q.mu.Unlock()
		q.tell(e)
		q.mu.Lock()
	}
	q.telling = false
}
