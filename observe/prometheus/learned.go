package sluiceprom

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/sluice-go/sluice/observe"
)

// learnedDescs are the metrics of what gates have learned.
type learnedDescs struct {
	pace, rate, proven, refuted, share, peers, concurrency, refusals, blocked *prometheus.Desc
}

func newLearnedDescs(desc newDesc) *learnedDescs {
	return &learnedDescs{
		pace:        desc("learned_pace", "Pace at which calls leave, per second.", "unit"),
		rate:        desc("learned_rate", "Rate that the server is believed to grant, per second.", "unit"),
		proven:      desc("learned_proven_rate", "Lower bound of the rate that the server grants, per second.", "unit"),
		refuted:     desc("learned_refuted_rate", "Upper bound of the rate that the server grants, per second.", "unit"),
		share:       desc("learned_share", "Part of the learned limit that the gate may use.", "unit"),
		peers:       desc("learned_peers", "Gates that share the learned limit, 0 while the others cannot be reached.", "unit"),
		concurrency: desc("learned_concurrency", "Learned bound of the calls in flight.", "unit"),
		refusals:    desc("learned_refusals", "Calls that the server refused.", "unit"),
		blocked:     desc("blocked", "Gates whose server grants nothing."),
	}
}

func (d *learnedDescs) describe(ch chan<- *prometheus.Desc) {
	for _, desc := range []*prometheus.Desc{d.pace, d.rate, d.proven, d.refuted, d.share, d.peers, d.concurrency, d.refusals, d.blocked} {
		ch <- desc
	}
}

func (d *learnedDescs) collect(ch chan<- prometheus.Metric, t *observe.Totals, label string) {
	if t.Learning == 0 {
		return
	}
	ch <- prometheus.MustNewConstMetric(d.blocked, prometheus.GaugeValue, float64(t.Blocked), label)
	for unit, s := range t.Learned {
		gauge := func(desc *prometheus.Desc, value float64) {
			ch <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, label, valid(string(unit)))
		}
		gauge(d.refusals, float64(s.Refusals))
		// A 0 says that there is no such value: as a number it would be a lie.
		for _, one := range []struct {
			desc  *prometheus.Desc
			value float64
		}{{d.pace, s.Pace}, {d.rate, s.Rate}, {d.proven, s.Proven}, {d.refuted, s.Refuted}, {d.share, s.Share}, {d.concurrency, float64(s.Concurrency)}} {
			if one.value > 0 {
				gauge(one.desc, one.value)
			}
		}
		if s.Share > 0 { // then no peers are a fact
			gauge(d.peers, float64(s.Peers))
		}
	}
}
