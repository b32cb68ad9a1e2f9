package sluice_test

import (
	"context"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/leaky"
	"github.com/sluice-go/sluice/limits"
	"github.com/sluice-go/sluice/window"
)

// However many calls race for the places and the slots of a gate, of a parent and of their limits,
// the limits have given exactly what left.
func TestGate_LimitsOfThisProcess_GaveWhatLeft(t *testing.T) {
	const most = 1 << 20
	yield := func(context.Context) error { // others find its place taken
		runtime.Gosched()
		return nil
	}
	for _, withParent := range []bool{false, true} {
		own := limits.Must(window.NewFixed(window.Quota{Limit: most, Window: 100 * time.Hour}))
		above := limits.Must(window.NewFixed(window.Quota{Limit: most, Window: 100 * time.Hour}))
		cfg := sluice.Config{
			Concurrency: 3, Rate: sluice.Rate{Count: 1e6, Per: time.Second},
			Limits: []sluice.Limit{{Name: "own", Limiter: own}},
		}
		if withParent {
			cfg.Parent = mustGate(t, sluice.Config{Concurrency: 2, Limits: []sluice.Limit{{Name: "above", Limiter: above}}})
		}
		g := mustGate(t, cfg)
		var callers sync.WaitGroup
		for i := range 16 {
			callers.Go(func() {
				for range 500 {
					if i%4 == 0 {
						if p, ok := g.TryAcquire(1); ok {
							p.Release()
						}
					} else if err := g.Do(bg, yield); err != nil {
						t.Error(err)
					}
				}
			})
		}
		callers.Wait()
		left := int64(g.Stats().Admitted)
		if took := most - own.Take(0).Remaining; took != left {
			t.Errorf("parent %v: %d calls left, and their limit gave %d", withParent, left, took)
		}
		if took := most - above.Take(0).Remaining; withParent && took != left {
			t.Errorf("%d calls left, and the limit of the parent gave %d", left, took)
		}
		if got := g.Stats().InFlight; got != 0 {
			t.Errorf("parent %v: %d in flight", withParent, got)
		}
	}
}

// A call that the limits of its gate and of its parent let leave does not queue, so that nothing
// is allocated for a place in one.
func TestGate_LimitsOfThisProcess_NoQueue(t *testing.T) {
	bucket := limits.Must(leaky.New(sluice.Rate{Count: 1e6, Per: time.Second, Burst: 1e6}))
	limit := []sluice.Limit{{Name: "bucket", Limiter: bucket}}
	parent := mustGate(t, sluice.Config{Limits: limit})
	for name, cfg := range map[string]sluice.Config{
		"own":            {Limits: limit},
		"of the parent":  {Parent: parent},
		"own and parent": {Parent: parent, Limits: limit},
	} {
		g := mustGate(t, cfg)
		most := 0.
		if cfg.Parent != nil {
			most = 1 // the permit of the parent
		}
		if got := testing.AllocsPerRun(100, func() { _ = g.Do(bg, nothing) }); got > most {
			t.Errorf("%s: %v allocations for a call, want %v", name, got, most)
		}
	}
}
