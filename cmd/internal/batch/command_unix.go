//go:build unix

package batch

import (
	"errors"
	"os"
	"os/exec"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// alone gives a command a process group of its own, so that a Ctrl-C, which a
// terminal sends to a whole group, does not reach it: what is running may
// finish. When it is canceled so are its children, and killRest kills those
// that do not listen. It returns a function to be called when the command has ended.
func alone(cmd *exec.Cmd) (ended func()) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error {
		err := syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM)
		continueGroup(cmd.Process.Pid) // what is stopped does not listen
		return err
	}
	return endWithUs(cmd.SysProcAttr)
}

// killRest kills what is left of the group of a canceled command that is over, once it
// has had time to end by itself: os/exec knows the command alone, and its children would
// run beside the next attempt. Nothing reports the end of a group, so it is polled.
func killRest(cmd *exec.Cmd) {
	for end := time.Now().Add(killAfter); syscall.Kill(-cmd.Process.Pid, 0) == nil; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
			return
		}
	}
}

// isBusy reports whether a command could not start for now, so that it may start later. Other
// errors, such as an argument list that is too long, would come again.
func isBusy(err error) bool {
	return isScarce(err) || errors.Is(err, syscall.ETXTBSY) || errors.Is(err, syscall.EINTR)
}

// isScarce reports whether the system has no room for more. A program that is started needs a
// number for a file that is higher than all others, and if that is beyond the limit it is bad.
func isScarce(err error) bool {
	for _, e := range []error{syscall.EBADF, syscall.EAGAIN, syscall.ENOMEM, syscall.EMFILE, syscall.ENFILE} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// leadsNowhere reports whether a standard file was closed when the program began: then the
// runtime of Go has opened /dev/null in its place, for reading and writing. A shell opens it
// for one of them.
func leadsNowhere(file *os.File) bool {
	flags, err := unix.FcntlInt(file.Fd(), unix.F_GETFL, 0)
	if err != nil || flags&unix.O_ACCMODE != unix.O_RDWR {
		return false
	}
	info, err := file.Stat()
	if err != nil {
		return false
	}
	null, err := os.Stat(os.DevNull)
	return err == nil && os.SameFile(info, null)
}

// unlink deletes the name of an open file, which then goes with the process.
func unlink(file *os.File) error { return os.Remove(file.Name()) }

func closeTemp(file *os.File) { file.Close() }
