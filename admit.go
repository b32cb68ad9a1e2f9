package sluice

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/sluice-go/sluice/internal/bell"
	"github.com/sluice-go/sluice/internal/errs"
	"github.com/sluice-go/sluice/internal/queue"
	"github.com/sluice-go/sluice/limits"
)

// # Admission with further limits or a parent
//
// A gate alone decides under the lock of its queue: room, slot and pause in one step
// (admitter.Admit). A further limit may be remote, and asking it must not hold that lock. A
// parent has a queue of its own, in which calls of its other children also wait.
//
// So a call of such a gate that must wait, or whose limits may take long to answer, is granted by its
// own goroutine, once it is at the head of its queue, in this order (others: see parent.go):
//
//	its gate:   would it grant the call?      no: wait there, holding nothing
//	its parent: queue; at its head:
//	              would all of them, still?   no: leave this queue, wait in the gate that refused
//	              take from every limit       no: return, likewise
//	              (local ones first, then remote ones: see step)
//	              lock all; would all still?  no: return, likewise
//	              take the room and the slots of all, at one instant
//
// A call that waits for its own gate has no place in the parent: a slow or paused host
// keeps no room of it. A call that waits for the parent has taken nothing from its own
// gate: a full parent wastes no slot of the host. Locks are taken from the root down,
// and no goroutine that holds one waits.
//
// # Lateness of such a call
//
// The timer of its own queue, the goroutine that wakes in its parent's, and a limit that
// takes time to answer may all be late. But the time for which a limit holds the call up
// is not lateness. So each queue records since when the call could have asked
// (queue.Turn): since it came, its slot came, or a change woke it. A call that was late
// in its own queue came to its parent's as much too late (queue.Request.Came). The
// lateness at the root, after the last limit that held the call up, is the lateness for
// all of them. Each gate catches up, up to its MaxCatchUp:
//
//	its gate     slot ├─ woken late ─┤
//	its parent                       ├── no room ──┤ room ├─ woken late ─┤ leaves
//	late for all                                          ├──────────────┤
//
// Charging every gate but the root at the instant at which the call left cost each call
// as much as its timer was late: 5 % of the rate at 200/s, 80 % at 5,000/s.

// A path is a gate, its parent, that one's parent, and so on.
type path struct {
	gates []*Gate
	asks  []queue.AskFunc // of the heads of their queues
	later *events         // of the parents; nil if none of them has an observer
}

func newPath(gates []*Gate, later *events) *path {
	p := &path{gates: gates, later: later}
	for i := range p.gates {
		p.asks = append(p.asks, p.asker(i))
	}
	return p
}

// asker returns how a call of the first gate of p asks at the head of the queue of the
// i-th.
func (p *path) asker(i int) queue.AskFunc {
	here := p.gates[i]
	return func(ctx context.Context, t queue.Turn) (queue.Wait, error) {
		if here.parent == nil {
			if wait := here.demandAtHead(ctx, t.N, ""); wait.For > 0 {
				return wait, nil
			}
			return p.join(ctx, t)
		}
		if wait := here.demandAtHead(ctx, t.N, limits.ByParent); wait.For > 0 {
			return wait, nil
		}
		return p.pass(ctx, t, i)
	}
}

// pass queues in the parent of the i-th gate.
func (p *path) pass(ctx context.Context, t queue.Turn, i int) (queue.Wait, error) {
	g := p.gates[i]
	left, waited, err := g.parent.queue.Acquire(ctx, queue.Request{
		N: t.N, Max: t.Left, Patience: t.Patience, Ask: p.asks[i+1],
		Came: g.queue.Epoch().Add(t.Due), // had it been woken in time
		Flow: &g.flow, Refused: t.Refused, First: t.First,
	})
	var no *refusal
	if errors.As(err, &no) && no.passed {
		g.parent.queue.Keep(&g.flow)
	}
	switch {
	case err == nil:
		g.parent.waits.add(waited)
		p.later.add(g.parent, Event{Kind: EventAdmitted, Context: ctx, N: t.N, Wait: waited})
		return queue.Wait{Receipt: left.Receipt}, nil
	case no != nil && no.by == &g.turnstile:
		return no.wait, no.err
	case no != nil:
		return queue.Wait{}, err
	}
	refused := g.parent.refusal(ctx, t.N, err)
	p.later.add(g.parent, refused)
	return queue.Wait{}, refused.Err
}

