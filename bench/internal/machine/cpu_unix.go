//go:build unix

package machine

import (
	"syscall"
	"time"
)

// CPUTime returns the processor time this process has used, in user and in
// system mode, on all CPUs; 0 where that is not known.
func CPUTime() time.Duration {
	var use syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &use); err != nil {
		return 0
	}
	return time.Duration(use.Utime.Nano() + use.Stime.Nano())
}
