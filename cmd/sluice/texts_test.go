package main

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/sluice-go/sluice/cmd/internal/cli"
)

var update = flag.Bool("update", false, "write the table of statuses into README.md, and testdata")

// Each command says what it does, how it is called, and with which statuses it ends; each flag
// what it is and what its value is called.
func TestTexts(t *testing.T) {
	a := app()
	statuses := make(map[int]bool)
	for _, e := range cli.Exits {
		statuses[e.Status] = true
	}
	for _, c := range a.Commands {
		if c.Short == "" || len(c.Usage) == 0 || len(c.Exits) == 0 || c.Exits[0].Status != 0 || strings.HasSuffix(c.Short, ".") {
			t.Errorf("%s: %q, %q, %v", c.Name, c.Short, c.Usage, c.Exits)
		}
		for _, e := range c.Exits {
			if !statuses[e.Status] {
				t.Errorf("%s: the status %d is not in the table of all", c.Name, e.Status)
			}
		}
		var short bytes.Buffer
		if err := c.WriteShortHelp(&short, 80); err != nil {
			t.Error(err)
		}
		for line := range strings.Lines(short.String()) {
			flagLine := regexp.MustCompile(`^  -(\S+)( \S+)?  +(\S.*)`).FindStringSubmatch(line)
			if flagLine == nil {
				continue
			}
			if first, _ := utf8.DecodeRuneInString(flagLine[3]); unicode.IsUpper(first) || flagLine[2] == " value" {
				t.Errorf("%s: %q", c.Name, line)
			}
		}
	}
}

// On a narrow terminal each line fits, but for those that are to be copied and long words.
func TestTexts_Width(t *testing.T) {
	for _, c := range app().Commands {
		for _, width := range []int{30, 40, 80, 100} {
			var b bytes.Buffer
			if err := c.WriteHelp(&b, width); err != nil {
				t.Error(err)
			}
			if err := c.WriteShortHelp(&b, width); err != nil {
				t.Error(err)
			}
			copied := false
			for line := range strings.Lines(b.String()) {
				line = strings.TrimSuffix(line, "\n")
				if copied = copied && line != "" || line == "Usage:" || line == "Examples:"; copied || strings.HasPrefix(line, "      sluice batch -shell ") {
					continue
				}
				if n := utf8.RuneCountInString(line); n > width && strings.Contains(strings.TrimLeft(line, " "), " ") {
					t.Errorf("%s, %d columns: %d in %q", c.Name, width, n, line)
				}
			}
		}
	}
}

// The manual pages are read without a warning, and have everything that the help has.
func TestManual(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "man1")
	if status, _, stderr := run(t, "", "man", "-dir", dir); status != 0 {
		t.Fatal(stderr)
	}
	pages, err := filepath.Glob(filepath.Join(dir, "*.1"))
	if err != nil || len(pages) != 1+len(app().Commands) {
		t.Errorf("%q, %v", pages, err)
	}
	groff, err := exec.LookPath("groff")
	if err != nil {
		t.Skip(err)
	}
	words := func(text string) []string { return regexp.MustCompile(`[A-Za-z0-9]+`).FindAllString(text, -1) }
	for _, page := range pages {
		var warnings bytes.Buffer
		cmd := exec.CommandContext(t.Context(), groff, "-man", "-Tascii", "-ww", "-rLL=200n", "-P-cbou", page)
		cmd.Stderr = &warnings
		shown, err := cmd.Output()
		if err != nil || warnings.Len() > 0 {
			t.Errorf("%s: %v, %s", page, err, warnings.String())
		}
		name := strings.TrimSuffix(strings.TrimPrefix(filepath.Base(page), "sluice-"), ".1")
		has := words(strings.ToLower(string(shown)))
		for _, c := range app().Commands {
			if c.Name != name {
				continue
			}
			var help bytes.Buffer
			if err := c.WriteHelp(&help, 80); err != nil {
				t.Error(err)
			}
			for _, word := range words(strings.ToLower(help.String())) {
				if !slices.Contains(has, word) && word != "usage" { // it is called synopsis
					t.Errorf("%s lacks %q", page, word)
				}
			}
		}
	}
}

