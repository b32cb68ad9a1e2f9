package main

import (
	"cmp"
	"errors"
	"fmt"
	"go/ast"
	"go/constant"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// A mutant is the package with one change.
type mutant struct {
	id   int // from 1
	file string
	line int
	kind string // operators or numbers
	was  string
	is   string
}

const (
	operators = "operators"
	numbers   = "numbers"

	larger = 1.25 // times a number
)

// A program is a package with all its mutants in it: each place that has some asks which one is on.
//
// One build then serves a thousand runs. To build each mutant by itself took five times as long as to run the tests.
type program struct {
	fset    *token.FileSet
	info    *types.Info
	pkg     *types.Package
	sources []*source
	mutants []mutant

	sizes   map[types.Object]bool      // constants that are lengths of arrays
	values  map[types.Object]constDef  // constants of the package
	foreign map[string]*types.TypeName // types of other packages, by the name that they have in this one
	outer   map[ast.Expr]types.Type    // of the constant expression that one is part of
	of      map[types.Object][]int     // mutants of a constant, its own and those of the constants in its value
}

// A constDef is where a constant is declared.
type constDef struct {
	in    *source
	decl  *ast.GenDecl
	kind  ast.Expr // of its type; nil: untyped
	value ast.Expr
	own   []replaced
}

// A replaced literal of a constant's value.
type replaced struct {
	id      int
	literal *ast.BasicLit
	is      string
}

// load reads a package with its tests and gives it mutants. Packages that it imports are read from what the go command
// has compiled.
func load(folder string) (*program, error) {
	p := &program{
		fset: token.NewFileSet(),
		info: &types.Info{
			Types: make(map[ast.Expr]types.TypeAndValue), Uses: make(map[*ast.Ident]types.Object), Defs: make(map[*ast.Ident]types.Object),
		},
		sizes: make(map[types.Object]bool), values: make(map[types.Object]constDef), of: make(map[types.Object][]int),
		foreign: make(map[string]*types.TypeName), outer: make(map[ast.Expr]types.Type),
	}
	paths, err := filepath.Glob(filepath.Join(folder, "*.go"))
	if err != nil {
		return nil, err
	}
	if len(paths) == 0 {
		return nil, fmt.Errorf("no Go files in %s", folder)
	}
	var files []*ast.File
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		file, err := parser.ParseFile(p.fset, path, text, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		p.sources = append(p.sources, &source{name: filepath.Base(path), text: text, file: file, test: strings.HasSuffix(path, "_test.go")})
		files = append(files, file)
	}
	imports, err := compiled(folder)
	if err != nil {
		return nil, err
	}
	checker := types.Config{Importer: importer.ForCompiler(p.fset, "gc", imports)}
	if p.pkg, err = checker.Check(files[0].Name.Name, p.fset, files, p.info); err != nil {
		return nil, err
	}
	p.constants()
	for _, s := range p.sources {
		p.rewrite(s)
	}
	return p, nil
}

// compiled returns how to read the packages that a folder and its tests import.
func compiled(folder string) (importer.Lookup, error) {
	list := exec.Command("go", "list", "-export", "-deps", "-test", "-f", "{{.ImportPath}} {{.Export}}", ".")
	list.Dir = folder
	text, err := list.Output()
	if err != nil {
		return nil, fmt.Errorf("what does the package import? %w", err)
	}
	files := make(map[string]string)
	for line := range strings.Lines(string(text)) {
		if path, file, ok := strings.Cut(strings.TrimSpace(line), " "); ok && !strings.Contains(file, "[") {
			files[path] = file
		}
	}
	return func(path string) (io.ReadCloser, error) {
		if files[path] == "" {
			return nil, errors.New("not compiled: " + path)
		}
		return os.Open(files[path])
	}, nil
}

// add adds a mutant and returns its number.
func (p *program) add(s *source, at token.Pos, kind, was, is string) int {
	m := mutant{len(p.mutants) + 1, s.name, p.fset.Position(at).Line, kind, was, is}
	p.mutants = append(p.mutants, m)
	return m.id
}

// constants finds the constants of the package and makes their mutants. A constant stays one: for each mutant there is
// another constant beside it, and where it is used the program chooses. A length of an array cannot be chosen, so it
// has no mutants.
func (p *program) constants() {
	for _, s := range p.sources {
		ast.Inspect(s.file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.ArrayType:
				if n.Len != nil {
					ast.Inspect(n.Len, func(n ast.Node) bool {
						if id, ok := n.(*ast.Ident); ok && !s.test {
							p.sizes[p.info.Uses[id]] = true
						}
						return true
					})
				}
			case *ast.GenDecl:
				if n.Tok != token.CONST {
					return true
				}
				for _, spec := range n.Specs {
					v := spec.(*ast.ValueSpec)
					for i, name := range v.Names {
						if i < len(v.Values) {
							p.values[p.info.Defs[name]] = constDef{in: s, decl: n, kind: v.Type, value: v.Values[i]}
						}
					}
				}
			}
			return true
		})
	}
	// In the order of the files, so that numbers of mutants do not change from run to run.
	all := make([]types.Object, 0, len(p.values))
	for c := range p.values {
		all = append(all, c)
	}
	slices.SortFunc(all, func(a, b types.Object) int { return cmp.Compare(a.Pos(), b.Pos()) })
	for _, c := range all {
		def := p.values[c]
		if def.in.test || p.sizes[c] || isCode(def.value) {
			continue
		}
		ast.Inspect(def.value, func(n ast.Node) bool {
			if l, ok := n.(*ast.BasicLit); ok {
				if is, ok := p.increased(l, false); ok {
					def.own = append(def.own, replaced{p.add(def.in, l.Pos(), numbers, c.Name()+" = "+l.Value, is), l, is})
				}
			}
			return true
		})
		p.values[c] = def
	}
	for _, c := range all {
		p.of[c] = p.mutantsOf(c)
	}
	for _, c := range all {
		def := p.values[c]
		for _, id := range p.of[c] {
			text := fmt.Sprintf("\nconst %s %s = %s\n", changed(c.Name(), id), def.in.at(p, def.kind), p.valueWith(def, id))
			def.in.insert(p, def.decl.End(), text, true)
		}
	}
}

