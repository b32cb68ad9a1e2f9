package stall

import (
	"syscall"
	"time"
)

// Nap sleeps for d in the system call: a timer of Go's may be a millisecond
// late.
func Nap(d time.Duration) {
	for left := syscall.NsecToTimespec(int64(d)); syscall.Nanosleep(&left, &left) == syscall.EINTR; {
	}
}
