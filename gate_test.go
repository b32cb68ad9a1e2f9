package sluice_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/internal/promise"
	"github.com/sluice-go/sluice/internal/testkit/synclog"
	"github.com/sluice-go/sluice/limits"
	"github.com/sluice-go/sluice/semaphore"
)

func TestGate_Acquire_ConcurrencyAndRate(t *testing.T) {
	for name, c := range map[string]struct {
		cfg  sluice.Config
		hold time.Duration
		want []time.Duration // when each of the calls is done
	}{
		"nothing limits": {sluice.Config{}, 50 * ms, []time.Duration{50, 50, 50, 50}},
		"concurrency":    {sluice.Config{Concurrency: 2}, 50 * ms, []time.Duration{50, 50, 100, 100}},
		"pace":           {sluice.Config{Rate: tenPerSecond}, 50 * ms, []time.Duration{50, 150, 250, 350}},
		// Two in flight at most and each takes 250 ms: the third leaves when
		// the first is back, not at its slot at 200 ms.
		"both": {sluice.Config{Rate: tenPerSecond, Concurrency: 2}, 250 * ms, []time.Duration{250, 350, 500, 600}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g, l := mustGate(t, c.cfg), synclog.New()
				var want []synclog.Left
				for i, at := range c.want {
					l.Call(i, func() error { return hold(g, c.hold) })
					want = append(want, synclog.At(i, at*ms))
				}
				time.Sleep(time.Minute)
				l.Want(t, want...)
				if s := g.Stats(); s.InFlight != 0 || s.Waiting != 0 || s.Pacing != 0 || s.Admitted != uint64(len(c.want)) {
					t.Errorf("afterwards: %+v", s)
				}
			})
		})
	}
}

// A slot passes while the gate is full. It is not made up for: the calls that
// then leave are an interval apart.
func TestGate_Acquire_FullAtItsSlotStoresNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, l := mustGate(t, sluice.Config{Rate: tenPerSecond, Concurrency: 1}), synclog.New()
		p, _ := g.Acquire(bg, 1)
		for i := range 3 {
			l.Call(i, func() error { return hold(g, 0) })
		}
		time.Sleep(time.Second)
		p.Release()
		time.Sleep(time.Minute)
		l.Want(t, synclog.At(0, time.Second), synclog.At(1, 1100*ms), synclog.At(2, 1200*ms))
	})
}

func TestGate_Acquire_CancelGivesEverythingBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, l := mustGate(t, sluice.Config{Rate: tenPerSecond, Concurrency: 2}), synclog.New()
		g.TryAcquire(1)
		ctx, cancel := context.WithCancel(bg)
		for i := range 50 {
			l.Call(100+i, enter(g, ctx))
		}
		l.Call(0, enter(g, bg))
		time.Sleep(50 * ms)
		cancel()
		synctest.Wait()
		if s := g.Stats(); s.InFlight != 1 || s.Pacing+s.Waiting != 1 || s.Rejected.Canceled != 50 {
			t.Errorf("after 50 of 51 were cancelled: %+v", s)
		}
		time.Sleep(time.Minute)
		if got := l.Sofar(); len(got) != 51 || got[50] != synclog.At(0, 100*ms) {
			t.Errorf("the one behind them: %v", got[len(got)-1])
		}
	})
}