// isCode reports whether a value is one of an enumeration or made of bits.
func isCode(x ast.Expr) (code bool) {
	ast.Inspect(x, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.Ident:
			code = code || n.Name == "iota"
		case *ast.BinaryExpr:
			code = code || n.Op == token.SHL
		}
		return true
	})
	return code
}

// mutantsOf returns the mutants that change a constant.
func (p *program) mutantsOf(c types.Object) (all []int) {
	def := p.values[c]
	for _, r := range def.own {
		all = append(all, r.id)
	}
	ast.Inspect(def.value, func(n ast.Node) bool {
		if id, ok := n.(*ast.Ident); ok {
			if d := p.info.Uses[id]; d != c && p.values[d].value != nil {
				all = append(all, p.mutantsOf(d)...)
			}
		}
		return true
	})
	slices.Sort(all)
	return slices.Compact(all)
}

// valueWith returns the text of a constant's value in a mutant.
func (p *program) valueWith(def constDef, id int) string {
	v := &source{text: def.in.text}
	ast.Inspect(def.value, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.BasicLit:
			for _, r := range def.own {
				if r.id == id && r.literal == n {
					v.replace(p, n.Pos(), n.End(), r.is)
				}
			}
		case *ast.Ident:
			if slices.Contains(p.of[p.info.Uses[n]], id) {
				v.replace(p, n.Pos(), n.End(), changed(n.Name, id))
			}
		}
		return true
	})
	from, to := p.fset.Position(def.value.Pos()).Offset, p.fset.Position(def.value.End()).Offset
	return v.render(from, to)
}

func changed(name string, id int) string { return fmt.Sprintf("%s_%d", name, id) }

// increased returns a literal that is a quarter larger, or if it is whole at least the next one. It reports whether
// there is one: 0 has none.
func (p *program) increased(l *ast.BasicLit, real bool) (text string, ok bool) {
	if l.Kind != token.INT && l.Kind != token.FLOAT {
		return "", false
	}
	v, _ := constant.Float64Val(constant.ToFloat(constant.MakeFromLiteral(l.Value, l.Kind, 0)))
	if v == 0 {
		return "", false
	}
	if real || l.Kind == token.FLOAT {
		return fmt.Sprintf("%g", larger*v), true
	}
	return fmt.Sprintf("%.0f", math.Ceil(larger*v)), true
}

// number returns the type of an expression as it is written in the package. It reports whether it is a number.
func (p *program) number(x ast.Expr) (name string, real, ok bool) {
	t := p.info.TypeOf(x)
	if outer, ok := p.outer[x]; ok && isUntyped(t) {
		t = outer
	}
	if t == nil {
		return "", false, false
	}
	t = types.Default(t)
	b, ok := t.Underlying().(*types.Basic)
	if !ok || b.Info()&types.IsNumeric == 0 {
		return "", false, false
	}
	name = types.TypeString(t, types.RelativeTo(p.pkg))
	if n, ok := t.(*types.Named); ok && n.Obj().Pkg() != p.pkg { // the file need not import its package
		name = "mutant" + n.Obj().Name()
		p.foreign[name] = n.Obj()
	}
	return name, b.Info()&types.IsFloat != 0, true
}

func isUntyped(t types.Type) bool {
	b, ok := t.(*types.Basic)
	return ok && b.Info()&types.IsUntyped != 0
}

