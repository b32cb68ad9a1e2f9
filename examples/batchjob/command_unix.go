//go:build unix

package main

import (
	"os/exec"
	"syscall"
)

// alone gives a command a process group of its own, so that a Ctrl-C, which a
// terminal sends to a whole group, does not reach it: what is running may
// finish. When it is cancelled its children are, too.
func alone(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
}