func TestGate_AcquireWithin_HopelessWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := mustGate(t, sluice.Config{Name: "api", Rate: tenPerSecond, Concurrency: 1})
		start := time.Now()
		p, _ := g.Acquire(bg, 1)
		short, cancel := context.WithTimeout(bg, 50*ms)
		defer cancel()
		var wait *limits.WaitError
		_, err := g.Acquire(short, 1)
		if !errors.As(err, &wait) || wait.Need != 100*ms || wait.Have != 50*ms || wait.By != "api" || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("deadline before the slot: %v", err)
		}
		if want := "sluice: api: would have to wait 100ms for the rate of 10/s, 50ms were allowed"; err.Error() != want {
			t.Errorf("message %q, want %q", err, want)
		}
		if _, err = g.AcquireWithin(bg, 1, 99*ms); !errors.As(err, &wait) {
			t.Errorf("AcquireWithin less than to the slot: %v", err)
		}
		if time.Since(start) != 0 {
			t.Error("that took time")
		}
		// The slot would come in time, but the permit does not come back.
		_, err = g.AcquireWithin(bg, 1, 200*ms)
		if !errors.Is(err, limits.ErrTimeout) || !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != 200*ms {
			t.Errorf("AcquireWithin 200 ms of a full gate: %v after %v", err, time.Since(start))
		}
		if want := "sluice: api: waited for the concurrency of 1 as long as allowed"; err.Error() != want {
			t.Errorf("message %q, want %q", err, want)
		}
		if _, err = g.AcquireWithin(bg, 1, 0); !errors.Is(err, limits.ErrTimeout) || time.Since(start) != 200*ms {
			t.Errorf("AcquireWithin 0 of a full gate: %v", err)
		}
		// The permit comes back exactly when the longest wait is over.
		l := synclog.New()
		l.Call(0, func() error { _, err := g.AcquireWithin(bg, 1, 300*ms); return err })
		time.Sleep(300 * ms)
		p.Release()
		time.Sleep(time.Minute)
		if got := l.Sofar()[0]; got.At != 300*ms {
			t.Errorf("came back after %v", got.At)
		}
		if s := g.Stats(); s.Rejected.Deadline < 4 {
			t.Errorf("refusals: %+v", s.Rejected)
		}
	})
}

func TestGate_TryAcquire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, l := mustGate(t, sluice.Config{Rate: tenPerSecond, Concurrency: 1}), synclog.New()
		p, ok := g.TryAcquire(1)
		if !ok {
			t.Fatal("a new gate refuses")
		}
		time.Sleep(time.Second)
		if _, ok := g.TryAcquire(1); ok {
			t.Error("let through a full gate")
		}
		p.Release()
		q, ok := g.TryAcquire(1)
		if !ok {
			t.Error("refused by an empty gate")
		}
		q.Release()
		if _, ok := g.TryAcquire(1); ok {
			t.Error("let through before the slot")
		}
		l.Call(0, enter(g, bg))
		if _, ok := g.TryAcquire(1); ok {
			t.Error("overtook")
		}
		if s := g.Stats(); s.Rejected.Busy != 3 {
			t.Errorf("refusals: %+v", s.Rejected)
		}
		time.Sleep(time.Minute)
		l.Want(t, synclog.At(0, 1100*ms))
	})
}

// Wait paces calls and holds no place: neither in flight nor in a parent or a semaphore.
func TestGate_Wait(t *testing.T) {
	observed := 0
	for name, cfg := range map[string]sluice.Config{
		"plain":     {},
		"observer":  {Observer: func(sluice.Event) { observed++ }},
		"cost":      {ConcurrencyUnit: sluice.Cost},
		"parent":    {Parent: mustGate(t, sluice.Config{Concurrency: 1})},
		"semaphore": {Semaphore: lent{semaphore.NewWeighted(1)}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				if cfg.Parent != nil {
					cfg.Parent = mustGate(t, sluice.Config{Concurrency: 1})
				}
				if cfg.Semaphore != nil {
					cfg.Semaphore = lent{semaphore.NewWeighted(1)}
				}
				cfg.Name, cfg.Concurrency, cfg.Rate = "g", 1, tenPerSecond
				g, began := mustGate(t, cfg), time.Now()
				for range 11 {
					if err := g.Wait(bg); err != nil {
						t.Fatal(err)
					}
				}
				if passed := time.Since(began); passed != time.Second {
					t.Errorf("11 calls took %v", passed)
				}
				soon, cancel := context.WithTimeout(bg, ms)
				defer cancel()
				var wait *limits.WaitError
				if err := g.Wait(soon); !errors.As(err, &wait) || wait.By != "g" {
					t.Errorf("before its deadline: %v", err)
				}
				done, cancel := context.WithCancel(bg)
				cancel()
				if err := g.Wait(done); err != context.Canceled {
					t.Errorf("a context that is done: %v", err)
				}
				if s := g.Stats(); s.Admitted != 11 || s.InFlight != 0 || s.Rejected != (sluice.Rejections{Deadline: 1, Canceled: 1}) {
					t.Errorf("%+v", s)
				}
				if err := g.Shutdown(bg); err != nil {
					t.Error(err)
				}
				if err := g.Wait(bg); !errors.Is(err, limits.ErrClosed) {
					t.Errorf("after Close: %v", err)
				}
			})
		})
	}
	if want := 11*2 + 10 + 3; observed != want { // granted and released, queued, refused
		t.Errorf("%d events, want %d", observed, want)
	}
}

