//go:build !linux

package batch

import "syscall"

// endWithUs does nothing: a command does not notice that this program was killed.
func endWithUs(*syscall.SysProcAttr) (ended func()) { return func() {} }

// asksTerminal does not know.
func asksTerminal(int) bool { return false }
