package main

import (
	"bytes"
	"errors"
	"fmt"
	"go/ast"
	"go/build"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
)

// A tree is the library in a directory: the packages that a program of a user compiles if it
// imports all that it can. Commands, examples, benchmarks, tests and what only tests import are
// left out. It has the files for one system, Linux on amd64, on whatever system house
// runs.
type tree struct {
	all      fs.FS
	files    *token.FileSet
	modules  map[string]string // the paths of modules, by directory
	packages []*library        // by directory
	tests    []part            // the files of tests, of everything
}

// A library is a package of a tree.
type library struct {
	folder, path string
	name         string // "main" for a command
	sources      []*source
	imports      map[string]bool

	types *types.Package
	info  *types.Info
}

// A source is a Go file.
type source struct {
	name  string // with its directory
	text  []byte
	ast   *ast.File
	lines int
}

func (l *library) String() string { return path.Base(l.path) }

// laboratory reports whether a directory is not for users to import.
func laboratory(folder string) bool {
	top, _, _ := strings.Cut(folder, "/")
	return slices.Contains([]string{"bench", "cmd", "examples", "docs", "tools"}, top)
}

// hidden reports whether the go command passes over a directory.
func hidden(folder string) bool {
	base := path.Base(folder)
	return folder != "." && (base == "testdata" || base[0] == '.' || base[0] == '_')
}

// load reads the tree below a directory, and finds the types of its packages.
func load(all fs.FS) (*tree, error) {
	t := &tree{all: all, files: token.NewFileSet(), modules: make(map[string]string)}
	byFolder := make(map[string]*library)
	linux := build.Default
	linux.GOOS, linux.GOARCH, linux.CgoEnabled = "linux", "amd64", false
	linux.OpenFile = func(name string) (io.ReadCloser, error) { return all.Open(path.Clean(name)) }
	linux.JoinPath = path.Join
	err := fs.WalkDir(all, ".", func(name string, entry fs.DirEntry, err error) error {
		base := path.Base(name)
		switch {
		case err != nil:
			return err
		case entry.IsDir() && hidden(name):
			return fs.SkipDir
		case base == "go.mod":
			return t.addModule(name)
		case entry.IsDir() || !strings.HasSuffix(name, ".go"):
			return nil
		case strings.HasSuffix(name, "_test.go"):
			text, err := fs.ReadFile(all, name)
			t.tests = append(t.tests, part{name, bytes.Count(text, []byte("\n"))})
			return err
		}
		folder := path.Dir(name)
		if match, err := linux.MatchFile(folder, base); err != nil || !match || laboratory(folder) {
			return err
		}
		if byFolder[folder] == nil {
			byFolder[folder] = &library{folder: folder, imports: make(map[string]bool)}
		}
		return t.addSource(byFolder[folder], name)
	})
	if err != nil {
		return nil, err
	}
	if t.modules["."] == "" {
		return nil, errors.New("no go.mod: start it at the top of the repository")
	}
	t.keep(byFolder)
	t.check()
	return t, nil
}

func (t *tree) addModule(name string) error {
	text, err := fs.ReadFile(t.all, name)
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(text)) {
		if module, ok := strings.CutPrefix(line, "module "); ok {
			t.modules[path.Dir(name)] = strings.TrimSpace(module)
			return nil
		}
	}
	return fmt.Errorf("%s: no module", name)
}

