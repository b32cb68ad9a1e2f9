package kinds

import (
	"math"
	"strconv"
	"testing"
)

func TestBrief(t *testing.T) {
	for n, want := range map[int64]string{
		1: "1", 10: "10", 100: "100", 1000: "1e3", 1010: "1010", 25_000_000: "25e6",
		333_333_333: "333333333", 1e18: "1e18", math.MaxInt64: "9223372036854775807",
	} {
		got := brief(n)
		if back, err := strconv.ParseFloat(got, 64); got != want || err != nil || back != float64(n) {
			t.Errorf("%d: %q is %g, want %q", n, got, back, want)
		}
	}
}
