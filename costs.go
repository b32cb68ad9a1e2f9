package sluice

import (
	"context"
	"fmt"
	"maps"

	"github.com/sluice-go/sluice/limits"
)

// A Unit is what a limit counts: Calls, Cost or, in a [Limit], another word such as
// "tokens", which counts what [WithCosts] says. The empty Unit is the default of the field.
type Unit string

const (
	// Calls counts each call as 1, whatever its n.
	Calls Unit = "calls"

	// Cost counts a call as its n and, after Settle, as what it really cost.
	Cost Unit = "cost"
)

// of returns what a call of n counts.
func (u Unit) of(n int64) int64 {
	if u == Cost {
		return n
	}
	return min(n, 1)
}

// check returns an error unless u is empty, Calls or Cost.
func (u Unit) check(field string) error {
	switch u {
	case "", Calls, Cost:
		return nil
	}
	return fmt.Errorf("%s: unknown unit %q", field, u)
}

// Costs are the amounts of several units that one call takes, such as
//
//	sluice.Costs{"tokens": 1200, "input": 200, "output": 1000}
//
// Each amount is taken from the limits of a gate, and of its parents, that have that Unit.
// A unit that is missing is an amount of 0: the call takes nothing from such a limit and
// does not wait for it. No amount may be negative.
type Costs map[Unit]int64

type costsKey struct{}

// WithCosts returns a context for calls with costs, in place of those of ctx. Limits with
// the Unit Calls or Cost take no notice: they count the n of the call. So do calls with
// n = 0, which take nothing, and TryAcquire, which has no context. costs must not be
// changed afterwards. It panics if an amount is negative.
func WithCosts(ctx context.Context, costs Costs) context.Context {
	costs.mustNotBeNegative()
	return context.WithValue(ctx, costsKey{}, costs)
}

// costsOf returns the costs of ctx.
func costsOf(ctx context.Context) Costs {
	costs, _ := ctx.Value(costsKey{}).(Costs)
	return costs
}

func (c Costs) mustNotBeNegative() {
	for unit, n := range c {
		if n < 0 {
			panic(fmt.Sprintf("sluice: %s < 0: %d", unit, n))
		}
	}
}

// amount returns what a call of n with costs takes of unit.
func (c Costs) amount(unit Unit, n int64) int64 {
	if unit == Calls || unit == Cost {
		return unit.of(n)
	}
	return c[unit]
}

// countsCosts reports whether g or a parent needs to know what calls cost of several units: because
// it learns, or because others do.
func (g *Gate) countsCosts() bool {
	for ; g != nil; g = g.parent {
		if g.answersCount.Load() || g.peering != nil {
			return true
		}
	}
	return false
}

// An extra is what few permits have, in one word of a Permit: with two more words of its
// own it would not fit into 64 bytes.
type extra struct {
	lease  limits.Lease // nil if there is none
	costs  Costs
	actual Costs // as SettleCosts has said before the end; guarded by the lock of the gate's queue
}

// addCosts records the costs of ctx, with which p was granted, if a limit or a learner may
// count them.
func (p *Permit) addCosts(ctx context.Context) {
	if len(p.gate.steps) == 0 && !p.gate.countsCosts() {
		return
	}
	costs := costsOf(ctx)
	if costs == nil {
		return
	}
	for ; p != nil; p = p.up {
		if p.extra == nil {
			p.extra = new(extra)
		}
		p.extra.costs = costs
	}
}

// costs returns the costs that p was granted with, if any count.
func (p *Permit) costs() Costs {
	if p == nil || p.extra == nil {
		return nil
	}
	return p.extra.costs
}

// actual returns what SettleCosts has said before the call ended. The gate's queue is locked.
func (p *Permit) actual() Costs {
	if p.extra == nil {
		return nil
	}
	return p.extra.actual
}

// SettleCosts replaces amounts that the call was granted with by what it really took, as
// [Permit.Settle] does for n: what was too much is given back, and what was too little
// becomes debt. A unit that is missing in actual stays as it was. An amount of the unit Cost
// is passed to Settle, and one of the unit Calls is ignored. It may come before or after
// Release. Only the first SettleCosts of a permit counts. It panics if an amount is
// negative.
func (p *Permit) SettleCosts(actual Costs) {
	actual.mustNotBeNegative()
	if p.gate == nil || !p.first(settledCosts) {
		return
	}
	if n, ok := actual[Cost]; ok {
		p.Settle(n)
	}
	var before Costs
	if p.extra != nil {
		before = p.extra.costs
	}
	age, less := p.gate.queue.Now()-p.since, false
	for i := range p.gate.steps {
		p.gate.steps[i].adjust(context.Background(), age, func(l ownedLimit) int64 {
			n, known := actual[l.Unit]
			if !known || l.Unit == Calls || l.Unit == Cost {
				return 0
			}
			less = less || n < before[l.Unit]
			return n - before[l.Unit]
		})
	}
	for ; p != nil; p = p.up {
		if p.gate.countsCosts() {
			p.settleLearned(before, actual)
		}
		if less {
			p.gate.askAgain()
		}
	}
}

// settleLearned corrects what the learner of the gate of p counts of named units.
func (p *Permit) settleLearned(before, actual Costs) {
	g := p.gate
	g.queue.Lock()
	defer g.queue.Unlock()
	done := p.done.Load()
	if done&denied != 0 {
		return
	}
	if p.extra != nil && done&answered == 0 {
		p.extra.actual = maps.Clone(actual) // for its end
	}
	for unit, n := range actual {
		delta := n - before[unit]
		if unit == Calls || unit == Cost || delta == 0 {
			continue
		}
		g.peering.settle(unit, delta)
		if done&answered != 0 || before[unit] == 0 { // the end says nothing of it
			g.learner.settle(g.queue.Now(), p.since, unit, delta)
		}
	}
}

// askAgain makes the first caller in the queue ask its limits again: something was given
// back, which limits that are not Notifiers do not report.
func (g *Gate) askAgain() {
	g.queue.Lock()
	defer g.queue.Unlock()
	g.wake(g.queue.Now())
}
