package engine

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// A metric is a line of the table.
type metric struct {
	key   string
	label string // as a line of the table
	short string // in the verdict, after the number; %s is the number
	value func(s *Summary) string
}

func count(of func(s *Summary) int) func(s *Summary) string {
	return func(s *Summary) string { return strconv.Itoa(of(s)) }
}

func wait(of func(s *Summary) float64) func(s *Summary) string {
	return func(s *Summary) string { return fmt.Sprintf("%.1f s", of(s)) }
}

var metrics = []metric{
	{"served", "Calls served", "%s served", count(func(s *Summary) int { return s.Served })},
	{"refused", "Calls refused by the server", "%s refused", count(func(s *Summary) int { return s.Refused })},
	{"busiest", "Most calls that left within one second", "%s in the busiest second", count(func(s *Summary) int { return s.Busiest })},
	{"after", "The same, after the pause", "%s in the busiest second after the pause", count(func(s *Summary) int { return s.After })},
	{"even", "Even gaps between calls", "%s of the gaps even", func(s *Summary) string {
		if s.Evenness < 0 {
			return "–"
		}
		return fmt.Sprintf("%.0f %%", 100*s.Evenness)
	}},
	{"inflight", "Most calls in flight", "%s in flight at most", count(func(s *Summary) int { return s.InFlight })},
	{"longest", "Longest wait before a call left", "longest wait %s", wait(func(s *Summary) float64 { return s.Longest })},
	{"patient", "Longest wait of a patient caller", "a patient caller waited up to %s", wait(func(s *Summary) float64 { return s.Patient })},
	{"gaveup", "Callers that gave up", "%s gave up", count(func(s *Summary) int { return s.GaveUp })},
	{"waiting", "Callers without an answer at the end", "%s without an answer", count(func(s *Summary) int { return s.Waiting })},
}

// tell writes the table, and the verdicts with the metrics of these keys.
func (p *Picture) tell(keys []string) {
	verdicts := make([][]string, len(p.Lanes))
	for _, m := range metrics {
		chosen := slices.Contains(keys, m.key)
		if !chosen && m.key != "even" && allZero(p.Lanes, m) {
			continue // says nothing in this story
		}
		row := Row{Label: m.label}
		for i := range p.Lanes {
			value := m.value(&p.Lanes[i].Summary)
			row.Values = append(row.Values, value)
			if chosen {
				verdicts[i] = append(verdicts[i], fmt.Sprintf(m.short, value))
			}
		}
		p.Table = append(p.Table, row)
	}
	for i, v := range verdicts {
		p.Verdicts = append(p.Verdicts, strings.Join(append(v, p.fewer(i)...), ", ")+".")
	}
}

// fewer says of a gate that has served fewer calls than another lane how many, if any.
func (p *Picture) fewer(lane int) []string {
	if !isGate(p.Lanes[lane].Name) {
		return nil
	}
	best := slices.MaxFunc(p.Lanes, func(a, b Lane) int { return cmp.Compare(a.Summary.Served, b.Summary.Served) })
	less := best.Summary.Served - p.Lanes[lane].Summary.Served
	if less == 0 {
		return nil
	}
	return []string{fmt.Sprintf("%.1f %% fewer served than by %s", 100*float64(less)/float64(best.Summary.Served), best.Name)}
}

// isGate reports whether a lane with this name is a sluice.Gate.
func isGate(name string) bool { return strings.HasPrefix(name, gate.name) }

func allZero(lanes []Lane, m metric) bool {
	zero := m.value(&Summary{})
	return !slices.ContainsFunc(lanes, func(l Lane) bool { return m.value(&l.Summary) != zero })
}
