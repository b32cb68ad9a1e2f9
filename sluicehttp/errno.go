//go:build !plan9

package sluicehttp

import "syscall"

// drops are the errors of connections that a server has dropped.
var drops = []error{syscall.ECONNRESET, syscall.ECONNREFUSED, syscall.ECONNABORTED, syscall.EPIPE}
