package main

import (
	"errors"
	"fmt"
	"go/ast"
	"go/build"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"text/tabwriter"
)

// A part of the repository is counted on its own.
type part string

const (
	prose    part = "text"     // pages, error messages, usage strings
	comments part = "comments" // comments of packages and commands
	rest     part = "rest"     // comments of tests, examples and benchmarks, and the pages of benchmarks
)

// A text is a paragraph of prose, without code.
type text struct {
	Path  string // of its file, with slashes
	Line  int    // at which it begins
	Part  part
	Words string // separated by single blanks
}

func (t text) directory() string {
	if dir := path.Dir(t.Path); dir != "." {
		return dir
	}
	return t.Path
}

// readTree returns the strings below a directory.
func readTree(root string) ([]text, error) {
	if _, err := os.Stat(filepath.Join(root, "go.work")); err != nil {
		return nil, fmt.Errorf("%s is not the top of the repository: %w", root, err)
	}
	return readFiles(os.DirFS(root))
}

func readFiles(files fs.FS) ([]text, error) {
	var texts []text
	err := fs.WalkDir(files, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			base := entry.Name()
			if name != "." && (base[0] == '.' || base[0] == '_' || base == "testdata" || base == "node_modules") {
				return fs.SkipDir
			}
			return nil
		}
		read := readPage
		switch path.Ext(name) {
		case ".md":
		case ".go":
			read = readSource
		default:
			return nil
		}
		content, err := fs.ReadFile(files, name)
		if err != nil {
			return err
		}
		found, err := read(name, string(content))
		texts = append(texts, found...)
		return err
	})
	return texts, err
}

// readPage returns the paragraphs of a page in Markdown.
func readPage(name, content string) ([]text, error) {
	p := prose
	if strings.HasPrefix(name, "bench/") {
		p = rest
	}
	var texts []text
	fenced := false
	start, paragraph := 0, ""
	flush := func() {
		if words := clean(paragraph); words != "" {
			texts = append(texts, text{name, start, p, words})
		}
		paragraph = ""
	}
	for i, line := range strings.Split(content, "\n") {
		trimmed := strings.TrimSpace(line)
		switch {
		case strings.HasPrefix(trimmed, "```"):
			fenced = !fenced
			flush()
		case fenced || strings.HasPrefix(line, "    ") && !strings.HasPrefix(trimmed, "-"):
		case trimmed == "" || trimmed[0] == '|' || trimmed[0] == '-' || trimmed[0] == '#':
			flush()
			start, paragraph = i+1, trimmed
		default:
			if paragraph == "" {
				start = i + 1
			}
			paragraph += " " + trimmed
		}
	}
	flush()
	return texts, nil
}

// readSource returns the paragraphs of a Go file's comments, and its error messages and usage strings.
func readSource(name, content string) ([]text, error) {
	inComments, inMessages := comments, prose
	top, _, _ := strings.Cut(name, "/")
	if strings.HasSuffix(name, "_test.go") || top == "bench" || top == "examples" || top == "tools" || top == "docs" {
		inComments, inMessages = rest, ""
	}
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, name, content, parser.ParseComments)
	if err != nil {
		return nil, err
	}
	var texts []text
	add := func(p part, line int, s string) {
		if words := clean(s); words != "" && p != "" {
			texts = append(texts, text{name, line, p, words})
		}
	}
	for _, group := range file.Comments {
		start, paragraph := 0, ""
		for _, comment := range group.List {
			line := set.Position(comment.Pos()).Line
			for i, s := range strings.Split(comment.Text, "\n") {
				s, isLine := strings.CutPrefix(s, "//")
				if isLine && (strings.HasPrefix(s, "go:") || strings.HasPrefix(s, "nolint")) || strings.HasPrefix(s, "\t") {
					continue // a directive, or code
				}
				s = strings.Trim(s, "/* \t")
				if s == "" {
					add(inComments, start, paragraph)
					paragraph = ""
					continue
				}
				if paragraph == "" {
					start = line + i
				}
				paragraph += " " + s
			}
		}
		add(inComments, start, paragraph)
	}
	ast.Inspect(file, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok || !speaks(call) {
			return true
		}
		for _, arg := range call.Args {
			if literal, ok := arg.(*ast.BasicLit); ok && literal.Kind == token.STRING {
				if s, err := strconv.Unquote(literal.Value); err == nil {
					add(inMessages, set.Position(literal.Pos()).Line, s)
				}
			}
		}
		return true
	})
	return texts, nil
}

// speaks reports whether a user may read the strings that a call is passed: errors, panics and flags.
func speaks(call *ast.CallExpr) bool {
	switch fun := call.Fun.(type) {
	case *ast.Ident:
		return fun.Name == "panic"
	case *ast.SelectorExpr:
		x, ok := fun.X.(*ast.Ident)
		if !ok {
			return false
		}
		switch x.Name {
		case "errors":
			return fun.Sel.Name == "New"
		case "fmt":
			return fun.Sel.Name == "Errorf" || fun.Sel.Name == "Sprintf"
		case "flag", "flags", "fs":
			return true
		}
	}
	return false
}

var (
	codeSpans = regexp.MustCompile("`[^`]*`")
	docLinks  = regexp.MustCompile(`\[\*?[\w./]*[A-Z][\w.]*\]`) // [Gate.Wait]
	targets   = regexp.MustCompile(`\]\([^)]*\)`)               // of a link in Markdown
	addresses = regexp.MustCompile(`https?://\S+`)
)

// clean removes what is quoted from code, and surplus blanks. A name in its place stays one word.
func clean(s string) string {
	s = codeSpans.ReplaceAllString(s, "X")
	s = docLinks.ReplaceAllString(s, "X")
	s = targets.ReplaceAllString(s, "]")
	s = addresses.ReplaceAllString(s, "X")
	return strings.Join(strings.Fields(s), " ")
}

// reportAnchors writes how often each row occurs in the anchors.
func reportAnchors(out io.Writer, rows []row) error {
	cache, err := exec.Command("go", "env", "GOMODCACHE").Output()
	if err != nil {
		return fmt.Errorf("go env GOMODCACHE: %w", err)
	}
	goroot := build.Default.GOROOT
	modules := strings.TrimSpace(string(cache))
	var dirs []string
	for _, dir := range []string{"net/http", "context", "sync", "time"} {
		dirs = append(dirs, filepath.Join(goroot, "src", filepath.FromSlash(dir)))
	}
	for _, dir := range []string{"golang.org/x/time@v0.16.0/rate", "golang.org/x/sync@v0.24.0", "github.com/failsafe-go/failsafe-go@v0.9.8",
		"github.com/cenkalti/backoff/v5@v5.0.3", "github.com/maypok86/otter/v2@v2.4.0"} {
		dirs = append(dirs, filepath.Join(modules, filepath.FromSlash(dir)))
	}
	var texts []text
	for _, dir := range dirs {
		found, err := readFiles(os.DirFS(dir))
		if err != nil {
			return errors.Join(fmt.Errorf("%s is an anchor; get it with go mod download", dir), err)
		}
		for _, t := range found {
			// Only pages and comments, so not what add took from calls, and no tests.
			if strings.HasSuffix(t.Path, "_test.go") || strings.HasSuffix(t.Path, ".go") && t.Part == prose {
				continue
			}
			t.Part = comments
			texts = append(texts, t)
		}
	}
	c := tally(rows, texts)[comments]
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for _, r := range rows {
		fmt.Fprintf(w, "%s\t%.1f\n", r.Name, c.of(r.Name))
	}
	fmt.Fprintf(w, "words\t%d\n", c.Words)
	return w.Flush()
}
