package sluiceprom_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
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

const want = `
# HELP sluice_call_duration_seconds Time that calls were in flight.
# TYPE sluice_call_duration_seconds histogram
sluice_call_duration_seconds_bucket{app="x",gate="api",le="0.5"} 3
sluice_call_duration_seconds_bucket{app="x",gate="api",le="2"} 4
sluice_call_duration_seconds_bucket{app="x",gate="api",le="+Inf"} 4
sluice_call_duration_seconds_sum{app="x",gate="api"} 1
sluice_call_duration_seconds_count{app="x",gate="api"} 4
# HELP sluice_calls_admitted_total Admitted calls.
# TYPE sluice_calls_admitted_total counter
sluice_calls_admitted_total{app="x",gate="api"} 5
# HELP sluice_calls_in_flight Calls in flight.
# TYPE sluice_calls_in_flight gauge
sluice_calls_in_flight{app="x",gate="api"} 1
# HELP sluice_calls_queued_total Calls that had to wait.
# TYPE sluice_calls_queued_total counter
sluice_calls_queued_total{app="x",gate="api"} 5
# HELP sluice_calls_refused_total Refused calls, by reason.
# TYPE sluice_calls_refused_total counter
sluice_calls_refused_total{app="x",gate="api",reason="busy"} 1
sluice_calls_refused_total{app="x",gate="api",reason="cancelled"} 0
sluice_calls_refused_total{app="x",gate="api",reason="closed"} 0
sluice_calls_refused_total{app="x",gate="api",reason="deadline"} 0
sluice_calls_refused_total{app="x",gate="api",reason="other"} 0
sluice_calls_refused_total{app="x",gate="api",reason="queue_full"} 1
sluice_calls_refused_total{app="x",gate="api",reason="too_large"} 0
# HELP sluice_calls_waiting Calls that wait.
# TYPE sluice_calls_waiting gauge
sluice_calls_waiting{app="x",gate="api"} 2
# HELP sluice_concurrency Most calls in flight, in force.
# TYPE sluice_concurrency gauge
sluice_concurrency{app="x",gate="api"} 2
# HELP sluice_limited_by Gates whose first caller waits, by what it waits for.
# TYPE sluice_limited_by gauge
sluice_limited_by{app="x",cause="pause",gate="api"} 1
# HELP sluice_pause_left_seconds Time until the pause ends.
# TYPE sluice_pause_left_seconds gauge
sluice_pause_left_seconds{app="x",gate="api"} 3540
# HELP sluice_oldest_wait_seconds How long the call has waited that has waited longest, 0 if none waits.
# TYPE sluice_oldest_wait_seconds gauge
sluice_oldest_wait_seconds{app="x",gate="api"} 60
# HELP sluice_paused Gates that are paused.
# TYPE sluice_paused gauge
sluice_paused{app="x",gate="api"} 1
# HELP sluice_pauses_total Pauses, and extensions of a pause.
# TYPE sluice_pauses_total counter
sluice_pauses_total{app="x",gate="api"} 1
# HELP sluice_queue_duration_seconds Time that granted calls waited.
# TYPE sluice_queue_duration_seconds histogram
sluice_queue_duration_seconds_bucket{app="x",gate="api",le="0.5"} 5
sluice_queue_duration_seconds_bucket{app="x",gate="api",le="2"} 5
sluice_queue_duration_seconds_bucket{app="x",gate="api",le="+Inf"} 5
sluice_queue_duration_seconds_sum{app="x",gate="api"} 0.748
sluice_queue_duration_seconds_count{app="x",gate="api"} 5
# HELP sluice_rate Rate in force, per second.
# TYPE sluice_rate gauge
sluice_rate{app="x",gate="api"} 4
# HELP sluice_retries_total Retries.
# TYPE sluice_retries_total counter
sluice_retries_total{app="x",gate="api"} 2
# HELP sluice_retry_tokens Tokens in the retry budget.
# TYPE sluice_retry_tokens gauge
sluice_retry_tokens{app="x",gate="api"} 100
`

