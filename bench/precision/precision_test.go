package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluice-go/sluice/bench/internal/results"
)

func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == worker { // hired by a test
		work(os.Stdin, os.Stdout)
		return
	}
	if len(os.Args) == 2 && os.Args[1] == neighbor {
		spin()
		return
	}
	os.Exit(m.Run())
}

// even returns n instants at even spacing.
func even(n int, interval time.Duration) (t []time.Duration) {
	for i := range n {
		t = append(t, time.Duration(i)*interval)
	}
	return t
}

func TestJudge(t *testing.T) {
	const ms = time.Millisecond
	base := even(301, ms) // at 1,000 per second; 100 are left out, 200 gaps count
	tests := []struct {
		name   string
		change func(t []time.Duration) []time.Duration
		want   results.Cell
	}{
		{"even", func(t []time.Duration) []time.Duration { return t },
			results.Cell{Delivered: 1000}},
		{"one late, and nothing made up", func(t []time.Duration) []time.Duration {
			for i := 200; i < len(t); i++ {
				t[i] += 10 * ms
			}
			return t
		}, results.Cell{Delivered: 200 / 0.210, ErrMax: 10_000}},
		{"late, and all of it made up", func(t []time.Duration) []time.Duration {
			t[200] += 900 * time.Microsecond
			return t
		}, results.Cell{Delivered: 1000, ErrMax: 900, Ahead: 900}},
		// 200 was 80 ms late. 201 to 279 with it are 1 to 79 ms ahead of what that
		// allows, and all after it, at their own slots again, 80 ms: beyond MaxCatchUp
		// lateness is to be forfeit.
		{"eighty at once", func(t []time.Duration) []time.Duration {
			for i := 200; i < 280; i++ {
				t[i] = 280 * ms
			}
			return t
		}, results.Cell{Delivered: 1000, ErrMax: 80_000, ErrP50: 0, ErrP90: 1_000, ErrP99: 1_000, Ahead: 80_000, Early: 29 + 21}},
		{"twice as fast", func(t []time.Duration) []time.Duration { return even(len(t), ms/2) },
			results.Cell{Delivered: 2000, ErrP50: 500, ErrP90: 500, ErrP99: 500, ErrMax: 500, Ahead: 150_000, Early: 200}},
		{"too few", func(t []time.Duration) []time.Duration { return t[:101] }, results.Cell{}},
		{"none", func(t []time.Duration) []time.Duration { return nil }, results.Cell{}},
		// Those left out count for what is early.
		{"sixty at once among the first", func(t []time.Duration) []time.Duration {
			for i := 1; i < 61; i++ {
				t[i] = t[61]
			}
			return t
		}, results.Cell{Delivered: 1000, Ahead: 60_000, Early: 9 + 240}},
	}
	for _, test := range tests {
		got := judge(test.change(slices.Clone(base)), 1000)
		gaps := got.Gaps
		got.Gaps, got.DeliveredMax = nil, 0
		if d := got.Delivered - test.want.Delivered; d > 1e-6 || d < -1e-6 {
			t.Errorf("%s: delivered %v, want %v", test.name, got.Delivered, test.want.Delivered)
		}
		got.Delivered = test.want.Delivered
		a, _ := json.Marshal(got)
		b, _ := json.Marshal(test.want)
		if string(a) != string(b) {
			t.Errorf("%s:\n got %s\nwant %s", test.name, a, b)
		}
		if got.Delivered > 0 && (len(gaps) != 101 || !slices.IsSorted(gaps)) {
			t.Errorf("%s: gaps are no percentiles: %v", test.name, gaps)
		}
	}
}

