// Package atomic is what package sync/atomic is to rewritten code.
package atomic

import "github.com/sluice-go/sluice/internal/explore/sched"

// A Bool is an atomic.Bool.
type Bool struct{ v variable[bool] }

func (b *Bool) Load() bool                    { return b.v.load() }
func (b *Bool) Store(v bool)                  { b.v.store(v) }
func (b *Bool) Swap(v bool) bool              { return b.v.swap(v) }
func (b *Bool) CompareAndSwap(o, v bool) bool { return b.v.cas(o, v) }

// An Int64 is an atomic.Int64.
type Int64 struct{ integer[int64] }

// A Uint32 is an atomic.Uint32.
type Uint32 struct{ integer[uint32] }

// A Uint64 is an atomic.Uint64.
type Uint64 struct{ integer[uint64] }

type integer[T int64 | uint32 | uint64] struct{ v variable[T] }

func (i *integer[T]) Load() T                    { return i.v.load() }
func (i *integer[T]) Store(v T)                  { i.v.store(v) }
func (i *integer[T]) Swap(v T) T                 { return i.v.swap(v) }
func (i *integer[T]) CompareAndSwap(o, v T) bool { return i.v.cas(o, v) }

func (i *integer[T]) Add(d T) T {
	sched.Write("add", &i.v.object)
	i.v.value += d
	return i.v.value
}

func (i *integer[T]) Or(bits T) (old T) {
	sched.Write("or", &i.v.object)
	old = i.v.value
	i.v.value |= bits
	return old
}

func (i *integer[T]) And(bits T) (old T) {
	sched.Write("and", &i.v.object)
	old = i.v.value
	i.v.value &= bits
	return old
}

// A Pointer is an atomic.Pointer.
type Pointer[T any] struct{ v variable[*T] }

func (p *Pointer[T]) Load() *T                    { return p.v.load() }
func (p *Pointer[T]) Store(v *T)                  { p.v.store(v) }
func (p *Pointer[T]) Swap(v *T) *T                { return p.v.swap(v) }
func (p *Pointer[T]) CompareAndSwap(o, v *T) bool { return p.v.cas(o, v) }

type variable[T comparable] struct {
	object sched.Object
	value  T
}

func (v *variable[T]) load() T {
	sched.Read("load", &v.object)
	return v.value
}

func (v *variable[T]) store(to T) {
	sched.Write("store", &v.object)
	v.value = to
}

func (v *variable[T]) swap(to T) T {
	sched.Write("swap", &v.object)
	old := v.value
	v.value = to
	return old
}

func (v *variable[T]) cas(from, to T) bool {
	sched.Write("cas", &v.object)
	if v.value != from {
		return false
	}
	v.value = to
	return true
}
