package docs_test

import (
	"go/ast"
	"go/doc"
	"go/doc/comment"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

const modulePath = "github.com/sluice-go/sluice"

// TestDocSymbols: a name in brackets in a comment that pkg.go.dev shows is a link there. If it is
// misspelled, or its package is not imported, the page shows the brackets.
func TestDocSymbols(t *testing.T) {
	t.Chdir("..")
	packages := documented(t, os.DirFS("."))
	if len(packages) < 15 {
		t.Errorf("only %d packages were found", len(packages))
	}
	for _, problem := range brokenSymbols(packages) {
		t.Error(problem)
	}
}

func TestDocSymbolsCanFail(t *testing.T) {
	source := func(text string) fs.FS {
		return fstest.MapFS{"a.go": {Data: []byte("// Package a has [T], [T.M], [io.Reader] and [1] links.\n" + text +
			"package a\n\nimport \"io\"\n\n// T is a [io.Writer].\ntype T struct{ io.Writer }\n\n// M is of [T].\nfunc (T) M() {}\n")}}
	}
	for text, want := range map[string]string{
		"":                           "",
		"//\n// It has [U].\n":       modulePath + ": [U] is no link",
		"//\n// It has [T.N].\n":     modulePath + ": [T.N] is no link",
		"//\n// It has [other.A].\n": modulePath + ": [other.A] is no link",
	} {
		if got := strings.Join(brokenSymbols(documented(t, source(text))), "; "); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
	other := documented(t, source(""))
	other["x"] = documented(t, fstest.MapFS{"x.go": {Data: []byte("// Package x is of [a.T] and [a.U].\npackage x\n\nimport a \"" + modulePath + "\"\n")}})[modulePath]
	if got, want := strings.Join(brokenSymbols(other), "; "), "x: [a.U] leads to nothing"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// documented returns what is documented of each package that others can import, by its import path.
func documented(t *testing.T, tree fs.FS) map[string]*doc.Package {
	t.Helper()
	packages := make(map[string]*doc.Package)
	err := fs.WalkDir(tree, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.IsDir() {
			return err
		}
		switch base := path.Base(name); {
		case name != "." && (base[0] == '.' || base[0] == '_'), base == "testdata", base == "internal", base == "bench", base == "docs", base == "examples", base == "tools":
			return fs.SkipDir
		}
		names, err := fs.Glob(tree, path.Join(name, "*.go"))
		if err != nil {
			return err
		}
		fset := token.NewFileSet()
		var files []*ast.File
		for _, n := range names {
			if strings.HasSuffix(n, "_test.go") {
				continue
			}
			source, err := fs.ReadFile(tree, n)
			if err != nil {
				return err
			}
			file, err := parser.ParseFile(fset, n, source, parser.ParseComments)
			if err != nil {
				return err
			}
			files = append(files, file)
		}
		if len(files) == 0 {
			return nil
		}
		importPath := path.Join(modulePath, name)
		packages[importPath], err = doc.NewFromFiles(fset, files, importPath)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return packages
}

var bracketed = regexp.MustCompile(`\[\*?[A-Za-z]\w*(\.[A-Za-z]\w*){0,2}\]`)

// brokenSymbols returns the names in brackets that are no links, or lead to what another package does not have.
func brokenSymbols(packages map[string]*doc.Package) (broken []string) {
	for importPath, p := range packages {
		parser := p.Parser()
		for _, text := range docTexts(p) {
			for _, block := range parser.Parse(text).Content {
				eachText(block, func(text comment.Text) {
					switch text := text.(type) {
					case comment.Plain:
						for _, name := range bracketed.FindAllString(string(text), -1) {
							broken = append(broken, importPath+": "+name+" is no link")
						}
					case *comment.DocLink:
						other := packages[text.ImportPath]
						if other == nil || text.Name == "" || hasSymbol(other, text.Recv, text.Name) {
							return
						}
						broken = append(broken, importPath+": ["+plain(text.Text)+"] leads to nothing")
					}
				})
			}
		}
	}
	slices.Sort(broken)
	return broken
}

func hasSymbol(p *doc.Package, recv, name string) bool {
	return p.Parser().LookupSym(recv, name)
}

func plain(texts []comment.Text) string {
	var s strings.Builder
	for _, text := range texts {
		if text, ok := text.(comment.Plain); ok {
			s.WriteString(string(text))
		}
	}
	return s.String()
}

// docTexts returns all comments of a package that are shown as text.
func docTexts(p *doc.Package) []string {
	texts := []string{p.Doc}
	values := func(all []*doc.Value) {
		for _, v := range all {
			texts = append(texts, v.Doc)
		}
	}
	funcs := func(all []*doc.Func) {
		for _, f := range all {
			texts = append(texts, f.Doc)
		}
	}
	values(p.Consts)
	values(p.Vars)
	funcs(p.Funcs)
	for _, t := range p.Types {
		texts = append(texts, t.Doc)
		values(t.Consts)
		values(t.Vars)
		funcs(t.Funcs)
		funcs(t.Methods)
	}
	return texts
}

// eachText calls f for each text of a block, links included.
func eachText(block comment.Block, f func(comment.Text)) {
	var texts []comment.Text
	switch block := block.(type) {
	case *comment.Paragraph:
		texts = block.Text
	case *comment.Heading:
		texts = block.Text
	case *comment.List:
		for _, item := range block.Items {
			for _, b := range item.Content {
				eachText(b, f)
			}
		}
	}
	for _, text := range texts {
		f(text)
	}
}
