package pacer

import "time"

// Slot returns when the call may start, or the zero time if it may not.
func (r Reservation) Slot() time.Time {
	slot, _, ok := r.slot()
	if !ok {
		return time.Time{}
	}
	return r.pacer.queue.Time(slot)
}

func (r Reservation) Err() error { return r.err() }
