package sluice_test

import (
	"context"
	"errors"
	"math"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/internal/testkit/synclog"
	"github.com/sluice-go/sluice/limits"
	"github.com/sluice-go/sluice/semaphore"
)

// Each test in this file failed once. What it says was wrong in the code.

// An answering is a meter that answers with a function.
type answering func(ctx context.Context, n int64) (time.Duration, error)

func (a answering) Admit(ctx context.Context, n int64) (time.Duration, error) { return a(ctx, n) }
func (a answering) Adjust(context.Context, int64, time.Duration) error        { return nil }

func TestQuotaAnswersAfterItsCallerGaveUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		deaf := answering(func(context.Context, int64) (time.Duration, error) {
			time.Sleep(20 * ms) // whatever becomes of ctx
			return 0, nil
		})
		behind := &bucket{capacity: 1, interval: time.Hour}
		g := mustGate(t, sluice.Config{Limits: []sluice.Limit{{Name: "b", Limiter: behind}, {Name: "q", Limiter: deaf}}})
		ctx, cancel := context.WithCancel(bg)
		time.AfterFunc(10*ms, cancel)
		_, err := g.Acquire(ctx, 1)
		if err != context.Canceled || g.Stats().InFlight != 0 || behind.missing() != 0 {
			t.Errorf("%v, %d in flight, %d tokens gone", err, g.Stats().InFlight, behind.missing())
		}
	})
}

func TestMaxElapsedBoundsTheWaitForTheGate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := mustGate(t, sluice.Config{Rate: sluice.Rate{Count: 1, Per: time.Second}})
		var wg sync.WaitGroup
		start := time.Now()
		wg.Go(func() {
			err := sluice.Retry(bg, g, sluice.RetryPolicy{MaxElapsed: 5 * time.Second}, func(context.Context) error {
				return errors.New("x")
			})
			var stopped *sluice.RetryError
			if !errors.As(err, &stopped) || stopped.Why != sluice.ErrElapsed || stopped.Attempts != 1 || stopped.RetryAt.IsZero() {
				t.Errorf("%v", err)
			}
			if d := time.Since(start); d > time.Second {
				t.Errorf("stopped after %v, though 100 were before it in the queue", d)
			}
		})
		synctest.Wait()
		for range 100 {
			wg.Go(func() { hold(g, 0) })
		}
		wg.Wait()
	})
}

// exhaust empties the retry budget of a gate, which has room for one retry.
func exhaust(t *testing.T, g *sluice.Gate) {
	t.Helper()
	err := sluice.Retry(bg, g, sluice.RetryPolicy{Backoff: sluice.Constant(500 * ms)}, func(context.Context) error { return errors.New("x") })
	if !errors.Is(err, sluice.ErrBudget) {
		t.Fatal(err)
	}
	if s := g.Stats(); s.Spacing != 500*ms {
		t.Fatalf("spacing %v", s.Spacing)
	}
}

func TestSpacingAfterAnEmptyBudget(t *testing.T) {
	for name, cfg := range map[string]sluice.Config{
		"no rate":        {},
		"a stored burst": {Rate: sluice.Rate{Count: 100, Per: time.Second}, Burst: 20},
		"counts cost":    {Rate: sluice.Rate{Count: 60_000, Per: time.Second}, RateUnit: sluice.Cost},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cfg.RetryBudget = 10
				g := mustGate(t, cfg)
				time.Sleep(time.Hour)
				exhaust(t, g)
				if d := time.Until(g.Stats().NextSlot); d != 500*ms {
					t.Errorf("next call in %v", d)
				}
				var left []time.Duration
				start := time.Now()
				for range 11 { // each success halves the spacing: 500, 250, … 1, 0
					g.Acquire(bg, 1000)
					left = append(left, time.Since(start).Truncate(ms))
					g.Do(bg, nothing)
				}
				if left[0] != 500*ms || left[1] != 1250*ms {
					t.Errorf("left at %v", left)
				}
				if s := g.Stats(); s.Spacing != 0 {
					t.Errorf("%v after 11 successes", s.Spacing)
				}
			})
		})
	}
}

