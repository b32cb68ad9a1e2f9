package engine

import (
	"testing"
	"time"
)

// instants converts seconds.
func instants(at ...float64) (all []time.Duration) {
	for _, t := range at {
		all = append(all, seconds(t))
	}
	return all
}

func TestBusiest(t *testing.T) {
	for _, test := range []struct {
		at   []time.Duration
		want int
	}{
		{nil, 0},
		{instants(3), 1},
		{instants(0, 1, 2), 1},    // a second does not have both of its ends
		{instants(0, .999, 1), 2}, // from 0, and from 0.999
		{instants(0, .9, 1.1, 1.8), 3},
		{instants(5, 5, 5), 3},
	} {
		if got := busiest(test.at); got != test.want {
			t.Errorf("%v: %d, want %d", test.at, got, test.want)
		}
	}
}

func TestEvenness(t *testing.T) {
	var even, paused, clumps []time.Duration
	for i := range 41 {
		even = append(even, time.Duration(i)*100*time.Millisecond)
		clumps = append(clumps, time.Duration(i/4)*400*time.Millisecond)
		at := time.Duration(i) * 100 * time.Millisecond
		if i > 20 {
			at += 30 * time.Second
		}
		paused = append(paused, at)
	}
	for _, test := range []struct {
		name string
		at   []time.Duration
		want float64
	}{
		{"none", nil, -1},
		{"two calls have one gap", instants(0, 1), -1},
		{"all alike", even, 1},
		{"a pause is one uneven gap of 40", paused, 39. / 40},
		{"four at once, always: gaps of 0 and of four times the mean", clumps, 0},
		{"all at once", instants(2, 2, 2, 2), 0},
		{"gaps of 1, 2 and 3 s, mean 2", instants(0, 1, 3, 6), 1},
		{"gaps of 1, 1 and 10 s, mean 4", instants(0, 1, 2, 12), 0},
	} {
		if got := evenness(test.at); got != test.want {
			t.Errorf("%s: %g, want %g", test.name, got, test.want)
		}
	}
}
