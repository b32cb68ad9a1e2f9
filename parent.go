package sluice

import (
	"context"
	"time"

	"github.com/sluice-go/sluice/internal/contend"
	"github.com/sluice-go/sluice/internal/queue"
	"github.com/sluice-go/sluice/internal/schedule"
)

// # Admission to a gate and its parents without a lock
//
// A gate that has a parent and no further limits needs its goroutine at the head of two
// queues only if one of the gates makes the call wait. If none does, each is as in
// admitUnlocked, and the call takes from all of them in three steps, from the gate to the
// root:
//
//	look   has the slot of each come?           no: ask, having taken nothing
//	place  take a place in flight of each       none: give back those taken, ask
//	slot   take the slot of each                not any more: give back all, ask
//
// Each lane is closed while a caller waits in its gate, so no caller is overtaken. A slot is
// given back under the lock. If the goroutine stalled for an interval between two steps, calls
// that waited for that slot may have left meanwhile; see schedule.GiveBack.

// mostGates is through how many gates a call passes without a lock.
const mostGates = 4

// unlockedPath returns g and its parents if calls may pass them without a lock, or nil.
func unlockedPath(g *Gate) (path []*Gate) {
	if g.parent == nil || g.observed || g.semaphore != nil || len(g.steps) > 0 {
		return nil
	}
	for ; g != nil; g = g.parent {
		path = append(path, g)
	}
	if len(path) > mostGates {
		return nil
	}
	return path
}

// A look is what a call has seen of one gate.
type look struct {
	slots *schedule.Slots
	word  schedule.Word
	now   time.Duration // as the clock of that gate shows
}

// admitPath lets a call of cost 1 leave all gates of g.path at now, if that is possible without
// a lock. opened is false if it never was, because of a burst, for example.
func (g *Gate) admitPath() (now time.Duration, v schedule.Verdict, opened bool) {
	var seen [mostGates]look
	at := g.queue.Now()
	for i, gate := range g.path {
		seen[i] = look{gate.lane.Slots(), 0, at}
		if v = gate.look(&seen[i]); v != schedule.Leave {
			return 0, v, seen[i].slots.Places() > 0
		}
		at = seen[i].now + gate.ahead
	}
	for i, gate := range g.path {
		if !gate.flight.addUnlocked(seen[i].slots.Places()) {
			g.backOut(i, 0, nil)
			return 0, schedule.Ask, true
		}
	}
	for i, gate := range g.path {
		if !gate.takeSlot(&seen[i]) {
			g.backOut(len(g.path), i, &seen)
			return 0, schedule.Ask, true
		}
	}
	return seen[0].now, schedule.Leave, true
}

func (g *Gate) look(l *look) (v schedule.Verdict) {
	l.word, l.now, v = l.slots.LookAt(g.queue.Epoch(), l.now)
	return v
}

// passOpen lets a call of cost 1 leave all gates of g.path at now without a lock, if no caller
// waits and their lanes are open. Of each gate it takes a place and a slot and nothing else,
// which leavePath returns.
func (g *Gate) passOpen(ctx context.Context) (now time.Duration, v schedule.Verdict) {
	v = schedule.Ask
	if g.counts(ctx) {
		return 0, v
	}
	for losses := 0; losses < fewLosses && g.idle(); losses = contend.Lost(losses) {
		opened := true
		if now, v, opened = g.admitPath(); v != schedule.Ask || !opened {
			break
		}
	}
	return now, v
}

// passAll lets a call of n leave all gates of g.path at now, if no caller waits and all would.
// Only a Permit returns all that it may have taken: the cost in flight, and its answer to a
// slow start or to a gate that learns.
func (g *Gate) passAll(ctx context.Context, n int64) (left queue.Grant, v schedule.Verdict) {
	v = schedule.Ask
	if n == 1 {
		left.At, v = g.passOpen(ctx)
	}
	if v == schedule.Ask && !g.counts(ctx) && g.idle() {
		// As admitPath would, but with the locks, while no caller waits: if a call queued, those
		// that come meanwhile would have to, and so on.
		// It has just come, and so is not late by our fault.
		if refuses, wait, _ := commit(context.Background(), queue.Turn{N: n, Due: queue.Forever}, g.path); refuses == nil {
			return queue.Grant{At: g.queue.Now(), Receipt: wait.Receipt}, schedule.Leave
		}
	}
	return left, v
}

// counts reports whether a gate of g.path counts what a call of ctx takes of several units.
func (g *Gate) counts(ctx context.Context) bool {
	for _, gate := range g.path {
		if gate.countsCosts() {
			return costsOf(ctx) != nil
		}
	}
	return false
}

// fewLosses is how often a call tries to find open lanes, while other calls close them for a
// moment, before it takes the locks.
const fewLosses = 4

// idle reports whether no caller waits for a gate of g.path, and none is closed.
func (g *Gate) idle() bool {
	for _, gate := range g.path {
		if gate.queue.Busy() {
			return false
		}
	}
	return true
}

// takeSlot takes the slot that the call has seen, or a later one that has come.
func (g *Gate) takeSlot(l *look) (ok bool) {
	for losses := 0; !l.slots.Take(l.word, l.now); losses = contend.Lost(losses) {
		if losses == contend.Enough {
			return false
		}
		l.now = g.queue.Now()
		if g.look(l) != schedule.Leave {
			return false
		}
	}
	return true
}

// backOut gives back the places of the first gates of g.path, and the slots of some of them.
func (g *Gate) backOut(places, slots int, seen *[mostGates]look) {
	for i, gate := range g.path[:places] {
		if i < slots {
			gate.queue.Lock()
			gate.schedule.GiveBack(seen[i].now, seen[i].slots.Interval())
			gate.queue.Kick() // the next slot is earlier
			gate.queue.Unlock()
		}
		gate.flight.uncountPassed()
		gate.vacate()
	}
}

// doPath is Do for a call that passOpen let leave at now. A second defer in Do would cost
// each call of a plain gate a quarter of its time.
func (g *Gate) doPath(ctx context.Context, f func(ctx context.Context) error, now time.Duration) error {
	defer g.leavePath(now)
	return g.ended(f(ctx), now, nil)
}

// leavePath ends a call that passOpen let leave at since, in all gates of g.path.
func (g *Gate) leavePath(since time.Duration) {
	for _, gate := range g.path {
		gate.leave(since)
		since += gate.ahead
	}
}
