package main

import (
	"fmt"
	"math"
	"strings"

	"gonum.org/v1/plot/plotter"

	"github.com/sluice-go/sluice/bench/internal/results"
)

// libraries returns the libraries of cells in their order, each once.
func libraries(cells []results.Cell) (all []string) {
	seen := make(map[string]bool)
	for _, c := range cells {
		if !seen[c.Library] {
			seen[c.Library] = true
			all = append(all, c.Library)
		}
	}
	return all
}

// delivered shows the rate delivered against the rate asked for.
func delivered(cells []results.Cell) figure {
	f := figure{
		title: "The rate delivered against the rate asked for",
		description: "One caller, and 64 at once. Delivered at the highest rate by one caller: " +
			atHighest(cells, results.Cell.Ratio) + ".",
		width: 900, height: 400,
	}
	for _, callers := range []int{1, 64} {
		title := "one caller"
		if callers > 1 {
			title = fmt.Sprintf("%d callers at once", callers)
		}
		p := newPanel(title, "calls per second asked for", "delivered, % of that")
		logAxis(&p.X, 100, 100_000)
		top := 110.0
		var all []series
		for _, library := range libraries(cells) {
			s := series{library: library, marks: true}
			for _, c := range cells {
				if c.Library == library && c.Callers == callers && c.Frozen == 0 {
					s.points = append(s.points, plotter.XY{X: c.Asked, Y: 100 * c.Ratio()})
					top = max(top, 100*c.Ratio()+5)
				}
			}
			all = append(all, s)
		}
		f.addSeries(&p, all)
		p.Y.Min, p.Y.Max = 0, top
		p.Y.Tick.Marker = steps(0, top, 20, "%.0f")
		f.panels = append(f.panels, p)
	}
	return f
}

// spacing shows how many of the gaps between calls were at most how long, and what that
// costs.
func spacing(cells []results.Cell) figure {
	f := figure{
		title: "How even calls leave, and what that costs",
		description: "The first two panels show how the gaps between calls are distributed; a vertical line marks what each gap should be. " +
			"The third shows the processor time that this takes; at the highest rate: " +
			atHighest(cells, func(c results.Cell) float64 { return c.CPU }) + ".",
		width: 1200, height: 400,
	}
	const low, high = 1, 4_000
	for _, at := range []struct {
		rate, interval float64
		title          string
	}{
		{1_000, 1_000, "one caller at 1,000/s: each gap should be 1 ms"},
		{20_000, 50, "one caller at 20,000/s: each gap should be 50 µs"},
	} {
		p := newPanel(at.title, "gap between two calls, µs", "% of gaps that are no longer")
		p.labels = false
		logAxis(&p.X, low, high)
		ideal, err := plotter.NewLine(plotter.XYs{{X: at.interval, Y: 0}, {X: at.interval, Y: 100}})
		if err != nil {
			f.err = err
			return f
		}
		ideal.Color, ideal.Width = grey, 0.7
		p.Add(ideal)
		var all []series
		for _, library := range libraries(cells) {
			s := series{library: library}
			for _, c := range cells {
				if c.Library != library || c.Callers != 1 || c.Frozen != 0 || c.Asked != at.rate {
					continue
				}
				for percent, gap := range c.Gaps {
					s.points = append(s.points, plotter.XY{X: min(max(gap, low), high), Y: float64(percent)})
				}
			}
			all = append(all, s)
		}
		f.addSeries(&p, all)
		p.Y.Min, p.Y.Max = 0, 100
		p.Y.Tick.Marker = steps(0, 100, 20, "%.0f")
		f.panels = append(f.panels, p)
	}
	f.addPrice(cells)
	f.key, f.keyLines = libraries(cells), true
	return f
}

// atHighest returns what share each library has for one caller at its highest rate, in words.
func atHighest(cells []results.Cell, share func(results.Cell) float64) string {
	var words []string
	for _, library := range libraries(cells) {
		asked, at := 0.0, 0.0
		for _, c := range cells {
			if c.Library == library && c.Callers == 1 && c.Frozen == 0 && c.Asked > asked {
				asked, at = c.Asked, share(c)
			}
		}
		words = append(words, fmt.Sprintf("%s: %.0f %%", named(library), 100*at))
	}
	return strings.Join(words, "; ")
}

// addPrice adds a panel with the processor time of one caller.
func (f *figure) addPrice(cells []results.Cell) {
	p := newPanel("what it costs", "calls per second asked for", "processor time, % of one")
	p.labels = false
	logAxis(&p.X, 100, 100_000)
	top := 10.0
	var all []series
	for _, library := range libraries(cells) {
		s := series{library: library}
		for _, c := range cells {
			if c.Library == library && c.Callers == 1 && c.Frozen == 0 {
				s.points = append(s.points, plotter.XY{X: c.Asked, Y: 100 * c.CPU})
				top = max(top, 100*c.CPU)
			}
		}
		all = append(all, s)
	}
	f.addSeries(&p, all)
	p.Y.Min, p.Y.Max = 0, math.Ceil(top/20)*20
	p.Y.Tick.Marker = steps(0, p.Y.Max, 20, "%.0f")
	f.panels = append(f.panels, p)
}
