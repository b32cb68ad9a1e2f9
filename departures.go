package sluice

import "github.com/sluice-go/sluice/internal/adaptive"

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
