// Package inner has the lock.
package inner

import "sync"

// A Queue has a lock.
type Queue struct{ mu sync.Mutex }

// Lock locks.
func (q *Queue) Lock() { q.mu.Lock() }

// Unlock unlocks.
func (q *Queue) Unlock() { q.mu.Unlock() }
