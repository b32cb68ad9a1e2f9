package sluice_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sluice-go/sluice"
)

// What happens in a gate, printed as it happens. Package observe has observers
// for logs and metrics.
func ExampleObserver() {
	gate, _ := sluice.New(sluice.Config{
		Name:        "api",
		Concurrency: 1,
		Observer: func(e sluice.Event) {
			switch e.Kind {
			case sluice.EventRefused:
				fmt.Println(e.Gate, e.Kind, e.Reason)
			case sluice.EventPaused:
				fmt.Println(e.Gate, e.Kind, e.Wait.Round(time.Second), e.Why)
			default:
				fmt.Println(e.Gate, e.Kind)
			}
		},
	})
	ctx := context.Background()
	gate.Do(ctx, func(context.Context) error {
		gate.TryAcquire(1) // one is in flight
		return sluice.RetryAfter(errors.New("429 Too Many Requests"), time.Minute)
	})
	gate.Resume()
	// Output:
	// api granted
	// api refused busy
	// api learned
	// api paused 1m0s 429 Too Many Requests
	// api released
	// api resumed
}
