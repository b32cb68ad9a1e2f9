package sluice_test

import (
	"context"
	"errors"
	"fmt"
	"math"
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

func TestStats_StringLeavesOutWhatIsZero(t *testing.T) {
	for want, s := range map[string]sluice.Stats{
		"0 in flight, 0 granted":                                    {},
		"g: 0 in flight, 0 granted":                                 {Name: "g"},
		"1,234,567 of 7,654,321 in flight, 0 granted":               {InFlight: 1234567, Concurrency: 7654321},
		"0 in flight, 0 granted; 1 call waits for the limit day":    {Waiting: 1, LimitedBy: "limit day"},
		"0 in flight, 0 granted; 1 call waits":                      {Pacing: 1},
		"0 in flight, calls 2s apart after failures, 0 granted":     {Spacing: 2 * time.Second},
		"0 in flight, paused until 2100-01-02 03:04:05, 0 granted":  {PausedUntil: time.Date(2100, 1, 2, 3, 4, 5, 6, time.UTC)},
		"0 in flight, 999 granted, 1,000 refused, 1 retried":        {Admitted: 999, Rejected: sluice.Rejections{Busy: 1, Other: 999}, Retried: 1},
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

// # Estimates

// An estimate names the limit that it cannot forecast, and is empty only if that
// is certain.
func TestGate_Estimate_NamesWhatItCannotForecast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		quota := func(name string) []sluice.Limit {
			return []sluice.Limit{{Name: name, Limiter: &bucket{capacity: 10, interval: time.Hour}}}
		}
		permits := shared{semaphore.NewWeighted(1), nil}
		for name, c := range map[string]struct {
			gates []sluice.Config // the oldest first
			want  sluice.Estimate // of 11 calls
		}{
			"no limit":           {[]sluice.Config{{}}, sluice.Estimate{}},
			"quota":              {[]sluice.Config{{Limits: quota("day")}}, sluice.Estimate{LimitedBy: "limit day", Unknown: "limit day"}},
			"nameless quota":     {[]sluice.Config{{Limits: quota("")}}, sluice.Estimate{LimitedBy: "limit", Unknown: "limit"}},
			"permits":            {[]sluice.Config{{Semaphore: permits}}, sluice.Estimate{LimitedBy: limits.BySemaphore, Unknown: limits.BySemaphore}},
			"permits and quota":  {[]sluice.Config{{Semaphore: permits, Limits: quota("day")}}, sluice.Estimate{LimitedBy: "limit day", Unknown: "limit day"}},
			"quota of a parent":  {[]sluice.Config{{Limits: quota("all")}, {}}, sluice.Estimate{LimitedBy: "limit all", Unknown: "limit all"}},
			"quotas of both":     {[]sluice.Config{{Limits: quota("all")}, {Limits: quota("day")}}, sluice.Estimate{LimitedBy: "limit day", Unknown: "limit day"}},
			"rate and quota":     {[]sluice.Config{{Rate: tenPerSecond, Limits: quota("day")}}, sluice.Estimate{Last: time.Second, Total: time.Second, LimitedBy: limits.ByRate, Unknown: "limit day"}},
			"rate of the parent": {[]sluice.Config{{Rate: tenPerSecond}, {Limits: quota("day")}}, sluice.Estimate{Last: time.Second, Total: time.Second, LimitedBy: limits.ByRate, Unknown: "limit day"}},
			"rate":               {[]sluice.Config{{Rate: tenPerSecond}}, sluice.Estimate{Last: time.Second, Total: time.Second, LimitedBy: limits.ByRate}},
		} {
			g := generations(t, c.gates...)
			if got := g.Estimate(11); got != c.want {
				t.Errorf("%s: %+v, want %+v", name, got, c.want)
			}
			if got := g.Estimate(0); got != (sluice.Estimate{}) {
				t.Errorf("%s: nothing takes %+v", name, got)
			}
		}
	})
}

