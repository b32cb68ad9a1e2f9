package observe

import (
	"slices"
	"time"

	"github.com/sluice-go/sluice"
)

// A Metric is a number that exporters show for each gate: its name and how to read it. See
// [Metrics].
type Metric struct {
	Prometheus string // its name there, without the prefix "sluice_"
	OTel       string // its name in OpenTelemetry, without the prefix "sluice."
	Unit       string // as OpenTelemetry writes units; empty: it depends on the Label
	Help       string

	// Kind is "counter", "histogram", "sum" for a number that goes up and down and can be added up
	// over programs, or "gauge" for one that cannot.
	Kind    string
	Buckets []float64 // of a histogram: the upper bounds

	// Label, in OpenTelemetry Attribute, distinguishes several values, such as "reason"; empty: there
	// is one. Values are those that are shown from the start, and MaxValues is the number that is
	// distinguished if there can be any number: see [ByName].
	Label, Attribute string
	Values           []string
	MaxValues        int

	// Event returns, for each kind of event that changes the metric, the amount that the event
	// adds, or that a histogram records. The value of the Label is Event.Reason.
	Event map[sluice.EventKind]func(e sluice.Event) float64

	// Totals calls yield with each value that the gates of one name have, and with the value of its
	// Label. A metric that has neither Event nor Totals is one of a sluicehttp.Transport.
	Totals func(t *Totals, yield func(label string, value float64))
}

// Metrics returns all metrics: first those of events, then those of [Totals], then those of a
// sluicehttp.Transport. The caller may change the slice.
func Metrics() []Metric {
	all := append(eventMetrics(), stateMetrics()...)
	all = append(all, learnedMetrics()...)
	return append(all, transportMetrics()...)
}

// buckets are the upper bounds of the histograms in seconds. Calls may wait for hours: for
// one that can start two calls per minute, the thirtieth caller waits for a quarter of an
// hour. In powers of two, which would be as exact everywhere, an hour takes 23 bounds, of
// which most lie where nobody looks.
var buckets = []float64{.001, .005, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600, 14400}

// eventMetrics are the metrics of events.
func eventMetrics() []Metric {
	type by = map[sluice.EventKind]func(sluice.Event) float64
	each := func(n float64) func(sluice.Event) float64 { return func(sluice.Event) float64 { return n } }
	seconds := func(of func(sluice.Event) time.Duration) func(sluice.Event) float64 {
		return func(e sluice.Event) float64 { return of(e).Seconds() }
	}
	reasons := []string{}
	for reason := range (sluice.Rejections{}).All() {
		reasons = append(reasons, reason)
	}
	return []Metric{
		{
			Prometheus: "queue_duration_seconds", OTel: "queue.duration", Unit: "s", Kind: "histogram",
			Help:    "Time that admitted calls waited.",
			Buckets: slices.Clone(buckets),
			Event:   by{sluice.EventAdmitted: seconds(func(e sluice.Event) time.Duration { return e.Wait })},
		}, {
			Prometheus: "call_duration_seconds", OTel: "call.duration", Unit: "s", Kind: "histogram",
			Help:    "Time that calls were in flight.",
			Buckets: slices.Clone(buckets),
			Event:   by{sluice.EventReleased: seconds(func(e sluice.Event) time.Duration { return e.Held })},
		}, {
			Prometheus: "calls_in_flight", OTel: "active_calls", Unit: "{call}", Kind: "sum",
			Help:  "Calls in flight.",
			Event: by{sluice.EventAdmitted: each(1), sluice.EventReleased: each(-1)},
		}, {
			Prometheus: "calls_admitted_total", OTel: "admitted_calls", Unit: "{call}", Kind: "counter",
			Help:  "Admitted calls.",
			Event: by{sluice.EventAdmitted: each(1)},
		}, {
			Prometheus: "calls_queued_total", OTel: "queued_calls", Unit: "{call}", Kind: "counter",
			Help:  "Calls that had to wait.",
			Event: by{sluice.EventQueued: each(1)},
		}, {
			Prometheus: "calls_rejected_total", OTel: "rejected_calls", Unit: "{call}", Kind: "counter",
			Label: "reason", Attribute: "error.type",
			Values: reasons, MaxValues: len(reasons) - 1, // without "other", which has the reasons of later versions
			Help:  "Refused calls, by reason.",
			Event: by{sluice.EventRejected: each(1)},
		}, {
			Prometheus: "retries_total", OTel: "retries", Unit: "{retry}", Kind: "counter",
			Help:  "Retries.",
			Event: by{sluice.EventRetried: each(1)},
		}, {
			Prometheus: "pauses_total", OTel: "pauses", Unit: "{pause}", Kind: "counter",
			Help:  "Pauses, and extensions of a pause.",
			Event: by{sluice.EventPaused: each(1)},
		}, {
			Prometheus: "learned_updates_total", OTel: "learned.updates", Unit: "{change}", Kind: "counter",
			Label: "reason", Attribute: "sluice.learned.reason",
			MaxValues: 20, // more than there are reasons to learn
			Help:      "Changes of what is learned about the limit of the server, by reason.",
			Event:     by{sluice.EventLearned: each(1)},
		},
	}
}

// transportMetrics are the metrics of a sluicehttp.Transport. Exporters count and read it
// themselves, because package observe does not know HTTP.
func transportMetrics() []Metric {
	return []Metric{
		{
			Prometheus: "responses_total", OTel: "responses", Unit: "{response}", Kind: "counter",
			Label: "code", Attribute: "http.response.status_code",
			MaxValues: 30, // more than a server has
			Help:      "HTTP responses, by status code, attempts without a response included.",
		},
		{Prometheus: "server_limit", OTel: "server.limit", Kind: "gauge", Help: "Limit that the server publishes."},
		{Prometheus: "server_remaining", OTel: "server.remaining", Kind: "gauge", Help: "What remains of the limit that the server publishes."},
	}
}

