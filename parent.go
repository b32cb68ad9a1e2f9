package sluice

import (
	"context"
	"runtime"
	"slices"
	"sync/atomic"
	"time"

	"github.com/sluice-go/sluice/internal/contend"
	"github.com/sluice-go/sluice/internal/errs"
	"github.com/sluice-go/sluice/internal/queue"
	"github.com/sluice-go/sluice/internal/schedule"
)

// Ways are how a call gets through a gate, its limits and its parents. They are fixed once the gate is
// made, unless a field says otherwise.
type ways struct {
	// First what calls read that start without the lock, see memory.
	observed     bool // the gate or a parent has an observer
	parent       *Gate
	account      *Gate         // that is adaptive for its calls: the gate, or one above in its place
	accountAhead time.Duration // by how much the clock of its queue is ahead
	claims       bool          // it is that of a Claimant of its parent

	open   direct        // without a queue, for Do and Wait, which take no more than a place and a slot; or nil
	direct direct        // the same for all calls, and with limits; or nil
	ask    queue.AskFunc // at the head of the queue; nil unless there are limits or a parent
	steps  []step        // for its limits and those of its parents

	gates []*Gate       // the gate, its parent, that one's parent, and so on
	ahead time.Duration // by how much the clock of the parent's queue is ahead
	tie   *tie          // to the parent, or nil

	behind    queue.Behind
	flow      queue.Flow // its share of the parent
	shareUnit Unit       // of the shares of the children

	// These change.
	claimants atomic.Pointer[Keyed[Claimant]] // nil until one comes
	children  atomic.Int64                    // gates that have it as their parent
	lent      atomic.Int64                    // how many Keyeds have it
}

// lead sets the ways of g, which is being made, to parent, nil if there is none, and beyond.
func (w *ways) lead(g, parent *Gate) {
	errs.Made(parent == nil || parent.account != nil, "sluice.Gate", "sluice.New")
	w.parent, w.account = parent, g
	for up := g; up != nil; up = up.parent {
		w.gates = append(w.gates, up)
	}
	w.observed = g.observer != nil || w.parentObserved()
	var all []*turnstile
	for _, up := range w.gates {
		all = append(all, &up.turnstile)
	}
	var above []step
	if parent != nil {
		above = parent.steps
	}
	w.steps = stepsOf(all, above)
	if len(g.limits) > 0 || parent != nil {
		w.ask = newPath(w.gates, nil).asks[0]
	}
	w.direct = directPath(g)
	if len(w.steps) == 0 && g.semaphore == nil && !w.observed {
		w.open = w.direct
	}
	w.tie = newTie(g)
	switch w.shareUnit = Calls; {
	case g.rateUnit == Cost || g.room.unit == Cost || g.limits.count(Cost):
		w.shareUnit = Cost
	case parent != nil:
		w.shareUnit = parent.shareUnit
	}
	w.behind.Count = w.shareUnit.of
	if parent != nil {
		g.above = parent.name
		w.behind.Above = &parent.queue
	}
}

// setAccount sets which gate is adaptive for the calls of g, whose queue has just been made.
func (w *ways) setAccount(g *Gate) {
	if w.parent == nil {
		return
	}
	w.ahead = g.queue.Epoch().Sub(w.parent.queue.Epoch())
	switch {
	case w.parent.adaptive.Children:
		w.account = w.parent
	case w.parent.account != w.parent:
		w.account = w.parent.account
	}
	w.accountAhead = g.queue.Epoch().Sub(w.account.queue.Epoch())
}

// child returns the gate itself, or the one whose claimants it is among.
func (g *Gate) child() *Gate {
	for g.claims {
		g = g.parent
	}
	return g
}

// asking returns how a call of the gate asks its further limits and parents, nil if there are
// none, and the events of the parents that are to be reported when it is over.
func (w *ways) asking() (queue.AskFunc, *events) {
	if !w.parentObserved() {
		return w.ask, nil
	}
	later := new(events)
	return newPath(w.gates, later).asks[0], later
}

