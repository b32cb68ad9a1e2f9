package sched

import "unsafe"

// An Object is the object of operations: an atomic variable, a mutex, a channel, or the end of a
// context. The zero Object is ready. It belongs to one execution at a time.
type Object struct {
	run     uint64  // the execution that used it last
	clock   clock   // of its last write, for the order of operations that depend on it
	reads   clock   // of its reads since
	touched []int32 // the steps of this execution that used it
}

// fresh resets the state that an earlier execution left in o.
func (o *Object) fresh(run uint64) {
	if o.run != run {
		o.run, o.clock, o.reads, o.touched = run, clock{}, clock{}, o.touched[:0]
	}
}

// A Readier says whether an operation can go on.
type Readier interface{ Ready() bool }

// An Op is one operation of a goroutine, announced before it is performed.
type Op struct {
	What  string
	On    [3]*Object // the first N of these
	N     int
	Write bool    // on all of them
	Wait  Readier // nil: it never blocks
	kind  kind
}

type kind uint8

const (
	plain kind = iota
	lock
	unlock
	pick // a select, which may have several cases that are ready
)

// depends reports whether the order of two operations can matter.
func (o *Op) depends(p *Op) bool {
	if !o.Write && !p.Write {
		return false
	}
	for _, a := range o.On[:o.N] {
		for _, b := range p.On[:p.N] {
			if a == b {
				return true
			}
		}
	}
	return false
}

// Read, Write, Lock and Unlock announce an operation on o and return when it is to be performed.
// Outside of an execution they return immediately.
func Read(what string, o *Object) {
	if current != nil {
		current.point(Op{What: what, On: [3]*Object{o}, N: 1})
	}
}

// Write is described at Read.
func Write(what string, o *Object) {
	if current != nil {
		current.point(Op{What: what, On: [3]*Object{o}, N: 1, Write: true})
	}
}

// Lock is described at Read. It waits until ready.
func Lock(what string, o *Object, ready Readier) {
	if current != nil {
		current.point(Op{What: what, On: [3]*Object{o}, N: 1, Write: true, Wait: ready, kind: lock})
	}
}

// Unlock is described at Read.
func Unlock(what string, o *Object) {
	if current != nil {
		current.point(Op{What: what, On: [3]*Object{o}, N: 1, Write: true, kind: unlock})
	}
}

// # Channels
//
// They stay unchanged. One goroutine runs at a time, so to look whether a channel is ready
// and then to use it is one step. No channel between the goroutines of a scene may be without a
// buffer, but for one that is only closed.

type channel struct {
	Object
	keep any // so that no other channel gets its address in this execution
}

// address of a channel, whatever its direction.
func address[C any](ch C) unsafe.Pointer { return *(*unsafe.Pointer)(unsafe.Pointer(&ch)) }

// objectOf returns the object of a channel.
func (w *World) objectOf(at unsafe.Pointer, keep any) *Object {
	if o := w.shared[at]; o != nil {
		return o
	}
	c := w.channels[at]
	if c == nil {
		c = &channel{keep: keep}
		w.channels[at] = c
	}
	return &c.Object
}

// A Case is one case of a select.
type Case struct {
	object *Object
	ready  func() bool
}

// CanRecv is the case that receives from ch.
func CanRecv[T any](ch <-chan T) Case {
	if ch == nil || current == nil {
		return Case{}
	}
	return Case{current.world.objectOf(address(ch), ch), func() bool {
		if len(ch) > 0 {
			return true
		}
		select {
		case _, open := <-ch:
			if open {
				panic("sched: a channel without a buffer was sent to")
			}
			return true
		default:
			return false
		}
	}}
}

// CanSend is the case that sends to ch.
func CanSend[T any](ch chan<- T) Case {
	if ch == nil || current == nil {
		return Case{}
	}
	return Case{current.world.objectOf(address(ch), ch), func() bool { return len(ch) < cap(ch) }}
}

type cases []Case

// Ready implements Readier.
func (c cases) Ready() bool {
	for i := range c {
		if c[i].object != nil && c[i].ready() {
			return true
		}
	}
	return false
}

// Select waits until a case is ready, if there is no default, and returns the number of the case
// to take, or -1 for the default. If several are ready each is tried, in an execution of its own.
func Select(hasDefault bool, all ...Case) int {
	t := current
	if t == nil {
		return outside(hasDefault, all)
	}
	op := Op{What: "select", Write: true, kind: pick}
	for _, c := range all {
		if c.object != nil {
			op.On[op.N] = c.object
			op.N++
		}
	}
	if !hasDefault {
		op.Wait = cases(all)
	}
	t.cases = all
	t.point(op)
	if t.dead {
		panic(killed)
	}
	ready := t.cases[:0:0]
	which := make([]int, 0, len(all))
	for i, c := range all {
		if c.object != nil && c.ready() {
			ready, which = append(ready, c), append(which, i)
		}
	}
	if len(ready) == 0 {
		return -1
	}
	return which[t.world.alternative(len(ready))]
}

// outside is Select outside of an execution: for the steps of a scene before and after it.
func outside(hasDefault bool, _ []Case) int {
	if hasDefault {
		return -1
	}
	panic("sched: a select outside of an execution")
}

// Recv is <-ch.
func Recv[T any](ch <-chan T) T {
	if current != nil {
		Select(false, CanRecv(ch))
	}
	return <-ch
}

// Send is ch <- v.
func Send[T any](ch chan<- T, v T) {
	if current != nil {
		Select(false, CanSend(ch))
	}
	ch <- v
}

// Len is len(ch).
func Len[T any](ch chan T) int {
	if current != nil {
		Read("len", current.world.objectOf(address(ch), ch))
	}
	return len(ch)
}

// Close is close(ch).
func Close[T any](ch chan T) {
	if current != nil {
		Write("close", current.world.objectOf(address(ch), ch))
	}
	close(ch)
}

// Share makes the end of a context, done, one object with others.
func Share(done chan struct{}, o *Object) {
	if last != nil {
		last.shared[address(done)] = o
	}
}
