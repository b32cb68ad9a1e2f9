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
				if s := g.Stats(); s.InFlight != 0 || s.Waiting != 0 || s.Pacing != 0 || s.Granted != uint64(len(c.want)) {
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
		if s := g.Stats(); s.InFlight != 1 || s.Pacing+s.Waiting != 1 || s.Refused.Cancelled != 50 {
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
		if s := g.Stats(); s.Refused.Deadline < 4 {
			t.Errorf("refusals: %+v", s.Refused)
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
		if s := g.Stats(); s.Refused.Busy != 3 {
			t.Errorf("refusals: %+v", s.Refused)
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
				if s := g.Stats(); s.Granted != 11 || s.InFlight != 0 || s.Refused != (sluice.Refusals{Deadline: 1, Cancelled: 1}) {
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
		if s := g.Stats(); s.InFlight != 1 || s.Granted != 1 {
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
		"Retry panics": func(g *sluice.Gate) { _ = sluice.Retry(bg, g, sluice.RetryPolicy{}, boom) },
		"Retry exits":  func(g *sluice.Gate) { _ = sluice.Retry(bg, g, sluice.RetryPolicy{}, exit) },
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
						_ = g.Do(bg, func(context.Context) error { return sluice.RetryAfter(errors.New("429"), 0) })
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
		"NewQueue":      func() { sluice.NewQueue(nil) },
		"Queue":         func() { sluice.NewQueue(free{}).Acquire(bg, -1) },
		"Queue, try":    func() { sluice.NewQueue(free{}).TryAcquire(-1) },
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

func TestGate_Do_LongestOfJoinedServerWaits(t *testing.T) {
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
