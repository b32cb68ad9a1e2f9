package sluiceprom

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/sluice-go/sluice/sluicehttp/ratelimit"
)

// publishedDescs are the metrics of the limits that servers publish.
type publishedDescs struct{ limit, remaining *prometheus.Desc }

func (d *publishedDescs) describe(ch chan<- *prometheus.Desc) {
	ch <- d.limit
	ch <- d.remaining
}

// collect leaves out gates without their own label: the remaining quotas of some of them cannot be
// added up. Of limits with the same name and unit the first applies.
func (d *publishedDescs) collect(ch chan<- prometheus.Metric, c *Collector) {
	if c.limits == nil {
		return
	}
	seen := make(map[[3]string]bool)
	for key, limits := range c.limits {
		label := c.byGate(key).gate
		if label != valid(key) {
			continue
		}
		for _, l := range limits {
			at := [3]string{label, valid(l.Name), valid(l.Unit)}
			if seen[at] {
				continue
			}
			seen[at] = true
			for _, one := range []struct {
				desc   *prometheus.Desc
				amount ratelimit.Amount
			}{{d.limit, l.Max}, {d.remaining, l.Remaining}} {
				if value, known := one.amount.Value(); known {
					ch <- prometheus.MustNewConstMetric(one.desc, prometheus.GaugeValue, value, at[:]...)
				}
			}
		}
	}
}
