package main

import "time"

// A clock gives the time since the world began and runs functions later. The event
// loop below is one; inside a testing/synctest bubble time.AfterFunc can be another,
// so that the same upstream serves goroutines and a real gate.
type clock interface {
	now() time.Duration
	at(t time.Duration, f func())
}

const never = time.Duration(1<<63 - 1)

// seconds converts a number of seconds, as worlds have them.
func seconds(s float64) time.Duration {
	if s >= never.Seconds() {
		return never
	}
	return time.Duration(s * float64(time.Second))
}

// A loop is virtual time: a queue of functions, each of which runs at its instant.
// Functions of the same instant run in the order in which they were added, so a run
// is exactly repeatable.
type loop struct {
	time   time.Duration
	number uint64
	heap   []event
}

type event struct {
	at     time.Duration
	number uint64
	f      func()
}

func (e *event) before(o *event) bool {
	return e.at < o.at || e.at == o.at && e.number < o.number
}

func (l *loop) now() time.Duration { return l.time }

func (l *loop) at(t time.Duration, f func()) {
	l.number++
	l.heap = append(l.heap, event{max(t, l.time), l.number, f})
	for i := len(l.heap) - 1; i > 0; {
		parent := (i - 1) / 2
		if !l.heap[i].before(&l.heap[parent]) {
			break
		}
		l.heap[i], l.heap[parent] = l.heap[parent], l.heap[i]
		i = parent
	}
}

// run runs what is due up to the end, or until done reports true.
func (l *loop) run(end time.Duration, done func() bool) {
	for len(l.heap) > 0 && l.heap[0].at <= end && !done() {
		e := l.pop()
		l.time = e.at
		e.f()
	}
	if !done() {
		l.time = end
	}
}

func (l *loop) pop() event {
	first, last := l.heap[0], len(l.heap)-1
	l.heap[0], l.heap[last] = l.heap[last], event{}
	l.heap = l.heap[:last]
	for i := 0; ; {
		child := 2*i + 1
		if child >= last {
			return first
		}
		if child+1 < last && l.heap[child+1].before(&l.heap[child]) {
			child++
		}
		if !l.heap[child].before(&l.heap[i]) {
			return first
		}
		l.heap[i], l.heap[child] = l.heap[child], l.heap[i]
		i = child
	}
}
