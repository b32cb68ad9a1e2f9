package sluice_test

import (
	"testing"

	"github.com/sluice-go/sluice/internal/promise"
)

// TestPromise runs the cells of the table of promises and features that are about gates.
func TestPromise(t *testing.T) {
	promise.Run(t, ".", promise.Gates)
}
