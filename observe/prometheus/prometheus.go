// Package sluiceprom exports metrics of gates to Prometheus.
//
//	metrics, err := sluiceprom.New(sluiceprom.Config{})
//	…
//	prometheus.MustRegister(metrics)
//	gate, err := sluice.New(sluice.Config{Name: "api", Observer: metrics.Observe})
//
// A [Collector] can serve any number of gates. Its metrics have the label gate, the
// Config.Name of the gate:
//
//	sluice_queue_duration_seconds   histogram: time that admitted calls waited
//	sluice_call_duration_seconds    histogram: time that calls were in flight
//	sluice_calls_in_flight          gauge: calls in flight
//	sluice_calls_admitted_total     counter: admitted calls
//	sluice_calls_queued_total       counter: calls that had to wait
//	sluice_calls_refused_total      counter: refused calls, with the label reason
//	sluice_retries_total            counter: retries
//	sluice_pauses_total             counter: pauses, and extensions of a pause
//	sluice_learned_changes_total    counter: how often a gate changed its mind about the limit of the server, with the label reason
//
// With Config.Gates there are also these, which cost calls nothing:
//
//	sluice_calls_waiting            gauge: calls that wait
//	sluice_oldest_wait_seconds      gauge: how long the call has waited that has waited longest; the histogram has only calls that do not wait any more
//	sluice_limited_by               gauge: 1 while calls wait, with the label cause: what the first of them waits for
//	sluice_rate                     gauge: rate in force, per second
//	sluice_concurrency              gauge: most calls in flight, in force
//	sluice_paused                   gauge: 1 while the gate is paused
//	sluice_pause_left_seconds       gauge: time until the pause ends
//	sluice_retry_tokens             gauge: tokens in the retry budget
//
// and, for gates that have learned something about the limit of their server, see
// [sluice.Learned], these. All but the last have the label unit. Rates are per second, and a
// value that a gate does not have is left out:
//
//	sluice_learned_pace             gauge: pace at which calls leave
//	sluice_learned_rate             gauge: rate that the server is believed to grant
//	sluice_learned_proven_rate      gauge: lower bound of that rate
//	sluice_learned_refuted_rate     gauge: upper bound of that rate
//	sluice_learned_share            gauge: part of the limit that the gate may use, with sluice.Adaptive.Peers
//	sluice_learned_peers            gauge: gates that share the limit, this one included; 0 while the others cannot be reached
//	sluice_learned_concurrency      gauge: bound of the calls in flight
//	sluice_learned_refusals         gauge: calls that the server refused; it falls when a Keyed forgets a gate
//	sluice_blocked                  gauge: 1 while the server grants nothing
//
// For a sluicehttp.Transport there are also these. The first one needs Config.OnAttempt of
// the transport, the others Config.Limits:
//
//	sluice_responses_total          counter: responses, with the label code: the status, 0 if there was none
//	sluice_server_limit             gauge: limit that the server publishes, with the labels limit and unit
//	sluice_server_remaining         gauge: what remains of it, as of the last response
//
// A call counts as 1 whatever it costs. Gates with the same name are added up, so
// sluice_paused may be more than 1. A call that need not wait takes about 0.2 µs more, and
// no memory.
package sluiceprom

import (
	"errors"
	"fmt"
	"iter"
	"math"
	"strconv"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/observe"
	"github.com/sluice-go/sluice/observe/internal/metrics"
	"github.com/sluice-go/sluice/sluicehttp"
	"github.com/sluice-go/sluice/sluicehttp/ratelimit"
)

// Config configures a [Collector]. The zero Config is valid.
type Config struct {
	// MaxGates is how many gates have a label of their own: the first ones that
	// are used. All others are added up as "other". 0 means 100, and 10,000 is the most:
	// each gate has about 20 time series, 1.2 kB of each scrape.
	MaxGates int

	// MaxHistograms is how many of those gates have histograms of their own, of 40 further
	// time series. Those of all others are added up as "other". 0 means 100.
	MaxHistograms int

	// Buckets are the upper bounds of both histograms in seconds. nil means 17 bounds
	// from 1 ms to 4 hours.
	Buckets []float64

	// Gates, if set, provides the Stats of gates at each scrape: see
	// observe.Gates and observe.Keyed.
	Gates iter.Seq[sluice.Stats]

	// Limits, if set, provides the limits that servers publish at each scrape: see
	// sluicehttp.Transport.Limits.
	Limits iter.Seq2[string, []ratelimit.Limit]

	// Labels are added to every metric.
	Labels prometheus.Labels
}

