//go:build unix

package machine

import (
	"os"
	"syscall"
	"time"

	"github.com/sluice-go/sluice/internal/testkit/stall"
)

// Stop stops p for d, all of its threads at once, as a hypervisor does with a
// whole machine.
func Stop(p *os.Process, d time.Duration) error {
	if err := p.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	stall.Nap(d)
	return p.Signal(syscall.SIGCONT)
}