func TestGate_Acquire_ZeroIsGrantedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := mustGate(t, sluice.Config{Concurrency: 1, Rate: tenPerSecond})
		g.TryAcquire(1)
		p, err := g.Acquire(bg, 0)
		if err != nil {
			t.Fatal(err)
		}
		p.Settle(5)
		p.Release()
		if _, ok := g.TryAcquire(0); !ok {
			t.Error("TryAcquire(0) failed")
		}
		if s := g.Stats(); s.InFlight != 1 || s.Admitted != 1 {
			t.Errorf("%+v", s)
		}
		done, cancel := context.WithCancel(bg)
		cancel()
		if _, err := g.Acquire(done, 0); err != context.Canceled {
			t.Errorf("Acquire(done, 0): %v", err)
		}
		g.Close()
		if _, err := g.Acquire(bg, 0); !errors.Is(err, limits.ErrClosed) {
			t.Errorf("Acquire(0) of a closed gate: %v", err)
		}
	})
}

func TestUnit_CallsAndCost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := mustGate(t, sluice.Config{Concurrency: 2, Rate: tenPerSecond})
		g.Acquire(bg, 1000)
		g.Acquire(bg, 1000)
		if s := g.Stats(); s.InFlight != 2 {
			t.Errorf("concurrency counts calls by default: %d in flight", s.InFlight)
		}
		byCost := mustGate(t, sluice.Config{Concurrency: 5, ConcurrencyUnit: sluice.Cost})
		if _, err := byCost.Acquire(bg, 6); !errors.Is(err, limits.ErrTooLarge) {
			t.Errorf("6 of 5: %v", err)
		}
		l := synclog.New()
		byCost.Acquire(bg, 1)
		l.Call(5, func() error { _, err := byCost.Acquire(bg, 5); return err })
		l.Call(3, func() error { _, err := byCost.Acquire(bg, 3); return err })
		byCost.SetConcurrency(4)
		l.Want(t, synclog.Failed(5, 0, limits.ErrTooLarge), synclog.At(3, 0))
	})
}

func TestConfig_MaxWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, l := mustGate(t, sluice.Config{Name: "small", Concurrency: 1, MaxWaiting: 1}), synclog.New()
		for i := range 3 {
			l.Call(i, enter(g, bg))
		}
		got := l.Sofar()
		if len(got) != 2 || !errors.Is(got[1].Err, limits.ErrQueueFull) || got[1].Err.Error() != "sluice: small: too many callers are waiting" {
			t.Errorf("got %v", got)
		}
		g.Close()
	})
}

func TestGate_CloseAndShutdown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, l := mustGate(t, sluice.Config{Name: "g", Concurrency: 1}), synclog.New()
		p, _ := g.Acquire(bg, 1)
		l.Call(0, enter(g, bg))
		short, cancel := context.WithTimeout(bg, time.Second)
		defer cancel()
		l.Call(1, func() error { return g.Shutdown(short) })
		l.Call(2, func() error { return g.Shutdown(bg) })
		g.Close()
		l.Call(3, enter(g, bg))
		if _, ok := g.TryAcquire(1); ok {
			t.Error("a closed gate let a call through")
		}
		time.Sleep(2 * time.Second)
		p.Release()
		p.Release()
		time.Sleep(time.Second)
		l.Want(t,
			synclog.Failed(0, 0, limits.ErrClosed),
			synclog.Failed(3, 0, limits.ErrClosed),
			synclog.Failed(1, time.Second, context.DeadlineExceeded),
			synclog.At(2, 2*time.Second),
		)
		if err := g.Shutdown(bg); err != nil {
			t.Errorf("Shutdown of a drained gate: %v", err)
		}
	})
}

