package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/sluice-go/sluice/bench/internal/results"
)

// report returns all tables as Markdown.
func report(p *results.Precision, cells []results.Cell) string {
	var b strings.Builder
	fmt.Fprintf(&b, "machine: %s  \nmeasured: %s\n\n### Goals\n\n", p.Machine, p.Measured)
	goals(&b, cells)
	if slices.ContainsFunc(cells, isPriced) {
		b.WriteString("\n### Price\n\n")
		priceTable(&b, cells)
	}
	cells = slices.DeleteFunc(slices.Clone(cells), isPriced)
	if len(cells) == 0 {
		return b.String()
	}
	b.WriteString("\n### Undisturbed\n\n")
	table(&b, cells, false)
	b.WriteString("\n### Stopped in the middle\n\n")
	table(&b, cells, true)
	return b.String()
}

func table(b *strings.Builder, cells []results.Cell, frozen bool) {
	b.WriteString("| callers | asked/s | library | delivered ÷ allowed | error p50 | p90 | p99 | max, µs | ahead, µs | early | CPU | quiet runs | stall, ms |\n")
	b.WriteString("| ---: | ---: | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n")
	for _, c := range cells {
		if frozen != (c.Frozen > 0) {
			continue
		}
		name := c.Library
		if name == "sluice" {
			name = "**sluice**"
		}
		fmt.Fprintf(b, "| %d | %.0f | %s | %.1f %% | %s | %s | %s | %s | %.0f | %d | %.1f %% | %d of %d | %.0f |\n",
			c.Callers, c.Asked, name, 100*c.Ratio(), number(c.ErrP50), number(c.ErrP90), number(c.ErrP99), number(c.ErrMax), c.Ahead, c.Early, 100*c.CPU, c.Quiet, c.Runs, c.Stall)
	}
}

// number writes three digits or, beyond a hundred, all before the point.
func number(v float64) string {
	if v >= 100 {
		return fmt.Sprintf("%.0f", v)
	}
	return fmt.Sprintf("%.3g", v)
}

// A goal is what should be so of sluice where it is not stopped on purpose.
type goal struct {
	name string
	fine bool // with a fine grain only
	calm bool // only runs in which the machine did not stall show it, see stalled
	at   func(c results.Cell) bool
	of   func(c results.Cell) (got string, reached bool)
}

// stalled reports whether the machine stalled in every run of one of cells: then nothing is
// said of how even its calls are and of what they cost, whichever library it is of.
func stalled(cells ...results.Cell) bool {
	return slices.ContainsFunc(cells, func(c results.Cell) bool { return c.Quiet == 0 })
}

func delivered(least, most float64) func(c results.Cell) (string, bool) {
	return func(c results.Cell) (string, bool) {
		highest := 100 * c.DeliveredMax / c.Asked
		return fmt.Sprintf("%.2f %%, highest of %d runs %.2f %%", 100*c.Ratio(), c.Runs, highest),
			100*c.Ratio() >= least && (highest <= most || stalled(c))
	}
}

func p99(most float64) func(c results.Cell) (string, bool) {
	return func(c results.Cell) (string, bool) { return fmt.Sprintf("%.0f µs", c.ErrP99), c.ErrP99 <= most }
}

func at(rate float64) func(c results.Cell) bool {
	return func(c results.Cell) bool { return c.Asked == rate }
}

// allGoals were set before anything was measured.
var allGoals = []goal{
	{"delivered ≥ 99.5 %, never above 100.1 %", false, false, func(c results.Cell) bool { return c.Asked <= 1000 }, delivered(99.5, 100.1)},
	{"delivered ≥ 99 %, never above 100.5 %", false, false, func(c results.Cell) bool { return c.Asked > 1000 }, delivered(99, 100.5)},
	{"spacing error p99 ≤ 500 µs", true, true, at(100), p99(500)},
	{"spacing error p99 ≤ 150 µs", true, true, at(1000), p99(150)},
	{"CPU ≤ 8 % of one", false, true, at(1000), func(c results.Cell) (string, bool) {
		return fmt.Sprintf("%.1f %%", 100*c.CPU), c.CPU <= 0.08
	}},
	{"no call before its slot", false, false, func(results.Cell) bool { return true }, func(c results.Cell) (string, bool) {
		return fmt.Sprintf("%d early, at most %.0f µs ahead", c.Early, c.Ahead), c.Early == 0
	}},
}

func goals(b *strings.Builder, cells []results.Cell) {
	reached, all := 0, 0
	var rows strings.Builder
	for _, g := range allGoals {
		for _, c := range cells {
			if c.Library != "sluice-fine" && (c.Library != "sluice" || g.fine) || c.Frozen > 0 || isPriced(c) || !g.at(c) {
				continue
			}
			if g.calm && stalled(c) {
				fmt.Fprintf(&rows, "| %s: %s | %.0f | %d | not judged: the machine stalled in each run |\n", c.Library, g.name, c.Asked, c.Callers)
				continue
			}
			all++
			got, ok := g.of(c)
			if ok {
				reached++
				got += ", yes"
			} else {
				got = "**" + got + ", no**"
			}
			fmt.Fprintf(&rows, "| %s: %s | %.0f | %d | %s |\n", c.Library, g.name, c.Asked, c.Callers, got)
		}
	}
	for _, c := range cells {
		got, ok, compared := besidePlain(c, cells)
		if !compared {
			continue
		}
		all++
		if ok {
			reached++
			got += ", yes"
		} else {
			got = "**" + got + ", no**"
		}
		fmt.Fprintf(&rows, "| %s ≥ 0.99 × gate | %.0f | %d | %s |\n", c.Library, c.Asked, c.Callers, got)
	}
	for _, g := range priceGoals {
		for _, c := range cells {
			got, ok, judged := g.judge(c, cells)
			if !judged {
				continue
			}
			if g.calm && (stalled(c) || stalled(rival("xtime", othersAt(c, cells)))) {
				fmt.Fprintf(&rows, "| %s: %s | %.0f | %d | %s, not judged: the machine stalled in each run |\n", c.Work, g.name, c.Asked, c.Callers, got)
				continue
			}
			all++
			if ok {
				reached++
				got += ", yes"
			} else {
				got = "**" + got + ", no**"
			}
			fmt.Fprintf(&rows, "| %s: %s | %.0f | %d | %s |\n", c.Work, g.name, c.Asked, c.Callers, got)
		}
	}
	fmt.Fprintf(b, "%d of %d reached.\n\n| goal | asked/s | callers | measured |\n| --- | ---: | ---: | --- |\n%s", reached, all, rows.String())
}

// besidePlain compares what a kind of a gate delivers with what a plain gate does, if
// that was measured in the same run.
func besidePlain(c results.Cell, cells []results.Cell) (got string, reached, compared bool) {
	if c.Frozen > 0 || !slices.Contains(gates()[1:], c.Library) {
		return "", false, false
	}
	for _, plain := range cells {
		if plain.Library == gates()[0] && plain.Frozen == 0 && plain.Asked == c.Asked && plain.Callers == c.Callers {
			share := c.Delivered / plain.Delivered
			return fmt.Sprintf("%.4f ×", share), share >= 0.99, true
		}
	}
	return "", false, false
}
