package sluiceotel_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/embedded"
	"go.opentelemetry.io/otel/metric/noop"
	sdk "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/observe"
	sluiceotel "github.com/sluice-go/sluice/observe/otel"
)

var bg = context.Background()

func mustGate(t *testing.T, cfg sluice.Config) *sluice.Gate {
	t.Helper()
	g, err := sluice.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// gates may be set after the Observer was made that asks for them.
type gates []*sluice.Gate

func (g *gates) stats(yield func(sluice.Stats) bool) { observe.Gates(*g...)(yield) }

// An exporter collects from the SDK when it is asked.
type exporter struct {
	*sluiceotel.Observer
	reader *sdk.ManualReader
}

func newExporter(t *testing.T, cfg sluiceotel.Config) exporter {
	t.Helper()
	reader := sdk.NewManualReader()
	o, err := sluiceotel.New(sdk.NewMeterProvider(sdk.WithReader(reader)), cfg)
	if err != nil {
		t.Fatal(err)
	}
	return exporter{o, reader}
}

// collect returns what the SDK exports, as "name unit attributes": "value".
func (e exporter) collect(t *testing.T) map[string]string {
	t.Helper()
	var collected metricdata.ResourceMetrics
	if err := e.reader.Collect(bg, &collected); err != nil {
		t.Error(err)
	}
	all := make(map[string]string)
	for _, scope := range collected.ScopeMetrics {
		if scope.Scope.Name != "github.com/sluice-go/sluice/observe/otel" {
			t.Errorf("scope %s", scope.Scope.Name)
		}
		for _, m := range scope.Metrics {
			if m.Description == "" {
				t.Errorf("%s has no description", m.Name)
			}
			switch data := m.Data.(type) {
			case metricdata.Sum[int64]:
				for _, p := range data.DataPoints {
					name := m.Name + " " + m.Unit + " " + p.Attributes.Encoded(attribute.DefaultEncoder())
					all[name] = fmt.Sprint(p.Value)
					if !data.IsMonotonic {
						all[name] += " up and down"
					}
				}
			case metricdata.Sum[float64]:
				for _, p := range data.DataPoints {
					name := m.Name + " " + m.Unit + " " + p.Attributes.Encoded(attribute.DefaultEncoder())
					all[name] = fmt.Sprint(p.Value)
					if !data.IsMonotonic {
						all[name] += " up and down"
					}
				}
			case metricdata.Gauge[float64]:
				for _, p := range data.DataPoints {
					name := m.Name + " " + m.Unit + " " + p.Attributes.Encoded(attribute.DefaultEncoder())
					all[name] = fmt.Sprint(p.Value)
				}
			case metricdata.Histogram[float64]:
				for _, p := range data.DataPoints {
					name := m.Name + " " + m.Unit + " " + p.Attributes.Encoded(attribute.DefaultEncoder())
					all[name] = fmt.Sprintf("%d, %.3f in all", p.Count, p.Sum)
				}
			default:
				t.Errorf("%s is a %T", m.Name, data)
			}
		}
	}
	return all
}

func compare(t *testing.T, got, want map[string]string) {
	t.Helper()
	if !maps.Equal(got, want) {
		lines := func(m map[string]string) (s string) {
			for _, k := range slices.Sorted(maps.Keys(m)) {
				s += "\n\t" + k + ": " + m[k]
			}
			return s
		}
		t.Errorf("collected%s\nwant%s", lines(got), lines(want))
	}
}

func TestNew_BadInput(t *testing.T) {
	for _, cfg := range []sluiceotel.Config{{MaxGates: -1}, {MaxGates: 10_001}, {MaxHistograms: -1}} {
		if o, err := sluiceotel.New(noop.NewMeterProvider(), cfg); err == nil || o != nil {
			t.Errorf("%+v: %v, %v", cfg, o, err)
		}
	}
	o, err := sluiceotel.New(failing{}, sluiceotel.Config{Gates: observe.Gates()})
	if o != nil || !errors.Is(err, errFailing) || !strings.HasPrefix(err.Error(), "sluiceotel: ") {
		t.Errorf("%v, %v", o, err)
	}
	defer func() {
		if r := recover(); r != "sluiceotel: New(nil)" {
			t.Errorf("recovered %v", r)
		}
	}()
	sluiceotel.New(nil, sluiceotel.Config{})
}

var errFailing = errors.New("no histograms today")

// failing is a provider that makes no histograms.
type failing struct{ embedded.MeterProvider }

func (failing) Meter(string, ...metric.MeterOption) metric.Meter { return meter{} }

type meter struct{ noop.Meter }

func (meter) Float64Histogram(string, ...metric.Float64HistogramOption) (metric.Float64Histogram, error) {
	return nil, errFailing
}

func TestObserver_Observe_Allocs(t *testing.T) {
	c := newExporter(t, sluiceotel.Config{})
	n := testing.AllocsPerRun(100, func() {
		c.Observe(sluice.Event{Kind: sluice.EventAdmitted, Gate: "g", N: 1, Wait: time.Millisecond})
		c.Observe(sluice.Event{Kind: sluice.EventRejected, Gate: "g", N: 1, Reason: "busy"})
		c.Observe(sluice.Event{Kind: sluice.EventReleased, Gate: "g", N: 1, Held: time.Second})
	})
	if n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// After Close the gates are not asked any more.
func TestObserver_Close(t *testing.T) {
	e := newExporter(t, sluiceotel.Config{Gates: observe.Gates(mustGate(t, sluice.Config{Name: "g"}))})
	if got := e.collect(t); got["sluice.waiting_calls {call} sluice.gate.name=g"] == "" {
		t.Errorf("%v", got)
	}
	if err := e.Close(); err != nil {
		t.Error(err)
	}
	e.Observe(sluice.Event{Kind: sluice.EventQueued, Gate: "g"})
	compare(t, e.collect(t), map[string]string{"sluice.queued_calls {call} sluice.gate.name=g": "1"})
}

func TestObserver_CloseWithoutGates(t *testing.T) {
	if err := newExporter(t, sluiceotel.Config{}).Close(); err != nil {
		t.Error(err)
	}
}

// Many goroutines and collections at the same time: then the counters are those of Stats.
func TestObserver_Stress(t *testing.T) {
	e := newExporter(t, sluiceotel.Config{})
	g := mustGate(t, sluice.Config{
		Name: "g", Concurrency: 2, MaxWaiting: 5, Rate: sluice.Rate{Count: 20, Per: time.Millisecond}, RetryBudget: -1, Observer: e.Observe,
	})
	var wg sync.WaitGroup
	for i := range 12 {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(1, uint64(i)))
			for j := range 200 {
				if p, err := g.AcquireWithin(bg, 1, time.Duration(r.IntN(2))*time.Microsecond); err == nil {
					p.Release()
				}
				if p, ok := g.TryAcquire(1); ok {
					p.Release()
				}
				policy := sluice.RetryPolicy{Attempts: 2, Backoff: sluice.Constant(time.Millisecond)}
				sluice.Retry(bg, g, func(context.Context) error {
					if j%7 == 0 {
						return errors.New("500")
					}
					return nil
				}, policy)
				if j == 100 {
					e.collect(t)
				}
			}
		})
	}
	wg.Wait()
	got, s := e.collect(t), g.Stats()
	for name, want := range map[string]string{
		"sluice.queue.duration s sluice.gate.name=g":                            fmt.Sprint(s.Admitted, ", "),
		"sluice.call.duration s sluice.gate.name=g":                             fmt.Sprint(s.Admitted, ", "),
		"sluice.active_calls {call} sluice.gate.name=g":                         "0 up",
		"sluice.retries {retry} sluice.gate.name=g":                             fmt.Sprint(s.Retried),
		"sluice.rejected_calls {call} error.type=busy,sluice.gate.name=g":       fmt.Sprint(s.Rejected.Busy),
		"sluice.rejected_calls {call} error.type=deadline,sluice.gate.name=g":   fmt.Sprint(s.Rejected.Deadline),
		"sluice.rejected_calls {call} error.type=queue_full,sluice.gate.name=g": fmt.Sprint(s.Rejected.QueueFull),
	} {
		if v := got[name]; v == "" || !strings.HasPrefix(v, want) {
			t.Errorf("%s is %q, want %s", name, v, want)
		}
	}
}
