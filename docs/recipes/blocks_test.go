package recipes

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// documents returns the pages whose blocks of Go are checked.
func documents(t *testing.T) []string {
	pages, err := filepath.Glob("../*.md")
	if err != nil || len(pages) == 0 {
		t.Fatalf("%v, %d pages", err, len(pages))
	}
	return append(pages, "../../README.md")
}

var (
	// A block of Go, and the comment before it that names its code.
	block = regexp.MustCompile("(?m)^(?:<!-- (.*) -->\n)?```go\n((?s:.*?))^```")
	// The code between two comments.
	code = regexp.MustCompile(`(?ms)^\t*// begin (.*?)\n(.*?)^\t*// end (.*?)$`)
)

// TestBlocks: each block of Go in the documents is code of a file that is compiled.
func TestBlocks(t *testing.T) {
	compiled := read(t, "*_test.go", "*/sync.go")
	used := make(map[string]bool)
	for _, document := range documents(t) {
		text, err := os.ReadFile(document)
		if err != nil {
			t.Fatal(err)
		}
		for _, wrong := range mistakes(string(text), compiled, used) {
			t.Errorf("%s: %s", document, wrong)
		}
	}
	for name := range compiled {
		if !used[name] {
			t.Errorf("no document has the code %q", name)
		}
	}
}

// read returns the marked code of the files, by name.
func read(t *testing.T, patterns ...string) map[string]string {
	compiled := make(map[string]string)
	for _, pattern := range patterns {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %v, %d files", pattern, err, len(files))
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range code.FindAllStringSubmatch(string(text), -1) {
				if m[1] != m[3] || compiled[m[1]] != "" {
					t.Errorf("%s: code that begins as %q and ends as %q", file, m[1], m[3])
				}
				compiled[m[1]] = unindent(m[2])
			}
		}
	}
	return compiled
}

// unindent removes the indentation of the first line from all lines.
func unindent(text string) string {
	indent := text[:len(text)-len(strings.TrimLeft(text, "\t"))]
	return strings.TrimSpace(strings.ReplaceAll("\n"+text, "\n"+indent, "\n"))
}

// mistakes compares the blocks of a document with the code, and notes which is used.
func mistakes(document string, compiled map[string]string, used map[string]bool) (wrong []string) {
	for _, m := range block.FindAllStringSubmatch(document, -1) {
		name, text := m[1], strings.TrimSpace(m[2])
		used[name] = true
		switch want := compiled[name]; {
		case want == "":
			wrong = append(wrong, "no file has the code of this block:\n"+text)
		case want != text:
			wrong = append(wrong, "the block "+name+" is\n"+text+"\nand the code is\n"+want)
		}
	}
	return wrong
}

func TestBlocksCanFail(t *testing.T) {
	compiled := map[string]string{"a": "x()\n\ty()"}
	for document, want := range map[string]int{
		"<!-- a -->\n```go\nx()\n\ty()\n```\n": 0,
		"<!-- a -->\n```go\nx()\n```\n":        1,
		"<!-- b -->\n```go\nx()\n\ty()\n```\n": 1,
		"```go\nx()\n\ty()\n```\n":             1,
		"```\nx()\n```\n":                      0,
	} {
		if got := mistakes(document, compiled, make(map[string]bool)); len(got) != want {
			t.Errorf("%q: %q, want %d", document, got, want)
		}
	}
	if got := unindent("\tif a {\n\t\tb()\n\t}\n"); got != "if a {\n\tb()\n}" {
		t.Errorf("%q", got)
	}
}