func (t *tree) addSource(l *library, name string) error {
	text, err := fs.ReadFile(t.all, name)
	if err != nil {
		return err
	}
	file, err := parser.ParseFile(t.files, name, text, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	l.name = file.Name.Name
	l.sources = append(l.sources, &source{name, text, file, bytes.Count(text, []byte("\n"))})
	for _, i := range file.Imports {
		l.imports[strings.Trim(i.Path.Value, `"`)] = true
	}
	return nil
}

// moduleOf returns the directory of the module that a directory belongs to.
func (t *tree) moduleOf(folder string) string {
	for ; folder != "."; folder = path.Dir(folder) {
		if t.modules[folder] != "" {
			return folder
		}
	}
	return "."
}

// keep keeps the packages that users can import, and what these import.
func (t *tree) keep(byFolder map[string]*library) {
	byPath := make(map[string]*library)
	for folder, l := range byFolder {
		module := t.moduleOf(folder)
		l.path = path.Join(t.modules[module], strings.TrimPrefix(folder, module))
		byPath[l.path] = l
	}
	kept := make(map[*library]bool)
	var keep func(l *library)
	keep = func(l *library) {
		if l == nil || kept[l] {
			return
		}
		kept[l] = true
		for i := range l.imports {
			keep(byPath[i])
		}
	}
	for folder, l := range byFolder {
		if l.name != "main" && !strings.Contains("/"+folder+"/", "/internal/") {
			keep(l)
		}
	}
	for l := range kept {
		t.packages = append(t.packages, l)
	}
	slices.SortFunc(t.packages, func(a, b *library) int { return strings.Compare(a.folder, b.folder) })
}

// check finds the types of all packages. Packages of others, and the standard library, are taken
// for empty ones, so a value that comes from one of their functions has no type.
func (t *tree) check() {
	i := importer{t, make(map[string]*types.Package)}
	for _, l := range t.packages {
		i.Import(l.path)
	}
}

// An importer finds the types of the packages of a tree.
type importer struct {
	*tree
	known map[string]*types.Package
}

func (i importer) Import(imported string) (*types.Package, error) {
	if p := i.known[imported]; p != nil {
		return p, nil
	}
	for _, l := range i.packages {
		if l.path != imported {
			continue
		}
		var files []*ast.File
		for _, s := range l.sources {
			files = append(files, s.ast)
		}
		l.info = &types.Info{Uses: make(map[*ast.Ident]types.Object), Defs: make(map[*ast.Ident]types.Object)}
		mistakes := func(error) {} // what is missing from other packages
		cfg := types.Config{Importer: i, Error: mistakes, Sizes: types.SizesFor("gc", "amd64")}
		l.types, _ = cfg.Check(l.path, i.files, files, l.info)
		i.known[imported] = l.types
		return l.types, nil
	}
	p := types.NewPackage(imported, path.Base(imported))
	p.MarkComplete()
	i.known[imported] = p
	return p, nil
}

// declarations calls yield with each top-level declaration, the name of what it declares, and its
// text with all comments in and above it. The comments above the package clause are one as well.
func (s *source) declarations(files *token.FileSet, yield func(name, text string, decl ast.Decl)) {
	offset := func(p token.Pos) int { return files.Position(p).Offset }
	yield("package "+s.ast.Name.Name, string(s.text[:offset(s.ast.Name.Pos())]), nil)
	for _, decl := range s.ast.Decls {
		from := decl.Pos()
		name := "?"
		switch decl := decl.(type) {
		case *ast.FuncDecl:
			name = functionName(decl)
			if decl.Doc != nil {
				from = decl.Doc.Pos()
			}
		case *ast.GenDecl:
			name = specName(decl)
			if decl.Doc != nil {
				from = decl.Doc.Pos()
			}
		}
		yield(name, string(s.text[offset(from):offset(decl.End())]), decl)
	}
}

// functionName is "F", or "T.M" for a method.
func functionName(f *ast.FuncDecl) string {
	if f.Recv == nil {
		return f.Name.Name
	}
	return receiver(f.Recv.List[0].Type) + "." + f.Name.Name
}

// specName is the first name that a declaration declares.
func specName(d *ast.GenDecl) string {
	for _, spec := range d.Specs {
		switch spec := spec.(type) {
		case *ast.TypeSpec:
			return spec.Name.Name
		case *ast.ValueSpec:
			return spec.Names[0].Name
		}
	}
	return d.Tok.String()
}
