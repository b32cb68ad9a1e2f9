package stall

import (
	"slices"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestLook(t *testing.T) {
	var w Watch
	start := time.Now()
	at := func(ms float64) time.Time { return start.Add(time.Duration(ms * float64(time.Millisecond))) }
	w.look(at(0), at(1))
	w.look(at(1), at(3.999))
	w.look(at(4), at(7))
	w.look(at(8), at(48))

	seen := w.Take()
	want := []Stall{{at(4), 3 * time.Millisecond}, {at(8), 40 * time.Millisecond}}
	if !slices.Equal(seen, want) {
		t.Errorf("seen %v, want %v", seen, want)
	}
	if got := Longest(seen); got != 40*time.Millisecond {
		t.Errorf("the longest %v, want 40ms", got)
	}
	if got := Total(seen); got != 43*time.Millisecond {
		t.Errorf("all of them %v, want 43ms", got)
	}
	if seen := w.Take(); len(seen) > 0 || Longest(seen) != 0 || Total(seen) != 0 {
		t.Errorf("taken twice: %v", seen)
	}
}

func TestEnd(t *testing.T) {
	New().End() // and goleak looks whether it has
}
