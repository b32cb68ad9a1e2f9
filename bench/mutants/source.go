package main

import (
	"bytes"
	"cmp"
	"go/ast"
	"go/token"
	"slices"
)

// A source is a file and how it changes.
type source struct {
	name  string
	text  []byte
	file  *ast.File
	test  bool // it has no mutants of its own
	edits []edit
}

// An edit replaces some text, or inserts some.
type edit struct {
	at, end int
	text    string
	closes  bool // it ends what an edit before has begun
}

// at returns the text of an expression, "" of none.
func (s *source) at(p *program, x ast.Expr) string {
	if x == nil {
		return ""
	}
	return string(s.text[p.fset.Position(x.Pos()).Offset:p.fset.Position(x.End()).Offset])
}

func (s *source) replace(p *program, from, to token.Pos, text string) {
	s.edits = append(s.edits, edit{p.fset.Position(from).Offset, p.fset.Position(to).Offset, text, false})
}

func (s *source) insert(p *program, pos token.Pos, text string, closes bool) {
	at := p.fset.Position(pos).Offset
	s.edits = append(s.edits, edit{at, at, text, closes})
}

// render returns the text between two offsets with its edits. Where several meet, those that close come first, the
// inner ones before the outer ones, which were added earlier; then those that open, in their order.
func (s *source) render(from, to int) string {
	type numbered struct {
		edit
		n int
	}
	var all []numbered
	for i, e := range s.edits {
		if from <= e.at && e.end <= to {
			all = append(all, numbered{e, i})
		}
	}
	slices.SortFunc(all, func(a, b numbered) int {
		switch {
		case a.at != b.at:
			return cmp.Compare(a.at, b.at)
		case a.closes != b.closes:
			if a.closes {
				return -1
			}
			return 1
		case a.closes:
			return cmp.Compare(b.n, a.n)
		}
		return cmp.Compare(a.n, b.n)
	})
	var out bytes.Buffer
	for _, e := range all {
		out.Write(s.text[from:e.at])
		out.WriteString(e.text)
		from = e.end
	}
	out.Write(s.text[from:to])
	return out.String()
}
