package sluice_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice"
)

// ThrottledFor pauses the gate for all callers, RetryAfter delays one.
func TestThrottledFor_PausesAll_RetryAfter_One(t *testing.T) {
	failed := errors.New("failed")
	for name, c := range map[string]struct {
		mark   func() error
		paused bool
	}{
		"ThrottledFor": {func() error { return sluice.ThrottledFor(failed, time.Minute) }, true},
		"RetryAfter":   {func() error { return sluice.RetryAfter(failed, time.Minute) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := sluice.Must(sluice.New(sluice.Config{Adaptive: sluice.Adaptive{Disabled: true}}))
				start, attempts := time.Now(), 0
				err := sluice.Retry(context.Background(), g, func(context.Context) error {
					if attempts++; attempts > 1 {
						return nil
					}
					return c.mark()
				}, sluice.RetryPolicy{Backoff: sluice.Constant(time.Second), ThrottleBackoff: sluice.Constant(time.Minute)})
				if err != nil || attempts != 2 || time.Since(start) != time.Minute {
					t.Errorf("%d attempts, the last after %v: %v", attempts, time.Since(start), err)
				}
				start, attempts = time.Now(), 0
				waits := make(chan time.Duration)
				go sluice.Retry(context.Background(), g, func(context.Context) error {
					if attempts++; attempts > 1 {
						return nil
					}
					return c.mark()
				})
				synctest.Wait()
				go func() {
					waits <- func() time.Duration { g.Wait(context.Background()); return time.Since(start) }()
				}()
				if wait := <-waits; (wait > 0) != c.paused {
					t.Errorf("another call waited for %v", wait)
				}
				time.Sleep(time.Hour) // the first one has ended
			})
		})
	}
	if sluice.Throttled(nil) != nil || sluice.RetryAfter(nil, time.Second) != nil {
		t.Error("marked a success")
	}
}
