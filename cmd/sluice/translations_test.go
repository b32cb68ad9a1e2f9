//go:build unix

package main

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// A translation is an example of another program, and what to write instead.
type translation struct {
	title        string
	theirs, ours string
	otherWords   bool // what they do need not be the same
}

// translations reads translations.md.
func translations(t *testing.T) (all []translation) {
	t.Helper()
	text, err := os.ReadFile("translations.md")
	if err != nil {
		t.Fatal(err)
	}
	part := ""
	for section := range strings.SplitSeq(string(text), "\n#") {
		title, body, _ := strings.Cut(strings.TrimLeft(section, "# "), "\n")
		if !strings.HasPrefix(section, "## ") {
			part = title
			continue
		}
		_, code, _ := strings.Cut(body, "```sh\n")
		code, _, _ = strings.Cut(code, "\n```")
		theirs, ours, ok := strings.Cut(code, "\n")
		if !ok || strings.Contains(ours, "\n") {
			t.Errorf("%s %s: want two lines, not %q", part, title, code)
		}
		all = append(all, translation{part + " " + title, theirs, ours, strings.HasSuffix(title, ", in other words")})
	}
	return all
}

// standIns take the place of programs that are not everywhere, or that need a network.
var standIns = map[string]string{
	"prips":        `seq -f 10.0.0.%g 1 5`,
	"ping":         `case $3 in *[24]) exit 1; esac; echo reply`,
	"lame":         `echo "lame $*" >"$3"`,
	"convert":      `echo "convert $*" >"$4"`,
	"makeallsizes": `echo "makeallsizes $*"`,
	"munge":        `echo "munge $*"`,
	"somecommand":  `ls *.log`,
}

// sandbox makes a directory with everything that the examples work on.
func sandbox(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	files := map[string]string{
		"a.html": "FOO BAR", "sub/b.html": "<p>", "x.wav": "x", "sub/y.wav": "y", "1.log": "1", "two words.log": "2",
		"p.jpg": "p", "sub/q.jpg": "q", "tmp/core": "", "tmp/deep/core": "", "tmp/corel": "", "m.c": "sprintf", "sub/n.c": "printf",
		"xyzzy": "", "sub/xyzzy": "", "list": "an item\x00another one\x00", "originals/1.jpg": "1", "originals/2.jpg": "2",
		"bills/may": "b\na\n", "bills/june": "d\nc\n", "UPPER": "u",
	}
	for i := range 10 {
		files[fmt.Sprintf("pict%d.jpg", i)] = ""
	}
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	fmt.Fprintln(w, "text")
	w.Close()
	files["z.gz"] = packed.String()
	for name, text := range files {
		name = filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
		then := time.Unix(1e9, 0) // gzip keeps it
		if err := os.Chtimes(name, then, then); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(dir, "destdir"), 0o777); err != nil {
		t.Fatal(err)
	}
	return dir
}

