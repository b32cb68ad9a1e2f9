//go:build !linux

package alarm

import "time"

// Sleep reports false: there is nothing better than a timer here.
func Sleep(d time.Duration) bool { return d <= 0 }
