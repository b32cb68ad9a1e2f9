package sched

import (
	"fmt"
	"math/bits"
	"strings"
	"time"
)

// A Search says how the interleavings of a scene are enumerated.
type Search struct {
	// Preemptions, if not negative, is how often a goroutine may be interrupted that could go on.
	// Negative: any number, with dynamic partial-order reduction.
	Preemptions int

	// Most, if not 0, ends the search after so many executions.
	Most int

	// Until, if set, ends the search.
	Until time.Time
}

// A Result is the result of a search.
type Result struct {
	Executions int
	Pruned     int // executions that sleep sets ended early
	Steps      int
	Longest    int
	Complete   bool   // all interleavings that Search allows were tried
	Failure    string // "" if none
	Trace      []string
}

// A set is one of goroutines.
type set uint32

func (s set) has(t int) bool { return s>>t&1 != 0 }

// A node is a state in which a goroutine was chosen.
type node struct {
	enabled   set
	sleep     set
	backtrack set
	done      set
	chosen    int
	alt, alts int
	used      int // preemptions before it
	last      int // the goroutine that ran before it, -1: none
}

type explorer struct {
	search Search
	stack  []node
	depth  int // how many nodes of the stack this execution has passed
	result Result
	traced bool
}

// Explore runs scene again and again until each interleaving was tried that search allows, or one
// fails. scene makes the goroutines of one execution.
func Explore(search Search, scene func(w *World)) Result {
	x := &explorer{search: search}
	for {
		w := x.run(scene)
		if w.failure != "" {
			x.result.Failure = w.failure
			x.traced = true
			again := x.run(scene) // the same, with the names of the lines
			x.result.Trace = again.trace
			if again.failure == "" {
				x.result.Failure += " (and not when repeated: the scene is not deterministic)"
			}
			return x.result
		}
		if !x.next() {
			x.result.Complete = true
			return x.result
		}
		if x.search.Most > 0 && x.result.Executions >= x.search.Most ||
			!x.search.Until.IsZero() && time.Now().After(x.search.Until) {
			return x.result
		}
	}
}

// run makes one execution: the choices of the stack, and then the first of each new node.
func (x *explorer) run(scene func(w *World)) *World {
	w := newWorld(x)
	w.tracing = x.traced
	x.depth = 0
	scene(w)
	fresh := len(x.stack)
	before := -1
	for w.failure == "" {
		enabled := w.enabled()
		if x.search.Preemptions < 0 && x.depth >= fresh {
			for _, t := range w.threads { // also those that cannot go on
				if !t.over {
					x.race(w, t)
				}
			}
		}
		if enabled == 0 {
			if w.advance() {
				before = -1
				continue
			}
			w.end()
			break
		}
		if x.depth == len(x.stack) && !x.push(w, enabled, before) {
			x.result.Pruned++
			w.kill()
			return w
		}
		n := &x.stack[x.depth]
		if !enabled.has(n.chosen) {
			panic("sched: the scene is not deterministic")
		}
		t := w.threads[n.chosen]
		n.alts = max(n.alts, 1)
		w.perform(t)
		x.depth++
		before = n.chosen
		if len(w.steps) > 20000 {
			w.Fail("no end after %d steps", len(w.steps))
		}
	}
	w.kill()
	if !x.traced {
		x.result.Executions++
		x.result.Steps += len(w.steps)
		x.result.Longest = max(x.result.Longest, len(w.steps))
	}
	return w
}

func (w *World) enabled() (s set) {
	for _, t := range w.threads {
		if t.enabled() {
			s |= 1 << t.id
		}
	}
	return s
}

// end checks the remaining goroutines when none can go on and no timer runs.
func (w *World) end() {
	var asleep []string
	for _, t := range w.threads {
		if !t.over {
			asleep = append(asleep, t.name)
		}
	}
	if len(asleep) > 0 {
		w.Fail("for ever asleep: %s", strings.Join(asleep, ", "))
		return
	}
	for _, f := range w.after {
		f()
	}
}

