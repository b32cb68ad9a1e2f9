package sluice_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/internal/testkit/built"
)

// Users in one process are not held up by the batches of others that share the limit, although their gates
// know nothing of classes: a process that wants less than an equal share gets that first. One that was silent
// for a second has to wait until the others have reported.
func TestPeers_AUserBesideBatchesElsewhere(t *testing.T) {
	built.SkipRaced(t)
	const rate, burst, batches, waiting = 10., 10., 3, 600
	for _, every := range []time.Duration{time.Second, 10 * time.Second} {
		t.Run(every.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newMeeting()
				var mu sync.Mutex
				used, at := 0., time.Now()
				take := func() bool {
					mu.Lock()
					defer mu.Unlock()
					now := time.Now()
					used, at = max(0, used-now.Sub(at).Seconds()*rate), now
					if used > burst-1 {
						return false
					}
					used++
					return true
				}
				call := func(ctx context.Context, g *sluice.Gate) {
					_ = sluice.Retry(ctx, g, func(context.Context) error {
						ok := take()
						time.Sleep(20 * time.Millisecond)
						if !ok {
							return sluice.Throttled(errAway)
						}
						return nil
					}, sluice.RetryPolicy{})
				}
				ctx, cancel := context.WithCancel(t.Context())
				var all sync.WaitGroup
				for range batches {
					g := sharing(t, m, sluice.Config{})
					for range waiting {
						all.Go(func() {
							for ctx.Err() == nil {
								call(ctx, g)
							}
						})
					}
				}
				time.Sleep(time.Minute)
				users := sharing(t, m, sluice.Config{})
				var took []time.Duration
				for range 100 {
					time.Sleep(every)
					start := time.Now()
					call(ctx, users)
					took = append(took, time.Since(start))
				}
				cancel()
				all.Wait()
				slices.Sort(took)
				// One that is throttled several times in a row waits for long backoffs, by chance.
				if took[50] > 100*time.Millisecond || took[90] > 2*time.Second || took[98] > 10*time.Second || took[99] > 30*time.Second {
					t.Errorf("calls of users took %v in the median, nine of ten at most %v, all but one at most %v, all at most %v",
						took[50], took[90], took[98], took[99])
				}
			})
		})
	}
}
