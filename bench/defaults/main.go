// Defaults writes docs/defaults.md: every field of a configuration that is a number or a
// duration, and what 0 and a negative value mean, in the words of its doc comment.
//
//	go run ./bench/defaults            # from the root of the repository
//
// A test fails if the page is outdated, or if the comment of such a field does not say what 0
// means.
package main

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

func main() {
	page, missing, err := write(".")
	for _, m := range missing {
		fmt.Fprintln(os.Stderr, "no word about 0:", m)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join("docs", "defaults.md"), page, 0o666)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "defaults:", err)
		os.Exit(1)
	}
}

// packages are those whose configurations are listed, in this order.
var packages = []string{".", "sluicehttp", "sluicegrpc", "limits", "pacer", "batch", "sluiceredis", "observe", "observe/live", "observe/otel", "observe/prometheus"}

// configurations are the structs that configure something.
var configurations = regexp.MustCompile(`Config$|^(RetryPolicy|Adaptive|Overrides|Published|Aside|Suspend|Halt|Handler)$`)

// A setting is a field of a configuration.
type setting struct {
	name, typ      string
	zero, negative string
}

// write returns the page, and the settings whose comment does not say what 0 means.
func write(root string) (page []byte, missing []string, err error) {
	var b bytes.Buffer
	b.WriteString(header)
	for _, dir := range packages {
		all, err := settings(filepath.Join(root, dir))
		if err != nil {
			return nil, nil, err
		}
		name := "sluice"
		if dir != "." {
			name = dir
		}
		if len(all) == 0 {
			continue
		}
		fmt.Fprintf(&b, "\n## %s\n\n| field | 0 | negative |\n| --- | --- | --- |\n", name)
		for _, s := range all {
			if s.zero == "" {
				missing = append(missing, name+"."+s.name)
			}
			fmt.Fprintf(&b, "| `%s` %s | %s | %s |\n", s.name, s.typ, s.zero, s.negative)
		}
	}
	return b.Bytes(), missing, nil
}

const header = `# Defaults

Every number and duration that can be configured, and the meaning of 0 and of a negative value. A negative value that is not listed is an error of the constructor. The page is written by ` + "`go run ./bench/defaults`" + ` from the comments of the fields, which say more.

The rule: 0 is the default. Where a default protects you, a negative value turns it off.
`

// settings returns those of a package, in the order of their files.
func settings(dir string) (all []setting, err error) {
	names, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		return nil, err
	}
	fset := token.NewFileSet()
	for _, name := range names { // in order
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(fset, name, nil, parser.ParseComments)
		if err != nil {
			return nil, err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			spec, ok := n.(*ast.TypeSpec)
			if !ok || !spec.Name.IsExported() || !configurations.MatchString(spec.Name.Name) {
				return true
			}
			if fields, ok := spec.Type.(*ast.StructType); ok {
				all = append(all, ofStruct(spec.Name.Name, fields)...)
			}
			return true
		})
	}
	return all, nil
}

// counted are the types of settings that are numbers.
var counted = []string{"int", "int64", "uint", "float64", "time.Duration", "Rate", "sluice.Rate", "limits.Rate"}

func ofStruct(owner string, fields *ast.StructType) (all []setting) {
	for _, f := range fields.Fields.List {
		typ := typeName(f.Type)
		if !slices.Contains(counted, typ) {
			continue
		}
		text := strings.Join(strings.Fields(f.Doc.Text()+" "+f.Comment.Text()), " ")
		zero, negative := meanings(text)
		for _, id := range f.Names {
			if id.IsExported() {
				all = append(all, setting{owner + "." + id.Name, typ, zero, negative})
			}
		}
	}
	return all
}

func typeName(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.SelectorExpr:
		return typeName(e.X) + "." + e.Sel.Name
	}
	return ""
}

var (
	// "0 means 5 min", "The zero Rate means no limit", "0 or less means none", "0: none"
	zeroText     = regexp.MustCompile(`(?i)(?:\b0|the zero \w+)(?: or less)?(?: means|:| stands for| is the default,|, the default, means) ?((?:[^.;]|\.\S)*)`)
	orLess       = regexp.MustCompile(`\b0 or less means ([^.;]*)`)
	needed       = regexp.MustCompile(`\b(at least 1|positive)\b`)
	negativeText = regexp.MustCompile(`(?i)(?:\bif it is )?\bnegative\b(?: (?:for|means|at|no|none|not|value|nothing|a)\b)?[^.;]*`)
	leading      = regexp.MustCompile(`(?i)^(?:if it is )?(?:only )?negative,? ?(?:means|for)? ?`)
)

// meanings returns what a comment says about 0 and about negative values.
func meanings(text string) (zero, negative string) {
	if m := zeroText.FindStringSubmatch(text); m != nil {
		zero = strings.TrimSpace(m[1])
	}
	if m := orLess.FindStringSubmatch(text); m != nil {
		negative, _, _ = strings.Cut(m[1], " (")
		return tidy(m[1]), tidy(negative)
	}
	if zero == "" && needed.MatchString(text) {
		zero = "an error: it is required"
	}
	if i := strings.Index(strings.ToLower(zero), "negative"); i >= 0 {
		zero = zero[:i]
	}
	if m := negativeText.FindString(text); m != "" {
		negative = leading.ReplaceAllString(m, "")
	}
	return tidy(zero), tidy(negative)
}

// tidy ends a meaning at its end.
func tidy(s string) string {
	s, _, _ = strings.Cut(s, ": ")
	s, _, _ = strings.Cut(s, ", which")
	s, _, _ = strings.Cut(s, ", wakes")
	s = strings.TrimPrefix(strings.TrimRight(strings.TrimSpace(s), ",: "), "that ")
	for _, word := range []string{" and only", " and", ", and", " or"} {
		s = strings.TrimSuffix(s, word)
	}
	return strings.TrimRight(s, ", ")
}
