package main

import (
	"cmp"
	"fmt"
	"go/ast"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
	"text/tabwriter"
)

// A figure is one that is printed next to its aim.
type figure struct {
	name, value, aim string
	more             string // names, for those who look for them
}

// A shape is that of a type: how much of it a reader must know at once.
type shape struct {
	name                   string
	fields, methods, files int
}

// shapes returns the structs of a tree, largest first. A type that is another name for a struct,
// such as type rule Gate, adds its methods to those of the struct. An embedded field counts as
// one; files are those with methods, and the one that declares the struct.
func (t *tree) shapes() []shape {
	var all []shape
	for _, l := range t.packages {
		structs := make(map[string]*shape)
		other := make(map[string]string) // names of structs, by their other names
		files := make(map[string]map[string]bool)
		l.typeSpecs(func(spec *ast.TypeSpec, s *source) {
			switch t := spec.Type.(type) {
			case *ast.StructType:
				structs[spec.Name.Name] = &shape{name: l.String() + "." + spec.Name.Name, fields: fieldsOf(t)}
				files[spec.Name.Name] = map[string]bool{s.name: true}
			case *ast.Ident:
				other[spec.Name.Name] = t.Name
			}
		})
		for _, s := range l.sources {
			for _, decl := range s.ast.Decls {
				f, ok := decl.(*ast.FuncDecl)
				if !ok || f.Recv == nil {
					continue
				}
				name := receiver(f.Recv.List[0].Type)
				name = cmp.Or(other[name], name)
				if of := structs[name]; of != nil {
					of.methods++
					files[name][s.name] = true
				}
			}
		}
		for name, s := range structs {
			s.files = len(files[name])
			all = append(all, *s)
		}
	}
	slices.SortFunc(all, func(a, b shape) int { return cmp.Or(b.fields-a.fields, strings.Compare(a.name, b.name)) })
	return all
}

func (l *library) typeSpecs(yield func(spec *ast.TypeSpec, s *source)) {
	for _, s := range l.sources {
		for _, decl := range s.ast.Decls {
			if decl, ok := decl.(*ast.GenDecl); ok {
				for _, spec := range decl.Specs {
					if spec, ok := spec.(*ast.TypeSpec); ok {
						yield(spec, s)
					}
				}
			}
		}
	}
}

func fieldsOf(t *ast.StructType) (n int) {
	for _, f := range t.Fields.List {
		n += max(1, len(f.Names))
	}
	return n
}

// apart is the package whose arrows are counted apart.
const apart = "internal/adaptive"

// longTest is how long a file of tests may be.
const longTest = 1000

// figures returns the figures of a tree, whose packages have sizes.
func (t *tree) figures(sizes []size) ([]figure, error) {
	var all []figure
	add := func(name, aim string, value any, more string) {
		all = append(all, figure{name, fmt.Sprint(value), aim, more})
	}
	shapes := t.shapes()
	for _, s := range shapes {
		if s.name == path.Base(t.modules["."])+".Gate" {
			add("Gate: fields", "≤ 24", s.fields, "")
			add("Gate: methods", "≤ 55", s.methods, "")
			add("Gate: files", "≤ 6", s.files, "")
		}
	}
	if len(shapes) > 0 {
		largest := ""
		for _, s := range shapes[:min(5, len(shapes))] {
			largest += fmt.Sprintf(", %s %d", s.name, s.fields)
		}
		add("largest struct: fields", "", shapes[0].fields, largest[2:])
	}
	t.addArrows(add)
	for _, w := range []string{"rule", "unit"} {
		meanings := t.meanings(w)
		add("meanings of "+w, "1", len(meanings), strings.Join(meanings, ", "))
	}
	leaving := t.having("leave")
	add("types that leave", "≤ 4", len(leaving), strings.Join(leaving, ", "))
	t.addSizes(add, sizes)
	return all, t.addFiles(add)
}

func (t *tree) addArrows(add func(name, aim string, value any, more string)) {
	up, of, most := 0, 0, []part(nil)
	for _, l := range t.packages {
		a := t.arrowsOf(l)
		n, least := a.count(), a.up()
		if l.folder == apart {
			defer add("arrows up in "+apart, "", fmt.Sprintf("%d of %d", least, n), "")
			continue
		}
		up, of = up+least, of+n
		most = append(most, part{l.String(), least})
	}
	slices.SortStableFunc(most, func(a, b part) int { return b.lines - a.lines })
	var names []string
	for _, p := range most[:min(8, len(most))] {
		names = append(names, p.String())
	}
	add("arrows up", "≤ 30", fmt.Sprintf("%d of %d", up, of), strings.Join(names, ", "))
}

func (t *tree) addSizes(add func(name, aim string, value any, more string), sizes []size) {
	lines, core, names, coreNames := 0, 0, 0, 0
	for _, l := range t.packages {
		for _, s := range l.sources {
			lines += s.lines
			if t.moduleOf(l.folder) == "." {
				core += s.lines
			}
		}
	}
	for _, s := range sizes {
		names += s.names
		if t.moduleOf(s.folder) == "." {
			coreNames += s.names
		}
	}
	add("core module: lines", "≤ 24000", core, "")
	add("core module: names", "≤ 300", coreNames, "")
	add("all modules: lines", "", lines, "")
	add("all modules: names", "≤ 440", names, "")
}

func (t *tree) addFiles(add func(name, aim string, value any, more string)) error {
	entries, err := fs.ReadDir(t.all, ".")
	if err != nil {
		return err
	}
	top := len(entries)
	if slices.ContainsFunc(entries, func(e fs.DirEntry) bool { return e.Name() == ".git" }) {
		top--
	}
	add("entries of the top folder", "≤ 75", top, "without .git")
	var longest part
	long := 0
	for _, p := range t.tests {
		longest = longest.longer(p)
		if p.lines > longTest {
			long++
		}
	}
	add("longest file of tests: lines", "≤ 1000", longest.lines, longest.name)
	add("longer files of tests", "0", long, "")
	return nil
}

// reportFigures writes the figures, and what each change touches.
func (t *tree) reportFigures(w io.Writer, sizes []size) error {
	figures, err := t.figures(sizes)
	if err != nil {
		return err
	}
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "house\tnow\taim\twhich")
	for _, f := range figures {
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", f.name, f.value, f.aim, f.more)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	table.Init(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "\nchange\tfiles\tplaces\taim\tbecause these have both of")
	var lists strings.Builder
	for _, c := range changes {
		all, err := t.touches(c)
		if err != nil {
			return err
		}
		places := 0
		fmt.Fprintf(&lists, "\n%s\n", c.name)
		for _, at := range all {
			places += max(1, len(at.places))
			fmt.Fprintf(&lists, "  %s  %s\n", at.file, strings.Join(at.places, ", "))
		}
		fmt.Fprintf(table, "%s\t%d\t%d\t%s\t%s\n", c.name, len(all), places, c.aim, c.says)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	_, err = io.WriteString(w, strings.ReplaceAll(lists.String(), "  \n", "\n"))
	return err
}
