package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// tiny copies testdata/tiny, a module with a gate of 40 lines, and returns it and its directory. There,
// go.mod has another name: the module is none of this repository.
func tiny(t *testing.T) (*tree, string) {
	t.Helper()
	root := t.TempDir()
	if err := os.CopyFS(root, os.DirFS("testdata/tiny")); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(filepath.Join(root, "go.mod.txt"), filepath.Join(root, "go.mod")); err != nil {
		t.Fatal(err)
	}
	loaded, err := load(os.DirFS(root))
	if err != nil {
		t.Fatal(err)
	}
	return loaded, root
}

// Each number can be counted by hand in testdata/tiny.
func TestTree_Figures(t *testing.T) {
	tree, root := tiny(t)
	sizes, err := measure(os.DirFS(root))
	if err != nil {
		t.Fatal(err)
	}
	changesWere := changes
	defer func() { changes = changesWere }()
	changes = changes[:1]
	var out strings.Builder
	if err := tree.reportFigures(&out, sizes); err != nil {
		t.Fatal(err)
	}
	compare(t, out.String(), `
house                         now     aim      which
Gate: fields                  3       ≤ 24
Gate: methods                 3       ≤ 55
Gate: files                   1       ≤ 6
largest struct: fields        3                tiny.Gate 3, tiny.ramp 2, inner.Queue 1, tiny.budget 1
arrows up                     1 of 4  ≤ 30     tiny 1, inner 0
meanings of rule              1       1        tiny.rule
meanings of unit              2       1        float64, int
types that leave              2       ≤ 4      tiny.budget, tiny.ramp
core module: lines            73      ≤ 24000
core module: names            5       ≤ 300
all modules: lines            73
all modules: names            5       ≤ 440
entries of the top folder     8       ≤ 75     without .git
longest file of tests: lines  5       ≤ 1000   tiny_test.go
longer files of tests         0       0

change                   files  places  aim  because these have both of
a limit inside the gate  3      4       1    the retry budget and the slow start (ramp)

a limit inside the gate
  README.md
  ramp.go  ramp
  tiny.go  Gate, rule.admit
`)
}

// Of the calls "often" each passes Gate.seldom, of the calls "once" one does. What another
// goroutine does for a call is passed, but is no part of the order.
func TestCounter_Passages(t *testing.T) {
	t.Setenv("GOWORK", "off")
	tree, root := tiny(t)
	kinds := []scene{{name: "often", says: "often"}, {name: "once", says: "once", aims: [8]string{"≤ 9"}}}
	passages, err := counter{tree, root, "scenes", t.TempDir()}.passages(kinds)
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	if err := reportPassages(&out, kinds, passages); err != nil {
		t.Fatal(err)
	}
	compare(t, out.String(), `
one call  functions  files  calls  statements  moves  back  locks  longest function
often     9          4      12     19          6      3     2      Gate.Do 10
once      8          4      9      16          4      1     1      Gate.Do 10
  aim     ≤ 9
`)
	if _, err := (counter{tree, root, "scenes", t.TempDir()}).passages([]scene{{name: "panics"}}); err == nil || !strings.Contains(err.Error(), "panics: ") {
		t.Errorf("a program that fails: %v", err)
	}
}

func compare(t *testing.T, got, want string) {
	t.Helper()
	trim := func(s string) (lines []string) {
		for line := range strings.Lines(strings.Trim(s, "\n")) {
			lines = append(lines, strings.TrimRight(line, " \n"))
		}
		return lines
	}
	if g, w := strings.Join(trim(got), "\n"), strings.Join(trim(want), "\n"); g != w {
		t.Errorf("got\n%s\nwant\n%s", g, w)
	}
}
