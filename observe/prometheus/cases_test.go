package sluiceprom_test

import (
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/sluice-go/sluice/internal/testkit/exporters"
	sluiceprom "github.com/sluice-go/sluice/observe/prometheus"
)

// All that a scrape shows, to the last digit.
func TestCollector_Cases(t *testing.T) {
	exporters.Test(t, func(t *testing.T, cfg exporters.Config) exporters.Exporter {
		c := mustNew(t, sluiceprom.Config{
			MaxGates: cfg.MaxGates, MaxHistograms: cfg.MaxHistograms, Gates: cfg.Gates, Limits: cfg.Limits,
			Buckets: []float64{0.5, 2}, Labels: prometheus.Labels{"app": "x"},
		})
		return exporters.Exporter{Observe: c.Observe, ObserveAttempt: c.ObserveAttempt, Lines: func() []string {
			if problems, err := testutil.CollectAndLint(c); err != nil || len(problems) > 0 {
				t.Errorf("%v, %v", problems, err)
			}
			registry := prometheus.NewPedanticRegistry()
			registry.MustRegister(c)
			page := httptest.NewRecorder()
			promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP(page, httptest.NewRequest("GET", "/metrics", nil))
			if page.Code != 200 {
				t.Fatal(page.Code, page.Body)
			}
			return strings.Split(strings.TrimSpace(page.Body.String()), "\n")
		}}
	})
}
