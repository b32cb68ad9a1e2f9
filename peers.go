package sluice

import (
	"context"
	"crypto/rand"
	"slices"
	"time"

	"github.com/sluice-go/sluice/ext/peers"
	"github.com/sluice-go/sluice/internal/adaptive"
)

// # Sharing what is learned
//
// A gate with Adaptive.Peers tells other processes what it learns, and takes its part of the
// limit. Package adaptive decides what to report and what to believe. Here is only the
// goroutine that does it: it begins with the first call and ends when no call has left or
// waited for a second, so that unused gates cost the group nothing. Calls never wait for it.
//
// A server may limit several units, see units.go, and processes need not use each of them
// alike. So each unit has a group of its own, of the gates whose calls take of it. A gate
// joins it with the first such call: the limit of tokens may be known to others before any
// call of this gate was refused.

// A peering is what a gate has to do with its groups. It is guarded by the lock of the queue.
type peering struct {
	gate    *listener
	life    context.Context // of the gate
	with    peers.Store
	id      string
	units   []*peerUnit // the first one is that of the first belief of a learner
	running bool
	ended   chan struct{} // closed when the goroutine has ended; nil: none began
	retired chan struct{} // takes a message when a Keyed has forgotten the gate
	next    int           // the first unit of the next exchange: those before had their turn
	paused  time.Duration // until then the gate is paused because another process was told to wait
}

// A peerUnit is what a gate has to do with the group of one unit.
type peerUnit struct {
	unit   Unit // of the first one, see given.unit
	group  string
	peer   *adaptive.Peer
	used   bool    // by a call since it left the group
	sent   float64 // what has left so far,
	denied float64 // and what of that the server refused
}

const (
	peeringLook    = 250 * time.Millisecond // between two looks whether to report
	peeringTimeout = time.Second            // of what is exchanged at one time
)

// newPeering returns the peering of a gate until the end of its life, nil if it shares nothing.
func newPeering(gate *listener, life context.Context) *peering {
	if gate.adaptive.Disabled || gate.adaptive.Peers == nil {
		return nil
	}
	p := &peering{gate: gate, life: life, with: gate.adaptive.Peers, id: rand.Text(), retired: make(chan struct{}, 1)}
	p.units = []*peerUnit{{group: gate.name, peer: adaptive.NewPeer(p.id)}}
	return p
}

// unitGroup returns the name of the group of a further unit of gates called name. What stands
// between the two is the unit separator of ASCII, which no name has.
func unitGroup(name string, unit Unit) string { return name + "\x1f" + string(unit) }

// use implements sharing.
func (p *peering) use(n int64, costs Costs) {
	if p.gate.queue.Closed() != nil {
		return
	}
	p.each(n, costs, func(u *peerUnit, _ int64) { u.used = true })
	if !p.running {
		p.running, p.ended = true, make(chan struct{})
		if len(p.retired) > 0 { // the goroutine before has not seen it
			<-p.retired
		}
		go p.exchange(p.ended)
	}
}

// started implements sharing.
func (p *peering) started(n int64, costs Costs) {
	p.each(n, costs, func(u *peerUnit, amount int64) { u.sent += float64(amount) })
}

// refused implements sharing. What the call was settled by before stands, so it had better be 0.
func (p *peering) refused(e *ending) {
	p.each(e.n, e.costs, func(u *peerUnit, amount int64) {
		switch unit := u.is(p); {
		case unit == Cost && e.settled:
		case unit != Cost && unit != Calls && e.settledCosts:
		default:
			u.denied += float64(amount)
		}
	})
}

// settle implements sharing.
func (p *peering) settle(unit Unit, delta int64) {
	u := p.further(unit, true)
	if unit == p.firstUnit() {
		u = p.units[0]
	}
	if u != nil {
		u.sent += float64(delta)
	}
}

// each calls f with each unit of a call of n with costs, and with what it takes of that.
func (p *peering) each(n int64, costs Costs, f func(u *peerUnit, amount int64)) {
	f(p.units[0], p.units[0].is(p).of(n))
	if n > 1 || len(p.units) > 1 {
		for _, unit := range [...]Unit{Calls, Cost} {
			if u := p.further(unit, n > 1); u != nil {
				f(u, unit.of(n))
			}
		}
	}
	for unit, amount := range costs {
		if amount > 0 && unit != Calls && unit != Cost && unit != "" {
			if u := p.further(unit, true); u != nil {
				f(u, amount)
			}
		}
	}
}

