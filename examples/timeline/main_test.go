package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

// asProgram, in the environment, makes the test binary the program.
const asProgram = "TIMELINE_RUN_MAIN"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main()
		return
	}
	goleak.VerifyTestMain(m)
}

// runProgram runs the program in its own process.
func runProgram(t *testing.T, args ...string) (stdout, stderr string, status int) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], args...)
	cmd.Env = append(os.Environ(), asProgram+"=1")
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil && cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

// The program writes the numbers and all pictures, the same as those in git,
// and says which files.
func TestProgram(t *testing.T) {
	dir := t.TempDir()
	stdout, stderr, status := runProgram(t, "-o", dir)
	if status != 0 || stderr != "" {
		t.Fatalf("status %d, stderr %q", status, stderr)
	}
	files := strings.Fields(stdout)
	if len(files) != 16 {
		t.Errorf("wrote %d files, want 16: %s", len(files), stdout)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != len(files) {
		t.Errorf("%d files in the folder, %v", len(left), err)
	}
	sameFile(t, filepath.Join(dir, "timeline.json"), filepath.Join(checkedIn, "timeline.json"))
}

func TestProgramRefuses(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "missing")
	for _, test := range []struct {
		args   []string
		status int
		says   string
	}{
		{[]string{"-o", missing}, 1, missing + " is not a folder"},
		{[]string{"-o", os.Args[0]}, 1, "is not a folder"},
		{[]string{"more"}, 2, `unexpected argument "more"`},
		{[]string{"-bogus"}, 2, "-bogus"},
		{[]string{"-h"}, 0, "folder"},
	} {
		stdout, stderr, status := runProgram(t, test.args...)
		if status != test.status || stdout != "" || !strings.Contains(stderr, test.says) {
			t.Errorf("%q: status %d, want %d; stdout %q, stderr %q", test.args, status, test.status, stdout, stderr)
		}
	}
}

// A picture that cannot be written is an error, and no silence.
func TestDrawAllFails(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "confusion.svg"), 0o755); err != nil {
		t.Fatal(err)
	}
	if files, err := drawAll(checkedInNumbers(t), dir); err == nil || len(files) != 1 {
		t.Errorf("wrote %q, %v; want the numbers and an error", files, err)
	}
}
