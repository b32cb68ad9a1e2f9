package main

import (
	"maps"
	"strings"
	"testing"
)

func TestInstrumented(t *testing.T) {
	const text = "// Package p is short.\npackage p // here\n\nfunc F() { func() {}() }\n\nfunc (t *T[P]) M() (n int) {\n\treturn\n}\n\nfunc bodyless()\n"
	for whole, want := range map[string]string{
		"":  "// Package p is short.\npackage p; import trace__ \"x/trace\" // here\n\nfunc F() { defer trace__.In(\"a/p.go\", \"F\")(); func() {}() }\n\nfunc (t *T[P]) M() (n int) { defer trace__.In(\"a/p.go\", \"T.M\")();\n\treturn\n}\n\nfunc bodyless()\n",
		"F": "// Package p is short.\npackage p; import trace__ \"x/trace\" // here\n\nfunc F() { defer trace__.Call()(); func() {}() }\n\nfunc (t *T[P]) M() (n int) {\n\treturn\n}\n\nfunc bodyless()\n",
		"G": text,
	} {
		if got, err := instrumented("a/p.go", []byte(text), "x/trace", whole); string(got) != want || err != nil {
			t.Errorf("%q: got\n%s, %v\nwant\n%s", whole, got, err, want)
		}
	}
	if _, err := instrumented("p.go", []byte("no Go"), "x", ""); err == nil {
		t.Error("no error")
	}
}

func TestBlocks(t *testing.T) {
	got, err := blocks(strings.NewReader("mode: atomic\nm/a/b.go:3.17,5.2 2 9\nm/a/b.go:3.17,5.2 2 1\nm/a/b.go:7.1,7.9 1 0\n"), "m/")
	want := map[block]int{{"a/b.go", "3.17,5.2", 3, 2}: 10, {"a/b.go", "7.1,7.9", 7, 1}: 0}
	if !maps.Equal(got, want) || err != nil {
		t.Errorf("%v, %v, want %v", got, err, want)
	}
	for _, bad := range []string{"m/a.go:3.17,5.2 2\n", "m/a.go:x 2 3\n", "m/a.go\n"} {
		if _, err := blocks(strings.NewReader(bad), "m/"); err == nil {
			t.Errorf("%q: no error", bad)
		}
	}
}

func TestRecords(t *testing.T) {
	got, err := records("call\n1\ta.go\tF\n2\tb.go\tQueue.Lock\n2\tb.go\tG\n1\ta.go\tH\ncall\n1\ta.go\tF\n")
	want := []passage{{calls: 4, moves: 2, returns: 1, locks: 1}, {calls: 1}}
	if len(got) != 2 || got[0] != want[0] || got[1] != want[1] || err != nil {
		t.Errorf("%v, %v, want %v", got, err, want)
	}
	for _, bad := range []string{"1\ta.go\tF\n", "call\n1\ta.go\n", "call\nx\n"} {
		if _, err := records(bad); err == nil {
			t.Errorf("%q: no error", bad)
		}
	}
}

// A gate that is locked by another function would seem to take no lock.
func TestCounter_NoLock(t *testing.T) {
	tree, root := tiny(t)
	tree.packages = tree.packages[:1] // without inner
	if _, err := (counter{tree, root, "scenes", t.TempDir()}).passages(nil); err == nil || !strings.Contains(err.Error(), "no method Queue.Lock") {
		t.Errorf("%v", err)
	}
}
