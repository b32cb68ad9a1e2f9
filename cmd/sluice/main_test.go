package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-go/sluice/internal/testkit/built"
)

// binary is the program.
var binary string

func TestMain(m *testing.M) { os.Exit(built.Test(m, "sluice", &binary, main)) }

// run runs the program in a directory of its own.
func run(t *testing.T, stdin string, args ...string) (status int, stdout, stderr string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), binary, args...)
	var out, says strings.Builder
	cmd.Dir, cmd.Stdin, cmd.Stdout, cmd.Stderr = t.TempDir(), strings.NewReader(stdin), &out, &says
	if err := cmd.Run(); cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), out.String(), says.String()
}

func TestBatch(t *testing.T) {
	status, stdout, stderr := run(t, "a\nb\n", "batch", "-ordered", "-quiet", "--", "echo", "{}", "{#}")
	if status != 0 || stdout != "a 1\nb 2\n" || !strings.HasPrefix(stderr, "sluice batch: 2 ok, 0 failed; ") {
		t.Errorf("status %d, stdout %q, stderr %q", status, stdout, stderr)
	}
}

func TestCrawl(t *testing.T) {
	status, stdout, stderr := run(t, "", "crawl", "-quiet", "-depth", "0", "-delay", "10ms")
	if status != 0 || !strings.Contains(stdout, "1 page, 0 failed") || stderr == "" {
		t.Errorf("status %d, stdout %q, stderr %q", status, stdout, stderr)
	}
}

// go run deletes the program sooner or later: the command must not name that one.
func TestGoRun(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), "go", "run", ".", "batch", "-retries", "0", "-halt", "soon,fail=1", "-log", filepath.Join(t.TempDir(), "log"), "--", "false")
	cmd.Stdin = strings.NewReader("a\n")
	var stderr strings.Builder
	cmd.Stderr = &stderr
	_ = cmd.Run()
	_, command, _ := strings.Cut(stderr.String(), "sluice batch: resume it, with the same input, by\n\t")
	if want := "go run github.com/sluice-go/sluice/cmd/sluice batch -resume -retries 0 "; !strings.HasPrefix(command, want) {
		t.Errorf("stderr\n%s", stderr.String())
	}
}
