package sluice

import (
	"context"
	"errors"
	"maps"
	"sync/atomic"
	"time"

	"github.com/sluice-go/sluice/internal/adaptive"
	"github.com/sluice-go/sluice/internal/errs"
	"github.com/sluice-go/sluice/internal/queue"
	"github.com/sluice-go/sluice/internal/reroute"
	"github.com/sluice-go/sluice/internal/schedule"
	"github.com/sluice-go/sluice/limits"
)

// A Permit is the right of one call to be in flight. It is safe for use by multiple
// goroutines.
type Permit struct {
	gate  *Gate   // nil if n was 0
	up    *Permit // of the gate's parent, if there is one
	extra *extra  // nil if there is none
	n     int64
	since time.Duration // when it was granted

	// These two are guarded by the lock of the gate's queue.
	held  int64 // cost in flight for it
	delta int64 // by which Settle has changed n, if its end was not counted before

	done atomic.Uint32

	departure uint32 // the number of its record in memory.departures; 0: there is none; before it is granted, see reroute.Label
}

// An extra has the fields that few permits have, in one word of a Permit: with two more words of its
// own it would not fit into 64 bytes.
type extra struct {
	lease  limits.Lease // nil if there is none
	costs  Costs
	actual Costs // as SettleCosts has said before the end; guarded by the lock of the gate's queue
}

// Events that happen to a permit only once: bits of Permit.done. Three fields would make it
// longer than 64 bytes, and Acquire a quarter slower.
const (
	released uint32 = 1 << iota
	settled
	answered // its end was counted by a ramp or a learner; set with the gate's queue locked
	settledCosts
	reported // by Done
	denied   // the server refused it; set with the gate's queue locked
	repeated // the same for the call, before and now
)

// first marks what as done and reports whether it was not done before.
func (p *Permit) first(what uint32) bool { return p.done.Or(what)&what == 0 }

// of returns the permit of the call of p that g has granted, nil if there is none.
func (p *Permit) of(g *Gate) *Permit {
	for p != nil && p.gate != nil && p.gate != g {
		p = p.up
	}
	return p
}

// acquire makes p the permit for a call of r, once that may leave. r is a pointer here
// and below because a copy each time took a tenth of a call that does not wait.
func (p *Permit) acquire(ctx context.Context, g *Gate, r *queue.Request) error {
	mustNotBeNegative(r.N)
	switch {
	case r.N == 0:
		return g.admitNothing(ctx)
	case g.semaphore != nil:
		return p.acquireLeased(ctx, g, r)
	}
	return p.takeTurn(ctx, g, r, nil, 0)
}

// acquireLeased is acquire for a gate with a Config.Semaphore.
func (p *Permit) acquireLeased(ctx context.Context, g *Gate, r *queue.Request) error {
	r.Max = max(0, r.Max)
	lease, waited, err := g.borrow(ctx, g.life, &g.queue, g.room.unit.of(r.N), r.Max)
	if err != nil {
		if reasonOf(err) == reasonOther { // it could not decide
			err = errs.Named(string(limits.BySemaphore), err)
		}
		return g.refuse(ctx, r.N, err)
	}
	defer func() {
		if p.gate == nil { // refused, or a limit panicked
			lease.Release()
		}
	}()
	if r.Max != queue.Forever {
		r.Max = max(0, r.Max-waited)
	}
	return p.takeTurn(ctx, g, r, lease, waited)
}

// takeTurn leaves immediately if that is possible without the lock, and otherwise waits in
// the queue of g. The call has waited for before already.
func (p *Permit) takeTurn(ctx context.Context, g *Gate, r *queue.Request, lease limits.Lease, before time.Duration) error {
	if r.N == 1 && g.ask == nil && ctx.Err() == nil {
		if now, v := g.admitUnlocked(); v == schedule.Leave {
			p.granted(ctx, g, 1, queue.Grant{At: now}, lease, nil, before)
			return nil
		}
	}
	if g.direct != nil && ctx.Err() == nil {
		if left, v := g.direct.passAll(ctx, r.N); v == schedule.Leave {
			p.granted(ctx, g, r.N, left, lease, g.parentsAdmitted(ctx, r.N), before)
			return nil
		}
	}
	var later *events
	r.Ask, later = g.asking()
	if r.Ask == nil && g.countsCosts() && costsOf(ctx) != nil {
		r.Ask = newPath(g.gates, nil).asks[0] // which sees the context, and so the costs
	}
	left, waited, err := g.queue.Acquire(ctx, *r)
	if err != nil {
		later.report()
		if errors.As(err, new(*queue.TurnedAway)) {
			return g.turnedAway(ctx, r.N, err)
		}
		return g.refuse(ctx, r.N, err)
	}
	p.granted(ctx, g, r.N, left, lease, later, before+waited)
	return nil
}

