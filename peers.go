package sluice

import (
	"context"
	"crypto/rand"
	"slices"
	"time"

	"github.com/sluice-go/sluice/internal/adaptive"
	"github.com/sluice-go/sluice/limits"
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
	with    limits.Peers
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
	unit   Unit // of the first one, see Gate.learningUnit
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

// newPeering returns the peering of a gate, nil if it shares nothing.
func newPeering(cfg Config) *peering {
	if cfg.Adaptive.Off || cfg.Adaptive.Peers == nil {
		return nil
	}
	p := &peering{with: cfg.Adaptive.Peers, id: rand.Text(), retired: make(chan struct{}, 1)}
	p.units = []*peerUnit{{group: cfg.Name, peer: adaptive.NewPeer(p.id)}}
	return p
}

// unitGroup returns the name of the group of a further unit of gates called name. What stands
// between the two is the unit separator of ASCII, which no name has.
func unitGroup(name string, unit Unit) string { return name + "\x1f" + string(unit) }

// use notes, with the queue locked, that a call of n with costs wants to leave.
func (p *peering) use(g *Gate, n int64, costs Costs) {
	if p == nil || g.queue.Closed() != nil {
		return
	}
	p.each(g, n, costs, func(u *peerUnit, _ int64) { u.used = true })
	if !p.running {
		p.running, p.ended = true, make(chan struct{})
		if len(p.retired) > 0 { // the goroutine before has not seen it
			<-p.retired
		}
		go g.exchange(p.ended)
	}
}

// started notes, with the queue locked, that a call of n with costs leaves.
func (p *peering) started(g *Gate, n int64, costs Costs) {
	if p != nil {
		p.each(g, n, costs, func(u *peerUnit, amount int64) { u.sent += float64(amount) })
	}
}

// refused notes, with the queue locked, that the server refused the call of n of permit, which
// may be nil. What the permit was settled by before stands, so it had better be 0.
func (p *peering) refused(g *Gate, n int64, permit *Permit) {
	if p == nil {
		return
	}
	done := uint32(0)
	if permit != nil {
		done = permit.done.Load()
	}
	p.each(g, n, permit.costs(), func(u *peerUnit, amount int64) {
		switch unit := u.is(g); {
		case unit == Cost && done&settled != 0:
		case unit != Cost && unit != Calls && done&settledCosts != 0:
		default:
			u.denied += float64(amount)
		}
	})
}

// settle notes, with the queue locked, that a call took so much more of unit.
func (p *peering) settle(g *Gate, unit Unit, delta int64) {
	if p == nil {
		return
	}
	u := p.further(g, unit, true)
	if unit == g.firstUnit() {
		u = p.units[0]
	}
	if u != nil {
		u.sent += float64(delta)
	}
}

// each calls f with each unit of a call of n with costs, and with what it takes of that.
func (p *peering) each(g *Gate, n int64, costs Costs, f func(u *peerUnit, amount int64)) {
	f(p.units[0], p.units[0].is(g).of(n))
	if n > 1 || len(p.units) > 1 {
		for _, unit := range [...]Unit{Calls, Cost} {
			if u := p.further(g, unit, n > 1); u != nil {
				f(u, unit.of(n))
			}
		}
	}
	for unit, amount := range costs {
		if amount > 0 && unit != Calls && unit != Cost && unit != "" {
			if u := p.further(g, unit, true); u != nil {
				f(u, amount)
			}
		}
	}
}

// further returns the group of a further unit, nil if unit is the first one. If it is new it is
// added, if add is true and there are not too many.
func (p *peering) further(g *Gate, unit Unit, add bool) *peerUnit {
	if unit == g.firstUnit() {
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
	u := &peerUnit{unit: unit, group: unitGroup(g.name, unit), peer: adaptive.NewPeer(p.id)}
	p.units = append(p.units, u)
	if rule := g.controllerOf(u); rule != nil {
		u.peer.Begin(g.queue.Now(), rule)
	}
	return u
}

// begin makes rule, which is new, that of the group of unit, if there is one. The group of the
// first unit is "".
func (p *peering) begin(g *Gate, unit Unit, rule *adaptive.Controller) {
	if peer := p.peerOf(unit); peer != nil {
		peer.Begin(g.queue.Now(), rule)
	}
}

// scale tells a new rule of unit its part. The group keeps the rule that it has.
func (p *peering) scale(g *Gate, unit Unit, rule *adaptive.Controller) {
	if peer := p.peerOf(unit); peer != nil {
		peer.Scale(g.queue.Now(), rule)
	}
}

// peerOf returns the peer of the group of unit, nil if there is none.
func (p *peering) peerOf(unit Unit) *adaptive.Peer {
	if p != nil {
		for _, u := range p.units {
			if u.unit == unit {
				return u.peer
			}
		}
	}
	return nil
}

// is returns the unit of u.
func (u *peerUnit) is(g *Gate) Unit {
	if u.unit == "" {
		return g.firstUnit()
	}
	return u.unit
}

// exchange reports and listens, as long as the gate is in use. It closes ended in the end.
func (g *Gate) exchange(ended chan struct{}) {
	defer close(ended)
	ticker := time.NewTicker(peeringLook)
	defer ticker.Stop()
	for g.exchangeAll() {
		select {
		case <-ticker.C:
		case <-g.life.Done():
		case <-g.peering.retired:
			g.stopUsing()
		}
	}
}

// retirePeering makes a gate that a Keyed has forgotten leave its groups: another gate of its key
// may join them and needs the share. If the gate is used all the same, it joins them again.
func (g *Gate) retirePeering() {
	p := g.peering
	if p == nil {
		return
	}
	g.queue.Lock()
	defer g.queue.Unlock()
	if p.running && len(p.retired) == 0 {
		p.retired <- struct{}{}
	}
}

// stopUsing leaves all groups, until the next call.
func (g *Gate) stopUsing() {
	g.queue.Lock()
	for _, u := range g.peering.units {
		u.used = false
	}
	g.queue.Unlock()
	g.sayGoodbye()
}

// exchangeAll reports of each unit of which it is time to, and returns whether to go on. All of
// them together take no longer than peeringTimeout: if the store is slow, the next exchange begins
// with those that had no turn.
func (g *Gate) exchangeAll() bool {
	p := g.peering
	ctx, cancel := context.WithTimeout(g.life, peeringTimeout)
	defer cancel()
	for i, u := range g.peerUnits() {
		g.exchangeOf(ctx, u)
		if ctx.Err() != nil && i > 0 { // what is too slow even alone gives way to the others
			break
		}
		p.next++
	}
	g.queue.Lock()
	closed := g.queue.Closed() != nil
	p.running = !closed && slices.ContainsFunc(p.units, func(u *peerUnit) bool { return u.used })
	running := p.running
	g.queue.Unlock()
	if closed {
		g.sayGoodbye()
	}
	return running
}

// peerUnits returns the units of g, first those that have waited longest for an exchange.
func (g *Gate) peerUnits() []*peerUnit {
	g.queue.Lock()
	defer g.queue.Unlock()
	p := g.peering
	p.next %= len(p.units)
	return slices.Concat(p.units[p.next:], p.units[:p.next])
}

// exchangeOf reports of u if it is time, and believes the reply.
func (g *Gate) exchangeOf(ctx context.Context, u *peerUnit) {
	report, used, due := g.reportOf(u)
	if !due {
		return
	}
	reply, err := g.peering.with.Exchange(ctx, u.group, report)
	if used {
		g.heard(u, report, reply, err)
	}
}

// reportOf returns what to report of u, whether the gate uses it, and whether it is time to report.
func (g *Gate) reportOf(u *peerUnit) (report limits.PeerReport, used, due bool) {
	g.queue.Lock()
	defer g.queue.Unlock()
	now, rule := g.queue.Now(), g.controllerOf(u)
	if u.unit == g.firstUnit() { // since SetRate: the first group counts that now
		u.used = false
		report, due = u.peer.Deregister(u.sent, u.denied)
		return report, false, due
	}
	if g.queue.Closed() != nil || !u.used || !u.peer.Due(now, rule) {
		return report, false, false
	}
	report, used = u.peer.Report(now, rule, u.sent, u.denied, g.queue.Len() > 0)
	u.used = used // or by a call that comes during the exchange
	return report, used, true
}

// sayGoodbye leaves the groups of a gate that was closed or forgotten, so that the others need
// not wait until its parts time out.
func (g *Gate) sayGoodbye() {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(g.life), peeringTimeout)
	defer cancel()
	g.queue.Lock()
	units := slices.Clone(g.peering.units)
	g.queue.Unlock()
	for _, u := range units {
		g.queue.Lock()
		report, joined := u.peer.Deregister(u.sent, u.denied)
		g.queue.Unlock()
		if joined {
			_, _ = g.peering.with.Exchange(ctx, u.group, report)
		}
	}
}

// left blocks until a gate that was closed has said goodbye, for at most a second, or until ctx
// is done. A store that ignores its context, and an observer that shuts its gate down from the
// goroutine that would say goodbye, would otherwise block it for ever.
func (g *Gate) left(ctx context.Context) {
	if g.peering == nil {
		return
	}
	g.queue.Lock()
	ended := g.peering.ended
	g.queue.Unlock()
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
func (g *Gate) heard(u *peerUnit, report limits.PeerReport, reply limits.PeerReply, err error) {
	if err != nil {
		g.lost(u)
		return
	}
	if news := g.noteHeard(u, report, reply); news != nil {
		g.report(*news)
	}
	g.pauseForPeers()
}

// lost notes that a report of u had no reply.
func (g *Gate) lost(u *peerUnit) {
	g.queue.Lock()
	defer g.queue.Unlock()
	u.peer.Lost(g.queue.Now(), g.controllerOf(u))
}

// noteHeard believes the reply to a report of u, and returns the event of a change of mind, or nil.
func (g *Gate) noteHeard(u *peerUnit, report limits.PeerReport, reply limits.PeerReply) (news *Event) {
	g.queue.Lock()
	defer g.queue.Unlock()
	now := g.queue.Now()
	if g.controllerOf(u) == nil && u.peer.News(reply) {
		g.believe(now, u)
	}
	controller, before := g.controllerOf(u), uint64(0)
	if controller != nil {
		before = controller.Changes()
	}
	u.peer.Heard(now, controller, report, reply)
	if controller != nil {
		g.learner.told(g.beliefOf(u), controller.Changes() > before)
	}
	return g.changedMind(now)
}

// toldToPeers is Stats.PausedWhy of a pause that the server has told another process.
const toldToPeers = "another process was told to wait"

// pauseForPeers pauses g for as long as the server has asked another process to wait. If that
// ends earlier than was thought, so does the pause, unless there is another reason for it.
func (g *Gate) pauseForPeers() {
	var left time.Duration
	g.queue.Adjust(func(now time.Duration) (later bool) {
		p := g.peering
		until := g.learner.toldToPeers()
		if until == p.paused || until <= now && p.paused <= now {
			return false
		}
		if g.schedule.Paused() == p.paused {
			g.schedule.Resume(now)
		}
		if p.paused = until; until <= g.schedule.Paused() || until <= now {
			return false
		}
		g.schedule.PauseUntil(until)
		g.why = toldToPeers
		left = until - now
		return true
	})
	if left > 0 {
		g.report(Event{Kind: EventPaused, Wait: left, Why: toldToPeers})
	}
}

// believe gives g a rule for the first news of u, unless there are too many units.
func (g *Gate) believe(now time.Duration, u *peerUnit) {
	switch {
	case g.learner != nil:
	case u == g.peering.units[0]:
		g.setLearner(newLearner(g))
	default:
		g.learn(now, 1)
	}
	if u != g.peering.units[0] {
		if b := g.learner.add(u.unit); b != nil {
			b.controller = g.furtherController(u.unit)
			g.peering.begin(g, u.unit, b.controller)
		}
	}
}

// beliefOf returns what g believes of the limit of u, nil if that is nothing.
func (g *Gate) beliefOf(u *peerUnit) *belief {
	switch l := g.learner; {
	case l == nil:
		return nil
	case u.unit == "":
		return &l.belief
	default:
		return l.known(u.unit)
	}
}

// controllerOf returns the rule that is shared in the group of u, or nil.
func (g *Gate) controllerOf(u *peerUnit) *adaptive.Controller {
	if b := g.beliefOf(u); b != nil {
		return b.controller
	}
	return nil
}

// firstUnit returns the unit of the first belief of a learner, whether there is one or not.
func (g *Gate) firstUnit() Unit {
	if g.learner != nil {
		return g.learner.unit
	}
	return g.learningUnit()
}

// countsCosts reports whether g needs to know what calls cost of several units: because it
// learns, or because others do.
func (g *Gate) countsCosts() bool { return g.answersCount.Load() || g.peering != nil }

// countsCosts reports whether a gate of p does.
func (p *Permit) countsCosts() bool {
	for ; p != nil; p = p.up {
		if p.gate.countsCosts() {
			return true
		}
	}
	return false
}