// further returns the group of a further unit, nil if unit is the first one. If it is new it is
// added, if add is true and there are not too many.
func (p *peering) further(unit Unit, add bool) *peerUnit {
	if unit == p.firstUnit() {
		return nil
	}
	for _, u := range p.units[1:] {
		if u.unit == unit {
			return u
		}
	}
	if !add || len(p.units) == mostUnits {
		return nil
	}
	u := &peerUnit{unit: unit, group: unitGroup(p.gate.name, unit), peer: adaptive.NewPeer(p.id)}
	p.units = append(p.units, u)
	if controller := p.controllerOf(u); controller != nil {
		u.peer.Begin(p.gate.queue.Now(), controller)
	}
	return u
}

// begin implements sharing.
func (p *peering) begin(unit Unit, controller *adaptive.Controller) {
	if peer := p.peerOf(unit); peer != nil {
		peer.Begin(p.gate.queue.Now(), controller)
	}
}

// scale implements sharing. The group keeps the controller that it has.
func (p *peering) scale(unit Unit, controller *adaptive.Controller) {
	if peer := p.peerOf(unit); peer != nil {
		peer.Scale(p.gate.queue.Now(), controller)
	}
}

// peerOf returns the peer of the group of unit, nil if there is none.
func (p *peering) peerOf(unit Unit) *adaptive.Peer {
	for _, u := range p.units {
		if u.unit == unit {
			return u.peer
		}
	}
	return nil
}

// is returns the unit of u.
func (u *peerUnit) is(p *peering) Unit {
	if u.unit == "" {
		return p.firstUnit()
	}
	return u.unit
}

// exchange reports and listens, as long as the gate is in use. It closes ended in the end.
func (p *peering) exchange(ended chan struct{}) {
	defer close(ended)
	ticker := time.NewTicker(peeringLook)
	defer ticker.Stop()
	for p.exchangeAll() {
		select {
		case <-ticker.C:
		case <-p.life.Done():
		case <-p.retired:
			p.stopUsing()
		}
	}
}

// retire makes a gate that a Keyed has forgotten leave its groups: another gate of its key
// may join them and needs the share. If the gate is used all the same, it joins them again.
func (p *peering) retire() {
	if p == nil {
		return
	}
	p.gate.queue.Lock()
	defer p.gate.queue.Unlock()
	if p.running && len(p.retired) == 0 {
		p.retired <- struct{}{}
	}
}

// stopUsing leaves all groups, until the next call.
func (p *peering) stopUsing() {
	p.gate.queue.Lock()
	for _, u := range p.units {
		u.used = false
	}
	p.gate.queue.Unlock()
	p.sayGoodbye()
}

// exchangeAll reports of each unit of which it is time to, and returns whether to go on. All of
// them together take no longer than peeringTimeout: if the store is slow, the next exchange begins
// with those that had no turn.
func (p *peering) exchangeAll() bool {
	ctx, cancel := context.WithTimeout(p.life, peeringTimeout)
	defer cancel()
	for i, u := range p.byTurn() {
		p.exchangeOf(ctx, u)
		if ctx.Err() != nil && i > 0 { // what is too slow even alone gives way to the others
			break
		}
		p.next++
	}
	p.gate.queue.Lock()
	closed := p.gate.queue.Closed() != nil
	p.running = !closed && slices.ContainsFunc(p.units, func(u *peerUnit) bool { return u.used })
	running := p.running
	p.gate.queue.Unlock()
	if closed {
		p.sayGoodbye()
	}
	return running
}

// byTurn returns the units, first those that have waited longest for an exchange.
func (p *peering) byTurn() []*peerUnit {
	p.gate.queue.Lock()
	defer p.gate.queue.Unlock()
	p.next %= len(p.units)
	return slices.Concat(p.units[p.next:], p.units[:p.next])
}

// exchangeOf reports of u if it is time, and believes the reply.
func (p *peering) exchangeOf(ctx context.Context, u *peerUnit) {
	report, used, due := p.reportOf(u)
	if !due {
		return
	}
	reply, err := p.with.Exchange(ctx, u.group, report)
	if used {
		p.heard(u, report, reply, err)
	}
}

// reportOf returns what to report of u, whether the gate uses it, and whether it is time to report.
func (p *peering) reportOf(u *peerUnit) (report peers.Report, used, due bool) {
	p.gate.queue.Lock()
	defer p.gate.queue.Unlock()
	now, controller := p.gate.queue.Now(), p.controllerOf(u)
	if u.unit == p.firstUnit() { // since SetRate: the first group counts that now
		u.used = false
		report, due = u.peer.Deregister(u.sent, u.denied)
		return report, false, due
	}
	if p.gate.queue.Closed() != nil || !u.used || !u.peer.Due(now, controller) {
		return report, false, false
	}
	report, used = u.peer.Report(now, controller, u.sent, u.denied, p.gate.queue.Len() > 0)
	u.used = used // or by a call that comes during the exchange
	return report, used, true
}

