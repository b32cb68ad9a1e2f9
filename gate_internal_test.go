package sluice

import (
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice/internal/queue"
	"github.com/sluice-go/sluice/internal/schedule"
	"github.com/sluice-go/sluice/limits"
)

// # Calls that pass without the lock

// A call that passes without the lock takes its place before it is certain that it is
// in time, and another may decide under the lock meanwhile. Together they must not take
// more places than there are: if the lane is open again before the first looks at it,
// both leave.
func TestLane_PlacesAreTakenOnce(t *testing.T) {
	g, err := New(Config{Concurrency: 1})
	if err != nil {
		t.Fatal(err)
	}
	r := (*admitter)(g)
	places := g.lane.Slots().Places()
	over := 0
	done := make(chan struct{})
	var others sync.WaitGroup
	others.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
			}
			if g.room.calls.AddUnlocked(places) {
				g.room.calls.UncountPassed()
				g.room.calls.End()
			}
		}
	})
	for end := time.Now().Add(300 * time.Millisecond); time.Now().Before(end); {
		g.queue.Lock()
		now := g.queue.Now()
		if r.Admit(now, now, 1) == 0 {
			if g.room.calls.Calls() > places {
				over++
			}
			g.room.calls.End()
		}
		g.queue.Unlock()
	}
	close(done)
	others.Wait()
	if over > 0 {
		t.Errorf("%d times there were more in flight than places", over)
	}
	if n := g.room.calls.Calls(); n != 0 {
		t.Errorf("afterwards %d in flight", n)
	}
}

// A call that takes its place and then loses the slot to others gives the place back. If
// the gate is closed in between, Close sees the place taken, so the call must notice that
// nothing is in flight any more: otherwise Shutdown waits for ever.
func TestLane_LosingTheSlotDrainsTheGate(t *testing.T) {
	g, err := New(Config{Concurrency: 1})
	if err != nil {
		t.Fatal(err)
	}
	slots := g.lane.Slots()
	next, now, v := slots.Look(g.queue.Epoch())
	if v != schedule.Leave || !g.room.calls.AddUnlocked(slots.Places()) {
		t.Fatal("an idle gate lets no call through")
	}
	g.Close()
	if slots.Take(next, now) {
		t.Fatal("a closed gate lets a call through")
	}
	g.loseSlot()
	select {
	case <-g.drained:
	default:
		t.Error("nothing is in flight, and the gate waits for it")
	}
}

func TestLane_OneLimitWithAndWithoutTheLock(t *testing.T) {
	g, err := New(Config{Concurrency: 1})
	if err != nil {
		t.Fatal(err)
	}
	var in, most atomic.Int64
	call := func() {
		if now := in.Add(1); now > most.Load() {
			most.Store(now)
		}
		in.Add(-1)
	}
	var workers sync.WaitGroup
	for i := range 4 {
		workers.Go(func() {
			for range 50_000 {
				if i%2 == 0 {
					if p, ok := g.TryAcquire(2); ok { // takes the lock
						call()
						p.Release()
					}
				} else if p, err := g.Acquire(context.Background(), 1); err == nil {
					call()
					p.Release()
				}
			}
		})
	}
	workers.Wait()
	if n := most.Load(); n > 1 {
		t.Errorf("%d in flight, the limit is 1", n)
	}
	if n := g.room.used(); n != 0 {
		t.Errorf("afterwards %d in flight", n)
	}
}

// Without a limit no call is refused, however long it was held up between reading
// the clock and looking at the lane.
func TestLane_OldClockRefusesNoCall(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(8)) // more than there are processors, so that they are held up
	g, err := New(Config{})
	if err != nil {
		t.Fatal(err)
	}
	var refused atomic.Int64
	var workers sync.WaitGroup
	for range 16 {
		workers.Go(func() {
			for range 50_000 {
				if p, ok := g.TryAcquire(1); ok {
					p.Release()
				} else {
					refused.Add(1)
				}
			}
		})
	}
	workers.Wait()
	if n := refused.Load(); n > 0 {
		t.Errorf("%d calls were refused", n)
	}
}

// # Stress

// returns fails t with all stacks, rather than wait for ever for a call that was not
// woken.
func returns(t *testing.T, what string, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() { defer close(done); f() }()
	select {
	case <-done:
	case <-time.After(time.Minute):
		panic("for a minute now, " + what)
	}
}

