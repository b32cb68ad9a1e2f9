package main

import (
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

// The changes are those of this repository: each example of them is there, or house would say
// that nothing must be touched.
func TestChanges_HaveExamples(t *testing.T) {
	here, err := load(os.DirFS("../.."))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range changes {
		if _, err := here.touches(c); err != nil {
			t.Error(err)
		}
	}
	gone := changes[0]
	gone.examples = append(slices.Clone(gone.examples), word("phlogiston"))
	if _, err := here.touches(gone); err == nil || !strings.Contains(err.Error(), "example 3") {
		t.Errorf("an example that is gone: %v", err)
	}
	for _, l := range here.packages {
		if laboratory(l.folder) || strings.Contains(l.folder, "testkit") || l.name == "main" {
			t.Errorf("%s is not for users", l.folder)
		}
	}
	if n := len(here.packages); n < 25 {
		t.Errorf("%d packages", n)
	}
}

func TestWord(t *testing.T) {
	w := word("budget", "errElapsed")
	for text, want := range map[string]bool{
		"budget": true, "g.budget.wait": true, "newBudget": true, "budgetOf": true, "RetryBudget": true, "ErrElapsed": true,
		"learned_budget": true, "the budget is empty": true, "budget_wait": true,
		"budgetary": false, "Budgets": false, "debudget": false, "elapsed": false, "": false,
	} {
		if got := w.MatchString(text); got != want {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
	}
}

// Of few files, all orders can be tried.
func TestArrows_Up(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		a := &arrows{to: make([][]bool, 2+random.IntN(4))}
		for i := range a.to {
			a.to[i] = make([]bool, len(a.to))
			for j := range a.to[i] {
				a.to[i][j] = i != j && random.IntN(2) == 0
			}
		}
		want := a.count()
		permute(len(a.to), func(order []int) { want = min(want, a.upIn(order)) })
		if got := a.up(); got != want {
			t.Fatalf("%v: %d, want %d", a.to, got, want)
		}
	}
}

func permute(n int, yield func(order []int)) {
	order := make([]int, 0, n)
	var next func()
	next = func() {
		if len(order) == n {
			yield(order)
		}
		for i := range n {
			if !slices.Contains(order, i) {
				order = append(order, i)
				next()
				order = order[:len(order)-1]
			}
		}
	}
	next()
}

// A larger one: ten files below each other, and two pairs that use each other.
func TestArrows_Up_Ladder(t *testing.T) {
	a := &arrows{to: make([][]bool, 10)}
	for i := range a.to {
		a.to[i] = make([]bool, 10)
		for j := range i {
			a.to[i][j] = true // the order of names is the wrong one
		}
	}
	if got := a.up(); got != 0 {
		t.Errorf("%d, want 0", got)
	}
	a.to[0][9], a.to[3][4] = true, true
	if got := a.up(); got != 2 || a.count() != 47 {
		t.Errorf("%d of %d, want 2 of 47", got, a.count())
	}
}

// A file for another system is not read, another name of a struct and an embedded field count,
// and only what users can import.
func TestLoad(t *testing.T) {
	file := func(text string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(text)} }
	tree, err := load(fstest.MapFS{
		"go.mod":              file("module m\n"),
		"a.go":                file("package a\n\nimport (\"m/internal/used\"; \"sync\")\n\ntype S struct { sync.Mutex; a, b int; _ used.T }\n\ntype other S\n\nfunc (*S) A() {}\n"),
		"b.go":                file("package a\n\nfunc (o *other) B() { o.a++ }\n"),
		"b_windows.go":        file("package a\n\nfunc (*S) W() {}\n"),
		"internal/used/u.go":  file("package used\n\ntype T int\n"),
		"internal/kit/k.go":   file("package kit\n"),
		"tool/main.go":        file("package main\n\nimport _ \"m/internal/kit\"\n"),
		"nested/go.mod":       file("module m/deep\n"),
		"nested/n/n.go":       file("package n\n\nimport \"m\"\n\nvar V a.S\n"),
		"bench/b.go":          file("package bench\n"),
		"testdata/t.go":       file("no Go"),
		"internal/used/go.md": file(""),
	})
	if err != nil {
		t.Fatal(err)
	}
	var folders, paths []string
	for _, l := range tree.packages {
		folders, paths = append(folders, l.folder), append(paths, l.path)
	}
	if want := []string{".", "internal/used", "nested/n"}; !slices.Equal(folders, want) {
		t.Errorf("%q, want %q", folders, want)
	}
	if want := []string{"m", "m/internal/used", "m/deep/n"}; !slices.Equal(paths, want) {
		t.Errorf("%q, want %q", paths, want)
	}
	if got, want := tree.shapes(), (shape{"m.S", 4, 2, 2}); len(got) != 1 || got[0] != want {
		t.Errorf("%v, want %v", got, want)
	}
	if a := tree.arrowsOf(tree.packages[0]); a.count() != 1 || !a.to[1][0] {
		t.Errorf("%v, want one arrow, from b.go to a.go", a.to)
	}
}

func TestLoad_ReportsWhatItCannotRead(t *testing.T) {
	for name, files := range map[string]fstest.MapFS{
		"no module":    {"a.go": {Data: []byte("package a\n")}},
		"no Go":        {"go.mod": {Data: []byte("module m\n")}, "a.go": {Data: []byte("not Go")}},
		"empty go.mod": {"go.mod": {}},
	} {
		if _, err := load(files); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