func TestGate_Do_PanicReleasesThePermit(t *testing.T) {
	g := mustGate(t, sluice.Config{Concurrency: 1})
	func() {
		defer func() {
			if recover() != "mine" {
				t.Error("the panic did not propagate unchanged")
			}
		}()
		g.Do(bg, func(context.Context) error { panic("mine") })
	}()
	if s := g.Stats(); s.InFlight != 0 {
		t.Errorf("%d in flight", s.InFlight)
	}
}

// A call that does not return says nothing about the server: it ends no blockage, and counts as
// neither a success nor a failure in what the gate learns.
func TestGate_Do_PanicIsNoAnswer(t *testing.T) {
	boom := func(context.Context) error { panic("mine") }
	exit := func(context.Context) error { runtime.Goexit(); return nil }
	for name, call := range map[string]func(g *sluice.Gate){
		"Do panics":    func(g *sluice.Gate) { _ = g.Do(bg, boom) },
		"Do exits":     func(g *sluice.Gate) { _ = g.Do(bg, exit) },
		"Retry panics": func(g *sluice.Gate) { _ = sluice.Retry(bg, g, boom) },
		"Retry exits":  func(g *sluice.Gate) { _ = sluice.Retry(bg, g, exit) },
	} {
		for _, parent := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, parent %v", name, parent), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					var cfg sluice.Config
					if parent {
						cfg.Parent = mustGate(t, sluice.Config{})
					}
					g := mustGate(t, cfg)
					for range 6 {
						_ = g.Do(bg, func(context.Context) error { return sluice.ThrottledFor(errors.New("429"), 0) })
					}
					time.Sleep(time.Second)
					if l := g.Stats().Learned; l == nil || !l.Blocked {
						t.Fatalf("before: %v is not blocked", g)
					}
					done := make(chan struct{})
					go func() {
						defer close(done)
						defer func() { _ = recover() }()
						call(g)
					}()
					<-done
					if l := g.Stats().Learned; l == nil || !l.Blocked {
						t.Errorf("the call that did not return ended the blockage: %v", g)
					}
					if n := g.Stats().InFlight; n != 0 {
						t.Errorf("%d in flight", n)
					}
					if err := g.Do(bg, nothing); err != nil || g.Stats().Learned.Blocked {
						t.Errorf("a success does not end the blockage: %v, %v", g, err)
					}
				})
			})
		}
	}
}

