package sluiceotel

import (
	"errors"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/sluice-go/sluice/observe"
	"github.com/sluice-go/sluice/observe/internal/metrics"
)

// A gauge is one of the instruments for Config.Gates: an up-down counter if its values can be
// added up over programs.
type gauge struct {
	metrics.Gauge
	metric.Float64Observable
}

func newGauges(meter metric.Meter) (all []gauge, err error) {
	for _, g := range metrics.Gauges() {
		name, unit, help := "sluice."+g.OTel, metric.WithUnit(g.Unit), metric.WithDescription(g.Help)
		var instrument metric.Float64Observable
		var failed error
		if g.Sums {
			instrument, failed = meter.Float64ObservableUpDownCounter(name, unit, help)
		} else {
			instrument, failed = meter.Float64ObservableGauge(name, unit, help)
		}
		err = errors.Join(err, failed)
		all = append(all, gauge{g, instrument})
	}
	return all, err
}

// observe observes the values for the gates of one name.
func (g *gauge) observe(to metric.Observer, t *observe.Totals, a *attributes) {
	g.Each(t, func(label string, value float64) {
		set := a.set
		if g.Attribute != "" {
			set = metric.WithAttributeSet(attribute.NewSet(
				attribute.String("sluice.gate.name", a.name), attribute.String("sluice."+g.Attribute, valid(label))))
		}
		to.ObserveFloat64(g.Float64Observable, value, set)
	})
}
