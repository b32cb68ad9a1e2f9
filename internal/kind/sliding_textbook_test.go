package kind

import (
	"math"
	"testing"
	"time"
)

// Each test here is a history in which a version from the textbooks and
// tutorials goes wrong, and is named after what is wrong with it.

// A sortedSet is that textbook version of the sliding window, faults included: it
// shows that the histories below are ones in which they matter. Score and member
// are the millisecond, and a call is added before it is counted.
type sortedSet map[int64]bool

func (s sortedSet) allowed(now time.Duration, limit int, period int32) bool {
	millis := now.Milliseconds()
	s[millis] = true
	for member := range s {
		if member <= millis-int64(period*1000) { // 32 bits
			delete(s, member)
		}
	}
	return len(s) <= limit
}

// Seed 003: calls are added before they are counted, so a caller that tries
// every half second gets 5 calls in 300 s, where 25 were due, and none later.
func TestSliding_RefusedCallsDoNotCount(t *testing.T) {
	var h SlidingState
	s := sortedSet{}
	got, theirs := 0, 0
	for at := time.Duration(0); at < 300*sec; at += sec / 2 {
		if (Sliding{5, 60 * sec}).Take(&h, at, 1).Allowed() {
			got++
		}
		if s.allowed(at, 5, 60) {
			theirs++
		}
	}
	if got != 25 || theirs != 5 {
		t.Errorf("%d calls in 300 s at 5 per minute and the textbook's %d, want 25 and 5", got, theirs)
	}
	if h.n != 5 || len(h.ring) > 8 {
		t.Errorf("600 calls left %d notes in %d places", h.n, len(h.ring))
	}
}

// The wait of a rejected call is not prolonged by other calls.
func TestSliding_RefusedCallsDoNotProlongTheWait(t *testing.T) {
	var h SlidingState
	r := Sliding{1, 10 * sec}
	r.Take(&h, 0, 1)
	for at := range 10 {
		now := time.Duration(at) * sec
		if got := r.Take(&h, now, 1); got.RetryAfter != 10*sec-now {
			t.Errorf("at %v: retry after %v", now, got.RetryAfter)
		}
	}
	if !r.Take(&h, 10*sec, 1).Allowed() {
		t.Error("refused when the wait is over")
	}
}

// Seed 003: the member is the millisecond, so that 50 calls in one are one.
func TestSliding_CallsOfAMillisecondAreCounted(t *testing.T) {
	for _, apart := range []time.Duration{0, 1, time.Microsecond} { // 0: the same nanosecond
		var h SlidingState
		s := sortedSet{}
		got, theirs := 0, 0
		for i := range 50 {
			at := time.Duration(i) * apart
			if (Sliding{5, 60 * sec}).Take(&h, at, 1).Allowed() {
				got++
			}
			if s.allowed(at, 5, 60) {
				theirs++
			}
		}
		if got != 5 || theirs != 50 {
			t.Errorf("%d of 50 calls %v apart and the textbook's %d, want 5 and 50", got, apart, theirs)
		}
	}
}

// Seed 003: period·1000 in 32 bits is negative from 24.9 days on, and
// everything is allowed. Here the largest number is a window like any other.
func TestSliding_LongestWindow(t *testing.T) {
	s, theirs := sortedSet{}, 0
	for at := range 10 {
		if s.allowed(time.Duration(at)*sec, 2, 30*24*3600) {
			theirs++
		}
	}
	if theirs != 10 {
		t.Errorf("2 in 30 days: the textbook lets %d of 10 through", theirs)
	}
	for _, window := range []time.Duration{25 * 24 * time.Hour, 30 * 24 * time.Hour, math.MaxInt64/1000 + 1, math.MaxInt64 - 1, math.MaxInt64} {
		for _, start := range []time.Duration{0, sec, math.MinInt64 / 2, math.MaxInt64 - 2*sec} {
			h := SlidingState{last: start}
			r := Sliding{2, window}
			r.Take(&h, start, 2)
			got := r.Take(&h, start+sec, 1)
			if got.Allowed() || got.RetryAfter != window-sec || got.ResetAfter != window-sec {
				t.Errorf("window of %v from %v: %+v", window, start, got)
			}
		}
	}
}

// Clocks that count whole seconds, and fixed windows, let 2·N pass around an
// edge. There is no edge here.
func TestSliding_NoEdges(t *testing.T) {
	var h SlidingState
	r := Sliding{10, sec}
	bySecond := make(map[int64]int) // the textbook's counter
	theirs := 0
	for range 10 {
		r.Take(&h, sec-1, 1)
		bySecond[0]++
		theirs++
	}
	for _, at := range []time.Duration{sec - 1, sec, sec + 1, 2*sec - 2} {
		if r.Take(&h, at, 1).Allowed() {
			t.Errorf("an 11th call at %v", at)
		}
		for range 10 {
			if second := int64(at / sec); bySecond[second] < 10 {
				bySecond[second]++
				theirs++
			}
		}
	}
	if theirs != 20 {
		t.Errorf("the textbook's counter lets %d through within a second, want 20", theirs)
	}
	if got := r.Take(&h, 2*sec-1, 10); !got.Allowed() {
		t.Errorf("a second later: %+v", got)
	}
}