// A stressed gate is used in all ways at once, past the lock and under it, by its
// own callers and by those of a child. It counts the calls in flight by itself.
type stressed struct {
	g, child          *Gate
	now, peak         atomic.Int64
	entered, returned atomic.Int64
}

func (s *stressed) enter() {
	s.entered.Add(1)
	for now := s.now.Add(1); ; {
		if p := s.peak.Load(); now <= p || s.peak.CompareAndSwap(p, now) {
			break
		}
	}
}

func (s *stressed) leave() { s.now.Add(-1) }

func (s *stressed) call(ctx context.Context, r *rand.Rand) error {
	defer s.returned.Add(1)
	var p *Permit
	err, ok := error(nil), true
	switch r.IntN(8) {
	case 0, 1:
		return s.g.Do(ctx, func(context.Context) error {
			s.enter()
			defer s.leave()
			return nil
		})
	case 2:
		p, ok = s.g.TryAcquire(1 + r.Int64N(2))
	case 3:
		p, ok = s.child.TryAcquire(1)
	case 4:
		p, err = s.child.Acquire(ctx, 1)
	case 5:
		p, err = s.g.AcquireWithin(ctx, 1, time.Duration(r.Int64N(int64(5*time.Millisecond))))
	default:
		p, err = s.g.Acquire(ctx, 1+r.Int64N(2))
	}
	if err == nil && ok {
		s.enter()
		if r.IntN(100) == 0 {
			time.Sleep(time.Duration(r.Int64N(int64(time.Millisecond))))
		}
		s.leave()
		p.Release()
	}
	return err
}

func TestLane_Stress(t *testing.T) {
	const most = 4
	for _, rate := range []Rate{{}, {Count: 1_000_000, Per: time.Second}} {
		g, err := New(Config{Concurrency: most, Rate: rate})
		if err != nil {
			t.Fatal(err)
		}
		child, err := New(Config{Parent: g})
		if err != nil {
			t.Fatal(err)
		}
		s := &stressed{g: g, child: child}
		work := func(goroutines, times int) {
			var workers sync.WaitGroup
			for i := range goroutines {
				workers.Go(func() {
					r := rand.New(rand.NewPCG(3, uint64(i)))
					for range times {
						ctx, cancel := context.WithCancel(context.Background())
						if r.IntN(8) == 0 {
							time.AfterFunc(time.Duration(r.Int64N(int64(200*time.Microsecond))), cancel)
						}
						err := s.call(ctx, r)
						cancel()
						if errors.Is(err, limits.ErrClosed) {
							return
						}
					}
				})
			}
			returns(t, "a call waits although no call is in flight", workers.Wait)
		}
		check := func(what string) {
			t.Helper()
			st := g.Stats()
			if st.InFlight != 0 || st.Waiting+st.Pacing != 0 || st.Admitted != uint64(s.entered.Load()) {
				t.Errorf("%s: %d entered; %+v", what, s.entered.Load(), st)
			}
			if n := child.Stats(); n.InFlight != 0 || n.Waiting+n.Pacing != 0 {
				t.Errorf("%s: child: %+v", what, n)
			}
			if n := s.peak.Load(); n > most {
				t.Errorf("%s: %d in flight, the limit is %d", what, n, most)
			}
		}

		work(16, 400)
		check("nothing is changed")

		stop := make(chan struct{})
		var changes sync.WaitGroup
		changes.Go(func() {
			r := rand.New(rand.NewPCG(5, 6))
			for {
				select {
				case <-stop:
					return
				case <-time.After(100 * time.Microsecond):
				}
				switch r.IntN(8) {
				case 0:
					g.PauseUntil(time.Now().Add(time.Duration(r.Int64N(int64(time.Millisecond)))), "stress")
				case 1:
					g.Resume()
				case 2:
					g.SetRate(Rate{})
				case 3:
					g.SetRate(Rate{Count: 1_000_000 + r.Int64N(1_000_000), Per: time.Second})
				case 4, 5:
					g.SetConcurrency(1 + r.Int64N(most))
				case 6:
					g.Stats()
				case 7:
					child.SetConcurrency(r.Int64N(3))
				}
			}
		})
		work(16, 400)
		close(stop)
		changes.Wait()
		check("all is changed")

		// All of it is there again. A rate ends a slow start.
		g.SetRate(Rate{Count: 1, Per: time.Second})
		g.SetRate(Rate{})
		g.SetConcurrency(most)
		g.Resume()
		var permits []*Permit
		for range most {
			if p, ok := g.TryAcquire(1); ok {
				permits = append(permits, p)
			}
		}
		if _, ok := g.TryAcquire(1); ok || len(permits) != most {
			t.Errorf("%d calls got in, and another %v", len(permits), ok)
		}
		for _, p := range permits {
			p.Release()
			s.entered.Add(1)
		}

		time.AfterFunc(5*time.Millisecond, g.Close)
		work(16, 1_000_000)
		returns(t, "a gate does not drain", func() { g.Shutdown(context.Background()) })
		check("closed")
	}
}

