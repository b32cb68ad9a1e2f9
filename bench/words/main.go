// Words counts the vocabulary of Sluice's strings and comments next to that of its field: net/http,
// context, sync, time, x/time/rate, x/sync, failsafe-go, backoff and otter.
//
// Usage, at the top of the repository; it takes a second:
//
//	go run ./bench/words                     the table, per 10,000 words
//	go run ./bench/words -find "at once"     where a row occurs
//	go run ./bench/words -by                 rows by directory
//	go run ./bench/words -lower              write the present values, where they fell, to table.tsv
//	go run ./bench/words -anchors            count the field again; needs its modules
//
// TestWords fails if a row occurs more often than table.tsv allows. See [row.most] for what is allowed.
package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
)

func main() {
	err := run(os.Args[1:], os.Stdout)
	switch {
	case errors.Is(err, flag.ErrHelp):
		os.Exit(2)
	case err != nil:
		fmt.Fprintf(os.Stderr, "words: %v\n", err)
		os.Exit(1)
	}
}

func run(args []string, out io.Writer) error {
	flags := flag.NewFlagSet("words", flag.ContinueOnError)
	root := flags.String("root", ".", "the directory of the repository")
	find := flags.String("find", "", "print where this `row` occurs")
	under := flags.String("under", "", "with -find: only in files whose path begins with this `prefix`")
	by := flags.Bool("by", false, "print how often each row occurs in each directory")
	lower := flags.Bool("lower", false, "write values that fell to bench/words/table.tsv")
	anchors := flags.Bool("anchors", false, "count the anchors, from GOROOT and the module cache")
	if err := flags.Parse(args); err != nil {
		return err
	}
	rows, err := parseTable(tableText)
	if err != nil {
		return err
	}
	if *anchors {
		return reportAnchors(out, rows)
	}
	texts, err := readTree(*root)
	if err != nil {
		return err
	}
	switch {
	case *find != "":
		return reportFind(out, rows, texts, *find, *under)
	case *by:
		return reportBy(out, rows, texts)
	case *lower:
		name := filepath.Join(*root, "bench", "words", "table.tsv")
		return os.WriteFile(name, formatTable(lowered(rows, texts)), 0o666)
	}
	return report(out, rows, texts)
}

// report writes the table.
func report(out io.Writer, rows []row, texts []text) error {
	tallies := tally(rows, texts)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "row\tanchors\tgoal\ttext\tmost\tcomments\tmost\tthe rest\t")
	for _, r := range rows {
		goal := "-"
		if r.Kind != wanted {
			goal = fmt.Sprintf("%.1f", r.goal())
		}
		fmt.Fprintf(w, "%s\t%.1f\t%s\t%s\t%s\t%s\t%s\t%.1f\t\n", r.Name, r.Anchors, goal,
			mark(tallies[prose].of(r.Name), r), limit(r, r.Text),
			mark(tallies[comments].of(r.Name), r), limit(r, r.Comments),
			tallies[rest].of(r.Name))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(out, "\nper 10,000 words, of which there are %d in the text, %d in comments and %d in the rest: tests, examples, bench.\n* is above the goal, most is what TestWords allows. The anchors: %s\n",
		tallies[prose].Words, tallies[comments].Words, tallies[rest].Words, anchorSource)
	return err
}

func mark(value float64, r row) string {
	if r.Kind != wanted && value > r.goal() {
		return fmt.Sprintf("*%.1f", value)
	}
	return fmt.Sprintf("%.1f", value)
}

func limit(r row, stored float64) string {
	if r.Kind == wanted {
		return "-"
	}
	return fmt.Sprintf("%.1f", r.most(stored))
}

// reportFind writes each place at which a row occurs.
func reportFind(out io.Writer, rows []row, texts []text, name, under string) error {
	i := slices.IndexFunc(rows, func(r row) bool { return r.Name == name })
	if i < 0 {
		return fmt.Errorf("no row %q in the table", name)
	}
	const around = 60 // bytes of context
	for _, t := range texts {
		if !strings.HasPrefix(t.Path, under) {
			continue
		}
		for _, at := range rows[i].find(strings.ToLower(t.Words)) {
			from, to := max(0, at[0]-around), min(len(t.Words), at[1]+around)
			excerpt := strings.ToValidUTF8(t.Words[from:to], "")
			if _, err := fmt.Fprintf(out, "%s:%d: %s\n", t.Path, t.Line, excerpt); err != nil {
				return err
			}
		}
	}
	return nil
}

// reportBy writes a line for each row and directory, most hits first.
func reportBy(out io.Writer, rows []row, texts []text) error {
	for _, r := range rows {
		if r.Kind == wanted {
			continue
		}
		hits := map[string]int{}
		for _, t := range texts {
			if n := len(r.find(strings.ToLower(t.Words))); n > 0 && t.Part != rest {
				hits[t.directory()] += n
			}
		}
		dirs := slices.SortedFunc(maps.Keys(hits), func(a, b string) int {
			if hits[a] != hits[b] {
				return hits[b] - hits[a]
			}
			return strings.Compare(a, b)
		})
		var line bytes.Buffer
		for _, dir := range dirs {
			fmt.Fprintf(&line, " %s %d,", dir, hits[dir])
		}
		if _, err := fmt.Fprintf(out, "%s:%s\n", r.Name, strings.TrimSuffix(line.String(), ",")); err != nil {
			return err
		}
	}
	return nil
}