// TestMeasure measures each library, for real and for an instant: that calls start at all and the
// parts fit together. How fast they are is not checked here.
func TestMeasure(t *testing.T) {
	dir := t.TempDir()
	o, err := parse(strings.Fields("-rates 2000 -frozen 2000 -dur 1ms -runs 2 -callers 1,3"))
	if err != nil {
		t.Fatal(err)
	}
	o.out = filepath.Join(dir, "runs.json")
	o.libs = []string{"sluice", "ticker"}
	o.json = true
	var out strings.Builder
	if err := run(o, &out); err != nil {
		t.Fatal(err)
	}
	var cells []results.Cell
	if err := json.Unmarshal([]byte(out.String()), &cells); err != nil {
		t.Fatalf("%v in %s", err, out.String())
	}
	if len(cells) != 2*2*2 {
		t.Fatalf("%d cells, want 8", len(cells))
	}
	for _, c := range cells {
		// A machine that stalls for longer than a run lets one call start, which is no rate.
		stalled := c.Stall >= 1
		if c.Runs != 2 || c.Asked != 2000 || c.Delivered <= 0 && !stalled {
			t.Errorf("an unlikely cell: %+v", c)
		}
	}
	for _, name := range libraryNames() {
		if got := measure(order{Library: name, Callers: 2, Rate: 5000, Dur: 30 * time.Millisecond}); got.Library != name {
			t.Errorf("%s: %+v", name, got)
		}
	}
	again, err := results.ReadPrecision(o.out, o.out)
	if err != nil {
		t.Fatal(err)
	}
	if n := len(again.Runs); n != 2*2*8 {
		t.Errorf("%d runs in the file, read twice, want 32", n)
	}
	if text := report(again, again.Cells()); !strings.Contains(text, "| 3 | 2000 | **sluice** |") {
		t.Errorf("not in the table:\n%s", text)
	}
}

func TestCells(t *testing.T) {
	p := results.Precision{Runs: []results.Cell{
		{Library: "a", Asked: 10, Delivered: 9, CPU: 3, Ahead: 1, Early: 1, Stall: 7, Gaps: []float64{1, 2}},
		{Library: "b", Asked: 10, Delivered: 1},
		{Library: "a", Asked: 10, Delivered: 12, CPU: 1, Ahead: 5, Early: 2, Gaps: []float64{3, 4}},
		{Library: "a", Asked: 10, Delivered: 10, CPU: 2, Gaps: []float64{5, 6}},
		{Library: "a", Asked: 10, Delivered: 99, Frozen: 5},
	}}
	cells := p.Cells()
	if len(cells) != 3 {
		t.Fatalf("%d cells, want 3", len(cells))
	}
	p = results.Precision{Runs: []results.Cell{
		{Library: "a", ErrP99: 9, CPU: 9, Delivered: 1, Stall: 4},
		{Library: "a", ErrP99: 1, CPU: 1, Delivered: 2},
		{Library: "a", ErrP99: 8, CPU: 8, Delivered: 3, Stall: 5},
		{Library: "b", ErrP99: 7, Stall: 5},
	}}
	if a, b := p.Cells()[0], p.Cells()[1]; a.Quiet != 1 || a.ErrP99 != 1 || a.CPU != 1 || a.Delivered != 2 || b.Quiet != 0 || b.ErrP99 != 7 {
		t.Errorf("of the runs without a stall: %+v, %+v", a, b)
	}
	got := cells[0]
	if got.Runs != 3 || got.Delivered != 10 || got.DeliveredMax != 12 || got.CPU != 1.5 ||
		got.Ahead != 5 || got.Early != 3 || got.Stall != 7 || !slices.Equal(got.Gaps, []float64{3, 4}) {
		t.Errorf("got %+v", got)
	}
}

// TestGoals shows that each goal can be missed.
func TestGoals(t *testing.T) {
	good := results.Cell{Asked: 1000, Delivered: 999, DeliveredMax: 1000, ErrP99: 100, CPU: 0.05}
	bad := results.Cell{Asked: 1000, Delivered: 990, DeliveredMax: 1002, ErrP99: 200, CPU: 0.09, Early: 1}
	for _, g := range allGoals {
		for _, rate := range []float64{100, 1000, 20000} {
			scale := rate / 1000
			good, bad := good, bad
			good.Asked, good.Delivered, good.DeliveredMax = rate, 999*scale, 1000*scale
			bad.Asked, bad.Delivered, bad.DeliveredMax = rate, 980*scale, 1006*scale
			if rate == 100 {
				bad.ErrP99 = 501
			}
			if !g.at(good) {
				continue
			}
			if got, ok := g.of(good); !ok {
				t.Errorf("%s at %v: %s was not good enough", g.name, rate, got)
			}
			if got, ok := g.of(bad); ok {
				t.Errorf("%s at %v: %s was good enough", g.name, rate, got)
			}
		}
	}
}

