package promise

import (
	"fmt"
	"io/fs"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// Table checks the table itself, in the repository at root: that every cell is run
// somewhere or has a reason, that the modules it names run their cells, that
// docs/guarantees.md and the table make the same promises, and that each further promise in the
// README.md of sluicegrpc and sluiceredis names existing tests.
func Table(t *testing.T, root string) {
	t.Helper()
	for _, text := range tableMistakes(os.DirFS(root), Promises, Features) {
		t.Error(text)
	}
}

func tableMistakes(repository fs.FS, promises []Promise, features []Feature) (wrong []string) {
	errorf := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
	known := map[string]bool{}
	for _, p := range promises {
		if known[p.Name] || p.check == nil {
			errorf("the promise %s is duplicate or has no check", p.Name)
		}
		known[p.Name] = true
	}
	seen, modules := map[string]bool{}, map[string]bool{}
	for _, f := range features {
		if seen[f.Name] {
			errorf("the feature %s is duplicate", f.Name)
		}
		seen[f.Name] = true
		for _, p := range promises {
			if len(f.Runs) == 0 && f.Never[p.Name] == "" {
				errorf("the cell %s/%s is neither run in a module nor has a reason", p.Name, f.Name)
			}
		}
		for name, reason := range f.Never {
			if !known[name] || reason == "" {
				errorf("the cell %s/%s is excused without a reason, or does not exist", name, f.Name)
			}
		}
		for _, module := range f.Runs {
			modules[module] = true
		}
	}
	for name := range pending {
		f := slices.IndexFunc(features, func(f Feature) bool { return f.Name == name.feature })
		if !known[name.promise] || f < 0 || !slices.Contains(features[f].Runs, name.module) {
			errorf("the pending cell %s/%s of %s does not exist", name.promise, name.feature, name.module)
		}
	}
	for module := range modules {
		if !runs(repository, module) {
			errorf("no test in %s calls promise.Run for %q", module, module)
		}
	}
	wrong = append(wrong, readmeMistakes(repository, promises)...)
	wrong = append(wrong, moduleMistakes(repository, "sluicegrpc")...)
	return append(wrong, moduleMistakes(repository, "sluiceredis")...)
}

// runs reports whether a test in a directory runs its cells.
func runs(repository fs.FS, module string) bool {
	tests, _ := fs.Glob(repository, path.Join(module, "*_test.go"))
	return slices.ContainsFunc(tests, func(name string) bool {
		text, _ := fs.ReadFile(repository, name)
		return strings.Contains(string(text), "func TestPromise(") &&
			strings.Contains(string(text), fmt.Sprintf("promise.Run(t, %q,", module))
	})
}

// testName finds the tests that a paragraph names.
var testName = regexp.MustCompile(`\x60(Test\w+)\x60`)

// moduleMistakes checks the list under "What is promised" in the README.md of a module:
// each paragraph names tests below that directory. A module without the list promises nothing.
func moduleMistakes(repository fs.FS, module string) (wrong []string) {
	text, _ := fs.ReadFile(repository, path.Join(module, "README.md"))
	_, section, _ := strings.Cut(string(text), "\n## What is promised\n")
	section, _, _ = strings.Cut(section, "\n## ")
	var tests strings.Builder
	_ = fs.WalkDir(repository, module, func(name string, _ fs.DirEntry, _ error) error {
		if strings.HasSuffix(name, "_test.go") {
			code, _ := fs.ReadFile(repository, name)
			tests.Write(code)
		}
		return nil // of what cannot be read, the tests are missing
	})
	for _, b := range strings.Split(section, "\n- ")[1:] {
		named := testName.FindAllStringSubmatch(b, -1)
		if len(named) == 0 {
			wrong = append(wrong, fmt.Sprintf("%s/README.md promises something and names no test: %s", module, b))
		}
		for _, match := range named {
			if !strings.Contains(tests.String(), "\nfunc "+match[1]+"(") {
				wrong = append(wrong, fmt.Sprintf("%s/README.md names %s, which is no test there", module, match[1]))
			}
		}
	}
	return wrong
}

// readmeMistakes compares the list under "What is guaranteed" with the promises.
func readmeMistakes(repository fs.FS, promises []Promise) (wrong []string) {
	text, err := fs.ReadFile(repository, "docs/guarantees.md")
	if err != nil {
		return []string{err.Error()}
	}
	_, section, _ := strings.Cut(string(text), "\n## What is guaranteed\n")
	section, _, _ = strings.Cut(section, "\n## ")
	bullets := strings.Split(section, "\n- ")[1:]
	for _, p := range promises {
		i := slices.IndexFunc(bullets, func(b string) bool { return strings.HasPrefix(b, "**"+p.Says+"** ") })
		if i < 0 {
			wrong = append(wrong, fmt.Sprintf("docs/guarantees.md does not promise %q, which %s checks", p.Says, p.Name))
			continue
		}
		if !strings.Contains(bullets[i], "(`TestPromise/"+p.Name+"`)") {
			wrong = append(wrong, fmt.Sprintf("docs/guarantees.md does not say that %q is checked by `TestPromise/%s`", p.Says, p.Name))
		}
		bullets = slices.Delete(bullets, i, i+1)
	}
	for _, b := range bullets {
		wrong = append(wrong, fmt.Sprintf("docs/guarantees.md promises something that no test checks: %s", b))
	}
	return wrong
}
