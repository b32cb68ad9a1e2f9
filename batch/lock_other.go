//go:build !(darwin || dragonfly || freebsd || illumos || linux || netbsd || openbsd || windows)

package batch

import (
	"errors"
	"os"
)

// openLocked refuses: two writers would spoil a log, and there is no lock here
// that ends with the process.
func openLocked(name string) (*os.File, error) {
	return nil, &os.PathError{Op: "lock", Path: name, Err: errors.ErrUnsupported}
}
