package main

import (
	"fmt"
	"strings"
)

// table is the end of a run in words and columns; naive is nil when there was
// no such run.
func table(o options, gate result, naive *result) string {
	var b strings.Builder
	where := "as the server saw them"
	if !gate.explained {
		where = "as seen from here, when the calls departed"
	}
	fmt.Fprintf(&b, "\n%s items at %s, at most %s in flight, %s workers\n",
		thousands(int64(o.share.items(o.n))), o.rate, thousands(o.concurrency), thousands(int64(o.workers)))
	fmt.Fprintf(&b, "rate delivered, spacing and most in flight are %s\n\n", where)

	names, runs := []string{"gate"}, []result{gate}
	if gate.told != nil {
		names, runs = append(names, "told gate"), append(runs, *gate.told)
	}
	if naive != nil {
		names, runs = append(names, "naive"), append(runs, *naive)
	}
	for _, r := range rows(names, runs) {
		fmt.Fprintf(&b, "%-28s", r.name)
		for _, cell := range r.cells {
			fmt.Fprintf(&b, " %14s", cell)
		}
		b.WriteByte('\n')
	}
	b.WriteByte('\n')
	b.WriteString(conclusion(gate, naive))
	b.WriteByte('\n')
	if o.unknown {
		b.WriteString(found(gate))
	}
	if !o.unknown && gate.MaxInFlight >= o.concurrency && gate.RateDelivered > 0 && gate.ofAllowed() < 95 {
		fmt.Fprintf(&b, "The rate was not reached: calls take too long for %s in flight.\n", thousands(o.concurrency))
	}
	if o.out != "" && o.out != "-" {
		fmt.Fprintf(&b, "%s written to %s.\n", plural(gate.fetched, "item"), o.out)
	}
	for i, r := range runs {
		b.WriteString(complaints(names[i], r))
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// row is one line of the table.
type row struct {
	name  string
	cells []string
}

func rows(names []string, runs []result) []row {
	var all []row
	add := func(name string, cell func(result) string) {
		r := row{name: name}
		for _, run := range runs {
			r.cells = append(r.cells, cell(run))
		}
		all = append(all, r)
	}
	count := func(name string, of func(result) int64) {
		add(name, func(r result) string { return thousands(of(r)) })
	}
	anyRun := func(is func(result) bool) bool {
		for _, r := range runs {
			if is(r) {
				return true
			}
		}
		return false
	}

	all = append(all, row{cells: names})
	count("calls (items called for)", func(r result) int64 { return r.Calls })
	count("attempts (requests sent)", func(r result) int64 { return r.Attempts })
	count("429s seen", func(r result) int64 { return r.Throttled })
	if anyRun(func(r result) bool { return r.explained && r.Throttled > 0 }) {
		count("  over the rate", func(r result) int64 { return r.tooFast })
		count("  over the concurrency", func(r result) int64 { return r.tooMany })
	}
	count("wasted (no item fetched)", result.wasted)
	count("items lost", func(r result) int64 { return r.Lost })
	if anyRun(func(r result) bool { return r.notStarted > 0 }) {
		count("  of them not started", func(r result) int64 { return r.notStarted })
	}
	add("rate allowed", func(r result) string { return rateText(r.RateAllowed) })
	add("rate delivered", func(r result) string { return rateText(r.RateDelivered) })
	add("  of the allowed", func(r result) string { return fmt.Sprintf("%.2f %%", r.ofAllowed()) })
	add("spacing p50", func(r result) string { return millis(r.spacing50) })
	add("spacing p99", func(r result) string { return millis(r.spacing99) })
	count("most in flight", func(r result) int64 { return r.MaxInFlight })
	add("wall time", func(r result) string { return fmt.Sprintf("%.2f s", r.Wall) })
	add("ideal (items ÷ rate)", func(r result) string { return fmt.Sprintf("%.2f s", r.Ideal) })
	return all
}

// conclusion says in a sentence what the columns show.
func conclusion(gate result, naive *result) string {
	if naive == nil {
		return fmt.Sprintf("Through the gate %s of %s took %.2f s, with %s and %s.",
			thousands(gate.fetched), plural(gate.fetched+gate.Lost, "item"), gate.Wall,
			plural(gate.wasted(), "wasted call"), plural(gate.Throttled, "429"))
	}
	return fmt.Sprintf("Through the gate %s took %.2f s, with %s and %s; the naive pool got %s in %.2f s, with %s and %s.",
		plural(gate.fetched, "item"), gate.Wall, plural(gate.wasted(), "wasted call"), plural(gate.Throttled, "429"),
		thousands(naive.fetched), naive.Wall, plural(naive.wasted(), "wasted call"), plural(naive.Throttled, "429"))
}

// found says what a gate found that was not told the rate, and what that cost.
func found(gate result) string {
	var b strings.Builder
	if gate.learned != nil {
		fmt.Fprintf(&b, "Not told the rate, the gate learned: %v.\n", gate.learned)
	} else {
		b.WriteString("Not told the rate, the gate learned nothing: too little was throttled.\n")
	}
	fmt.Fprintf(&b, "%.1f %% of its attempts were throttled", gate.refused())
	if told := gate.told; told != nil && gate.Wall > 0 {
		fmt.Fprintf(&b, "; it took %.2f s, a gate that is told the rate %.2f s: %.1f %% of the throughput",
			gate.Wall, told.Wall, 100*told.Wall/gate.Wall)
	}
	b.WriteString(".\n")
	return b.String()
}

// complaints lists why items of a run were lost.
func complaints(name string, r result) string {
	var b strings.Builder
	for _, err := range r.complaints {
		fmt.Fprintf(&b, "%s lost %v\n", name, err)
	}
	if r.unexplained > 0 {
		fmt.Fprintf(&b, "%s lost %s more\n", name, thousands(r.unexplained))
	}
	return b.String()
}

// plural writes "1 item", "2 items".
func plural(n int64, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return thousands(n) + " " + noun + "s"
}