func TestGate_Mistakes(t *testing.T) {
	for name, cfg := range map[string]sluice.Config{
		"concurrency":       {Concurrency: -1},
		"waiting":           {MaxWaiting: -1},
		"count":             {Rate: sluice.Rate{Count: -1, Per: 1}},
		"half a rate":       {Rate: sluice.Rate{Count: 1}},
		"other half":        {Rate: sluice.Rate{Per: time.Second}},
		"absurd rate":       {Rate: sluice.Rate{Count: math.MaxInt64, Per: 1}},
		"burst":             {Rate: withBurst(tenPerSecond, -1)},
		"burst, no rate":    {Rate: sluice.Rate{Burst: 2}},
		"endless burst":     {Rate: withBurst(tenPerSecond, math.MaxInt64)},
		"unit":              {ConcurrencyUnit: "tokens"},
		"other unit":        {RateUnit: "Calls"},
		"quota, no limiter": {Limits: []sluice.Limit{{Name: "q"}}},
		"quota, bad units":  {Limits: []sluice.Limit{{Name: "q", Limiter: new(bucket), Unit: "cost "}}},
	} {
		cfg.Name = "x"
		g, err := sluice.New(cfg)
		if err == nil || g != nil || !strings.HasPrefix(err.Error(), `sluice: config of gate "x": `) {
			t.Errorf("%s: New = %v, %v", name, g, err)
		}
	}
	g := mustGate(t, sluice.Config{Rate: tenPerSecond, Concurrency: 3})
	for _, r := range []sluice.Rate{{Count: -1, Per: 1}, {Count: 1}, {Per: 1}, {Count: 2, Per: 1}, {Burst: 1}, {Count: 1, Per: time.Second, Burst: -1}, {Count: 1, Per: time.Second, Burst: math.MaxInt64}} {
		if err := g.SetRate(r); err == nil || !strings.HasPrefix(err.Error(), "sluice: ") || g.Stats().Rate != tenPerSecond {
			t.Errorf("SetRate(%v): %v, rate %v", r, err, g.Stats().Rate)
		}
	}
	if err := g.SetConcurrency(-1); err == nil || g.Stats().Concurrency != 3 {
		t.Errorf("SetConcurrency(-1): %v", err)
	}
	p, _ := g.Acquire(bg, 1)
	for name, f := range map[string]func(){
		"Acquire":       func() { g.Acquire(bg, -1) },
		"AcquireWithin": func() { g.AcquireWithin(bg, -1, 0) },
		"TryAcquire":    func() { g.TryAcquire(-1) },
		"Settle":        func() { p.Settle(-1) },
		"Estimate":      func() { g.Estimate(-1) },
	} {
		func() {
			defer func() {
				if msg, ok := recover().(string); !ok || !strings.HasPrefix(msg, "sluice: ") {
					t.Errorf("%s: want a panic with the package's prefix, got %q", name, msg)
				}
			}()
			f()
		}()
	}
}

func TestGate_Stats_InFlightDoesNotOverflow(t *testing.T) {
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

func TestGate_Shutdown_WaitsForCallsThatCostNothing(t *testing.T) {
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

func TestGate_AcquireWithin_MinimumWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := mustGate(t, sluice.Config{Rate: sluice.Rate{Count: 1, Per: time.Hour}, Semaphore: shared{semaphore.NewWeighted(9), nil}})
		hold(g, 0)
		start := time.Now()
		if _, err := g.AcquireWithin(bg, 1, math.MinInt64); err == nil || time.Since(start) != 0 {
			t.Errorf("%v after %v", err, time.Since(start))
		}
	})
}

func TestGate_Do_IgnoresServerWaitsOfAnotherGate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		global, host := mustGate(t, sluice.Config{Name: "global"}), mustGate(t, sluice.Config{Name: "host"})
		err := global.Do(bg, func(ctx context.Context) error {
			return sluice.Retry(ctx, host, func(context.Context) error {
				return sluice.ThrottledFor(errors.New("429"), time.Hour)
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

func TestGate_Do_LongestOfJoinedServerWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := mustGate(t, sluice.Config{})
		g.Do(bg, func(context.Context) error {
			return errors.Join(sluice.ThrottledFor(errors.New("a"), time.Second), sluice.ThrottledFor(errors.New("b"), time.Hour))
		})
		if d := time.Until(g.Stats().PausedUntil); d != time.Hour {
			t.Errorf("paused for %v", d)
		}
	})
}

// # Changes of a gate in use

func TestGate_SetRate_ReachesWaiters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, l := mustGate(t, sluice.Config{Rate: sluice.Rate{Count: 1, Per: 10 * time.Second}, Concurrency: 2}), synclog.New()
		for i := range 4 {
			l.Call(i, enter(g, bg))
		}
		time.Sleep(time.Second)
		g.SetRate(sluice.Rate{Count: 1000, Per: time.Second})
		time.Sleep(time.Second)
		l.Want(t, synclog.At(0, 0), synclog.At(1, time.Second)) // now it is full
		g.SetConcurrency(3)
		time.Sleep(time.Second)
		g.SetConcurrency(0)
		time.Sleep(time.Second)
		l.Want(t, synclog.At(0, 0), synclog.At(1, time.Second), synclog.At(2, 2*time.Second), synclog.At(3, 3*time.Second))
	})
}

