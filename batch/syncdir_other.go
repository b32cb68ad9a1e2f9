//go:build !(darwin || dragonfly || freebsd || illumos || linux || netbsd || openbsd)

package batch

// syncDir does nothing: a directory cannot be synced here. Tests replace it.
var syncDir = func(dir string) error { return nil }
