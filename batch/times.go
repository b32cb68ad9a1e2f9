package batch

import "time"

// times are the times of an item: see [Result].
type times struct {
	Intended, Sent, Done time.Time
	Attempts             int
	Service              time.Duration
}

// queued returns the delay of the first attempt; 0 if it was early or there was none.
func (t times) queued() time.Duration {
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
