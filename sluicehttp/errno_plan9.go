package sluicehttp

import "syscall"

// drops are the errors of connections that a server has dropped: Plan 9 has strings in place of numbers.
var drops = []error{syscall.NewError("connection refused"), syscall.NewError("connection reset"), syscall.NewError("write to hungup stream")}
