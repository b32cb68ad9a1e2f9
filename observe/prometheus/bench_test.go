package sluiceprom_test

import (
	"testing"
	"time"

	"github.com/sluice-go/sluice"
	sluiceprom "github.com/sluice-go/sluice/observe/prometheus"
)

// BenchmarkObserve observes a call that is granted and released.
func BenchmarkObserve(b *testing.B) {
	c, err := sluiceprom.New(sluiceprom.Config{})
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		c.Observe(sluice.Event{Kind: sluice.EventGranted, Gate: "example.com", N: 1, Wait: time.Millisecond})
		c.Observe(sluice.Event{Kind: sluice.EventReleased, Gate: "example.com", N: 1, Held: time.Second})
	}
}
