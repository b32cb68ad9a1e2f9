package main

import (
	"bytes"
	_ "embed"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
)

// anchorSource says of what Anchors in table.tsv are the frequencies; -anchors counts them again.
const anchorSource = "Go 1.26.8 (net/http, context, sync, time), golang.org/x/time v0.16.0, golang.org/x/sync v0.24.0, " +
	"failsafe-go v0.9.8, cenkalti/backoff v5.0.3, maypok86/otter v2.4.0"

// The table has one line for each row. All numbers are per 10,000 words.
//
//go:embed table.tsv
var tableText string

// A kind says how often a row may occur.
type kind string

const (
	largest kind = "ten"    // one of the ten rows with the most hits: at most twice as often as in the anchors
	other   kind = "other"  // at most four times as often
	clauses kind = "what"   // noun clauses with "what": at most 30
	wanted  kind = "wanted" // a standard word, which is only shown
)

// A row is a group of expressions that are counted together.
type row struct {
	Name     string
	Kind     kind
	Pattern  *regexp.Regexp // for words in lower case: (?i) would take twice as long
	Instead  string         // the standard expression
	Anchors  float64        // the frequency in the anchors
	Text     float64        // the frequency that the text must not exceed; it only falls
	Comments float64        // the same for comments
}

// Rows that hardly occur in the anchors may occur once in 20,000 words: some hits are innocent.
const least = 0.5

// goal is the frequency that is aimed at.
func (r row) goal() float64 {
	switch r.Kind {
	case largest:
		return max(least, 2*r.Anchors)
	case clauses:
		return 30
	case other:
		return max(least, 4*r.Anchors)
	}
	return math.Inf(1)
}

// most is the frequency above which TestWords fails. While a row is above its goal, it is the
// stored value. Afterwards the largest rows may rise to their goal again, and the others stay at the
// stored value, unless that is less than in the anchors.
func (r row) most(stored float64) float64 {
	switch r.Kind {
	case largest, clauses:
		return max(stored, r.goal())
	case other:
		return max(stored, least, r.Anchors)
	}
	return math.Inf(1)
}

// find returns the places of a row in words in lower case.
func (r row) find(lower string) [][]int { return r.Pattern.FindAllStringIndex(lower, -1) }

// lowered returns rows with the present values where they are below the stored ones.
func lowered(rows []row, texts []text) []row {
	tallies := tally(rows, texts)
	rows = append([]row(nil), rows...)
	for i := range rows {
		r := &rows[i]
		if r.Kind == wanted {
			continue
		}
		r.Text = min(r.Text, roundUp(tallies[prose].of(r.Name)))
		r.Comments = min(r.Comments, roundUp(tallies[comments].of(r.Name)))
	}
	return rows
}

// roundUp leaves room for the frequency to rise a little when text without a hit is removed.
func roundUp(frequency float64) float64 { return math.Ceil(2*frequency) / 2 }

const header = "row\tkind\tpattern\tinstead\tanchors\ttext\tcomments"

func parseTable(s string) ([]row, error) {
	lines := strings.Split(strings.TrimSuffix(s, "\n"), "\n")
	if lines[0] != header {
		return nil, fmt.Errorf("the table must begin with %q", header)
	}
	var rows []row
	for i, line := range lines[1:] {
		fields := strings.Split(line, "\t")
		if len(fields) != 7 {
			return nil, fmt.Errorf("line %d of the table has %d fields, want 7", i+2, len(fields))
		}
		r := row{Name: fields[0], Kind: kind(fields[1]), Instead: fields[3]}
		switch r.Kind {
		case largest, other, clauses, wanted:
		default:
			return nil, fmt.Errorf("line %d of the table: unknown kind %q", i+2, fields[1])
		}
		var err error
		if r.Pattern, err = regexp.Compile(fields[2]); err != nil {
			return nil, fmt.Errorf("line %d of the table: %w", i+2, err)
		}
		for j, number := range []*float64{&r.Anchors, &r.Text, &r.Comments} {
			if *number, err = strconv.ParseFloat(fields[4+j], 64); err != nil {
				return nil, fmt.Errorf("line %d of the table: %w", i+2, err)
			}
		}
		rows = append(rows, r)
	}
	return rows, nil
}

func formatTable(rows []row) []byte {
	var b bytes.Buffer
	b.WriteString(header + "\n")
	for _, r := range rows {
		fmt.Fprintf(&b, "%s\t%s\t%s\t%s\t%.1f\t%.1f\t%.1f\n", r.Name, r.Kind,
			r.Pattern, r.Instead, r.Anchors, r.Text, r.Comments)
	}
	return b.Bytes()
}

// A count is how often each row occurs in a number of words.
type count struct {
	Words int
	Hits  map[string]int
}

// of returns the frequency of a row per 10,000 words.
func (c count) of(name string) float64 {
	if c.Words == 0 {
		return 0
	}
	return 1e4 * float64(c.Hits[name]) / float64(c.Words)
}

// tally counts the rows in each part.
func tally(rows []row, texts []text) map[part]count {
	counts := map[part]count{}
	for _, p := range []part{prose, comments, rest} {
		c := count{Hits: map[string]int{}}
		for _, t := range texts {
			if t.Part != p {
				continue
			}
			c.Words += len(strings.Fields(t.Words))
			lower := strings.ToLower(t.Words)
			for _, r := range rows {
				c.Hits[r.Name] += len(r.find(lower))
			}
		}
		counts[p] = c
	}
	return counts
}

// problems returns a sentence for each row that occurs too often.
func problems(rows []row, tallies map[part]count) []string {
	var all []string
	for _, r := range rows {
		for _, c := range []struct {
			part   part
			stored float64
		}{{prose, r.Text}, {comments, r.Comments}} {
			value, most := tallies[c.part].of(r.Name), r.most(c.stored)
			if value > most {
				all = append(all, fmt.Sprintf("%q in %s: %.1f in 10,000 words, at most %.1f are allowed; write: %s (go run ./bench/words -find %q)",
					r.Name, c.part, value, most, r.Instead, r.Name))
			}
		}
	}
	return all
}
