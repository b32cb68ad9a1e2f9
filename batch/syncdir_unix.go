//go:build darwin || dragonfly || freebsd || illumos || linux || netbsd || openbsd

package batch

import (
	"errors"
	"io/fs"
	"os"
	"syscall"
)

// syncDir writes the names in a directory to the disk. A file system that cannot,
// or a directory that may not be read, is no error: then the name of a new log is
// as safe as the system makes it. Tests replace it.
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
