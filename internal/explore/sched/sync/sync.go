// Package sync is what package sync is to rewritten code.
package sync

import (
	"sync"

	"github.com/sluice-go/sluice/internal/explore/sched"
)

// A Mutex is a sync.Mutex.
type Mutex struct {
	object sched.Object
	held   bool
}

// Ready implements sched.Readier.
func (m *Mutex) Ready() bool { return !m.held }

// Lock locks m.
func (m *Mutex) Lock() {
	sched.Lock("lock", &m.object, m)
	m.held = true
}

// Unlock unlocks m.
func (m *Mutex) Unlock() {
	sched.Unlock("unlock", &m.object)
	m.held = false
}

// Map is a sync.Map: it is in no scene.
type Map = sync.Map

// OnceFunc is sync.OnceFunc: no scene calls one function from two goroutines.
func OnceFunc(f func()) func() { return sync.OnceFunc(f) }