// A refusal ends the wait in a parent's queue because a gate below it, by, does not
// grant the call yet or, if err is set, at all.
type refusal struct {
	by     *turnstile
	wait   queue.Wait
	err    error
	passed bool // another call of the gate takes its place
}

func (r *refusal) Error() string { return fmt.Sprintf("sluice: refused below: %v, %v", r.wait, r.err) }

// join grants a call to all gates of p at one instant, or returns how long to
// wait at the head of the queue of the last of them, in which it is.
func (p *path) join(ctx context.Context, t queue.Turn) (queue.Wait, error) {
	// The answer to the caller: a wait here, or a refusal by one below.
	no := func(by *turnstile, wait queue.Wait, err error) (queue.Wait, error) {
		if by == &p.gates[len(p.gates)-1].turnstile {
			return wait, err
		}
		return queue.Wait{}, &refusal{by: by, wait: wait, err: err}
	}
	for i := len(p.gates) - 2; i >= 0; i-- {
		if wait := p.gates[i].demandAtHead(ctx, t.N, limits.ByParent); wait.For > 0 {
			return no(&p.gates[i].turnstile, wait, nil)
		}
		if i > 0 && p.gates[i].queue.Passed() {
			return queue.Wait{}, &refusal{by: &p.gates[i].turnstile, wait: queue.Wait{For: 1}, passed: true} // behind those, it asks again
		}
	}
	steps := p.gates[0].steps
	if wait, by, err := takeAll(ctx, t.N, steps, p.behind(t.N)); wait > 0 || err != nil {
		by.gate.noteHeldBy(by.cause(), wait)
		return no(by.gate, queue.Wait{For: wait, Sure: wait, By: by.bell}, errs.Named(string(by.cause()), err))
	}
	g, wait, err := commit(ctx, t, p.gates)
	if g != nil {
		giveBack(ctx, t.N, steps)
		return no(&g.turnstile, wait, err)
	}
	return wait, nil
}

// mostCost is as much as behind says of a gate, so that nothing overflows.
const mostCost = 1 << 40

// behind returns the calls that wait for the gates of p behind one of n, and have room there.
func (p *path) behind(n int64) (b behind) {
	if !slices.ContainsFunc(p.gates[0].steps, step.remote) {
		return b
	}
	room := behind{math.MaxInt64, math.MaxInt64}
	for _, g := range p.gates {
		g.queue.Lock()
		calls := max(0, int64(g.queue.Len())-1)
		cost := max(0, g.queue.Weight()-n)
		limit, left := g.room.limit, g.room.limit-g.room.used()-g.room.unit.of(n)
		g.queue.Unlock()
		if g.rateUnit != Cost { // then the queue adds up calls
			cost = calls * min(n, mostCost)
		}
		b.calls, b.cost = b.calls+calls, b.cost+min(cost, mostCost)
		switch {
		case limit == 0:
		case g.room.unit == Cost:
			room.cost = min(room.cost, max(0, left))
		default:
			room.calls = min(room.calls, max(0, left))
		}
	}
	if b.calls > room.calls {
		b = behind{room.calls, b.cost / b.calls * room.calls}
	}
	return behind{b.calls, min(b.cost, room.cost)}
}