// alternative returns which of n cases that are ready the select takes that is being performed.
func (w *World) alternative(n int) int {
	at := &w.explorer.stack[w.explorer.depth]
	at.alts = n
	return at.alt
}

// push adds the node of a state that is new. It reports false if all that could happen here has
// been tried after another beginning.
func (x *explorer) push(w *World, enabled set, before int) bool {
	n := node{enabled: enabled, last: before}
	if d := len(x.stack); d > 0 {
		up := &x.stack[d-1]
		n.used = up.used
		if up.last != up.chosen && up.last >= 0 && up.enabled.has(up.last) {
			n.used++
		}
		if x.search.Preemptions < 0 {
			n.sleep = x.stillAsleep(w, up)
		}
	}
	can := enabled &^ n.sleep
	if can == 0 {
		return false
	}
	if before >= 0 && can.has(before) {
		n.chosen = before
	} else {
		n.chosen = bits.TrailingZeros32(uint32(can))
	}
	switch {
	case x.search.Preemptions < 0:
		n.backtrack = 1 << n.chosen
	case before >= 0 && enabled.has(before) && n.used >= x.search.Preemptions:
		n.backtrack = 1 << before
	default:
		n.backtrack = enabled
	}
	x.stack = append(x.stack, n)
	return true
}

// stillAsleep returns the sleep set after the step of up (Godefroid 1996): the goroutines whose next
// operation was tried there, or was asleep, and does not depend on that step.
func (x *explorer) stillAsleep(w *World, up *node) (s set) {
	did := &w.steps[len(w.steps)-1].op
	for t := range w.threads {
		if (up.sleep | up.done).has(t) && t != up.chosen && !w.threads[t].op.depends(did) {
			s |= 1 << t
		}
	}
	return s
}

// race adds to the backtrack set of the last state in which t could have done its next operation
// instead of one that the operation depends on (Flanagan and Godefroid 2005, figure 3). The paper adds
// one of the candidates. With sleep sets that is not enough: of 300 random programs 8 then lost
// something that can be observed, all of them with three goroutines. So all candidates are added, and
// all that could go on if each candidate sleeps.
func (x *explorer) race(w *World, t *thread) {
	at := int32(-1)
	for _, o := range t.op.On[:t.op.N] {
		o.fresh(w.number)
		for j := len(o.touched) - 1; j >= 0; j-- {
			i := o.touched[j]
			s := &w.steps[i]
			if s.thread == t.id || t.clock[s.thread] > i { // it is before t, and so are those before
				if s.op.Write {
					break
				}
				continue
			}
			if !s.op.Write && !t.op.Write || t.op.kind == lock && s.op.kind == unlock {
				continue
			}
			at = max(at, i)
			break
		}
	}
	if at < 0 {
		return
	}
	n := &x.stack[at]
	could := n.enabled & (1 << t.id)
	for j := at + 1; j < int32(len(w.steps)); j++ {
		if q := w.steps[j].thread; t.clock[q] > j {
			could |= n.enabled & (1 << q)
		}
	}
	if could == 0 || could&^n.sleep == 0 {
		could = n.enabled
	}
	n.backtrack |= could
}

// next goes to the next choice, and reports false if there is none.
func (x *explorer) next() bool {
	for len(x.stack) > 0 {
		n := &x.stack[len(x.stack)-1]
		if n.alt+1 < n.alts {
			n.alt++
			return true
		}
		n.done |= 1 << n.chosen
		if left := n.backtrack &^ n.done &^ n.sleep; left != 0 {
			n.chosen = bits.TrailingZeros32(uint32(left))
			n.alt, n.alts = 0, 0
			return true
		}
		x.stack = x.stack[:len(x.stack)-1]
	}
	return false
}

func (r Result) String() string {
	state := "part"
	if r.Complete {
		state = "all"
	}
	return fmt.Sprintf("%s, %d executions (%d pruned), %d steps, at most %d in one", state, r.Executions, r.Pruned, r.Steps, r.Longest)
}
