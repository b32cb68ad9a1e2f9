// Package sluiceprom exports metrics of gates to Prometheus.
//
//	metrics, err := sluiceprom.New(sluiceprom.Config{})
//	…
//	prometheus.MustRegister(metrics)
//	gate, err := sluice.New(sluice.Config{Name: "api", Observer: metrics.Observe})
//
// A [Collector] can serve any number of gates. Its metrics have the label gate, the Config.Name of
// the gate; docs/metrics.md lists them. Without Config.Gates they are those of events: waits, calls
// in flight, rejections and retries. With it, which costs calls nothing, they include the current
// state of the gates.
//
// A call that need not wait takes about 0.2 µs more, and no memory.
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
	"github.com/sluice-go/sluice/sluicehttp"
	"github.com/sluice-go/sluice/sluicehttp/ratelimit"
)

// Config configures a [Collector]. The zero Config is valid.
type Config struct {
	// MaxGates is the number of gates that have their own label: the first ones that
	// are used. All others are added up as "other". 0 means 100, and 10,000 is the most:
	// each gate has about 20 time series, 1.2 kB of each scrape.
	MaxGates int

	// MaxHistograms is the number of those gates that have their own histograms, 40 further time
	// series each. 0 means 100.
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
	events    []eventMetric // and responses
	gauges    []gauge
	published *publishedDescs

	gates  iter.Seq[sluice.Stats]
	limits iter.Seq2[string, []ratelimit.Limit]
	byGate func(string) *series
	timed  func(string) string // the label of the histograms of a gate
}

var _ prometheus.Collector = (*Collector)(nil)

// New returns a Collector. It returns an error if cfg.MaxGates is negative or more than 10,000, if
// cfg.MaxHistograms is negative, if cfg.Buckets do not increase, or if cfg.Labels has a name that
// is invalid or used by the Collector.
func New(cfg Config) (*Collector, error) {
	if err := check(cfg.MaxGates, cfg.MaxHistograms); err != nil {
		return nil, err
	}
	for i, bound := range cfg.Buckets {
		if math.IsNaN(bound) || i > 0 && bound <= cfg.Buckets[i-1] {
			return nil, fmt.Errorf("sluiceprom: the buckets %v do not increase", cfg.Buckets)
		}
	}
	if _, ok := cfg.Labels["le"]; ok {
		return nil, errors.New(`sluiceprom: the label "le" is reserved for histograms`)
	}
	c := &Collector{gates: cfg.Gates, limits: cfg.Limits, published: new(publishedDescs)}
	for _, m := range observe.Metrics() {
		name := "sluice_" + m.Prometheus
		desc := func(labels ...string) *prometheus.Desc {
			return prometheus.NewDesc(name, m.Help, append([]string{"gate"}, labels...), cfg.Labels)
		}
		switch {
		case m.Totals != nil && m.Label != "":
			c.gauges = append(c.gauges, gauge{m, desc(m.Label)})
		case m.Totals != nil:
			c.gauges = append(c.gauges, gauge{m, desc()})
		case m.Prometheus == "server_limit":
			c.published.limit = desc("limit", "unit")
		case m.Prometheus == "server_remaining":
			c.published.remaining = desc("limit", "unit")
		default:
			buckets := m.Buckets
			if cfg.Buckets != nil {
				buckets = cfg.Buckets
			}
			c.events = append(c.events, newEventMetric(m, prometheus.Opts{Name: name, Help: m.Help, ConstLabels: cfg.Labels}, buckets))
		}
	}
	c.timed = observe.ByName(cfg.MaxHistograms, valid)
	c.byGate = observe.ByName(cfg.MaxGates, c.seriesOf)
	if err := prometheus.NewRegistry().Register(c); err != nil { // finds invalid labels
		return nil, fmt.Errorf("sluiceprom: %w", err)
	}
	return c, nil
}

// maxGates is the most gates that may have time their own series: 10,000 of them are
// 200,000 series, and as many as most servers of metrics take from one program.
const maxGates = 10_000

// check returns an error if the configured numbers of gates cannot be.
func check(gates, histograms int) error {
	switch {
	case gates < 0:
		return fmt.Errorf("sluiceprom: negative MaxGates %d", gates)
	case gates > maxGates:
		return fmt.Errorf("sluiceprom: MaxGates %d: at most %d gates can have metrics of their own, because each has about 20 time series; leave MaxGates at 0, and further gates are added up as \"other\"", gates, maxGates)
	case histograms < 0:
		return fmt.Errorf("sluiceprom: negative MaxHistograms %d", histograms)
	}
	return nil
}

// valid returns s without invalid UTF-8, with which the client panics.
func valid(s string) string { return strings.ToValidUTF8(s, "\ufffd") }

// ObserveAttempt counts the response of an attempt by its status. It is a
// sluicehttp.Config.OnAttempt.
func (c *Collector) ObserveAttempt(key string, a sluicehttp.Attempt) {
	c.byGate(key).responses(strconv.Itoa(a.Status))(1)
}

// Observe counts e, for [sluice.Config].Observer.
func (c *Collector) Observe(e sluice.Event) {
	for _, to := range c.byGate(e.Gate).changes[e.Kind] {
		record := to.record
		if to.byReason != nil {
			record = to.byReason(e.Reason)
		}
		record(to.value(e))
	}
}

// Describe implements [prometheus.Collector].
func (c *Collector) Describe(ch chan<- *prometheus.Desc) {
	for _, m := range c.events {
		m.Describe(ch)
	}
	for _, g := range c.gauges {
		ch <- g.desc
	}
	c.published.describe(ch)
}

// Collect implements [prometheus.Collector].
func (c *Collector) Collect(ch chan<- prometheus.Metric) {
	for _, m := range c.events {
		m.Collect(ch)
	}
	c.published.collect(ch, c)
	if c.gates == nil {
		return
	}
	label := func(name string) string { return c.byGate(name).gate }
	for label, sum := range observe.Sum(c.gates, label) {
		for _, g := range c.gauges {
			g.collect(ch, sum, label)
		}
	}
}
