package sluice_test

import (
	"context"
	"errors"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/internal/testkit/synclog"
)

// After an outage all calls that have the time succeed, with or without a deadline.
func TestConfig_RetryBudget_CallsWithDeadlinesSucceedAfterAnOutage(t *testing.T) {
	fifty := sluice.Rate{Count: 50, Per: time.Second}
	for name, cfg := range map[string]func() sluice.Config{
		"rate":        func() sluice.Config { return sluice.Config{Rate: fifty} },
		"no rate":     func() sluice.Config { return sluice.Config{} },
		"concurrency": func() sluice.Config { return sluice.Config{Rate: fifty, Concurrency: 5} },
		"burst":       func() sluice.Config { return sluice.Config{Rate: withBurst(fifty, 20)} },
		"parent": func() sluice.Config {
			return sluice.Config{Rate: fifty, Parent: fixedGate(t, sluice.Config{Rate: fifty})}
		},
		"grandparent": func() sluice.Config {
			return sluice.Config{Parent: fixedGate(t, sluice.Config{Rate: fifty, Parent: fixedGate(t, sluice.Config{})})}
		},
		"quota":        func() sluice.Config { return sluice.Config{Rate: fifty, Limits: []sluice.Limit{{Limiter: free{}}}} },
		"hardly a bet": func() sluice.Config { return sluice.Config{Rate: fifty, RetryBudget: 5} },
	} {
		t.Run(name, func(t *testing.T) {
			// ok returns how many of 500 calls succeed, and when the last one does.
			ok := func(p sluice.RetryPolicy, with func(f func(context.Context) error)) (n int64, last time.Duration) {
				synctest.Test(t, func(t *testing.T) {
					g := fixedGate(t, cfg())
					var calls, fine atomic.Int64
					var mu sync.Mutex
					start := time.Now()
					for range 500 {
						go with(func(ctx context.Context) error {
							err := sluice.Retry(ctx, g, p, func(context.Context) error {
								n := calls.Add(1)
								// Answered one after the other: in which order the budget sees
								// them decides how many retries it pays for.
								time.Sleep(10*ms + time.Duration(n))
								if n <= 30 {
									return errDown
								}
								return nil
							})
							if err == nil {
								fine.Add(1)
								mu.Lock()
								last = max(last, time.Since(start))
								mu.Unlock()
							} else if !errors.Is(err, sluice.ErrBudget) {
								t.Errorf("after %v: %v", time.Since(start), err)
							}
							return err
						})
					}
					time.Sleep(time.Hour)
					mu.Lock()
					defer mu.Unlock()
					n = fine.Load()
				})
				return n, last
			}
			p := each(time.Second)
			want, last := ok(p, func(f func(context.Context) error) { f(bg) })
			if want < 450 || last > time.Minute {
				t.Fatalf("without a deadline %d succeed, the last one after %v", want, last)
			}
			for how, with := range map[string]func(f func(context.Context) error){
				"deadline": func(f func(context.Context) error) {
					ctx, cancel := context.WithTimeout(bg, last+time.Second)
					defer cancel()
					f(ctx)
				},
				"MaxElapsed": nil,
			} {
				policy := p
				if with == nil {
					policy.MaxElapsed = last + time.Second
					with = func(f func(context.Context) error) { f(bg) }
				}
				if got, _ := ok(policy, with); got != want {
					t.Errorf("%s: %d succeed, %d without", how, got, want)
				}
			}
		})
	}
}

func TestConfig_RetryBudget_AcquireWithinAfterAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, l := emptied(t, sluice.Config{Rate: tenPerSecond}, 8*time.Second), synclog.New()
		l.Call(0, func() error { return sluice.Retry(bg, g, sluice.RetryPolicy{}, fine) })
		for i := range 3 { // 8 s each if nothing succeeded
			l.Call(i+1, func() error {
				p, err := g.AcquireWithin(bg, 1, 20*time.Second)
				if err == nil {
					p.Release()
				}
				return err
			})
		}
		time.Sleep(time.Hour)
		l.Want(t, synclog.At(0, 8*time.Second), synclog.At(1, 12*time.Second), synclog.At(2, 16*time.Second), synclog.At(3, 20*time.Second))
	})
}

