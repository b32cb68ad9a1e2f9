package main

import (
	"context"
	"math"
	"sync"
	"testing"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/internal/testkit/built"
)

// A forecast is the estimate of a gate in the middle of a job, and the time that the rest really took.
type forecast struct {
	estimate sluice.Estimate
	took     time.Duration
	learned  string
}

// foresee plays a world with a job of so many items, and asks the gate after the first half.
func foresee(t *testing.T, w World, cfg func(*World) sluice.Config, items int) (f forecast) {
	w.Demand = Demand{Items: items, Workers: max(16, w.Demand.Workers)}
	w.Seconds = 1e6
	var mu sync.Mutex
	begun, done, cost := 0, 0, 0.
	var asked time.Duration
	e := entry{name: "foresee", library: func(p *process) caller {
		c := cfg(&w)
		c.RetryBudget = -1
		gate, err := sluice.New(c)
		if err != nil {
			t.Fatal(err)
		}
		call := p.through(gate)
		return func(ctx context.Context, w *wish) error {
			mu.Lock()
			begun++
			cost += w.cost
			mu.Unlock()
			err := call(ctx, w)
			mu.Lock()
			defer mu.Unlock()
			if done++; done == items/2 {
				asked = p.bubble.now()
				expected := sluice.ExpectedCall{Costs: sluice.Costs{sluice.Cost: int64(math.Round(cost / float64(begun)))}}
				f.estimate = gate.Estimate(int64(items-begun), expected)
				if l := gate.Stats().Learned; l != nil {
					f.learned = l.String()
				}
			}
			return err
		}
	}}
	g := e.play(&w, 1, bubblesOf(t))
	f.took = g.end - asked
	return f
}

// off returns by how much the estimate is wrong.
func (f forecast) off() float64 { return float64(f.estimate.Total-f.took) / float64(f.took) }

// In the middle of a job an estimate of the rest is right: within 5 % if the gate has the limit and keeps
// to it, within 15 % if it has learned it. These are all worlds with one process and a limit that does
// not change, but two: a liar asks for waits that are wrong, and an overloaded server answers the
// faster the less is left.
func TestEstimate(t *testing.T) {
	built.SkipRaced(t)
	for _, w := range namedWorlds() {
		if len(w.ChangeAt) > 0 || len(w.Incidents) > 0 || w.Processes > 1 || w.Strangers != nil || w.Name == "liar" || w.Name == "overload" {
			continue
		}
		for _, told := range []bool{false, true} {
			cfg := func(*World) sluice.Config { return sluice.Config{} }
			if told && w.Told == 0 {
				continue
			} else if told {
				cfg = toldSluice
			}
			f := foresee(t, *w, cfg, max(2000, int(20*w.Told)))
			t.Logf("%-12s told %-5v %+5.1f%% of %v, by %s %s; %s", w.Name, told, 100*f.off(), f.took.Round(time.Millisecond), f.estimate.LimitedBy, f.estimate.Unknown, f.learned)
			bound := .15
			if f.learned == "" {
				bound = .05
			}
			if math.Abs(f.off()) > bound && f.estimate.Unknown == "" {
				t.Errorf("%s, told %v: %+.1f%% of %v: %+v; %s", w.Name, told, 100*f.off(), f.took, f.estimate, f.learned)
			}
		}
	}
}
