package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/module"
	"golang.org/x/mod/semver"
	"golang.org/x/mod/sumdb/dirhash"
	"golang.org/x/mod/zip"
)

// Nobody imports or installs what is in these folders: their modules keep the replacements.
var private = []string{"bench", "docs", "examples", "internal", "sluicehttp/sdktest", "tools"}

// A mod is a module of the repository.
type mod struct {
	dir  string        // from the top, with slashes; "." is the core
	file *modfile.File // its go.mod
	sum  string        // the checksums of what is released, as lines of a go.sum
}

func (m *mod) path() string { return m.file.Module.Mod.Path }

// released reports whether the module gets a tag.
func (m *mod) released() bool {
	return !slices.ContainsFunc(private, func(p string) bool { return m.dir == p || strings.HasPrefix(m.dir, p+"/") })
}

// tag is the name of the tag for a version.
func (m *mod) tag(version string) string {
	return path.Join(m.dir, version) // also for the core: Join drops "."
}

// A release is prepared in a work tree of its own.
type release struct {
	version string
	tree    command // in the work tree
	proxy   string  // the folder of the module proxy

	all   []*mod
	order []*mod // what is released, each after those that it requires
}

// readModules reads the go.mod of each module in git.
func readModules(git command) ([]*mod, error) {
	files, err := git.run("git", "ls-files", "--", "go.mod", "*/go.mod")
	if err != nil {
		return nil, err
	}
	var mods []*mod
	for _, name := range strings.Fields(files) {
		data, err := os.ReadFile(filepath.Join(git.dir, name))
		if err != nil {
			return nil, err
		}
		file, err := modfile.Parse(name, data, nil)
		if err != nil {
			return nil, err
		}
		mods = append(mods, &mod{dir: path.Dir(name), file: file})
	}
	return mods, nil
}

// releaseOrder returns the released modules, each after those that it requires.
func releaseOrder(all []*mod) ([]*mod, error) {
	byPath := make(map[string]*mod)
	for _, m := range all {
		byPath[m.path()] = m
	}
	var order []*mod
	state := make(map[*mod]int) // 1: those that it requires are visited, 2: done
	var visit func(m *mod) error
	visit = func(m *mod) error {
		switch state[m] {
		case 1:
			return fmt.Errorf("%s requires itself through others", m.path())
		case 2:
			return nil
		}
		state[m] = 1
		for _, r := range m.file.Require {
			d := byPath[r.Mod.Path]
			if d == nil {
				continue
			}
			if !d.released() {
				return fmt.Errorf("%s is released and requires %s, which is not", m.path(), d.path())
			}
			if err := visit(d); err != nil {
				return err
			}
		}
		state[m] = 2
		order = append(order, m)
		return nil
	}
	for _, m := range all {
		if m.released() {
			if err := visit(m); err != nil {
				return nil, err
			}
		}
	}
	if len(order) == 0 {
		return nil, errors.New("no module is released")
	}
	return order, nil
}

// prepare writes the go.mod and go.sum of each module into the work tree, and the released modules into the proxy.
func (r *release) prepare() (err error) {
	if r.all, err = readModules(r.tree); err != nil {
		return err
	}
	if r.order, err = releaseOrder(r.all); err != nil {
		return err
	}
	for _, m := range r.all {
		if err := r.require(m, m.released()); err != nil {
			return err
		}
	}
	for _, m := range r.order {
		if err := r.addSums(m); err != nil {
			return err
		}
		if err := r.publish(m); err != nil {
			return fmt.Errorf("%s: %w", m.path(), err)
		}
	}
	return nil
}

