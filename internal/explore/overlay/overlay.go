// Package overlay rewrites Go packages for package sched, and puts seeded bugs into them. The
// files in the tree stay as they are: "go build -overlay" reads the rewritten ones in their place.
package overlay

import (
	"cmp"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// base is where the packages are that rewritten code imports.
const base = "github.com/sluice-go/sluice/internal/explore/sched"

// replaced are the imports of which there is another one below base.
var replaced = map[string]string{
	"sync": "/sync", "sync/atomic": "/atomic", "time": "/time", "context": "/context", "runtime": "/runtime",
}

// A Seed is a bug: in File, relative to the root, New stands for Old while it is switched on. It
// is found in Scene.
type Seed struct {
	Name, Scene, About, File, Old, New string
}

// Write writes the rewritten files of the packages in the directories dirs, relative to root, into
// the directory into, with seeds, and returns the name of the file for "go build -overlay".
func Write(root, into string, dirs []string, seeds []Seed, extra map[string]string) (string, error) {
	replace := map[string]string{}
	left := slices.Clone(seeds)
	put := func(name string, code []byte) error {
		to := filepath.Join(into, strings.ReplaceAll(name, "/", "_"))
		replace[filepath.Join(root, name)] = to
		return os.WriteFile(to, code, 0o644)
	}
	for _, dir := range dirs {
		files, err := filepath.Glob(filepath.Join(root, dir, "*.go"))
		if err != nil {
			return "", err
		}
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			name, _ := filepath.Rel(root, file)
			name = filepath.ToSlash(name)
			code, err := os.ReadFile(file)
			if err != nil {
				return "", err
			}
			if left, code, err = plant(left, name, code); err != nil {
				return "", err
			}
			if code, err = Rewrite(name, code); err != nil {
				return "", err
			}
			if err := put(name, code); err != nil {
				return "", err
			}
		}
	}
	for name, code := range extra {
		if err := put(name, []byte(code)); err != nil {
			return "", err
		}
	}
	if len(left) > 0 {
		return "", fmt.Errorf("overlay: seed %s: no file %s", left[0].Name, left[0].File)
	}
	list, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	to := filepath.Join(into, "overlay.json")
	return to, os.WriteFile(to, list, 0o644)
}

// plant puts the seeds of the file name into its code, and returns the other seeds.
func plant(seeds []Seed, name string, code []byte) (others []Seed, with []byte, err error) {
	text := string(code)
	for _, s := range seeds {
		switch {
		case s.File != name:
			others = append(others, s)
		case strings.Count(text, s.Old) != 1:
			return nil, nil, fmt.Errorf("overlay: seed %s: its place is %d times in %s", s.Name, strings.Count(text, s.Old), name)
		default:
			text = strings.Replace(text, s.Old, s.New, 1)
		}
	}
	return others, []byte(text), nil
}

// An edit replaces the bytes from from to to.
type edit struct {
	from, to int
	with     string
}

// Rewrite returns the code of a file, with calls of package sched.
func Rewrite(name string, code []byte) ([]byte, error) {
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, name, code, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	r := &rewriter{at: func(p token.Pos) int { return fset.Position(p).Offset }, code: code}
	for _, i := range file.Imports {
		path, _ := strconv.Unquote(i.Path.Value)
		if to, ok := replaced[path]; ok {
			r.replace(i.Path.Pos(), i.Path.End(), strconv.Quote(base+to))
		}
	}
	ast.Walk(r, file)
	if r.err != nil {
		return nil, fmt.Errorf("%s: %w", name, r.err)
	}
	if r.used || strings.Contains(string(code), "sched.Seeded(") {
		end := r.at(file.Name.End())
		r.edits = append(r.edits, edit{end, end, "; import sched " + strconv.Quote(base)})
	}
	return r.apply(), nil
}

type rewriter struct {
	at    func(token.Pos) int
	code  []byte
	edits []edit
	used  bool
	err   error
}

func (r *rewriter) replace(from, to token.Pos, with string) {
	r.edits = append(r.edits, edit{r.at(from), r.at(to), with})
}