func TestHugeBudgetDoesNotOverflow(t *testing.T) {
	g := mustGate(t, sluice.Config{RetryBudget: math.MaxInt})
	fail := func(context.Context) error { return errors.New("x") }
	for range 3 {
		sluice.Retry(bg, g, sluice.RetryPolicy{}, nothing)
		if err := sluice.Retry(bg, g, sluice.RetryPolicy{Attempts: 2, Backoff: sluice.Constant(0)}, fail); !errors.Is(err, sluice.ErrAttempts) {
			t.Error(err)
		}
	}
	if n := g.Stats().RetryTokens; n <= 0 {
		t.Errorf("%d tokens", n)
	}
}

func TestMarksOfAnotherGateAreItsAffair(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		global, host := mustGate(t, sluice.Config{Name: "global"}), mustGate(t, sluice.Config{Name: "host"})
		err := global.Do(bg, func(ctx context.Context) error {
			return sluice.Retry(ctx, host, sluice.RetryPolicy{}, func(context.Context) error {
				return sluice.RetryAfter(errors.New("429"), time.Hour)
			})
		})
		if s := global.Stats(); !s.PausedUntil.IsZero() {
			t.Errorf("the gate of all hosts is paused because one said so: %+v", s)
		}
		want := "sluice: host: gave up after 1 attempt: the server asks for too long a wait, come back at 2000-01-01T01:00:00Z: 429"
		if err.Error() != want {
			t.Errorf("message %q\nwant    %q", err, want)
		}
	})
}

func TestOfJoinedToldWaitsTheLongestCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := mustGate(t, sluice.Config{})
		g.Do(bg, func(context.Context) error {
			return errors.Join(sluice.RetryAfter(errors.New("a"), time.Second), sluice.RetryAfter(errors.New("b"), time.Hour))
		})
		if d := time.Until(g.Stats().PausedUntil); d != time.Hour {
			t.Errorf("paused for %v", d)
		}
	})
}

func TestBackoffIsGivenLessThanOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := []time.Duration{1, 2, 3}
		sluice.Retry(bg, mustGate(t, sluice.Config{}), sluice.RetryPolicy{Backoff: func(_ int, _ time.Duration, u float64) time.Duration {
			return table[int(u*3)]
		}}, func(context.Context) error { return errors.New("x") })
	})
}

func TestShutdownWaitsForCallsThatCostNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := mustGate(t, sluice.Config{Concurrency: 10, ConcurrencyUnit: sluice.Cost})
		p, _ := g.Acquire(bg, 5)
		p.Settle(0)
		ctx, cancel := context.WithTimeout(bg, time.Second)
		defer cancel()
		if err := g.Shutdown(ctx); err != context.DeadlineExceeded {
			t.Errorf("Shutdown with a call in flight: %v", err)
		}
		p.Release()
		if err := g.Shutdown(bg); err != nil {
			t.Error(err)
		}
	})
}

func TestInFlightDoesNotOverflow(t *testing.T) {
	g := mustGate(t, sluice.Config{Concurrency: 10, ConcurrencyUnit: sluice.Cost})
	a, _ := g.Acquire(bg, 1)
	b, _ := g.Acquire(bg, 1)
	a.Settle(math.MaxInt64)
	b.Settle(math.MaxInt64)
	if _, ok := g.TryAcquire(10); ok {
		t.Errorf("let through with %d in flight", g.Stats().InFlight)
	}
	a.Release()
	b.Release()
	if n := g.Stats().InFlight; n != 0 {
		t.Errorf("%d in flight after all came back", n)
	}
	unlimited := mustGate(t, sluice.Config{ConcurrencyUnit: sluice.Cost})
	unlimited.Acquire(bg, math.MaxInt64)
	if _, ok := unlimited.TryAcquire(math.MaxInt64); ok || unlimited.Stats().InFlight < 0 {
		t.Errorf("in flight: %d", unlimited.Stats().InFlight)
	}
}

func TestPanicOfAQuotaLeaksNothing(t *testing.T) {
	sem, first := semaphore.NewWeighted(1), &bucket{capacity: 10, interval: time.Hour}
	g := mustGate(t, sluice.Config{Semaphore: shared{sem, nil}, Limits: []sluice.Limit{
		{Name: "first", Limiter: first},
		{Name: "second", Limiter: answering(func(context.Context, int64) (time.Duration, error) { panic("mine") })},
	}})
	func() {
		defer func() {
			if recover() != "mine" {
				t.Error("the panic did not fly on")
			}
		}()
		g.Acquire(bg, 1)
	}()
	if sem.InFlight() != 0 || first.missing() != 0 || g.Stats().Pacing != 0 {
		t.Errorf("%d permits and %d tokens are gone", sem.InFlight(), first.missing())
	}
}

