package sluiceprom_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/observe"
	sluiceprom "github.com/sluice-go/sluice/observe/prometheus"
)

// BenchmarkObserve observes a call that is admitted and released.
func BenchmarkObserve(b *testing.B) {
	c, err := sluiceprom.New(sluiceprom.Config{})
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		c.Observe(sluice.Event{Kind: sluice.EventAdmitted, Gate: "example.com", N: 1, Wait: time.Millisecond})
		c.Observe(sluice.Event{Kind: sluice.EventReleased, Gate: "example.com", N: 1, Held: time.Second})
	}
}

// BenchmarkScrape scrapes a program with a gate for each of many hosts.
func BenchmarkScrape(b *testing.B) {
	for _, hosts := range []int{100, 1_000, 10_000} {
		b.Run(fmt.Sprint(hosts), func(b *testing.B) {
			gates, err := sluice.NewKeyed(func(host string) (*sluice.Gate, error) {
				return sluice.New(sluice.Config{Name: host})
			}, sluice.KeyedConfig{Idle: time.Hour})
			if err != nil {
				b.Fatal(err)
			}
			metrics, err := sluiceprom.New(sluiceprom.Config{MaxGates: hosts, Gates: observe.Keyed(gates)})
			if err != nil {
				b.Fatal(err)
			}
			for i := range hosts {
				host := fmt.Sprintf("host-%05d.example.com:443", i)
				gates.Use(host, func(g *sluice.Gate) error {
					metrics.Observe(sluice.Event{Kind: sluice.EventAdmitted, Gate: host, N: 1})
					return g.Do(context.Background(), func(context.Context) error { return nil })
				})
			}
			registry := prometheus.NewRegistry()
			registry.MustRegister(metrics)
			handler := promhttp.HandlerFor(registry, promhttp.HandlerOpts{})
			size := &lines{}
			b.ReportAllocs()
			for b.Loop() {
				*size = lines{}
				r := httptest.NewRequest(http.MethodGet, "/metrics", nil)
				handler.ServeHTTP(size, r)
			}
			b.ReportMetric(float64(size.bytes), "B/scrape")
			b.ReportMetric(float64(size.lines), "lines/scrape")
		})
	}
}

// lines counts what is written to it.
type lines struct{ bytes, lines int }

func (l *lines) Header() http.Header { return http.Header{} }
func (l *lines) WriteHeader(int)     {}
func (l *lines) Write(p []byte) (int, error) {
	l.bytes += len(p)
	for _, c := range p {
		if c == '\n' {
			l.lines++
		}
	}
	return len(p), nil
}
