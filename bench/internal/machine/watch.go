package machine

import (
	"runtime"
	"sync/atomic"
	"time"
)

// Stall is from when on a gap in the watch counts as a stall of the machine: it
// asks to be woken after 1 ms, and a machine that runs wakes it within another.
const Stall = 3 * time.Millisecond

// A Watch notices when the machine stands still: a thread that does nothing but
// sleep for 1 ms, again and again, and look how long that took. It sees what
// happens to the CPU it is on, and to processes that are given none.
type Watch struct{ worst atomic.Int64 }

// NewWatch starts a watch, which lasts as long as the process.
func NewWatch() *Watch {
	w := new(Watch)
	go func() {
		runtime.LockOSThread()
		for last := time.Now(); ; {
			nap(time.Millisecond)
			now := time.Now()
			if gap := int64(now.Sub(last)); gap > w.worst.Load() {
				w.worst.Store(gap) // a reset in between is lost, and comes back with the next gap
			}
			last = now
		}
	}()
	return w
}

// Reset forgets what was seen.
func (w *Watch) Reset() { w.worst.Store(0) }

// Worst returns the longest stall since Reset, and 0 if there was none.
func (w *Watch) Worst() time.Duration {
	if d := time.Duration(w.worst.Load()); d >= Stall {
		return d
	}
	return 0
}
