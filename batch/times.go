package batch

import "time"

// Times says when an item was called for.
type Times struct {
	// Intended is when the item should have left by the rate of the gate:
	// one interval after the item before, or when it was read if the input had
	// to be waited for. Without a rate it is when it was read.
	Intended time.Time

	// Sent is when its first attempt left, zero if there was none, and Done
	// when the last one was over.
	Sent, Done time.Time

	// Attempts is how many were made, and Service how long they took, all
	// together: without the waits before them.
	Attempts int
	Service  time.Duration
}

// Queued returns how late the first attempt left. It is 0 if there was none,
// and if it left early, as calls do from a burst.
func (t Times) Queued() time.Duration {
	if t.Sent.IsZero() {
		return 0
	}
	return max(0, t.Sent.Sub(t.Intended))
}

// A timetable says when items are intended to leave.
//
// # When should a call have left that did not?
//
// With a rate, one interval after the one before, whatever became of that: if
// the server stalls for 10 s, at 5 per second the next call is late by 10 s,
// the one after it by 9.8 s if it leaves at once, and by 10 s if it is paced.
// But an item that did not exist yet could not leave. The input is read only
// when there is room, so when it is asked late, it cannot be known when the
// item came to be; what can be known is how long the input took when it was
// asked. That time is the input's, and how late it was asked is the queue's:
//
//	slot      asked   came    intended
//	1.0 s     0.9 s   0.9 s   1.0 s   asked in time, and it was there
//	1.0 s     0.9 s   1.5 s   1.5 s   the input was late, by 0.5 s
//	1.0 s     3.0 s   3.0 s   1.0 s   we were late, by 2 s
//	1.0 s     3.0 s   3.2 s   1.2 s   we were late by 2 s, and then the input by 0.2 s
//
// An interval is cut to a nanosecond, so a million items at 3 per second are
// intended a third of a millisecond early at the end.
type timetable struct {
	slot time.Time // of the item before; zero before the first one
}

// next returns when an item is intended to leave that the input was asked for
// at one instant and gave at another.
func (t *timetable) next(asked, came time.Time, interval time.Duration) time.Time {
	if t.slot.IsZero() || interval == 0 {
		t.slot = came
		return came
	}
	t.slot = t.slot.Add(interval)
	late := max(0, asked.Sub(t.slot))
	if ready := came.Add(-late); ready.After(t.slot) {
		t.slot = ready
	}
	return t.slot
}
