package main

import (
	"testing"
	"time"
)

// steady adds calls at 1,000 per second.
func (s *seen) steady(from, to time.Duration) {
	for t := from; t < to; t += time.Millisecond {
		s.served = append(s.served, t)
	}
}

func TestSeen_At(t *testing.T) {
	s := seen{rate: 1000}
	s.steady(0, 2*time.Second)
	s.steady(3*time.Second, 5*time.Second)
	for i := 5 * time.Second; i < 6*time.Second; i += 2 * time.Millisecond {
		s.served = append(s.served, i) // at half the rate
	}
	for _, c := range []struct{ at, back time.Duration }{
		{0, 0},
		{time.Second, 0},
		{1800 * time.Millisecond, 1200 * time.Millisecond}, // too few until the gap
		{2 * time.Second, time.Second},
		{2500 * time.Millisecond, 500 * time.Millisecond},
		{4900 * time.Millisecond, -1}, // never again
	} {
		got := s.at(c.at).Back
		switch {
		case c.back < 0 && got != nil:
			t.Errorf("after a break at %v the throughput was back after %v s, although it was not", c.at, *got)
		case c.back >= 0 && (got == nil || time.Duration(*got*1e9).Round(time.Millisecond) != c.back):
			t.Errorf("after a break at %v the throughput was back after %v, want %v", c.at, after(got), c.back)
		}
	}
}

func TestSeen_Throttle(t *testing.T) {
	s := seen{rate: 1000}
	s.steady(0, 2003*time.Millisecond)
	s.steady(3*time.Second, 5*time.Second)
	got := s.throttle(2 * time.Second)
	if got.Early != 3 || after(got.Back) != "1.00 s" || got.Last != 0.002 {
		t.Errorf("%d early calls, the last after %v s, throughput back after %v; want 3, 0.002, 1.00 s", got.Early, got.Last, after(got.Back))
	}
	s = seen{rate: 1000}
	s.steady(0, 4*time.Second) // nobody paused
	if got := s.throttle(2 * time.Second); got.Early != 1000 {
		t.Errorf("%d early calls, want 1000", got.Early)
	}
}
