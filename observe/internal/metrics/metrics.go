// Package metrics is what the exporters of metrics share, so that Prometheus and
// OpenTelemetry show the same.
package metrics

import "fmt"

// Buckets are the upper bounds of the histograms in seconds. Calls may wait for hours: for
// one that can start two calls per minute, the thirtieth caller waits for a quarter of an
// hour. In powers of two, which would be as exact everywhere, an hour takes 23 bounds, of
// which most lie where nobody looks.
func Buckets() []float64 {
	return []float64{.001, .005, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600, 14400}
}

// MaxGates is the most gates that may have time series of their own: 10,000 of them are
// 200,000 series, and as many as most servers of metrics take from one program.
const MaxGates = 10_000

// Check returns an error if the configured numbers of gates cannot be.
func Check(maxGates, maxHistograms int) error {
	switch {
	case maxGates < 0:
		return fmt.Errorf("negative MaxGates %d", maxGates)
	case maxGates > MaxGates:
		return fmt.Errorf("MaxGates %d: at most %d gates can have metrics of their own, because each has about 20 time series; leave MaxGates at 0, and further gates are added up as \"other\"", maxGates, MaxGates)
	case maxHistograms < 0:
		return fmt.Errorf("negative MaxHistograms %d", maxHistograms)
	}
	return nil
}