// Everything that a scrape shows after a story of a few seconds, to the last digit.
func TestCollector_Metrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var all gates
		c := mustNew(t, sluiceprom.Config{Buckets: []float64{0.5, 2}, Gates: all.stats, Labels: prometheus.Labels{"app": "x"}})
		g := mustGate(t, sluice.Config{Name: "api", Concurrency: 2, Rate: sluice.Rate{Count: 4, Per: time.Second}, MaxWaiting: 2, Observer: c.Observe})
		all = gates{g}

		attempts := 0
		policy := sluice.RetryPolicy{Backoff: sluice.Constant(time.Millisecond)}
		sluice.Retry(bg, g, policy, func(context.Context) error { // leaves at 0, 0.25 and 0.5
			if attempts++; attempts < 3 {
				return errors.New("500")
			}
			return nil
		})
		g.TryAcquire(1) // its turn is at 0.75
		g.Do(bg, func(context.Context) error { time.Sleep(time.Second); return nil })
		g.Acquire(bg, 1) // at 1.75, and stays
		g.PauseUntil(time.Now().Add(time.Hour), "429")
		ctx, cancel := context.WithCancel(bg)
		defer cancel()
		for range 3 { // the third is one too many
			go g.Acquire(ctx, 1)
			synctest.Wait()
		}
		time.Sleep(time.Minute) // of the pause
		if err := testutil.CollectAndCompare(c, strings.NewReader(want)); err != nil {
			t.Error(err)
		}
		if problems, err := testutil.CollectAndLint(c); err != nil || len(problems) > 0 {
			t.Errorf("%v, %v", problems, err)
		}
	})
}

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

// Beyond MaxGates they are counted together, in the gauges as well.
func TestConfig_MaxGates(t *testing.T) {
	var all gates
	c := mustNew(t, sluiceprom.Config{MaxGates: 2, Gates: all.stats})
	for i := range 5 {
		g := mustGate(t, sluice.Config{Name: fmt.Sprint(i), RetryBudget: 10, Observer: c.Observe})
		all = append(all, g)
		if p, _ := g.TryAcquire(1); i == 0 {
			p.Release()
		}
		g.PauseUntil(time.Now().Add(time.Hour), "")
	}
	got := gather(t, c)
	for name, want := range map[string]float64{
		"queue_duration_seconds 0": 1, "queue_duration_seconds 1": 1, "queue_duration_seconds other": 3,
		"calls_in_flight 0": 0, "calls_in_flight 1": 1, "calls_in_flight other": 3,
		"pauses_total 0": 1, "pauses_total other": 3,
		"paused 0": 1, "paused 1": 1, "paused other": 3,
		"retry_tokens 1": 10, "retry_tokens other": 30,
	} {
		if v, ok := got[name]; !ok || v != want {
			t.Errorf("%s is %v, %v, want %v", name, v, ok, want)
		}
	}
	if len(got) != 3*(7+7+5) { // for each name, 7 of them by reason and 5 that are asked for
		t.Errorf("%d series: %v", len(got), got)
	}
}

// Beyond MaxHistograms gates still have all their other series.
func TestConfig_MaxHistograms(t *testing.T) {
	c := mustNew(t, sluiceprom.Config{MaxHistograms: 1})
	for i, name := range []string{"a", "b", "b", "c"} {
		c.Observe(sluice.Event{Kind: sluice.EventGranted, Gate: name, N: 1, Wait: time.Duration(i) * time.Second})
	}
	got := gather(t, c)
	for name, want := range map[string]float64{
		"queue_duration_seconds a": 1, "queue_duration_seconds other": 3,
		"calls_admitted_total a": 1, "calls_admitted_total b": 2, "calls_admitted_total c": 1, "calls_in_flight b": 2,
	} {
		if got[name] != want {
			t.Errorf("%s is %v, want %v", name, got[name], want)
		}
	}
	for _, name := range []string{"queue_duration_seconds b", "call_duration_seconds c", "calls_admitted_total other"} {
		if v, ok := got[name]; ok {
			t.Errorf("%s is there: %v", name, v)
		}
	}
}

