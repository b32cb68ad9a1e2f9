package sluice

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/sluice-go/sluice/internal/adaptive"
)

// # Limits of several units
//
// A server may limit requests, input tokens and output tokens, each by itself. A gate whose
// calls take of several units has a belief of each: how much is used, and, as soon as a
// refusal is blamed on the unit, a controller that paces it. A call starts when the controllers of all
// units that it takes of let it. Package adaptive decides which unit is to blame if the
// answer does not say; only its controller learns from the throttled call.
//
// Nearly all gates have one unit: their calls cost 1 and have no Costs. They pay for none of
// this.

// A belief is the estimate of the limit of one unit.
type belief struct {
	unit       Unit
	controller *adaptive.Controller // nil until the unit is blamed; always there for the first unit
	suspect    adaptive.Suspect
	usual      correction
}

// An ending is a call that has ended, as a learner has to know it.
type ending struct {
	now, since            time.Duration // since when it was in flight
	n                     int64
	costs                 Costs  // with which it was accepted
	actual                Costs  // the amounts of SettleCosts
	delta                 int64  // by which Settle has changed n, if its end was not counted before
	settled, settledCosts bool   // Settle or SettleCosts was called
	departure             uint32 // the number of its record; 0: there is none
	repeated              bool   // the server had throttled the same call before
	atOnce                bool   // it was throttled because of those in flight, the server says

	// As of its end: see memory.endRecord.
	inFlight int64 // other calls
	charges  []charge
}

// amount returns the amount of unit with which the call was accepted.
func (e *ending) amount(unit Unit) int64 { return e.costs.amount(unit, e.n) }

// took returns the amount of unit that the call took, as far as is known.
func (e *ending) took(unit Unit) int64 {
	if unit == Cost {
		return e.n + e.delta
	}
	if actual, settled := e.actual[unit]; settled && unit != Calls {
		return actual
	}
	return e.amount(unit)
}

// mostUnits bounds the memory for a program that invents units.
const mostUnits = 8

// known returns the belief of a further unit, nil if there is none.
func (l *learner) known(unit Unit) *belief {
	if at, known := l.find(unit); known {
		return l.more[at]
	}
	return nil
}

// find returns where the belief of a further unit is, or would be, and whether there is one.
func (l *learner) find(unit Unit) (at int, known bool) {
	return slices.BinarySearchFunc(l.more, unit, func(b *belief, u Unit) int { return cmp.Compare(b.unit, u) })
}

// each calls f with each belief, that of the first unit first.
func (l *learner) each(f func(b *belief)) {
	f(&l.belief)
	for _, b := range l.more {
		f(b)
	}
}

// meet adds the units of a call that are new.
func (l *learner) meet(n int64, costs Costs) {
	if n > 1 {
		l.add(Calls)
		l.add(Cost)
	}
	for unit, amount := range costs {
		if amount > 0 && unit != Calls && unit != Cost {
			l.add(unit)
		}
	}
}

// add returns the belief of a further unit, a new one if it is new, nil if there are too
// many. The order does not depend on that of a map.
func (l *learner) add(unit Unit) *belief {
	at, known := l.find(unit)
	switch {
	case known:
		return l.more[at]
	case unit == l.unit:
		return &l.belief
	case len(l.more) == mostUnits-1:
		return nil
	}
	b := &belief{unit: unit}
	l.more = slices.Insert(l.more, at, b)
	return b
}

// demandAll returns how long a call that wants w has to wait for all units that it takes of. Only
// the unit for which it waits longest sees demand: the pace of another one does not delay the call.
func (l *learner) demandAll(now time.Duration, w want) time.Duration {
	var asked [mostUnits]bool
	for {
		var longest *belief
		var wait time.Duration
		which, i := 0, 0
		l.each(func(b *belief) {
			if b.controller != nil && w.amount(b.unit) > 0 && !asked[i] {
				if one := until(now, b.controller.Peek(now, int(w.inFlight))); longest == nil || one > wait {
					longest, wait, which = b, one, i
				}
			}
			i++
		})
		if longest == nil {
			return 0
		}
		if wait := until(now, longest.controller.Demand(now, int(w.inFlight))); wait > 0 {
			return wait
		}
		asked[which] = true // it lets the call start now
	}
}

// started records in d that a call with these wants starts.
func (b *belief) started(d *departure, now, late time.Duration, w want) {
	amount := w.amount(b.unit)
	if amount == 0 {
		return
	}
	c := charge{to: b, amount: b.usual.of(amount)}
	if b.controller != nil {
		b.controller.Late(late)
		c.call = b.controller.Started(now, c.amount, int(w.inFlight))
	}
	d.charges = append(d.charges, c)
}

// charged returns the call of e, if there is a controller, and its charge.
func (b *belief) charged(e *ending) (call adaptive.Call, charged float64) {
	if i := slices.IndexFunc(e.charges, func(c charge) bool { return c.to == b }); i >= 0 {
		call, charged = e.charges[i].call, e.charges[i].amount
	} else {
		charged = b.usual.of(e.amount(b.unit))
	}
	if b.controller != nil && (call == adaptive.Call{}) { // it left before there was a controller
		call = b.controller.Before(e.since, charged, int(e.inFlight))
	}
	return call, charged
}

