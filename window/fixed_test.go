package window_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/limits"
	"github.com/sluice-go/sluice/window"
)

func TestFixed_Adjust_DoesNotReachIntoTheNextWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, c := range map[string]*window.Fixed{
			"anchored": limits.Must(window.NewFixed(window.Quota{Limit: 3, Window: 10 * time.Second})),
			"calendar": limits.Must(window.NewFixed(window.Quota{Limit: 3, Calendar: window.Minute})),
		} {
			g, err := sluice.New(sluice.Config{Limits: []sluice.Limit{{Limiter: c}}})
			if err != nil {
				t.Fatal(err)
			}
			p, err := g.Acquire(bg, 3)
			if err != nil {
				t.Fatal(err)
			}
			q, err := g.Acquire(bg, 3)
			if err != nil {
				t.Fatal(err)
			}
			p.Settle(0)
			if got := c.Take(0).Remaining; got != 0 {
				t.Errorf("%s: %d of another window given back", name, got)
			}
			q.Settle(1)
			if got := c.Take(0).Remaining; got != 2 {
				t.Errorf("%s: %d remain, want 2 of its own window", name, got)
			}
		}
	})
}
