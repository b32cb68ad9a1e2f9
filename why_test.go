package sluice_test

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/limits"
)

// The reason of a pause is the error of some call, and may have a secret of its address. Other
// calls get errors that name the pause, but not the secret.
func TestGate_ErrorsOfAPauseHaveNoSecrets(t *testing.T) {
	const why = "https://api.example/v1?api_key=hush: 429"
	for name, call := range map[string]func(g *sluice.Gate) error{
		"AcquireWithin": func(g *sluice.Gate) error {
			_, err := g.AcquireWithin(bg, 1, time.Second)
			return err
		},
		"Retry": func(g *sluice.Gate) error {
			return sluice.Retry(bg, g, sluice.RetryPolicy{MaxServerWait: time.Minute}, nothing)
		},
	} {
		for level, below := range map[string]bool{"": false, " in a parent": true} {
			t.Run(name+level, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					var events []string
					paused := mustGate(t, sluice.Config{Observer: func(e sluice.Event) {
						if e.Kind == sluice.EventQueued {
							events = append(events, e.Why)
						}
					}})
					paused.PauseUntil(time.Now().Add(time.Hour), why)
					g := paused
					if below {
						g = generation(t, paused)
					}
					err := call(g)
					if text := err.Error(); strings.Contains(text, "hush") || !strings.Contains(text, "https://api.example/v1") {
						t.Errorf("got %q, want the address without its query", text)
					}
					var wait *limits.WaitError
					if errors.As(err, &wait) && strings.Contains(wait.Why, "hush") {
						t.Errorf("Why: %q", wait.Why)
					}
					for _, event := range append(events, g.Stats().String()) {
						if strings.Contains(event, "hush") {
							t.Errorf("an event or the Stats: %q", event)
						}
					}
				})
			})
		}
	}
}
