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

// readImports returns, by folder, the folders that the code of a package, without its
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
		forUsers := !slices.Contains(strings.Split(folder, "/"), "internal") && !isBelow(folder, []string{"bench", "examples", "tools"})
		if forUsers && reaches(folder, make(map[string]bool)) {
			wrong = append(wrong, folder)
		}
	}
	slices.Sort(wrong)
	return wrong
}

// isBelow reports whether a folder is one of those or in one of them.
func isBelow(folder string, folders []string) bool {
	return slices.ContainsFunc(folders, func(f string) bool { return folder == f || strings.HasPrefix(folder, f+"/") })
}
