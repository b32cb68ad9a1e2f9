package sluiceotel

import (
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/sluice-go/sluice/observe"
)

// state are the instruments of what gates are doing.
type state struct {
	rate, pauseLeft                                 metric.Float64ObservableGauge
	waiting, limitedBy, concurrency, paused, tokens metric.Int64ObservableUpDownCounter
}

func newState(m *maker) *state {
	return &state{
		waiting:     m.count("sluice.waiting_calls", "{call}", "Calls that wait."),
		limitedBy:   m.count("sluice.limited_gates", "{gate}", "Gates whose first caller waits, by what it waits for."),
		rate:        m.gauge("sluice.rate", "1/s", "Rate in force."),
		concurrency: m.count("sluice.concurrency", "{call}", "Most calls in flight, in force."),
		paused:      m.count("sluice.paused_gates", "{gate}", "Gates that are paused."),
		pauseLeft:   m.gauge("sluice.pause.left", "s", "Time until the pause ends."),
		tokens:      m.count("sluice.retry.tokens", "{token}", "Tokens in the retry budget."),
	}
}

func (s *state) all() []metric.Observable {
	return []metric.Observable{s.waiting, s.limitedBy, s.rate, s.concurrency, s.paused, s.pauseLeft, s.tokens}
}

func (s *state) observe(to metric.Observer, t *observe.Totals, a *attributes) {
	to.ObserveInt64(s.waiting, t.Waiting, a.set)
	to.ObserveInt64(s.paused, int64(t.Paused), a.set)
	to.ObserveFloat64(s.pauseLeft, t.PauseLeft.Seconds(), a.set)
	to.ObserveInt64(s.tokens, t.RetryTokens, a.set)
	for cause, gates := range t.LimitedBy {
		set := attribute.NewSet(attribute.String("sluice.gate.name", a.name), attribute.String("sluice.limited_by", valid(string(cause))))
		to.ObserveInt64(s.limitedBy, int64(gates), metric.WithAttributeSet(set))
	}
	// No limit is not a limit of 0.
	if t.Rate > 0 {
		to.ObserveFloat64(s.rate, t.Rate, a.set)
	}
	if t.Concurrency > 0 {
		to.ObserveInt64(s.concurrency, t.Concurrency, a.set)
	}
}