// startedMore is started for a gate of several units; the first controller knows already.
func (l *learner) startedMore(d *departure, now, late time.Duration, w want) {
	for _, b := range l.more {
		b.started(d, now, late, w)
	}
	l.each(func(b *belief) {
		if amount := w.amount(b.unit); amount > 0 {
			b.suspect.Started(now, b.usual.of(amount))
		}
	})
}

// ended records how a call ended that was not throttled, and returns the amount that it took.
func (b *belief) ended(e *ending, reply adaptive.Reply) (took float64) {
	amount := e.amount(b.unit)
	if amount == 0 {
		return 0
	}
	call, charged := b.charged(e)
	took = math.Max(float64(e.took(b.unit)), leastCorrection*float64(amount))
	switch {
	case reply.Outcome == adaptive.Granted || e.took(b.unit) != amount:
		b.usual.learn(float64(amount), took)
	default:
		took = charged // it is not known
	}
	if took != charged {
		b.settle(e.now, e.since, took-charged)
	}
	if b.controller != nil {
		b.controller.Ended(e.now, call, reply)
	}
	return took
}

// settle adds delta to the amount of a call that started at since and was not throttled.
func (b *belief) settle(now, since time.Duration, delta float64) {
	b.suspect.Settle(delta)
	if b.controller != nil {
		b.controller.Settle(now, since, delta)
	}
}

// refusedBy records that a call was throttled, by the limit of blamed, or by chance if that is nil.
// It took nothing, whatever it was settled by.
func (l *learner) refusedBy(blamed *belief, e *ending, reply adaptive.Reply) {
	l.each(func(b *belief) {
		if e.amount(b.unit) == 0 {
			return
		}
		call, charged := b.charged(e)
		b.suspect.Denied(e.now, charged)
		switch {
		case b == blamed:
			b.controller.Ended(e.now, b.controller.Accused(call), reply)
		case b.controller != nil:
			b.controller.Elsewhere(e.now, call)
		}
	})
}

// blame returns the unit that has throttled a call, nil if that may be chance. named is the one
// that the answer names, and told says that it asks for a wait.
func (l *learner) blame(e *ending, named Unit, told bool) *belief {
	var units []adaptive.Candidate
	var beliefs []*belief
	last, known := 0, -1
	l.each(func(b *belief) {
		amount := b.usual.of(e.amount(b.unit))
		if b.unit == named || known < 0 && b == &l.belief && (named == Calls || named == Cost) {
			known = len(beliefs) // of calls that cost 1, both units are one
		}
		if b == l.blamed {
			last = len(beliefs)
		}
		units = append(units, adaptive.Candidate{Suspect: &b.suspect, Controller: b.controller, Cost: amount})
		beliefs = append(beliefs, b)
	})
	b := beliefs[last]
	switch {
	case known >= 0:
		b, told = beliefs[known], true
	case l.blamed != nil && units[last].Cost > 0 && (e.since < l.blamedAt || b.controller.Blocked()):
		return b // it belongs to the throttled call before
	default:
		b = beliefs[adaptive.Blame(e.now, units, last)]
	}
	if !l.accuse(e.now, b, told) {
		return nil
	}
	l.blamed, l.blamedAt = b, e.now+1
	return b
}

// accuse gives b a controller that can be blamed, and reports whether it is to be.
func (l *learner) accuse(now time.Duration, accused *belief, told bool) bool {
	paced := false
	l.each(func(b *belief) { paced = paced || b.callsPerSecond() > 0 })
	if accused.controller == nil {
		accused.controller = l.controllers.accused(now, accused.unit, &accused.suspect)
	}
	u := adaptive.Candidate{Suspect: &accused.suspect, Controller: accused.controller}
	return !paced || u.Accuse(now, told)
}

// told notes the report of another process about the limit of b, and whether that has changed the
// belief: then that limit has throttled a call, as far as is known the last one.
func (l *learner) told(b *belief, changed bool) {
	if l.more == nil {
		return
	}
	if now := b.controller.Belief(); now.Rate > 0 && now.Peers > 1 {
		b.suspect.Restore(now.Rate * now.Share) // which is the share of this gate
	}
	if changed {
		l.blamed = b
	}
}

// toldToPeers returns until when the server has asked another process to wait, for any unit; 0 if
// it has not.
func (l *learner) toldToPeers() (until time.Duration) {
	if l == nil {
		return 0
	}
	l.each(func(b *belief) {
		if b.controller != nil {
			until = max(until, b.controller.ToldToPeers())
		}
	})
	return until
}

// callsPerSecond returns the pace in calls, 0 if there is none.
func (b *belief) callsPerSecond() float64 {
	if b.controller == nil {
		return 0
	}
	return b.controller.CallsPerSecond()
}

