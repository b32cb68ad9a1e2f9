package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/sluice-go/sluice/bench/internal/results"
)

// A goal is something that should be true of Sluice through one client: that its own number is at
// least, or at most, so many times that of another.
type goal struct {
	work, library string
	unit          string // as cell.of has it
	factor        float64
	other         string
	most          bool
}

// goals are those set before anything was measured.
var goals = func() (goals []goal) {
	for _, client := range []string{"go-redis", "rueidis"} {
		own := "sluice/" + client
		goals = append(goals,
			goal{work: "hot/512", library: own, factor: 8, other: "redis_rate/go-redis"},
			goal{work: "hot/512", library: own, factor: 1, other: "ping/rueidis"},
			goal{work: "hot/64", library: own, factor: 4, other: "redis_rate/go-redis"},
			goal{work: "hot/1", library: own, factor: 1.1, other: "script/" + client, unit: "p50", most: true},
			goal{work: "10000/512", library: own, factor: 4, other: "redis_rate/go-redis"},
		)
	}
	return goals
}()

func (g goal) String() string {
	if g.most {
		return fmt.Sprintf("latency ≤ %.4g × %s", g.factor, g.other)
	}
	return fmt.Sprintf("≥ %.4g × %s", g.factor, g.other)
}

// judge returns the quartiles of the ratio; ok is false if it was not measured.
func (g goal) judge(r *run) (low, mid, high float64, ok bool) {
	own, other := r.rounds(g.work, g.library, g.unit), r.rounds(g.work, g.other, g.unit)
	var ratios []float64
	for round, v := range own {
		if o := other[round]; o > 0 {
			ratios = append(ratios, v/o)
		}
	}
	if len(ratios) == 0 {
		return 0, 0, 0, false
	}
	slices.Sort(ratios)
	n := len(ratios)
	return ratios[n/4], results.Median(ratios), ratios[n*3/4], true
}

// rounds returns a number of a library at a work, by round.
func (r *run) rounds(work, library, unit string) map[int]float64 {
	values := make(map[int]float64)
	for _, c := range r.Cells {
		if c.Work == work && c.Library == library {
			values[c.Round] = c.of(unit)
		}
	}
	return values
}

// median returns that over the rounds; ok is false if it was not measured.
func (r *run) median(work, library, unit string) (float64, bool) {
	var values []float64
	for _, v := range r.rounds(work, library, unit) {
		values = append(values, v)
	}
	if len(values) == 0 {
		return 0, false
	}
	return results.Median(values), true
}

// report returns all tables as Markdown.
func report(r *run) string {
	var b strings.Builder
	fmt.Fprintf(&b, "machine: %s, redis-server %s  \nmeasured: %s\n\n", r.Machine, r.Redis, r.Measured)
	goalTable(&b, r)
	b.WriteString("\nDecisions per second, medians:\n\n")
	table(&b, r, "", "%.0f")
	b.WriteString("\nFrom question to answer, µs, medians and, behind the stroke, 99 of 100:\n\n")
	table(&b, r, "p50", "%.0f", "p99")
	b.WriteString("\nProcessor time for each decision, µs, of the callers and, behind the stroke, of the server:\n\n")
	table(&b, r, "client", "%.1f", "server")
	failures(&b, r)
	memory(&b, r)
	return b.String()
}

func goalTable(b *strings.Builder, r *run) {
	b.WriteString("| work | library | goal | measured |\n| --- | --- | --- | --- |\n")
	row := func(work, library, wanted, got string, reached bool) {
		if reached {
			fmt.Fprintf(b, "| %s | %s | %s | %s, yes |\n", work, library, wanted, got)
		} else {
			fmt.Fprintf(b, "| %s | %s | %s | **%s, no** |\n", work, library, wanted, got)
		}
	}
	for _, g := range goals {
		low, mid, high, ok := g.judge(r)
		if !ok {
			continue
		}
		got := fmt.Sprintf("%.2f × (%.2f–%.2f)", mid, low, high)
		row(g.work, g.library, g.String(), got, mid >= g.factor != g.most || mid == g.factor)
	}
	var rival float64
	for _, m := range r.Memory {
		if strings.HasPrefix(m.Library, "redis_rate/") {
			rival = m.Bytes
		}
	}
	for _, m := range r.Memory {
		if !strings.HasPrefix(m.Library, "sluice/") {
			continue
		}
		if rival > 0 {
			row("memory", m.Library, "≤ redis_rate", fmt.Sprintf("%.0f of %.0f B", m.Bytes, rival), m.Bytes <= rival)
		}
		row("memory", m.Library, "≤ 60 B beyond the key's text", fmt.Sprintf("%.0f B", m.Bytes-m.Text), m.Bytes-m.Text <= 60)
	}
}

// table has a row for each library and a column for each work.
func table(b *strings.Builder, r *run, unit, format string, more ...string) {
	b.WriteString("| |")
	for _, w := range works {
		fmt.Fprintf(b, " %s |", w.name())
	}
	b.WriteString("\n| --- " + strings.Repeat("| ---: ", len(works)) + "|\n")
	for _, l := range libraries {
		var cells strings.Builder
		any := false
		for _, w := range works {
			text := "–"
			if v, ok := r.median(w.name(), l.name, unit); ok {
				text, any = fmt.Sprintf(format, v), true
				for _, unit := range more {
					v, _ := r.median(w.name(), l.name, unit)
					text += " / " + fmt.Sprintf(format, v)
				}
			}
			fmt.Fprintf(&cells, " %s |", text)
		}
		if any {
			fmt.Fprintf(b, "| %s |%s\n", l.name, &cells)
		}
	}
}

// failures says which decisions were none.
func failures(b *strings.Builder, r *run) {
	type key struct{ work, library string }
	var order []key
	failed, all := make(map[key]float64), make(map[key]float64)
	for _, c := range r.Cells {
		if k := (key{c.Work, c.Library}); c.Failed > 0 {
			if failed[k] == 0 {
				order = append(order, k)
			}
			failed[k]++
			all[k] += float64(c.Failed)
		}
	}
	for _, k := range order {
		fmt.Fprintf(b, "\n%s at %s: %.0f decisions failed in each round.\n", k.library, k.work, all[k]/failed[k])
	}
}

func memory(b *strings.Builder, r *run) {
	if len(r.Memory) == 0 {
		return
	}
	b.WriteString("\nMEMORY USAGE for each key, B:\n\n| | in all | of which the key's text |\n| --- | ---: | ---: |\n")
	for _, m := range r.Memory {
		fmt.Fprintf(b, "| %s | %.0f | %.0f |\n", m.Library, m.Bytes, m.Text)
	}
}
