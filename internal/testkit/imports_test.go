package testkit_test

import (
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/sluice-go/sluice"

// kits are for tests, benchmarks and examples.
var kits = []string{"internal/testkit", "internal/promise"}

// TestKits_AreNotImportedByPackagesOfUsers follows the imports of each package that a
// program can import.
func TestKits_AreNotImportedByPackagesOfUsers(t *testing.T) {
	imports := readImports(t, os.DirFS("../.."))
	if wrong := usersOfKits(imports); len(wrong) > 0 {
		t.Errorf("these import scaffolding of tests: %q", wrong)
	}
	if len(imports) < 15 || len(imports["."]) == 0 {
		t.Errorf("only %d packages are found", len(imports))
	}
}

func TestKits_CanFail(t *testing.T) {
	got := usersOfKits(map[string][]string{
		"a":                     {"internal/b"},
		"internal/b":            {"internal/testkit/oracle"},
		"c":                     {"a"},
		"d":                     {"internal/e"},
		"internal/testkit/oops": {"internal/testkit/oracle"},
		"bench/x":               {"internal/testkit/stall"},
		"nested":                {"internal/promise"},
		"nested/internal/kit":   {"internal/promise"},
	})
	if want := []string{"a", "c", "nested"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// apart are the internal packages that a module imports although it is tagged apart from theirs,
// and why that does no harm.
var apart = map[string]string{
	"sluiceredis/rueidisclient imports sluiceredis/internal/slot": "the slots of a Redis Cluster are a standard, so slot.Of stays as it is",
}

// TestModules_DoNotImportInternalPackagesOfOthers: modules are tagged apart, so a release of one
// must not break those that were released before. They have copies of small files, see TestCopies;
// what they exchange is below ext.
func TestModules_DoNotImportInternalPackagesOfOthers(t *testing.T) {
	root := os.DirFS("../..")
	modules := findModules(t, root)
	if len(modules) == 1 {
		t.Skip("not a checkout: there is one module")
	}
	found := foreignInternals(modules, readImports(t, root))
	for _, wrong := range found {
		if apart[wrong] == "" {
			t.Errorf("%s, which is in another module", wrong)
		}
	}
	for known := range apart {
		if !slices.Contains(found, known) {
			t.Errorf("it is not so any more: %s", known)
		}
	}
}

func TestModules_CanFail(t *testing.T) {
	got := foreignInternals([]string{".", "a", "a/b", "bench", "cmd"}, map[string][]string{
		"x":              {"internal/y", "x/internal/z"},
		"a":              {"limits", "internal/y", "a/internal/z"},
		"a/b":            {"a/internal/z"},
		"a/internal/kit": {"internal/testkit"}, // only tests use it
		"a/internal/z":   {"x/internal/z"},
		"bench/c":        {"internal/y"},
		"cmd/d":          {"cmd/internal/e"},
		"cmd/internal/e": {"internal/y"},
	})
	want := []string{
		"a imports internal/y",
		"a/b imports a/internal/z",
		"a/internal/z imports x/internal/z",
		"cmd/internal/e imports internal/y",
	}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// findModules returns the directories of all modules.
func findModules(t *testing.T, root fs.FS) (modules []string) {
	err := fs.WalkDir(root, ".", func(name string, entry fs.DirEntry, err error) error {
		if err == nil && path.Base(name) == "go.mod" {
			modules = append(modules, path.Dir(name))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return modules
}

// foreignInternals returns which packages import an internal one of another module, of those that
// are for users or that these need.
func foreignInternals(modules []string, imports map[string][]string) (wrong []string) {
	moduleOf := func(folder string) string {
		for folder != "." && !slices.Contains(modules, folder) {
			folder = path.Dir(folder)
		}
		return folder
	}
	seen := make(map[string]bool)
	var visit func(folder string)
	visit = func(folder string) {
		if seen[folder] {
			return
		}
		seen[folder] = true
		for _, next := range imports[folder] {
			if isInternal(next) && moduleOf(next) != moduleOf(folder) {
				wrong = append(wrong, folder+" imports "+next)
			}
			visit(next)
		}
	}
	for folder := range imports {
		if isForUsers(folder) {
			visit(folder)
		}
	}
	slices.Sort(wrong)
	return slices.Compact(wrong)
}

func isInternal(folder string) bool { return slices.Contains(strings.Split(folder, "/"), "internal") }

// isForUsers reports whether others can import the package, or install the program.
func isForUsers(folder string) bool {
	return !isInternal(folder) && !isBelow(folder, []string{"bench", "docs", "examples", "tools"})
}

// readImports returns, by directory, the directories that the code of a package, without its
// tests, imports.
func readImports(t *testing.T, root fs.FS) map[string][]string {
	imports := make(map[string][]string)
	err := fs.WalkDir(root, ".", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && name != "." && (strings.HasPrefix(entry.Name(), ".") || entry.Name() == "testdata"):
			return fs.SkipDir
		case entry.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go"):
			return nil
		}
		source, err := fs.ReadFile(root, name)
		if err != nil {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, source, parser.ImportsOnly)
		if err != nil {
			return err
		}
		folder := path.Dir(name)
		for _, spec := range file.Imports {
			imported, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				return err
			}
			if imported == module {
				imports[folder] = append(imports[folder], ".")
			} else if inside, ok := strings.CutPrefix(imported, module+"/"); ok {
				imports[folder] = append(imports[folder], inside)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return imports
}

// usersOfKits returns the packages for users from which a kit can be reached.
func usersOfKits(imports map[string][]string) (wrong []string) {
	var reaches func(folder string, seen map[string]bool) bool
	reaches = func(folder string, seen map[string]bool) bool {
		if seen[folder] {
			return false
		}
		seen[folder] = true
		return isBelow(folder, kits) || slices.ContainsFunc(imports[folder], func(next string) bool { return reaches(next, seen) })
	}
	for folder := range imports {
		if isForUsers(folder) && reaches(folder, make(map[string]bool)) {
			wrong = append(wrong, folder)
		}
	}
	slices.Sort(wrong)
	return wrong
}

// isBelow reports whether a directory is one of those or in one of them.
func isBelow(folder string, folders []string) bool {
	return slices.ContainsFunc(folders, func(f string) bool { return folder == f || strings.HasPrefix(folder, f+"/") })
}