// granted makes p the permit of a call of cost n that has left after wait, and reports it.
func (p *Permit) granted(ctx context.Context, g *Gate, n int64, left queue.Grant, lease limits.Lease, later *events, wait time.Duration) {
	g.waits.add(wait)
	p.fill(g, n, left, lease)
	p.addCosts(ctx)
	if g.observed {
		p.reportGranted(ctx, later, wait)
	}
}

// fill makes p the permit of a call of cost n that has left.
func (p *Permit) fill(g *Gate, n int64, left queue.Grant, lease limits.Lease) {
	p.gate, p.n, p.since, p.held, p.departure = g, n, left.At, n, left.Receipt.Own
	if lease != nil {
		p.extra = &extra{lease: lease}
	}
	if g.parent != nil {
		p.up = new(Permit)
		up := queue.Grant{At: g.parent.queue.Now()}
		if above := left.Receipt.Up; above != nil {
			up.Receipt = queue.Receipt{Own: above[0], Up: above[1:]}
		}
		p.up.fill(g.parent, n, up, nil)
	}
}

// reportGranted reports that p was granted after wait, to the observers of the parents
// first. If an observer panics, p is returned: its caller will never see it.
func (p *Permit) reportGranted(ctx context.Context, later *events, wait time.Duration) {
	done := false
	defer func() {
		if !done {
			p.first(released) // also if the caller has p, see RetryLoop.NextIn
			p.giveBack(adaptive.Unknown)
		}
	}()
	later.report()
	p.gate.report(Event{Kind: EventAdmitted, Context: ctx, N: p.n, Wait: wait})
	done = true
}

func init() {
	reroute.Label = func(permit any, label uint32) { permit.(*Permit).departure = label }
	reroute.AdmittedAt = func(permit any) time.Time { return permit.(*Permit).admittedAt() }
}

func (p *Permit) admittedAt() time.Time {
	if p == nil || p.gate == nil {
		return time.Time{}
	}
	return p.gate.queue.Epoch().Add(p.since)
}

// Release ends the call and lets the next one in. Only the first Release of a permit
// has an effect. Release of the nil permit that comes with an error does nothing.
func (p *Permit) Release() {
	if p != nil && p.gate != nil && p.first(released) {
		p.end(adaptive.Granted)
	}
}

// end is the first Release. It counts the call as answered by outcome if nothing has before.
func (p *Permit) end(outcome adaptive.Outcome) {
	if !p.gate.observed {
		p.giveBack(outcome)
		return
	}
	held := p.gate.queue.Now() - p.since // before giveBack, which may take a round trip
	p.giveBack(outcome)
	p.reportReleased(held)
}

// giveBack returns the units that p holds. It takes the lock only if a caller waits for the
// room or Shutdown does, if concurrency counts cost, or in a slow start.
func (p *Permit) giveBack(outcome adaptive.Outcome) {
	g := p.gate
	p.answer(outcome)
	if g.room.unit == Cost {
		g.queue.Lock() // for Settle may change the amount that is held
		g.room.cost.Add(-p.held)
		p.held = 0
		g.queue.Unlock()
	}
	g.finish(p.since)
	if p.up != nil {
		p.up.first(released)
		p.up.giveBack(outcome)
	}
	if p.extra != nil && p.extra.lease != nil {
		p.extra.lease.Release()
	}
}

// reportReleased reports that p was released, to the observers of the parents first.
func (p *Permit) reportReleased(held time.Duration) {
	if p.up != nil {
		p.up.reportReleased(held)
	}
	p.gate.report(Event{Kind: EventReleased, N: p.n, Held: held})
}

// Settle replaces the n of the call by its actual cost, in the limits that count cost. If n was too
// much, the rest is returned; if it was too little, the rest becomes debt, even beyond the limit. It
// may come before or after Release. Only the first Settle counts; if n was 0 it does nothing. It
// panics if actual < 0.
func (p *Permit) Settle(actual int64) {
	mustNotBeNegative(actual)
	if p.gate == nil || !p.first(settled) {
		return
	}
	delta := actual - p.n
	if delta == 0 {
		return
	}
	age := p.gate.queue.Now() - p.since
	for i := range p.gate.steps {
		p.gate.steps[i].settle(context.Background(), delta, age)
	}
	for ; p != nil; p = p.up {
		p.settle(delta)
		if p.up != nil && p.gate.parent.shareUnit == Cost {
			p.gate.parent.queue.Correct(&p.gate.flow, delta)
		}
	}
}

