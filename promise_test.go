package sluice_test

import (
	"testing"

	"github.com/sluice-go/sluice/internal/promise"
)

// TestPromise checks the table of promises and features, and runs its cells that are
// about gates.
func TestPromise(t *testing.T) {
	promise.Table(t, ".")
	promise.Run(t, ".", promise.Gates)
}