// require makes the go.mod of a module name the version of the others, and drops the replacements by their folders if
// the module itself is released.
func (r *release) require(m *mod, released bool) error {
	for _, d := range r.order {
		if !slices.ContainsFunc(m.file.Require, func(q *modfile.Require) bool { return q.Mod.Path == d.path() }) {
			continue
		}
		if err := m.file.AddRequire(d.path(), r.version); err != nil {
			return err
		}
		if released {
			if err := m.file.DropReplace(d.path(), ""); err != nil {
				return err
			}
		}
	}
	m.file.Cleanup()
	if released && len(m.file.Replace)+len(m.file.Exclude) > 0 {
		return fmt.Errorf("%s replaces or excludes a module that is not of the release: go install would reject it", m.file.Syntax.Name)
	}
	data, err := m.file.Format()
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(r.tree.dir, m.file.Syntax.Name), data, 0o666)
}

// addSums adds the checksums of the other modules to the go.sum of one.
func (r *release) addSums(m *mod) error {
	name := filepath.Join(r.tree.dir, m.dir, "go.sum")
	data, err := os.ReadFile(name)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	text := string(data)
	for _, d := range r.order {
		if slices.ContainsFunc(m.file.Require, func(q *modfile.Require) bool { return q.Mod.Path == d.path() }) {
			text += d.sum
		}
	}
	return os.WriteFile(name, []byte(sortSums(text)), 0o666)
}

// sortSums returns the lines of a go.sum in the order in which the go command writes them.
func sortSums(text string) string {
	lines := make(map[module.Version]string)
	var keys []module.Version
	for line := range strings.Lines(text) {
		path, rest, _ := strings.Cut(line, " ")
		version, _, _ := strings.Cut(rest, " ")
		key := module.Version{Path: path, Version: version}
		lines[key] = line
		keys = append(keys, key)
	}
	module.Sort(keys)
	var sorted strings.Builder
	for _, key := range keys {
		sorted.WriteString(lines[key])
	}
	return sorted.String()
}

// publish writes a module into the proxy, as the go command will make it of its tag.
func (r *release) publish(m *mod) error {
	if _, err := r.tree.run("git", "add", "--all"); err != nil {
		return err
	}
	tree, err := r.tree.run("git", "write-tree")
	if err != nil {
		return err
	}
	// CreateFromVCS wants the folder of .git, which a work tree of its own does not have.
	common, err := r.tree.run("git", "rev-parse", "--path-format=absolute", "--git-common-dir")
	if err != nil {
		return err
	}
	repository := filepath.Dir(filepath.FromSlash(common))
	escaped, err := module.EscapePath(m.path())
	if err != nil {
		return err
	}
	dir := filepath.Join(r.proxy, filepath.FromSlash(escaped), "@v")
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return err
	}
	name := filepath.Join(dir, r.version)
	file, err := os.Create(name + ".zip")
	if err != nil {
		return err
	}
	subdir := strings.TrimPrefix(m.dir, ".")
	err = zip.CreateFromVCS(file, module.Version{Path: m.path(), Version: r.version}, repository, tree, subdir)
	if err := errors.Join(err, file.Close()); err != nil {
		return err
	}
	goMod, err := m.file.Format()
	if err != nil {
		return err
	}
	info, err := r.tree.run("git", "show", "--no-patch", "--format=%cI", "HEAD")
	if err != nil {
		return err
	}
	data, err := json.Marshal(map[string]string{"Version": r.version, "Time": info})
	if err != nil {
		return err
	}
	if err := os.WriteFile(name+".mod", goMod, 0o666); err != nil {
		return err
	}
	if err := os.WriteFile(name+".info", data, 0o666); err != nil {
		return err
	}
	if err := addVersion(filepath.Join(dir, "list"), r.version); err != nil {
		return err
	}

	all, err := dirhash.HashZip(name+".zip", dirhash.Hash1)
	if err != nil {
		return err
	}
	ofMod, err := dirhash.Hash1([]string{"go.mod"}, func(string) (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(goMod)), nil
	})
	m.sum = fmt.Sprintf("%s %s %s\n%[1]s %[2]s/go.mod %[4]s\n", m.path(), r.version, all, ofMod)
	return err
}

// addVersion adds a version to the list of those that a proxy has.
func addVersion(list, version string) error {
	data, err := os.ReadFile(list)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	versions := append(strings.Fields(string(data)), version)
	semver.Sort(versions)
	return os.WriteFile(list, []byte(strings.Join(slices.Compact(versions), "\n")+"\n"), 0o666)
}

