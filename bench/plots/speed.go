package main

import (
	"fmt"
	"math"
	"slices"
	"strconv"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"github.com/sluice-go/sluice/bench/internal/results"
)

// costRows are the works in cost.svg, from top to bottom.
var costRows = []struct {
	name string
	key  results.Key
}{
	{"pacer: now? yes", results.Key{Work: "PacerTry", Case: "granted", CPUs: 1}},
	{"pacer: now? yes, 2 CPUs", results.Key{Work: "PacerTry", Case: "granted", CPUs: 2}},
	{"pacer: now? no", results.Key{Work: "PacerTry", Case: "refused", CPUs: 1}},
	{"bucket: fits", results.Key{Work: "LeakyTake", Case: "granted", CPUs: 1}},
	{"bucket: fits, 2 CPUs", results.Key{Work: "LeakyTake", Case: "granted", CPUs: 2}},
	{"bucket: full", results.Key{Work: "LeakyTake", Case: "refused", CPUs: 1}},
	{"reserve a free slot", results.Key{Work: "PacerReserve", Case: "now", CPUs: 1}},
	{"reserve a later slot", results.Key{Work: "PacerReserve", Case: "later", CPUs: 1}},
	{"semaphore: acquire, release", results.Key{Work: "SemaphorePair", CPUs: 1}},
	{"semaphore: 64 for one permit, 2 CPUs", results.Key{Work: "SemaphoreContended", CPUs: 2}},
	{"semaphore: mixed, 2 CPUs", results.Key{Work: "SemaphoreMixed", CPUs: 2}},
	{"gate: concurrency and pace", results.Key{Work: "GateDo", CPUs: 1}},
	{"a million keys", results.Key{Work: "KeyedTake", CPUs: 1}},
	{"a million keys, 2 CPUs", results.Key{Work: "KeyedTake", CPUs: 2}},
}

// cost shows what each work costs each library, one row each.
func cost(s *results.Speed) figure {
	f := figure{
		title:       "What a call costs each library",
		description: "Medians in nanoseconds, work by work, on a logarithmic axis. The floor is one clock reading and one compare-and-swap.",
		width:       900, height: 560,
	}
	p := newPanel("", "ns per operation, median", "")
	p.labels = false
	low, high := math.Inf(1), 0.0
	ticks := make([]plot.Tick, len(costRows))
	var all []string
	byLibrary := make(map[string]plotter.XYs)
	for i, row := range costRows {
		y := float64(len(costRows) - i)
		ticks[i] = plot.Tick{Value: y, Label: row.name}
		for _, k := range s.Keys() {
			of := row.key
			of.Library = k.Library
			if k != of || k.Library == "harness" {
				continue
			}
			ns, _ := s.Median(k, "ns/op")
			low, high = min(low, ns), max(high, ns)
			if !slices.Contains(all, k.Library) {
				all = append(all, k.Library)
			}
			byLibrary[k.Library] = append(byLibrary[k.Library], plotter.XY{X: ns, Y: y})
		}
	}
	if len(all) == 0 {
		f.err = fmt.Errorf("none of the works was measured")
		return f
	}
	slices.SortStableFunc(all, func(a, b string) int { return rankOf(b) - rankOf(a) }) // sluice first in the key
	for _, library := range slices.Backward(all) {
		marks, err := plotter.NewScatter(byLibrary[library])
		if err != nil {
			f.err = err
			return f
		}
		radius := vg.Length(3.6)
		if library == "sluice" {
			radius = 6
		}
		marks.GlyphStyle = draw.GlyphStyle{Color: looks[library].color, Radius: radius, Shape: looks[library].mark}
		p.Add(marks)
	}
	logAxis(&p.X, math.Max(1, low*0.8), high*1.25)
	p.Y.Min, p.Y.Max = 0.5, float64(len(costRows))+0.5
	p.Y.Tick.Marker = plot.ConstantTicks(ticks)
	p.Y.Tick.Length = 0
	p.Y.LineStyle.Width = 0
	f.key, f.panels = all, []panel{p}
	return f
}

