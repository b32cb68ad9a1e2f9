package observe_test

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/observe"
)

// Each metric has its own name for both exporters, a unit, a help, a kind, and at most one way
// to be read; those of Totals have one value for a gate that does everything.
func TestMetrics(t *testing.T) {
	learned := sluice.Learned{Pace: 1, Rate: 1, AcceptedRate: 1, ThrottledRate: 1, Share: 1, Peers: 1, Concurrency: 1}
	busy := sluice.Stats{
		Rate: sluice.Rate{Count: 1, Per: time.Second}, Concurrency: 1, Waiting: 1, LimitedBy: "rate", Learned: &learned,
	}
	of := func(s sluice.Stats) *observe.Totals {
		return observe.Sum(func(yield func(sluice.Stats) bool) { yield(s) }, func(string) string { return "" })[""]
	}
	seen := map[string]bool{}
	for _, m := range observe.Metrics() {
		if m.Help == "" || seen[m.Prometheus] || seen["otel "+m.OTel] || (m.Label == "") != (m.Attribute == "") || m.Event != nil && m.Totals != nil {
			t.Errorf("%+v", m)
		}
		seen[m.Prometheus], seen["otel "+m.OTel] = true, true
		switch {
		case m.Unit == "" && !strings.HasPrefix(m.OTel, "server."),
			(m.Kind == "histogram") != (m.Buckets != nil),
			(m.Kind == "counter") != strings.HasSuffix(m.Prometheus, "_total"),
			m.Kind != "counter" && m.Kind != "histogram" && m.Kind != "sum" && m.Kind != "gauge",
			(m.MaxValues > 0) != (m.Label != "" && m.Totals == nil):
			t.Errorf("%s: unit %q, kind %q, buckets %v, %d values of %q", m.Prometheus, m.Unit, m.Kind, m.Buckets, m.MaxValues, m.Label)
		}
		if m.Totals == nil {
			continue
		}
		values := 0
		m.Totals(of(busy), func(label string, _ float64) {
			if values++; (label == "") != (m.Label == "") {
				t.Errorf("%s: a value of the %s %q", m.Prometheus, m.Label, label)
			}
		})
		if values != 1 {
			t.Errorf("%s has %d values", m.Prometheus, values)
		}
		// What a gate does not have is not 0.
		for _, absent := range []string{"limited_by", "rate", "concurrency", "learned_", "blocked"} {
			if strings.HasPrefix(m.Prometheus, absent) {
				m.Totals(of(sluice.Stats{}), func(string, float64) { t.Errorf("%s of a gate that has none", m.Prometheus) })
			}
		}
	}
	if len(seen) != 2*29 {
		t.Errorf("%d metrics", len(seen)/2)
	}
}

// What a caller does with its list changes no other.
func TestMetrics_AreCopies(t *testing.T) {
	all := observe.Metrics()
	all[0].Buckets[0], all[0].Prometheus = 7, "x"
	if again := observe.Metrics()[0]; again.Buckets[0] == 7 || again.Prometheus == "x" {
		t.Errorf("%+v", again)
	}
}

// TestMetrics_Page: docs/metrics.md lists all metrics, under both names, and no others.
func TestMetrics_Page(t *testing.T) {
	page, err := os.ReadFile("../docs/metrics.md")
	if err != nil {
		t.Skip("not a checkout")
	}
	for _, m := range observe.Metrics() {
		if want := "| `sluice_" + m.Prometheus + "` | `sluice." + m.OTel + "` | "; !strings.Contains(string(page), want) {
			t.Errorf("docs/metrics.md has no row that begins with %s", want)
		}
	}
	if n := strings.Count(string(page), "\n| `"); n != len(observe.Metrics()) {
		t.Errorf("docs/metrics.md has %d rows for %d metrics", n, len(observe.Metrics()))
	}
}
