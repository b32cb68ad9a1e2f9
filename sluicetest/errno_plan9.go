package sluicetest

import "syscall"

// How a connection fails, as the system says it: Plan 9 has strings in place of numbers.
var (
	errRefused = syscall.NewError("connection refused")
	errReset   = syscall.NewError("connection reset")
	errPipe    = syscall.NewError("write to hungup stream")
)
