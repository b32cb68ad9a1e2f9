package sluice

import (
	"errors"
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
