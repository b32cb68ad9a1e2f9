package main

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/mod/semver"
)

// unstable matches changes of packages that promise nothing, as docs/compatibility.md says.
var unstable = regexp.MustCompile(`^- (package \S*/ext/|\./ext/)`)

// compareAPI prints how the exported names differ from those of the last release where that breaks code. It returns an
// error if a change has no place in the changelog, whose first section is of the next release. From v1 on, and in the
// next patch version, there is none that has. The next version may be "", if it is not known yet.
func compareAPI(git command, changelog, next string, out io.Writer) (err error) {
	last, err := lastVersion(git)
	if err != nil {
		return err
	}
	if last == "" {
		fmt.Fprintln(out, "No release is tagged: there is nothing to compare with.")
		return nil
	}
	tmp, remove, err := temporary()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, remove()) }()
	apidiff := filepath.Join(tmp, "apidiff.exe")
	if _, err := (command{env: []string{"GOWORK=off"}}).run("go", "build", "-o", apidiff, "golang.org/x/exp/cmd/apidiff"); err != nil {
		return err
	}
	// The commit before the tag has the same code, and needs no module proxy.
	old, removeOld, err := worktree(git, filepath.Join(tmp, "old"), last+"~")
	if err != nil {
		return err
	}
	defer removeOld()
	mods, err := readModules(git)
	if err != nil {
		return err
	}
	before, err := readModules(old)
	if err != nil {
		return err
	}

	section := firstSection(changelog)
	forbidden := semver.Major(last) != "v0" || semver.MajorMinor(next) == semver.MajorMinor(last)
	var unlisted []string
	for _, m := range mods {
		if !m.released() || !slices.ContainsFunc(before, func(b *mod) bool { return b.path() == m.path() }) {
			continue
		}
		for dir, name := range map[string]string{old.dir: "before", git.dir: "after"} {
			c := command{filepath.Join(dir, m.dir), []string{"GOWORK=off"}}
			if _, err := c.run(apidiff, "-m", "-w", filepath.Join(tmp, name), m.path()); err != nil {
				return err
			}
		}
		changes, err := command{dir: tmp}.run(apidiff, "-m", "-incompatible", "before", "after")
		if err != nil {
			return err
		}
		for line := range strings.Lines(changes) {
			line = strings.TrimSpace(line)
			if !strings.HasPrefix(line, "- ") || unstable.MatchString(line) {
				continue
			}
			fmt.Fprintf(out, "%s %s\n", m.path(), line)
			if forbidden || !regexp.MustCompile(`\b`+changedName(line)+`\b`).MatchString(section) {
				unlisted = append(unlisted, line)
			}
		}
	}
	if len(unlisted) > 0 {
		return fmt.Errorf("since %s these names have changed, and CHANGELOG.md does not say so, or may not:\n%s", last, strings.Join(unlisted, "\n"))
	}
	fmt.Fprintln(out, "Compared with", last)
	return nil
}

// firstSection returns the first section of a changelog.
func firstSection(changelog string) string {
	_, section, _ := strings.Cut(changelog, "\n## ")
	section, _, _ = strings.Cut(section, "\n## ")
	return section
}

// changedName returns the name that a line of apidiff is about: of a method or a field only its own, and of a package
// the last part of its path.
func changedName(line string) string {
	what, _, _ := strings.Cut(line, ": ")
	names := regexp.MustCompile(`\w+`).FindAllString(what, -1)
	if len(names) == 0 {
		return ""
	}
	return names[len(names)-1]
}
