package recipes

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/limits"
)

// begin call
// One gate for the whole program.
var userGate = limits.Must(sluice.New(sluice.Config{Concurrency: 8, Rate: sluice.Rate{Count: 100, Per: time.Second}}))

// userName returns what query returns, which is called again if it fails.
func userName(ctx context.Context, id int, query func(ctx context.Context, id int) (string, error)) (string, error) {
	return sluice.RetryValue(ctx, userGate, sluice.RetryPolicy{}, func(ctx context.Context) (string, error) {
		return query(ctx, id) // an error wrapped by sluice.RetryAfter pauses all callers of the gate
	})
}

// end call

func TestREADME(t *testing.T) {
	const pause = 50 * time.Millisecond
	first, began := true, time.Now()
	name, err := userName(t.Context(), 7, func(ctx context.Context, id int) (string, error) {
		if first {
			first = false
			return "", sluice.RetryAfter(errors.New("busy"), pause)
		}
		return fmt.Sprint("user ", id), nil
	})
	if err != nil || name != "user 7" || time.Since(began) < pause {
		t.Errorf("%q, %v after %v", name, err, time.Since(began))
	}
}
