package sluiceotel_test

import (
	"testing"
	"time"

	sdk "go.opentelemetry.io/otel/sdk/metric"

	"github.com/sluice-go/sluice"
	sluiceotel "github.com/sluice-go/sluice/observe/otel"
)

// BenchmarkObserve observes a call that is admitted and released.
func BenchmarkObserve(b *testing.B) {
	o, err := sluiceotel.New(sdk.NewMeterProvider(sdk.WithReader(sdk.NewManualReader())), sluiceotel.Config{})
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		o.Observe(sluice.Event{Kind: sluice.EventAdmitted, Gate: "example.com", N: 1, Wait: time.Millisecond})
		o.Observe(sluice.Event{Kind: sluice.EventReleased, Gate: "example.com", N: 1, Held: time.Second})
	}
}
