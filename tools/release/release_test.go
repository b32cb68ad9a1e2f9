package main

import (
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// must runs a program, and fails the test if it fails.
func must(t *testing.T, c command, name string, args ...string) string {
	t.Helper()
	out, err := c.run(name, args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func write(t *testing.T, name, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(text), 0o666); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, name string) string {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// newRepository makes a repository of files.
func newRepository(t *testing.T, files map[string]string) command {
	t.Helper()
	for _, who := range []string{"AUTHOR", "COMMITTER"} {
		t.Setenv("GIT_"+who+"_NAME", "Sluice")
		t.Setenv("GIT_"+who+"_EMAIL", "sluice@example.com")
	}
	git := command{dir: t.TempDir()}
	for name, text := range files {
		write(t, filepath.Join(git.dir, name), text)
	}
	must(t, git, "git", "init", "--quiet", "--initial-branch", "main")
	must(t, git, "git", "add", "--all")
	must(t, git, "git", "commit", "--quiet", "--message", "all: begin")
	return git
}

// copyOfThis makes a repository of what is in this one, with what is not committed yet, in which the documents are
// those of a released version.
func copyOfThis(t *testing.T, version string) command {
	t.Helper()
	top := must(t, command{}, "git", "rev-parse", "--show-toplevel")
	files := make(map[string]string)
	list := must(t, command{dir: top}, "git", "ls-files", "--cached", "--others", "--exclude-standard", "--deduplicate", "-z")
	for name := range strings.SplitSeq(strings.Trim(list, "\x00"), "\x00") {
		if _, err := os.Lstat(filepath.Join(top, name)); err == nil {
			files[name] = read(t, filepath.Join(top, name))
		}
	}
	for _, name := range []string{"README.md", "SECURITY.md"} {
		files[name] = unreleased.ReplaceAllString(files[name], "Released")
	}
	files["CHANGELOG.md"] = strings.Replace(files["CHANGELOG.md"], "\n## ", "\n## "+version+"\n\n## ", 1)
	return newRepository(t, files)
}

// withoutVersions returns the tree of a repository with one version of its own modules in each go.mod.
func withoutVersions(t *testing.T, git command, core string) string {
	t.Helper()
	required := regexp.MustCompile(`(` + regexp.QuoteMeta(core) + `\S*) v\S+`)
	for name := range strings.FieldsSeq(must(t, git, "git", "ls-files", "go.mod", "*/go.mod")) {
		name = filepath.Join(git.dir, name)
		write(t, name, required.ReplaceAllString(read(t, name), "$1 v0.0.0"))
	}
	must(t, git, "git", "add", "--all")
	tree := must(t, git, "git", "write-tree")
	must(t, git, "git", "reset", "--hard", "--quiet")
	return tree
}

// A scratch module is what a new user has: nothing, and the release in a module proxy.
type scratch struct{ command }

func newScratch(t *testing.T, env []string) scratch {
	c := command{t.TempDir(), env}
	must(t, c, "go", "mod", "init", "example.com/scratch")
	return scratch{c}
}

// chosen is the version of a module that the go command has chosen.
func (s scratch) chosen(t *testing.T, module string) string {
	t.Helper()
	return must(t, s.command, "go", "list", "-m", "-f", "{{.Version}}", module)
}

// firstProgram is the first code of the README, as a program that gets a page of a server.
func firstProgram(t *testing.T, readme string) string {
	t.Helper()
	code := regexp.MustCompile("(?s)<!-- client -->\n```go\n(.*?)```").FindStringSubmatch(readme)
	if code == nil {
		t.Fatal("README.md has no program")
	}
	return `package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
)

` + code[1] + `
func main() {
	server := httptest.NewServer(http.NotFoundHandler())
	client, err := newClient()
	if err != nil {
		panic(err)
	}
	response, err := client.Get(server.URL)
	if err != nil {
		panic(err)
	}
	fmt.Println(response.Status)
}
`
}

// TestRelease releases what is in this repository, in a copy of it, and installs that as a user would.
func TestRelease(t *testing.T) {
	if testing.Short() {
		t.Skip("it builds all modules anew")
	}
	const core, version = "github.com/sluice-go/sluice", "v0.1.0"
	git := copyOfThis(t, version)
	before := withoutVersions(t, git, core)
	proxy := t.TempDir()
	if err := run(git.dir, options{version: version, proxy: proxy, tag: true}, io.Discard); err != nil {
		t.Fatal(err)
	}

	t.Run("history", func(t *testing.T) {
		mods, err := readModules(git)
		if err != nil {
			t.Fatal(err)
		}
		order, err := releaseOrder(mods)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range order {
			if got := must(t, git, "git", "rev-parse", m.tag(version)+"^{commit}"); got != must(t, git, "git", "rev-parse", "HEAD~") {
				t.Errorf("%s is at %s, want the commit before the last", m.tag(version), got)
			}
		}
		if n := len(strings.Fields(must(t, git, "git", "tag"))); n != len(order) {
			t.Errorf("%d tags for %d modules", n, len(order))
		}
		if after := withoutVersions(t, git, core); after != before {
			t.Errorf("the branch has changed:\n%s", must(t, git, "git", "diff", before, after))
		}
	})

	env, err := goEnv(git, proxy, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}

	t.Run("first program", func(t *testing.T) {
		s := newScratch(t, env)
		write(t, filepath.Join(s.dir, "main.go"), firstProgram(t, read(t, filepath.Join(git.dir, "README.md"))))
		must(t, s.command, "go", "get", core+"/sluicehttp")
		if got := must(t, s.command, "go", "run", "."); got != "404 Not Found" {
			t.Errorf("the program printed %q", got)
		}
		if got := s.chosen(t, core); got != version {
			t.Errorf("go get chose %s", got)
		}
	})

	t.Run("go install", func(t *testing.T) {
		bin := t.TempDir()
		c := command{t.TempDir(), append(slices.Clone(env), "GOBIN="+bin)}
		must(t, c, "go", "install", core+"/cmd/sluice@latest")
		program := filepath.Join(bin, "sluice")
		if got := must(t, c, program, "version"); !strings.HasPrefix(got, "sluice "+version+"\n") {
			t.Errorf("sluice version printed %q", got)
		}
		if got := must(t, c, program, "batch", "-quiet", "echo", "{}", ":::", "a"); got != "a" {
			t.Errorf("sluice batch printed %q", got)
		}
	})

	// A newer core is there, too: a module must work with the one that it names, and gets no other.
	t.Run("nested", func(t *testing.T) {
		next := &release{version: "v0.2.0", tree: git, proxy: proxy}
		if err := next.prepare(); err != nil {
			t.Fatal(err)
		}
		for _, m := range next.order {
			if m.dir == "." || m.dir == "cmd" {
				continue
			}
			s := newScratch(t, env)
			must(t, s.command, "go", "get", m.path()+"@"+version)
			if got := s.chosen(t, core); got != version {
				t.Errorf("%s %s comes with %s of the core", m.dir, version, got)
			}
			must(t, s.command, "go", "build", m.path())
			if m.dir == "batch" {
				write(t, filepath.Join(s.dir, "main.go"), program)
				if got := must(t, s.command, "go", "run", "."); got != "a\nb" {
					t.Errorf("batch printed %q", got)
				}
			}
		}
		must(t, git, "git", "reset", "--hard", "--quiet")
	})

	// What the go command makes of the tags is what the proxy had, to the byte.
	t.Run("tags", func(t *testing.T) {
		direct := command{t.TempDir(), append(slices.Clone(env), "GOPROXY=direct", "GOMODCACHE="+t.TempDir(),
			"GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=url."+fileURL(git.dir)+".insteadOf", "GIT_CONFIG_VALUE_0=https://"+core)}
		for _, path := range []string{core, core + "/batch", core + "/cmd", core + "/sluiceredis/rueidisclient"} {
			type sums struct{ Sum, GoModSum string }
			var tagged, proxied sums
			for c, s := range map[*command]*sums{&direct: &tagged, {dir: direct.dir, env: env}: &proxied} {
				if err := json.Unmarshal([]byte(must(t, *c, "go", "mod", "download", "-json", path+"@"+version)), s); err != nil {
					t.Fatal(err)
				}
			}
			if tagged != proxied || tagged.Sum == "" {
				t.Errorf("%s: %v by its tag, %v by the proxy", path, tagged, proxied)
			}
		}
	})
}

// TestReleased: the checks of this repository, the page about versions and this command name the same modules.
func TestReleased(t *testing.T) {
	git := command{dir: must(t, command{}, "git", "rev-parse", "--show-toplevel")}
	mods, err := readModules(git)
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	for _, m := range mods {
		if m.released() {
			want = append(want, m.dir)
		}
	}
	slices.Sort(want) // "." first
	for _, p := range private {
		if _, err := os.Stat(filepath.Join(git.dir, p)); err != nil {
			t.Errorf("%s is not released, and is not there", p)
		}
	}
	list := regexp.MustCompile(`(?m)^readonly released=\((.*)\)$`).FindStringSubmatch(read(t, filepath.Join(git.dir, ".ci/lib.sh")))
	if list == nil {
		t.Fatal(".ci/lib.sh has no list")
	}
	if got := strings.Fields(list[1]); !slices.Equal(got, want) {
		t.Errorf(".ci/lib.sh has %v, want %v", got, want)
	}
	page := read(t, filepath.Join(git.dir, "docs/compatibility.md"))
	for _, dir := range want[1:] {
		if !strings.Contains(page, "`"+dir+"`") {
			t.Errorf("docs/compatibility.md does not name %s", dir)
		}
	}
}

const program = `package main

import (
	"context"
	"fmt"
	"slices"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/batch"
)

func main() {
	gate := sluice.Must(sluice.New(sluice.Config{Concurrency: 1}))
	err := batch.ForEach(context.Background(), gate, slices.Values([]string{"a", "b"}), func(_ context.Context, item string) error {
		fmt.Println(item)
		return nil
	})
	if err != nil {
		panic(err)
	}
}
`

const goModOfCore = "module example.com/core\n\ngo 1.26.0\n"

// goodFiles are those of a repository that can be released.
func goodFiles() map[string]string {
	return map[string]string{
		"README.md":    "It works.\n",
		"SECURITY.md":  "It is safe.\n",
		"CHANGELOG.md": "# Changelog\n\n## v0.3.0\n",
		"go.mod":       goModOfCore,
		"core.go":      "package core\n\nfunc Kept() {}\n",
		"a/go.mod":     "module example.com/core/a\n\ngo 1.26.0\n\nrequire example.com/core v0.0.0\n\nreplace example.com/core => ../\n",
		"a/a.go":       "package a\n\nimport _ \"example.com/core\"\n",
		"docs/go.mod":  "module example.com/core/docs\n\ngo 1.26.0\n\nrequire example.com/core v0.0.0\n\nreplace example.com/core => ../\n",
	}
}

// TestRun_Rejects: a release that would be wrong is not made.
func TestRun_Rejects(t *testing.T) {
	for name, test := range map[string]struct {
		version string
		change  map[string]string
		want    string
	}{
		"good":              {},
		"second":            {change: map[string]string{"docs/go.mod": strings.ReplaceAll(goodFiles()["docs/go.mod"], "v0.0.0", "v0.2.0")}},
		"no version":        {version: "0.3.0", want: "is not a version"},
		"short":             {version: "v0.3", want: "is not a version"},
		"v2":                {version: "v2.0.0", want: "must end in v2"},
		"not newer":         {version: "v0.2.0", want: "is not newer than v0.2.0"},
		"older":             {version: "v0.1.9", want: "is not newer than v0.2.0"},
		"no changes listed": {change: map[string]string{"CHANGELOG.md": "# Changelog\n\n## v0.3.0-rc.1\n"}, want: "give CHANGELOG.md a heading for v0.3.0"},
		"unreleased":        {change: map[string]string{"README.md": "Status: unreleased."}, want: `README.md still says "Status: unreleased"`},
		"replaces another": {
			change: map[string]string{"a/go.mod": "module example.com/core/a\n\ngo 1.26.0\n\nreplace example.com/other => ./b\n"},
			want:   "go install would reject it",
		},
		"exported name": {
			change: map[string]string{"core.go": "package core\n"},
			want:   "Kept: removed",
		},
		"requires what is not released": {
			change: map[string]string{"go.mod": goModOfCore + "\nrequire example.com/core/docs v0.0.0\n"},
			want:   "which is not",
		},
		"cycle": {
			change: map[string]string{"go.mod": goModOfCore + "\nrequire example.com/core/a v0.0.0\n"},
			want:   "requires itself",
		},
		"does not build": {
			change: map[string]string{"a/a.go": "package a\n\nimport _ \"example.com/core/internal\"\n"},
			want:   "example.com/core/internal",
		},
	} {
		t.Run(name, func(t *testing.T) {
			git := newRepository(t, goodFiles())
			must(t, git, "git", "commit", "--allow-empty", "--message", "release")
			must(t, git, "git", "tag", "v0.2.0")
			for name, text := range test.change {
				write(t, filepath.Join(git.dir, name), text)
			}
			must(t, git, "git", "add", "--all")
			must(t, git, "git", "commit", "--allow-empty", "--message", "all: change")
			if test.version == "" {
				test.version = "v0.3.0"
			}
			before := withoutVersions(t, git, "example.com/core")
			err := run(git.dir, options{version: test.version, tag: true}, io.Discard)
			if test.want == "" {
				if err != nil {
					t.Error(err)
				}
				if after := withoutVersions(t, git, "example.com/core"); after != before {
					t.Errorf("the branch has changed:\n%s", must(t, git, "git", "diff", before, after))
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %v, want %q", err, test.want)
			}
			if got := must(t, git, "git", "tag"); got != "v0.2.0" {
				t.Errorf("tags %q were made", got)
			}
		})
	}
}

// TestRun_DryRun: without -tag the repository stays as it is, and what must be done first is printed.
func TestRun_DryRun(t *testing.T) {
	files := goodFiles()
	files["SECURITY.md"] = "Nothing is released yet."
	git := newRepository(t, files)
	before := must(t, git, "git", "rev-parse", "HEAD")
	var out strings.Builder
	if err := run(git.dir, options{version: "v0.3.0"}, &out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"a/v0.3.0", "not released: docs\n", "built: example.com/core/a\n", `To do before -tag: SECURITY.md still says "Nothing is released"`} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("it does not print %q:\n%s", want, &out)
		}
	}
	if got := must(t, git, "git", "rev-parse", "HEAD"); got != before {
		t.Errorf("a commit was made: %s", got)
	}
	if got := must(t, git, "git", "tag"); got != "" {
		t.Errorf("tags %q were made", got)
	}
	if got := must(t, git, "git", "status", "--porcelain"); got != "" {
		t.Errorf("files were changed: %s", got)
	}
	if got := must(t, git, "git", "worktree", "list"); strings.Contains(got, "\n") {
		t.Errorf("a work tree was left: %s", got)
	}
}
