package outage

import (
	"sync"
	"sync/atomic"
)

// An event is the begin of an outage, or its end: then err is nil.
type event struct {
	server string
	err    error
}

// events are reported in order, by a goroutine that holds no lock and on which no call
// waits: so the function that is called may use the store.
type events struct {
	notify func(server string, err error) // or nil

	pending   atomic.Int64 // len(waiting)
	mu        sync.Mutex
	waiting   []event
	reporting bool
}

// add has e reported by the next flush.
func (q *events) add(e event) {
	if q.notify == nil {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.waiting = append(q.waiting, e)
	q.pending.Add(1)
}

// flush reports waiting events, in its own goroutine unless there is one. The caller's
// own would not do: other callers of its key wait for it, and if notify asks for that key
// it would wait for itself.
func (q *events) flush() {
	if q.pending.Load() == 0 {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.reporting && len(q.waiting) > 0 {
		q.reporting = true
		go q.report()
	}
}

// report reports waiting events.
func (q *events) report() {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.waiting) > 0 {
		e := q.waiting[0]
		q.waiting = q.waiting[1:]
		q.pending.Add(-1)
		q.mu.Unlock()
		q.notify(e.server, e.err)
		q.mu.Lock()
	}
	q.reporting = false
}
