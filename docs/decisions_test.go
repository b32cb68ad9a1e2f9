package docs_test

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var updateIndex = flag.Bool("index", false, "write the index of docs/decisions.md")

const (
	indexBegin = "<!-- begin index -->\n"
	indexEnd   = "<!-- end index -->\n"
)

// symbol is an exported name in the text of a decision.
var symbol = regexp.MustCompile("`(?:\\w+\\.)?([A-Z]\\w*[a-z]\\w*(?:\\.[A-Z]\\w*)?)(?:\\(.*?\\))?`")

// indexOf returns the symbols of the decisions, each with the numbers of its entries.
func indexOf(page string) string {
	entries := make(map[string][]string)
	for i, entry := range strings.Split(page, "\n### ")[1:] {
		title, _, _ := strings.Cut(entry, "\n")
		entry, _, _ = strings.Cut(entry, "\n## ")
		link := fmt.Sprintf("[%d](#%s)", i+1, fragment(title))
		for _, m := range symbol.FindAllStringSubmatch(entry, -1) {
			if name := m[1]; !slices.Contains(entries[name], link) {
				entries[name] = append(entries[name], link)
			}
		}
	}
	var all []string
	for name, links := range entries {
		all = append(all, fmt.Sprintf("`%s` %s", name, strings.Join(links, " ")))
	}
	slices.SortFunc(all, func(a, b string) int { return strings.Compare(strings.ToLower(a), strings.ToLower(b)) })
	return strings.Join(all, " · ") + "\n"
}

// fragment returns the anchor of a heading on GitHub.
func fragment(title string) string {
	var b strings.Builder
	for _, r := range strings.ToLower(title) {
		switch {
		case r == ' ':
			b.WriteByte('-')
		case r == '-' || r == '_' || r > 127 || r >= 'a' && r <= 'z' || r >= '0' && r <= '9':
			b.WriteRune(r)
		}
	}
	return b.String()
}

// The index of docs/decisions.md has each symbol. After a change: go test -run TestDecisions_Index ./docs -index
func TestDecisions_Index(t *testing.T) {
	const name = "decisions.md"
	text, err := os.ReadFile(name)
	if err != nil {
		t.Skip("not a checkout")
	}
	before, rest, begins := strings.Cut(string(text), indexBegin)
	index, after, ends := strings.Cut(rest, indexEnd)
	if !begins || !ends {
		t.Fatalf("%s has no marks for the index", name)
	}
	want := indexOf(after)
	switch {
	case index == want:
	case *updateIndex:
		if err := os.WriteFile(name, []byte(before+indexBegin+want+indexEnd+after), 0o666); err != nil {
			t.Fatal(err)
		}
	default:
		t.Errorf("docs/%s: the index is outdated; go test -run TestDecisions_Index ./docs -index", name)
	}
}