func (r *rewriter) insert(at token.Pos, what string) { r.replace(at, at, what) }

// call makes the source between from and to an argument of a function of sched.
func (r *rewriter) call(name string) string {
	r.used = true
	return "sched." + name + "("
}

// Visit implements ast.Visitor.
func (r *rewriter) Visit(n ast.Node) ast.Visitor {
	switch n := n.(type) {
	case *ast.SelectStmt:
		r.choose(n)
		return nil
	case *ast.SendStmt:
		r.insert(n.Pos(), r.call("Send"))
		r.replace(n.Chan.End(), n.Value.Pos(), ", ")
		r.insert(n.End(), ")")
	case *ast.UnaryExpr:
		if n.Op == token.ARROW {
			r.replace(n.Pos(), n.X.Pos(), r.call("Recv"))
			r.insert(n.X.End(), ")")
		}
	case *ast.CallExpr:
		r.builtin(n)
	case *ast.GoStmt:
		r.replace(n.Pos(), n.Call.Pos(), r.call("Go")+"func() { ")
		r.insert(n.End(), " })")
	}
	return r
}

// builtin rewrites close, and the len of a channel, as far as its name says that it is one.
func (r *rewriter) builtin(n *ast.CallExpr) {
	f, ok := n.Fun.(*ast.Ident)
	if !ok || len(n.Args) != 1 {
		return
	}
	channel := strings.HasSuffix(string(r.code[r.at(n.Args[0].Pos()):r.at(n.Args[0].End())]), ".wake")
	switch {
	case f.Name == "close":
		r.replace(n.Pos(), n.Lparen+1, r.call("Close"))
	case f.Name == "len" && channel:
		r.replace(n.Pos(), n.Lparen+1, r.call("Len"))
	}
}

// choose makes a select a switch over the case that is taken, in which the operation comes first:
//
//	select {                      switch sched.Select(false, sched.CanRecv(c), …) {
//	case v := <-c:                case 0: v := <-c
func (r *rewriter) choose(s *ast.SelectStmt) {
	var cases []string
	otherwise := false
	for _, c := range s.Body.List {
		clause := c.(*ast.CommClause)
		if clause.Comm == nil {
			otherwise = true
		} else {
			how, channel := operation(clause.Comm)
			if channel == nil {
				r.err = fmt.Errorf("a select with an operation that is not known")
				return
			}
			cases = append(cases, ", "+r.call(how)+r.text(channel)+")")
			r.replace(clause.Case, clause.Comm.Pos(), fmt.Sprintf("case %d: ", len(cases)-1))
			r.replace(clause.Colon, clause.Colon+1, ";")
		}
		for _, b := range clause.Body {
			ast.Walk(r, b)
		}
	}
	if !otherwise { // so that the switch ends a function as the select did
		r.insert(s.Body.Rbrace, "default: panic(\"no case\")\n")
	}
	r.replace(s.Pos(), s.Body.Lbrace, fmt.Sprintf("switch %s%v%s) ", r.call("Select"), otherwise, strings.Join(cases, "")))
}

// operation returns the operation and the channel of a case of a select.
func operation(s ast.Stmt) (how string, channel ast.Expr) {
	var e ast.Expr
	switch s := s.(type) {
	case *ast.SendStmt:
		return "CanSend", s.Chan
	case *ast.ExprStmt:
		e = s.X
	case *ast.AssignStmt:
		e = s.Rhs[0]
	}
	if u, ok := e.(*ast.UnaryExpr); ok && u.Op == token.ARROW {
		return "CanRecv", u.X
	}
	return "", nil
}

func (r *rewriter) text(n ast.Node) string { return string(r.code[r.at(n.Pos()):r.at(n.End())]) }

// apply returns the code with all edits.
func (r *rewriter) apply() []byte {
	slices.SortStableFunc(r.edits, func(a, b edit) int { return cmp.Compare(a.from, b.from) })
	var out []byte
	at := 0
	for _, e := range r.edits {
		out = append(append(out, r.code[at:max(at, e.from)]...), e.with...)
		at = max(at, e.to)
	}
	return append(out, r.code[at:]...)
}