func TestConfig_RetryBudget_RecoversWithTime(t *testing.T) {
	for _, c := range []struct {
		capacity int
		after    []int // tokens after each 30 s
	}{
		{0, []int{0, 5, 10, 15, 20}},
		{100, []int{0, 5, 10, 15, 20}},
		{10, []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 10}},
		{25, []int{0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 25}},
		{1000, []int{0, 50, 100, 150}},
	} {
		synctest.Test(t, func(t *testing.T) {
			g := fixedGate(t, sluice.Config{RetryBudget: c.capacity})
			capacity := g.Stats().RetryTokens
			for range capacity / 5 {
				sluice.Retry(bg, g, sluice.RetryPolicy{Attempts: 2, Backoff: sluice.Constant(ms)}, down)
			}
			for i, want := range c.after {
				if i > 0 {
					time.Sleep(30*time.Second - 1)
					if got := g.Stats().RetryTokens; got != c.after[i-1] {
						t.Errorf("RetryBudget %d: %d tokens just before %v, want %d", c.capacity, got, time.Duration(i)*30*time.Second, c.after[i-1])
					}
					time.Sleep(time.Nanosecond)
				}
				if got := g.Stats().RetryTokens; got != want {
					t.Errorf("RetryBudget %d: %d tokens after %v, want %d", c.capacity, got, time.Duration(i)*30*time.Second, want)
				}
			}
			time.Sleep(10 * time.Minute)
			if got := g.Stats().RetryTokens; got != capacity {
				t.Errorf("RetryBudget %d: %d tokens in the end", c.capacity, got)
			}
		})
	}
}

// It makes no difference whether Stats are read or calls succeed meanwhile.
func TestConfig_RetryBudget_RecoveryDependsOnTimeOnly(t *testing.T) {
	for name, between := range map[string]func(g *sluice.Gate){
		"nothing": func(*sluice.Gate) {},
		"Stats":   func(g *sluice.Gate) { g.Stats() },
		"calls": func(g *sluice.Gate) {
			if p, ok := g.TryAcquire(1); ok {
				p.Release()
			}
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			g := emptied(t, sluice.Config{}, 30*time.Second)
			for i := range 50 {
				between(g)
				time.Sleep(7 * time.Second)
				s, steps := g.Stats(), (i+1)*7/30
				spacing := 30 * time.Second >> steps
				if spacing < ms {
					spacing = 0
				}
				if s.Spacing != spacing || s.RetryTokens != min(10, steps) {
					t.Errorf("%s: spacing %v and %d tokens after %d s", name, s.Spacing, s.RetryTokens, i*7+7)
				}
			}
		})
	}
}

// While calls fail, nothing comes back, with or without an attempt left.
func TestConfig_RetryBudget_DoesNotRecoverWhileCallsFail(t *testing.T) {
	for name, call := range map[string]func(g *sluice.Gate){
		"no budget":   func(g *sluice.Gate) { sluice.Retry(bg, g, each(ms), down) },
		"no attempts": func(g *sluice.Gate) { sluice.Retry(bg, g, sluice.RetryPolicy{Attempts: 1}, down) },
		"Gate.Do":     func(g *sluice.Gate) { g.Do(bg, down) },
		"throttled":   func(g *sluice.Gate) { g.Do(bg, busy) },
		"timeout":     func(g *sluice.Gate) { sluice.Retry(bg, g, each(ms), always(sluice.Permanent(os.ErrDeadlineExceeded))) },
		"timeouts":    func(g *sluice.Gate) { g.Do(bg, always(sluice.Permanent(os.ErrDeadlineExceeded))) },
	} {
		synctest.Test(t, func(t *testing.T) {
			g := emptied(t, sluice.Config{}, 20*time.Second)
			for range 100 {
				time.Sleep(20 * time.Second)
				call(g)
			}
			if s := g.Stats(); s.Spacing != 20*time.Second || s.RetryTokens != 0 {
				t.Errorf("%s: spacing %v, %d tokens", name, s.Spacing, s.RetryTokens)
			}
		})
	}
}

