// Package bell wakes the callers that wait for a limit of this process when it may allow
// them earlier than it said.
package bell

import (
	"container/list"
	"context"
	"sync"
	"sync/atomic"
)

// # Why is a caller registered at a limit, and only while it waits?
//
// A limit that only answers returns the time to wait, and the caller sleeps for that
// long. Units that are returned in the meantime would reach it only then. The simplest remedy
// registers at the limit each gate that has it: a limit that is shared then keeps
// the gates of all hosts that were ever seen in memory, and each correction visits
// all of them. So only the first caller of a gate that sleeps because of this limit is
// registered, and for only as long.
//
// # Why do units that a rejected call returns ring no bell?
//
// Two gates use two limits in opposite order, and each call finds the second one full:
//
//	gate 1  takes a, is refused by b, gives a back ──► gate 2 wakes
//	gate 2  takes b, is refused by a, gives b back ──► gate 1 wakes, for ever
//
// Such units were free before the call took them, so returning them lets no caller start that could
// not start before. So a gate returns them with a context from [Quietly].

// A Bell calls the functions that wait for it. The zero Bell is ready and takes one word
// until the first Wait.
type Bell struct {
	waiting atomic.Pointer[waiting]
}

type waiting struct {
	mu sync.Mutex
	fs list.List // of func(), the earliest in front
}

// Wait makes Ring call f until stop is called. f may miss a change before Wait returns, so
// look at the limit afterwards. f must not block, nor use the bell. When stop has
// returned f is not running.
func (b *Bell) Wait(f func()) (stop func()) {
	w := b.waiting.Load()
	if w == nil {
		b.waiting.CompareAndSwap(nil, new(waiting))
		w = b.waiting.Load()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	e := w.fs.PushBack(f)
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.fs.Remove(e) // again: nothing
	}
}

// Ring calls the functions that wait. Call it after the change, without a lock.
func (b *Bell) Ring() {
	w := b.waiting.Load()
	if w == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for e := w.fs.Front(); e != nil; e = e.Next() {
		e.Value.(func())()
	}
}

// Keyed is a Bell for each key. The zero Keyed is ready.
type Keyed[K comparable] struct {
	any   atomic.Bool // whether Wait was ever called
	mu    sync.Mutex
	bells map[K]*shared
}

type shared struct {
	Bell
	waiting int
}

// Wait is that of the bell of key.
func (k *Keyed[K]) Wait(key K, f func()) (stop func()) {
	if key != key { // NaN: each is another key, so no caller can wait for it
		return func() {}
	}
	k.any.Store(true)
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.bells == nil {
		k.bells = make(map[K]*shared)
	}
	s := k.bells[key]
	if s == nil {
		s = new(shared)
		k.bells[key] = s
	}
	s.waiting++
	leave := s.Bell.Wait(f)
	return sync.OnceFunc(func() {
		leave()
		k.mu.Lock()
		defer k.mu.Unlock()
		if s.waiting--; s.waiting == 0 {
			delete(k.bells, key)
		}
	})
}

// Ring is that of the bell of key.
func (k *Keyed[K]) Ring(key K) {
	if s := k.of(key); s != nil {
		s.Ring()
	}
}

func (k *Keyed[K]) of(key K) *shared {
	if !k.any.Load() {
		return nil
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.bells[key]
}

// RingAll rings the bells of all keys.
func (k *Keyed[K]) RingAll() {
	if !k.any.Load() {
		return
	}
	k.mu.Lock()
	all := make([]*shared, 0, len(k.bells))
	for _, s := range k.bells {
		all = append(all, s)
	}
	k.mu.Unlock()
	for _, s := range all {
		s.Ring()
	}
}

type quiet struct{}

// Quietly returns ctx for an Adjust that returns the units an admission has just taken.
func Quietly(ctx context.Context) context.Context { return context.WithValue(ctx, quiet{}, true) }

// Loud reports whether an Adjust by delta with ctx must ring.
func Loud(ctx context.Context, delta int64) bool {
	return delta < 0 && ctx.Value(quiet{}) == nil
}
