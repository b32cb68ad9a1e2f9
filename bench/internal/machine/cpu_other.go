//go:build !unix

package machine

import "time"

// CPUTime returns the processor time this process has used, in user and in
// system mode, on all CPUs; 0 where that is not known, as here.
func CPUTime() time.Duration { return 0 }
