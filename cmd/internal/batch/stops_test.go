package batch

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// A limit of time does not include the times in which the program was stopped, also if its timer
// fires at the instant at which the program continues, before end is called.
func TestStops_After(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s stops
		start := time.Now()
		fires := make(chan time.Duration, 9)
		s.after(10*time.Second, func() { fires <- time.Since(start) })
		cancel := s.after(10*time.Second, func() { t.Error("it was cancelled") })
		for range 2 {
			time.Sleep(4 * time.Second)
			s.begin()
			time.Sleep(time.Minute)
			s.end()
		}
		s.after(5*time.Second, func() { fires <- time.Since(start) })
		cancel()
		if got := s.stopped(); got != 2*time.Minute {
			t.Errorf("stopped for %v", got)
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		close(fires)
		var fired []time.Duration
		for f := range fires {
			fired = append(fired, f)
		}
		if want := []time.Duration{130 * time.Second, 133 * time.Second}; !slices.Equal(fired, want) {
			t.Errorf("fired after %v, want %v", fired, want)
		}
	})
}

// Who finds nothing left tries again when another one has left, not before, and gives up when all
// others wait, too.
func TestRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r room
		var mu sync.Mutex
		handles := 2
		start := time.Now()
		var ended []time.Duration
		for range 6 {
			go r.use(t.Context(), func() (nothingLeft bool) {
				mu.Lock()
				defer mu.Unlock()
				if handles == 0 {
					return true
				}
				handles--
				mu.Unlock()
				time.Sleep(time.Second)
				mu.Lock()
				handles++
				ended = append(ended, time.Since(start))
				return false
			})
			synctest.Wait()
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if want := []time.Duration{1, 1, 2, 2, 3, 3}; !slices.EqualFunc(ended, want, func(d, w time.Duration) bool { return d == w*time.Second }) {
			t.Errorf("ended after %v", ended)
		}
		if len(r.says()) != 1 {
			t.Error("it says nothing")
		}

		var tries atomic.Int64
		start = time.Now()
		var over sync.WaitGroup
		for range 3 {
			over.Go(func() {
				r.use(t.Context(), func() (nothingLeft bool) { tries.Add(1); time.Sleep(time.Second); return true })
			})
		}
		over.Wait()
		// The last of the three gives up, and with each that does another one tries again.
		if tries.Load() != 5 || time.Since(start) != 3*time.Second || r.inside != 0 {
			t.Errorf("%d tries in %v, %d inside", tries.Load(), time.Since(start), r.inside)
		}

		ctx, cancel := context.WithCancel(t.Context())
		r.enter()
		over.Go(func() { r.use(ctx, func() bool { return true }) })
		synctest.Wait()
		cancel()
		over.Wait()
	})
}
