package main

import (
	"strings"
	"testing"
	"testing/fstest"
)

func TestMeasure(t *testing.T) {
	tree := fstest.MapFS{
		"a.go":            {Data: []byte("package a\n\ntype T[P any] struct {\n\tA, b int\n\tC int\n}\n\nfunc (*T[P]) M() {}\n")},
		"b.go":            {Data: []byte("package a\n\ntype t int\n\nfunc (t) M() {}\n\nfunc F() {\n\n\n}\n\nconst (\n\tX, y = 1, 2\n\tZ = 3\n)\n")},
		"a_test.go":       {Data: []byte("package a\n\nfunc TestF() {}\n")},
		"c/c.go":          {Data: []byte("package c\n\nvar V int\n")},
		"internal/i.go":   {Data: []byte("package internal\n\nvar V int\n")},
		"examples/x/x.go": {Data: []byte("package main\n\nvar V int\n")},
		"bench/x.go":      {Data: []byte("package bench\n\nvar V int\n")},
		".ci/x.go":        {Data: []byte("not Go")},
	}
	packages, err := measure(tree)
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	if err := report(&out, packages); err != nil {
		t.Fatal(err)
	}
	want := `package  names  fields  lines  files  longest file  longest function
.        5      2       23     2      b.go 15       F 4
c        1      0       3      1      c.go 3        - 0
all      6      2       26     3      b.go 15       F 4
`
	if out.String() != want {
		t.Errorf("got\n%swant\n%s", &out, want)
	}
}

func TestMeasureReportsWhatIsNotGo(t *testing.T) {
	if _, err := measure(fstest.MapFS{"a.go": {Data: []byte("not Go")}}); err == nil {
		t.Error("no error")
	}
}
