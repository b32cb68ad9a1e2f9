package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
)

// instrumented returns a Go file in which each function first calls In of the package tracer, with
// the name of the file and its own, or Call if it is the function called whole. Lines stay where they are.
// A function without a body stays as it is, and so do functions within others: they are a part of
// those.
func instrumented(name string, text []byte, tracer, whole string) ([]byte, error) {
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, name, text, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	out := text
	insert := func(after token.Pos, code string) {
		out = slices.Insert(slices.Clone(out), files.Position(after).Offset+1, []byte(code)...)
	}
	calls := 0
	for _, decl := range slices.Backward(file.Decls) { // from below, so that offsets stay true
		f, ok := decl.(*ast.FuncDecl)
		if !ok || f.Body == nil {
			continue
		}
		switch name := functionName(f); {
		case whole == "":
			insert(f.Body.Lbrace, fmt.Sprintf(" defer trace__.In(%q, %q)();", files.Position(f.Pos()).Filename, name))
		case whole == name:
			insert(f.Body.Lbrace, " defer trace__.Call()();")
		default:
			continue
		}
		calls++
	}
	if calls > 0 {
		insert(file.Name.End()-1, fmt.Sprintf("; import trace__ %q", tracer))
	}
	return out, nil
}
