package sluice_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/internal/testkit/synclog"
	"github.com/sluice-go/sluice/leaky"
	"github.com/sluice-go/sluice/limits"
)

// Stats and errors name the limit that holds the calls up.
func TestCause_IsTheLimitThatHoldsCallsUp(t *testing.T) {
	take := func(t *testing.T, g *sluice.Gate, n int) {
		t.Helper()
		for range n {
			if _, ok := g.TryAcquire(1); !ok {
				t.Fatal("refused")
			}
		}
	}
	full := func() *leaky.Bucket {
		b := limits.Must(leaky.New(limits.Rate{Count: 1, Per: time.Minute, Burst: 1}))
		b.Take(1)
		return b
	}
	for name, c := range map[string]struct {
		gate func(t *testing.T) *sluice.Gate
		by   limits.Cause
		err  string // of AcquireWithin 1 s, as the first
	}{
		"rate": {
			func(t *testing.T) *sluice.Gate {
				g := mustGate(t, sluice.Config{Name: "g", Rate: sluice.Rate{Count: 1, Per: time.Minute}})
				take(t, g, 1)
				return g
			}, limits.ByRate, "sluice: g: would have to wait 1m0s for the rate of 1/m, until 00:01:00, 1s were allowed",
		},
		"concurrency": {
			func(t *testing.T) *sluice.Gate {
				g := mustGate(t, sluice.Config{Name: "g", Concurrency: 1, Rate: sluice.Rate{Count: 100, Per: time.Minute}})
				take(t, g, 1)
				time.Sleep(time.Second) // the rate has room again
				return g
			}, limits.ByConcurrency, "sluice: g: waited for the concurrency of 1 as long as allowed",
		},
		"pause": {
			func(t *testing.T) *sluice.Gate {
				g := mustGate(t, sluice.Config{Name: "g", Rate: sluice.Rate{Count: 2, Per: time.Minute}})
				take(t, g, 1)
				g.PauseUntil(time.Now().Add(time.Hour), "maintenance")
				return g
			}, limits.ByPause, "sluice: g: would have to wait 1h0m0s for the pause (maintenance), until 01:00:00, 1s were allowed",
		},
		"pause shorter than the rate": {
			func(t *testing.T) *sluice.Gate {
				g := mustGate(t, sluice.Config{Name: "g", Rate: sluice.Rate{Count: 2, Per: time.Minute}})
				take(t, g, 1)
				g.PauseUntil(time.Now().Add(10*time.Second), "maintenance")
				return g
			}, limits.ByRate, "sluice: g: would have to wait 30s for the rate of 2/m, 1s were allowed",
		},
		"retry budget": {
			func(t *testing.T) *sluice.Gate { return emptied(t, sluice.Config{Name: "g"}, 8*time.Second) },
			limits.ByRetryBudget, "sluice: g: waited for the retry budget (calls are 8.0 s apart after failures) as long as allowed",
		},
		"slow start": {
			func(t *testing.T) *sluice.Gate {
				g := mustGate(t, sluice.Config{Name: "g"})
				g.PauseUntil(time.Now().Add(time.Second), "429")
				time.Sleep(time.Second)
				take(t, g, 1)
				return g
			}, limits.BySlowStart, "sluice: g: waited for the slow start as long as allowed",
		},
		"quota": {
			func(t *testing.T) *sluice.Gate {
				return mustGate(t, sluice.Config{Name: "g", Limits: []sluice.Limit{
					{Name: "requests", Limiter: limits.Must(leaky.New(limits.Rate{Count: 1, Per: time.Minute, Burst: 100}))},
					{Name: "tokens", Limiter: full()},
				}})
			}, "limit tokens", "sluice: g: would have to wait 1m0s for the limit tokens, until 00:01:00, 1s were allowed",
		},
		"quota without a name": {
			func(t *testing.T) *sluice.Gate {
				return mustGate(t, sluice.Config{Limits: []sluice.Limit{{Limiter: full()}}})
			}, "limit", "sluice: would have to wait 1m0s for the limit, until 00:01:00, 1s were allowed",
		},
		"parent": {
			func(t *testing.T) *sluice.Gate {
				all := mustGate(t, sluice.Config{Name: "all", Concurrency: 1})
				take(t, all, 1)
				return mustGate(t, sluice.Config{Name: "g", Parent: all})
			}, limits.ByParent, "sluice: g: all: waited for the concurrency of 1 as long as allowed",
		},
		"quota of a parent": {
			func(t *testing.T) *sluice.Gate {
				all := mustGate(t, sluice.Config{Name: "all", Limits: []sluice.Limit{{Name: "daily", Limiter: full()}}})
				return mustGate(t, sluice.Config{Name: "g", Parent: all})
			}, limits.ByParent, "sluice: all: would have to wait 1m0s for the limit daily, until 00:01:00, 1s were allowed",
		},
		"own quota below a parent": {
			func(t *testing.T) *sluice.Gate {
				return mustGate(t, sluice.Config{
					Name: "g", Parent: mustGate(t, sluice.Config{Name: "all"}),
					Limits: []sluice.Limit{{Name: "daily", Limiter: full()}},
				})
			}, "limit daily", "sluice: g: would have to wait 1m0s for the limit daily, until 00:01:00, 1s were allowed",
		},
		"rate below a parent": {
			func(t *testing.T) *sluice.Gate {
				g := mustGate(t, sluice.Config{Name: "g", Rate: sluice.Rate{Count: 1, Per: time.Minute}, Parent: mustGate(t, sluice.Config{Name: "all"})})
				take(t, g, 1)
				return g
			}, limits.ByRate, "sluice: g: would have to wait 1m0s for the rate of 1/m, until 00:01:00, 1s were allowed",
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := c.gate(t)
				if got := g.Stats().LimitedBy; got != "" {
					t.Errorf("no call waits, but Stats says %q", got)
				}
				for _, within := range []time.Duration{0, time.Second} {
					_, err := g.AcquireWithin(bg, 1, within)
					want := c.err
					if within == 0 {
						want = strings.Replace(want, ", 1s were", ", 0s were", 1)
					}
					var wait *limits.WaitError
					if err == nil || err.Error() != want {
						t.Errorf("within %v: error %q, want %q", within, err, want)
					} else if !errors.As(err, &wait) && !errors.Is(err, limits.ErrTimeout) {
						t.Errorf("%v is neither a WaitError nor ErrTimeout", err)
					}
				}
				ctx, cancel := context.WithCancel(bg)
				l := synclog.New()
				for i := range 2 {
					l.Call(i, func() error { _, err := g.Acquire(ctx, 1); return err })
				}
				if s := g.Stats(); s.LimitedBy != c.by || s.Pacing+s.Waiting != 2 {
					t.Errorf("%d wait, for %q, want %q", s.Pacing+s.Waiting, s.LimitedBy, c.by)
				}
				cancel()
				synctest.Wait()
				if got := g.Stats().LimitedBy; got != "" {
					t.Errorf("no call waits any more, but Stats says %q", got)
				}
			})
		})
	}
}