// does runs a line and returns what it prints, sorted, and the files that it leaves.
func does(t *testing.T, line, path, addr string) string {
	t.Helper()
	dir := sandbox(t)
	users := filepath.Join(t.TempDir(), "passwd") // those of the machine are others on the next
	if err := os.WriteFile(users, []byte("root:x:0:0\ndaemon:x:1:1\nbin:x:2:2\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	host := "http://" + addr
	line = strings.NewReplacer(
		"/etc/passwd", users, "find /tmp ", "find tmp ", "find / ", "find . ", "0 9999", "0 9",
		"my-proxy:888", addr, "http://www.get.this", "http://www.get.this", "http://user:passwd@www.get.this", "http://user:passwd@www.get.this",
		"https://www.example.com", host, "http://www.example.com", host, "http://www.weirdserver.com:8000", host, "http://[2001:1890:1112:1::20]", host,
		"http://www.haxx.se", host, "http://curl.haxx.se", host, "www.haxx.se", addr, "curl.haxx.se", addr,
		"name:passwd@machine.domain", "name:passwd@"+addr, "machine.domain", addr,
	).Replace(line)
	cmd := exec.CommandContext(t.Context(), "bash", "-c", line)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "PATH="+path, "HOME="+dir, "PARALLEL_HOME="+t.TempDir(), "LC_ALL=C", "SHELL=/bin/bash", "no_proxy=", "http_proxy=")
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, _ := cmd.Output() // some of the commands fail, as they do with parallel
	lines := strings.Split(strings.TrimSpace(strings.ReplaceAll(string(out), dir, "$HOME")), "\n")
	slices.Sort(lines)
	var b strings.Builder
	fmt.Fprintln(&b, strings.Join(lines, "\n"))
	err := filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(name)
		name, _ = filepath.Rel(dir, name)
		if !regexp.MustCompile(`^pict.\.jpg$`).MatchString(name) { // those are only counted
			fmt.Fprintf(&b, "  %s %.4x\n", name, sha256.Sum256(text))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	pictures, _ := filepath.Glob(filepath.Join(dir, "pict?.jpg"))
	fmt.Fprintf(&b, "  %d pictures\n", len(pictures))
	if strings.Contains(stderr.String(), "Run \"sluice") {
		t.Errorf("%s\n%s", line, stderr.String())
	}
	return b.String()
}

// Our line does what is in testdata/translations.txt; and so does the line of the other program,
// from which -update writes the file. SLUICE_FULL runs both.
func TestTranslations(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		url := r.URL.Path
		if r.URL.Host != "" { // as a proxy
			url = r.URL.String()
		}
		fmt.Fprintf(w, "%s %s %s %s\n", r.Method, url, r.Header.Get("Authorization"), r.Header.Get("Proxy-Authorization"))
	}))
	defer server.Close()
	addr := strings.TrimPrefix(server.URL, "http://")

	bin := t.TempDir()
	for name, script := range standIns {
		if err := os.WriteFile(filepath.Join(bin, name), []byte("#!/bin/sh\n"+script+"\n"), 0o777); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(binary, filepath.Join(bin, "sluice")); err != nil {
		t.Fatal(err)
	}
	path := bin + ":" + os.Getenv("PATH")

	golden, err := os.ReadFile("testdata/translations.txt")
	if err != nil && !*update {
		t.Fatal(err)
	}
	want := make(map[string]string)
	for part := range strings.SplitSeq(string(golden), "== ") {
		title, text, _ := strings.Cut(part, "\n")
		want[title] = text
	}
	var fresh strings.Builder
	counts := make(map[string]int)
	same := 0
	for _, tr := range translations(t) {
		program, _, _ := strings.Cut(tr.title, " ")
		counts[program]++
		if !tr.otherWords {
			same++
		}
		t.Run(tr.title, func(t *testing.T) {
			_, noParallel := exec.LookPath("parallel")
			if program == "GNU" && noParallel != nil && *update {
				t.Fatal(noParallel)
			}
			if !tr.otherWords && (*update || os.Getenv("SLUICE_FULL") != "" && (program != "GNU" || noParallel == nil)) {
				got := does(t, tr.theirs, path, addr)
				if *update {
					want[tr.title] = got
				}
				if got != want[tr.title] {
					t.Errorf("%s\n%s\nwant\n%s", tr.theirs, got, want[tr.title])
				}
			}
			got := does(t, tr.ours, path, addr)
			if *update && tr.otherWords {
				want[tr.title] = got
			}
			if got != want[tr.title] {
				t.Errorf("%s\n%s\nwant\n%s", tr.ours, got, want[tr.title])
			}
			fmt.Fprintf(&fresh, "== %s\n%s", tr.title, want[tr.title])
		})
	}
	if counts["GNU"] != 20 || counts["xargs"] != 10 || counts["curl"] != 10 || same < 32 {
		t.Errorf("%v, and %d word for word", counts, same)
	}
	if *update {
		if err := os.WriteFile("testdata/translations.txt", []byte(fresh.String()), 0o666); err != nil {
			t.Fatal(err)
		}
	}
}