// enclose notes the type of a constant expression for all of its parts: the checker leaves these without one.
func (p *program) enclose(x ast.Expr) {
	if p.info.Types[x].Value == nil || p.outer[x] != nil {
		return
	}
	ast.Inspect(x, func(n ast.Node) bool {
		switch part := n.(type) {
		case *ast.CallExpr: // a conversion
			return false
		case ast.Expr:
			p.outer[part] = p.info.TypeOf(x)
		}
		return true
	})
}

// contrary is what an operator becomes.
var contrary = map[token.Token]token.Token{
	token.ADD: token.SUB, token.SUB: token.ADD, token.MUL: token.QUO, token.QUO: token.MUL,
	token.ADD_ASSIGN: token.SUB_ASSIGN, token.SUB_ASSIGN: token.ADD_ASSIGN, token.MUL_ASSIGN: token.QUO_ASSIGN, token.QUO_ASSIGN: token.MUL_ASSIGN,
	token.LAND: token.LOR, token.LOR: token.LAND,
	token.EQL: token.NEQ, token.NEQ: token.EQL, token.GTR: token.LEQ, token.GEQ: token.LSS,
}

// rewrite puts the mutants into a file. Tests have none, but they see those of the constants that they use.
func (p *program) rewrite(s *source) {
	ast.Inspect(s.file, func(n ast.Node) bool {
		if x, ok := n.(ast.Expr); ok {
			p.enclose(x)
		}
		switch n := n.(type) {
		case *ast.GenDecl:
			return n.Tok != token.CONST && n.Tok != token.IMPORT
		case *ast.ArrayType:
			return n.Len == nil // its elements have no numbers
		case *ast.CallExpr:
			return !isInf(n)
		case *ast.Ident:
			p.use(s, n)
		case *ast.BasicLit:
			if name, real, ok := p.number(n); ok && !s.test {
				if is, ok := p.increased(n, real); ok {
					id := p.add(s, n.Pos(), numbers, n.Value, is)
					s.replace(p, n.Pos(), n.End(), fmt.Sprintf("mutantLarger(%d, %s(%s), %s)", id, name, is, n.Value))
				}
			}
		case *ast.AssignStmt:
			if name := chooser[n.Tok]; name != "" && !s.test {
				if _, _, ok := p.number(n.Lhs[0]); ok {
					id := p.add(s, n.TokPos, operators, n.Tok.String(), contrary[n.Tok].String())
					s.replace(p, n.TokPos, n.TokPos+2, fmt.Sprintf("= %s(%d, %s, ", name, id, s.at(p, n.Lhs[0])))
					s.insert(p, n.End(), ")", true)
				}
			}
		case *ast.BinaryExpr:
			if !s.test {
				p.operator(s, n)
			}
		}
		return true
	})
}

// isInf reports whether the argument is only a sign.
func isInf(call *ast.CallExpr) bool {
	f, ok := call.Fun.(*ast.SelectorExpr)
	return ok && f.Sel.Name == "Inf"
}

// use lets the program choose a constant where it is used.
func (p *program) use(s *source, n *ast.Ident) {
	c := p.info.Uses[n]
	name, _, ok := p.number(n)
	if c == nil || len(p.of[c]) == 0 || !ok {
		return
	}
	text := fmt.Sprintf("%s(%s)", name, n.Name)
	for _, id := range p.of[c] {
		text = fmt.Sprintf("mutantLarger(%d, %s(%s), %s)", id, name, changed(n.Name, id), text)
	}
	s.replace(p, n.Pos(), n.End(), text)
}

// operator lets the program choose an operator. Those of constants have no mutants.
func (p *program) operator(s *source, n *ast.BinaryExpr) {
	is, ok := contrary[n.Op]
	if !ok || p.info.Types[n].Value != nil {
		return
	}
	switch n.Op {
	case token.EQL, token.NEQ, token.GTR, token.GEQ:
		id := p.add(s, n.OpPos, operators, n.Op.String(), is.String())
		s.insert(p, n.Pos(), fmt.Sprintf("mutantNot(%d, ", id), false)
		s.insert(p, n.End(), ")", true)
	case token.LAND, token.LOR:
		id := p.add(s, n.OpPos, operators, n.Op.String(), is.String())
		s.insert(p, n.Pos(), fmt.Sprintf("%s(%d, ", chooser[n.Op], id), false)
		s.replace(p, n.OpPos, n.OpPos+2, ", func() bool { return (")
		s.insert(p, n.End(), ")})", true)
	default:
		if _, _, ok := p.number(n); !ok {
			return
		}
		id := p.add(s, n.OpPos, operators, n.Op.String(), is.String())
		s.insert(p, n.Pos(), fmt.Sprintf("%s(%d, ", chooser[n.Op], id), false)
		s.replace(p, n.OpPos, n.OpPos+1, ",")
		s.insert(p, n.End(), ")", true)
	}
}
