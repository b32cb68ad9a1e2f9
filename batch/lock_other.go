//go:build !(darwin || dragonfly || freebsd || illumos || linux || netbsd || openbsd || windows)

package batch

import (
	"errors"
	"os"
)

// openLocked fails: two writers would corrupt a log, and this system has no lock that ends
// with the process.
func openLocked(name string) (*os.File, error) {
	return nil, &os.PathError{Op: "lock", Path: name, Err: errors.ErrUnsupported}
}
