//go:build unix

package main

import (
	"os/exec"
	"syscall"
)

// alone gives a command a process group of its own, so that a Ctrl-C, which a
// terminal sends to a whole group, does not reach it: what is running may
// finish. When it is cancelled its children are, too, and killRest kills those
// that do not listen.
func alone(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
}

// killRest kills what is left of the group of a cancelled command that is over:
// os/exec kills the command alone, and its children would run beside the next
// attempt. If there is no such group any more nothing happens.
func killRest(cmd *exec.Cmd) {
	if cmd.Process != nil {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
	}
}