// countsCosts reports whether the gate or a parent needs to know the costs of calls in several units:
// because it learns, or because others do.
func (w *ways) countsCosts() bool {
	for _, g := range w.gates {
		if g.answersCount.Load() || g.sharing != nil {
			return true
		}
	}
	return false
}

// parentsAdmitted returns the events of the parents after they have admitted a call of n that did
// not wait, nil if none of them has an observer.
func (w *ways) parentsAdmitted(ctx context.Context, n int64) *events {
	if !w.parentObserved() {
		return nil
	}
	later := new(events)
	for _, g := range slices.Backward(w.gates[1:]) { // the root first
		later.add(g, Event{Kind: EventAdmitted, Context: ctx, N: n})
	}
	return later
}

// parentObserved reports whether a parent has an observer.
func (w *ways) parentObserved() bool { return w.parent != nil && w.parent.observed }

// # Admission to a gate with a parent or limits without a queue
//
// A call of a gate that has a parent, or limits of this process, needs a place at the head of
// its queues only if something makes it wait. If nothing does, each gate is as in
// admitUnlocked, and the call takes from all of them without a lock, from the gate to the root:
//
//	look    has the slot of each come?           no: ask, having taken nothing
//	limits  take from each                       too little: ask, having returned those taken
//	place   take a place in flight of each       none: return all, ask
//	slot    take the slot of each                not any more: return all, ask
//
// Where a lane is not open, because the gate learns, for example, the same is done with the locks.
//
// Each lane is closed while a caller waits in its gate, so no caller is overtaken. A slot is
// returned under the lock. If the goroutine stalled for an interval between two steps, calls
// that waited for that slot may have left meanwhile; see schedule.GiveBack.

// mostGates is through how many gates a call passes without a queue.
const mostGates = 4

// A direct is a gate and its parents, which a call may pass, and their limits, without a place in a
// queue while no caller waits.
type direct []*Gate

// directPath returns that of g, nil if a call needs a place to wait, or to ask limits that may take
// long to answer: those are asked by one caller after the other.
func directPath(g *Gate) direct {
	switch {
	case g.parent == nil && len(g.steps) == 0: // it is alone
		return nil
	case slices.ContainsFunc(g.steps, step.slow):
		return nil
	}
	if len(g.gates) > mostGates {
		return nil
	}
	return g.gates
}

// steps returns those for the limits of d.
func (d direct) steps() []step { return d[0].steps }

// A look is the state of one gate as a call has seen it.
type look struct {
	gate  *Gate
	slots *schedule.Slots
	word  schedule.Word
	now   time.Duration // as the clock of that gate shows
}

// admit lets a call of cost 1 leave all gates of d, and their limits, at now, if that is
// possible without a lock. again means that another call was faster, and that it may be possible if
// tried again; it is not if a lane was never open, because of a burst, for example.
func (d direct) admit(ctx context.Context) (now time.Duration, v schedule.Verdict, again bool) {
	var seen [mostGates]look
	at := d[0].queue.Now()
	for i, gate := range d {
		seen[i] = look{gate, gate.lane.Slots(), 0, at}
		if v = seen[i].again(); v != schedule.Leave {
			return 0, v, seen[i].slots.Places() > 0
		}
		at = seen[i].now + gate.ahead
	}
	if len(d.steps()) > 0 {
		if wait, _, err := takeAll(ctx, 1, d.steps(), behind{}); wait > 0 || err != nil {
			return 0, schedule.Early, false
		}
	}
	for i, gate := range d {
		if !gate.room.calls.AddUnlocked(seen[i].slots.Places()) {
			d.backOut(ctx, i, 0, nil)
			return 0, schedule.Ask, true
		}
	}
	for i := range d {
		if !seen[i].takeSlot() {
			d.backOut(ctx, len(d), i, &seen)
			return 0, schedule.Ask, true
		}
	}
	return seen[0].now, schedule.Leave, true
}

// again looks at the gate once more, no earlier than before.
func (l *look) again() (v schedule.Verdict) {
	l.word, l.now, v = l.slots.LookAt(l.gate.queue.Epoch(), l.now)
	return v
}

