package metrics

import (
	"strings"
	"testing"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/observe"
)

// Each gauge has a name of its own for both exporters, and values for gates that do everything.
func TestGauges(t *testing.T) {
	learned := sluice.Learned{Pace: 1, Rate: 1, Proven: 1, Refuted: 1, Share: 1, Peers: 1, Concurrency: 1}
	busy := sluice.Stats{
		Rate: sluice.Rate{Count: 1, Per: time.Second}, Concurrency: 1, Waiting: 1, LimitedBy: "rate", Learned: &learned,
	}
	of := func(s sluice.Stats) *observe.Totals {
		return observe.Sum(func(yield func(sluice.Stats) bool) { yield(s) }, func(string) string { return "" })[""]
	}
	seen := map[string]bool{}
	for _, g := range Gauges() {
		if g.Help == "" || g.Unit == "" || seen[g.Prometheus] || seen["otel "+g.OTel] || (g.Label == "") != (g.Attribute == "") {
			t.Errorf("%+v", g)
		}
		seen[g.Prometheus], seen["otel "+g.OTel] = true, true
		values := 0
		g.Each(of(busy), func(label string, _ float64) {
			if values++; (label == "") != (g.Label == "") {
				t.Errorf("%s: a value of the %s %q", g.Prometheus, g.Label, label)
			}
		})
		if values != 1 {
			t.Errorf("%s has %d values", g.Prometheus, values)
		}
		// What a gate does not have is not 0.
		for _, absent := range []string{"limited_by", "rate", "concurrency", "learned_", "blocked"} {
			if strings.HasPrefix(g.Prometheus, absent) {
				g.Each(of(sluice.Stats{}), func(string, float64) { t.Errorf("%s of a gate that has none", g.Prometheus) })
			}
		}
	}
}

func TestCheck(t *testing.T) {
	for _, test := range []struct {
		gates, histograms int
		want              string
	}{
		{0, 0, ""},
		{MaxGates, MaxGates + 1, ""},
		{-1, 0, "negative MaxGates -1"},
		{MaxGates + 1, 0, "MaxGates 10001: at most 10000 gates"},
		{0, -2, "negative MaxHistograms -2"},
	} {
		err := Check(test.gates, test.histograms)
		if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("%d, %d: %v, want %q", test.gates, test.histograms, err, test.want)
		}
	}
}
