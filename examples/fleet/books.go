package main

import (
	"bufio"
	"fmt"
	"io"
	"sync"
	"time"
)

// books are what the workers say about items, in lines such as "take 17" and "done 17".
// A worker that is killed has written everything that it said.
type books struct {
	began time.Time

	mu      sync.Mutex
	holder  map[int]int // the worker that has an item
	takes   int
	taken   map[int]bool // at least once
	done    map[int]bool
	victims []*killed
}

// killed is a worker that was killed.
type killed struct {
	worker int
	at     time.Duration
	held   map[int]bool  // the items that it had, and that no other took yet
	n      int           // how many it had
	last   time.Duration // when another worker took one of them
}

func newBooks(began time.Time) *books {
	return &books{began: began, holder: make(map[int]int), taken: make(map[int]bool), done: make(map[int]bool)}
}

// follow reads the lines of a worker to their end.
func (b *books) follow(worker int, log io.Reader) {
	lines := bufio.NewScanner(log)
	for lines.Scan() {
		var what string
		var id int
		if _, err := fmt.Sscan(lines.Text(), &what, &id); err != nil {
			continue // the last line of a worker that was killed may be cut off
		}
		b.note(worker, what, id, time.Since(b.began))
	}
	_, _ = io.Copy(io.Discard, log) // after a line that is too long
}

// note records a line.
func (b *books) note(worker int, what string, id int, now time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch what {
	case "take":
		b.takes++
		b.taken[id] = true
		b.holder[id] = worker
	case "done":
		b.done[id] = true
		delete(b.holder, id)
	}
	for _, v := range b.victims {
		if v.held[id] {
			delete(v.held, id)
			v.last = now
		}
	}
}

// kill records that a worker, all of whose lines were read, was killed. It returns the number of
// items the worker had.
func (b *books) kill(worker int, at time.Duration) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	v := &killed{worker: worker, at: at, held: b.items(worker)}
	v.n = len(v.held)
	b.victims = append(b.victims, v)
	return v.n
}

// held returns the number of items a worker has.
func (b *books) held(worker int) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.items(worker))
}

// items returns the items that a worker has. The lock is held.
func (b *books) items(worker int) map[int]bool {
	has := make(map[int]bool)
	for id, w := range b.holder {
		if w == worker && !b.done[id] {
			has[id] = true
		}
	}
	return has
}

// redelivered returns the number of times an item was taken that had been taken before.
func (b *books) redelivered() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.takes - len(b.taken)
}
