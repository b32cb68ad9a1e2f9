package sluiceprom_test

import (
	"context"
	"fmt"
	"net/http/httptest"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/sluice-go/sluice"
	sluiceprom "github.com/sluice-go/sluice/observe/prometheus"
)

// One Collector for a gate for each host, and what a scrape shows of it.
func Example() {
	metrics, err := sluiceprom.New(sluiceprom.Config{MaxGates: 2})
	if err != nil {
		panic(err)
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(metrics)

	hosts, _ := sluice.NewKeyed(func(host string) (*sluice.Gate, error) {
		return sluice.New(sluice.Config{Name: host, Concurrency: 1, Observer: metrics.Observe})
	})
	for _, host := range []string{"a.example", "b.example", "c.example", "d.example"} {
		hosts.Use(host, func(gate *sluice.Gate) error {
			return gate.Do(context.Background(), func(context.Context) error {
				gate.TryAcquire(1) // one is in flight: rejected
				return nil
			})
		})
	}

	scrape := httptest.NewRecorder()
	promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP(scrape, httptest.NewRequest("GET", "/metrics", nil))
	for line := range strings.Lines(scrape.Body.String()) {
		if strings.HasPrefix(line, "sluice_call_duration_seconds_count") || strings.Contains(line, `reason="busy"`) {
			fmt.Print(line)
		}
	}
	// Output:
	// sluice_call_duration_seconds_count{gate="a.example"} 1
	// sluice_call_duration_seconds_count{gate="b.example"} 1
	// sluice_call_duration_seconds_count{gate="other"} 2
	// sluice_calls_rejected_total{gate="a.example",reason="busy"} 1
	// sluice_calls_rejected_total{gate="b.example",reason="busy"} 1
	// sluice_calls_rejected_total{gate="other",reason="busy"} 2
}
