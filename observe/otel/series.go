package sluiceotel

import (
	"context"
	"strconv"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/observe"
)

// An instrument is one for a metric that events change, or for responses.
type instrument struct {
	observe.Metric
	with func(attributes attribute.Set) func(value float64) // records values of a series
}

// newInstrument returns the instrument for a metric. Its options are made once for each series, so
// that calls do not allocate.
func newInstrument(meter metric.Meter, m observe.Metric) (instrument, error) {
	name, unit, help := "sluice."+m.OTel, metric.WithUnit(m.Unit), metric.WithDescription(m.Help)
	ctx := context.Background() // events have no context
	switch m.Kind {
	case "histogram":
		h, err := meter.Float64Histogram(name, unit, help, metric.WithExplicitBucketBoundaries(m.Buckets...))
		return instrument{m, func(set attribute.Set) func(float64) {
			options := []metric.RecordOption{metric.WithAttributeSet(set)}
			return func(v float64) { h.Record(ctx, v, options...) }
		}}, err
	case "counter":
		c, err := meter.Int64Counter(name, unit, help)
		return instrument{m, adder(func(v int64, o []metric.AddOption) { c.Add(ctx, v, o...) })}, err
	}
	c, err := meter.Int64UpDownCounter(name, unit, help)
	return instrument{m, adder(func(v int64, o []metric.AddOption) { c.Add(ctx, v, o...) })}, err
}

// adder is the with of an instrument that counts.
func adder(add func(v int64, options []metric.AddOption)) func(attribute.Set) func(float64) {
	return func(set attribute.Set) func(float64) {
		options := []metric.AddOption{metric.WithAttributeSet(set)}
		return func(v float64) { add(int64(v), options) }
	}
}

// byLabel returns the series of a gate, by the values of the attribute. Those that are known have
// their place from the start.
func (i *instrument) byLabel(gate attribute.KeyValue) func(string) func(float64) {
	of := observe.ByName(i.MaxValues, func(value string) func(float64) {
		return i.with(attribute.NewSet(gate, i.attribute(value)))
	})
	for _, value := range i.Values {
		of(value)
	}
	return of
}

// attribute returns the attribute with a value.
func (i *instrument) attribute(value string) attribute.KeyValue {
	if i.Event != nil {
		return attribute.String(i.Attribute, valid(value))
	}
	status, err := strconv.Atoi(value) // it fails for "other" ones, which have the status 0
	if err == nil && status == 0 {
		return attribute.String("error.type", "no_response")
	}
	return attribute.Int(i.Attribute, status)
}

// series are those of one gate.
type series struct {
	gate      string
	set       metric.MeasurementOption
	changes   map[sluice.EventKind][]change
	responses func(string) func(float64) // by status code
}

// A change is the effect of a kind of event: one series, or one for each reason.
type change struct {
	value    func(sluice.Event) float64
	record   func(float64)
	byReason func(string) func(float64)
}

func gateAttribute(gate string) attribute.KeyValue { return attribute.String("sluice.gate.name", gate) }

// seriesOf returns the series of a gate.
func (o *Observer) seriesOf(gate string) *series {
	timed := o.timed(gate)
	gate = valid(gate)
	name := gateAttribute(gate)
	s := &series{gate: gate, set: metric.WithAttributeSet(attribute.NewSet(name)), changes: make(map[sluice.EventKind][]change)}
	for i := range o.instruments {
		m := &o.instruments[i]
		var to change
		switch {
		case m.Event == nil:
			s.responses = m.byLabel(name)
			continue
		case m.Label != "":
			to.byReason = m.byLabel(name)
		case m.Kind == "histogram":
			to.record = m.with(attribute.NewSet(gateAttribute(timed)))
		default:
			to.record = m.with(attribute.NewSet(name))
		}
		for kind, value := range m.Event {
			to.value = value
			s.changes[kind] = append(s.changes[kind], to)
		}
	}
	return s
}

// A gauge is one of the instruments for Config.Gates: an up-down counter if its values can be
// added up over programs.
type gauge struct {
	observe.Metric
	metric.Float64Observable
}

func newGauge(meter metric.Meter, m observe.Metric) (g gauge, err error) {
	name, unit, help := "sluice."+m.OTel, metric.WithUnit(m.Unit), metric.WithDescription(m.Help)
	g.Metric = m
	if m.Kind == "sum" {
		g.Float64Observable, err = meter.Float64ObservableUpDownCounter(name, unit, help)
	} else {
		g.Float64Observable, err = meter.Float64ObservableGauge(name, unit, help)
	}
	return g, err
}

// observe observes the values for the gates of one name.
func (g *gauge) observe(to metric.Observer, t *observe.Totals, s *series) {
	g.Totals(t, func(label string, value float64) {
		set := s.set
		if g.Label != "" {
			set = metric.WithAttributeSet(attribute.NewSet(gateAttribute(s.gate), attribute.String(g.Attribute, valid(label))))
		}
		to.ObserveFloat64(g.Float64Observable, value, set)
	})
}
