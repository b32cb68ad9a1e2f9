package docs_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestDocPackages: each package says once what it is for. Twice would be
// joined to one text, in the order of the file names.
func TestDocPackages(t *testing.T) {
	t.Chdir("..")
	for name, files := range parsePackages(t, ".") {
		if n := packageComments(files); n != 1 {
			t.Errorf("%s has %d package comments, want 1", name, n)
		}
	}
}

// TestDocExported: each exported name of a package that others can import
// has a doc comment.
func TestDocExported(t *testing.T) {
	t.Chdir("..")
	for name, files := range parsePackages(t, ".") {
		dir := path.Dir(name)
		if path.Base(name) == "main" || slices.Contains(strings.Split(dir, "/"), "internal") {
			continue
		}
		for _, missing := range undocumented(files) {
			t.Errorf("%s: %s has no doc comment", dir, missing)
		}
	}
}

// TestDocLinks: each relative link of the documents leads to a file.
func TestDocLinks(t *testing.T) {
	t.Chdir("..")
	here := os.DirFS(".")
	if _, err := fs.Stat(here, "examples/go.mod"); err != nil {
		t.Skip("not a checkout: the module alone lacks the examples that documents link to")
	}
	var documents []string
	for _, pattern := range []string{"*.md", "*/*.md", "*/*/*.md"} {
		found, err := fs.Glob(here, pattern)
		if err != nil {
			t.Fatal(err)
		}
		documents = append(documents, found...)
	}
	for _, document := range documents {
		text, err := fs.ReadFile(here, document)
		if err != nil {
			t.Fatal(err)
		}
		for _, link := range deadLinks(here, document, string(text)) {
			t.Errorf("%s: the link %s leads nowhere", document, link)
		}
	}
}

