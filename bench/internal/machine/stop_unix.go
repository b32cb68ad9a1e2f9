//go:build unix

package machine

import (
	"os"
	"syscall"
	"time"
)

// Stop stops p for d, all of its threads at once, as a hypervisor does with a
// whole machine.
func Stop(p *os.Process, d time.Duration) error {
	if err := p.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	nap(d)
	return p.Signal(syscall.SIGCONT)
}
