package main

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
)

// A cell is the runs of one client at one server.
type cell struct {
	server, client string
	all            []result
	good           []result // without those in which the machine was too late; all, if there are no others
	marked         bool     // there are only such runs
}

func (c *cell) add(r result) {
	c.all = append(c.all, r)
	c.good = slices.DeleteFunc(slices.Clone(c.all), func(r result) bool { return r.bad() })
	if c.marked = len(c.good) == 0; c.marked {
		c.good = c.all
	}
}

// mean returns the mean of a figure over the runs.
func (c *cell) mean(figure func(r *result) float64) float64 {
	sum := 0.0
	for i := range c.good {
		sum += figure(&c.good[i])
	}
	return sum / float64(len(c.good))
}

func (c *cell) score() float64 { return c.mean(func(r *result) float64 { return r.Score }) }

// scored reports whether the score of a cell means something and enters the means.
func (c *cell) scored() bool {
	s := find(c.server)
	return !c.marked && (s == nil || s.limit.kind != down)
}

// A table has a row for each server and client.
type table struct {
	servers, clients []string          // in the order of the results
	groups           map[string]string // of the servers
	cells            map[[2]string]*cell
}

func newTable(results []result) *table {
	t := &table{groups: map[string]string{}, cells: map[[2]string]*cell{}}
	for _, r := range results {
		if !slices.Contains(t.servers, r.Server) {
			t.servers = append(t.servers, r.Server)
			t.groups[r.Server] = r.Group
		}
		if !slices.Contains(t.clients, r.Client) {
			t.clients = append(t.clients, r.Client)
		}
		key := [2]string{r.Server, r.Client}
		if t.cells[key] == nil {
			t.cells[key] = &cell{server: r.Server, client: r.Client}
		}
		t.cells[key].add(r)
	}
	return t
}

// inGroups calls f with the servers of each group that has any.
func (t *table) inGroups(f func(group string, servers []string)) {
	of := map[string][]string{}
	for _, name := range t.servers {
		of[t.groups[name]] = append(of[t.groups[name]], name)
	}
	for _, group := range groups {
		if len(of[group]) > 0 {
			f(group, of[group])
		}
	}
}

// rows writes a line for each server and client.
func (t *table) rows(w io.Writer) {
	fmt.Fprint(w, "| server | client | goodput % | refused % | later % | lost % | sent ÷ items | score |\n|---|---|--:|--:|--:|--:|--:|--:|\n")
	for _, s := range t.servers {
		for _, name := range t.clients {
			c := t.cells[[2]string{s, name}]
			if c == nil {
				continue
			}
			percent := func(figure func(r *result) float64) string { return fmt.Sprintf("%.1f", 100*c.mean(figure)) }
			fmt.Fprintf(w, "| %s | %s | %s | %s | %s | %s | %.2f | %s |\n", s, name,
				percent(func(r *result) float64 { return r.Goodput }),
				percent(func(r *result) float64 { return r.Refused }),
				percent(func(r *result) float64 { return r.Later }),
				percent(lost), c.mean(perItem), c.figure("%.1f"))
		}
	}
}

func lost(r *result) float64    { return float64(r.Items-r.Done) / float64(max(1, r.Items)) }
func perItem(r *result) float64 { return float64(r.Sent) / float64(max(1, r.Items)) }

// figure returns the score, with its mark.
func (c *cell) figure(format string) string {
	switch {
	case c.marked:
		return "*" + fmt.Sprintf(format, c.score())
	case !c.scored():
		return "–"
	}
	return fmt.Sprintf(format, c.score())
}

// matrix writes for each group a line for each server and a column for each client:
// score (goodput/refused/lost).
func (t *table) matrix(w io.Writer) {
	t.inGroups(func(group string, servers []string) {
		fmt.Fprintf(w, "\n### %s\n\n| server | %s |\n|---|%s\n", group, strings.Join(t.clients, " | "), strings.Repeat("--:|", len(t.clients)))
		for _, s := range servers {
			fmt.Fprintf(w, "| %s |", s)
			for _, name := range t.clients {
				if c := t.cells[[2]string{s, name}]; c != nil {
					fmt.Fprintf(w, " %s |", c.short())
				} else {
					fmt.Fprint(w, " |")
				}
			}
			fmt.Fprintln(w)
		}
	})
}

// short returns the figures of a cell as briefly as can be.
func (c *cell) short() string {
	percent := func(figure func(r *result) float64) string { return fmt.Sprintf("%.0f", 100*c.mean(figure)) }
	text := c.figure("%.0f") + " (" + percent(func(r *result) float64 { return r.Goodput }) + "/" + percent(func(r *result) float64 { return r.Refused })
	if x := c.mean(lost); x > 0 {
		text += "/" + percent(lost)
	}
	if find(c.server) != nil && find(c.server).limit.kind == down {
		text += fmt.Sprintf(", %.1f sent", c.mean(perItem))
	}
	return text + ")"
}

// means writes a line for each group and client.
func (t *table) means(w io.Writer) {
	fmt.Fprint(w, "\n| group | client | servers | mean score | worst | at |\n|---|---|--:|--:|--:|---|\n")
	t.inGroups(func(group string, servers []string) {
		for _, name := range t.clients {
			n, sum, worst, at := 0, 0.0, math.Inf(1), ""
			for _, s := range servers {
				if c := t.cells[[2]string{s, name}]; c != nil && c.scored() {
					n++
					sum += c.score()
					if c.score() < worst {
						worst, at = c.score(), s
					}
				}
			}
			if n > 0 {
				fmt.Fprintf(w, "| %s | %s | %d | %.1f | %.1f | %s |\n", group, name, n, sum/float64(n), worst, at)
			}
		}
	})
}

// notes writes what only some runs have: shares of a limit, and runs that do not count.
func (t *table) notes(w io.Writer) {
	head := "\n"
	line := func(format string, args ...any) {
		fmt.Fprintf(w, head+format+"\n", args...)
		head = ""
	}
	for _, s := range t.servers {
		for _, name := range t.clients {
			c := t.cells[[2]string{s, name}]
			if c == nil {
				continue
			}
			var parts []string
			for i, first := range c.good[0].Shares {
				parts = append(parts, fmt.Sprintf("%s %.3g/s", first.Client, c.mean(func(r *result) float64 { return r.Shares[i].PerSecond })))
			}
			if parts != nil {
				line("- %s: %s", s, strings.Join(parts, ", "))
			}
			if n := slices.IndexFunc(c.all, func(r result) bool { return r.bad() }); n >= 0 {
				late := slices.MaxFunc(c.all, func(a, b result) int { return cmp.Compare(a.Late, b.Late) }).Late
				line("- %s, %s: the machine was up to %.0f ms late in %s", s, name, late, map[bool]string{true: "all runs: *, not in the means", false: "runs that do not count"}[c.marked])
			}
		}
	}
}