func TestGate_SetConcurrency_LetsHoldersFinish(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, l := mustGate(t, sluice.Config{Concurrency: 3}), synclog.New()
		for i := range 3 {
			l.Call(i, func() error { return hold(g, time.Duration(i+1)*time.Second) })
		}
		g.SetConcurrency(1)
		l.Call(9, enter(g, bg))
		if s := g.Stats(); s.InFlight != 3 || s.Waiting != 1 || s.Concurrency != 1 {
			t.Errorf("after the shrink: %+v", s)
		}
		time.Sleep(time.Minute)
		l.Want(t, synclog.At(0, time.Second), synclog.At(1, 2*time.Second), synclog.At(2, 3*time.Second), synclog.At(9, 3*time.Second))
	})
}

func TestGate_SetRate_UnlimitedAndBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, l := mustGate(t, sluice.Config{Rate: tenPerSecond}), synclog.New()
		for i := range 4 {
			l.Call(i, enter(g, bg))
		}
		time.Sleep(150 * ms)
		g.SetRate(sluice.Rate{})
		l.Want(t, synclog.At(0, 0), synclog.At(1, 100*ms), synclog.At(2, 150*ms), synclog.At(3, 150*ms))
		g.SetRate(sluice.Rate{Count: 1, Per: time.Second})
		l.Call(4, enter(g, bg)) // one new interval after the last one left
		time.Sleep(time.Minute)
		if got := l.Sofar(); got[4] != synclog.At(4, 1150*ms) {
			t.Errorf("got %v", got[4])
		}
	})
}

func TestGate_SetRate_CountsFromTheLastUnlimitedCall(t *testing.T) {
	for _, at := range []time.Duration{0, time.Second} {
		for n := range int64(3) {
			synctest.Test(t, func(t *testing.T) {
				g := mustGate(t, sluice.Config{})
				if at > 0 {
					g.PauseUntil(time.Now().Add(at), "so that the lane opens at that very instant")
				}
				time.Sleep(at)
				began := time.Now()
				if n > 0 { // 1 leaves past the lock, 2 under it
					if p, err := g.Acquire(context.Background(), n); err == nil {
						p.Release()
					}
				}
				time.Sleep(300 * time.Millisecond)
				if err := g.SetRate(sluice.Rate{Count: 1, Per: time.Second}); err != nil {
					t.Fatal(err)
				}
				want := time.Second
				if n == 0 {
					want = 300 * time.Millisecond
				}
				if p, err := g.Acquire(context.Background(), 1); err == nil {
					p.Release()
				}
				if got := time.Since(began); got != want {
					t.Errorf("after a call of %d at %v the next leaves after %v, want %v", n, at, got, want)
				}
			})
		}
	}
}

func TestGate_SetRate_UnlimitedOwesNothing(t *testing.T) {
	for _, n := range []int64{1, 2} {
		synctest.Test(t, func(t *testing.T) {
			g := mustGate(t, sluice.Config{Rate: withBurst(tenPerSecond, 11)})
			time.Sleep(time.Minute)
			for range 11 {
				if _, ok := g.TryAcquire(1); !ok {
					t.Fatal("the burst is 11 calls")
				}
			}
			g.SetRate(sluice.Rate{})
			if _, ok := g.TryAcquire(n); !ok {
				t.Errorf("a call of %d is refused", n)
			}
		})
	}
}

