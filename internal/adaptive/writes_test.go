package adaptive

import (
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// doc.go lists which fields each file writes. A field is to be written in one place, or there
// is no telling why it has changed.
func TestDoc_SaysWhichFileWritesWhat(t *testing.T) {
	written, said := writes(t), table(t)
	files := slices.Sorted(maps.Keys(written))
	for file := range said {
		if !slices.Contains(files, file) {
			t.Errorf("%s: doc.go says that it writes %v, and it writes nothing of that kind", file, said[file])
		}
	}
	for _, file := range files {
		if !slices.Equal(written[file], said[file]) {
			t.Errorf("%s writes %s, and doc.go says %s", file, strings.Join(written[file], ", "), strings.Join(said[file], ", "))
		}
	}
}

// table returns the fields in doc.go by file.
func table(t *testing.T) map[string][]string {
	t.Helper()
	text, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	said := make(map[string][]string)
	file := ""
	for line := range strings.Lines(string(text)) {
		row, ok := strings.CutPrefix(line, "//\t")
		switch name, fields, found := strings.Cut(row, ".go "); {
		case !ok:
			file = ""
			continue
		case found && !strings.HasPrefix(row, " "):
			file, row = name+".go", fields
		}
		if file != "" {
			for _, field := range strings.Split(row, ",") {
				if field = strings.TrimSpace(field); field != "" {
					said[file] = append(said[file], field)
				}
			}
		}
	}
	for _, fields := range said {
		slices.Sort(fields)
	}
	return said
}

// writes returns the fields of a Controller that each file writes, and those of its parts that
// it writes although another file declares the part.
func writes(t *testing.T) map[string][]string {
	t.Helper()
	fset := token.NewFileSet()
	paths, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	var files []*ast.File
	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(fset, path, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, f)
	}
	info := &types.Info{Types: make(map[ast.Expr]types.TypeAndValue), Selections: make(map[*ast.SelectorExpr]*types.Selection)}
	// What is imported is not needed: all parts are declared here.
	checker := types.Config{Importer: noImports{}, Error: func(error) {}}
	checker.Check("adaptive", fset, files, info)
	written := make(map[string][]string)
	for _, f := range files {
		name := fset.Position(f.Pos()).Filename
		note := func(x ast.Expr) {
			switch owner, field := target(info, x); {
			case owner == nil:
			case owner.Name() == "Controller":
				written[name] = append(written[name], field)
			case fset.Position(owner.Pos()).Filename != name:
				written[name] = append(written[name], owner.Name()+"."+field)
			}
		}
		ast.Inspect(f, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.AssignStmt:
				for _, x := range n.Lhs {
					note(x)
				}
			case *ast.IncDecStmt:
				note(n.X)
			case *ast.UnaryExpr: // the address of a number is taken to change it, as average does
				if _, number := info.TypeOf(n.X).(*types.Basic); number && n.Op == token.AND {
					note(n.X)
				}
			}
			return true
		})
		slices.Sort(written[name])
		if written[name] = slices.Compact(written[name]); len(written[name]) == 0 {
			delete(written, name)
		}
	}
	return written
}

// target returns the struct and the field that an assignment to x writes.
func target(info *types.Info, x ast.Expr) (owner *types.TypeName, field string) {
	for {
		switch e := x.(type) {
		case *ast.IndexExpr:
			x = e.X
			continue
		case *ast.SelectorExpr:
			s := info.Selections[e]
			if s == nil || s.Kind() != types.FieldVal {
				return nil, ""
			}
			at := s.Recv()
			if p, ok := at.(*types.Pointer); ok {
				at = p.Elem()
			}
			if n, ok := at.(*types.Named); ok {
				return n.Obj(), e.Sel.Name
			}
		}
		return nil, ""
	}
}

type noImports struct{}

func (noImports) Import(path string) (*types.Package, error) { return nil, errors.New(path) }
