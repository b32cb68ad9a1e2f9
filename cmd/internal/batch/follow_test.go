//go:build unix

package batch

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// With -line-buffer lines are printed while their command runs, whole, each stream to its own.
func TestBinaryLineBuffer(t *testing.T) {
	dir := t.TempDir()
	p := start(t, dir, "-line-buffer", "-tag", "-jobs", "2", "--", "sh", "-c", `
		echo "begun $1"; echo "err $1" >&2; printf half
		while ! test -e "go.$1"; do sleep 0.02; done
		printf '; whole\nlast'`, "sh", "{}")
	fmt.Fprint(p.stdin, "a\nb\n")
	p.stdin.Close()
	p.stdout.until("a\tbegun a\n")
	p.stdout.until("b\tbegun b\n")
	p.stderr.until("a\terr a\n")
	if text := p.stdout.String(); strings.Contains(text, "half") {
		t.Errorf("half a line in %q", text)
	}
	for _, item := range []string{"b", "a"} {
		if err := os.WriteFile(filepath.Join(dir, "go."+item), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		p.stdout.until(item + "\thalf; whole\n" + item + "\tlast\n")
	}
	if status := p.wait(t); status != 0 || strings.Count(p.stdout.String(), "\n") != 6 || strings.Count(p.stderr.String(), "\terr ") != 2 {
		t.Errorf("status %d, stdout %q, stderr %q", status, p.stdout, p.stderr)
	}
}

// Attempts that are retried have printed, long lines and long outputs are complete, and a child
// that is left behind holds up nothing.
func TestBinaryLineBuffer_All(t *testing.T) {
	r := runIn(t, t.TempDir(), "g\n", "-line-buffer", "-backoff", "1ms", "--", "sh", "-c", flaky, "sh", "{}")
	r.want(t, 0, "out g\nout g\n", "err g\nerr g\n")
	r = runIn(t, t.TempDir(), "a\n", "-line-buffer", "-tag", "--", "sh", "-c", "yes 1234567 | head -c 3000000; sleep 60 & true")
	if want := strings.Repeat("a\t1234567\n", 3_000_000/8); r.status != 0 || r.stdout != want {
		t.Errorf("status %d, %d bytes, want %d", r.status, len(r.stdout), len(want))
	}
	r = runIn(t, t.TempDir(), "a\n", "-line-buffer", "--", "sh", "-c", "head -c 3000000 /dev/zero | tr '\\0' x")
	if r.status != 0 || r.stdout != strings.Repeat("x", 3_000_000)+"\n" {
		t.Errorf("status %d, %d bytes", r.status, len(r.stdout))
	}
}

// When its output is no longer read, the job stops, and the command that is running with it.
func TestBinaryLineBuffer_Pipe(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	p := startInto(t, t.TempDir(), w, "-line-buffer", "-jobs", "1", "--", "sh", "-c", "while true; do echo x; sleep 0.01; done")
	w.Close()
	fmt.Fprint(p.stdin, "a\nb\n")
	p.stdin.Close()
	if _, err := r.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	r.Close()
	if status := p.wait(t); status != 141 {
		t.Errorf("status %d, stderr %q", status, p.stderr)
	}
}

// What cannot be printed is printed no more.
func TestFollower_Broken(t *testing.T) {
	file, err := tempFile()
	if err != nil {
		t.Fatal(err)
	}
	defer closeTemp(file)
	other, err := tempFile()
	if err != nil {
		t.Fatal(err)
	}
	defer closeTemp(other)
	full := errors.New("full")
	prints := 0
	f := &follower{print: func(stream, []byte) error { prints++; return full }}
	f.files = [2]*os.File{file, other}
	for range 2 {
		if _, err := file.WriteString("a\n"); err != nil {
			t.Fatal(err)
		}
		if err := f.look(false); err != full || prints != 1 {
			t.Errorf("%v, printed %d times", err, prints)
		}
	}
}
