package sched

import (
	"fmt"
	"iter"
	"runtime"
	"strings"
	"time"
	"unsafe"
)

// mostThreads is the most goroutines of one execution.
const mostThreads = 16

// A clock is the last step of each goroutine, from 1 on, that is before something: a vector clock
// (Mattern 1989).
type clock [mostThreads]int32

func (c *clock) join(o *clock) {
	for i := range c {
		c[i] = max(c[i], o[i])
	}
}

// A thread is a goroutine of an execution. It runs as a coroutine, so one runs at a time.
type thread struct {
	world *World
	id    int
	name  string
	next  func() (struct{}, bool)
	stop  func()
	yield func(struct{}) bool
	op    Op // the next one
	cases []Case
	clock clock
	over  bool
	dead  bool // is to unwind, because the execution has ended
}

// current is the goroutine that runs, nil outside of an execution.
var current *thread

var killed = new(int)

// point announces op and returns when it is to be performed.
func (t *thread) point(op Op) {
	if t.dead {
		return
	}
	t.op = op
	if t.world.tracing {
		t.op.What += " " + caller()
	}
	if !t.yield(struct{}{}) {
		t.dead = true
		panic(killed)
	}
}

// caller returns where the rewritten code is that performs an operation.
func caller() string {
	var pcs [24]uintptr
	frames := runtime.CallersFrames(pcs[:runtime.Callers(3, pcs[:])])
	for {
		f, more := frames.Next()
		if !strings.Contains(f.Function, "/explore/") && !strings.HasPrefix(f.Function, "slices.") {
			file := f.File[strings.LastIndexByte(f.File, '/')+1:]
			return fmt.Sprintf("%s:%d", file, f.Line)
		}
		if !more {
			return ""
		}
	}
}

// A step is one operation that was performed.
type step struct {
	thread int
	op     Op
}

// A World is one execution of a scene: its goroutines, its time, and the failures.
type World struct {
	number   uint64
	threads  []*thread
	steps    []step
	channels map[unsafe.Pointer]*channel
	shared   map[unsafe.Pointer]*Object // channels that are one object with others
	barrier  clock

	now    time.Duration
	base   time.Time
	timers []*Timer

	explorer *explorer
	failure  string
	tracing  bool
	trace    []string
	after    []func()
}

// runs counts executions.
var runs uint64

// last is the world of the last execution, for the steps of a scene before and after it.
var last *World

// The wall clock at the beginning of each execution. The second has no monotonic part, as in a
// testing/synctest bubble.
var (
	begins = time.Now()
	bubble = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)
)

func newWorld(x *explorer) *World {
	runs++
	w := &World{number: runs, explorer: x, base: begins,
		channels: map[unsafe.Pointer]*channel{}, shared: map[unsafe.Pointer]*Object{}}
	last = w
	for _, f := range resets {
		f()
	}
	return w
}

var resets []func()

// OnReset has f called before each execution: packages with global state set it back.
func OnReset(f func()) { resets = append(resets, f) }

// InBubble makes the packages take this execution for one in a testing/synctest bubble. Call it
// first.
func (w *World) InBubble() { w.base = bubble }

// Go starts a goroutine that calls f.
func Go(f func()) {
	if current == nil {
		panic("sched: a goroutine outside of an execution")
	}
	t := current.world.start(current.name+"'", f)
	t.clock = current.clock
}

// Go adds a goroutine to the scene.
func (w *World) Go(name string, f func()) { w.start(name, f) }

func (w *World) start(name string, f func()) *thread {
	if len(w.threads) == mostThreads {
		panic("sched: too many goroutines")
	}
	t := &thread{world: w, id: len(w.threads), name: name, op: Op{What: "start"}}
	t.clock = w.barrier
	w.threads = append(w.threads, t)
	t.next, t.stop = iter.Pull(func(yield func(struct{}) bool) {
		defer func() {
			t.over = true
			if r := recover(); r != nil && r != any(killed) && !t.dead {
				w.Fail("%s panicked: %v\n%s", name, r, stack())
			}
		}()
		t.yield = yield
		if !yield(struct{}{}) {
			return
		}
		f()
	})
	t.next() // to its first yield
	return t
}