// one is the Totals of a gauge that always has one value.
func one[T int | int64](of func(t *Totals) T) func(*Totals, func(string, float64)) {
	return func(t *Totals, yield func(string, float64)) { yield("", float64(of(t))) }
}

// positive is the Totals of a gauge for which 0 says that there is no such value.
func positive(of func(t *Totals) float64) func(*Totals, func(string, float64)) {
	return func(t *Totals, yield func(string, float64)) {
		if v := of(t); v > 0 {
			yield("", v)
		}
	}
}

// stateMetrics are the metrics of the state of gates.
func stateMetrics() []Metric {
	return []Metric{
		{
			Prometheus: "calls_waiting", OTel: "waiting_calls", Unit: "{call}", Kind: "sum",
			Help:   "Calls that wait.",
			Totals: one(func(t *Totals) int64 { return t.Waiting }),
		}, {
			Prometheus: "oldest_wait_seconds", OTel: "oldest_wait", Unit: "s", Kind: "gauge",
			Help:   "How long the call has waited that has waited longest, 0 if none waits.",
			Totals: func(t *Totals, yield func(string, float64)) { yield("", t.OldestWait.Seconds()) },
		}, {
			Prometheus: "limited_by", OTel: "limited_gates", Unit: "{gate}", Kind: "sum",
			Label: "cause", Attribute: "sluice.limited_by",
			Help: "Gates whose first caller waits, by what it waits for.",
			Totals: func(t *Totals, yield func(string, float64)) {
				for cause, gates := range t.LimitedBy {
					yield(string(cause), float64(gates))
				}
			},
		}, {
			Prometheus: "rate", OTel: "rate", Unit: "1/s", Kind: "gauge",
			Help:   "Rate in force, per second.",
			Totals: positive(func(t *Totals) float64 { return t.Rate }),
		}, {
			Prometheus: "concurrency", OTel: "concurrency", Unit: "{call}", Kind: "sum",
			Help:   "Most calls in flight, in force.",
			Totals: positive(func(t *Totals) float64 { return float64(t.Concurrency) }),
		}, {
			Prometheus: "paused", OTel: "paused_gates", Unit: "{gate}", Kind: "sum",
			Help:   "Gates that are paused.",
			Totals: one(func(t *Totals) int { return t.Paused }),
		}, {
			Prometheus: "pause_left_seconds", OTel: "pause.left", Unit: "s", Kind: "gauge",
			Help:   "Time until the pause ends.",
			Totals: func(t *Totals, yield func(string, float64)) { yield("", t.PauseLeft.Seconds()) },
		}, {
			Prometheus: "retry_tokens", OTel: "retry.tokens", Unit: "{token}", Kind: "sum",
			Help:   "Tokens in the retry budget.",
			Totals: one(func(t *Totals) int64 { return t.RetryTokens }),
		},
	}
}

// learnedMetrics are the metrics of the learned limits of their servers.
func learnedMetrics() []Metric {
	unit := func(prometheus, otel, unit, help string, of func(l *sluice.Learned) (value float64, known bool)) Metric {
		return Metric{
			Prometheus: prometheus, OTel: otel, Unit: unit, Help: help, Kind: "sum",
			Label: "unit", Attribute: "sluice.unit",
			Totals: func(t *Totals, yield func(string, float64)) {
				for unit, l := range t.Learned {
					if v, known := of(l); known {
						yield(string(unit), v)
					}
				}
			},
		}
	}
	known := func(v float64) (float64, bool) { return v, v > 0 }
	return []Metric{
		unit("learned_pace", "learned.pace", "1/s", "Pace at which calls start, per second.",
			func(l *sluice.Learned) (float64, bool) { return known(l.Pace) }),
		unit("learned_rate", "learned.rate", "1/s", "Rate that the server is believed to accept, per second.",
			func(l *sluice.Learned) (float64, bool) { return known(l.Rate) }),
		unit("learned_accepted_rate", "learned.accepted_rate", "1/s", "Lower bound of the rate that the server accepts, per second.",
			func(l *sluice.Learned) (float64, bool) { return known(l.AcceptedRate) }),
		unit("learned_throttled_rate", "learned.throttled_rate", "1/s", "Upper bound of the rate that the server accepts, per second.",
			func(l *sluice.Learned) (float64, bool) { return known(l.ThrottledRate) }),
		unit("learned_share", "learned.share", "1", "Part of the learned limit that the gate may use.",
			func(l *sluice.Learned) (float64, bool) { return known(l.Share) }),
		unit("learned_peers", "learned.peers", "{gate}", "Gates that share the learned limit, 0 while the others cannot be reached.",
			func(l *sluice.Learned) (float64, bool) { return float64(l.Peers), l.Share > 0 }),
		unit("learned_concurrency", "learned.concurrency", "{call}", "Learned bound of the calls in flight.",
			func(l *sluice.Learned) (float64, bool) { return known(float64(l.Concurrency)) }),
		unit("learned_throttled", "learned.throttled", "{call}", "Calls that the server throttled.",
			func(l *sluice.Learned) (float64, bool) { return float64(l.Throttled), true }),
		{
			Prometheus: "blocked", OTel: "blocked_gates", Unit: "{gate}", Kind: "sum",
			Help: "Gates whose server accepts nothing.",
			Totals: func(t *Totals, yield func(string, float64)) {
				if t.Learning > 0 {
					yield("", float64(t.Blocked))
				}
			},
		},
	}
}
