package main

import (
	"path/filepath"
	"strings"
	"testing"
)

// TestCompareAPI: an incompatible change must be named in the changelog, and is forbidden from v1 on.
func TestCompareAPI(t *testing.T) {
	const old = "package core\n\nfunc Kept() {}\n\ntype T struct{}\n\nfunc (T) Moved(int) {}\n"
	for name, test := range map[string]struct {
		last, next, code, changelog, want string
	}{
		"no release":        {code: "package core\n"},
		"same":              {last: "v0.1.0", code: old},
		"more":              {last: "v0.1.0", code: old + "\nfunc New() {}\n"},
		"less":              {last: "v0.1.0", code: strings.Replace(old, "Kept", "kept", 1), want: "Kept: removed"},
		"less, said":        {last: "v0.1.0", code: strings.Replace(old, "Kept", "kept", 1), changelog: "`Kept` is gone."},
		"less, said before": {last: "v0.1.0", code: strings.Replace(old, "Kept", "kept", 1), changelog: "Nothing.\n\n## v0.1.0\n\n`Kept`", want: "Kept: removed"},
		"other":             {last: "v0.1.0", code: strings.Replace(old, "int", "string", 1), want: "T.Moved: changed"},
		"less, in a patch":  {last: "v0.1.0", next: "v0.1.1", code: strings.Replace(old, "Kept", "kept", 1), changelog: "`Kept` is gone.", want: "Kept: removed"},
		"less, in a minor":  {last: "v0.1.0", next: "v0.2.0", code: strings.Replace(old, "Kept", "kept", 1), changelog: "`Kept` is gone."},
		"less, from v1":     {last: "v1.0.0", code: strings.Replace(old, "Kept", "kept", 1), changelog: "`Kept` is gone.", want: "Kept: removed"},
	} {
		t.Run(name, func(t *testing.T) {
			files := goodFiles()
			files["core.go"] = old
			git := newRepository(t, files)
			must(t, git, "git", "commit", "--allow-empty", "--message", "release")
			if test.last != "" {
				must(t, git, "git", "tag", test.last)
			}
			write(t, filepath.Join(git.dir, "core.go"), test.code)
			var out strings.Builder
			err := compareAPI(git, "# Changelog\n\n## Unreleased\n\n"+test.changelog, test.next, &out)
			switch {
			case test.want == "" && err != nil:
				t.Error(err)
			case test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)):
				t.Errorf("error %v, want %q", err, test.want)
			}
		})
	}
}
