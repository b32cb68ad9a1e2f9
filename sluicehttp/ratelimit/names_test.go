package ratelimit

import (
	"go/ast"
	"go/parser"
	"go/token"
	"net/http"
	"strconv"
	"strings"
	"testing"
)

// Each name that the code of names.go can read passes mayMatter and mayBeKnown, which look at
// a few letters only. Otherwise a new field would never be read, and no other test would
// notice. The names are taken from the source, so a new one need not be added to a list.
func TestMayMatter_AdmitsEachNameThatIsRead(t *testing.T) {
	begins := map[string][]string{ // of the names whose rest a function compares
		"classifyLower": {""},
		"classifyPlain": {"ratelimit-"},
		"classifyX":     {"x-ratelimit-", "x-rate-limit-"},
		"unit":          nil, // compares units
		"classify":      nil, // names that classifyLower has, too
	}
	names, prefixes := namesInSource(t, "names.go")
	var all []string
	for function, rests := range names {
		begin, known := begins[function]
		if !known {
			t.Errorf("%s compares names: say here what they begin with", function)
		}
		for _, b := range begin {
			for _, rest := range rests {
				all = append(all, b+rest)
			}
		}
	}
	for _, part := range partNames {
		for _, b := range begins["classifyX"] {
			all = append(all, b+part.name+"-units", b+"units-"+part.name)
		}
		all = append(all, "vendor-ratelimit-units-"+part.name)
	}
	all = append(all, "x-ms-ratelimit-remaining-units")
	for _, prefix := range prefixes {
		if !hasPrefix(all, prefix) {
			t.Errorf("names that begin with %q are read, but not tried here", prefix)
		}
	}
	if len(all) < 40 {
		t.Fatalf("only %d names were found in the source: %q", len(all), all)
	}
	for _, name := range all {
		for _, spelled := range []string{name, strings.ToUpper(name), http.CanonicalHeaderKey(name)} {
			if k, read := classifyLower(spelled); !read {
				t.Errorf("%s is in the source and not read", spelled)
			} else if !mayMatter(spelled) || !mayBeKnown(spelled) {
				t.Errorf("%s would never be read: mayMatter %v, mayBeKnown %v", spelled, mayMatter(spelled), mayBeKnown(spelled))
			} else if short, _ := classify(spelled); short != k {
				t.Errorf("%s: classify says %+v, classifyLower %+v", spelled, short, k)
			}
		}
	}
}

func hasPrefix(names []string, prefix string) bool {
	for _, name := range names {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return false
}

// namesInSource returns the strings that the functions of a file compare in a switch, by
// function, and those that they pass to after.
func namesInSource(t *testing.T, file string) (names map[string][]string, prefixes []string) {
	t.Helper()
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	names = map[string][]string{}
	for _, decl := range parsed.Decls {
		function, ok := decl.(*ast.FuncDecl)
		if !ok {
			continue
		}
		ast.Inspect(function, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.CaseClause:
				for _, e := range n.List {
					if s, ok := literal(e); ok {
						names[function.Name.Name] = append(names[function.Name.Name], s)
					}
				}
			case *ast.CallExpr:
				if f, ok := n.Fun.(*ast.Ident); ok && f.Name == "after" {
					if s, ok := literal(n.Args[1]); ok {
						prefixes = append(prefixes, s)
					}
				}
			}
			return true
		})
	}
	return names, prefixes
}

func literal(e ast.Expr) (string, bool) {
	l, ok := e.(*ast.BasicLit)
	if !ok || l.Kind != token.STRING {
		return "", false
	}
	s, err := strconv.Unquote(l.Value)
	return s, err == nil
}
