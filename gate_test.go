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
)

const ms = time.Millisecond

// bg is for waits that nothing but the gate ends.
var bg = context.Background()

func mustGate(t testing.TB, cfg sluice.Config) *sluice.Gate {
	t.Helper()
	g, err := sluice.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// tenPerSecond is one call each 100 ms.
var tenPerSecond = sluice.Rate{Count: 10, Per: time.Second}

// hold acquires one permit and releases it after d.
func hold(g *sluice.Gate, d time.Duration) error {
	return g.Do(bg, func(context.Context) error {
		time.Sleep(d)
		return nil
	})
}

// enter acquires a permit and keeps it.
func enter(g *sluice.Gate, ctx context.Context) func() error {
	return func() error {
		_, err := g.Acquire(ctx, 1)
		return err
	}
}

func TestGateAdmitsByConcurrencyAndPace(t *testing.T) {
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
func TestGateFullAtItsSlotStoresNothing(t *testing.T) {
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

func TestGateCancelGivesEverythingBack(t *testing.T) {
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

// What good looks like: Retry-After: 30 reaches one worker, and all sixty-four
// come back after 30 s, one interval apart, in order.
func TestPauseHoldsEverybodyAndReleasesPaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, l := mustGate(t, sluice.Config{Rate: tenPerSecond, Concurrency: 64, Burst: 10}), synclog.New()
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

// The answer that asks for a pause frees the only permit. Nobody may slip
// through in between.
func TestToldWaitHoldsTheNextCaller(t *testing.T) {
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
				told := false
				for i := range 5 {
					l.Call(i, func() error {
						return call(g, func(context.Context) error {
							if told {
								return nil
							}
							told = true
							time.Sleep(time.Second)
							return sluice.RetryAfter(refused, 30*time.Second)
						})
					})
				}
				time.Sleep(10 * time.Second)
				for _, left := range l.Sofar() {
					if left.Who != 0 || left.Err == nil {
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

func TestResumeTakesAPauseBack(t *testing.T) {
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

func TestGateChangesReachThoseWhoWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, l := mustGate(t, sluice.Config{Rate: sluice.Rate{Count: 1, Per: 10 * time.Second}, Concurrency: 2}), synclog.New()
		for i := range 4 {
			l.Call(i, enter(g, bg))
		}
		time.Sleep(time.Second)
		g.SetRate(1000, time.Second)
		time.Sleep(time.Second)
		l.Want(t, synclog.At(0, 0), synclog.At(1, time.Second)) // now it is full
		g.SetConcurrency(3)
		time.Sleep(time.Second)
		g.SetConcurrency(0)
		time.Sleep(time.Second)
		l.Want(t, synclog.At(0, 0), synclog.At(1, time.Second), synclog.At(2, 2*time.Second), synclog.At(3, 3*time.Second))
	})
}

func TestGateShrinkLetsHoldersFinish(t *testing.T) {
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

func TestGateHopelessWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := mustGate(t, sluice.Config{Name: "api", Rate: tenPerSecond, Concurrency: 1})
		start := time.Now()
		p, _ := g.Acquire(bg, 1)
		short, cancel := context.WithTimeout(bg, 50*ms)
		defer cancel()
		var wait *sluice.WaitError
		_, err := g.Acquire(short, 1)
		if !errors.As(err, &wait) || wait.Need != 100*ms || wait.Have != 50*ms || wait.By != "api" || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("deadline before the slot: %v", err)
		}
		if want := "sluice: api: would have to wait 100ms for the rate, 50ms were allowed"; err.Error() != want {
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
		if !errors.Is(err, sluice.ErrTimeout) || !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != 200*ms {
			t.Errorf("AcquireWithin 200 ms of a full gate: %v after %v", err, time.Since(start))
		}
		if want := "sluice: api: waited for the concurrency as long as allowed"; err.Error() != want {
			t.Errorf("message %q, want %q", err, want)
		}
		if _, err = g.AcquireWithin(bg, 1, 0); !errors.Is(err, sluice.ErrTimeout) || time.Since(start) != 200*ms {
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

func TestPauseFailsThoseItMakesHopeless(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, l := mustGate(t, sluice.Config{Concurrency: 1}), synclog.New()
		g.TryAcquire(1)
		l.Call(0, func() error { _, err := g.AcquireWithin(bg, 1, time.Second); return err })
		l.Call(1, func() error { _, err := g.AcquireWithin(bg, 1, time.Hour); return err })
		time.Sleep(10 * ms)
		g.PauseUntil(time.Now().Add(30*time.Second), "429")
		time.Sleep(ms)
		got := l.Sofar()
		var wait *sluice.WaitError
		if len(got) != 1 || got[0].Who != 0 || got[0].At != 10*ms || !errors.As(got[0].Err, &wait) || wait.Need != 30*time.Second {
			t.Errorf("got %v", got)
		}
		g.Close()
	})
}

func TestTryAcquireOfAGate(t *testing.T) {
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

func TestNothingIsGrantedAtOnce(t *testing.T) {
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
		if _, err := g.Acquire(bg, 0); !errors.Is(err, sluice.ErrClosed) {
			t.Errorf("Acquire(0) of a closed gate: %v", err)
		}
	})
}

// A caller that releases before it looks at the error loses nothing.
func TestReleaseOfNoPermitDoesNothing(t *testing.T) {
	g := mustGate(t, sluice.Config{Concurrency: 1})
	p, _ := g.Acquire(bg, 1)
	q, ok := g.TryAcquire(1)
	q.Release()
	if s := g.Stats(); ok || s.InFlight != 1 {
		t.Errorf("%v, %+v", ok, s)
	}
	p.Release()
}

func TestReleaseAndSettleCountOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := mustGate(t, sluice.Config{Concurrency: 10, ConcurrencyUnit: sluice.Cost, Rate: tenPerSecond, RateUnit: sluice.Cost})
		p, _ := g.Acquire(bg, 4)
		q, _ := g.Acquire(bg, 2) // at 400 ms
		p.Release()
		p.Release()
		if s := g.Stats(); s.InFlight != 2 {
			t.Errorf("released twice: %d in flight, want 2", s.InFlight)
		}
		slot := func() time.Duration { return time.Until(g.Stats().NextSlot) }
		if got := slot(); got != 200*ms {
			t.Errorf("next slot in %v", got)
		}
		q.Settle(12) // debt, beyond the limit of 10 in flight, too
		q.Settle(1)
		if s := g.Stats(); s.InFlight != 12 || slot() != 1200*ms {
			t.Errorf("settled upwards: %d in flight, next slot in %v", s.InFlight, slot())
		}
		p.Settle(1) // after Release: 3 too many were taken
		if s := g.Stats(); s.InFlight != 12 || slot() != 900*ms {
			t.Errorf("settled downwards: %d in flight, next slot in %v", s.InFlight, slot())
		}
		q.Release()
		if s := g.Stats(); s.InFlight != 0 {
			t.Errorf("%d in flight after all was released", s.InFlight)
		}
	})
}

func TestCallsAndCost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := mustGate(t, sluice.Config{Concurrency: 2, Rate: tenPerSecond})
		g.Acquire(bg, 1000)
		g.Acquire(bg, 1000)
		if s := g.Stats(); s.InFlight != 2 {
			t.Errorf("concurrency counts calls by default: %d in flight", s.InFlight)
		}
		byCost := mustGate(t, sluice.Config{Concurrency: 5, ConcurrencyUnit: sluice.Cost})
		if _, err := byCost.Acquire(bg, 6); !errors.Is(err, sluice.ErrTooLarge) {
			t.Errorf("6 of 5: %v", err)
		}
		l := synclog.New()
		byCost.Acquire(bg, 1)
		l.Call(5, func() error { _, err := byCost.Acquire(bg, 5); return err })
		l.Call(3, func() error { _, err := byCost.Acquire(bg, 3); return err })
		byCost.SetConcurrency(4)
		l.Want(t, synclog.Failed(5, 0, sluice.ErrTooLarge), synclog.At(3, 0))
	})
}

