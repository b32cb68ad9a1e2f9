//go:build unix

package batch

import "syscall"

func stopGroup(group int)     { _ = syscall.Kill(-group, syscall.SIGTSTP) }
func continueGroup(group int) { _ = syscall.Kill(-group, syscall.SIGCONT) }
