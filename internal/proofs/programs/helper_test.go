// Tests of whole gates, through their exported names, against slow models of what they promise:
// random histories, random programs over all features, and bad input.
package programs_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/sluice-go/sluice"
)

func TestMain(m *testing.M) {
	time.Local = time.UTC // messages have times of day
	goleak.VerifyTestMain(m)
}

const ms = time.Millisecond

// bg is for waits that nothing but the gate ends.
var bg = context.Background()

func nothing(context.Context) error { return nil }

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func mustGate(t testing.TB, cfg sluice.Config) *sluice.Gate {
	t.Helper()
	g, err := sluice.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// withBurst returns rate with a burst, and no limit as no limit.
func withBurst(rate sluice.Rate, burst int64) sluice.Rate {
	if rate.Count > 0 {
		rate.Burst = burst
	}
	return rate
}

var errBusy = errors.New("429 Too Many Requests")
