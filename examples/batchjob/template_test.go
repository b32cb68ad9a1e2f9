package main

import (
	"strings"
	"testing"
)

func TestExpand(t *testing.T) {
	s := subject{item: "dir.d/sub/file.tar.gz", seq: 12, slot: 3}
	for template, want := range map[string]string{
		"{}": "dir.d/sub/file.tar.gz", "{.}": "dir.d/sub/file.tar", "{/}": "file.tar.gz", "{//}": "dir.d/sub", "{/.}": "file.tar",
		"{#}": "12", "{%}": "3", "a{#}b{%}{#}": "a12b312", "{#}.{}": "12.dir.d/sub/file.tar.gz",
		"": "", "plain": "plain", "{": "{", "{x}": "{x}", "{{}}": "{dir.d/sub/file.tar.gz}", "}{": "}{", "{/": "{/",
	} {
		if got := expand(template, s, verbatim); got != want {
			t.Errorf("%q becomes %q, want %q", template, got, want)
		}
	}
	for item, want := range map[string]string{
		"file": "file file . file file", "dir.d/file": "dir.d/file file dir.d file dir.d/file",
		".hidden": ".hidden .hidden . .hidden .hidden", "/a.b": "/a a.b / a /a.b",
	} {
		if got := expand("{.} {/} {//} {/.} {}", subject{item: item}, verbatim); got != want {
			t.Errorf("%q becomes %q, want %q", item, got, want)
		}
	}
	// What an item contains is not a placeholder.
	if got := expand("{}{#}", subject{item: "{#}{}", seq: 7}, verbatim); got != "{#}{}7" {
		t.Errorf("an item was expanded: %q", got)
	}
}

func TestEscape(t *testing.T) {
	for _, tt := range []struct{ template, item, want string }{
		{"http://h/{}", "a b/c?d&e", "http://h/a%20b%2Fc%3Fd&e"},
		{"http://h/x?q={}&n={#}", "a b/c?d&e", "http://h/x?q=a+b%2Fc%3Fd%26e&n=1"},
		{"{}", "http://h/a?b=c", "http://h/a?b=c"},
		{"{}/more/{}", "http://h", "http://h/more/http:%2F%2Fh"},
	} {
		if got := expand(tt.template, subject{item: tt.item, seq: 1}, escape); got != tt.want {
			t.Errorf("%q for %q becomes %q, want %q", tt.template, tt.item, got, tt.want)
		}
	}
}

func TestQuote(t *testing.T) {
	for arg, want := range map[string]string{
		"a": "a", "": "''", "a b": "'a b'", "it's": `'it'\''s'`, "-x=/y:1,2@%+.": "-x=/y:1,2@%+.", "$HOME": "'$HOME'", "{}": "'{}'", "a\nb": "'a\nb'", "é": "'é'",
	} {
		if got := quote(arg); got != want {
			t.Errorf("quote(%q) = %s, want %s", arg, got, want)
		}
	}
}

func TestResumeCommand(t *testing.T) {
	args := []string{"./batchjob", "-log", "my log", "--", "echo", "{}"}
	if got, want := resumeCommand(args, false), "./batchjob -resume -log 'my log' -- echo '{}'"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if got, want := resumeCommand(args, true), "./batchjob -log 'my log' -- echo '{}'"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if strings.Join(args, " ") != "./batchjob -log my log -- echo {}" {
		t.Errorf("changed to %q", args)
	}
}

func TestPassing(t *testing.T) {
	digest := strings.Repeat("0d", 32)
	for name, want := range map[string]bool{
		"/tmp/go-build403/b001/exe/batchjob":           true,
		"/cache/go-build/0d/" + digest + "-d/batchjob": true,
		"batchjob":                                   false,
		"./batchjob":                                 false,
		"/home/me/exe/batchjob":                      false,
		"/a/b/exe/batchjob":                          false,
		"/tmp/go-build403/b001/batchjob":             false,
		"/cache/" + digest + "/batchjob":             false,
		"/cache/0d-d/batchjob":                       false,
		"/cache/" + strings.Repeat("x", 64) + "-d/b": false,
	} {
		if got := passing(name); got != want {
			t.Errorf("passing(%q) = %v", name, got)
		}
	}
}
