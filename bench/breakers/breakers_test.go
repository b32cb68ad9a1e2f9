package main

import (
	"fmt"
	"math"
	"os"
	"strings"
	"testing"
)

// TestPage: the table of docs/circuit-breaker.md is that of this program, as far as chance allows.
func TestPage(t *testing.T) {
	page, err := os.ReadFile("../../docs/circuit-breaker.md")
	if err != nil {
		t.Skip("not a checkout")
	}
	for _, f := range faults {
		for _, c := range clients {
			begin := fmt.Sprintf("| %s | %s | ", f.name, c.name)
			_, row, ok := strings.Cut(string(page), "\n"+begin)
			if !ok {
				t.Errorf("the page has no row %s", begin)
				continue
			}
			var says figures
			var first string
			if _, err := fmt.Sscanf(row, "%f | %f %% | %f %% | %s | %f |", &says[attempts], &says[servedThen], &says[servedAfter], &first, &says[inFlight]); err != nil {
				t.Errorf("%s: %v", begin, err)
				continue
			}
			is := median(t, f, c)
			for _, i := range []int{servedThen, servedAfter} {
				if math.Abs(says[i]-is[i]) > 8 {
					t.Errorf("%s: the page says %.0f %%, it is %.0f %%", begin, says[i], is[i])
				}
			}
			for _, i := range []int{attempts, inFlight} {
				if math.Abs(says[i]-is[i]) > 3+says[i]/2 {
					t.Errorf("%s: the page says %.0f, it is %.0f", begin, says[i], is[i])
				}
			}
		}
	}
}