// settle changes by delta the amount of p in the limits of its gate that count cost, except
// Config.Limits.
func (p *Permit) settle(delta int64) {
	g := p.gate
	if g.rateUnit == Cost {
		g.queue.Adjust(func(time.Duration) (later bool) {
			before := g.schedule.Slot()
			g.schedule.Adjust(delta)
			return g.schedule.Slot() > before
		})
	}
	g.queue.Lock()
	defer g.queue.Unlock()
	if g.room.unit == Cost && p.done.Load()&released == 0 {
		p.held += g.room.settle(delta)
	}
	switch done := p.done.Load(); {
	case done&denied != 0:
	case done&answered == 0:
		p.delta = delta // for its end
		g.share(Cost, delta)
	default:
		g.memory.settle(g.queue.Now(), p.since, Cost, delta)
		g.share(Cost, delta)
	}
	if delta < 0 && g.queue.Len() > 0 { // something came back
		g.wake(g.queue.Now())
	}
}

// Lost returns a channel that is closed if a permit of Config.Semaphore was lost before it was
// released, or nil if that cannot happen.
func (p *Permit) Lost() <-chan struct{} {
	if p.extra == nil || p.extra.lease == nil {
		return nil
	}
	return p.extra.lease.Lost()
}

// watch returns a context for the call that ends when the permit is lost.
func (p *Permit) watch(ctx context.Context) (context.Context, func()) {
	lost := p.Lost()
	if lost == nil {
		return ctx, func() {}
	}
	ctx, cancel := context.WithCancelCause(errs.Honest(ctx))
	go func() {
		select {
		case <-lost:
			cancel(limits.ErrLeaseLost)
		case <-ctx.Done():
		}
	}()
	return ctx, func() { cancel(context.Canceled) }
}

// Done reports how the call of a permit of [Gate.Acquire] ended, nil for a success, as [Gate.Do]
// does. It does not release the permit; call it before Release, which otherwise counts the call as
// a success. Only the first Done of a permit counts. Permits of [RetryLoop.Next] are reported to
// RetryLoop.Done instead.
func (p *Permit) Done(err error) {
	if p != nil && p.gate != nil && p.first(reported) {
		_ = p.gate.ended(err, p.since, p) // which is err
	}
}

// answer counts how the call ended in the ramps and learners of the gate and its
// parents, once, and ends its records.
func (p *Permit) answer(outcome adaptive.Outcome) {
	for ; p != nil; p = p.up {
		if g := p.gate; g != nil && (p.departure != 0 || g.answersCount.Load()) {
			g.answer(p, outcome)
		}
	}
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

// isCostly reports whether p was granted with more than one unit, or with costs.
func (p *Permit) isCostly() bool { return p != nil && (p.n > 1 || p.costs() != nil) }

// actual returns the amounts of SettleCosts, if it was called before the call ended. The gate's
// queue is locked.
func (p *Permit) actual() Costs {
	if p.extra == nil {
		return nil
	}
	return p.extra.actual
}

// SettleCosts replaces the estimated amounts of the call by the actual ones, as [Permit.Settle]
// does for n. A unit that is missing in actual stays as it was. An amount of [Cost] is passed to
// Settle, one of [Calls] is ignored. Only the first SettleCosts counts. It panics if an amount is
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

// ending returns the end, at now, of the call of p, which left at since. p may be nil; otherwise the
// gate's queue is locked.
func (p *Permit) ending(now, since time.Duration) ending {
	if p == nil {
		return ending{now: now, since: since, n: 1}
	}
	done := p.done.Load()
	return ending{
		now: now, since: since, n: p.n, costs: p.costs(), actual: p.actual(), delta: p.delta, departure: p.departure,
		settled: done&settled != 0, settledCosts: done&settledCosts != 0, repeated: done&repeated != 0,
	}
}

// settleLearned corrects the amounts of named units in the learner of the gate of p.
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
		g.share(unit, delta)
		if done&answered != 0 || before[unit] == 0 { // the end says nothing of it
			g.memory.settle(g.queue.Now(), p.since, unit, delta)
		}
	}
}
