//go:build darwin || dragonfly || freebsd || illumos || linux || netbsd || openbsd

package batch

import (
	"errors"
	"io/fs"
	"os"
	"syscall"
)

// syncDir writes the entries of a directory to the disk. It returns nil if the file system
// cannot do that or the directory cannot be read. Tests replace it.
var syncDir = func(dir string) error {
	d, err := os.Open(dir)
	if errors.Is(err, fs.ErrPermission) {
		return nil
	}
	if err != nil {
		return err
	}
	defer d.Close()
	err = d.Sync()
	if errors.Is(err, syscall.EINVAL) || errors.Is(err, errors.ErrUnsupported) {
		return nil
	}
	return err
}
