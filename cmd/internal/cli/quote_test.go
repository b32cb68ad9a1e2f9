package cli

import (
	"runtime"
	"strings"
	"testing"
)

func TestQuote(t *testing.T) {
	for arg, want := range map[string]string{
		"a": "a", "": "''", "a b": "'a b'", "it's": `'it'\''s'`, "-x=/y:1,2@%+.": "-x=/y:1,2@%+.", "$HOME": "'$HOME'", "{}": "'{}'", "a\nb": "'a\nb'", "é": "'é'",
	} {
		if got := Quote(arg); got != want {
			t.Errorf("quote(%q) = %s, want %s", arg, got, want)
		}
	}
}

func TestResumeCommand(t *testing.T) {
	args := []string{"./sluice", "batch", "-log", "my log", "--", "echo", "{}"}
	if got, want := ResumeCommand(args, false), "./sluice batch -resume -log 'my log' -- echo '{}'"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if got, want := ResumeCommand(args, true), "./sluice batch -log 'my log' -- echo '{}'"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if strings.Join(args, " ") != "./sluice batch -log my log -- echo {}" {
		t.Errorf("changed to %q", args)
	}
}

func TestPassing(t *testing.T) {
	digest := strings.Repeat("0d", 32)
	for name, want := range map[string]bool{
		"/tmp/go-build403/b001/exe/sluice":           true,
		"/cache/go-build/0d/" + digest + "-d/sluice": true,
		"sluice":                       false,
		"./sluice":                     false,
		"/home/me/exe/sluice":          false,
		"/a/b/exe/sluice":              false,
		"/tmp/go-build403/b001/sluice": false,
		"/cache/" + digest + "/sluice": false,
		"/cache/0d-d/sluice":           false,
		"/cache/" + strings.Repeat("x", 64) + "-d/b": false,
	} {
		if got := passing(name); got != want {
			t.Errorf("passing(%q) = %v", name, got)
		}
	}
}

// A hint that may end up in the log of a build server has no secrets.
func TestResumeCommand_HidesSecrets(t *testing.T) {
	args := []string{"./sluice", "batch", "-header", "Authorization: Bearer SECRET", "--header=X-Api-Key: SECRET", "-header", "Accept: text/csv", "-header", "@cookies.txt", "-url", "https://me:SECRET@host/{}"}
	want := "./sluice batch -resume -header 'Authorization: (hidden)' '--header=X-Api-Key: (hidden)' -header 'Accept: text/csv' -header @cookies.txt -url 'https://(hidden)@host/{}'\n\t(with the values that are hidden)"
	if got := ResumeCommand(args, false); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	command := []string{"./sluice", "batch", "--", "curl", "-header", "Authorization: x"}
	if got, want := ResumeCommand(command, true), "./sluice batch -- curl -header 'Authorization: x'"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestPlain(t *testing.T) {
	for text, want := range map[string]string{
		"ä b":                    "ä b",
		"\x1b]0;TITLE\a\n":       `\x1b]0;TITLE\a\n`,
		"\x9b31m\u009b\u202e":    `\ufffd31m\u009b\u202e`,
		strings.Repeat("x", 25):  strings.Repeat("x", 20) + "… (5 bytes more)",
		strings.Repeat("\n", 10): strings.Repeat(`\n`, 10),
	} {
		if got := Plain(text, 20); got != want {
			t.Errorf("plain(%q) = %q, want %q", text, got, want)
		}
	}
}

func TestCut(t *testing.T) {
	for _, test := range []struct {
		locale, line string
		width        int
		want         string
	}{
		{"de_DE.UTF-8", "abcd", 3, "ab…"}, {"C.utf8", "äöüx", 3, "äö…"}, {"C", "abcd", 3, "ab~"}, {"C", "abc", 3, "abc"}, {"C", "abc", 0, "abc"},
	} {
		t.Setenv("LC_ALL", test.locale)
		if got := Cut(test.line, test.width); got != test.want && runtime.GOOS != "windows" {
			t.Errorf("%+v: %q", test, got)
		}
	}
}
