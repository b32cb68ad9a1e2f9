// Package stall notices when the machine stalls, so that the effect of a shared machine on a
// measurement can be distinguished from that of the measured code.
package stall

import (
	"runtime"
	"sync"
	"time"
)

// Least is the shortest gap that is a stall: the watch sleeps for 1 ms, and a
// machine that does not stall wakes it within another.
const Least = 3 * time.Millisecond

// A Stall is a time in which the watch was not woken.
type Stall struct {
	Began  time.Time
	Lasted time.Duration
}

// A Watch is a thread that repeatedly sleeps for 1 ms and measures the time that took. It
// notices when its processor stalls, and when the process gets no processor. It may be
// used by many goroutines.
type Watch struct {
	end  chan struct{}
	done sync.WaitGroup

	mu   sync.Mutex
	seen []Stall
}

// New starts a watch, which lasts until End.
func New() *Watch {
	w := &Watch{end: make(chan struct{})}
	w.done.Go(w.run)
	return w
}

func (w *Watch) run() {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for last := time.Now(); ; {
		Nap(time.Millisecond)
		select {
		case <-w.end:
			return
		default:
		}
		now := time.Now()
		w.look(last, now)
		last = now
	}
}

// look records the time between two looks at the clock if it was a stall.
func (w *Watch) look(last, now time.Time) {
	if now.Sub(last) < Least {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.seen = append(w.seen, Stall{last, now.Sub(last)})
}

// Take returns the stalls seen since it was last called, the oldest first.
func (w *Watch) Take() []Stall {
	w.mu.Lock()
	defer w.mu.Unlock()
	seen := w.seen
	w.seen = nil
	return seen
}

// End ends the watch and waits until it has ended, at most some milliseconds.
// It may be called once.
func (w *Watch) End() {
	close(w.end)
	w.done.Wait()
}

// Longest returns the duration of the longest of them, and 0 if there are none.
func Longest(stalls []Stall) (longest time.Duration) {
	for _, s := range stalls {
		longest = max(longest, s.Lasted)
	}
	return longest
}

// Total returns the duration of all of them.
func Total(stalls []Stall) (total time.Duration) {
	for _, s := range stalls {
		total += s.Lasted
	}
	return total
}