// parsePackages reads the packages below a folder without their tests, by
// "folder/package". What Go leaves out of ./... is left out here as well,
// except nested modules: they are held to the same.
func parsePackages(t *testing.T, root string) map[string][]*ast.File {
	t.Helper()
	packages := make(map[string][]*ast.File)
	tree := os.DirFS(root)
	err := fs.WalkDir(tree, ".", func(name string, entry fs.DirEntry, err error) error {
		switch base := path.Base(name); {
		case err != nil:
			return err
		case entry.IsDir() && name != "." && (base[0] == '.' || base[0] == '_' || base == "testdata"):
			return fs.SkipDir
		case entry.IsDir() || !strings.HasSuffix(base, ".go") || strings.HasSuffix(base, "_test.go"):
			return nil
		}
		source, err := fs.ReadFile(tree, name)
		if err != nil {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, source, parser.ParseComments)
		if err != nil {
			return err
		}
		key := path.Join(path.Dir(name), file.Name.Name)
		packages[key] = append(packages[key], file)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(packages) == 0 {
		t.Fatalf("no packages in %s", root)
	}
	return packages
}

// documents reports whether one of the comments says something. Text drops
// directives: //go:build is no documentation.
func documents(comments ...*ast.CommentGroup) bool {
	return slices.ContainsFunc(comments, func(c *ast.CommentGroup) bool {
		return strings.TrimSpace(c.Text()) != ""
	})
}

func packageComments(files []*ast.File) int {
	n := 0
	for _, file := range files {
		if documents(file.Doc) {
			n++
		}
	}
	return n
}

// undocumented returns the exported names without a comment: types and their
// methods, those of interfaces included, functions, constants and variables.
// The comment of a group speaks for all in it, except for types.
func undocumented(files []*ast.File) []string {
	var missing []string
	check := func(name string, comments ...*ast.CommentGroup) {
		if !documents(comments...) {
			missing = append(missing, name)
		}
	}
	for _, file := range files {
		for _, decl := range file.Decls {
			switch decl := decl.(type) {
			case *ast.FuncDecl:
				name := decl.Name.Name
				if decl.Recv != nil {
					receiver := receiverName(decl.Recv.List[0].Type)
					if !ast.IsExported(receiver) {
						continue
					}
					name = receiver + "." + name
				}
				if decl.Name.IsExported() {
					check(name, decl.Doc)
				}
			case *ast.GenDecl:
				for _, spec := range decl.Specs {
					switch spec := spec.(type) {
					case *ast.TypeSpec:
						if !spec.Name.IsExported() {
							continue
						}
						if decl.Lparen.IsValid() {
							check(spec.Name.Name, spec.Doc)
						} else {
							check(spec.Name.Name, decl.Doc)
						}
						if i, ok := spec.Type.(*ast.InterfaceType); ok {
							for _, method := range i.Methods.List {
								for _, name := range method.Names {
									if name.IsExported() {
										check(spec.Name.Name+"."+name.Name, method.Doc, method.Comment)
									}
								}
							}
						}
					case *ast.ValueSpec:
						for _, name := range spec.Names {
							if name.IsExported() {
								check(name.Name, decl.Doc, spec.Doc, spec.Comment)
							}
						}
					}
				}
			}
		}
	}
	return missing
}

// receiverName is T for T, *T, T[P] and *T[P, Q].
func receiverName(receiver ast.Expr) string {
	switch r := receiver.(type) {
	case *ast.StarExpr:
		return receiverName(r.X)
	case *ast.IndexExpr:
		return receiverName(r.X)
	case *ast.IndexListExpr:
		return receiverName(r.X)
	case *ast.Ident:
		return r.Name
	}
	return fmt.Sprintf("%T", receiver)
}

var (
	codeFence  = regexp.MustCompile("(?ms)^ *```.*?^ *```")
	codeSpan   = regexp.MustCompile("`[^`\n]*`")
	inlineLink = regexp.MustCompile(`\]\(\s*<?([^\s)>]+)`)
	namedLink  = regexp.MustCompile(`(?m)^ {0,3}\[[^\]]+\]:\s*<?([^\s>]+)`)
	scheme     = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9+.-]*:`)
)

// relativeLinks returns the targets of a document's links and images that
// are paths, without their fragments.
func relativeLinks(markdown string) []string {
	markdown = codeFence.ReplaceAllString(markdown, "")
	markdown = codeSpan.ReplaceAllString(markdown, "") // a link around code stays one
	var links []string
	for _, form := range []*regexp.Regexp{inlineLink, namedLink} {
		for _, match := range form.FindAllStringSubmatch(markdown, -1) {
			link, _, _ := strings.Cut(match[1], "#")
			if link != "" && !scheme.MatchString(link) {
				links = append(links, link)
			}
		}
	}
	return links
}

// deadLinks returns the relative links of a document that do not lead to a
// file or a folder of the tree.
func deadLinks(tree fs.FS, document, markdown string) []string {
	var dead []string
	for _, link := range relativeLinks(markdown) {
		target := path.Join(path.Dir(document), link)
		if strings.HasPrefix(link, "/") {
			target = path.Clean(link[1:])
		}
		// Stat refuses what leaves the tree, so that a neighbour of this
		// checkout does not count.
		if _, err := fs.Stat(tree, target); err != nil {
			dead = append(dead, link)
		}
	}
	return dead
}

// The checks above pass as long as nothing is wrong. These make them fail.

func TestDocPackagesCanFail(t *testing.T) {
	for _, tt := range []struct {
		sources []string
		want    int
	}{
		{[]string{"// Package p is one.\npackage p"}, 1},
		{[]string{"package p"}, 0},
		{[]string{"// Not attached.\n\npackage p"}, 0},
		{[]string{"//go:build linux\npackage p"}, 0},
		{[]string{"// Package p is one.\npackage p", "package p"}, 1},
		{[]string{"// Package p is one.\npackage p", "// More.\npackage p"}, 2},
	} {
		if got := packageComments(parseSources(t, tt.sources...)); got != tt.want {
			t.Errorf("%q: %d package comments, want %d", tt.sources, got, tt.want)
		}
	}
}

func TestDocExportedCanFail(t *testing.T) {
	for _, tt := range []struct {
		source string
		want   string
	}{
		{"func F() {}", "F"},
		{"// F does.\nfunc F() {}", ""},
		{"// Not attached.\n\nfunc F() {}", "F"},
		{"//go:noinline\nfunc F() {}", "F"},
		{"func f() {}", ""},
		{"// T is.\ntype T struct{}\nfunc (T) M() {}", "T.M"},
		{"// T is.\ntype T[P any] struct{}\nfunc (*T[P]) M() {}", "T.M"},
		{"// T is.\ntype T[P, Q any] struct{}\nfunc (*T[P, Q]) M() {}", "T.M"},
		{"type t struct{}\nfunc (t) M() {}", ""},
		{"type T struct{ F int }", "T"},
		{"// T is.\ntype T struct{ F int }", ""},
		{"// They are.\ntype (\n\tT int\n)", "T"},
		{"type (\n\t// T is.\n\tT int\n)", ""},
		{"// I is.\ntype I interface {\n\tM()\n\t// N does.\n\tN()\n}", "I.M"},
		{"const C = 1", "C"},
		{"const C, D = 1, 2", "C D"},
		{"// These are.\nconst (\n\tC = 1\n\tD = 2\n)", ""},
		{"const (\n\tC = 1 // is\n\t// D is.\n\tD = 2\n\tE = 3\n)", "E"},
		{"var V, w int", "V"},
	} {
		files := parseSources(t, "package p\n\n"+tt.source)
		if got := strings.Join(undocumented(files), " "); got != tt.want {
			t.Errorf("%q: undocumented %q, want %q", tt.source, got, tt.want)
		}
	}
}

func TestDocLinksCanFail(t *testing.T) {
	t.Chdir("..")
	tree := os.DirFS(".")
	for _, tt := range []struct{ document, text, want string }{
		{"README.md", "[a](doc.go) [b](./semaphore) [c](semaphore/) ![d](doc.go)", ""},
		{"README.md", "[a](gone.go) and ![b](gone.png)", "gone.go gone.png"},
		{"README.md", "[a](gone.go#L1) [b](#here) [c](gone.go \"title\") [d](<gone.go>)", "gone.go gone.go gone.go"},
		{"README.md", "[`code`](gone.go) but not `m[k](x)`\n```go\nCall[T](ctx)\n```\n[a](gone.md)", "gone.go gone.md"},
		{"README.md", "[a]\n\n[a]: gone.go\n[b]: https://go.dev\n", "gone.go"},
		{"README.md", "[a](https://go.dev/gone) [b](mailto:a@example.com)", ""},
		// Paths begin at the document, or with / at the root.
		{"docs/a.md", "[a](../doc.go) [b](/doc.go) [c](doc.go)", "doc.go"},
		// The neighbours of this checkout are not in a clone.
		{"README.md", "[a](..) [b](../..)", ".. ../.."},
	} {
		if got := strings.Join(deadLinks(tree, tt.document, tt.text), " "); got != tt.want {
			t.Errorf("%s: %q: dead links %q, want %q", tt.document, tt.text, got, tt.want)
		}
	}
}

// TestDocFindsPackages: the walk misses neither the root nor a nested package,
// and reads no tests, which are in other packages and need no comments.
func TestDocFindsPackages(t *testing.T) {
	t.Chdir("..")
	packages := parsePackages(t, ".")
	for _, want := range []string{"sluice", "semaphore/semaphore", "internal/queue/queue"} {
		if len(packages[want]) == 0 {
			t.Errorf("no files in %s", want)
		}
	}
	for name := range packages {
		if strings.HasSuffix(name, "_test") {
			t.Errorf("%s is a test", name)
		}
	}
}

func parseSources(t *testing.T, sources ...string) []*ast.File {
	t.Helper()
	var files []*ast.File
	for _, source := range sources {
		file, err := parser.ParseFile(token.NewFileSet(), "", source, parser.ParseComments)
		if err != nil {
			t.Fatalf("%q: %v", source, err)
		}
		files = append(files, file)
	}
	return files
}

// # Numbers that are copied

// copied are numbers that documents have from the results: a pattern of the document and one of
// the results, with the same numbers in parentheses.
var copied = []struct{ document, has, results, say string }{
	{"docs/measurements.md", rowOf("a gate with `Adaptive.Search`"), goodputResults, strategyOf("sluice-adaptive")},
	{"docs/measurements.md", rowOf("a gate, no configuration"), goodputResults, strategyOf("sluice-zero")},
	{"docs/measurements.md", rowOf("`sluicehttp`, no configuration"), goodputResults, strategyOf("sluicehttp")},
	{"docs/measurements.md", rowOf("a gate with the rate"), goodputResults, strategyOf("sluice-told")},
	{"docs/measurements.md", rowOf("x/time/rate, with backoff"), goodputResults, strategyOf("xtime-told")},
	{"docs/measurements.md", rowOf("aws-sdk-go-v2, adaptive retry mode"), goodputResults, strategyOf("aws-adaptive")},
	{"docs/measurements.md", rowOf("concurrency-limits (Vegas), with backoff"), goodputResults, strategyOf("vegas")},
	{"docs/measurements.md", rowOf("failsafe-go's adaptive limiter, with backoff"), goodputResults, strategyOf("failsafe-adaptive")},
	{"docs/measurements.md", rowOf("after the auto-tuner of Uber's Cinnamon, with backoff"), goodputResults, strategyOf("cinnamon")},
	{"docs/measurements.md", rowOf("exponential backoff with full jitter"), goodputResults, strategyOf("backoff")},
	{"docs/measurements.md", rowOf("hashicorp/go-retryablehttp"), goodputResults, strategyOf("retryablehttp")},
	{"docs/measurements.md", `the adaptive algorithm scores ([\d.]+) and a pacer with the true rate ([\d.]+)\.`,
		"bench/league/README.md", `\| mean score \| [\d.]+ \| ([\d.]+) \| ([\d.]+) \|`},
	{"docs/measurements.md", `with x/time/rate \(burst 1\) it gets ([\d.]+) %`, goodputResults, `\| 1 \| 5000 \| xtime \| ([\d.]+) %`},
	{"docs/measurements.md", `one caller at 1,000 per second gets ([\d.]+) %`, goodputResults, `\| busy: 1 caller, 1,000/s \| sluice \| ([\d.]+) %`},
	{"docs/measurements.md", `with x/time/rate ([\d.]+) %`, goodputResults, `\| busy: 1 caller, 1,000/s \| xtime \| ([\d.]+) %`},
	{"README.md", scenario("mean of 22"), goodputResults, scores(`\*\*mean\*\*`, "xtime-told")},
	{"README.md", scenario("the limit changes"), goodputResults, scores("steps", "aws-adaptive")},
	{"README.md", scenario("the server is overloaded"), goodputResults, scores("overload", "cinnamon")},
	{"README.md", scenario("429s cost a ban"), goodputResults, scores("penalty", "xtime-told")},
	{"README.md", scenario("23 limiters of Go"), zooResults, `(?s)\n## In virtual time, 300 s\n.*?` + meansOf("go")},
	{"README.md", scenario("31 daemons, such as nginx"), zooReal, `(?s)` + meansOf("daemons") + `.*?\n## Daemons, 120 s`},
	{"docs/adaptive.md", "([\\d.]+) instead of ([\\d.]+) in `steps`", goodputResults, worldOf("steps")},
	{"docs/adaptive.md", "([\\d.]+) instead of ([\\d.]+) in `overload`", goodputResults, worldOf("overload")},
}

const (
	goodputResults = "bench/results/README.md"
	zooResults     = "bench/results/zoo.md"
	zooReal        = "bench/results/zoo-real.md"
)

// meansOf returns the pattern of the mean scores of a group of the zoo: no configuration, given the rate, x/time/rate.
func meansOf(group string) string {
	row := func(client, score string) string {
		return `\n\| ` + group + ` \| ` + client + ` \| \d+ \| ` + score + ` \|[^\n]*`
	}
	return row("sluice", `([\d.]+)`) + row("search", `[\d.]+`) + row("told", `([\d.]+)`) + row("xtime", `([\d.]+)`)
}

// rowOf returns the pattern of a row of docs/measurements.md: mean score, worst scenario.
func rowOf(client string) string {
	return `\| ` + regexp.QuoteMeta(client) + ` \| (?:yes|no) \| ([\d.]+) \| ([\d.]+) \|`
}

// scenario returns the pattern of a row of the README: a gate without a rate, one with it, and the
// best other client.
func scenario(name string) string {
	return `\| ` + regexp.QuoteMeta(name) + ` \| ([\d.]+) \| ([\d.]+) \| ([\d.]+), `
}

// strategies are the columns of the scores.
var strategies = strings.Fields("naive backoff retryablehttp autothrottle vegas gradient2 failsafe-adaptive aws-adaptive " +
	"xtime-half xtime-double xtime-told sluice-adaptive sluice-zero sluice-told sluicehttp-told sluicehttp cinnamon")

// scores returns the pattern of the same scores in the results.
func scores(world, rival string) string {
	picked := map[string]string{rival: "rival", "sluice-zero": "zero", "sluice-told": "told"}
	pattern := `(?s)### Score\n.*?\n\|` + world + `\|`
	for _, s := range strategies {
		number := `[\d.]+`
		if name := picked[s]; name != "" {
			number = `(?P<` + name + `>[\d.]+)`
		}
		pattern += number + `\|`
	}
	return pattern
}

// strategyOf returns the pattern of the same numbers in the results.
func strategyOf(name string) string {
	return `\| ` + name + ` \|[ yes]*\| ([\d.]+) \| [\d.]+ \| ([\d.]+) \|`
}

// worldOf returns the pattern of the scores of sluice-told and, after it, sluicehttp: the last
// columns but one are sluice-told and sluicehttp-told.
func worldOf(name string) string {
	return `(?s)### Score\n.*?\n\|` + name + `\|(?:[\d.]+\|){13}([\d.]+)\|[\d.]+\|([\d.]+)\|`
}

// TestCopied: such numbers are those of the results.
func TestCopied(t *testing.T) {
	t.Chdir("..")
	if _, err := os.Stat("bench/go.mod"); err != nil {
		t.Skip("not a checkout: the module alone lacks the results")
	}
	for _, c := range copied {
		got, want := numbersOf(t, c.document, c.has), numbersOf(t, c.results, c.say)
		if got == nil || !slices.Equal(got, want) {
			t.Errorf("%s, %s: %q, and %s says %q", c.document, c.has, got, c.results, want)
		}
	}
}

// numbersOf returns what the parentheses of a pattern match in a file, nil if it is not there once.
func numbersOf(t *testing.T, file, pattern string) []string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(pattern).FindAllStringSubmatch(string(text), -1)
	if len(found) != 1 {
		t.Errorf("%s has %d times %s", file, len(found), pattern)
		return nil
	}
	numbers := found[0][1:]
	if i := regexp.MustCompile(pattern).SubexpIndex("rival"); i == 1 { // which comes last in the README
		numbers = append(numbers[1:], numbers[0])
	}
	return numbers
}
