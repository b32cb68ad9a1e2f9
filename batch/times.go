package batch

import "time"

// Times are the times of an item. The time from Intended to Sent is spent in the queue, the rest at
// the server and in backoffs. Measuring only from Sent to Done hides the calls that a stalled
// server prevents: coordinated omission (G. Tene: How NOT to Measure Latency, 2013).
type Times struct {
	// Intended is when the item should have started by the rate of the gate: one interval after the
	// item before or, if the input was late or there is no rate, when it was read. An item that
	// starts from a burst is early.
	Intended time.Time

	// Sent is when the first attempt started, zero if there was none. Done is when the last one
	// ended.
	Sent, Done time.Time

	// Attempts is the number of attempts, and Service the time they took together, without the
	// waits before them.
	Attempts int
	Service  time.Duration
}

// queued returns the delay of the first attempt; 0 if it was early or there was none.
func (t Times) queued() time.Duration {
	if t.Sent.IsZero() {
		return 0
	}
	return max(0, t.Sent.Sub(t.Intended))
}

// A timetable computes when items are intended to leave: with a rate, one interval after the item
// before, whatever happened to that. But an item that does not exist cannot start. The time that
// the input takes to yield an item after it was asked is its own; the delay before that is
// included in queueing:
//
//	slot      asked   came    intended
//	1.0 s     0.9 s   0.9 s   1.0 s   asked in time, and available
//	1.0 s     0.9 s   1.5 s   1.5 s   the input was 0.5 s late
//	1.0 s     3.0 s   3.0 s   1.0 s   the batch was 2 s late
//	1.0 s     3.0 s   3.2 s   1.2 s   the batch was 2 s late, then the input 0.2 s
//
// Intervals are truncated to a nanosecond, so after a million items at 3 per second the
// intended time is a third of a millisecond early.
type timetable struct {
	slot time.Time // of the item before; zero before the first one
}

// next returns the intended time of an item that was requested from the input at asked
// and yielded at came.
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