// sayGoodbye leaves the groups of a gate that was closed or forgotten, so that the others need
// not wait until its parts time out.
func (p *peering) sayGoodbye() {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(p.life), peeringTimeout)
	defer cancel()
	p.gate.queue.Lock()
	units := slices.Clone(p.units)
	p.gate.queue.Unlock()
	for _, u := range units {
		p.gate.queue.Lock()
		report, joined := u.peer.Deregister(u.sent, u.denied)
		p.gate.queue.Unlock()
		if joined {
			_, _ = p.with.Exchange(ctx, u.group, report)
		}
	}
}

// left blocks until a gate that was closed has said goodbye, for at most a second, or until ctx
// is done. A store that ignores its context, and an observer that shuts its gate down from the
// goroutine that would say goodbye, would otherwise block it for ever.
func (p *peering) left(ctx context.Context) {
	if p == nil {
		return
	}
	p.gate.queue.Lock()
	ended := p.ended
	p.gate.queue.Unlock()
	if ended == nil {
		return
	}
	timer := time.NewTimer(peeringTimeout)
	defer timer.Stop()
	select {
	case <-ended:
	case <-ctx.Done():
	case <-timer.C:
	}
}

// heard takes the reply to a report of u. Callers may leave earlier then, or wait longer.
func (p *peering) heard(u *peerUnit, report peers.Report, reply peers.Reply, err error) {
	if err != nil {
		p.lost(u)
		return
	}
	if news := p.noteHeard(u, report, reply); news != nil {
		p.gate.report(*news)
	}
	p.pause()
}

// lost notes that a report of u had no reply.
func (p *peering) lost(u *peerUnit) {
	p.gate.queue.Lock()
	defer p.gate.queue.Unlock()
	u.peer.Lost(p.gate.queue.Now(), p.controllerOf(u))
}

// noteHeard believes the reply to a report of u, and returns the event of a change of mind, or nil.
func (p *peering) noteHeard(u *peerUnit, report peers.Report, reply peers.Reply) (news *Event) {
	p.gate.queue.Lock()
	defer p.gate.queue.Unlock()
	now := p.gate.queue.Now()
	if p.controllerOf(u) == nil && u.peer.News(reply) {
		p.believe(now, u)
	}
	controller, before := p.controllerOf(u), uint64(0)
	if controller != nil {
		before = controller.Changes()
	}
	u.peer.Heard(now, controller, report, reply)
	if controller != nil {
		p.gate.learner.told(p.beliefOf(u), controller.Changes() > before)
	}
	return p.gate.changedMind(now)
}

// toldToPeers is Stats.PausedWhy of a pause that the server has told another process.
const toldToPeers = "another process was told to wait"

// pause pauses the gate for as long as the server has asked another process to wait. If that
// ends earlier than was thought, so does the pause, unless there is another reason for it.
func (p *peering) pause() {
	var left time.Duration
	p.gate.queue.Adjust(func(now time.Duration) (later bool) {
		until := p.gate.learner.toldToPeers()
		if until == p.paused || until <= now && p.paused <= now {
			return false
		}
		if p.gate.schedule.Paused() == p.paused {
			p.gate.schedule.Resume(now)
		}
		if p.paused = until; until <= p.gate.schedule.Paused() || until <= now {
			return false
		}
		p.gate.schedule.PauseUntil(until)
		p.gate.why = toldToPeers
		left = until - now
		return true
	})
	if left > 0 {
		p.gate.report(Event{Kind: EventPaused, Wait: left, Why: toldToPeers})
	}
}

// believe gives g a controller for the first news of u, unless there are too many units.
func (p *peering) believe(now time.Duration, u *peerUnit) {
	switch {
	case p.gate.learner != nil:
	case u == p.units[0]:
		p.gate.setLearner(p.gate.newLearner())
	default:
		p.gate.learn(p.gate.sofar(now), 1)
	}
	if u != p.units[0] {
		if b := p.gate.learner.add(u.unit); b != nil {
			b.controller = p.gate.further(u.unit)
			p.begin(u.unit, b.controller)
		}
	}
}

// beliefOf returns what g believes of the limit of u, nil if that is nothing.
func (p *peering) beliefOf(u *peerUnit) *belief {
	switch l := p.gate.learner; {
	case l == nil:
		return nil
	case u.unit == "":
		return &l.belief
	default:
		return l.known(u.unit)
	}
}

// controllerOf returns the controller that is shared in the group of u, or nil.
func (p *peering) controllerOf(u *peerUnit) *adaptive.Controller {
	if b := p.beliefOf(u); b != nil {
		return b.controller
	}
	return nil
}

// firstUnit returns the unit of the first belief of a learner, whether there is one or not.
func (p *peering) firstUnit() Unit {
	if p.gate.learner != nil {
		return p.gate.learner.unit
	}
	return p.gate.given.unit()
}