// Two calls start per minute and 30 wait, the last for a quarter of an hour: the buckets show
// waits of minutes, and none is beyond them.
func TestConfig_Buckets_LongWaits(t *testing.T) {
	c := mustNew(t, sluiceprom.Config{})
	for i := range 30 {
		c.Observe(sluice.Event{Kind: sluice.EventGranted, Gate: "g", N: 1, Wait: time.Duration(i+1) * 30 * time.Second})
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

func TestConfig_NoGates(t *testing.T) {
	c := mustNew(t, sluiceprom.Config{})
	if got := gather(t, c); len(got) != 0 {
		t.Errorf("%v", got)
	}
	c.Observe(sluice.Event{Kind: sluice.EventResumed, Gate: "g"})
	if got := gather(t, c); len(got) != 7+7 {
		t.Errorf("%v", got)
	}
}

// A name that is no UTF-8, such as that of a host that a client sent, and events
// that are not known yet.
func TestNew_BadInput(t *testing.T) {
	bad := mustGate(t, sluice.Config{Name: "a\xff"})
	c := mustNew(t, sluiceprom.Config{Gates: observe.Gates(bad, mustGate(t, sluice.Config{Name: "a\xfe"}))})
	for _, name := range []string{"a\xff", "a\xfe"} {
		c.Observe(sluice.Event{Kind: sluice.EventQueued, Gate: name})
	}
	c.Observe(sluice.Event{Kind: sluice.EventRefused, Gate: "g"})
	c.Observe(sluice.Event{Kind: sluice.EventRefused, Gate: "g", Reason: "new"})
	c.Observe(sluice.Event{Kind: "unknown", Gate: "g"})
	c.Observe(sluice.Event{})
	got := gather(t, c)
	if got["calls_queued_total a\ufffd"] != 2 || got["retry_tokens a\ufffd"] != 200 || got["calls_refused_total g other"] != 2 {
		t.Errorf("%v", got)
	}

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
		c.Observe(sluice.Event{Kind: sluice.EventGranted, Gate: "g", N: 1, Wait: time.Millisecond})
		c.Observe(sluice.Event{Kind: sluice.EventRefused, Gate: "g", N: 1, Reason: "busy"})
		c.Observe(sluice.Event{Kind: sluice.EventReleased, Gate: "g", N: 1, Held: time.Second})
	})
	if n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// Many goroutines, gates and scrapes at once: then the counters are those of Stats.
func TestCollector_Stress(t *testing.T) {
	var all gates
	c := mustNew(t, sluiceprom.Config{})
	for _, name := range []string{"a", "b", "c"} {
		all = append(all, mustGate(t, sluice.Config{
			Name: name, Concurrency: 2, MaxWaiting: 5, Rate: sluice.Rate{Count: 20, Per: time.Millisecond}, RetryBudget: -1, Observer: c.Observe,
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
				sluice.Retry(bg, g, policy, func(context.Context) error {
					if j%7 == 0 {
						return errors.New("500")
					}
					return nil
				})
				if j == 100 {
					testutil.CollectAndCount(c)
				}
			}
		})
	}
	wg.Wait()
	got := gather(t, c)
	for _, g := range all {
		s := g.Stats()
		for name, want := range map[string]uint64{
			"queue_duration_seconds ": s.Granted,
			"call_duration_seconds ":  s.Granted,
			"calls_in_flight ":        0,
			"retries_total ":          s.Retried,
		} {
			if v := got[name+s.Name]; v != float64(want) {
				t.Errorf("%s%s is %v, want %d", name, s.Name, v, want)
			}
		}
		refused := map[string]uint64{
			"busy": s.Refused.Busy, "deadline": s.Refused.Deadline, "queue_full": s.Refused.QueueFull,
		}
		for reason, want := range refused {
			if v := got["calls_refused_total "+s.Name+" "+reason]; v != float64(want) || want == 0 {
				t.Errorf("%s: %s is %v, want %d", s.Name, reason, v, want)
			}
		}
	}
}