func stack() string {
	b := make([]byte, 8192)
	return string(b[:runtime.Stack(b, false)])
}

// Fail records that the scene has gone wrong. Only the first counts.
func (w *World) Fail(format string, args ...any) {
	if w.failure == "" {
		w.failure = fmt.Sprintf(format, args...)
	}
}

// After has f called, outside of the execution, when all goroutines have ended.
func (w *World) After(f func()) { w.after = append(w.after, f) }

// Asleep reports whether the goroutine of that name cannot go on: it has announced an operation
// that is not ready.
func (w *World) Asleep(name string) bool {
	for _, t := range w.threads {
		if t.name == name {
			return !t.over && t != current && t.op.kind == pick && !t.enabled()
		}
	}
	return false
}

func (t *thread) enabled() bool {
	return !t.over && (t.op.Wait == nil || t.op.Wait.Ready())
}

// perform lets t perform its operation and go on to the next.
func (w *World) perform(t *thread) {
	i := int32(len(w.steps))
	op := t.op
	w.steps = append(w.steps, step{t.id, op})
	t.clock[t.id] = i + 1
	for _, o := range op.On[:op.N] {
		o.fresh(w.number)
		t.clock.join(&o.clock)
		if op.Write {
			t.clock.join(&o.reads)
		}
	}
	for _, o := range op.On[:op.N] {
		if op.Write {
			o.clock = t.clock
		} else {
			o.reads.join(&t.clock)
		}
		o.touched = append(o.touched, i)
	}
	if w.tracing {
		w.trace = append(w.trace, fmt.Sprintf("%8v  %-8s %s", w.now, t.name, op.What))
	}
	current = t
	t.next()
	current = nil
}

// kill unwinds the rest of the execution.
func (w *World) kill() {
	for _, t := range w.threads {
		if !t.over {
			current = t
			t.dead = true
			t.stop()
			current = nil
		}
	}
}

// ---- Time. It passes only when no goroutine can go on, as in a testing/synctest bubble.

// A Timer is a time.Timer of an execution.
type Timer struct {
	C     chan time.Time
	at    time.Duration
	f     func()
	world *World
	set   bool
}

// Now returns the current instant.
func Now() time.Time {
	switch {
	case current != nil:
		return current.world.Now()
	case last != nil:
		return last.Now()
	}
	return begins
}

// Now returns the current instant.
func (w *World) Now() time.Time { return w.base.Add(w.now) }

// NewTimer returns a timer of this execution. If f is set, it is called in a goroutine.
func NewTimer(d time.Duration, f func()) *Timer {
	t := &Timer{C: make(chan time.Time, 1), f: f, world: last}
	t.Reset(d)
	return t
}

// Reset is that of time.Timer: no value of before is left in the channel.
func (t *Timer) Reset(d time.Duration) bool {
	was := t.Stop()
	t.at, t.set = t.world.now+max(0, d), true
	t.world.timers = append(t.world.timers, t)
	return was
}

// Stop is that of time.Timer.
func (t *Timer) Stop() bool {
	was := t.set
	t.set = false
	for i, o := range t.world.timers {
		if o == t {
			t.world.timers = append(t.world.timers[:i:i], t.world.timers[i+1:]...)
			break
		}
	}
	select {
	case <-t.C:
	default:
	}
	return was
}

// advance lets the time pass up to the next timer, which fires, and reports false if there is
// none. All that has happened is before the next event, for all goroutines.
func (w *World) advance() bool {
	if len(w.timers) == 0 {
		return false
	}
	first := w.timers[0]
	for _, t := range w.timers[1:] {
		if t.at < first.at {
			first = t
		}
	}
	for _, t := range w.threads {
		w.barrier.join(&t.clock)
	}
	for _, t := range w.threads {
		t.clock = w.barrier
	}
	w.now = max(w.now, first.at)
	first.Stop()
	if first.f != nil {
		w.start("timer", first.f)
	} else {
		first.C <- w.Now()
	}
	return true
}