// bash completes commands, flags, their values and programs.
func TestCompletion_Bash(t *testing.T) {
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Skip(err)
	}
	_, script, _ := run(t, "", "completion", "bash")
	dir := t.TempDir()
	for _, name := range []string{"items.txt", "other", "folder/x"} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o777); err != nil {
			t.Fatal(err)
		}
	}
	for _, tt := range []struct {
		words string // as bash splits them; the last one is completed, _ is an empty one
		want  string // some of the proposals
		not   string
	}{
		{"_", "batch crawl help man completion version", "-rate"},
		{"ba", "batch", "crawl"},
		{"batch -", "-in -url -max-time -h -help", "batch"},
		{"batch -max", "-max-time -max-body -max-wait", "-in"},
		{"batch --max", "--max-time --max-body --max-wait", "-max-time"},
		{"batch -in it", "items.txt", "other"},
		{"batch -in = it", "items.txt", "other"},
		{"batch -in =", "items.txt other folder", "-in"},
		{"batch --in = it", "items.txt", "other"},
		{"batch -in items.txt -", "-url", "items.txt"},
		{"batch -in = items.txt -", "-url", "items.txt"},
		{"batch -results _", "folder", "items.txt"},
		{"batch -key _", "item seq", "items.txt"},
		{"batch -key = s", "seq", "item"},
		{"batch -rate _", "", "items.txt"},
		{"batch -null -ra", "-rate", "-null"},
		{"batch -null = false -ra", "-rate", "-null"},
		{"batch -- tru", "true", "-rate"},
		{"batch -- -", "", "-rate"},
		{"batch -rate 5/s tru", "true", "items.txt"},
		{"batch -- cat it", "items.txt", "other"},
		{"batch -- cat -", "", "-rate"},
		{"crawl -dir _", "folder", "items.txt"},
		{"crawl -live-token _", "items.txt other", "-dir"},
		{"completion _", "bash zsh fish", "items.txt"},
		{"help c", "crawl completion", "batch"},
		{"man _", "batch crawl", "items.txt"},
		{"version _", "", "items.txt"},
		{"nonsense -", "", "-rate"},
	} {
		var line []string
		for word := range strings.FieldsSeq("sluice " + tt.words) {
			line = append(line, "'"+strings.Trim(word, "_")+"'")
		}
		cmd := exec.CommandContext(t.Context(), bash, "--norc", "--noprofile", "-c", script+fmt.Sprintf(
			"\nCOMP_WORDS=(%s)\nCOMP_CWORD=%d\n_sluice sluice\nprintf '%%s\\n' \"${COMPREPLY[@]}\"", strings.Join(line, " "), len(line)-1))
		cmd.Dir = dir
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		out, err := cmd.Output()
		got := strings.Fields(string(out))
		if err != nil || stderr.Len() > 0 {
			t.Errorf("%s: %v, %s", tt.words, err, stderr.String())
		}
		for word := range strings.FieldsSeq(tt.want) {
			if !slices.Contains(got, word) {
				t.Errorf("%s: no %s in %q", tt.words, word, got)
			}
		}
		if tt.want == "" && len(got) > 0 || tt.not != "" && slices.Contains(got, tt.not) {
			t.Errorf("%s: %q", tt.words, got)
		}
	}
}

// zsh and fish can read their scripts, and fish completes by it.
func TestCompletion_OtherShells(t *testing.T) {
	for _, shell := range []string{"zsh", "fish"} {
		t.Run(shell, func(t *testing.T) {
			status, script, stderr := run(t, "", "completion", shell)
			if status != 0 || !strings.Contains(script, "batch") {
				t.Fatalf("status %d, %s", status, stderr)
			}
			path, err := exec.LookPath(shell)
			if err != nil {
				t.Skip(err)
			}
			name := filepath.Join(t.TempDir(), "script")
			if err := os.WriteFile(name, []byte(script), 0o666); err != nil {
				t.Fatal(err)
			}
			if out, err := exec.CommandContext(t.Context(), path, "-n", name).CombinedOutput(); err != nil || len(out) > 0 {
				t.Errorf("%v, %s", err, out)
			}
			if shell != "fish" {
				return
			}
			for line, want := range map[string]string{
				"sluice ba": "batch\t", "sluice batch -max-t": "-max-time\t", "sluice batch -key s": "seq", "sluice completion f": "fish", "sluice crawl -pag": "-pages\t",
			} {
				out, err := exec.CommandContext(t.Context(), path, "--no-config", "-c", "source "+name+"; complete -C '"+line+"'").CombinedOutput()
				if err != nil || !strings.HasPrefix(string(out), want) {
					t.Errorf("%q: %v, %q, want %q", line, err, out, want)
				}
			}
		})
	}
}

