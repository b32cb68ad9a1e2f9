// Command explore runs the real code of the core under a scheduler that tries all interleavings of a
// few callers, up to a bound; docs/design/model.md says which. It rewrites the packages into a
// temporary directory (package overlay), builds the scenes with them, and runs those.
//
//	go run ./internal/explore                      # all scenes, each up to its own bound
//	go run ./internal/explore -more 1              # one more preemption: hours
//	go run ./internal/explore -scenes parent-3     # one scene
//	go run ./internal/explore -seeds               # each seeded bug is found
package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/sluice-go/sluice/internal/explore/overlay"
)

func main() {
	dir, err := os.MkdirTemp("", "explore")
	if err == nil {
		err = run(dir, os.Args[1:])
		_ = os.RemoveAll(dir)
	}
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit):
		os.Exit(exit.ExitCode())
	case err != nil:
		fmt.Fprintln(os.Stderr, "explore:", err)
		os.Exit(1)
	}
}

func run(dir string, args []string) error {
	scenes, err := build(dir)
	if err != nil {
		return err
	}
	for i, a := range args {
		if a == "-seeds" {
			args[i] = "-seeds=" + strings.Join(seedNames(), ",")
		}
	}
	cmd := exec.Command(scenes, args...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	return cmd.Run()
}

func seedNames() (names []string) {
	for _, s := range seeds {
		names = append(names, s.Name+":"+s.Scene)
	}
	return names
}

// build builds the scenes in dir, with rewritten packages, and returns the program.
func build(dir string) (string, error) {
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/sluice-go/sluice").Output()
	if err != nil {
		return "", fmt.Errorf("go list: %v", err)
	}
	root := strings.TrimSpace(string(out))
	list, err := overlay.Write(root, dir, rewritten, seeds, extra)
	if err != nil {
		return "", err
	}
	program := filepath.Join(dir, "scenes")
	cmd := exec.Command("go", "build", "-overlay", list, "-o", program, "./internal/explore/scenes")
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "GOFLAGS=") // no -race from outside: the scheduler needs none
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build: %v\n%s", err, out)
	}
	return program, nil
}
