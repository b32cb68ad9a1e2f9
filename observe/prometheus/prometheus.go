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
//	sluice_queue_duration_seconds   histogram: time that granted calls waited; its count is the number of granted calls
//	sluice_call_duration_seconds    histogram: time that calls were in flight
//	sluice_calls_in_flight          gauge: calls in flight
//	sluice_calls_queued_total       counter: calls that had to wait
//	sluice_calls_refused_total      counter: refused calls, with the label reason
//	sluice_retries_total            counter: retries
//	sluice_pauses_total             counter: pauses, and extensions of a pause
//
// With Config.Gates there are also these, which cost calls nothing:
//
//	sluice_calls_waiting            gauge: calls that wait
//	sluice_paused                   gauge: 1 while the gate is paused
//	sluice_retry_tokens             gauge: tokens in the retry budget
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
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/observe"
)

// Config configures a [Collector]. The zero Config is valid.
type Config struct {
	// MaxGates is how many gates have a label of their own: the first ones that
	// are used. All others are added up as "other". 0 means 100.
	MaxGates int

	// Buckets are the upper bounds of both histograms in seconds. nil means powers
	// of 2 from 1 ms to about a minute.
	Buckets []float64

	// Gates, if set, provides the Stats of gates at each scrape: see
	// observe.Gates and observe.Keyed.
	Gates iter.Seq[sluice.Stats]

	// Labels are added to every metric.
	Labels prometheus.Labels
}

// A Collector records the events of gates as metrics for Prometheus. It is safe for use by
// multiple goroutines and must be made by [New].
type Collector struct {
	queue, call                      *prometheus.HistogramVec
	inFlight                         *prometheus.GaugeVec
	queued, refused, retries, pauses *prometheus.CounterVec
	waiting, paused, tokens          *prometheus.Desc

	gates iter.Seq[sluice.Stats]
	table *observe.Table[*metrics]
}

// metrics are those of one gate.
type metrics struct {
	name                    string
	queue, call             prometheus.Observer
	inFlight                prometheus.Gauge
	queued, retries, pauses prometheus.Counter
	refused                 map[string]prometheus.Counter // by reason
}

var _ prometheus.Collector = (*Collector)(nil)

// New returns a Collector. It returns an error if cfg.MaxGates is negative, if cfg.Buckets
// do not increase, or if cfg.Labels has a name that is invalid or used by the Collector.
func New(cfg Config) (*Collector, error) {
	if cfg.MaxGates < 0 {
		return nil, fmt.Errorf("sluiceprom: negative MaxGates %d", cfg.MaxGates)
	}
	if cfg.Buckets == nil {
		cfg.Buckets = prometheus.ExponentialBuckets(0.001, 2, 17)
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
	desc := func(n, help string) *prometheus.Desc {
		return prometheus.NewDesc(name(n), help, []string{"gate"}, cfg.Labels)
	}
	c := &Collector{
		queue:    histogram("queue_duration_seconds", "Time that granted calls waited."),
		call:     histogram("call_duration_seconds", "Time that calls were in flight."),
		inFlight: prometheus.NewGaugeVec(prometheus.GaugeOpts(opts("calls_in_flight", "Calls in flight.")), []string{"gate"}),
		queued:   counter("calls_queued_total", "Calls that had to wait."),
		refused:  counter("calls_refused_total", "Refused calls, by reason.", "reason"),
		retries:  counter("retries_total", "Retries."),
		pauses:   counter("pauses_total", "Pauses, and extensions of a pause."),
		waiting:  desc("calls_waiting", "Calls that wait."),
		paused:   desc("paused", "Gates that are paused."),
		tokens:   desc("retry_tokens", "Tokens in the retry budget."),
		gates:    cfg.Gates,
	}
	c.table = observe.NewTable(cfg.MaxGates, c.of)
	if err := prometheus.NewRegistry().Register(c); err != nil { // finds invalid labels
		return nil, fmt.Errorf("sluiceprom: %w", err)
	}
	return c, nil
}

// of returns the metrics of a gate.
func (c *Collector) of(gate string) *metrics {
	gate = strings.ToValidUTF8(gate, "\ufffd") // with invalid UTF-8 the client panics
	m := &metrics{
		name:     gate,
		queue:    c.queue.WithLabelValues(gate),
		call:     c.call.WithLabelValues(gate),
		inFlight: c.inFlight.WithLabelValues(gate),
		queued:   c.queued.WithLabelValues(gate),
		retries:  c.retries.WithLabelValues(gate),
		pauses:   c.pauses.WithLabelValues(gate),
		refused:  make(map[string]prometheus.Counter),
	}
	for reason := range (sluice.Refusals{}).All() {
		m.refused[reason] = c.refused.WithLabelValues(gate, reason)
	}
	return m
}

// Observe counts e. It is a [sluice.Observer].
func (c *Collector) Observe(e sluice.Event) {
	m := c.table.Of(e.Gate)
	switch e.Kind {
	case sluice.EventQueued:
		m.queued.Inc()
	case sluice.EventGranted:
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
	}
}

// Describe implements [prometheus.Collector].
func (c *Collector) Describe(ch chan<- *prometheus.Desc) {
	for _, p := range c.parts() {
		p.Describe(ch)
	}
	ch <- c.waiting
	ch <- c.paused
	ch <- c.tokens
}

// Collect implements [prometheus.Collector].
func (c *Collector) Collect(ch chan<- prometheus.Metric) {
	for _, p := range c.parts() {
		p.Collect(ch)
	}
	if c.gates == nil {
		return
	}
	type now struct{ waiting, paused, tokens float64 }
	sums := make(map[string]*now) // by label, which several may share
	for s := range c.gates {
		label := c.table.Of(s.Name).name
		sum := sums[label]
		if sum == nil {
			sum = new(now)
			sums[label] = sum
		}
		sum.waiting += float64(s.Pacing + s.Waiting)
		sum.tokens += float64(s.RetryTokens)
		if !s.PausedUntil.IsZero() {
			sum.paused++
		}
	}
	for label, sum := range sums {
		ch <- prometheus.MustNewConstMetric(c.waiting, prometheus.GaugeValue, sum.waiting, label)
		ch <- prometheus.MustNewConstMetric(c.paused, prometheus.GaugeValue, sum.paused, label)
		ch <- prometheus.MustNewConstMetric(c.tokens, prometheus.GaugeValue, sum.tokens, label)
	}
}

func (c *Collector) parts() []prometheus.Collector {
	return []prometheus.Collector{c.queue, c.call, c.inFlight, c.queued, c.refused, c.retries, c.pauses}
}
