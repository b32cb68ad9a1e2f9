package sluiceotel_test

import (
	"testing"

	"github.com/sluice-go/sluice/internal/testkit/exporters"
	sluiceotel "github.com/sluice-go/sluice/observe/otel"
)

// All that is exported.
func TestObserver_Cases(t *testing.T) {
	exporters.Test(t, func(t *testing.T, cfg exporters.Config) exporters.Exporter {
		e := newExporter(t, sluiceotel.Config(cfg))
		return exporters.Exporter{Observe: e.Observe, ObserveAttempt: e.ObserveAttempt, Lines: func() (lines []string) {
			for name, value := range e.collect(t) {
				lines = append(lines, name+" = "+value)
			}
			return lines
		}}
	})
}