// commit takes the room and the slots of all gates of p at one instant and returns the receipt
// for that, or which gate refuses, and for how long or with which error.
func commit(ctx context.Context, t queue.Turn, p []*Gate) (refuses *Gate, wait queue.Wait, err error) {
	for i := len(p) - 1; i >= 0; i-- {
		p[i].queue.Lock()
		defer p[i].queue.Unlock()
	}
	if err := ctx.Err(); err != nil {
		return p[0], queue.Wait{}, err // gave up while a limit was being asked
	}
	for i, g := range p {
		err, wait := g.queue.Closed(), queue.Wait{}
		if err == nil {
			wait = g.demand(g.queue.Now(), t.N, g.costsOf(ctx))
		}
		if err == nil && wait.For == 0 && !g.room.take(t.N) {
			wait.For = queue.Forever // a call without the lock took the last place
		}
		if err != nil || wait.For > 0 {
			for _, g := range p[:i] {
				g.room.giveBack(t.N)
			}
			return g, wait, err
		}
	}
	// All of them are as late as the last of them: it was the others that the call had
	// waited for.
	at := time.Now()
	late := at.Sub(p[len(p)-1].queue.Epoch()) - t.Due
	for _, g := range p {
		late = min(late, at.Sub(g.queue.Epoch())-g.schedule.Slot())
	}
	var left queue.Receipt
	for i, g := range p {
		now := at.Sub(g.queue.Epoch())
		g.depart(now, now-max(0, late), t.N, g.costsOf(ctx)) // they would not wait, and nothing has changed
		switch number := g.departures.receipt(); {
		case i == 0:
			left.Own = number
		case number != 0 && left.Up == nil:
			left.Up = make([]uint32, len(p)-1)
			fallthrough
		case left.Up != nil:
			left.Up[i-1] = number
		}
	}
	return nil, queue.Wait{Receipt: left}, nil
}

// events are those of gates above that of a call, to be reported when its decision is
// over. They are collected while the call is first in the queue of its own gate: calls
// behind it must not wait for an observer, and a panic must not lose acquired units.
// No event is reported with a lock held.
type events []gateEvent

type gateEvent struct {
	gate  *Gate
	event Event
}

func (e *events) add(g *Gate, event Event) {
	if e != nil && g.observer != nil {
		*e = append(*e, gateEvent{g, event})
	}
}

func (e *events) report() {
	if e != nil {
		for _, one := range *e {
			one.gate.report(one.event)
		}
	}
}

// # The order in which limits are consulted
//
// A limit of this process costs next to nothing to consult and to return. A remote
// one costs a round trip to consult and another to return; meanwhile other callers are
// refused what was taken, and returning can fail. So limits of this process come
// first, those of a call's gate and of its parents; then the remote ones, as many as
// possible in one joint step, which takes from all of them or from none. Only what one
// step took before another step refused is returned.

// A step takes from one limit, or from several limits at once.
type step struct {
	joint limits.Joint // nil if there is one limit
	of    []ownedLimit
}

// An ownedLimit is a limit and its gate.
type ownedLimit struct {
	*Limit
	gate *turnstile
	bell *queue.Bell // of its Limiter; nil if that has none
}

// slow reports whether a limit of s may take long to answer: it is remote, or does not say that
// it notifies, which a limit of this process does.
func (s step) slow() bool {
	return slices.ContainsFunc(s.of, func(l ownedLimit) bool {
		_, remote := l.Limiter.(limits.Remote)
		return remote || l.bell == nil
	})
}

// stepsOf returns the steps for the limits of a gate and of its parents, which are gates. Those of its
// parent are above, if there is one.
func stepsOf(gates []*turnstile, above []step) []step {
	var local, remote []step
	for n, gate := range gates {
		for i := range gate.limits {
			l := ownedLimit{&gate.limits[i], gate, bellOf(gate.limits[i].Limiter)}
			switch _, ok := l.Limiter.(limits.Remote); {
			case !ok:
				local = append(local, step{of: []ownedLimit{l}})
			case n == 0 || len(remote) > 0:
				remote = join(remote, l)
			}
		}
	}
	if len(remote) == 0 {
		// The same as those of its parent: the Joint may have taken ahead for all children.
		remote = slices.DeleteFunc(slices.Clone(above), func(s step) bool { return !s.remote() })
	}
	return append(local, remote...)
}

