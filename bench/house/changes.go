package main

import (
	"fmt"
	"go/ast"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"
)

// A change is one that somebody will want to make: one more of something of which there are
// several. What it must touch is taken from the examples that are there: each declaration, and
// each page, that has words for all of them lists them by hand, and a further one would have to be
// added to it. Files that only one example has are its own; a further one brings its own.
type change struct {
	name     string
	aim      string
	says     string           // what the examples are
	examples []*regexp.Regexp // of their words, in code, strings and comments
}

// word matches names with one of some words in them, such as budget, newBudget and ErrBudget, but
// not budgetary.
func word(words ...string) *regexp.Regexp {
	var all []string
	for _, w := range words {
		capital := strings.ToUpper(w[:1]) + w[1:]
		all = append(all, `(?:\b|_)`+w+`(?:[A-Z_]\w*)?\b`, `(?:\b|[a-z0-9])`+capital+`(?:[A-Z_]\w*)?\b`)
	}
	return regexp.MustCompile(strings.Join(all, "|"))
}

var changes = []change{{
	name: "a limit inside the gate", aim: "1", says: "the retry budget and the slow start (ramp)",
	examples: []*regexp.Regexp{word("budget"), word("ramp")},
}, {
	name: "a header family", says: "those of Shopify and of Amazon",
	examples: []*regexp.Regexp{regexp.MustCompile("(?i)shopify"), regexp.MustCompile("(?i)amazon|x-amz")},
}, {
	name: "a retry rule", says: "MaxElapsed and MaxServerWait",
	examples: []*regexp.Regexp{word("maxElapsed", "errElapsed"), word("maxServerWait", "errServerWait")},
}, {
	name: "a learned signal", says: "the proven and the refuted rate",
	examples: []*regexp.Regexp{word("proven"), word("refuted")},
}, {
	name: "an exporter", says: "observe/prometheus and observe/otel",
	examples: []*regexp.Regexp{regexp.MustCompile("observe/prometheus|sluiceprom"), regexp.MustCompile("observe/otel|sluiceotel")},
}}

// A touched file is one that a change must touch.
type touched struct {
	file   string
	places []string // declarations; none in a page
}

// touches returns the files that a change must touch. It fails if an example is nowhere: what
// does not exist any more would touch nothing.
func (t *tree) touches(c change) (all []touched, err error) {
	found := make([]bool, len(c.examples))
	matches := func(text string) bool {
		every := true
		for i, e := range c.examples {
			is := e.MatchString(text)
			found[i] = found[i] || is
			every = every && is
		}
		return every
	}
	for _, l := range t.packages {
		for _, s := range l.sources {
			at := touched{file: s.name}
			s.declarations(t.files, func(name, text string, _ ast.Decl) {
				if matches(text) {
					at.places = append(at.places, name)
				}
			})
			if at.places != nil {
				all = append(all, at)
			}
		}
	}
	for i, is := range found {
		if !is {
			return nil, fmt.Errorf("%s: no code has a word of example %d (%s): choose another one in changes.go", c.name, i+1, c.says)
		}
	}
	err = fs.WalkDir(t.all, ".", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && hidden(name):
			return fs.SkipDir
		case entry.IsDir() || !isPage(name):
			return nil
		}
		text, err := fs.ReadFile(t.all, name)
		if matches(string(text)) {
			all = append(all, touched{file: name})
		}
		return err
	})
	slices.SortFunc(all, func(a, b touched) int { return strings.Compare(a.file, b.file) })
	return all, err
}

// isPage reports whether a file is a page about the library, or the list of modules. The changelog
// is a history, and touched by each change.
func isPage(name string) bool {
	top, _, _ := strings.Cut(name, "/")
	switch {
	case name == "go.work":
		return true
	case path.Ext(name) != ".md" || name == "CHANGELOG.md":
		return false
	}
	return top == "docs" || !laboratory(name)
}
