package batch

import (
	"context"
	"math"
	"strings"
	"testing"

	"github.com/sluice-go/sluice"
)

// Each number of a Config is either rejected immediately, by an error with the number
// and the bound in it, or does what it says, however large it is. Nothing panics.
func TestConfig_HugeNumbers(t *testing.T) {
	for name, v := range map[string]struct {
		cfg  Config[int]
		want string // of the error; empty: none
	}{
		"Ahead, the most":       {Config[int]{ReadAhead: maxAhead}, ""},
		"Ahead, one more":       {Config[int]{ReadAhead: maxAhead + 1}, "Ahead of 1048577: at most 1048576"},
		"Ahead, all there is":   {Config[int]{ReadAhead: math.MaxInt}, "at most 1048576"},
		"Ahead, least":          {Config[int]{ReadAhead: math.MinInt}, "negative Ahead"},
		"Fails":                 {Config[int]{Halt: Halt{Fails: math.MaxInt64}}, ""},
		"Fails, least":          {Config[int]{Halt: Halt{Fails: math.MinInt64}}, "negative Fails"},
		"Successes":             {Config[int]{Halt: Halt{Successes: math.MaxInt64}}, ""},
		"Successes, least":      {Config[int]{Halt: Halt{Successes: math.MinInt64}}, "negative Successes"},
		"AtLeast":               {Config[int]{Halt: Halt{FailPercent: 1, AtLeast: math.MaxInt64}}, ""},
		"AtLeast, least":        {Config[int]{Halt: Halt{AtLeast: math.MinInt64}}, "negative AtLeast"},
		"FailPercent, too much": {Config[int]{Halt: Halt{FailPercent: math.MaxFloat64}}, "not from 0 to 100"},
		"FailPercent, NaN":      {Config[int]{Halt: Halt{FailPercent: math.NaN()}}, "not from 0 to 100"},
	} {
		t.Run(name, func(t *testing.T) {
			called := 0
			err := ForEach(t.Context(), newGate(t, sluice.Config{Concurrency: 1}), count(3), func(context.Context, int) error {
				called++
				return nil
			}, v.cfg)
			switch {
			case v.want == "" && (err != nil || called != 3):
				t.Errorf("%d calls, %v", called, err)
			case v.want != "" && (called != 0 || err == nil || !strings.Contains(err.Error(), v.want)):
				t.Errorf("%d calls, %v, want %q", called, err, v.want)
			}
		})
	}
}

// The default of Ahead is bounded as Ahead is, and huge items take no memory
// before they are read.
func TestConfig_AheadOfAHugeGate(t *testing.T) {
	type page [1 << 15]byte
	input := func(yield func(page) bool) { yield(page{}) }
	for _, concurrency := range []int64{maxAhead, math.MaxInt32} {
		err := ForEach(t.Context(), newGate(t, sluice.Config{Concurrency: concurrency}), input,
			func(context.Context, page) error { return nil }, Config[page]{})
		if err != nil {
			t.Error(err)
		}
	}
}
