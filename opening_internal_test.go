package sluice

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice/limits"
)

// What a throttled call teaches replaces the bounds of the first burst, and so does an estimate that is restored. Forgetting it
// does not bring them back, and one that teaches nothing leaves them.
func TestGate_FirstBurst_EndsAtAnEstimate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		busy := errors.New("busy")
		throttled := func(g *Gate) {
			p := limits.Must(g.Acquire(t.Context()))
			p.Done(ThrottledFor(busy, time.Second))
		}
		search := limits.Must(New(Config{Adaptive: Adaptive{Search: true}}))
		throttled(search)

		restored, taught := limits.Must(New(Config{})), limits.Must(New(Config{}))
		if restored.opening == nil || search.opening != nil {
			t.Fatal("a gate without any limit has no bounds, or one that searches has some")
		}
		if err := restored.Restore(search.Snapshot()); err != nil || restored.opening != nil {
			t.Errorf("after Restore: %v, %+v", err, restored.opening)
		}
		p := limits.Must(taught.Acquire(t.Context()))
		p.Done(Throttled(busy))
		if taught.learner == nil && taught.opening == nil || taught.opening != nil && taught.opening.out != 0 {
			t.Errorf("after one throttle: learner %v, %+v", taught.learner != nil, taught.opening)
		}
		for range 10 {
			throttled(taught)
		}
		if taught.learner == nil || taught.opening != nil {
			t.Errorf("after many: learner %v, %+v", taught.learner != nil, taught.opening)
		}
		if taught.Forget(); taught.opening != nil || taught.answersCount.Load() {
			t.Errorf("after Forget: %+v", taught.opening)
		}
	})
}

// A gate that forgets what the first throttled call has taught, because nearly all others of its flight were accepted, leaves
// out the wait that the server asked for: nothing was sent then, which had looked like a rate of one call per second.
func TestGate_MistakenThrottle_LeavesOutTheWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := limits.Must(New(Config{}))
		began := g.queue.Now()
		var calls sync.WaitGroup
		for i := range 32 {
			calls.Go(func() {
				_ = g.Do(t.Context(), func(context.Context) error {
					time.Sleep(time.Duration(i+1) * time.Millisecond)
					if i == 0 {
						return ThrottledFor(errors.New("busy"), time.Minute)
					}
					return nil
				})
			})
		}
		calls.Wait()
		time.Sleep(2 * time.Minute)
		_ = g.Do(t.Context(), func(context.Context) error { return nil })
		if g.learner != nil {
			t.Fatal("it has not forgotten")
		}
		if moved := g.recently.early.at - began; moved < time.Minute || moved > time.Minute+time.Second {
			t.Errorf("earlier calls are thought to have begun %v later than they did", moved)
		}
	})
}