// SetConcurrency holds from now on in a gate that learns, as in any other: 20 callers use all
// of each new limit.
func TestGate_SetConcurrency_Learned(t *testing.T) {
	refuse := func(t *testing.T, g *sluice.Gate) {
		_ = g.Do(bg, func(context.Context) error { return sluice.ThrottledFor(errBusy, 10*ms) })
		time.Sleep(time.Second)
		if g.Stats().Learned == nil {
			t.Fatal("the gate does not learn")
		}
	}
	none := func(*testing.T, *sluice.Gate) {}
	for name, c := range map[string]struct {
		cfg           sluice.Config
		before, after func(*testing.T, *sluice.Gate) // the first SetConcurrency
		n             int64
	}{
		"before the rule": {sluice.Config{}, none, refuse, 1},
		"after the rule":  {sluice.Config{}, refuse, none, 1},
		"search":          {sluice.Config{Adaptive: sluice.Adaptive{Search: true}}, none, none, 1},
		"several units":   {sluice.Config{Adaptive: sluice.Adaptive{Search: true}}, none, none, 3},
		"unit of cost":    {sluice.Config{ConcurrencyUnit: sluice.Cost, Adaptive: sluice.Adaptive{Search: true}}, none, none, 1},
		"restored": {sluice.Config{}, func(t *testing.T, g *sluice.Gate) {
			other := mustGate(t, sluice.Config{Rate: sluice.Rate{Count: 1000, Per: time.Second}, Adaptive: sluice.Adaptive{Search: true}})
			refuse(t, other)
			if err := g.Restore(other.Snapshot()); err != nil {
				t.Fatal(err)
			}
		}, none, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cfg := c.cfg
				cfg.Concurrency = 3
				cfg.Adaptive.Start = sluice.Rate{Count: 1000, Per: time.Second}
				g := mustGate(t, cfg)
				c.before(t, g)
				limits := []int64{2, 10, 1, 6, 0, 4}
				ctx, cancel := context.WithTimeout(bg, time.Duration(len(limits)+2)*time.Minute)
				defer cancel()
				g.SetConcurrency(limits[0])
				c.after(t, g)
				for range 20 {
					go func() {
						for {
							p, err := g.Acquire(ctx, c.n)
							if err != nil {
								return
							}
							time.Sleep(time.Second)
							p.Release()
						}
					}()
				}
				for _, limit := range limits {
					if err := g.SetConcurrency(limit); err != nil {
						t.Fatal(err)
					}
					time.Sleep(time.Minute + 500*ms)
					want := limit
					if limit == 0 {
						want = 20
					}
					s := g.Stats()
					for range 20 { // the pace may hold one for a millisecond
						time.Sleep(time.Millisecond)
						if now := g.Stats(); now.InFlight > s.InFlight {
							s = now
						}
					}
					if s.InFlight != want || s.Learned == nil {
						t.Errorf("limit %d: %v", limit, s)
					}
				}
				cancel()
				synctest.Wait()
				time.Sleep(2 * time.Second)
			})
		})
	}
}

// # Pauses

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
			return sluice.Retry(bg, g, f)
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
							return sluice.ThrottledFor(refused, 30*time.Second)
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
		err := sluice.Retry(bg, g, nothing)
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

// TestGate_AcquireWithoutN takes one unit of a gate that counts cost, and as many as it is given otherwise.
func TestGate_AcquireWithoutN(t *testing.T) {
	g := mustGate(t, sluice.Config{Concurrency: 4, ConcurrencyUnit: sluice.Cost})
	for _, c := range []struct {
		verb string
		take func(n ...int64) (*sluice.Permit, error)
	}{
		{"Acquire", func(n ...int64) (*sluice.Permit, error) { return g.Acquire(context.Background(), n...) }},
		{"TryAcquire", func(n ...int64) (*sluice.Permit, error) {
			p, ok := g.TryAcquire(n...)
			if !ok {
				return nil, errors.New("no room")
			}
			return p, nil
		}},
	} {
		for _, n := range [][]int64{nil, {1}, {3}, {0}} {
			p, err := c.take(n...)
			if err != nil {
				t.Fatalf("%s(%v): %v", c.verb, n, err)
			}
			want := int64(1)
			if len(n) > 0 {
				want = n[0]
			}
			if s := g.Stats(); s.InFlight != want {
				t.Errorf("%s(%v): %d in flight, want %d", c.verb, n, s.InFlight, want)
			}
			p.Release()
		}
		func() {
			defer func() {
				if r := recover(); r != "sluice: more than one n" {
					t.Errorf("%s(1, 2): panic %v", c.verb, r)
				}
			}()
			c.take(1, 2)
		}()
	}
}

// # Promises

// TestPromise checks the table of promises and features, and runs its cells that are
// about gates.
func TestPromise(t *testing.T) {
	promise.Table(t, ".")
	promise.Run(t, ".", promise.Gates)
}
