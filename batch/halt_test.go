package batch

import (
	"errors"
	"math"
	"testing"
)

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
