//go:build !linux

package machine

import "time"

func nap(d time.Duration) { time.Sleep(d) }
