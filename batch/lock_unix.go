//go:build darwin || dragonfly || freebsd || illumos || linux || netbsd || openbsd

package batch

import (
	"os"
	"syscall"
)

// openLocked opens the file of a log exclusively. The lock belongs to the open file, so it
// ends with the process.
func openLocked(name string) (*os.File, error) {
	file, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	err = syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if err == nil {
		return file, nil
	}
	file.Close()
	if err == syscall.EWOULDBLOCK {
		return nil, errLogInUse
	}
	return nil, &os.PathError{Op: "flock", Path: name, Err: err}
}
