package metrics

import (
	"github.com/sluice-go/sluice/observe"
)

// A Gauge is a number that the Stats of gates have, and that goes up and down.
type Gauge struct {
	Prometheus string // its name, without the prefix
	OTel       string // likewise
	Unit       string // as OpenTelemetry writes units
	Help       string
	Sums       bool // whether the sum over programs has a meaning

	// Label is what distinguishes several values, such as "unit"; empty: there is one. OTel
	// calls it Attribute.
	Label, Attribute string

	// Each calls yield with each value, and with what its Label is. A value that gates do
	// not have is left out: no limit is not a limit of 0.
	Each func(t *observe.Totals, yield func(label string, value float64))
}

// Gauges returns all of them.
func Gauges() []Gauge {
	return append(state(), learned()...)
}

// one is the Each of a gauge that always has one value.
func one[T int | int64](of func(t *observe.Totals) T) func(*observe.Totals, func(string, float64)) {
	return func(t *observe.Totals, yield func(string, float64)) { yield("", float64(of(t))) }
}

// positive is the Each of a gauge for which 0 says that there is no such value.
func positive(of func(t *observe.Totals) float64) func(*observe.Totals, func(string, float64)) {
	return func(t *observe.Totals, yield func(string, float64)) {
		if v := of(t); v > 0 {
			yield("", v)
		}
	}
}

// state is what gates are doing.
func state() []Gauge {
	return []Gauge{
		{
			Prometheus: "calls_waiting", OTel: "waiting_calls", Unit: "{call}", Sums: true,
			Help: "Calls that wait.",
			Each: one(func(t *observe.Totals) int64 { return t.Waiting }),
		}, {
			Prometheus: "oldest_wait_seconds", OTel: "oldest_wait", Unit: "s",
			Help: "How long the call has waited that has waited longest, 0 if none waits.",
			Each: func(t *observe.Totals, yield func(string, float64)) { yield("", t.OldestWait.Seconds()) },
		}, {
			Prometheus: "limited_by", OTel: "limited_gates", Unit: "{gate}", Sums: true,
			Label: "cause", Attribute: "limited_by",
			Help: "Gates whose first caller waits, by what it waits for.",
			Each: func(t *observe.Totals, yield func(string, float64)) {
				for cause, gates := range t.LimitedBy {
					yield(string(cause), float64(gates))
				}
			},
		}, {
			Prometheus: "rate", OTel: "rate", Unit: "1/s",
			Help: "Rate in force, per second.",
			Each: positive(func(t *observe.Totals) float64 { return t.Rate }),
		}, {
			Prometheus: "concurrency", OTel: "concurrency", Unit: "{call}", Sums: true,
			Help: "Most calls in flight, in force.",
			Each: positive(func(t *observe.Totals) float64 { return float64(t.Concurrency) }),
		}, {
			Prometheus: "paused", OTel: "paused_gates", Unit: "{gate}", Sums: true,
			Help: "Gates that are paused.",
			Each: one(func(t *observe.Totals) int { return t.Paused }),
		}, {
			Prometheus: "pause_left_seconds", OTel: "pause.left", Unit: "s",
			Help: "Time until the pause ends.",
			Each: func(t *observe.Totals, yield func(string, float64)) { yield("", t.PauseLeft.Seconds()) },
		}, {
			Prometheus: "retry_tokens", OTel: "retry.tokens", Unit: "{token}", Sums: true,
			Help: "Tokens in the retry budget.",
			Each: one(func(t *observe.Totals) int64 { return t.RetryTokens }),
		},
	}
}

// learned is what gates have learned about the limits of their servers.
func learned() []Gauge {
	unit := func(prometheus, otel, unit, help string, of func(l *observe.LearnedTotals) (value float64, known bool)) Gauge {
		return Gauge{
			Prometheus: prometheus, OTel: otel, Unit: unit, Help: help, Sums: true,
			Label: "unit", Attribute: "unit",
			Each: func(t *observe.Totals, yield func(string, float64)) {
				for unit, l := range t.Learned {
					if v, known := of(l); known {
						yield(string(unit), v)
					}
				}
			},
		}
	}
	known := func(v float64) (float64, bool) { return v, v > 0 }
	return []Gauge{
		unit("learned_pace", "learned.pace", "1/s", "Pace at which calls start, per second.",
			func(l *observe.LearnedTotals) (float64, bool) { return known(l.Pace) }),
		unit("learned_rate", "learned.rate", "1/s", "Rate that the server is believed to grant, per second.",
			func(l *observe.LearnedTotals) (float64, bool) { return known(l.Rate) }),
		unit("learned_proven_rate", "learned.proven_rate", "1/s", "Lower bound of the rate that the server grants, per second.",
			func(l *observe.LearnedTotals) (float64, bool) { return known(l.Proven) }),
		unit("learned_refuted_rate", "learned.refuted_rate", "1/s", "Upper bound of the rate that the server grants, per second.",
			func(l *observe.LearnedTotals) (float64, bool) { return known(l.Refuted) }),
		unit("learned_share", "learned.share", "1", "Part of the learned limit that the gate may use.",
			func(l *observe.LearnedTotals) (float64, bool) { return known(l.Share) }),
		unit("learned_peers", "learned.peers", "{gate}", "Gates that share the learned limit, 0 while the others cannot be reached.",
			func(l *observe.LearnedTotals) (float64, bool) { return float64(l.Peers), l.Share > 0 }),
		unit("learned_concurrency", "learned.concurrency", "{call}", "Learned bound of the calls in flight.",
			func(l *observe.LearnedTotals) (float64, bool) { return known(float64(l.Concurrency)) }),
		unit("learned_refusals", "learned.refusals", "{call}", "Calls that the server refused.",
			func(l *observe.LearnedTotals) (float64, bool) { return float64(l.Refusals), true }),
		{
			Prometheus: "blocked", OTel: "blocked_gates", Unit: "{gate}", Sums: true,
			Help: "Gates whose server grants nothing.",
			Each: func(t *observe.Totals, yield func(string, float64)) {
				if t.Learning > 0 {
					yield("", float64(t.Blocked))
				}
			},
		},
	}
}
