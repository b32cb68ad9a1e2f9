package sluiceredis

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/sluice-go/sluice/limits"
)

// Callers of one machine share scripts, to acquire and to release, and are served in order; some are too
// large, and some leave.
func TestSemaphore_CallersShareScripts(t *testing.T) {
	onBackends(t, func(t *testing.T, b *backend) {
		s := b.storeOn(t, slow{b.client, 2 * time.Millisecond})
		sem := newSemaphore(t, s, "crowd", 100, SemaphoreConfig{Poll: 5 * time.Millisecond})
		first := limits.Must(sem.acquire(bg, 100, time.Minute))
		ctx, cancel := context.WithCancel(bg)
		defer cancel()
		var mu sync.Mutex
		var order []int
		inFlight, most := int64(0), int64(0)
		var wg sync.WaitGroup
		for i := range 400 {
			own := bg
			if i%8 == 3 {
				own = ctx
			}
			n := 1 + int64(i%3)
			wg.Go(func() {
				l, err := sem.acquire(own, n, time.Minute)
				if (err != nil) != (own == ctx) {
					t.Errorf("caller %d: %v", i, err)
				}
				if err != nil {
					return
				}
				mu.Lock()
				order = append(order, i)
				inFlight += n
				most = max(most, inFlight)
				mu.Unlock()
				time.Sleep(time.Millisecond)
				mu.Lock()
				inFlight -= n
				mu.Unlock()
				l.Release()
			})
			for ready := false; !ready; time.Sleep(10 * time.Microsecond) { // until it waits
				sem.mu.Lock()
				ready = len(sem.waiting) > i
				sem.mu.Unlock()
			}
		}
		cancel()
		first.Release()
		wg.Wait()
		if most > 100 || most < 50 {
			t.Errorf("%d permits of 100 were in use", most)
		}
		// Those that are served together wake in any order.
		for at, i := range order {
			if slices.Contains(order[:max(0, at-100)], i) || at > 0 && i < order[at-1]-150 {
				t.Errorf("caller %d after %d", i, order[at-1])
			}
		}
		if got := s.Stats().Scripts; got > 300 {
			t.Errorf("%d scripts for 350 leases", got)
		}
		if used := lentBy(b, sem); used != "" {
			t.Errorf("%s are lent", used)
		}
	})
}
