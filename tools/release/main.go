// Release prepares and tags a release of all modules of the repository that other people import or install.
//
// All of them get the same version. In a commit of the release each go.mod names that version of the others in
// place of a replacement by a folder, and each go.sum has their checksums. The next commit brings the replacements
// back, so that a clone builds without a module proxy. The tags are on the first of the two:
//
//	GOWORK=off go -C tools run ./release -version v0.1.0           # shows what would be done
//	GOWORK=off go -C tools run ./release -version v0.1.0 -tag      # makes both commits and the tags
//	git push --atomic origin main v0.1.0 batch/v0.1.0 …            # which the command prints, but does not run
//
// Without -tag the repository stays as it is. Each module is built from the others as they will be downloaded,
// and -proxy keeps them in a folder, from which the go command installs the release before it is published:
//
//	GOPROXY=file:///tmp/sluice,https://proxy.golang.org GONOSUMDB=github.com/sluice-go/sluice go get …
//
// With -api it compares the exported names with those of the last release instead, and fails if one has changed in
// a way that breaks code and is not named in the first section of CHANGELOG.md. From v1 on, and in a patch version, none
// may. A release does the same.
package main

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/mod/semver"
)

func main() {
	var o options
	flag.StringVar(&o.version, "version", "", "the version of the release, such as v0.1.0")
	flag.StringVar(&o.proxy, "proxy", "", "a `folder` for the modules as a module proxy serves them")
	flag.BoolVar(&o.tag, "tag", false, "make the commits and the tags")
	flag.BoolVar(&o.api, "api", false, "compare the exported names with those of the last release")
	flag.Parse()
	if err := run(".", o, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

type options struct {
	version string
	proxy   string
	tag     bool
	api     bool
}

// run makes a release of the repository that dir is in.
func run(dir string, o options, out io.Writer) (err error) {
	top, err := command{dir: dir}.run("git", "rev-parse", "--show-toplevel")
	if err != nil {
		return err
	}
	git := command{dir: filepath.FromSlash(top)}
	changelog, err := os.ReadFile(filepath.Join(git.dir, "CHANGELOG.md"))
	if err != nil {
		return err
	}
	if o.api {
		return compareAPI(git, string(changelog), o.version, out)
	}
	if err := checkVersion(git, o.version); err != nil {
		return err
	}
	missing, err := notReady(git, o.version)
	if err != nil {
		return err
	}
	if o.tag && len(missing) > 0 {
		return errors.New(strings.Join(missing, "\nrelease: "))
	}

	tmp, remove, err := temporary()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, remove()) }()
	if o.proxy == "" {
		o.proxy = filepath.Join(tmp, "proxy")
	}
	if o.proxy, err = filepath.Abs(o.proxy); err != nil {
		return err
	}
	tree, removeTree, err := worktree(git, filepath.Join(tmp, "tree"), "HEAD")
	if err != nil {
		return err
	}
	defer removeTree()

	r := &release{version: o.version, tree: tree, proxy: o.proxy}
	if err := r.prepare(); err != nil {
		return err
	}
	r.describe(out)
	if err := r.build(filepath.Join(tmp, "modules"), out); err != nil {
		return err
	}
	if err := compareAPI(git, string(changelog), o.version, out); err != nil {
		if o.tag {
			return err
		}
		missing = append(missing, err.Error())
	}
	for _, m := range missing {
		fmt.Fprintln(out, "To do before -tag:", m)
	}
	if !o.tag {
		return nil
	}
	released, after, err := r.commit()
	if err != nil {
		return err
	}
	if _, err := git.run("git", "merge", "--ff-only", "--quiet", after); err != nil {
		return err
	}
	for _, tag := range r.tags() {
		if _, err := git.run("git", "tag", "--annotate", "--message", tag, tag, released); err != nil {
			return err
		}
	}
	branch, err := git.run("git", "branch", "--show-current")
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "\nTagged. To publish it:\n\n\tgit push --atomic origin %s\n", strings.Join(append([]string{cmp.Or(branch, "HEAD")}, r.tags()...), " "))
	return nil
}

// checkVersion returns an error for a version that cannot be that of the next release.
func checkVersion(git command, version string) error {
	if semver.Canonical(version) != version || version == "" || semver.Build(version) != "" {
		return fmt.Errorf("-version %q is not a version such as v0.1.0", version)
	}
	if m := semver.Major(version); m != "v0" && m != "v1" {
		return fmt.Errorf("%s: from v2 on the paths of all modules must end in %s", version, m)
	}
	last, err := lastVersion(git)
	if err != nil {
		return err
	}
	if last != "" && semver.Compare(version, last) <= 0 {
		return fmt.Errorf("%s is not newer than %s", version, last)
	}
	return nil
}

// lastVersion returns the newest version of the core module that is tagged, or "".
func lastVersion(git command) (string, error) {
	tags, err := git.run("git", "tag", "--list", "v*")
	if err != nil {
		return "", err
	}
	versions := slices.DeleteFunc(strings.Fields(tags), func(v string) bool { return semver.Canonical(v) != v })
	if len(versions) == 0 {
		return "", nil
	}
	return slices.MaxFunc(versions, semver.Compare), nil
}

// unreleased is what documents say of a project without a release.
var unreleased = regexp.MustCompile(`(?i)nothing is released|status: unreleased`)

// notReady returns what a person must do before the release.
func notReady(git command, version string) (missing []string, err error) {
	changes, err := git.run("git", "status", "--porcelain")
	if err != nil {
		return nil, err
	}
	if changes != "" {
		missing = append(missing, "commit these changes:\n"+changes)
	}
	for _, name := range []string{"CHANGELOG.md", "README.md", "SECURITY.md"} {
		text, err := os.ReadFile(filepath.Join(git.dir, name))
		if err != nil {
			return nil, err
		}
		if name == "CHANGELOG.md" && !regexp.MustCompile(`(?m)^## `+regexp.QuoteMeta(version)+`(\s|$)`).Match(text) {
			missing = append(missing, "give CHANGELOG.md a heading for "+version)
		}
		for _, phrase := range unreleased.FindAllString(string(text), -1) {
			missing = append(missing, fmt.Sprintf("%s still says %q", name, phrase))
		}
	}
	return missing, nil
}
