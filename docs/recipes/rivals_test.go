package recipes

import (
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
)

// The columns of the first table of coming-from.md, in its order.
const (
	withSluice = iota
	withTime
	withSync
	withFailsafe
	libraries
)

var names = [libraries]string{"Sluice", "x/time/rate", "x/sync semaphore", "failsafe-go"}

// none is the cell of a library that does not have what the row is about.
const none = "–"

// A measure runs a library, in a bubble, and returns the words of its cell.
type measure func(t *testing.T) string

// A comparison is a row of the first table of coming-from.md. A library without a measure has
// the cell none.
type comparison struct {
	row   string
	cells [libraries]measure
}

// comparisons are all rows but those of unmeasured.
var comparisons = []comparison{
	{"a canceled wait returns its slot or permit", [libraries]measure{
		withSluice: gateCancelled, withTime: timeCancelled, withSync: syncCancelled, withFailsafe: failsafeCancelled,
	}},
	{"a new rate or limit reaches waiting callers", [libraries]measure{
		withSluice: gateChanged, withTime: timeChanged, withSync: syncChanged, withFailsafe: failsafeChanged,
	}},
	{"a cost per call, first come, first served", [libraries]measure{
		withSluice: gateCost, withTime: timeCost, withSync: syncCost, withFailsafe: failsafeCost,
	}},
	{"a wait that would miss its deadline fails immediately", [libraries]measure{
		withSluice: gateHopeless, withTime: timeHopeless, withSync: syncHopeless, withFailsafe: failsafeHopeless,
	}},
	{"concurrency and rate are taken together", [libraries]measure{
		withSluice: gateTogether, withFailsafe: failsafeTogether,
	}},
	{"a `Retry-After` delays", [libraries]measure{
		withSluice: gateRetryAfter, withFailsafe: failsafeRetryAfter,
	}},
	{"retries wait for the rate like other calls", [libraries]measure{
		withSluice: gateRetries, withFailsafe: failsafeRetries,
	}},
	{"a retry budget", [libraries]measure{
		withSluice: gateBudget, withFailsafe: failsafeBudget,
	}},
	{"finds a limit that is not configured", [libraries]measure{
		withSluice: gateFinds, withFailsafe: failsafeFinds,
	}},
	{"priorities", [libraries]measure{
		withFailsafe: failsafePriorities,
	}},
	{"hedged requests, circuit breakers", [libraries]measure{
		withFailsafe: failsafeHedges,
	}},
}

// unmeasured are the rows that are not about behavior.
var unmeasured = []string{"used in production"}

// TestRivals: each cell of the first table of coming-from.md says what the library did just
// now, in the version of go.mod.
func TestRivals(t *testing.T) {
	page, err := os.ReadFile("../coming-from.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := tableOf(string(page))
	for _, c := range comparisons {
		var cells []string
		for library, run := range c.cells {
			cell := none
			if run != nil {
				t.Run(c.row+"/"+names[library], func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) { cell = run(t) })
				})
			}
			cells = append(cells, cell)
		}
		if want := rows[c.row]; !slices.Equal(want, cells) {
			t.Errorf("coming-from.md, %q: the page says %q, the libraries %q", c.row, want, cells)
		}
		delete(rows, c.row)
	}
	for _, row := range unmeasured {
		delete(rows, row)
	}
	for row := range rows {
		t.Errorf("coming-from.md, %q: no test measures this row", row)
	}
}

// tableOf returns the cells of the first table of a page, by the first cell of the row.
func tableOf(page string) map[string][]string {
	rows := make(map[string][]string)
	for line := range strings.Lines(page) {
		cells := strings.Split(strings.TrimSpace(line), "|")
		switch {
		case len(cells) < 3 && len(rows) > 0:
			return rows
		case len(cells) < 3, strings.HasPrefix(line, "| |"), strings.HasPrefix(line, "| ---"):
			continue
		}
		cells = cells[1 : len(cells)-1]
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		rows[cells[0]] = cells[1:]
	}
	return rows
}

func TestTableOf(t *testing.T) {
	rows := tableOf("# x\n\n| | a | b |\n| --- | --- | --- |\n| one | 1 | – |\n| two | 2 | 3 |\n\n| three | 4 |\n")
	if len(rows) != 2 || !slices.Equal(rows["one"], []string{"1", none}) || !slices.Equal(rows["two"], []string{"2", "3"}) {
		t.Errorf("%q", rows)
	}
}
