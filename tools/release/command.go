package main

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
)

// A command says where programs run, and what they find in their environment besides that of this process.
type command struct {
	dir string
	env []string
}

// run runs a program and returns what it prints, without white space around it. The error has what it prints to stderr.
func (c command) run(name string, args ...string) (string, error) {
	cmd := exec.Command(name, args...)
	cmd.Dir = c.dir
	cmd.Env = append(os.Environ(), c.env...)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, stderr.String())
	}
	return strings.TrimSpace(string(out)), nil
}

// temporary makes a folder for what a run needs.
func temporary() (dir string, remove func() error, err error) {
	dir, err = os.MkdirTemp("", "release")
	return dir, func() error { return os.RemoveAll(dir) }, err
}

// worktree checks a commit out into a folder of its own, which shares the repository.
func worktree(git command, dir, commit string) (tree command, remove func(), err error) {
	_, err = git.run("git", "worktree", "add", "--quiet", "--detach", dir, commit)
	return command{dir: dir}, func() { git.run("git", "worktree", "remove", "--force", dir) }, err
}
