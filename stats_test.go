package sluice_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/limits"
	"github.com/sluice-go/sluice/semaphore"
	"github.com/sluice-go/sluice/window"
)

func TestGate_Stats_PacingAndWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := mustGate(t, sluice.Config{Name: "api", Rate: tenPerSecond, Concurrency: 3})
		var wg sync.WaitGroup
		for range 10 {
			wg.Go(func() { hold(g, time.Hour) })
		}
		synctest.Wait()
		if s := g.Stats(); s.InFlight != 1 || s.Pacing != 2 || s.Waiting != 7 || s.Name != "api" || s.Rate != tenPerSecond || time.Until(s.NextSlot) != 100*ms {
			t.Errorf("%+v", s)
		}
		unlimited := mustGate(t, sluice.Config{Rate: tenPerSecond})
		ctx, cancel := context.WithCancel(bg)
		for range 3 {
			wg.Go(func() { unlimited.Acquire(ctx, 1) })
		}
		synctest.Wait()
		if s := unlimited.Stats(); s.InFlight != 1 || s.Pacing != 2 || s.Waiting != 0 {
			t.Errorf("without a limit of calls in flight: %+v", s)
		}
		cancel()
		time.Sleep(time.Second)
		if s := g.Stats(); s.InFlight != 3 || s.Pacing != 0 || s.Waiting != 7 || s.Granted != 3 {
			t.Errorf("%+v", s)
		}
		wg.Wait()
		s := g.Stats()
		if g.Stats().Waits.Count() != 10 || s.Waits[0] != 1 {
			t.Errorf("waits: %v", s.Waits)
		}
		// Three waits each of about 1, 2 and 3 hours, one of 100, one of 200 ms.
		if q := s.Waits.Quantile(0.3); q < 200*ms || q > 400*ms {
			t.Errorf("30%% waited no longer than %v", q)
		}
		if q := s.Waits.Quantile(1); q < 3*time.Hour || q > 6*time.Hour {
			t.Errorf("no call waited longer than %v", q)
		}
	})
}

// OldestWait is the age of the first caller, whatever holds it up, and that of the next one
// once it has left or given up.
func TestGate_Stats_OldestWait(t *testing.T) {
	day := func() []sluice.Limit {
		return []sluice.Limit{{Name: "day", Limiter: limits.Must(window.NewFixed(window.Quota{Limit: 1, Window: 24 * time.Hour}))}}
	}
	parent := func() *sluice.Gate { return mustGate(t, sluice.Config{Concurrency: 1}) }
	for name, make := range map[string]func() sluice.Config{
		"rate":        func() sluice.Config { return sluice.Config{Rate: sluice.Rate{Count: 1, Per: time.Hour}} },
		"concurrency": func() sluice.Config { return sluice.Config{Concurrency: 1} },
		"limit":       func() sluice.Config { return sluice.Config{Limits: day()} },
		"parent":      func() sluice.Config { return sluice.Config{Parent: parent()} },
		"cost":        func() sluice.Config { return sluice.Config{Concurrency: 1, ConcurrencyUnit: sluice.Cost} },
		"semaphore":   func() sluice.Config { return sluice.Config{Semaphore: shared{semaphore.NewWeighted(1), nil}} },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := mustGate(t, make())
				defer g.Close()
				check := func(want time.Duration) {
					t.Helper()
					synctest.Wait()
					if s := g.Stats(); s.OldestWait != want {
						t.Errorf("%v, want %v: %+v", s.OldestWait, want, s)
					}
				}
				if _, err := g.Acquire(bg, 1); err != nil {
					t.Fatal(err)
				}
				check(0)
				first, giveUp := context.WithCancel(bg)
				second, end := context.WithCancel(bg)
				go g.Acquire(first, 1)
				check(0) // it has just come
				time.Sleep(time.Minute)
				go g.Acquire(second, 1)
				check(time.Minute)
				time.Sleep(20 * time.Minute)
				check(21 * time.Minute)
				giveUp()
				check(20 * time.Minute)
				end()
				check(0)
			})
		})
	}
}

func TestConfig_Semaphore_CloseAndStatsCountWaiters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sem := semaphore.NewWeighted(1)
		sem.TryAcquire(1)
		g := mustGate(t, sluice.Config{Semaphore: shared{sem, nil}, MaxWaiting: 3})
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				if _, err := g.Acquire(bg, 1); !errors.Is(err, limits.ErrClosed) {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		if _, err := g.Acquire(bg, 1); !errors.Is(err, limits.ErrQueueFull) {
			t.Errorf("a fourth: %v", err)
		}
		if s := g.Stats(); s.Waiting != 3 || s.LimitedBy != limits.BySemaphore {
			t.Errorf("%+v", s)
		}
		g.Close()
		wg.Wait()
		if _, err := g.Acquire(bg, 1); !errors.Is(err, limits.ErrClosed) || sem.Waiting() != 0 {
			t.Errorf("%v, %d wait for permits", err, sem.Waiting())
		}
	})
}

func TestStats_StringLeavesOutWhatIsZero(t *testing.T) {
	for want, s := range map[string]sluice.Stats{
		"0 in flight, 0 granted":                                    {},
		"g: 0 in flight, 0 granted":                                 {Name: "g"},
		"1,234,567 of 7,654,321 in flight, 0 granted":               {InFlight: 1234567, Concurrency: 7654321},
		"0 in flight, 0 granted; 1 call waits for the limit day":    {Waiting: 1, LimitedBy: "limit day"},
		"0 in flight, 0 granted; 1 call waits":                      {Pacing: 1},
		"0 in flight, calls 2s apart after failures, 0 granted":     {Spacing: 2 * time.Second},
		"0 in flight, paused until 2100-01-02 03:04:05, 0 granted":  {PausedUntil: time.Date(2100, 1, 2, 3, 4, 5, 6, time.UTC)},
		"0 in flight, 999 granted, 1,000 refused, 1 retried":        {Granted: 999, Refused: sluice.Refusals{Busy: 1, Other: 999}, Retried: 1},
		"0 in flight, 0 granted; 1 call waits for the retry budget": {Pacing: 1, LimitedBy: limits.ByRetryBudget},
		"0 in flight, 0 granted; last error: limit day: no":         {LastError: "limit day: no"},
	} {
		if got := s.String(); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

func TestRefusals_All(t *testing.T) {
	var got []string
	for reason, n := range (sluice.Refusals{Busy: 1, Deadline: 2, Cancelled: 3, TooLarge: 4, QueueFull: 5, Closed: 6, Other: 7}).All() {
		got = append(got, fmt.Sprint(reason, " ", n))
	}
	if want := "busy 1, deadline 2, cancelled 3, too_large 4, queue_full 5, closed 6, other 7"; strings.Join(got, ", ") != want {
		t.Errorf("%v", got)
	}
	for range (sluice.Refusals{}).All() { // it may be left
		break
	}
}