// grown returns one line for each library of a work whose cases are numbers.
func grown(s *results.Speed, work string, cpus int) (all []series, low, high float64) {
	low, high = math.Inf(1), 0
	index := make(map[string]int)
	for _, k := range s.Keys() {
		x, err := strconv.ParseFloat(k.Case, 64)
		if k.Work == "KeyedTake" && work == "KeyedGrow" {
			x, err = 1_000_000, nil
		} else if k.Work != work {
			continue
		}
		ns, ok := s.Median(k, "ns/op")
		if err != nil || !ok || k.CPUs != cpus {
			continue
		}
		i, ok := index[k.Library]
		if !ok {
			i = len(all)
			index[k.Library] = i
			all = append(all, series{library: k.Library, marks: true})
		}
		all[i].points = append(all[i].points, plotter.XY{X: x, Y: ns})
		low, high = min(low, ns), max(high, ns)
	}
	for _, line := range all {
		slices.SortFunc(line.points, func(a, b plotter.XY) int { return int(a.X - b.X) })
	}
	return all, low, high
}

// keys shows how the cost of a call grows with the number of keys.
func keys(s *results.Speed) figure {
	return growth("How the cost of a call grows with the number of keys",
		"number of keys, asked at random", "ns per call, median", 100, onCPUs(s, "KeyedGrow")...)
}

// gates shows how the cost of a call grows with the number of gates.
func gates(s *results.Speed) figure {
	return growth("How the cost of a call grows with the number of gates",
		"number of gates, called at random", "ns per call, median", 1, onCPUs(s, "GatesGrow")...)
}

// waiters shows how the cost of handing a permit over grows with the number of
// goroutines that want it.
func waiters(s *results.Speed) figure {
	return growth("How the cost of a handover grows with the goroutines that wait",
		"goroutines that want the one permit", "ns per handover, median", 1, onCPUs(s, "SemaphoreGrow")...)
}

// contexts is waiters, with contexts that may be canceled.
func contexts(s *results.Speed) figure {
	return growth("How the cost of a handover grows with the goroutines that wait with contexts",
		"goroutines that want the one permit", "ns per handover, median", 1, onCPUs(s, "SemaphoreGrowCancel")...)
}

// changes shows how the cost of a change grows with the number of callers that wait.
func changes(s *results.Speed) figure {
	var works []grownWork
	for _, change := range []string{"SetRate", "PauseUntil", "Settle"} {
		works = append(works, grownOf(s, change+"Grow", 1, change))
	}
	return growth("How the cost of a change grows with the callers that wait",
		"callers that wait", "ns per change, median", 1, works...)
}

// processes shows how the cost of a decision grows with the number of processes that share
// a limit.
func processes(s *results.Speed) figure {
	return growth("How the cost of a decision in Redis grows with the processes that share the limit",
		"processes, of which one at random asks", "ns per decision, median", 1, onCPUs(s, "ProcessesGrow")...)
}

// A grownWork is what one panel shows.
type grownWork struct {
	title     string
	lines     []series
	low, high float64
}

func grownOf(s *results.Speed, work string, cpus int, title string) grownWork {
	w := grownWork{title: title}
	w.lines, w.low, w.high = grown(s, work, cpus)
	return w
}

// onCPUs returns a work on one CPU and on two.
func onCPUs(s *results.Speed, work string) []grownWork {
	return []grownWork{grownOf(s, work, 1, "one CPU"), grownOf(s, work, 2, "2 CPUs")}
}

// growth has a panel for each work, up to a million.
func growth(title, x, y string, from float64, works ...grownWork) figure {
	f := figure{title: title, description: "Medians in nanoseconds; both axes are logarithmic.", width: vg.Length(450 * len(works)), height: 400}
	lowest, highest := math.Inf(1), 0.0
	for _, w := range works {
		p := newPanel(w.title, x, y)
		lowest, highest = min(lowest, w.low), max(highest, w.high)
		f.addSeries(&p, w.lines)
		logAxis(&p.X, from, 1_100_000)
		f.panels = append(f.panels, p)
	}
	if highest == 0 {
		f.err = fmt.Errorf("%s: nothing was measured", title)
		return f
	}
	for _, p := range f.panels { // the same axis for all
		logAxis(&p.Y, lowest*0.8, highest*1.25)
	}
	return f
}
