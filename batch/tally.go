package batch

import (
	"math/bits"
	"sync"
	"time"

	"github.com/sluice-go/sluice"
)

// Stats are the counts of a [Tally].
type Stats struct {
	OK, Failed, Unfinished, Skipped int64 // items

	// Repeated counts skipped items with a key for which the log has fewer entries than there were
	// items. They may never have run.
	Repeated int64

	Retries int64 // attempts beyond the first of an item

	// Queued counts the delays of first attempts, and Service the durations of attempts.
	Queued, Service sluice.WaitHistogram
}

// A Tally counts the outcomes of one or more batches. Its zero value is valid. It is safe for use
// by multiple goroutines and must not be copied.
type Tally struct {
	mu sync.Mutex
	s  Stats
}

// Stats returns the counts so far.
func (t *Tally) Stats() Stats {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.s
}

func (t *Tally) skipped(repeated bool) {
	t.mu.Lock()
	t.s.Skipped++
	if repeated {
		t.s.Repeated++
	}
	t.mu.Unlock()
}

// departed counts an attempt that starts; queued is for a first attempt.
func (t *Tally) departed(first bool, queued time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if first {
		t.s.Queued[bucket(queued)]++
	} else {
		t.s.Retries++
	}
}

func (t *Tally) arrived(took time.Duration) {
	t.mu.Lock()
	t.s.Service[bucket(took)]++
	t.mu.Unlock()
}

func (t *Tally) finished(s state) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch s {
	case done:
		t.s.OK++
	case failed:
		t.s.Failed++
	default:
		t.s.Unfinished++
	}
}

// bucket returns the index at which a WaitHistogram counts d; 0 is for no wait.
func bucket(d time.Duration) int {
	if d <= 0 {
		return 0
	}
	return min(max(1, bits.Len64(uint64(d/time.Microsecond))), len(sluice.WaitHistogram{})-1)
}
