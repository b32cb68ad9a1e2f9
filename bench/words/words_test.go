package main

import (
	"math"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/sluice-go/sluice/internal/testkit/built"
)

func TestWords(t *testing.T) {
	if built.Raced() {
		t.Skip("it has one goroutine, and takes ten times as long")
	}
	rows, err := parseTable(tableText)
	if err != nil {
		t.Fatal(err)
	}
	texts, err := readTree("../..")
	if err != nil {
		t.Fatal(err)
	}
	// The rest is only shown.
	texts = slices.DeleteFunc(texts, func(t text) bool { return t.Part == rest })
	tallies := tally(rows, texts)
	if n := tallies[prose].Words; n < 20_000 {
		t.Errorf("only %d words of text were found", n)
	}
	if n := tallies[comments].Words; n < 50_000 {
		t.Errorf("only %d words of comments were found", n)
	}
	for _, problem := range problems(rows, tallies) {
		t.Error(problem)
	}
}

func TestProblems(t *testing.T) {
	rows, err := parseTable(header + `
at once	ten	\bat once\b	immediately	1.0	12.0	3.0
what	what	\bwhat\b	name it	8.0	40.0	10.0
mend	other	\bmend\b	fix	2.0	9.0	1.0
current	wanted	\bcurrent\b		9.0	0.0	0.0
`)
	if err != nil {
		t.Fatal(err)
	}
	tallies := func(n int) map[part]count {
		c := count{Words: 10_000, Hits: map[string]int{"at once": n, "what": n, "mend": n, "current": n}}
		return map[part]count{prose: c, comments: c}
	}
	for _, tt := range []struct {
		n    int
		want string // rows, with t for text and c for comments
	}{
		{0, ""},
		{2, ""},                           // twice and once the anchors' frequency
		{3, "mend c"},                     // at once: 3 are stored
		{4, "at once c, mend c"},          //
		{10, "at once c, mend t, mend c"}, // 9 are stored
		{31, "at once t, at once c, what c, mend t, mend c"}, // 30 are allowed, 40 are stored
		{41, "at once t, at once c, what t, what c, mend t, mend c"},
	} {
		var got []string
		for _, p := range problems(rows, tallies(tt.n)) {
			name, tail, _ := strings.Cut(strings.TrimPrefix(p, `"`), `" in `)
			got = append(got, name+" "+tail[:1])
		}
		if s := strings.Join(got, ", "); s != tt.want {
			t.Errorf("%d hits: problems are %q, want %q", tt.n, s, tt.want)
		}
	}
}

func TestLowered_OnlyFalls(t *testing.T) {
	rows := []row{{Name: "at once", Kind: largest, Text: 3, Comments: 30}}
	rows[0].Pattern = mustRow(t, "at once").Pattern
	texts := []text{
		{Part: prose, Words: strings.Repeat("word ", 998) + "at once"},
		{Part: comments, Words: strings.Repeat("word ", 9998) + "at once"},
	}
	got := lowered(rows, texts)[0]
	if got.Text != 3 || got.Comments != 1 || rows[0].Comments != 30 {
		t.Errorf("lowered(3, 30) = %v, %v, want 3, 1: the text has 10, the comments 1", got.Text, got.Comments)
	}
}

func TestTable_IsAsWritten(t *testing.T) {
	rows, err := parseTable(tableText)
	if err != nil {
		t.Fatal(err)
	}
	if got := string(formatTable(rows)); got != tableText {
		t.Error("table.tsv is not as -lower writes it")
	}
	seen := map[string]bool{}
	kinds := map[kind]int{}
	for _, r := range rows {
		if seen[r.Name] {
			t.Errorf("two rows are named %q", r.Name)
		}
		seen[r.Name] = true
		kinds[r.Kind]++
		if r.Pattern.MatchString("") {
			t.Errorf("%q matches an empty text", r.Name)
		}
	}
	if kinds[largest] != 10 || kinds[clauses] != 1 {
		t.Errorf("the table has %d largest rows and %d for what, want 10 and 1", kinds[largest], kinds[clauses])
	}
}

func TestParseTable_Errors(t *testing.T) {
	for _, bad := range []string{
		"",
		"row",
		header + "\nonly\ttwo",
		header + "\na\tnone\tb\tc\t1\t1\t1",
		header + "\na\tten\t(\tc\t1\t1\t1",
		header + "\na\tten\tb\tc\tone\t1\t1",
	} {
		if rows, err := parseTable(bad); err == nil {
			t.Errorf("parseTable(%q) = %v, want an error", bad, rows)
		}
	}
}

func TestReadFiles(t *testing.T) {
	files := fstest.MapFS{
		"a.md":            {Data: []byte("# Title\n\nOne `at once` [two](what)\nthree.\n\n```\nat once\n```\n\n    at once\n| cell | what |\n- item\n")},
		"bench/b.md":      {Data: []byte("bench page\n")},
		"testdata/t.md":   {Data: []byte("not read\n")},
		".git/t.md":       {Data: []byte("not read\n")},
		"c.txt":           {Data: []byte("not read\n")},
		"p/p.go":          {Data: []byte("// Package p is [Gate.Wait] first.\n//\n//\tat once\n//\n// Second\n// line.\n//\n//go:generate at once\npackage p\n\nvar s = \"at once // not a comment\"\n\nfunc f() { panic(\"a message\"); g(\"none\") } // f.\n")},
		"p/p_test.go":     {Data: []byte("package p\n\n/* In a\n * test. */\n")},
		"examples/e/e.go": {Data: []byte("package e // example\n\nvar err = errors.New(\"none\")\n")},
	}
	texts, err := readFiles(files)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, t := range texts {
		got = append(got, string(t.Part)+" "+t.Path+" "+t.Words)
	}
	want := []string{
		"text a.md # Title",
		"text a.md One X [two] three.",
		"text a.md | cell | what |",
		"text a.md - item",
		"rest bench/b.md bench page",
		"rest examples/e/e.go example",
		"comments p/p.go Package p is X first.",
		"comments p/p.go Second line.",
		"comments p/p.go f.",
		"text p/p.go a message",
		"rest p/p_test.go In a test.",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestReport(t *testing.T) {
	rows := []row{mustRow(t, "at once"), mustRow(t, "immediately")}
	texts := []text{{"a.md", 1, prose, "now at once, and immediately"}, {"p/p.go", 7, comments, "at once"}}
	var out strings.Builder
	if err := report(&out, rows, texts); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"*2000.0", "*5000.0", "5 in the text, 2 in comments"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the report has no %q:\n%s", want, out.String())
		}
	}
	out.Reset()
	if err := reportFind(&out, rows, texts, "at once", "p/"); err != nil || out.String() != "p/p.go:7: at once\n" {
		t.Errorf("reportFind: %q, %v", out.String(), err)
	}
	if err := reportFind(&out, rows, texts, "nothing", ""); err == nil {
		t.Error("reportFind of an unknown row: no error")
	}
	out.Reset()
	if err := reportBy(&out, rows, texts); err != nil || out.String() != "at once: a.md 1, p 1\n" {
		t.Errorf("reportBy: %q, %v", out.String(), err)
	}
}

func TestCount_NoWords(t *testing.T) {
	if f := (count{}).of("at once"); f != 0 || math.IsNaN(f) {
		t.Errorf("the frequency in no words is %v, want 0", f)
	}
}

func mustRow(t *testing.T, name string) row {
	t.Helper()
	rows, err := parseTable(tableText)
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(rows, func(r row) bool { return r.Name == name })
	if i < 0 {
		t.Fatalf("no row %q", name)
	}
	return rows[i]
}