func TestConfig_RetryBudget_RecoveryReachesWaiters(t *testing.T) {
	for name, cfg := range map[string]sluice.Config{
		"alone": {}, "rate": {Rate: tenPerSecond}, "quota": {Limits: []sluice.Limit{{Limiter: free{}}}},
	} {
		synctest.Test(t, func(t *testing.T) {
			g, l := emptied(t, cfg, 30*time.Second), synclog.New()
			for i := range 7 {
				l.Call(i, enter(g, bg))
			}
			time.Sleep(time.Hour)
			// 30 s until 30 s, 15 s until 60 s, 7.5 s until 90 s, 3.75 s from then on.
			l.Want(t, synclog.At(0, 30*time.Second), synclog.At(1, 45*time.Second), synclog.At(2, 60*time.Second), synclog.At(3, 67500*ms),
				synclog.At(4, 75*time.Second), synclog.At(5, 82500*ms), synclog.At(6, 90*time.Second))
			if t.Failed() {
				t.Log(name)
			}
		})
	}
}

func TestConfig_RetryBudget_RecoveredGateIsAsNew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := emptied(t, sluice.Config{}, 30*time.Second)
		time.Sleep(10 * time.Minute)
		start := time.Now()
		for range 1000 {
			g.Do(bg, fine)
		}
		if s := g.Stats(); time.Since(start) != 0 || s.Spacing != 0 || s.RetryTokens != 10 {
			t.Errorf("after %v: %+v", time.Since(start), s)
		}
	})
}

// After an outage a client whose calls are all answered by 404 soon calls at its own rate.
func TestConfig_RetryBudget_DefiniteErrorsEndAnOutageSoon(t *testing.T) {
	for name, cfg := range map[string]sluice.Config{
		"rate":   {Rate: sluice.Rate{Count: 100, Per: time.Second}},
		"none":   {},
		"parent": {Parent: fixedGate(t, sluice.Config{})},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				if cfg.Parent != nil {
					cfg.Parent = fixedGate(t, sluice.Config{})
				}
				g := emptied(t, cfg, 30*time.Second)
				start := time.Now()
				for range 100 {
					if err := sluice.Retry(bg, g, sluice.RetryPolicy{}, gone); err == nil {
						t.Error("no error")
					}
				}
				if took := time.Since(start); took > time.Minute+time.Second {
					t.Errorf("took %v", took)
				}
			})
		})
	}
}

// The permit of a call may be held long after its success is known. Waiting calls do not
// wait for its release.
func TestConfig_RetryBudget_SuccessReachesWaitersBeforeRelease(t *testing.T) {
	for name, cfg := range map[string]sluice.Config{
		"alone": {}, "rate": {Rate: tenPerSecond}, "concurrency": {Concurrency: 2},
		"quota": {Limits: []sluice.Limit{{Limiter: free{}}}}, "parent": {Parent: fixedGate(t, sluice.Config{})},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				if cfg.Parent != nil {
					cfg.Parent = fixedGate(t, sluice.Config{})
				}
				g, l := emptied(t, cfg, 8*time.Second), synclog.New()
				l.Call(0, func() error {
					return byHand(bg, g, sluice.RetryPolicy{}, 1, time.Hour, after(time.Second, fine)) // a body is read for an hour
				})
				l.Call(1, enter(g, bg))
				time.Sleep(2 * time.Hour)
				l.Want(t, synclog.At(0, 9*time.Second), synclog.At(1, 12*time.Second)) // 8 s + 4 s, not 8 s + 8 s
			})
		})
	}
}

// The budget together with all other limits, on the real scheduler.
func TestConfig_RetryBudget_Stress(t *testing.T) {
	parent := fixedGate(t, sluice.Config{Concurrency: 4})
	g := fixedGate(t, sluice.Config{Concurrency: 8, RetryBudget: 20, Parent: parent})
	var wg sync.WaitGroup
	answers := []answer{fine, down, busy, gone, fine, late, retryAfter(ms), fine}
	for w := range 8 {
		wg.Go(func() {
			for i := range 100 {
				ctx, cancel := context.WithTimeout(bg, 20*ms)
				sluice.Retry(ctx, g, each(ms), answers[(w+i)%len(answers)])
				cancel()
			}
		})
	}
	wg.Wait()
	if s, p := g.Stats(), parent.Stats(); s.InFlight != 0 || s.Waiting+s.Pacing != 0 || p.InFlight != 0 || p.Waiting+p.Pacing != 0 {
		t.Errorf("%+v\n%+v", s, p)
	}
}
