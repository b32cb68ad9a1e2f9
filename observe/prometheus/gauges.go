package sluiceprom

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/sluice-go/sluice/observe"
	"github.com/sluice-go/sluice/observe/internal/metrics"
)

// newDesc returns the description of a metric with the label gate and further ones.
type newDesc func(name, help string, labels ...string) *prometheus.Desc

// A gauge is one of the metrics for Config.Gates.
type gauge struct {
	metrics.Gauge
	desc *prometheus.Desc
}

func newGauges(desc newDesc) (all []gauge) {
	for _, g := range metrics.Gauges() {
		var labels []string
		if g.Label != "" {
			labels = append(labels, g.Label)
		}
		all = append(all, gauge{g, desc(g.Prometheus, g.Help, labels...)})
	}
	return all
}

// collect collects the values for the gates of one label.
func (g *gauge) collect(ch chan<- prometheus.Metric, t *observe.Totals, gate string) {
	g.Each(t, func(label string, value float64) {
		labels := append(make([]string, 0, 2), gate)
		if g.Label != "" {
			labels = append(labels, valid(label))
		}
		ch <- prometheus.MustNewConstMetric(g.desc, prometheus.GaugeValue, value, labels...)
	})
}
