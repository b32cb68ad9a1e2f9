package sluiceotel_test

import (
	"context"
	"fmt"
	"slices"

	"go.opentelemetry.io/otel/attribute"
	sdk "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/sluice-go/sluice"
	sluiceotel "github.com/sluice-go/sluice/observe/otel"
)

// A reader that is asked by hand stands for that of an exporter.
func Example() {
	reader := sdk.NewManualReader()
	provider := sdk.NewMeterProvider(sdk.WithReader(reader))
	metrics, err := sluiceotel.New(provider, sluiceotel.Config{MaxGates: 2})
	if err != nil {
		panic(err)
	}

	hosts, _ := sluice.NewKeyed(func(host string) (*sluice.Gate, error) {
		return sluice.New(sluice.Config{Name: host, Concurrency: 1, Observer: metrics.Observe})
	})
	ctx := context.Background()
	for _, host := range []string{"a.example", "b.example", "c.example", "d.example"} {
		hosts.Use(host, func(gate *sluice.Gate) error {
			return gate.Do(ctx, func(context.Context) error {
				gate.TryAcquire(1) // one is in flight: rejected
				return nil
			})
		})
	}

	var collected metricdata.ResourceMetrics
	if err := reader.Collect(ctx, &collected); err != nil {
		panic(err)
	}
	var lines []string
	for _, m := range collected.ScopeMetrics[0].Metrics {
		if refused, ok := m.Data.(metricdata.Sum[int64]); ok && m.Name == "sluice.rejected_calls" {
			for _, p := range refused.DataPoints {
				lines = append(lines, fmt.Sprint(p.Value, " ", m.Unit, " ", p.Attributes.Encoded(attribute.DefaultEncoder())))
			}
		}
	}
	slices.Sort(lines)
	for _, line := range lines {
		fmt.Println(line)
	}
	// Output:
	// 1 {call} error.type=busy,sluice.gate.name=a.example
	// 1 {call} error.type=busy,sluice.gate.name=b.example
	// 2 {call} error.type=busy,sluice.gate.name=other
}
