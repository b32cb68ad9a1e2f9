package sluiceotel

import (
	"iter"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/sluice-go/sluice/sluicehttp/ratelimit"
)

// published are the instruments of the limits that servers publish.
type published struct{ limit, remaining gauge }

// observe leaves out gates without their own attributes: the remaining quotas of some of them
// cannot be added up.
func (p *published) observe(to metric.Observer, o *Observer, all iter.Seq2[string, []ratelimit.Limit]) {
	for key, limits := range all {
		s := o.byGate(key)
		if s.gate != valid(key) {
			continue
		}
		for _, l := range limits {
			set := metric.WithAttributeSet(attribute.NewSet(gateAttribute(s.gate),
				attribute.String("sluice.limit.name", valid(l.Name)), attribute.String("sluice.limit.unit", valid(l.Unit))))
			if n, known := l.Max.Value(); known {
				to.ObserveFloat64(p.limit.Float64Observable, n, set)
			}
			if n, known := l.Remaining.Value(); known {
				to.ObserveFloat64(p.remaining.Float64Observable, n, set)
			}
		}
	}
}
