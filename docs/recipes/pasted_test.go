package recipes

import (
	"bytes"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestPasted: each block of Go in the documents compiles for a reader who pastes it, either as
// a file or into a function. An editor adds the imports of the standard library; those of others
// are in the block, or the text around it has their paths, as `path`. README.md and
// coming-from.md need no more. In the others a name may also stand for something of the
// reader's: a comment of the block, an earlier block or the text says so. What types such names
// have is known to TestBlocks, which compiles the same code in a program.
func TestPasted(t *testing.T) {
	pages := make(map[string][]section)
	used, said := make(map[string]bool), make(map[string]bool)
	for _, document := range documents(t) {
		text, err := os.ReadFile(document)
		if err != nil {
			t.Fatal(err)
		}
		pages[document] = sections(string(text))
		for _, s := range pages[document] {
			for name := range s.said {
				if path := pathOf(name); path != "" {
					said[path] = true
				}
			}
			for _, b := range s.blocks {
				for _, m := range qualified.FindAllStringSubmatch(b, -1) {
					used[m[1]] = true
				}
				for _, m := range imported.FindAllStringSubmatch(b, -1) {
					said[m[1]] = true
				}
			}
		}
	}
	known := packagesOf(t, used, said)
	for _, document := range documents(t) {
		strict := document == "../../README.md" || document == "../coming-from.md"
		for _, wrong := range known.check(pages[document], strict) {
			t.Errorf("%s: %s", document, wrong)
		}
	}
}

// A section is a part of a page below a heading: its blocks of Go, and the words `so` marked in
// its text or above the first heading.
type section struct {
	blocks []string
	said   map[string]bool
}

var (
	marked = regexp.MustCompile("`([^`\n]+)`")
	// What an import has, and a name that may be that of a package.
	imported  = regexp.MustCompile(`(?m)^\t(?:\w+ )?"(.*)"$`)
	qualified = regexp.MustCompile(`\b([a-z]\w*)\.[A-Z]`)
)

func sections(page string) (all []section) {
	parts := strings.Split(page, "\n## ")
	for _, part := range parts {
		s := section{said: make(map[string]bool)}
		for _, m := range block.FindAllStringSubmatch(part, -1) {
			s.blocks = append(s.blocks, m[2])
		}
		for _, m := range marked.FindAllStringSubmatch(block.ReplaceAllString(parts[0]+"\n"+part, ""), -1) {
			s.said[m[1]] = true
		}
		all = append(all, s)
	}
	return all
}

const module = "github.com/sluice-go/sluice"

// pathOf returns the import path that a text names, or "". Packages of this module may be named
// without it.
func pathOf(text string) string {
	first, _, below := strings.Cut(text, "/")
	if below && strings.Contains(first, ".") && !strings.ContainsAny(text, " {}*:") {
		return text
	}
	if files, _ := filepath.Glob(filepath.Join("../..", text, "*.go")); len(files) > 0 && filepath.IsLocal(text) {
		return path.Join(module, text)
	}
	return ""
}

// packages are those that a reader can import.
type packages struct {
	fset     *token.FileSet
	importer types.Importer
	standard map[string]string // paths by names
	names    map[string]string // names by paths
}

// packagesOf returns the packages of these paths and those of the standard library that have such
// names, compiled.
func packagesOf(t *testing.T, used, paths map[string]bool) *packages {
	t.Helper()
	p := &packages{fset: token.NewFileSet(), standard: make(map[string]string), names: make(map[string]string)}
	args := []string{"-e", "-export", "-deps", "-f", "{{.Name}} {{.ImportPath}} {{.Export}}"}
	for line := range strings.Lines(goList(t, "-f", "{{.Name}} {{.ImportPath}}", "std")) {
		name, path, _ := strings.Cut(strings.TrimSpace(line), " ")
		switch {
		case !used[name], strings.Contains(path, "internal/"), strings.Contains(path, "vendor/"):
		case p.standard[name] != "":
			p.standard[name] = "two packages" // such as rand: the page has to say which
		default:
			p.standard[name] = path
			args = append(args, path)
		}
	}
	compiled := make(map[string]string)
	for line := range strings.Lines(goList(t, append(args, slices.Sorted(maps.Keys(paths))...)...)) {
		if f := strings.Fields(line); len(f) == 3 { // it is known and compiles
			p.names[f[1]], compiled[f[1]] = f[0], f[2]
		}
	}
	p.importer = importer.ForCompiler(p.fset, "gc", func(path string) (io.ReadCloser, error) {
		if compiled[path] == "" {
			return nil, fmt.Errorf("no package %s", path)
		}
		return os.Open(compiled[path])
	})
	return p
}

func goList(t *testing.T, args ...string) string {
	t.Helper()
	list := exec.Command("go", append([]string{"list"}, args...)...)
	var stderr bytes.Buffer
	list.Stderr = &stderr
	out, err := list.Output()
	if err != nil {
		t.Fatalf("%v: %v\n%s", list, err, &stderr)
	}
	return string(out)
}

// check returns what does not compile in the blocks of a page. If it is strict, all names must be
// declared or imported.
func (p *packages) check(page []section, strict bool) (wrong []string) {
	declared := make(map[string]bool) // by the blocks so far
	for _, s := range page {
		for _, b := range s.blocks {
			undefined, errs, defs := p.compile(b, s.said)
			for _, name := range undefined {
				if strict || name != "ctx" && !declared[name] && !s.said[name] && !commented(b, name) {
					errs = append(errs, errors.New("undefined: "+name))
				}
			}
			if len(errs) > 0 {
				wrong = append(wrong, fmt.Sprintf("pasted, this block has the errors\n%v\n%s", errors.Join(errs...), b))
			}
			for _, name := range defs {
				declared[name] = true
			}
		}
	}
	return wrong
}

// commented reports whether a comment of the block has the name as a word.
func commented(block, name string) bool {
	word := regexp.MustCompile(`//.*\b` + regexp.QuoteMeta(name) + `\b`)
	return word.MatchString(block)
}

// compile returns the names that the block does not declare and for which there is no package,
// the errors of the block apart from these names, and the names that it declares.
func (p *packages) compile(block string, said map[string]bool) (undefined []string, errs []error, defs []string) {
	source := "package p\n" + block
	results := []string{""}
	if _, err := parser.ParseFile(p.fset, "", source, 0); err != nil { // statements
		results = []string{"()", "error", "(_ any, _ error)"}
	}
	for _, result := range results {
		if result != "" {
			source = "package p\nfunc _() " + result + " {\n" + block + "\npanic(0)\n}\n"
		}
		undefined, _, _ = p.types(source, result != "")
		source = strings.Replace(source, "package p\n", "package p\n"+p.imports(block, undefined, said), 1)
		if undefined, errs, defs = p.types(source, result != ""); len(errs) == 0 {
			break
		}
	}
	return undefined, errs, defs
}

// imports returns an import of each package that is among the undefined names of a block.
func (p *packages) imports(block string, undefined []string, said map[string]bool) string {
	var all strings.Builder
	for _, m := range qualified.FindAllStringSubmatch(block, -1) {
		name := m[1]
		if i := slices.Index(undefined, name); i >= 0 {
			undefined = slices.Delete(undefined, i, i+1)
			path := p.standard[name]
			for text := range said {
				if candidate := pathOf(text); p.names[candidate] == name {
					path = candidate
				}
			}
			if p.names[path] != "" {
				fmt.Fprintf(&all, "import %s %q\n", name, path)
			}
		}
	}
	return all.String()
}

// types checks a file. Inside a function the last value may be unused: the reader goes on with it.
func (p *packages) types(source string, inside bool) (undefined []string, errs []error, defs []string) {
	file, err := parser.ParseFile(p.fset, "", source, parser.SkipObjectResolution)
	if err != nil {
		return nil, []error{err}, nil
	}
	info := types.Info{Defs: make(map[*ast.Ident]types.Object)}
	config := types.Config{Importer: p.importer, Error: func(err error) {
		message := err.(types.Error).Msg
		name, is := strings.CutPrefix(message, "undefined: ")
		switch {
		case is:
			undefined = append(undefined, name)
		case inside && strings.HasPrefix(message, "declared and not used: "):
		default:
			errs = append(errs, errors.New(message))
		}
	}}
	_, _ = config.Check("p", p.fset, []*ast.File{file}, &info)
	for ident := range info.Defs {
		defs = append(defs, ident.Name)
	}
	slices.Sort(undefined)
	return slices.Compact(undefined), errs, defs
}

func TestPastedCanFail(t *testing.T) {
	known := packagesOf(t, map[string]bool{"http": true, "rand": true}, map[string]bool{module: true, module + "/limits": true})
	const name = "\n## b\n`"
	for page, want := range map[string]int{
		"`" + module + "`\n```go\ngate, err := sluice.New(sluice.Config{})\n```\n":         0,
		"```go\ngate, err := sluice.New(sluice.Config{})\n```\n":                           1, // the page does not name the package
		"\n## a\n`limits`" + name + "x`\n```go\nx(limits.Rate{})\n```\n":                   1, // nor this section
		"`limits`" + name + "x`\n```go\nx(limits.Rate{})\n```\n":                           0,
		"`limits`" + name + "x`\n```go\nx(limits.Rate{Cuont: 1})\n```\n":                   1,
		"```go\nhttp.Get(\"\", 1)\n```\n":                                                  1,
		"```go\nresp, err := http.Get(\"\")\nif err != nil {\n\treturn nil, err\n}\n```\n": 0,
		"```go\nfunc f() { x := 1 }\n```\n":                                                1,
		"```go\nimport \"os\"\n\nfunc f() {}\n```\n":                                       1, // not used
		"```go\nrand.Int()\n```\n":                                                         1, // which one
		"```go\nf(\n```\n":                                                                 1,
		"```go\nf(ctx) // f sends\n```\n```go\ng := 1\n```\n```go\nf(g) // f\n```\n":       0,
		"```go\nf(g) // f sends\n```\n":                                                    1,
	} {
		if got := known.check(sections(page), false); len(got) != want {
			t.Errorf("%q: %q, want %d", page, got, want)
		}
	}
	if got := known.check(sections("```go\nf(ctx) // f sends\n```\n"), true); len(got) != 1 {
		t.Errorf("strictly: %q", got)
	}
}
