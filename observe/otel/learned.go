package sluiceotel

import (
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/sluice-go/sluice/observe"
)

// learned are the instruments of what gates have learned.
type learned struct {
	pace, rate, proven, refuted, share    metric.Float64ObservableUpDownCounter
	peers, concurrency, refusals, blocked metric.Int64ObservableUpDownCounter
}

func newLearned(m *maker) *learned {
	return &learned{
		pace:        m.perSecond("sluice.learned.pace", "Pace at which calls leave."),
		rate:        m.perSecond("sluice.learned.rate", "Rate that the server is believed to grant."),
		proven:      m.perSecond("sluice.learned.proven_rate", "Lower bound of the rate that the server grants."),
		refuted:     m.perSecond("sluice.learned.refuted_rate", "Upper bound of the rate that the server grants."),
		share:       m.sum("sluice.learned.share", "1", "Part of the learned limit that the gate may use."),
		peers:       m.count("sluice.learned.peers", "{gate}", "Gates that share the learned limit, 0 while the others cannot be reached."),
		concurrency: m.count("sluice.learned.concurrency", "{call}", "Learned bound of the calls in flight."),
		refusals:    m.count("sluice.learned.refusals", "{call}", "Calls that the server refused."),
		blocked:     m.count("sluice.blocked_gates", "{gate}", "Gates whose server grants nothing."),
	}
}

func (l *learned) all() []metric.Observable {
	return []metric.Observable{l.pace, l.rate, l.proven, l.refuted, l.share, l.peers, l.concurrency, l.refusals, l.blocked}
}

func (l *learned) observe(to metric.Observer, t *observe.Totals, a *attributes) {
	if t.Learning == 0 {
		return
	}
	to.ObserveInt64(l.blocked, int64(t.Blocked), a.set)
	for unit, s := range t.Learned {
		set := metric.WithAttributeSet(attribute.NewSet(
			attribute.String("sluice.gate.name", a.name), attribute.String("sluice.unit", valid(string(unit)))))
		to.ObserveInt64(l.refusals, int64(s.Refusals), set)
		// A 0 says that there is no such value: as a number it would be a lie.
		for _, one := range []struct {
			counter metric.Float64ObservableUpDownCounter
			value   float64
		}{{l.pace, s.Pace}, {l.rate, s.Rate}, {l.proven, s.Proven}, {l.refuted, s.Refuted}, {l.share, s.Share}} {
			if one.value > 0 {
				to.ObserveFloat64(one.counter, one.value, set)
			}
		}
		if s.Share > 0 { // then no peers are a fact
			to.ObserveInt64(l.peers, s.Peers, set)
		}
		if s.Concurrency > 0 {
			to.ObserveInt64(l.concurrency, s.Concurrency, set)
		}
	}
}
