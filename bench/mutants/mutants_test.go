package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

var tiny = filepath.Join("testdata", "tiny")

// tinyMutants are all mutants of testdata/tiny, and whether its tests kill them.
var tinyMutants = []struct {
	mutant string
	killed bool
}{
	{"numbers most = 4 becomes 5", true},
	{"numbers twice = 2 becomes 3", true},
	{"numbers pause = 2 becomes 3", false}, // the test compares with pause, which has changed as well
	{"numbers .5 becomes 0.625", true},
	{"operators && becomes ||", true},
	{"operators >= becomes <", true},
	{"numbers 10 becomes 13", true},
	{"operators != becomes ==", true},
	{"numbers 13 becomes 17", true},
	{"operators + becomes -", true},
	{"operators * becomes /", true},
	{"operators + becomes -", true},
	{"operators || becomes &&", true},
	{"operators == becomes !=", true},
	{"operators > becomes <=", true},
	{"operators / becomes *", false},
	{"numbers 3 becomes 3.75", false},
	{"operators != becomes ==", true},
	{"numbers 3 becomes 4", true},
	{"operators += becomes -=", true}, // it does not end
	{"numbers 1 becomes 2", true},     // neither does this
}

// Each mutant of a small package is made once and has the fate that it has by hand. That an unused function and a number that is
// compared with itself survive shows that the tests run at all, and not the compiler.
func TestHunt(t *testing.T) {
	p, err := load(tiny)
	if err != nil {
		t.Fatal(err)
	}
	h := hunt{folder: tiny, temp: t.TempDir(), at: 2, most: len(turns), all: sample(p.mutants, 0, 1, func(mutant) bool { return true })}
	binary, err := h.build(p)
	if err != nil {
		t.Fatal(err)
	}
	if err := h.order(t.Context(), binary); err != nil {
		t.Fatal(err)
	}
	var got, want []string
	for i, killed := range h.hunt(t.Context(), binary) {
		m := h.all[i]
		got = append(got, fmt.Sprintf("%s %s becomes %s: killed %t", m.kind, m.was, m.is, killed))
	}
	for _, m := range tinyMutants {
		want = append(want, fmt.Sprintf("%s: killed %t", m.mutant, m.killed))
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("mutants are\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// A goal that is not reached is an error, the table and the survivors are printed, and no file stays.
func TestRun_Goals(t *testing.T) {
	temp := t.TempDir()
	t.Setenv("TMPDIR", temp)
	var out bytes.Buffer
	few := []string{"-package", tiny, "-operators", "50", "-numbers"}
	ids := []string{"-ids", idsOf(t, "pause = 2", "most = 4", "/", "&&")}
	if err := run(t.Context(), slices.Concat(few, []string{"50"}, ids), &out); err != nil {
		t.Errorf("half of both are killed: %v", err)
	}
	for _, line := range []string{"| all | 2 | 50 % | 2 | 50 % |", "tiny.go:9: pause = 2 becomes 3", "tiny.go:35: / becomes *"} {
		if !strings.Contains(out.String(), line) {
			t.Errorf("no %q in\n%s", line, &out)
		}
	}
	if strings.Contains(out.String(), "most = 4") {
		t.Errorf("a killed mutant is listed:\n%s", &out)
	}
	if err := run(t.Context(), slices.Concat(few, []string{"51"}, ids), &out); err == nil || !strings.Contains(err.Error(), "numbers") {
		t.Errorf("half of the numbers is enough for 51 %%: %v", err)
	}
	if err := run(t.Context(), []string{"-package", tiny, "nosuchfile.go"}, &out); err == nil {
		t.Error("no error for a file that is not there")
	}
	left, err := os.ReadDir(temp)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range left {
		t.Errorf("%s stays", f.Name())
	}
}

// idsOf returns the numbers of mutants of testdata/tiny by what they change.
func idsOf(t *testing.T, was ...string) string {
	t.Helper()
	p, err := load(tiny)
	if err != nil {
		t.Fatal(err)
	}
	var ids []string
	for _, m := range p.mutants {
		if slices.Contains(was, m.was) {
			ids = append(ids, fmt.Sprint(m.id))
		}
	}
	if len(ids) != len(was) {
		t.Fatalf("%d mutants of %v", len(ids), was)
	}
	return strings.Join(ids, ",")
}

// Tests run in the order of the time that they take, and those of the comments not at all. What no test is printed of has none.
func TestInTurns(t *testing.T) {
	got := inTurns(`=== RUN   TestA
--- PASS: TestA (0.50s)
    --- PASS: TestA/sub (9.00s)
--- PASS: TestB (0.01s)
--- SKIP: TestC (0.00s)
--- PASS: TestD (0.00s)
--- PASS: TestE (0.05s)
PASS
`)
	if want := "[{[TestD TestB] 0.01} {[TestE] 0.05} {[TestA] 0.5}]"; fmt.Sprint(got) != want {
		t.Errorf("%v, want %v", got, want)
	}
}

// A sample has as many of each kind, is the same for one seed, and another for another.
func TestSample(t *testing.T) {
	var all []mutant
	for i := range 400 {
		kind := operators
		if i%4 == 0 {
			kind = numbers
		}
		all = append(all, mutant{id: i, kind: kind})
	}
	every := func(mutant) bool { return true }
	one, again, other := sample(all, 20, 1, every), sample(all, 20, 1, every), sample(all, 20, 2, every)
	if !slices.Equal(one, again) || slices.Equal(one, other) {
		t.Error("the sample does not follow the seed")
	}
	for _, kind := range []string{operators, numbers} {
		if _, made := share(one, make([]bool, len(one)), kind); made != 20 {
			t.Errorf("%d %s", made, kind)
		}
	}
	if n := len(sample(all, 0, 1, every)); n != len(all) {
		t.Errorf("%d of all", n)
	}
}

// The rule has its mutants, and compiles with them: no test of it runs here, .ci/full does that.
func TestLoad_Rule(t *testing.T) {
	p, err := load(filepath.Join("..", "..", "internal", "adaptive"))
	if err != nil {
		t.Fatal(err)
	}
	if _, made := share(p.mutants, make([]bool, len(p.mutants)), numbers); made < 500 {
		t.Errorf("%d numbers", made)
	}
	h := hunt{folder: filepath.Join("..", "..", "internal", "adaptive"), temp: t.TempDir()}
	if _, err := h.build(p); err != nil {
		t.Error(err)
	}
}
