// Package built builds the program that a test is about.
package built

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"slices"
	"testing"

	"go.uber.org/goleak"
)

// Test builds the main package in this directory, with the race detector if the test
// has it, as a binary called name, sets path to where that is, runs the tests
// and returns their status; it is not 0 if they leak goroutines. With `go run`
// every exit status but 0 would be 1.
//
// main is the function of the program and is not called. The result of go test is kept as long as
// the binary of the test is the same. The linker would leave out of it the symbols that only the
// program uses, so that a program that has changed would not be tested again.
func Test(m *testing.M, name string, path *string, main func()) int {
	dir, err := os.MkdirTemp("", name)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	*path = filepath.Join(dir, name)

	args := []string{"build", "-o", *path}
	if Raced() {
		args = append(args, "-race")
	}
	if out, err := exec.Command("go", append(args, ".")...).CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "go build: %v\n%s", err, out)
		return 1
	}

	if len(os.Args) == 0 {
		main() // never
	}
	status := m.Run()
	if err := goleak.Find(); err != nil && status == 0 {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return status
}

// Raced reports whether the test was built with the race detector.
func Raced() bool {
	info, ok := debug.ReadBuildInfo()
	return ok && slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"})
}

// SkipRaced skips a test that takes many times as long with the race detector, unless SLUICE_FULL is set. It is for
// simulations: each of their goroutines does what those of shorter tests do.
func SkipRaced(t *testing.T) {
	t.Helper()
	if Raced() && os.Getenv("SLUICE_FULL") == "" {
		t.Skip("long with -race: SLUICE_FULL runs it")
	}
}
