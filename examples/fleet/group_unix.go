//go:build unix

package main

import (
	"os/exec"
	"syscall"
)

// apart gives a child a process group of its own: a terminal sends a Ctrl-C to
// a whole group, and a child that also got it from us would get two signals.
func apart(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }
