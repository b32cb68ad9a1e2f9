//go:build !plan9

package sluicetest

import "syscall"

// How a connection fails, as the system says it.
const (
	errRefused = syscall.ECONNREFUSED
	errReset   = syscall.ECONNRESET
	errPipe    = syscall.EPIPE
)