// A Collector records the events of gates as metrics for Prometheus. It is safe for use by
// multiple goroutines and must be made by [New].
type Collector struct {
	queue, call                      *prometheus.HistogramVec
	inFlight                         *prometheus.GaugeVec
	admitted                         *prometheus.CounterVec
	queued, refused, retries, pauses *prometheus.CounterVec
	changes                          *prometheus.CounterVec
	gauges                           []gauge
	published                        *publishedDescs
	responses                        *prometheus.CounterVec

	gates  iter.Seq[sluice.Stats]
	limits iter.Seq2[string, []ratelimit.Limit]
	table  *observe.Table[*gateMetrics]
	timed  *observe.Table[*times]
}

// gateMetrics are those of one gate.
type gateMetrics struct {
	*times
	name                    string
	inFlight                prometheus.Gauge
	admitted                prometheus.Counter
	queued, retries, pauses prometheus.Counter
	refused                 map[string]prometheus.Counter      // by reason
	changes                 *observe.Table[prometheus.Counter] // by reason, once there was one
	responses               *observe.Table[prometheus.Counter] // by code, once there was one
}

// times are the histograms of one gate.
type times struct{ queue, call prometheus.Observer }

var _ prometheus.Collector = (*Collector)(nil)

// New returns a Collector. It returns an error if cfg.MaxGates is negative or more than 10,000,
// if cfg.MaxHistograms is negative, if cfg.Buckets do not increase, or if cfg.Labels has a name that is invalid or used by the Collector.
func New(cfg Config) (*Collector, error) {
	if err := metrics.Check(cfg.MaxGates, cfg.MaxHistograms); err != nil {
		return nil, fmt.Errorf("sluiceprom: %w", err)
	}
	if cfg.Buckets == nil {
		cfg.Buckets = metrics.Buckets()
	}
	for i, bound := range cfg.Buckets {
		if math.IsNaN(bound) || i > 0 && bound <= cfg.Buckets[i-1] {
			return nil, fmt.Errorf("sluiceprom: the buckets %v do not increase", cfg.Buckets)
		}
	}
	if _, ok := cfg.Labels["le"]; ok {
		return nil, errors.New(`sluiceprom: the label "le" is reserved for histograms`)
	}
	name := func(name string) string { return prometheus.BuildFQName("sluice", "", name) }
	opts := func(n, help string) prometheus.Opts {
		return prometheus.Opts{Name: name(n), Help: help, ConstLabels: cfg.Labels}
	}
	histogram := func(n, help string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: name(n), Help: help, ConstLabels: cfg.Labels, Buckets: cfg.Buckets,
		}, []string{"gate"})
	}
	counter := func(n, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts(opts(n, help)), append([]string{"gate"}, labels...))
	}
	desc := func(n, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(name(n), help, append([]string{"gate"}, labels...), cfg.Labels)
	}
	c := &Collector{
		queue:    histogram("queue_duration_seconds", "Time that granted calls waited."),
		call:     histogram("call_duration_seconds", "Time that calls were in flight."),
		inFlight: prometheus.NewGaugeVec(prometheus.GaugeOpts(opts("calls_in_flight", "Calls in flight.")), []string{"gate"}),
		admitted: counter("calls_admitted_total", "Admitted calls."),
		queued:   counter("calls_queued_total", "Calls that had to wait."),
		refused:  counter("calls_refused_total", "Refused calls, by reason.", "reason"),
		retries:  counter("retries_total", "Retries."),
		pauses:   counter("pauses_total", "Pauses, and extensions of a pause."),
		changes:  counter("learned_changes_total", "Changes of what is learned about the limit of the server, by reason.", "reason"),
		gauges:   newGauges(desc),
		gates:    cfg.Gates,
		limits:   cfg.Limits,

		published: newPublishedDescs(desc),
		responses: counter("responses_total", "HTTP responses, by status code; the code 0 stands for none.", "code"),
	}
	c.timed = observe.NewTable(cfg.MaxHistograms, c.timesOf)
	c.table = observe.NewTable(cfg.MaxGates, c.of)
	if err := prometheus.NewRegistry().Register(c); err != nil { // finds invalid labels
		return nil, fmt.Errorf("sluiceprom: %w", err)
	}
	return c, nil
}