// remote reports whether s asks over a network.
func (s step) remote() bool {
	_, ok := s.of[0].Limiter.(limits.Remote)
	return ok
}

// join adds l, which is remote, to the first step that it can join, or as a new step.
func join(steps []step, l ownedLimit) []step {
	for i := range steps {
		s := &steps[i]
		var others []limits.Limiter
		for _, o := range s.of[1:] {
			others = append(others, o.Limiter)
		}
		if joint := s.of[0].Limiter.(limits.Remote).Join(append(others, l.Limiter)...); joint != nil {
			s.joint, s.of = joint, append(s.of, l)
			return steps
		}
	}
	return append(steps, step{l.Limiter.(limits.Remote).Join(), []ownedLimit{l}})
}

// A behind is the calls that wait behind one.
type behind struct{ calls, cost int64 }

// of returns what the calls of b will take of l, as far as that is known.
func (b behind) of(l ownedLimit) int64 {
	switch l.Unit {
	case Calls:
		return b.calls
	case Cost:
		return b.cost
	}
	return 0
}

// take takes for a call of n, or returns how long to wait and the limit that refuses. b waits
// behind it.
func (s *step) take(ctx context.Context, n int64, b behind) (wait time.Duration, by ownedLimit, err error) {
	if s.joint == nil {
		if n = s.of[0].of(ctx, n); n > 0 {
			wait, err = s.of[0].Limiter.Admit(ctx, n)
		}
		return wait, s.of[0], err
	}
	all, any := make([]int64, 2*len(s.of)), false
	all, ahead := all[:len(s.of)], all[len(s.of):]
	for i, l := range s.of {
		all[i], ahead[i] = l.of(ctx, n), b.of(l)
		any = any || all[i] > 0
	}
	if !any {
		return 0, s.of[0], nil
	}
	wait, which, err := s.joint.AdmitAll(ctx, all, ahead)
	return wait, s.of[which], err
}

// takeAll takes from all steps for a call of n, or from none and returns how long to wait and the
// limit that refuses.
func takeAll(ctx context.Context, n int64, steps []step, b behind) (wait time.Duration, by ownedLimit, err error) {
	taken := 0
	defer func() {
		if taken < len(steps) { // a limit refuses, or has panicked
			giveBack(ctx, n, steps[:taken])
		}
	}()
	for i := range steps {
		if wait, by, err = steps[i].take(ctx, n, b); wait > 0 || err != nil {
			return wait, by, err
		}
		taken++
	}
	return 0, by, nil
}

// giveBack undoes takeAll for a call of n, also if ctx is done.
func giveBack(ctx context.Context, n int64, steps []step) {
	if len(steps) == 0 {
		return
	}
	ctx = bell.Quietly(context.WithoutCancel(ctx))
	for i := range steps {
		steps[i].adjust(ctx, 0, func(l ownedLimit) int64 { return -l.of(ctx, n) })
	}
}

// settle corrects by delta what the limits that count cost gave age ago.
func (s *step) settle(ctx context.Context, delta int64, age time.Duration) {
	s.adjust(ctx, age, func(l ownedLimit) int64 {
		if l.Unit == Cost {
			return delta
		}
		return 0
	})
}

func (s *step) adjust(ctx context.Context, age time.Duration, by func(ownedLimit) int64) {
	delta, any := make([]int64, len(s.of)), false
	for i, l := range s.of {
		delta[i] = by(l)
		any = any || delta[i] != 0
	}
	if !any {
		return
	}
	var lost []error
	if s.joint != nil {
		lost = s.joint.AdjustAll(ctx, delta, age)
	} else {
		lost = []error{s.of[0].Limiter.Adjust(ctx, delta[0], age)}
	}
	for i, err := range lost {
		if err != nil {
			s.of[i].gate.stranded.Add(1)
		}
	}
}
