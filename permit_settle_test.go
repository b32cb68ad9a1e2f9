package sluice

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice/internal/queue"
	"github.com/sluice-go/sluice/limits"
)

// forecasts counts how often a gate forecasts the wait of a call.
type forecasts struct {
	*rule
	n int
}

func (f *forecasts) Forecast(now time.Duration, ahead int64) time.Duration {
	f.n++
	return f.rule.Forecast(now, ahead)
}

// Settle looks at waiting calls only if it delays them. A gate whose rate counts cost
// settles each call, and would look at all that wait each time.
func TestPermit_Settle_LooksOnlyAtDelayedWaiters(t *testing.T) {
	const waiting = 50
	for name, c := range map[string]struct {
		settle func(g *Gate, p *Permit)
		looks  int // at how many of them
	}{
		"less":    {func(_ *Gate, p *Permit) { p.Settle(1) }, 0},
		"nothing": {func(_ *Gate, p *Permit) { p.Settle(0) }, 0},
		"resume":  {func(g *Gate, _ *Permit) { g.Resume() }, 0},
		"more":    {func(_ *Gate, p *Permit) { p.Settle(20) }, waiting},
		"behind a pause": {func(g *Gate, p *Permit) {
			g.PauseUntil(time.Now().Add(1000*time.Second), "")
			p.Settle(20) // the end of the pause is later than what it owes
		}, waiting},
		"slower": {func(g *Gate, _ *Permit) { g.SetRate(Rate{Count: 1, Per: 2 * time.Second}) }, waiting},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g, err := New(Config{Rate: Rate{Count: 1, Per: time.Second}, RateUnit: Cost})
				if err != nil {
					t.Fatal(err)
				}
				f := &forecasts{rule: (*rule)(g)}
				g.queue.Init(f, queue.Config{Refuse: f.refuse, Weigh: g.rateUnit.of, Latch: f.rule})
				p, err := g.Acquire(t.Context(), 10)
				if err != nil {
					t.Fatal(err)
				}
				for range waiting {
					go func() {
						ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
						defer cancel()
						if _, err := g.Acquire(ctx, 1); err != nil {
							t.Error(err)
						}
					}()
				}
				synctest.Wait()
				f.n = 0
				c.settle(g, p)
				if f.n != c.looks {
					t.Errorf("looked at %d waiting calls, want %d", f.n, c.looks)
				}
				time.Sleep(time.Hour)
			})
		})
	}
}

// If a call cost more than it was let through with, others are delayed, and those that
// cannot wait that long fail at once.
func TestPermit_Settle_FailsWaitersWithoutTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, err := New(Config{Rate: Rate{Count: 1, Per: time.Second}, RateUnit: Cost})
		if err != nil {
			t.Fatal(err)
		}
		p, err := g.Acquire(t.Context(), 1)
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		time.AfterFunc(500*time.Millisecond, func() { p.Settle(3) })
		var hopeless *limits.WaitError
		_, err = g.AcquireWithin(t.Context(), 1, 2*time.Second)
		if d := time.Since(began); !errors.As(err, &hopeless) || d != 500*time.Millisecond || hopeless.Need != 2500*time.Millisecond {
			t.Errorf("%v after %v", err, d)
		}
	})
}
