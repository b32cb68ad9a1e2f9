package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
)

// A cell is the mean of a strategy's scores in one world.
type cell struct {
	Score
	runs      int
	processes int
	adapts    []float64
}

// A table has a row for each world and a column for each strategy.
type table struct {
	worlds, strategies []string
	cells              map[[2]string]*cell
}

func newTable(scores []Score) *table {
	t := &table{cells: map[[2]string]*cell{}}
	for _, s := range scores {
		if !slices.Contains(t.worlds, s.World) {
			t.worlds = append(t.worlds, s.World)
		}
		if !slices.Contains(t.strategies, s.Strategy) {
			t.strategies = append(t.strategies, s.Strategy)
		}
		key := [2]string{s.World, s.Strategy}
		c := t.cells[key]
		if c == nil {
			c = &cell{processes: s.processes, adapts: make([]float64, len(s.adapts))}
			t.cells[key] = c
		}
		c.runs++
		c.Score.Score += s.Score
		c.Goodput += s.Goodput
		c.Refused += s.Refused
		c.P99 += s.P99
		c.Jain += s.Jain
		c.Harm += s.Harm
		for i, a := range s.adapts {
			c.adapts[i] += a // NaN, never, stays
		}
	}
	return t
}

// column returns a figure of one strategy in all worlds.
func (t *table) column(strategy string, figure func(*cell) float64) []float64 {
	var all []float64
	for _, w := range t.worlds {
		if c := t.cells[[2]string{w, strategy}]; c != nil {
			all = append(all, figure(c))
		}
	}
	return all
}

func score(c *cell) float64 { return c.Score.Score / float64(c.runs) }

// leaders writes a row for each strategy, the best first.
func (t *table) leaders(w io.Writer) {
	fmt.Fprint(w, "\n### Strategies\n\n")
	fmt.Fprintln(w, "| strategy | told the rate | mean score | worst tenth, at most | worst | goodput | refused | never adapted |")
	fmt.Fprintln(w, "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |")
	order := slices.Clone(t.strategies)
	slices.SortStableFunc(order, func(a, b string) int {
		return cmp.Compare(mean(t.column(b, score)), mean(t.column(a, score)))
	})
	for _, s := range order {
		scores := t.column(s, score)
		slices.Sort(scores)
		told := ""
		if e := choose([]string{s}); len(e) == 1 && e[0].told {
			told = "yes"
		}
		goodput := mean(t.column(s, func(c *cell) float64 { return math.Min(1, c.Goodput/float64(c.runs)) }))
		no := mean(t.column(s, func(c *cell) float64 { return c.Refused / float64(c.runs) }))
		fmt.Fprintf(w, "| %s | %s | %.1f | %.1f | %.1f | %.1f %% | %.1f %% | %d |\n",
			s, told, mean(scores), worstTenth(scores), scores[0], 100*goodput, 100*no, t.never(s))
	}
}

// never returns in how many worlds a strategy never did well.
func (t *table) never(strategy string) int {
	n := 0
	for _, x := range t.column(strategy, func(c *cell) float64 { return c.adapts[0] }) {
		if math.IsNaN(x) {
			n++
		}
	}
	return n
}

func worstTenth(sorted []float64) float64 { return sorted[(len(sorted)-1)/10] }

// print writes a table for each figure.
func (t *table) print(w io.Writer) {
	t.leaders(w)
	per := func(f func(*cell) float64) func(*cell) string {
		return func(c *cell) string { return fmt.Sprintf("%.1f", f(c)/float64(c.runs)) }
	}
	t.matrix(w, "Score", per(func(c *cell) float64 { return c.Score.Score }))
	t.summary(w)
	t.matrix(w, "Goodput, % of what is possible", per(func(c *cell) float64 { return 100 * c.Goodput }))
	t.matrix(w, "Refused, % of calls sent", per(func(c *cell) float64 { return 100 * c.Refused }))
	t.matrix(w, "p99 wait, s", per(func(c *cell) float64 { return c.P99 }))
	t.matrix(w, "Time to adapt, s, after each change", func(c *cell) string {
		var all []string
		for _, a := range c.adapts {
			if a /= float64(c.runs); math.IsNaN(a) {
				all = append(all, "–")
			} else {
				all = append(all, fmt.Sprintf("%.1f", a))
			}
		}
		return strings.Join(all, " ")
	})
	t.others(w)
}

func (t *table) matrix(w io.Writer, title string, figure func(*cell) string) {
	fmt.Fprintf(w, "\n### %s\n\n", title)
	t.head(w)
	for _, world := range t.worlds {
		fmt.Fprintf(w, "|%s|", world)
		for _, s := range t.strategies {
			if c := t.cells[[2]string{world, s}]; c != nil {
				fmt.Fprint(w, figure(c))
			}
			fmt.Fprint(w, "|")
		}
		fmt.Fprintln(w)
	}
}

func (t *table) head(w io.Writer) {
	fmt.Fprintf(w, "| |%s|\n|---|%s\n", strings.Join(t.strategies, "|"), strings.Repeat("--:|", len(t.strategies)))
}

// summary writes the mean, the worst tenth's upper end, the worst, and how many worlds a
// strategy never adapted to. It continues the matrix of scores.
func (t *table) summary(w io.Writer) {
	row := func(name string, figure func(scores []float64) float64) {
		fmt.Fprintf(w, "|**%s**|", name)
		for _, s := range t.strategies {
			scores := t.column(s, score)
			slices.Sort(scores)
			fmt.Fprintf(w, "%.1f|", figure(scores))
		}
		fmt.Fprintln(w)
	}
	row("mean", mean)
	row("worst tenth, at most", worstTenth)
	row("worst", func(s []float64) float64 { return s[0] })
	fmt.Fprint(w, "|**never adapted**|")
	for _, s := range t.strategies {
		fmt.Fprintf(w, "%d|", t.never(s))
	}
	fmt.Fprintln(w)
}

// others writes what only some worlds have: fairness between processes, and harm to
// strangers.
func (t *table) others(w io.Writer) {
	head := "\n### Harm and fairness\n\n"
	line := func(format string, args ...any) {
		fmt.Fprintf(w, head+format, args...)
		head = ""
	}
	for _, world := range t.worlds {
		for _, s := range t.strategies {
			c := t.cells[[2]string{world, s}]
			if c == nil {
				continue
			}
			n := float64(c.runs)
			if c.Harm > 0 {
				line("- %s, %s: %.1f %% of the strangers' calls refused\n", world, s, 100*c.Harm/n)
			}
			if c.processes > 1 {
				line("- %s, %s: Jain %.3f\n", world, s, c.Jain/n)
			}
		}
	}
}

func mean(all []float64) float64 {
	sum := 0.0
	for _, x := range all {
		sum += x
	}
	return sum / float64(len(all))
}

// printJSON writes a list, one run a line.
func printJSON(w io.Writer, scores []Score) error {
	text, err := json.Marshal(scores)
	if err != nil {
		return err
	}
	_, err = io.WriteString(w, strings.ReplaceAll(string(text), "},{", "},\n{")+"\n")
	return err
}
