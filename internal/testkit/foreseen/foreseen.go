// Package foreseen checks the forecasts of limits.
package foreseen

import (
	"context"
	"testing"
	"time"

	"github.com/sluice-go/sluice/limits"
)

// A Forecaster makes forecasts.
type Forecaster interface {
	Forecast() limits.Forecast
}

// Check takes calls of cost from l, each at the first instant at which l allows it, and checks that the
// forecast of l had the same instants, and that it has taken nothing. It is called in a bubble.
func Check(t testing.TB, what string, l limits.Limiter, calls int, cost int64) {
	t.Helper()
	f, ok := l.(Forecaster)
	if !ok {
		t.Fatalf("%s: %T is no Forecaster", what, l)
	}
	var want []time.Duration
	for range 2 { // the first one takes nothing
		want = want[:0]
		forecast, at := f.Forecast(), time.Duration(0)
		for range calls {
			_, first, _ := forecast.Next(at, 1, cost)
			if want = append(want, first); first == limits.Never {
				break
			}
			forecast.Take(1, cost, first, first)
			at = first
		}
	}
	began := time.Now()
	for i, want := range want {
		for {
			wait, err := l.Admit(context.Background(), cost)
			if err != nil {
				if want != limits.Never {
					t.Errorf("%s: call %d of %d is rejected: %v, foreseen after %v", what, i, cost, err, want)
				}
				return
			}
			if wait == 0 {
				break
			}
			time.Sleep(wait)
		}
		if got := time.Since(began); got != want {
			t.Errorf("%s: call %d of %d after %v, foreseen after %v", what, i, cost, got, want)
			return
		}
	}
}