// A call that took its place without the lock, and then lost its slot because the gate
// was paused, was not granted.
func TestLane_LostSlotIsNotGranted(t *testing.T) {
	g, err := New(Config{})
	if err != nil {
		t.Fatal(err)
	}
	if !g.room.calls.AddUnlocked(1) {
		t.Fatal("no place")
	}
	g.PauseUntil(time.Now().Add(time.Hour), "test") // closes the lane for longer than the test
	g.loseSlot()
	if s := g.Stats(); s.Admitted != 0 || s.InFlight != 0 {
		t.Errorf("%d granted, %d in flight", s.Admitted, s.InFlight)
	}
}

// # Settling

// forecasts counts how often a gate forecasts the wait of a call.
type forecasts struct {
	*admitter
	n int
}

func (f *forecasts) Forecast(now time.Duration, ahead int64) time.Duration {
	f.n++
	return f.admitter.Forecast(now, ahead)
}

// Settle looks at waiting calls only if it delays them. A gate whose rate counts cost
// settles each call, and would look at all that wait each time.
func TestPermit_Settle_LooksOnlyAtDelayedWaiters(t *testing.T) {
	const waiting = 50
	for name, c := range map[string]struct {
		settle func(g *Gate, p *Permit)
		looks  int // at how many of them
	}{
		"less":    {func(_ *Gate, p *Permit) { p.Settle(1) }, 0},
		"nothing": {func(_ *Gate, p *Permit) { p.Settle(0) }, 0},
		"resume":  {func(g *Gate, _ *Permit) { g.Resume() }, 0},
		"more":    {func(_ *Gate, p *Permit) { p.Settle(20) }, waiting},
		"behind a pause": {func(g *Gate, p *Permit) {
			g.PauseUntil(time.Now().Add(1000*time.Second), "")
			p.Settle(20) // the end of the pause is later than what it owes
		}, waiting},
		"slower": {func(g *Gate, _ *Permit) { g.SetRate(Rate{Count: 1, Per: 2 * time.Second}) }, waiting},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g, err := New(Config{Rate: Rate{Count: 1, Per: time.Second}, RateUnit: Cost})
				if err != nil {
					t.Fatal(err)
				}
				f := &forecasts{admitter: (*admitter)(g)}
				g.queue.Init(f, queue.Config{Refuse: g.room.refuse, Weigh: g.rateUnit.of, Latch: f.admitter})
				p, err := g.Acquire(t.Context(), 10)
				if err != nil {
					t.Fatal(err)
				}
				for range waiting {
					go func() {
						ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
						defer cancel()
						if _, err := g.Acquire(ctx, 1); err != nil {
							t.Error(err)
						}
					}()
				}
				synctest.Wait()
				f.n = 0
				c.settle(g, p)
				if f.n != c.looks {
					t.Errorf("looked at %d waiting calls, want %d", f.n, c.looks)
				}
				time.Sleep(time.Hour)
			})
		})
	}
}

// If a call cost more than it was let through with, others are delayed, and those that
// cannot wait that long fail at once.
func TestPermit_Settle_FailsWaitersWithoutTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, err := New(Config{Rate: Rate{Count: 1, Per: time.Second}, RateUnit: Cost})
		if err != nil {
			t.Fatal(err)
		}
		p, err := g.Acquire(t.Context(), 1)
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		time.AfterFunc(500*time.Millisecond, func() { p.Settle(3) })
		var hopeless *limits.WaitError
		_, err = g.AcquireWithin(t.Context(), 1, 2*time.Second)
		if d := time.Since(began); !errors.As(err, &hopeless) || d != 500*time.Millisecond || hopeless.Need != 2500*time.Millisecond {
			t.Errorf("%v after %v", err, d)
		}
	})
}
