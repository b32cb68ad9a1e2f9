package sluice_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice"
)

// Permanent errors of a first attempt.

func TestAPermanentFirstErrorComesBackBare(t *testing.T) {
	never := sluice.RetryPolicy{Retryable: func(error) bool { return false }}
	cause := errors.New("550 no such user")
	for name, c := range map[string]struct {
		policy sluice.RetryPolicy
		err    error
		same   bool
	}{
		"marked":       {sluice.RetryPolicy{}, sluice.Permanent(cause), true},
		"wrapped":      {sluice.RetryPolicy{}, fmt.Errorf("send: %w", sluice.Permanent(cause)), true},
		"and told":     {sluice.RetryPolicy{}, sluice.Permanent(sluice.RetryAfter(cause, time.Hour)), true},
		"Policy.Retry": {never, cause, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			for how, do := range map[string]func(g *sluice.Gate, f func(context.Context) error) error{
				"Do":       func(g *sluice.Gate, f func(context.Context) error) error { return sluice.Retry(bg, g, c.policy, f) },
				"Attempts": func(g *sluice.Gate, f func(context.Context) error) error { return byHand(bg, g, c.policy, 1, 0, f) },
			} {
				g := mustGate(t, sluice.Config{Name: "smtp"})
				err := do(g, always(c.err))
				if err.Error() != c.err.Error() || !errors.Is(err, cause) || !errors.Is(err, sluice.ErrPermanent) || c.same && err != c.err {
					t.Errorf("%s, %s: %v", name, how, err)
				}
				var stopped *sluice.RetryError
				if errors.As(err, &stopped) {
					t.Errorf("%s, %s: %v", name, how, err)
				}
				// Whoever calls the caller must not retry it either.
				n := 0
				outer := sluice.Retry(bg, mustGate(t, sluice.Config{}), sluice.RetryPolicy{}, func(context.Context) error { n++; return err })
				if n != 1 || outer != err {
					t.Errorf("%s, %s: %d attempts, %v", name, how, n, outer)
				}
			}
			// After a retry there is something to say.
			err := sluice.Retry(bg, mustGate(t, sluice.Config{}), sluice.RetryPolicy{Retryable: func(err error) bool { return err == errDown }}, newServer(down, always(c.err)).call)
			var stopped *sluice.RetryError
			if !errors.As(err, &stopped) || stopped.Why != sluice.ErrPermanent || stopped.Attempts != 2 {
				t.Errorf("%s: %v", name, err)
			}
		})
	}
}
