package arrivals

import (
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestSummary(t *testing.T) {
	const ms = time.Millisecond
	tests := []struct {
		name string
		at   []time.Duration
		want Summary
	}{
		{"none", nil, Summary{}},
		{"one", []time.Duration{7 * ms}, Summary{Count: 1}},
		{"two at once", []time.Duration{7 * ms, 7 * ms}, Summary{Count: 2}},
		{"even", []time.Duration{0, 10 * ms, 20 * ms, 30 * ms},
			Summary{Count: 4, PerSecond: 100, P50: 10 * ms, P99: 10 * ms}},
		{"out of order", []time.Duration{20 * ms, 0, 30 * ms, 10 * ms},
			Summary{Count: 4, PerSecond: 100, P50: 10 * ms, P99: 10 * ms}},
		{"a start later than zero", []time.Duration{-5 * ms, 15 * ms},
			Summary{Count: 2, PerSecond: 50, P50: 20 * ms, P99: 20 * ms}},
		{"uneven", []time.Duration{0, 1 * ms, 3 * ms, 6 * ms, 10 * ms},
			Summary{Count: 5, PerSecond: 400, P50: 2 * ms, P99: 4 * ms}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var s Series
			for _, at := range tt.at {
				s.Add(at)
			}
			if got := s.Summary(); got != tt.want {
				t.Errorf("Summary() = %+v, want %+v", got, tt.want)
			}
		})
	}
}

// The 99th percentile of 100 gaps is the 99th of them, not the longest.
func TestPercentileOfHundred(t *testing.T) {
	var s Series
	at := time.Duration(0)
	s.Add(at)
	for i := range 100 {
		at += time.Duration(i + 1)
		s.Add(at)
	}
	if got := s.Summary(); got.P50 != 50 || got.P99 != 99 {
		t.Errorf("P50, P99 = %d, %d; want 50, 99", got.P50, got.P99)
	}
}

// Past the bound the gaps are those of the first arrivals, but the count and
// the rate go on being those of all.
func TestBoundedMemory(t *testing.T) {
	var s Series
	n := kept + 1000
	for i := range n {
		s.Add(time.Duration(i) * time.Millisecond)
	}
	if len(s.at) != kept {
		t.Errorf("kept %d instants, want %d", len(s.at), kept)
	}
	want := Summary{Count: int64(n), PerSecond: 1000, P50: time.Millisecond, P99: time.Millisecond}
	if got := s.Summary(); got != want {
		t.Errorf("Summary() = %+v, want %+v", got, want)
	}
}

func TestMost(t *testing.T) {
	var s Series
	if got := s.Most(1); got != 0 {
		t.Errorf("of nothing: %d", got)
	}
	for _, at := range []time.Duration{12, 0, 5, 1, 11, 10, 20} {
		s.Add(at)
	}
	for window, want := range map[time.Duration]int64{1: 1, 2: 2, 3: 3, 11: 4, 12: 5, 13: 6, 20: 6, 21: 7} {
		if got := s.Most(window); got != want {
			t.Errorf("in %d: %d, want %d", window, got, want)
		}
	}
}
