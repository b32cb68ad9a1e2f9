package main

import (
	"go/ast"
	"go/types"
	"slices"
	"strings"
)

// meanings returns what a word means in a tree, written with a capital letter or not: each type
// of that name, and each other thing that a field or a method of that name is. A field whose type
// is another type of the tree means that type, and has no meaning of its own.
func (t *tree) meanings(word string) []string {
	var all []string
	for _, l := range t.packages {
		for _, s := range l.sources {
			ast.Inspect(s.ast, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.TypeSpec:
					if strings.EqualFold(n.Name.Name, word) {
						all = append(all, l.String()+"."+n.Name.Name)
					}
				case *ast.Field:
					_, method := n.Type.(*ast.FuncType)
					if named(n.Names, word) && !method && !t.own(l, n.Type) && isMember(l, n) {
						all = append(all, types.ExprString(n.Type))
					}
				case *ast.FuncDecl:
					if n.Recv != nil && strings.EqualFold(n.Name.Name, word) && n.Type.Results != nil && !t.own(l, n.Type.Results.List[0].Type) {
						all = append(all, types.ExprString(n.Type.Results.List[0].Type))
					}
				}
				return true
			})
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

func named(names []*ast.Ident, word string) bool {
	return slices.ContainsFunc(names, func(n *ast.Ident) bool { return strings.EqualFold(n.Name, word) })
}

// isMember reports whether a field is that of a struct, and not a parameter.
func isMember(l *library, field *ast.Field) bool {
	v, ok := l.info.Defs[field.Names[0]].(*types.Var)
	return ok && v.IsField()
}

// own reports whether a type that is declared in the tree is, or is a part of, the type of expr.
func (t *tree) own(l *library, expr ast.Expr) (own bool) {
	ast.Inspect(expr, func(n ast.Node) bool {
		if name, ok := n.(*ast.Ident); ok {
			object := l.info.Uses[name]
			if object == nil { // an argument of a generic type of the standard library
				object = l.types.Scope().Lookup(name.Name)
			}
			declared, ok := object.(*types.TypeName)
			own = own || ok && declared.Pkg() != nil
		}
		return true
	})
	return own
}

// having returns the types that have a method or a field of a name.
func (t *tree) having(name string) []string {
	var all []string
	for _, l := range t.packages {
		for _, s := range l.sources {
			for _, decl := range s.ast.Decls {
				switch decl := decl.(type) {
				case *ast.FuncDecl:
					if decl.Recv != nil && decl.Name.Name == name {
						all = append(all, l.String()+"."+receiver(decl.Recv.List[0].Type))
					}
				case *ast.GenDecl:
					for _, spec := range decl.Specs {
						if spec, ok := spec.(*ast.TypeSpec); ok && hasField(spec.Type, name) {
							all = append(all, l.String()+"."+spec.Name.Name)
						}
					}
				}
			}
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// hasField reports whether a struct or an interface has a field or a method of a name.
func hasField(t ast.Expr, name string) bool {
	var fields *ast.FieldList
	switch t := t.(type) {
	case *ast.StructType:
		fields = t.Fields
	case *ast.InterfaceType:
		fields = t.Methods
	default:
		return false
	}
	return slices.ContainsFunc(fields.List, func(f *ast.Field) bool {
		return slices.ContainsFunc(f.Names, func(n *ast.Ident) bool { return n.Name == name })
	})
}
