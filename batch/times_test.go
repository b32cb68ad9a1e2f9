package batch

import (
	"testing"
	"time"
)

func TestTimetable(t *testing.T) {
	start := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	type step struct{ asked, came, want time.Duration }
	const s, ms = time.Second, time.Millisecond
	for name, tt := range map[string]struct {
		interval time.Duration
		steps    []step
	}{
		"a list":          {s, []step{{0, 0, 0}, {0, 0, s}, {0, 0, 2 * s}, {2500 * ms, 2500 * ms, 3 * s}}},
		"first item late": {s, []step{{0, 5 * s, 5 * s}, {5 * s, 5 * s, 6 * s}}},
		"input late":      {s, []step{{0, 0, 0}, {900 * ms, 1500 * ms, 1500 * ms}, {1500 * ms, 1500 * ms, 2500 * ms}}},
		"we are late":     {s, []step{{0, 0, 0}, {3 * s, 3 * s, s}, {3 * s, 3 * s, 2 * s}, {4 * s, 4 * s, 3 * s}}},
		"both":            {s, []step{{0, 0, 0}, {3 * s, 3200 * ms, 1200 * ms}, {5 * s, 5 * s, 2200 * ms}}},
		"asked just then": {s, []step{{0, 0, 0}, {s, s, s}, {2 * s, 2 * s, 2 * s}}},
		"no rate":         {0, []step{{0, 0, 0}, {0, s, s}, {9 * s, 9 * s, 9 * s}}},
	} {
		var table timetable
		for i, st := range tt.steps {
			if got := table.next(start.Add(st.asked), start.Add(st.came), tt.interval).Sub(start); got != st.want {
				t.Errorf("%s, item %d: intended at %v, want %v", name, i, got, st.want)
			}
		}
	}
}

func TestTimes_Queued(t *testing.T) {
	at := time.Now()
	for _, tt := range []struct {
		times times
		want  time.Duration
	}{
		{times{Intended: at}, 0},
		{times{Intended: at, Sent: at.Add(time.Second)}, time.Second},
		{times{Intended: at, Sent: at.Add(-time.Second)}, 0}, // from a burst
	} {
		if got := tt.times.queued(); got != tt.want {
			t.Errorf("%+v: %v, want %v", tt.times, got, tt.want)
		}
	}
}

// The histogram of a tally says what that of a gate would.
func TestTally_Bucket(t *testing.T) {
	for d, want := range map[time.Duration]int{
		-1: 0, 0: 0, 1: 1, time.Microsecond: 1, 2*time.Microsecond - 1: 1, 2 * time.Microsecond: 2,
		time.Millisecond: 10, 1<<63 - 1: 43,
	} {
		if got := bucket(d); got != want {
			t.Errorf("bucket(%v) = %d, want %d", d, got, want)
		}
	}
}
