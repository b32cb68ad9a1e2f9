package main

import (
	"math"
	"strings"
	"testing"
)

// The best strategy comes first; goodput beyond what is possible does not count, and a
// world is counted as never adapted to if one run of it was.
func TestTable_Leaders(t *testing.T) {
	var b strings.Builder
	newTable([]Score{
		{World: "a", Strategy: "naive", Score: 10, Goodput: 1.2, Refused: .9, adapts: []float64{math.NaN()}},
		{World: "a", Strategy: "naive", Score: 12, Goodput: 1, Refused: .88, adapts: []float64{3}},
		{World: "b", Strategy: "naive", Score: 0, Goodput: 0, Refused: 1, adapts: []float64{1}},
		{World: "a", Strategy: "sluice-told", Score: 90, Goodput: .9, adapts: []float64{0}},
		{World: "b", Strategy: "sluice-told", Score: 80, Goodput: .8, adapts: []float64{0}},
	}).leaders(&b)
	lines := strings.Split(strings.TrimSpace(b.String()), "\n")
	want := []string{
		"| sluice-told | yes | 85.0 | 80.0 | 80.0 | 85.0 % | 0.0 % | 0 |",
		"| naive |  | 5.5 | 0.0 | 0.0 | 50.0 % | 94.5 % | 1 |",
	}
	if got := lines[len(lines)-2:]; got[0] != want[0] || got[1] != want[1] {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}