// A wrong call names the right one, and ends with the status for that.
func TestUsage(t *testing.T) {
	for _, tt := range []struct {
		args           string
		status         int
		stdout, stderr string // what they begin with
	}{
		{"", 2, "", "sluice runs jobs "},
		{"-h", 0, "sluice runs jobs ", ""},
		{"--help", 0, "sluice runs jobs ", ""},
		{"help", 0, "sluice runs jobs ", ""},
		{"help batch", 0, "sluice batch runs ", ""},
		{"help batch crawl", 2, "", "sluice help: unexpected \"crawl\"\nRun \"sluice help -h\" for the flags.\n"},
		{"help wget", 2, "", "sluice help: no command \"wget\": did you mean crawl?\n"},
		{"-version", 0, "sluice ", ""},
		{"version", 0, "sluice ", ""},
		{"version x", 2, "", "sluice version: unexpected \"x\"\n"},
		{"bach", 2, "", "sluice: no command \"bach\": did you mean batch?\nRun \"sluice help\" for the commands.\n"},
		{"batchjob", 2, "", "sluice: no command \"batchjob\": did you mean batch?\n"},
		{"-rate", 2, "", "sluice: no command \"-rate\"\n"},
		{"batch -bogus", 2, "", "sluice batch: invalid flags: no flag -bogus\nRun \"sluice batch -h\" for the flags.\n"},
		{"crawl -level 2", 2, "", "sluice crawl: invalid flags: no flag -level: did you mean -depth?\n"},
		{"completion", 2, "", "sluice completion: for which shell? bash, zsh, fish\n"},
		{"completion tcsh", 2, "", "sluice completion: no shell \"tcsh\": want bash, zsh, fish\n"},
		{"man -dir x batch", 2, "", "sluice man: -dir is for all pages: leave out \"batch\"\n"},
		{"man -dir /dev/null/x", 2, "", "sluice man: mkdir /dev/null"},
		{"man", 0, ".TH \"SLUICE\" \"1\"", ""},
		{"man crawl", 0, ".TH \"SLUICE\\-CRAWL\" \"1\"", ""},
	} {
		status, stdout, stderr := run(t, "", strings.Fields(tt.args)...)
		if status != tt.status || !strings.HasPrefix(stdout, tt.stdout) || !strings.HasPrefix(stderr, tt.stderr) || tt.stdout == "" && stdout != "" || tt.stderr == "" && stderr != "" {
			t.Errorf("%s: status %d, stdout %.60q, stderr %q", tt.args, status, stdout, stderr)
		}
	}
}

// README.md has the table of statuses.
func TestReadme_Statuses(t *testing.T) {
	a := app()
	var b strings.Builder
	b.WriteString("| status | all commands | `sluice batch` | `sluice crawl` |\n| --- | --- | --- | --- |\n")
	for _, e := range cli.Exits {
		fmt.Fprintf(&b, "| %d | %s", e.Status, e.Text)
		for _, c := range a.Commands[:2] {
			text := ""
			if i := slices.IndexFunc(c.Exits, func(own cli.Exit) bool { return own.Status == e.Status }); i >= 0 {
				text = c.Exits[i].Text
			}
			b.WriteString(" | " + text)
		}
		b.WriteString(" |\n")
	}
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(text), "<!-- begin statuses -->\n\n")
	old, after, ok2 := strings.Cut(rest, "\n<!-- end statuses -->")
	if !ok || !ok2 {
		t.Fatal("README.md has no marks for the table")
	}
	if old == b.String() {
		return
	}
	if !*update {
		t.Fatal("README.md has another table; go test ./cmd/sluice -run TestReadme -update writes this one:\n" + b.String())
	}
	if err := os.WriteFile("README.md", []byte(before+"<!-- begin statuses -->\n\n"+b.String()+"\n<!-- end statuses -->"+after), 0o666); err != nil {
		t.Fatal(err)
	}
}
