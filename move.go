package sluice

import (
	"time"

	"github.com/sluice-go/sluice/internal/adaptive"
)

// # Calls that change their gate
//
// Whose limit a refusal is about is found out when calls wait already: those of the route that was
// refused, in the gate of the whole host. They must wait in another gate then, and those that are
// not concerned must not wait behind them. A call that waits has taken nothing, so it is enough to
// end its wait: TurnAway. It comes back through the other gate, in which it goes before those that
// came later.
//
// The call that was refused is under way. Its answer says nothing about the gate that it has left
// through, except that there is one call less: Move.

// Label gives the call a label other than 0, by which [Gate.TurnAway] finds it while it waits.
func (a *RetryLoop) Label(label uint32) { a.label = label }

// Move makes gate the gate of the next attempts, unless it is that already. Between Next and
// Done, gate is also the one that is paused if this attempt was throttled, and that learns from
// it, unless it has the same adaptive gate as before or no call has started through it yet. The
// gate before learns nothing from it.
func (a *RetryLoop) Move(gate *Gate) {
	if gate == a.through {
		return
	}
	in := gate.learnsIn()
	if in == a.gate { // which goes on to hear of its answers
		a.through = gate
		return
	}
	behind := a.gate.queue.Epoch().Sub(in.queue.Epoch())
	a.began += behind
	a.left = max(0, a.left+behind)
	a.through, a.gate, a.refused, a.place = gate, in, refusedCall{}, 0
	p := a.permit
	for a.permit = nil; p != nil && p.gate != nil && p.done.Load()&(released|answered) == 0; p = p.up {
		if p.gate == gate { // a parent, whose own permit tells it more
			a.permit, a.left = p, p.of(in).since
			return
		}
		p.gate.leaveOut(p)
	}
}

// Retract returns the permit of the last Next, whose attempt is not made and counts neither as an
// attempt nor as an answer. Its slot of the rate is lost.
func (a *RetryLoop) Retract() {
	if a.permit == nil {
		return
	}
	if p := a.permit; p.gate != nil && p.first(released) {
		p.end(adaptive.Unknown)
	}
	a.permit = nil
	a.attempts = max(0, a.attempts-1)
}

// TurnAway ends the waits of the calls that have a label for which which returns true: their
// [RetryLoop.Next] returns [ErrTurnedAway]. Nothing is taken, and Stats.Rejected does not count
// them; their event is EventRejected with the reason "moved". Calls without a label stay. which
// must return soon and must not use the gate.
func (g *Gate) TurnAway(which func(label uint32) bool) {
	g.queue.TurnAway(which)
	if k := g.claimants.Load(); k != nil {
		for gate := range k.all() {
			gate.queue.TurnAway(which)
		}
	}
}

// Part returns a gate for a part of the calls of g, such as those of one route: g is its
// Parent, and it adds separate limits, or none. Adaptive, IsThrottle, Observer, MaxWaiting and
// RetryBudget are as in g. It returns an error if g has a Semaphore, or for limits that [New]
// rejects.
func (g *Gate) Part(name string, more ...Limit) (*Gate, error) {
	g.queue.Lock()
	budget := g.budget.capacity
	g.queue.Unlock()
	part, err := New(Config{
		Name: name, Parent: g, Limits: more, MaxWaiting: g.maxWaiting,
		Adaptive: g.adaptive, IsThrottle: g.refusedBy, Observer: g.observer, RetryBudget: budget,
	})
	if err == nil {
		part.account, part.accountAhead = nil, 0 // it is there because it has a separate limit
	}
	return part, err
}

// AdmittedAt returns when p was admitted; the zero time if n was 0.
func (p *Permit) AdmittedAt() time.Time {
	if p == nil || p.gate == nil {
		return time.Time{}
	}
	return p.gate.queue.Epoch().Add(p.since)
}