func TestMaxWaitingOfAGate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, l := mustGate(t, sluice.Config{Name: "small", Concurrency: 1, MaxWaiting: 1}), synclog.New()
		for i := range 3 {
			l.Call(i, enter(g, bg))
		}
		got := l.Sofar()
		if len(got) != 2 || !errors.Is(got[1].Err, sluice.ErrQueueFull) || got[1].Err.Error() != "sluice: small: too many callers are waiting" {
			t.Errorf("got %v", got)
		}
		g.Close()
	})
}

func TestCloseAndShutdown(t *testing.T) {
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
			t.Error("a closed gate let somebody through")
		}
		time.Sleep(2 * time.Second)
		p.Release()
		p.Release()
		time.Sleep(time.Second)
		l.Want(t,
			synclog.Failed(0, 0, sluice.ErrClosed),
			synclog.Failed(3, 0, sluice.ErrClosed),
			synclog.Failed(1, time.Second, context.DeadlineExceeded),
			synclog.At(2, 2*time.Second),
		)
		if err := g.Shutdown(bg); err != nil {
			t.Errorf("Shutdown of a drained gate: %v", err)
		}
	})
}

func TestPanicReleasesThePermitAndFliesOn(t *testing.T) {
	g := mustGate(t, sluice.Config{Concurrency: 1})
	func() {
		defer func() {
			if recover() != "mine" {
				t.Error("the panic did not fly on as it was")
			}
		}()
		g.Do(bg, func(context.Context) error { panic("mine") })
	}()
	if s := g.Stats(); s.InFlight != 0 {
		t.Errorf("%d in flight", s.InFlight)
	}
}

