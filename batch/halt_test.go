package batch

import (
	"errors"
	"math"
	"strings"
	"testing"
)

func TestParseHalt(t *testing.T) {
	for s, want := range map[string]Halt{
		"never":            {},
		"soon,fail=1":      {Fails: 1},
		"now,fail=3":       {Now: true, Fails: 3},
		"soon,fail=10%":    {FailPercent: 10},
		"now,fail=0.5%":    {Now: true, FailPercent: 0.5},
		"soon,success=100": {Successes: 100},
	} {
		h, err := ParseHalt(s)
		if h != want || err != nil {
			t.Errorf("ParseHalt(%q) = %+v, %v; want %+v", s, h, err, want)
		}
		if h.String() != s {
			t.Errorf("%+v is written %q, want %q", h, h, s)
		}
	}
	for _, s := range []string{
		"", "soon", "soon,", "soon,fail", "soon,fail=", "soon,fail=0", "soon,fail=-1", "soon,fail=x", "later,fail=1",
		"soon,fail=101%", "soon,fail=0%", "soon,fail=-1%", "soon,fail=NaN%", "soon,success=5%", "soon,done=3",
		"fail=3", "soon,fail=9223372036854775808", "never,fail=1", "SOON,fail=1", "soon, fail=1",
	} {
		if h, err := ParseHalt(s); err == nil || h != (Halt{}) || !strings.Contains(err.Error(), "want never, or soon or now") {
			t.Errorf("ParseHalt(%q) = %+v, %v; want an error that says what is wanted", s, h, err)
		}
	}
}

func TestHalt_String(t *testing.T) {
	h := Halt{Now: true, Fails: 3, FailPercent: 12.5, Successes: 7}
	if got, want := h.String(), "now,fail=3 or now,fail=12.5% or now,success=7"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestHalt_Reached(t *testing.T) {
	for _, tt := range []struct {
		h          Halt
		ok, failed int64
		want       string // "" for not yet
	}{
		{Halt{}, 1 << 60, 1 << 60, ""},
		{Halt{Fails: 3}, 1000, 2, ""},
		{Halt{Fails: 3}, 0, 3, "batch: halted: 3 of 3 items failed"},
		{Halt{Fails: 3}, 7, 4, "batch: halted: 4 of 11 items failed"},
		{Halt{Successes: 3}, 2, 1000, ""},
		{Halt{Successes: 3}, 3, 1, "batch: halted: 3 items are ok"},
		{Halt{FailPercent: 10}, 0, 9, ""}, // all of them, but they are few
		{Halt{FailPercent: 10}, 9, 1, "batch: halted: 1 of 10 items failed"},
		{Halt{FailPercent: 10}, 10, 1, ""},
		{Halt{FailPercent: 10, AtLeast: 1}, 0, 1, "batch: halted: 1 of 1 items failed"},
		{Halt{FailPercent: 10, AtLeast: 1}, 0, 0, ""}, // of nothing, no share
		{Halt{FailPercent: 100}, 1, 1 << 40, ""},
		{Halt{FailPercent: 100}, 0, 1 << 40, "batch: halted: 1099511627776 of 1099511627776 items failed"},
		{Halt{Fails: 5, Successes: 2}, 2, 0, "batch: halted: 2 items are ok"},
	} {
		err := tt.h.reached(tt.ok, tt.failed)
		if tt.want == "" && err != nil || tt.want != "" && (err == nil || err.Error() != tt.want || !errors.Is(err, ErrHalted)) {
			t.Errorf("%+v after %d ok and %d failed: %v, want %q", tt.h, tt.ok, tt.failed, err, tt.want)
		}
	}
}

func TestHalt_Check(t *testing.T) {
	for _, h := range []Halt{
		{Fails: -1}, {Successes: -1}, {AtLeast: -1}, {FailPercent: -1}, {FailPercent: 100.1},
		{FailPercent: math.NaN()}, {FailPercent: math.Inf(1)},
	} {
		if h.check() == nil {
			t.Errorf("%+v was taken", h)
		}
	}
}
