//go:build unix

package main

import (
	"os/exec"
	"syscall"
)

// apart gives an instance a process group of its own: a terminal sends a Ctrl-C to
// a whole group, and an instance that also got it from us would take one signal for two.
func apart(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }
