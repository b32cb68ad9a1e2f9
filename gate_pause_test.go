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
	"github.com/sluice-go/sluice/limits"
)

// Retry-After: 30 reaches one of 64 workers. All of them come back after 30 s, one
// interval apart, in order.
func TestGate_PauseUntil_HoldsAllAndReleasesAtTheRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, l := mustGate(t, sluice.Config{Rate: withBurst(tenPerSecond, 10), Concurrency: 64}), synclog.New()
		time.Sleep(time.Hour) // a full burst is stored
		l.Start = time.Now()
		g.PauseUntil(time.Now().Add(30*time.Second), "429")
		g.PauseUntil(time.Now().Add(10*time.Second), "shorter, does not count")
		var want []synclog.Left
		for i := range 64 {
			l.Call(i, enter(g, bg))
			want = append(want, synclog.At(i, 30*time.Second+time.Duration(i)*100*ms))
		}
		s := g.Stats()
		if !s.PausedUntil.Equal(l.Start.Add(30*time.Second)) || s.PausedWhy != "429" || s.Pacing != 64 || !s.NextSlot.Equal(s.PausedUntil) {
			t.Errorf("while paused: %+v", s)
		}
		time.Sleep(time.Hour)
		l.Want(t, want...)
		if s := g.Stats(); !s.PausedUntil.IsZero() || s.PausedWhy != "" {
			t.Errorf("after the pause: %+v", s)
		}
	})
}

// The answer that causes a pause frees the only permit. No call may leave in
// between.
func TestGate_Do_ServerWaitHoldsTheNextCaller(t *testing.T) {
	refused := errors.New("429")
	for name, call := range map[string]func(g *sluice.Gate, f func(context.Context) error) error{
		"Gate.Do": func(g *sluice.Gate, f func(context.Context) error) error { return g.Do(bg, f) },
		"Do": func(g *sluice.Gate, f func(context.Context) error) error {
			return sluice.Retry(bg, g, sluice.RetryPolicy{}, f)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g, l := mustGate(t, sluice.Config{Concurrency: 1}), synclog.New()
				paused := false
				for i := range 5 {
					l.Call(i, func() error {
						return call(g, func(context.Context) error {
							if paused {
								return nil
							}
							paused = true
							time.Sleep(time.Second)
							return sluice.RetryAfter(refused, 30*time.Second)
						})
					})
				}
				time.Sleep(10 * time.Second)
				for _, left := range l.Sofar() {
					if left.Caller != 0 || left.Err == nil {
						t.Errorf("%v slipped through", left)
					}
				}
				if s := g.Stats(); s.PausedWhy != "429" || time.Until(s.PausedUntil) != 21*time.Second {
					t.Errorf("%+v", s)
				}
				time.Sleep(time.Minute)
				if n := len(l.Sofar()); n != 5 {
					t.Errorf("%d of 5 calls ended", n)
				}
			})
		})
	}
}

func TestGate_Resume(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, l := mustGate(t, sluice.Config{Rate: tenPerSecond}), synclog.New()
		g.PauseUntil(time.Now().Add(time.Hour), "by mistake")
		for i := range 3 {
			l.Call(i, enter(g, bg))
		}
		time.Sleep(time.Second)
		g.Resume()
		time.Sleep(time.Minute)
		l.Want(t, synclog.At(0, time.Second), synclog.At(1, 1100*ms), synclog.At(2, 1200*ms))
	})
}

func TestGate_PauseUntil_FailsWaitersWithoutTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, l := mustGate(t, sluice.Config{Concurrency: 1}), synclog.New()
		g.TryAcquire(1)
		l.Call(0, func() error { _, err := g.AcquireWithin(bg, 1, time.Second); return err })
		l.Call(1, func() error { _, err := g.AcquireWithin(bg, 1, time.Hour); return err })
		time.Sleep(10 * ms)
		g.PauseUntil(time.Now().Add(30*time.Second), "429")
		time.Sleep(ms)
		got := l.Sofar()
		var wait *limits.WaitError
		if len(got) != 1 || got[0].Caller != 0 || got[0].At != 10*ms || !errors.As(got[0].Err, &wait) || wait.Need != 30*time.Second {
			t.Errorf("got %v", got)
		}
		g.Close()
	})
}

func TestGate_PauseUntil_EndlessHasNoRetryAt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := mustGate(t, sluice.Config{Name: "api"})
		g.PauseUntil(time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC), "maintenance")
		err := sluice.Retry(bg, g, sluice.RetryPolicy{}, nothing)
		var stopped *sluice.RetryError
		if !errors.As(err, &stopped) || !stopped.RetryAt.IsZero() || !errors.Is(err, sluice.ErrServerWait) || !strings.Contains(err.Error(), "maintenance") {
			t.Errorf("%v, come back at %v", err, stopped.RetryAt)
		}
	})
}

// A change without effect does not make the first call ask its limiters again.
func TestGate_PauseUntil_InThePastAsksNoLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asks, full := 0, false
		g := mustGate(t, sluice.Config{Limits: []sluice.Limit{{Name: "q", Unit: sluice.Calls, Limiter: answering(func(context.Context, int64) (time.Duration, error) {
			if asks++; full {
				return time.Hour, nil
			}
			return 0, nil
		})}}})
		p, _ := g.Acquire(bg, 1)
		full = true
		ctx, cancel := context.WithCancel(bg)
		defer cancel()
		go g.Acquire(ctx, 1)
		synctest.Wait()
		asks = 0
		p.Settle(2)
		g.PauseUntil(time.Now().Add(-time.Second), "")
		synctest.Wait()
		if asks != 0 {
			t.Errorf("asked %d times", asks)
		}
	})
}
