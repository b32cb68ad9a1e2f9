package sluice

import (
	"testing"
	"time"
)

// A call waits until a spacing lets it leave, or until quiet has halved the spacing so that it
// does.
func TestBudget_Wait_QuietHalvesTheSpacing(t *testing.T) {
	const s = time.Second
	for _, c := range []struct {
		name                    string
		spacing, left, at, want time.Duration
	}{
		{"none", 0, 20 * s, 21 * s, 0},
		{"before it is halved", 5 * s, 20 * s, 21 * s, 4 * s},
		{"just when it is halved", 10 * s, 20 * s, 21 * s, 9 * s},
		{"halved at 30 s", 30 * s, 20 * s, 21 * s, 14 * s},
		{"over when it is halved", 12 * s, 20 * s, 21 * s, 9 * s},
	} {
		b := newBudget(0)
		b.spacing, b.left = c.spacing, c.left
		if got := b.wait(c.at); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

// A call that leaves after a long quiet ends the spacing, after which calls pass without the
// lock again.
func TestBudget_Leave_EndsASpacing(t *testing.T) {
	b := newBudget(0)
	b.spacing, b.tokens = 4*time.Millisecond, 50
	b.leave(quiet)
	if b.spacing != 2*time.Millisecond || b.tokens != 55 || b.since != quiet || b.left != quiet {
		t.Errorf("after %v: %+v", quiet, b)
	}
	b.leave(10 * quiet)
	if b.spacing != 0 || b.left != 10*quiet {
		t.Errorf("after %v: %+v", 10*quiet, b)
	}
}