// In a slow start an estimate names it unless the window has room for all the calls.
func TestGate_Estimate_NamesASlowStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := func(cfg sluice.Config) *sluice.Gate { // paused for 1 s from now on
			g := fixedGate(t, cfg)
			g.PauseUntil(time.Now().Add(time.Second), "429")
			return g
		}
		check := func(what string, g *sluice.Gate, n int64, want sluice.Estimate) {
			t.Helper()
			if got := g.Estimate(n); got != want {
				t.Errorf("%s: Plan(%d): %+v, want %+v", what, n, got, want)
			}
		}
		var nothing sluice.Estimate
		started := sluice.Estimate{LimitedBy: limits.BySlowStart, Unknown: limits.BySlowStart}
		paused := sluice.Estimate{First: time.Second, Last: time.Second, Total: time.Second, LimitedBy: limits.ByPause}

		g := slow(sluice.Config{})
		limited := slow(sluice.Config{Concurrency: 4})
		child := fixedGate(t, sluice.Config{Parent: g})
		below := slow(sluice.Config{Parent: fixedGate(t, sluice.Config{Rate: tenPerSecond})})
		quota := slow(sluice.Config{Limits: []sluice.Limit{{Name: "day", Limiter: &bucket{capacity: 10, interval: time.Hour}}}})
		check("paused", g, 1, paused)
		paused.Unknown = limits.BySlowStart
		check("paused", g, 2, paused)

		time.Sleep(time.Second)
		check("one call may leave", g, 1, nothing)
		check("the second may not", g, 2, started)
		check("with a limit", limited, 2, started)
		check("of the parent", child, 2, started)
		check("below a rate", below, 11, sluice.Estimate{Last: time.Second, Total: time.Second, LimitedBy: limits.ByRate, Unknown: limits.BySlowStart})
		check("beside a quota", quota, 2, sluice.Estimate{LimitedBy: limits.BySlowStart, Unknown: "limit day"})

		p, err := g.Acquire(bg, 1)
		if err != nil {
			t.Fatal(err)
		}
		check("one is in flight", g, 1, started)
		time.Sleep(time.Second)
		p.Release()
		check("two calls may leave", g, 2, sluice.Estimate{Total: time.Second})
		started.Total = time.Second
		check("the third may not", g, 3, started)

		// From the second refusal on there is a pace: one call in some seconds.
		for range 2 {
			g.Do(bg, retryAfter(time.Second))
			time.Sleep(2 * time.Second)
		}
		if got := g.Estimate(1).LimitedBy; got != limits.BySlowStart {
			t.Errorf("before the gap is over: %q", got)
		}
		time.Sleep(time.Minute)
		if got := g.Estimate(1).LimitedBy; got != "" {
			t.Errorf("after it: %q", got)
		}

		// As long as it lasts it takes longer than the limit on the calls in flight.
		p, err = limited.Acquire(bg, 1)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		p.Release()
		got := limited.Estimate(8)
		if want := (sluice.Estimate{Last: time.Second, Total: 2 * time.Second, LimitedBy: limits.BySlowStart, Unknown: limits.BySlowStart}); got != want {
			t.Errorf("beside a limit: %+v, want %+v", got, want)
		}
		limited.SetRate(sluice.Rate{Count: 10, Per: time.Second})
		check("a rate ends it", limited, 4, sluice.Estimate{Last: 300 * ms, Total: 1300 * ms, LimitedBy: limits.ByRate})
	})
}

func TestGate_Estimate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := mustGate(t, sluice.Config{Rate: sluice.Rate{Count: 5, Per: time.Second}, Concurrency: 10})
		check := func(n int64, want sluice.Estimate) {
			t.Helper()
			if got := g.Estimate(n); got != want {
				t.Errorf("Plan(%d) = %+v, want %+v", n, got, want)
			}
		}
		check(0, sluice.Estimate{})
		check(1, sluice.Estimate{})
		check(50_000, sluice.Estimate{Last: 9999800 * ms, Total: 9999800 * ms, LimitedBy: limits.ByRate})
		g.PauseUntil(time.Now().Add(time.Minute), "")
		check(10, sluice.Estimate{First: time.Minute, Last: 61800 * ms, Total: 61800 * ms, LimitedBy: limits.ByPause})
		g.Resume()
		hold(g, 4*time.Second)
		// 10 in flight for 4 s each are 2.5/s: fewer than the rate of 5/s.
		// The last of 100 leaves when 9 rounds are over, 9 intervals into the tenth.
		check(100, sluice.Estimate{Last: 37800 * ms, Total: 41800 * ms, LimitedBy: limits.ByConcurrency})
		g.SetConcurrency(0)
		check(100, sluice.Estimate{Last: 19800 * ms, Total: 23800 * ms, LimitedBy: limits.ByRate})
		check(math.MaxInt64, sluice.Estimate{Last: limits.Never, Total: limits.Never, LimitedBy: limits.ByRate})
	})
}

