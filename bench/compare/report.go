package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/sluice-go/sluice/bench/internal/results"
)

// report returns all tables as Markdown.
func report(s *results.Speed) string {
	var b strings.Builder
	for _, line := range s.Head {
		if strings.HasPrefix(line, "machine: ") || strings.HasPrefix(line, "measured: ") {
			fmt.Fprintf(&b, "%s  \n", line)
		}
	}
	b.WriteString("\n### Goals\n\n")
	goalTable(&b, s)
	b.WriteString("\n### Time per operation\n\nMedians, ns; in brackets allocations per operation, unless there are none.\n")
	timeTables(&b, s)
	b.WriteString("\n### Memory and waiting\n\n")
	metricTable(&b, s, "KeyedTake", []string{"B/key", "ns/op"})
	metricTable(&b, s, "Herd", []string{"B/waiter", "stack-B/waiter", "timers", "cpu-ms/s", "queue-ns", "cancel-ns"})
	return b.String()
}

// goalTable has a row for each goal and a column for each number of CPUs. What
// is missed is bold.
func goalTable(b *strings.Builder, s *results.Speed) {
	type row struct{ name, wanted string }
	var rows []row
	cells := make(map[row]map[int]string)
	var cpus []int
	reached, all := 0, 0
	judge(s, func(k results.Key, v verdict) {
		all++
		cell := v.got + ", yes"
		if !v.reached {
			cell = "**" + v.got + ", no**"
		} else {
			reached++
		}
		r := row{k.Name(), v.wanted}
		if cells[r] == nil {
			rows = append(rows, r)
			cells[r] = make(map[int]string)
		}
		cells[r][k.CPUs] = cell
		if !slices.Contains(cpus, k.CPUs) {
			cpus = append(cpus, k.CPUs)
		}
	})
	fmt.Fprintf(b, "%d of %d reached. A ratio is the median of those within each run, in brackets its quartiles; –: no goal.\n\n", reached, all)
	b.WriteString("| work | goal |")
	slices.Sort(cpus)
	for _, n := range cpus {
		fmt.Fprintf(b, " -cpu %d |", n)
	}
	b.WriteString("\n| --- | --- " + strings.Repeat("| --- ", len(cpus)) + "|\n")
	for _, r := range rows {
		fmt.Fprintf(b, "| %s | %s |", r.name, r.wanted)
		for _, n := range cpus {
			cell := cells[r][n]
			if cell == "" {
				cell = "–"
			}
			fmt.Fprintf(b, " %s |", cell)
		}
		b.WriteByte('\n')
	}
}

// timeTables prints one table for all works that have the same libraries, so
// that none has empty columns.
func timeTables(b *strings.Builder, s *results.Speed) {
	type row struct {
		name string
		cpus int
	}
	libraries := make(map[row][]string)
	var rows []row
	for _, k := range s.Keys() {
		if k.Work == "Herd" {
			continue
		}
		r := row{k.Name(), k.CPUs}
		if libraries[r] == nil {
			rows = append(rows, r)
		}
		libraries[r] = append(libraries[r], k.Library)
	}
	slices.SortStableFunc(rows, func(a, b row) int { return strings.Compare(work(a.name), work(b.name)) })
	last := ""
	for _, r := range rows {
		if header := strings.Join(libraries[r], " | "); header != last {
			last = header
			fmt.Fprintf(b, "\n| work | CPUs | %s |\n| --- | --- %s|\n", header, strings.Repeat("| ---: ", len(libraries[r])))
		}
		fmt.Fprintf(b, "| %s | %d |", r.name, r.cpus)
		for _, library := range libraries[r] {
			fmt.Fprintf(b, " %s |", timeCell(s, keyFor(r.name, library, r.cpus)))
		}
		b.WriteByte('\n')
	}
}

func work(name string) string {
	w, _, _ := strings.Cut(name, "/")
	return w
}

func keyFor(name, library string, cpus int) results.Key {
	w, c, _ := strings.Cut(name, "/")
	return results.Key{Work: w, Case: c, Library: library, CPUs: cpus}
}

func timeCell(s *results.Speed, k results.Key) string {
	ns, _ := s.Median(k, "ns/op")
	cell := number(ns)
	if k.Library == "sluice" {
		cell = "**" + cell + "**"
	}
	if n, ok := s.Allocs(k); ok && n > few {
		cell += fmt.Sprintf(" (%.3g)", n)
	}
	return cell
}

// number writes three digits or, beyond a hundred, all before the point.
func number(v float64) string {
	if v >= 100 {
		return fmt.Sprintf("%.0f", v)
	}
	return fmt.Sprintf("%.3g", v)
}

func metricTable(b *strings.Builder, s *results.Speed, work string, units []string) {
	fmt.Fprintf(b, "| %s | CPUs | %s |\n| --- | --- %s|\n", work, strings.Join(units, " | "), strings.Repeat("| ---: ", len(units)))
	for _, k := range s.Keys() {
		if k.Work != work {
			continue
		}
		fmt.Fprintf(b, "| %s | %d |", k.Library, k.CPUs)
		for _, unit := range units {
			v, _ := s.Median(k, unit)
			fmt.Fprintf(b, " %s |", number(v))
		}
		b.WriteByte('\n')
	}
	b.WriteByte('\n')
}
