package sluiceprom_test

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/observe"
	sluiceprom "github.com/sluice-go/sluice/observe/prometheus"
)

var bg = context.Background()

func mustNew(t *testing.T, cfg sluiceprom.Config) *sluiceprom.Collector {
	t.Helper()
	c, err := sluiceprom.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func mustGate(t *testing.T, cfg sluice.Config) *sluice.Gate {
	t.Helper()
	g, err := sluice.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// gates may be set after the Collector was made that asks for them.
type gates []*sluice.Gate

func (g *gates) stats(yield func(sluice.Stats) bool) { observe.Gates(*g...)(yield) }

func gather(t *testing.T, c prometheus.Collector) map[string]float64 {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(c)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	all := make(map[string]float64)
	for _, f := range families {
		for _, m := range f.GetMetric() {
			name := strings.TrimPrefix(f.GetName(), "sluice_")
			for _, l := range m.GetLabel() {
				name += " " + l.GetValue()
			}
			all[name] = m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	return all
}

// Two calls start per minute and 30 wait, the last for a quarter of an hour: the buckets show
// waits of minutes, and none is beyond them.
func TestConfig_Buckets_LongWaits(t *testing.T) {
	c := mustNew(t, sluiceprom.Config{})
	for i := range 30 {
		c.Observe(sluice.Event{Kind: sluice.EventAdmitted, Gate: "g", N: 1, Wait: time.Duration(i+1) * 30 * time.Second})
	}
	want := map[float64]uint64{30: 1, 60: 2, 300: 10, 900: 30, 3600: 30}
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(c)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	last := 0.0
	for _, f := range families {
		if f.GetName() != "sluice_queue_duration_seconds" {
			continue
		}
		for _, b := range f.GetMetric()[0].GetHistogram().GetBucket() {
			last = b.GetUpperBound()
			if n, ok := want[last]; ok {
				if b.GetCumulativeCount() != n {
					t.Errorf("%d waits of at most %v s, want %d", b.GetCumulativeCount(), last, n)
				}
				delete(want, last)
			}
		}
	}
	if len(want) > 0 || last < 3600 {
		t.Errorf("no bounds of %v; the last is %v s", want, last)
	}
}

func TestNew_BadInput(t *testing.T) {
	for _, cfg := range []sluiceprom.Config{
		{MaxGates: -1},
		{MaxGates: 10_001},
		{MaxHistograms: -1},
		{Buckets: []float64{1, 1}},
		{Buckets: []float64{math.NaN()}},
		{Labels: prometheus.Labels{"gate": "x"}},
		{Labels: prometheus.Labels{"le": "x"}},
		{Labels: prometheus.Labels{"": "x"}},
		{Labels: prometheus.Labels{"app": "\xff"}},
	} {
		if c, err := sluiceprom.New(cfg); err == nil || c != nil || !strings.HasPrefix(err.Error(), "sluiceprom: ") {
			t.Errorf("%+v: %v, %v", cfg, c, err)
		}
	}
}

func TestCollector_Observe_Allocs(t *testing.T) {
	c := mustNew(t, sluiceprom.Config{})
	n := testing.AllocsPerRun(100, func() {
		c.Observe(sluice.Event{Kind: sluice.EventAdmitted, Gate: "g", N: 1, Wait: time.Millisecond})
		c.Observe(sluice.Event{Kind: sluice.EventRejected, Gate: "g", N: 1, Reason: "busy"})
		c.Observe(sluice.Event{Kind: sluice.EventReleased, Gate: "g", N: 1, Held: time.Second})
	})
	if n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// Many goroutines, gates and scrapes at the same time: then the counters are those of Stats.
func TestCollector_Stress(t *testing.T) {
	var all gates
	c := mustNew(t, sluiceprom.Config{})
	for _, name := range []string{"a", "b", "c"} {
		all = append(all, mustGate(t, sluice.Config{
			Name: name, Concurrency: 2, MaxWaiting: 2, Rate: sluice.Rate{Count: 20, Per: time.Millisecond}, RetryBudget: -1, Observer: c.Observe,
		}))
	}
	var wg sync.WaitGroup
	for i := range 12 {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(1, uint64(i)))
			for j := range 200 {
				g := all[r.IntN(len(all))]
				switch r.IntN(4) {
				case 1:
					if p, err := g.AcquireWithin(bg, 1, 0); err == nil {
						p.Release()
					}
				case 2:
					if p, ok := g.TryAcquire(1); ok {
						p.Release()
					}
				}
				policy := sluice.RetryPolicy{Attempts: 2, Backoff: sluice.Constant(time.Millisecond)}
				sluice.Retry(bg, g, func(context.Context) error {
					if j%7 == 0 {
						return errors.New("500")
					}
					return nil
				}, policy)
				if j == 100 {
					testutil.CollectAndCount(c)
				}
			}
		})
	}
	wg.Wait()
	got := gather(t, c)
	total := map[string]uint64{}
	for _, g := range all {
		s := g.Stats()
		for name, want := range map[string]uint64{
			"queue_duration_seconds ": s.Admitted,
			"call_duration_seconds ":  s.Admitted,
			"calls_in_flight ":        0,
			"retries_total ":          s.Retried,
		} {
			if v := got[name+s.Name]; v != float64(want) {
				t.Errorf("%s%s is %v, want %d", name, s.Name, v, want)
			}
		}
		refused := map[string]uint64{
			"busy": s.Rejected.Busy, "deadline": s.Rejected.Deadline, "queue_full": s.Rejected.QueueFull,
		}
		for reason, want := range refused {
			if v := got["calls_rejected_total "+s.Name+" "+reason]; v != float64(want) {
				t.Errorf("%s: %s is %v, want %d", s.Name, reason, v, want)
			}
			total[reason] += want
		}
	}
	if total["busy"] == 0 || total["deadline"] == 0 || total["queue_full"] == 0 {
		t.Errorf("some reason did not occur: %v", total)
	}
}