// limited reports whether something was learned of the limit of this unit.
func (b *belief) limited() bool {
	return b.controller != nil && b.controller.Belief().Phase > adaptive.Unlimited
}

// several reports whether something was learned of other units than the one that was blamed
// last.
func (l *learner) several() (several bool) {
	l.each(func(b *belief) { several = several || b != l.blamed && l.blamed != nil && b.limited() })
	return several
}

// settle records that a call that has ended, and was not throttled, took delta more of unit than
// was known.
func (l *learner) settle(now, since time.Duration, unit Unit, delta int64) {
	if l == nil || delta == 0 {
		return
	}
	if b := l.add(unit); b != nil {
		b.usual.amend(float64(delta))
		b.settle(now, since, float64(delta))
	}
}

// # Where is the record of a call?
//
// When a call ends, a learner must know the amounts that were charged at its start, and the state
// of its controllers then. The goroutine of the call cannot keep that: the one that lets it leave
// is often another. So the record is written where the call starts, under the lock, and the permit
// has its number: the queue hands that over with the grant (queue.Receipt).
//
// Finding the record by the instant at which the call left needs no number, but a search among
// all that are in flight, and calls that left at one instant are exchanged. Under a parent, whose
// clock the permit reads a moment later, others are, too.

// departures are the records of the calls that have left a gate while it learned, and have not
// ended. Used records are used again. They are guarded by the lock of the queue.
type departures struct {
	records []departure // number 1 is the first
	free    uint32      // the first number that is free, see departure.next; 0: none
	last    uint32      // of the call that has left last, for receipt
	used    int
}

// A departure is the record of one call.
type departure struct {
	charges []charge // for each unit that it is to take of
	next    uint32   // the next free number, if this one is free
}

// A charge is the amount of one unit that a call was charged at its start.
type charge struct {
	to     *belief
	amount float64
	call   adaptive.Call // at its controller; zero if there was none
}

// add returns an empty record for a call that leaves.
func (d *departures) add() *departure {
	if d.last = d.free; d.last == 0 {
		d.records = append(d.records, departure{})
		d.last = uint32(len(d.records))
	}
	d.used++
	r := &d.records[d.last-1]
	d.free, r.next = r.next, 0
	r.charges = r.charges[:0]
	return r
}

// receipt returns the number of the record that was added since it was last called, 0 if none was.
func (d *departures) receipt() uint32 {
	last := d.last
	d.last = 0
	return last
}

// end ends the record number, if that is not 0, and returns its content, which is valid until a
// call starts.
func (d *departures) end(number uint32) []charge {
	if number == 0 {
		return nil
	}
	r := &d.records[number-1]
	d.free, r.next = number, d.free
	if d.used--; d.used == 0 && len(d.records) > mostUnused {
		d.records, d.free = nil, 0
	}
	return r.charges
}

// mostUnused is how many records are kept for calls to come while none is in flight.
const mostUnused = 256

// # How much will a call take?
//
// Callers estimate, and Settle reports the actual amount later. A program's estimates are usually
// wrong by one factor: it reserves all tokens that an answer may have, or counts calls as 1 and
// pages as they come. A controller that charged calls with their estimates would let too many leave
// until the first are settled, or let one leave after another if estimates are too high: each
// reserves more than is there until it ends. So a learner charges the amount that is expected, the
// estimate times the usual factor, and corrects that at its end.
//
// Without Settle the factor is 1, exactly.

// A correction is the usual factor between the estimates of one unit and the actual amounts.
// Its zero value has seen no call.
type correction struct {
	calls             float64
	estimated, actual float64 // means of a call
}

const (
	correctionWeight = .02     // of a call in the means
	leastCorrection  = 1. / 64 // the least share of its estimate that a call counts as: a unit that nothing is taken of has no pace
	// mostSurprise limits, as a multiple of the mean, the contribution of one call to it after the
	// first few: one that took a thousand times as much says nothing about the next.
	mostSurprise = 8
)

// of returns the expected amount of a call that is estimated at n.
func (c *correction) of(n int64) float64 { return float64(n) * c.factor() }

func (c *correction) factor() float64 {
	if c.estimated == 0 {
		return 1
	}
	return math.Max(leastCorrection, c.actual/c.estimated)
}

// learn notes a call that took actual, of which estimated was expected.
func (c *correction) learn(estimated, actual float64) {
	if c.calls++; c.calls > mostSurprise {
		actual = math.Min(actual, mostSurprise*math.Max(c.actual, estimated*leastCorrection))
	}
	w := c.weight()
	c.estimated += (estimated - c.estimated) * w
	c.actual += (actual - c.actual) * w
}

// amend notes that a call, of which learn knows, took delta more.
func (c *correction) amend(delta float64) {
	if c.calls > mostSurprise {
		delta = math.Min(delta, mostSurprise*c.actual)
	}
	c.actual = math.Max(0, c.actual+delta*c.weight())
}

func (c *correction) weight() float64 { return math.Max(correctionWeight, 1/math.Max(1, c.calls)) }