// passOpen lets a call of cost 1 leave all gates of d at now without a lock, if no caller
// waits and their lanes are open. Of each gate it takes a place and a slot and nothing else,
// which finish returns. Early means that it cannot leave now.
func (d direct) passOpen(ctx context.Context) (now time.Duration, v schedule.Verdict) {
	v = schedule.Ask
	if d.counts(ctx) {
		return 0, v
	}
	for losses := 0; losses < fewLosses && d.idle(); losses = contend.Lost(losses) {
		again := true
		if now, v, again = d.admit(ctx); v != schedule.Ask || !again {
			break
		}
	}
	return now, v
}

// passAll lets a call of n leave all gates of d, and their limits, at now, if no caller waits
// and all would. Only a Permit returns all that it may have taken: the cost in flight, and its answer
// to a slow start or to a gate that learns. Early means that it cannot leave now.
func (d direct) passAll(ctx context.Context, n int64) (left queue.Grant, v schedule.Verdict) {
	v = schedule.Ask
	if n == 1 {
		left.At, v = d.passOpen(ctx)
	}
	if v != schedule.Ask || d.counts(ctx) || !d.idle() {
		return left, v
	}
	// As admit would, but with the locks, while no caller waits: if a call queued, those
	// that come meanwhile would have to, and so on.
	for _, gate := range d {
		if len(d.steps()) > 0 && gate.demandAtHead(context.Background(), n, "").For > 0 {
			return left, v
		}
	}
	if wait, _, err := takeAll(ctx, n, d.steps(), behind{}); wait > 0 || err != nil {
		return left, schedule.Early
	}
	// It has just come, and so is not late by our fault.
	refuses, wait, _ := commit(context.Background(), queue.Turn{N: n, Due: queue.Forever}, d)
	if refuses != nil {
		giveBack(ctx, n, d.steps())
		return left, v
	}
	return queue.Grant{At: d[0].queue.Now(), Receipt: wait.Receipt}, schedule.Leave
}

// counts reports whether a gate of d counts several units of a call of ctx.
func (d direct) counts(ctx context.Context) bool {
	return d[0].countsCosts() && costsOf(ctx) != nil
}

// fewLosses is how often a call tries to find open lanes, while other calls close them for a
// moment, before it takes the locks.
const fewLosses = 4

// idle reports whether no caller waits for a gate of d, and none is closed.
func (d direct) idle() bool {
	for _, gate := range d {
		if gate.queue.Busy() {
			return false
		}
	}
	return true
}

// takeSlot takes the slot that the call has seen, or a later one that has come.
func (l *look) takeSlot() (ok bool) {
	for losses := 0; !l.slots.Take(l.word, l.now); losses = contend.Lost(losses) {
		if losses == contend.Enough {
			return false
		}
		l.now = l.gate.queue.Now()
		if l.again() != schedule.Leave {
			return false
		}
	}
	return true
}

// backOut returns the units that were taken from the limits, the places of the first gates of d, and
// the slots of some of them.
func (d direct) backOut(ctx context.Context, places, slots int, seen *[mostGates]look) {
	giveBack(ctx, 1, d.steps())
	for i, gate := range d[:places] {
		if i < slots {
			gate.queue.Lock()
			gate.schedule.GiveBack(seen[i].now, seen[i].slots.Interval())
			gate.queue.Kick() // the next slot is earlier
			gate.queue.Unlock()
		}
		gate.room.calls.UncountPassed()
		gate.vacate()
	}
}

// do is Gate.Do for a call that passOpen let leave at now. A second defer in Do would cost
// each call of a plain gate a quarter of its time.
func (d direct) do(ctx context.Context, f func(ctx context.Context) error, now time.Duration) error {
	defer d.finish(now)
	return d[0].ended(f(ctx), now, nil)
}

// finish ends a call that passOpen let leave at since, in all gates of d.
func (d direct) finish(since time.Duration) {
	for _, gate := range d {
		gate.finish(since)
		since += gate.ahead
	}
}

// A tie keeps the parent of a gate from being forgotten by a Keyed. If there were another
// gate for the parent's key, the child would go on with the old one, and both together
// would grant twice as much. The tie ends when no more calls can start through the
// child: it is closed, forgotten by its Keyed, or garbage.
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
