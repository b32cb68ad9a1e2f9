package sluice

import (
	"iter"
	"reflect"
	"runtime"
	"slices"
	"sync/atomic"
	"time"

	"github.com/sluice-go/sluice/limits"
)

const (
	lookAt       = 2  // gates that each use looks at whether to forget them
	lookAtIfFull = 16 // the same for a new key that there is no room for
)

// forget looks at up to n gates that were unused for idle and forgets those
// that it may. The others go to the end, so that the next call looks at more.
// pressed says that there is no room.
func (k *Keyed[K]) forget(n int, idle time.Duration, pressed bool) {
	for ; n > 0; n-- {
		e := k.unused.next
		if e == &k.unused || time.Since(e.since) < idle {
			return
		}
		e.unlink() // to the end, before Forget is called: if that panics e is still in the ring
		e.link(&k.unused)
		if k.may(e, pressed) && (k.cfg.Forget == nil || k.cfg.Forget(e.gate)) {
			e.unlink()
			k.remove(e)
			k.takeBack(e.gate)
		}
	}
}

// may reports whether e may be forgotten.
func (k *Keyed[K]) may(e *keyedGate[K], pressed bool) bool {
	return !k.maybeParent(e) && !k.remembers(e.gate) && e.gate.asNew(pressed)
}

// maybeParent reports whether the gate of e was used since a newGate began that still
// runs: perhaps it is to be the parent of what that makes.
func (k *Keyed[K]) maybeParent(e *keyedGate[K]) bool {
	return len(k.making) > 0 && e.era >= k.making[0].era
}

// asNew reports whether a new gate would let through no more than g, but for quotas.
//
// Of the retry budget half is enough, so that a host that failed once is forgotten at
// once. What is lost is 50 tokens of 100 at most, 10 retries, and while a gate is used
// it is not forgotten. A slow start keeps the gate for a minute after the last call:
// a new gate would let all calls go at once to a server that has just refused one. If
// pressed, neither counts: some more retries do less harm than refusing a new host.
func (g *Gate) asNew(pressed bool) bool {
	g.queue.Lock()
	defer g.queue.Unlock()
	now := g.queue.Now()
	budget := g.budget.at(now)
	return !g.inUse() &&
		g.schedule.Wait(now, 0) == 0 &&
		(pressed || g.ramp.asleep(now, g.schedule.Paused()) && budget.tokens >= min(budget.capacity, budget.capacity/2) && budget.spacing == 0)
}

// inUse reports whether another gate must not take the place of g: a call is in it or
// waits, it is a parent, or it is closed, and a new one would be open. The queue must be
// locked.
func (g *Gate) inUse() bool {
	return g.children.Load() > 0 || g.flight.calls() > 0 || g.queue.Len() > 0 || g.queue.Closed() != nil
}

// A sharedMeter counts the gates of a Keyed that have a meter as a quota.
type sharedMeter struct {
	gates  int
	shared bool // there were two at once, so it is not made for one of them
}

// lend notes that k has gate.
func (k *Keyed[K]) lend(gate *Gate) {
	if gate.lent.Add(1) == 1 {
		gate.tie.begin()
	}
	for meter := range gate.meters() {
		m := k.meters[meter]
		if m == nil {
			m = new(sharedMeter)
			k.meters[meter] = m
		}
		m.gates++
		m.shared = m.shared || m.gates > 1
	}
}

// takeBack undoes lend.
func (k *Keyed[K]) takeBack(gate *Gate) {
	if gate.lent.Add(-1) == 0 {
		gate.tie.end()
	}
	for meter := range gate.meters() {
		if m := k.meters[meter]; m.gates == 1 {
			delete(k.meters, meter)
		} else {
			m.gates--
		}
	}
}

// meters yields the meters of the quotas of g that can be keys of a map, each once: a
// gate may have one twice, such as for calls and for cost.
func (g *Gate) meters() iter.Seq[limits.Limiter] {
	return func(yield func(limits.Limiter) bool) {
		for i, q := range g.quotas {
			if !reflect.ValueOf(q.Limiter).Comparable() || slices.ContainsFunc(g.quotas[:i], func(before Limit) bool {
				return reflect.ValueOf(before.Limiter).Comparable() && before.Limiter == q.Limiter
			}) {
				continue
			}
			if !yield(q.Limiter) {
				return
			}
		}
	}
}

// remembers reports whether a quota of gate has a memory that would be lost with it.
func (k *Keyed[K]) remembers(gate *Gate) bool {
	for _, q := range gate.quotas {
		if _, elsewhere := q.Limiter.(limits.Remote); elsewhere {
			continue
		}
		if reflect.ValueOf(q.Limiter).Comparable() && k.meters[q.Limiter].shared {
			continue
		}
		if m, ok := q.Limiter.(interface{ Peek() limits.Result }); ok && m.Peek().ResetAfter == 0 {
			continue
		}
		return true
	}
	return false
}

// A tie keeps the parent of a gate from being forgotten by a Keyed: if there were
// another gate for its key, the child would go on with the old one, and both together
// would let through twice as much. It ends when the child can let nothing through any
// more: it is closed, forgotten by its Keyed, or collected as garbage.
type tie struct {
	parent *Gate
	over   atomic.Bool
}

// newTie returns the tie of a gate that is being made, nil if it has no parent.
func newTie(child *Gate) *tie {
	if child.parent == nil {
		return nil
	}
	t := &tie{parent: child.parent}
	t.parent.children.Add(1)
	runtime.AddCleanup(child, (*tie).end, t)
	return t
}

func (t *tie) end() {
	if t != nil && t.over.CompareAndSwap(false, true) {
		t.parent.children.Add(-1)
	}
}

// begin undoes end, for a gate that was forgotten and is lent again.
func (t *tie) begin() {
	if t != nil && t.over.CompareAndSwap(true, false) {
		t.parent.children.Add(1)
	}
}