func TestGateMistakes(t *testing.T) {
	for name, cfg := range map[string]sluice.Config{
		"concurrency":      {Concurrency: -1},
		"waiting":          {MaxWaiting: -1},
		"count":            {Rate: sluice.Rate{Count: -1, Per: 1}},
		"half a rate":      {Rate: sluice.Rate{Count: 1}},
		"other half":       {Rate: sluice.Rate{Per: time.Second}},
		"absurd rate":      {Rate: sluice.Rate{Count: math.MaxInt64, Per: 1}},
		"burst":            {Rate: tenPerSecond, Burst: -1},
		"both bursts":      {Rate: tenPerSecond, Burst: 2, BurstTime: 1},
		"endless burst":    {Rate: tenPerSecond, Burst: math.MaxInt64},
		"unit":             {ConcurrencyUnit: "tokens"},
		"other unit":       {RateUnit: "Calls"},
		"quota, no meter":  {Limits: []sluice.Limit{{Name: "q"}}},
		"quota, bad units": {Limits: []sluice.Limit{{Name: "q", Limiter: new(bucket), Unit: "cost "}}},
	} {
		cfg.Name = "x"
		g, err := sluice.New(cfg)
		if err == nil || g != nil || !strings.HasPrefix(err.Error(), `sluice: config of gate "x": `) {
			t.Errorf("%s: New = %v, %v", name, g, err)
		}
	}
	g := mustGate(t, sluice.Config{Rate: tenPerSecond, Concurrency: 3})
	for _, r := range []sluice.Rate{{Count: -1, Per: 1}, {Count: 1}, {Per: 1}, {Count: 2, Per: 1}} {
		if err := g.SetRate(r.Count, r.Per); err == nil || !strings.HasPrefix(err.Error(), "sluice: ") || g.Stats().Rate != tenPerSecond {
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
		"Plan":          func() { g.Estimate(-1) },
		"Block":         func() { sluice.NewQueue(nil) },
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

func TestUnlimitedRateAndBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, l := mustGate(t, sluice.Config{Rate: tenPerSecond}), synclog.New()
		for i := range 4 {
			l.Call(i, enter(g, bg))
		}
		time.Sleep(150 * ms)
		g.SetRate(0, 0)
		l.Want(t, synclog.At(0, 0), synclog.At(1, 100*ms), synclog.At(2, 150*ms), synclog.At(3, 150*ms))
		g.SetRate(1, time.Second)
		l.Call(4, enter(g, bg)) // one new interval after the last one left
		time.Sleep(time.Minute)
		if got := l.Sofar(); got[4] != synclog.At(4, 1150*ms) {
			t.Errorf("got %v", got[4])
		}
	})
}

func TestStatsTellPacingFromWaiting(t *testing.T) {
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
			t.Errorf("nobody waited longer than %v", q)
		}
	})
}

func TestPlan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := mustGate(t, sluice.Config{Rate: sluice.Rate{Count: 5, Per: time.Second}, Concurrency: 10})
		check := func(n int64, want sluice.Estimate) {
			t.Helper()
			if got := g.Estimate(n); got != want {
				t.Errorf("Plan(%d) = %+v, want %+v", n, got, want)
			}
		}
		check(0, sluice.Estimate{LimitedBy: sluice.ByNothing})
		check(1, sluice.Estimate{LimitedBy: sluice.ByNothing})
		check(50_000, sluice.Estimate{Last: 9999800 * ms, Total: 9999800 * ms, LimitedBy: sluice.ByRate})
		g.PauseUntil(time.Now().Add(time.Minute), "")
		check(10, sluice.Estimate{First: time.Minute, Last: 61800 * ms, Total: 61800 * ms, LimitedBy: sluice.ByPause})
		g.Resume()
		hold(g, 4*time.Second)
		// 10 in flight for 4 s each are 2.5/s: fewer than the rate of 5/s.
		// The last of 100 leaves when 9 rounds are over, 9 intervals into the tenth.
		check(100, sluice.Estimate{Last: 37800 * ms, Total: 41800 * ms, LimitedBy: sluice.ByConcurrency})
		g.SetConcurrency(0)
		check(100, sluice.Estimate{Last: 19800 * ms, Total: 23800 * ms, LimitedBy: sluice.ByRate})
		check(math.MaxInt64, sluice.Estimate{Last: limits.Never, Total: limits.Never, LimitedBy: sluice.ByRate})
	})
}

func TestPlanKnowsWhatIsInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := mustGate(t, sluice.Config{Concurrency: 2})
		hold(g, time.Second)
		g.Acquire(bg, 1)
		if f := g.Estimate(2); f.First != 0 || f.Last != time.Second {
			t.Errorf("one of two in flight: %+v", f)
		}
		g.Acquire(bg, 1)
		if f := g.Estimate(2); f.First != time.Second || f.Last != time.Second || f.Total != 2*time.Second || f.LimitedBy != sluice.ByConcurrency {
			t.Errorf("both in flight: %+v", f)
		}
	})
}

// The forecast of a plan is what then happens.
func TestPlanComesTrue(t *testing.T) {
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