func TestGate_Estimate_CountsCallsInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := mustGate(t, sluice.Config{Concurrency: 2})
		hold(g, time.Second)
		g.Acquire(bg, 1)
		if f := g.Estimate(2); f.First != 0 || f.Last != time.Second {
			t.Errorf("one of two in flight: %+v", f)
		}
		g.Acquire(bg, 1)
		if f := g.Estimate(2); f.First != time.Second || f.Last != time.Second || f.Total != 2*time.Second || f.LimitedBy != limits.ByConcurrency {
			t.Errorf("both in flight: %+v", f)
		}
	})
}

// What an estimate forecasts is what then happens.
func TestGate_Estimate_ComesTrue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, cfg := range []sluice.Config{
			{Rate: tenPerSecond, Concurrency: 4},
			{Rate: tenPerSecond, Concurrency: 2},
			{Concurrency: 3},
			{Rate: sluice.Rate{Count: 3, Per: time.Second}},
		} {
			g := mustGate(t, cfg)
			hold(g, 300*ms)
			time.Sleep(time.Second)
			want := g.Estimate(40)
			var wg sync.WaitGroup
			start := time.Now()
			for range 40 {
				wg.Go(func() { hold(g, 300*ms) })
			}
			wg.Wait()
			if got := time.Since(start); got != want.Total {
				t.Errorf("%d in flight at %v: took %v, planned %+v", cfg.Concurrency, cfg.Rate, got, want)
			}
		}
	})
}

func TestGate_Estimate_NamesTheSpacingAndLeavesItOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := emptied(t, sluice.Config{Rate: tenPerSecond}, 8*time.Second)
		for _, c := range []struct {
			n    int64
			want sluice.Estimate
		}{
			{1, sluice.Estimate{First: 100 * ms, Last: 100 * ms, LimitedBy: limits.ByRetryBudget}},
			{3, sluice.Estimate{First: 100 * ms, Last: 300 * ms, LimitedBy: limits.ByRetryBudget}},
			{math.MaxInt64, sluice.Estimate{First: 100 * ms, Last: limits.Never, LimitedBy: limits.ByRate}}, // no end of calls
		} {
			got := g.Estimate(c.n)
			got.Total = 0
			if got != c.want {
				t.Errorf("Plan(%d) = %+v, want %+v", c.n, got, c.want)
			}
		}
		// What is so now Stats do say.
		if got := g.Stats(); time.Until(got.NextSlot) != 8*time.Second || got.Spacing != 8*time.Second {
			t.Errorf("%+v", got)
		}
		g.PauseUntil(time.Now().Add(time.Hour), "")
		if got := g.Estimate(3); got.First != time.Hour || got.LimitedBy != limits.ByPause {
			t.Errorf("Plan(3) = %+v", got)
		}
	})
}

// Calls in flight are expected to end during a pause that is longer than they usually take.
func TestGate_Estimate_CallsInFlightEndDuringAPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := mustGate(t, sluice.Config{Rate: tenPerSecond, Concurrency: 1})
		hold(g, time.Second)
		p, err := g.Acquire(bg, 1)
		if err != nil {
			t.Fatal(err)
		}
		defer p.Release()
		for pause, first := range map[time.Duration]time.Duration{
			500 * ms:         time.Second, // the call may still be in flight
			10 * time.Second: 10 * time.Second,
		} {
			g.Resume()
			g.PauseUntil(time.Now().Add(pause), "maintenance")
			if got := g.Estimate(1); got.First != first || got.Total != first+time.Second {
				t.Errorf("with a pause of %v: %+v, want the first call after %v", pause, got, first)
			}
		}
	})
}
