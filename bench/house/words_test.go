package main

import (
	"slices"
	"testing"
	"testing/fstest"
)

// Parameters and variables are no meanings, and a field whose type is another type means that one.
func TestTree_Meanings(t *testing.T) {
	tree, err := load(fstest.MapFS{
		"go.mod": {Data: []byte("module example.com/m\n")},
		"a.go": {Data: []byte(`package m

import "sync/atomic"

type Rule struct{}

type s struct {
	rule   *Rule
	unit   int
	Unit   map[Rule]string
	leave  bool
	leaves int
}

type i interface{ leave(); Unit() }

type at struct{ rule atomic.Pointer[Rule] }

func (s) Rule() float64 { return 0 }

func f(unit string) (rule bool) { var unit2 byte; _ = unit2; return false }

func leave() {}
`)},
		"deep/go.mod": {Data: []byte("module example.com/m/deep\n")},
		"deep/d.go":   {Data: []byte("package deep\n\n\n")},
	})
	if err != nil {
		t.Fatal(err)
	}
	for word, want := range map[string][]string{"rule": {"float64", "m.Rule"}, "unit": {"int"}, "none": nil} {
		if got := tree.meanings(word); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", word, got, want)
		}
	}
	if got, want := tree.having("leave"), []string{"m.i", "m.s"}; !slices.Equal(got, want) {
		t.Errorf("leave: %q, want %q", got, want)
	}
	all, err := tree.figures(nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"core module: lines": "23", "all modules: lines": "26"} {
		if i := slices.IndexFunc(all, func(f figure) bool { return f.name == name }); i < 0 || all[i].value != want {
			t.Errorf("%s: %v, want %s", name, all, want)
		}
	}
}