// valid returns s without invalid UTF-8, with which the client panics.
func valid(s string) string { return strings.ToValidUTF8(s, "\ufffd") }

// maxReasons is more than there are reasons to learn; further ones are added up as "other".
const maxReasons = 20

// maxCodes is more than a server has; further ones are added up as "other".
const maxCodes = 30

// timesOf returns the histograms of a gate.
func (c *Collector) timesOf(gate string) *times {
	gate = valid(gate)
	return &times{queue: c.queue.WithLabelValues(gate), call: c.call.WithLabelValues(gate)}
}

// of returns the metrics of a gate.
func (c *Collector) of(gate string) *gateMetrics {
	times := c.timed.Of(gate)
	gate = valid(gate)
	m := &gateMetrics{
		times:    times,
		name:     gate,
		admitted: c.admitted.WithLabelValues(gate),
		inFlight: c.inFlight.WithLabelValues(gate),
		queued:   c.queued.WithLabelValues(gate),
		retries:  c.retries.WithLabelValues(gate),
		pauses:   c.pauses.WithLabelValues(gate),
		refused:  make(map[string]prometheus.Counter),
	}
	for reason := range (sluice.Refusals{}).All() {
		m.refused[reason] = c.refused.WithLabelValues(gate, reason)
	}
	m.changes = observe.NewTable(maxReasons, func(reason string) prometheus.Counter {
		return c.changes.WithLabelValues(gate, valid(reason))
	})
	m.responses = observe.NewTable(maxCodes, func(code string) prometheus.Counter {
		return c.responses.WithLabelValues(gate, code)
	})
	return m
}

// ObserveAttempt counts the response of an attempt by its status. It is a
// sluicehttp.Config.OnAttempt.
func (c *Collector) ObserveAttempt(key string, a sluicehttp.Attempt) {
	c.table.Of(key).responses.Of(strconv.Itoa(a.Status)).Inc()
}

// Observe counts e. It is a [sluice.Observer].
func (c *Collector) Observe(e sluice.Event) {
	m := c.table.Of(e.Gate)
	switch e.Kind {
	case sluice.EventQueued:
		m.queued.Inc()
	case sluice.EventGranted:
		m.admitted.Inc()
		m.queue.Observe(e.Wait.Seconds())
		m.inFlight.Inc()
	case sluice.EventReleased:
		m.call.Observe(e.Held.Seconds())
		m.inFlight.Dec()
	case sluice.EventRefused:
		refused, known := m.refused[e.Reason]
		if !known { // a reason of a later version
			refused = m.refused["other"]
		}
		refused.Inc()
	case sluice.EventRetried:
		m.retries.Inc()
	case sluice.EventPaused:
		m.pauses.Inc()
	case sluice.EventLearned:
		m.changes.Of(e.Reason).Inc()
	}
}

// Describe implements [prometheus.Collector].
func (c *Collector) Describe(ch chan<- *prometheus.Desc) {
	for _, p := range c.parts() {
		p.Describe(ch)
	}
	for _, g := range c.gauges {
		ch <- g.desc
	}
	c.published.describe(ch)
}

// Collect implements [prometheus.Collector].
func (c *Collector) Collect(ch chan<- prometheus.Metric) {
	for _, p := range c.parts() {
		p.Collect(ch)
	}
	c.published.collect(ch, c)
	if c.gates == nil {
		return
	}
	label := func(name string) string { return c.table.Of(name).name }
	for label, sum := range observe.Sum(c.gates, label) {
		for _, g := range c.gauges {
			g.collect(ch, sum, label)
		}
	}
}

func (c *Collector) parts() []prometheus.Collector {
	return []prometheus.Collector{c.queue, c.call, c.inFlight, c.admitted, c.queued, c.refused, c.retries, c.pauses, c.changes, c.responses}
}
