// House reports what a reader of Sluice meets, next to the aims that there are for it:
//
//   - of each package that users import: exported names and fields, lines, files, and the longest
//     file and function;
//   - of calls of some kinds: what one of them passes, see passage;
//   - of the whole: its largest types, arrows that run back up, words with several meanings, lines
//     and names, see tree.figures, arrows and meanings;
//   - of changes that somebody will want to make: the files that each must touch, see change.
//
// Usage, at the top of the repository:
//
//	go run ./bench/house           # a quarter of a minute; on a new machine it compiles for a minute
//	go run ./bench/house -quick    # no calls, so nothing is compiled: a second
//
// It is a report. Nothing fails because of it.
package main

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
)

func main() {
	err := run(os.Args[1:], os.Stdout)
	switch {
	case errors.Is(err, flag.ErrHelp):
		os.Exit(2)
	case err != nil:
		fmt.Fprintf(os.Stderr, "house: %v\n", err)
		os.Exit(1)
	}
}

func run(args []string, out io.Writer) error {
	flags := flag.NewFlagSet("house [folder]", flag.ContinueOnError)
	quick := flags.Bool("quick", false, "count no calls, so compile nothing")
	if err := flags.Parse(args); err != nil {
		return err
	}
	root, err := filepath.Abs(cmp.Or(flags.Arg(0), "."))
	if err != nil {
		return err
	}
	files := os.DirFS(root)
	packages, err := measure(files)
	if err == nil {
		err = report(out, packages)
	}
	if err != nil {
		return err
	}
	t, err := load(files)
	if err != nil {
		return err
	}
	if !*quick {
		fmt.Fprintln(out)
		if err := t.reportCalls(out, root); err != nil {
			return err
		}
	}
	fmt.Fprintln(out)
	return t.reportFigures(out, packages)
}

// reportCalls counts what calls pass, and writes it.
func (t *tree) reportCalls(out io.Writer, root string) error {
	temp, err := os.MkdirTemp("", "house")
	if err != nil {
		return err
	}
	defer os.RemoveAll(temp)
	passages, err := counter{t, root, "bench/house/scenes", temp}.passages(scenes)
	if err != nil {
		return err
	}
	return reportPassages(out, scenes, passages)
}

// A size is that of a package, without its tests.
type size struct {
	folder        string
	names, fields int // exported
	lines, files  int
	longest       part // file
	function      part
}

// A part is a file or a function.
type part struct {
	name  string
	lines int
}

func (p part) String() string { return fmt.Sprintf("%s %d", cmp.Or(p.name, "-"), p.lines) }

// longer returns the longer one of p and q, p if both have as many lines.
func (p part) longer(q part) part {
	if q.lines > p.lines {
		return q
	}
	return p
}

// add adds a file.
func (s *size) add(name, source string, files *token.FileSet, file *ast.File) {
	lines := strings.Count(source, "\n")
	s.lines += lines
	s.files++
	s.longest = s.longest.longer(part{name, lines})
	for _, decl := range file.Decls {
		switch decl := decl.(type) {
		case *ast.FuncDecl:
			s.function = s.function.longer(part{decl.Name.Name, files.Position(decl.End()).Line - files.Position(decl.Pos()).Line + 1})
			if decl.Name.IsExported() && (decl.Recv == nil || ast.IsExported(receiver(decl.Recv.List[0].Type))) {
				s.names++
			}
		case *ast.GenDecl:
			for _, spec := range decl.Specs {
				s.spec(spec)
			}
		}
	}
}

// spec adds a type with its fields, or constants or variables.
func (s *size) spec(spec ast.Spec) {
	switch spec := spec.(type) {
	case *ast.TypeSpec:
		if !spec.Name.IsExported() {
			return
		}
		s.names++
		if t, ok := spec.Type.(*ast.StructType); ok {
			for _, field := range t.Fields.List {
				s.fields += exported(field.Names)
			}
		}
	case *ast.ValueSpec:
		s.names += exported(spec.Names)
	}
}

func exported(names []*ast.Ident) (n int) {
	for _, name := range names {
		if name.IsExported() {
			n++
		}
	}
	return n
}

// receiver is T for T, *T, T[P] and *T[P, Q].
func receiver(t ast.Expr) string {
	switch t := t.(type) {
	case *ast.StarExpr:
		return receiver(t.X)
	case *ast.IndexExpr:
		return receiver(t.X)
	case *ast.IndexListExpr:
		return receiver(t.X)
	case *ast.Ident:
		return t.Name
	}
	return ""
}

// skipped reports whether a directory has nothing that users import.
func skipped(folder string) bool {
	switch base := path.Base(folder); base {
	case ".":
		return false
	case "examples", "bench", "docs", "tools", "internal", "testdata":
		return true
	default:
		return base[0] == '.' || base[0] == '_'
	}
}

// measure returns the packages below a directory, by their names.
func measure(tree fs.FS) (packages []size, err error) {
	byFolder := make(map[string]*size)
	err = fs.WalkDir(tree, ".", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && skipped(name):
			return fs.SkipDir
		case entry.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go"):
			return nil
		}
		source, err := fs.ReadFile(tree, name)
		if err != nil {
			return err
		}
		files := token.NewFileSet()
		file, err := parser.ParseFile(files, name, source, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		folder := path.Dir(name)
		if byFolder[folder] == nil {
			byFolder[folder] = &size{folder: folder}
		}
		byFolder[folder].add(path.Base(name), string(source), files, file)
		return nil
	})
	for _, s := range byFolder {
		packages = append(packages, *s)
	}
	slices.SortFunc(packages, func(a, b size) int { return strings.Compare(a.folder, b.folder) })
	return packages, err
}

// report writes a table of the packages, and their sum.
func report(w io.Writer, packages []size) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "package\tnames\tfields\tlines\tfiles\tlongest file\tlongest function")
	var all size
	for _, s := range packages {
		fmt.Fprintf(t, "%s\t%d\t%d\t%d\t%d\t%v\t%v\n", s.folder, s.names, s.fields, s.lines, s.files, s.longest, s.function)
		all.names += s.names
		all.fields += s.fields
		all.lines += s.lines
		all.files += s.files
		all.longest = all.longest.longer(part{path.Join(s.folder, s.longest.name), s.longest.lines})
		all.function = all.function.longer(part{path.Join(s.folder, s.function.name), s.function.lines})
	}
	fmt.Fprintf(t, "all\t%d\t%d\t%d\t%d\t%v\t%v\n", all.names, all.fields, all.lines, all.files, all.longest, all.function)
	return t.Flush()
}
