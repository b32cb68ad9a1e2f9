package sluiceprom

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/sluice-go/sluice/observe"
)

// newDesc returns the description of a metric with the label gate and further ones.
type newDesc func(name, help string, labels ...string) *prometheus.Desc

// stateDescs are the metrics of what gates are doing.
type stateDescs struct {
	waiting, limitedBy, rate, concurrency, paused, pauseLeft, tokens *prometheus.Desc
}

func newStateDescs(desc newDesc) *stateDescs {
	return &stateDescs{
		waiting:     desc("calls_waiting", "Calls that wait."),
		limitedBy:   desc("limited_by", "Gates whose first caller waits for this.", "cause"),
		rate:        desc("rate", "Rate in force, per second."),
		concurrency: desc("concurrency", "Most calls in flight, in force."),
		paused:      desc("paused", "Gates that are paused."),
		pauseLeft:   desc("pause_left_seconds", "Time until the pause ends."),
		tokens:      desc("retry_tokens", "Tokens in the retry budget."),
	}
}

func (d *stateDescs) describe(ch chan<- *prometheus.Desc) {
	for _, desc := range []*prometheus.Desc{d.waiting, d.limitedBy, d.rate, d.concurrency, d.paused, d.pauseLeft, d.tokens} {
		ch <- desc
	}
}

func (d *stateDescs) collect(ch chan<- prometheus.Metric, t *observe.Totals, label string) {
	gauge := func(desc *prometheus.Desc, value float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, append([]string{label}, labels...)...)
	}
	gauge(d.waiting, float64(t.Waiting))
	gauge(d.paused, float64(t.Paused))
	gauge(d.pauseLeft, t.PauseLeft.Seconds())
	gauge(d.tokens, float64(t.RetryTokens))
	for cause, gates := range t.LimitedBy {
		gauge(d.limitedBy, float64(gates), valid(string(cause)))
	}
	// No limit is not a limit of 0.
	if t.Rate > 0 {
		gauge(d.rate, t.Rate)
	}
	if t.Concurrency > 0 {
		gauge(d.concurrency, float64(t.Concurrency))
	}
}