// The highest rate of runs in which the machine stalled is not judged, nor is a cell that is
// compared with one of them.
func TestGoals_Stalled(t *testing.T) {
	fast := results.Cell{Asked: 1000, Delivered: 1000, DeliveredMax: 1010}
	if got, ok := delivered(99.5, 100.1)(fast); !ok {
		t.Errorf("stalled: %s", got)
	}
	fast.Quiet = 1
	if got, ok := delivered(99.5, 100.1)(fast); ok {
		t.Errorf("quiet: %s", got)
	}
	own := results.Cell{Work: "1 caller, 1,000/s", Library: "sluice", Asked: 1000, Delivered: 1000, CPU: 1, Quiet: 1}
	for quiet, want := range []string{"not judged", ", no**"} {
		text := report(&results.Precision{}, []results.Cell{own, {Work: own.Work, Library: "xtime", Asked: 1000, Delivered: 1000, Quiet: quiet}})
		_, line, _ := strings.Cut(text, "takes at most 1.1 ×")
		if line, _, _ = strings.Cut(line, "\n"); !strings.Contains(line, want) {
			t.Errorf("%d quiet runs of xtime: %q, want %s", quiet, line, want)
		}
	}
}

// Microseconds are a goal of the fine grain alone, and only where the machine did not stall.
func TestGoals_OfWhom(t *testing.T) {
	for _, test := range []struct {
		cell results.Cell
		want string // in the line of the goal; "" for no line
	}{
		{results.Cell{Library: "sluice-fine", Asked: 100, ErrP99: 600, Quiet: 1}, "**600 µs, no**"},
		{results.Cell{Library: "sluice-fine", Asked: 100, ErrP99: 600}, "not judged"},
		{results.Cell{Library: "sluice", Asked: 100, ErrP99: 600, Quiet: 1}, ""},
		{results.Cell{Library: "xtime", Asked: 100, ErrP99: 600, Quiet: 1}, ""},
	} {
		_, line, _ := strings.Cut(report(&results.Precision{}, []results.Cell{test.cell}), ": spacing error p99 ≤ 500 µs")
		if line, _, _ = strings.Cut(line, "\n"); !strings.Contains(line, test.want) || (line == "") != (test.want == "") {
			t.Errorf("%+v: %q", test.cell, line)
		}
	}
}

func TestGatesAreComparedWithAPlainOne(t *testing.T) {
	plain := results.Cell{Library: "gate", Asked: 1000, Callers: 8, Delivered: 950}
	cells := []results.Cell{
		{Library: "gate", Asked: 1000, Callers: 1, Delivered: 1000}, plain,
		{Library: "gate", Asked: 1000, Callers: 8, Delivered: 2000, Frozen: 5},
	}
	for _, test := range []struct {
		cell              results.Cell
		reached, compared bool
	}{
		{results.Cell{Library: "gate+parent", Asked: 1000, Callers: 8, Delivered: 941}, true, true},
		{results.Cell{Library: "gate+quota", Asked: 1000, Callers: 8, Delivered: 940}, false, true},
		{results.Cell{Library: "gate+quota", Asked: 1000, Callers: 8, Delivered: 950, Frozen: 5}, false, false},
		{results.Cell{Library: "gate+quota", Asked: 200, Callers: 8, Delivered: 200}, false, false},
		{plain, false, false},
		{results.Cell{Library: "sluice", Asked: 1000, Callers: 8, Delivered: 950}, false, false},
	} {
		got, reached, compared := besidePlain(test.cell, cells)
		if reached != test.reached || compared != test.compared {
			t.Errorf("%+v: %q, %v, %v", test.cell, got, reached, compared)
		}
		text := report(&results.Precision{}, append(cells, test.cell))
		if strings.Contains(text, "0.99 × gate") != test.compared {
			t.Errorf("%+v: not so in the report:\n%s", test.cell, text)
		}
	}
}

// What was published stays there if nothing was measured.
func TestNothing(t *testing.T) {
	readme := filepath.Join(t.TempDir(), "README.md")
	const old = "<!-- begin precision -->\nold\n<!-- end precision -->\n"
	if err := os.WriteFile(readme, []byte(old), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := run(options{into: readme}, new(strings.Builder)); err == nil {
		t.Error("no error")
	}
	if got, err := os.ReadFile(readme); err != nil || string(got) != old {
		t.Errorf("%v, %s", err, got)
	}
}

func TestParse(t *testing.T) {
	for _, bad := range []string{"-rates 0", "-rates x", "-callers -1", "-libs nobody", "-frozen 1,", "more"} {
		if _, err := parse(strings.Fields(bad)); err == nil {
			t.Errorf("%q was accepted", bad)
		}
	}
}