func TestCloseAndStatsSeeThoseWhoWaitForPermits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sem := semaphore.NewWeighted(1)
		sem.TryAcquire(1)
		g := mustGate(t, sluice.Config{Semaphore: shared{sem, nil}, MaxWaiting: 3})
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				if _, err := g.Acquire(bg, 1); !errors.Is(err, sluice.ErrClosed) {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		if _, err := g.Acquire(bg, 1); !errors.Is(err, sluice.ErrQueueFull) {
			t.Errorf("a fourth: %v", err)
		}
		if s := g.Stats(); s.Waiting != 3 || s.LimitedBy != sluice.BySemaphore {
			t.Errorf("%+v", s)
		}
		g.Close()
		wg.Wait()
		if _, err := g.Acquire(bg, 1); !errors.Is(err, sluice.ErrClosed) || sem.Waiting() != 0 {
			t.Errorf("%v, %d wait for permits", err, sem.Waiting())
		}
	})
}

func TestLongestWaitBelowAllNumbers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := mustGate(t, sluice.Config{Rate: sluice.Rate{Count: 1, Per: time.Hour}, Semaphore: shared{semaphore.NewWeighted(9), nil}})
		hold(g, 0)
		start := time.Now()
		if _, err := g.AcquireWithin(bg, 1, math.MinInt64); err == nil || time.Since(start) != 0 {
			t.Errorf("%v after %v", err, time.Since(start))
		}
	})
}

// A limit that can only be helped by a change is not asked again by those who
// come and queue behind.
func TestNewcomersDoNotMakeTheFirstAskAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asks := 0
		b := sluice.NewQueue(answering(func(context.Context, int64) (time.Duration, error) {
			asks++
			return limits.Never, nil
		}))
		ctx, cancel := context.WithCancel(bg)
		var wg sync.WaitGroup
		for range 100 {
			wg.Go(func() { b.Acquire(ctx, 1) })
			synctest.Wait()
			b.TryAcquire(1)
		}
		if asks != 1 {
			t.Errorf("asked %d times", asks)
		}
		cancel()
		wg.Wait()
	})
}

// Neither do changes that change nothing.
func TestWhatChangesNothingAsksNobody(t *testing.T) {
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

func TestPauseWithoutEndHasNoTimeToComeBack(t *testing.T) {
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

func TestCallKnowsThatItsLeaseWasLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lost := make(chan struct{})
		close(lost)
		g := mustGate(t, sluice.Config{Semaphore: shared{semaphore.NewWeighted(1), lost}})
		err := sluice.Retry(bg, g, sluice.RetryPolicy{Attempts: 1}, func(ctx context.Context) error {
			<-ctx.Done()
			return ctx.Err()
		})
		if !errors.Is(err, sluice.ErrLeaseLost) {
			t.Error(err)
		}
	})
}

// A call that had waited for its slot and then for room counted as woken late,
// by us, when the room came back, and the next one left up to CatchUp too early.
func TestRoomThatComesBackLateIsNotOurLateness(t *testing.T) {
	for name, quotas := range map[string][]sluice.Limit{
		"no quota": nil,
		"a quota":  {{Name: "q", Limiter: &bucket{capacity: 100, interval: ms}}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g, l := mustGate(t, sluice.Config{Rate: tenPerSecond, Concurrency: 2, Limits: quotas}), synclog.New()
				p, _ := g.Acquire(bg, 1)
				l.Call(0, enter(g, bg)) // its slot is at 100 ms
				l.Call(1, enter(g, bg))
				g.SetConcurrency(1)
				time.Sleep(100*ms + ms/2)
				g.SetConcurrency(2)
				time.Sleep(ms)
				p.Release()
				time.Sleep(time.Minute)
				l.Want(t, synclog.At(0, 100*ms+ms/2), synclog.At(1, 200*ms+ms/2))
			})
		})
	}
}
