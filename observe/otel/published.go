package sluiceotel

import (
	"errors"
	"iter"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/sluice-go/sluice/sluicehttp/ratelimit"
)

// published are the instruments of the limits that servers publish.
type published struct{ limit, remaining metric.Float64ObservableGauge }

func newPublished(meter metric.Meter) (*published, error) {
	limit, err := meter.Float64ObservableGauge("sluice.server.limit",
		metric.WithDescription("Limit that the server publishes."))
	remaining, failed := meter.Float64ObservableGauge("sluice.server.remaining",
		metric.WithDescription("What remains of the limit that the server publishes."))
	return &published{limit, remaining}, errors.Join(err, failed)
}

// observe leaves out gates without attributes of their own: what remains for some of them is
// nothing that can be added up.
func (p *published) observe(to metric.Observer, o *Observer, all iter.Seq2[string, []ratelimit.Limit]) {
	for key, limits := range all {
		a := o.table.Of(key)
		if a.name != valid(key) {
			continue
		}
		for _, l := range limits {
			set := metric.WithAttributeSet(attribute.NewSet(attribute.String("sluice.gate.name", a.name),
				attribute.String("sluice.limit.name", valid(l.Name)), attribute.String("sluice.limit.unit", valid(l.Unit))))
			if n, known := l.Max.Value(); known {
				to.ObserveFloat64(p.limit, n, set)
			}
			if n, known := l.Remaining.Value(); known {
				to.ObserveFloat64(p.remaining, n, set)
			}
		}
	}
}
