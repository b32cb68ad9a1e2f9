package sluiceotel

import "go.opentelemetry.io/otel/metric"

// maker makes instruments, and collects the errors.
type maker struct {
	metric.Meter
	errs []error
}

// count makes an instrument for a number that adds up over gates.
func (m *maker) count(name, unit, what string) metric.Int64ObservableUpDownCounter {
	c, err := m.Int64ObservableUpDownCounter(name, metric.WithUnit(unit), metric.WithDescription(what))
	m.errs = append(m.errs, err)
	return c
}

// perSecond makes an instrument for a rate that adds up over gates.
func (m *maker) perSecond(name, what string) metric.Float64ObservableUpDownCounter {
	return m.sum(name, "1/s", what)
}

// sum makes an instrument for a number with a fraction that adds up over gates.
func (m *maker) sum(name, unit, what string) metric.Float64ObservableUpDownCounter {
	c, err := m.Float64ObservableUpDownCounter(name, metric.WithUnit(unit), metric.WithDescription(what))
	m.errs = append(m.errs, err)
	return c
}

// gauge makes an instrument for a number that does not add up. unit may be "".
func (m *maker) gauge(name, unit, what string) metric.Float64ObservableGauge {
	g, err := m.Float64ObservableGauge(name, metric.WithUnit(unit), metric.WithDescription(what))
	m.errs = append(m.errs, err)
	return g
}