// build builds each module in the work tree, of the others as the proxy has them, in a module cache of its own.
func (r *release) build(cache string, out io.Writer) error {
	env, err := goEnv(r.tree, r.proxy, cache)
	if err != nil {
		return err
	}
	for _, m := range r.order {
		alone := command{filepath.Join(r.tree.dir, m.dir), env}
		if _, err := alone.run("go", "build", "./..."); err != nil {
			return err
		}
		fmt.Fprintln(out, "built:", m.path())
	}
	return nil
}

// goEnv is an environment in which the go command finds the release in a proxy, and the modules of others where it
// would find them anyway, without a second download. It has a module cache of its own, so that nothing that was not
// published gets into the usual one.
func goEnv(c command, proxy, cache string) ([]string, error) {
	vars, err := c.run("go", "env", "-json", "GOMODCACHE", "GOPROXY")
	if err != nil {
		return nil, err
	}
	var usual struct{ GOMODCACHE, GOPROXY string }
	if err := json.Unmarshal([]byte(vars), &usual); err != nil {
		return nil, err
	}
	return []string{
		"GOWORK=off",
		"GOMODCACHE=" + cache,
		"GOPROXY=" + fileURL(proxy) + "," + fileURL(filepath.Join(usual.GOMODCACHE, "cache", "download")) + "," + usual.GOPROXY,
		"GOSUMDB=off", // the go.sum of each module has what matters
		"GOFLAGS=-modcacherw -buildvcs=false -trimpath", // with paths, nothing that was built before would be used
	}, nil
}

func fileURL(dir string) string {
	dir = filepath.ToSlash(dir)
	if !strings.HasPrefix(dir, "/") {
		dir = "/" + dir // a volume of Windows
	}
	return "file://" + dir
}

// commit commits the release, and then what was there before with the new versions. It returns both commits.
func (r *release) commit() (released, after string, err error) {
	commit := func(message string) (string, error) {
		if _, err := r.tree.run("git", "add", "--all"); err != nil {
			return "", err
		}
		if _, err := r.tree.run("git", "commit", "--message", message); err != nil {
			return "", err
		}
		return r.tree.run("git", "rev-parse", "HEAD")
	}
	if released, err = commit("release " + r.version + "\n\nEach go.mod names the other modules by their version."); err != nil {
		return "", "", err
	}
	if _, err := r.tree.run("git", "read-tree", "--reset", "-u", "HEAD~"); err != nil {
		return "", "", err
	}
	mods, err := readModules(r.tree)
	if err != nil {
		return "", "", err
	}
	for _, m := range mods {
		if err := r.require(m, false); err != nil {
			return "", "", err
		}
	}
	after, err = commit("after " + r.version + ": modules replace each other again\n\nA clone then builds without a module proxy.")
	return released, after, err
}

// tags are the names of all tags, in the order of the release.
func (r *release) tags() []string {
	var tags []string
	for _, m := range r.order {
		tags = append(tags, m.tag(r.version))
	}
	return tags
}

// describe prints what is released, in order, and what is not.
func (r *release) describe(out io.Writer) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "tag\tmodule\trequires, of the release")
	for _, m := range r.order {
		var requires []string
		for _, q := range m.file.Require {
			if slices.ContainsFunc(r.order, func(d *mod) bool { return d.path() == q.Mod.Path }) {
				requires = append(requires, strings.TrimPrefix(q.Mod.Path, r.order[0].path()+"/"))
			}
		}
		fmt.Fprintf(w, "%s\t%s\t%s\n", m.tag(r.version), m.path(), strings.Join(requires, ", "))
	}
	w.Flush()
	fmt.Fprint(out, "not released:")
	for _, m := range r.all {
		if !m.released() {
			fmt.Fprint(out, " ", m.dir)
		}
	}
	fmt.Fprintln(out)
}
