package sluice

import (
	"bytes"
	"errors"
	"fmt"
	"runtime"
	"strconv"
	"sync"
)

// # A newGate that uses its own Keyed
//
// newGate is called without the lock, and may use the Keyed: "the gate of a.example.com
// has that of example.com as its parent". Callers of a key whose gate is being made wait
// for it. So a newGate that uses its own key would wait for itself, and two that use each
// other's key for one another. Before a caller waits, it therefore checks whether the
// goroutine that makes the gate waits, directly or through others, for a gate that this
// goroutine makes. Go identifies goroutines only by the number in a stack trace, which
// takes some microseconds, once for each gate.

// errAbandoned is the result of a newGate that panicked or ended its goroutine. Callers
// that wait for it call newGate themselves.
var errAbandoned = errors.New("sluice: newGate did not return")

// A making is one call of newGate.
type making struct {
	by   uint64 // goroutine
	era  uint64 // number of it
	done chan struct{}
	err  error // when done
}

func newMaking(era uint64) *making {
	return &making{by: goroutine(), era: era, done: make(chan struct{})}
}

// makers has the making that each waiting goroutine waits for, in any Keyed.
var makers struct {
	mu    sync.Mutex
	await map[uint64]*making
}

// wait waits until m is done and returns its error. If m waits for the caller, it returns
// an error at once.
func (m *making) wait(key any) error {
	me := goroutine()
	makers.mu.Lock()
	// A goroutine that waited for a making that is over may not have run since then, and
	// still be in await.
	for next := m; next != nil && !next.over(); next = makers.await[next.by] {
		if next.by == me {
			makers.mu.Unlock()
			return fmt.Errorf("sluice: the gate of key %v is needed to make itself: newGate must not use its own key", key)
		}
	}
	if makers.await == nil {
		makers.await = make(map[uint64]*making)
	}
	makers.await[me] = m
	makers.mu.Unlock()
	<-m.done
	makers.mu.Lock()
	delete(makers.await, me)
	makers.mu.Unlock()
	return m.err
}

func (m *making) over() bool {
	select {
	case <-m.done:
		return true
	default:
		return false
	}
}

// goroutine returns the number of the present goroutine.
func goroutine() uint64 {
	var buf [64]byte
	text := buf[:runtime.Stack(buf[:], false)] // "goroutine 123 [running]:…"
	text = bytes.TrimPrefix(text, []byte("goroutine "))
	if i := bytes.IndexByte(text, ' '); i >= 0 {
		text = text[:i]
	}
	n, _ := strconv.ParseUint(string(text), 10, 64)
	return n
}
