//go:build !linux

package stall

import "time"

// Nap sleeps for d.
func Nap(d time.Duration) { time.Sleep(d) }
