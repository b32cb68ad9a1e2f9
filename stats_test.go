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
	"github.com/sluice-go/sluice/internal/testkit/synclog"
	"github.com/sluice-go/sluice/leaky"
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
		if s := g.Stats(); s.InFlight != 3 || s.Pacing != 0 || s.Waiting != 7 || s.Admitted != 3 {
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

// withoutBudget returns a gate named g whose retry budget is empty, so that its calls are spaced out.
func withoutBudget(t *testing.T, spacing time.Duration) *sluice.Gate {
	t.Helper()
	g := fixedGate(t, sluice.Config{Name: "g", RetryBudget: 5}) // for one retry
	err := sluice.Retry(bg, g, func(context.Context) error { return errBusy }, sluice.RetryPolicy{Backoff: sluice.Constant(spacing)})
	if !errors.Is(err, sluice.ErrBudget) {
		t.Fatal(err)
	}
	return g
}

func TestStats_StringLeavesOutWhatIsZero(t *testing.T) {
	for want, s := range map[string]sluice.Stats{
		"0 in flight, 0 admitted":                                   {},
		"g: 0 in flight, 0 admitted":                                {Name: "g"},
		"1,234,567 of 7,654,321 in flight, 0 admitted":              {InFlight: 1234567, Concurrency: 7654321},
		"0 in flight, 0 admitted; 1 call waits for the limit day":   {Waiting: 1, LimitedBy: "limit day"},
		"0 in flight, 0 admitted; 1 call waits":                     {Pacing: 1},
		"0 in flight, calls 2.0 s apart after failures, 0 admitted": {Spacing: 2 * time.Second},
		// A spacing comes from a backoff with jitter.
		"0 in flight, calls 999 ms apart after failures, 0 admitted": {Spacing: time.Second - 1},
		"0 in flight, paused until 2100-01-02 03:04:05, 0 admitted":  {PausedUntil: time.Date(2100, 1, 2, 3, 4, 5, 6, time.UTC)},
		"0 in flight, 999 admitted, 1,000 rejected, 1 retried":       {Admitted: 999, Rejected: sluice.Rejections{Busy: 1, Other: 999}, Retried: 1},
		"0 in flight, 0 admitted; 1 call waits for the retry budget": {Pacing: 1, LimitedBy: limits.ByRetryBudget},
		"0 in flight, 0 admitted; last error: limit day: no":         {LastError: "limit day: no"},
	} {
		if got := s.String(); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

func TestRefusals_All(t *testing.T) {
	var got []string
	for reason, n := range (sluice.Rejections{Busy: 1, Deadline: 2, Canceled: 3, TooLarge: 4, QueueFull: 5, Closed: 6, Other: 7}).All() {
		got = append(got, fmt.Sprint(reason, " ", n))
	}
	if want := "busy 1, deadline 2, canceled 3, too_large 4, queue_full 5, closed 6, other 7"; strings.Join(got, ", ") != want {
		t.Errorf("%v", got)
	}
	for range (sluice.Rejections{}).All() { // it may be left
		break
	}
}

// # The cause of waits

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
			func(t *testing.T) *sluice.Gate { return withoutBudget(t, 8*time.Second) },
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

// # The reason of a pause

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
			return sluice.Retry(bg, g, nothing, sluice.RetryPolicy{MaxServerWait: time.Minute})
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

// A parent or a further limit may delay calls that wait for the rate of their gate even longer.
func TestStats_Why_IsALowerBoundBelowAParent(t *testing.T) {
	for want, below := range map[string]bool{
		"3 calls wait for the rate of 10/s, for another 300 ms":          false,
		"3 calls wait for the rate of 10/s, at least for another 300 ms": true,
	} {
		synctest.Test(t, func(t *testing.T) {
			cfg := sluice.Config{Rate: sluice.PerSecond(10)}
			if below {
				cfg.Parent = sluice.Must(sluice.New(sluice.Config{Rate: sluice.PerSecond(11)}))
			}
			gate := sluice.Must(sluice.New(cfg))
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			for range 4 {
				go gate.Wait(ctx)
			}
			synctest.Wait()
			if got := gate.Stats().Why(); got != want {
				t.Errorf("%s, want %s", got, want)
			}
			cancel()
			synctest.Wait()
		})
	}
}
