package sluiceprom

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/observe"
)

// An eventMetric is a metric that events change, or responses.
type eventMetric struct {
	observe.Metric
	prometheus.Collector
	with func(labels ...string) func(value float64) // records values of a series
}

// newEventMetric returns a metric with some options.
func newEventMetric(m observe.Metric, opts prometheus.Opts, buckets []float64) eventMetric {
	labels := []string{"gate"}
	if m.Label != "" {
		labels = append(labels, m.Label)
	}
	switch m.Kind {
	case "histogram":
		v := prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: opts.Name, Help: opts.Help, ConstLabels: opts.ConstLabels, Buckets: buckets,
		}, labels)
		return eventMetric{m, v, func(l ...string) func(float64) { return v.WithLabelValues(l...).Observe }}
	case "counter":
		v := prometheus.NewCounterVec(prometheus.CounterOpts(opts), labels)
		return eventMetric{m, v, func(l ...string) func(float64) { return v.WithLabelValues(l...).Add }}
	}
	v := prometheus.NewGaugeVec(prometheus.GaugeOpts(opts), labels)
	return eventMetric{m, v, func(l ...string) func(float64) { return v.WithLabelValues(l...).Add }}
}

// byLabel returns the series of a gate, by the values of the label. Those that are known are there
// from the start, the others once there was one.
func (m *eventMetric) byLabel(gate string) func(string) func(float64) {
	of := observe.ByName(m.MaxValues, func(value string) func(float64) { return m.with(gate, valid(value)) })
	for _, value := range m.Values {
		of(value)
	}
	return of
}

// series are those of one gate.
type series struct {
	gate      string
	changes   map[sluice.EventKind][]change
	responses func(string) func(float64) // by code
}

// A change is the effect of a kind of event: one series, or one for each reason.
type change struct {
	value    func(sluice.Event) float64
	record   func(float64)
	byReason func(string) func(float64)
}

// seriesOf returns the series of a gate.
func (c *Collector) seriesOf(gate string) *series {
	timed := c.timed(gate)
	gate = valid(gate)
	s := &series{gate: gate, changes: make(map[sluice.EventKind][]change)}
	for i := range c.events {
		m := &c.events[i]
		var to change
		switch {
		case m.Event == nil:
			s.responses = m.byLabel(gate)
			continue
		case m.Label != "":
			to.byReason = m.byLabel(gate)
		case m.Kind == "histogram":
			to.record = m.with(timed)
		default:
			to.record = m.with(gate)
		}
		for kind, value := range m.Event {
			to.value = value
			s.changes[kind] = append(s.changes[kind], to)
		}
	}
	return s
}

// A gauge is one of the metrics for Config.Gates.
type gauge struct {
	observe.Metric
	desc *prometheus.Desc
}

// collect collects the values for the gates of one label.
func (g *gauge) collect(ch chan<- prometheus.Metric, t *observe.Totals, gate string) {
	g.Totals(t, func(label string, value float64) {
		labels := append(make([]string, 0, 2), gate)
		if g.Label != "" {
			labels = append(labels, valid(label))
		}
		ch <- prometheus.MustNewConstMetric(g.desc, prometheus.GaugeValue, value, labels...)
	})
}
