package sluice

import (
	"context"
	"errors"
	"fmt"
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
	r := admitter{&g.turnstile}
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
	admitter
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
				f := &forecasts{admitter: admitter{&g.turnstile}}
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

// # Gates with a parent

// newFamily returns a gate of 10/s with room for 3, and its parent of 20/s with room for 2.
func newFamily(t *testing.T) (child, parent *Gate) {
	t.Helper()
	parent, err := New(Config{Concurrency: 2, Rate: Rate{Count: 20, Per: time.Second}})
	if err != nil {
		t.Fatal(err)
	}
	child, err = New(Config{Concurrency: 3, Rate: Rate{Count: 10, Per: time.Second}, Parent: parent})
	if err != nil {
		t.Fatal(err)
	}
	return child, parent
}

// wantFlight wants both gates to have n calls in flight, and granted.
func wantFlight(t *testing.T, when string, child, parent *Gate, inFlight int64, granted uint64) {
	t.Helper()
	for name, g := range map[string]*Gate{"child": child, "parent": parent} {
		if s := g.Stats(); s.InFlight != inFlight || s.Admitted != granted {
			t.Errorf("%s: the %s has %d in flight and granted %d, want %d and %d", when, name, s.InFlight, s.Admitted, inFlight, granted)
		}
	}
}

// A call that no gate makes wait leaves without a lock, and counts in all gates.
func TestGate_Do_WithAParent_LeavesUnlocked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		child, parent := newFamily(t)
		for i := range uint64(3) {
			child.Stats() // with the lock: a lane that was closed opens
			if at, v, _ := child.direct.admit(context.Background()); v != schedule.Leave || at != child.queue.Now() {
				t.Fatalf("call %d: %v at %v", i, v, at)
			}
			wantFlight(t, "in flight", child, parent, 1, i+1)
			if _, v, _ := child.direct.admit(context.Background()); v != schedule.Early {
				t.Errorf("another call of the same instant: %v", v)
			}
			child.open.finish(child.queue.Now())
			wantFlight(t, "afterwards", child, parent, 0, i+1)
			time.Sleep(100 * time.Millisecond)
		}
	})
}

// A call that one of the gates makes wait takes nothing of the others.
func TestGate_Do_WithAParent_TakesNothingIfOneRefuses(t *testing.T) {
	for name, hold := range map[string]func(child, parent *Gate){
		"child paused":  func(child, _ *Gate) { child.PauseUntil(time.Now().Add(time.Hour), "") },
		"parent paused": func(_, parent *Gate) { parent.PauseUntil(time.Now().Add(time.Hour), "") },
		"parent's slot": func(_, parent *Gate) { _ = parent.Wait(context.Background()) },
		"parent's room": func(_, parent *Gate) {
			for range 2 {
				_, _ = parent.Acquire(context.Background(), 1)
			}
			time.Sleep(time.Second)
		},
		"child closed":  func(child, _ *Gate) { child.Close() },
		"parent closed": func(_, parent *Gate) { parent.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				child, parent := newFamily(t)
				hold(child, parent)
				before := [2]Stats{child.Stats(), parent.Stats()}
				if _, v := child.direct.passAll(context.Background(), 1); v == schedule.Leave {
					t.Error("left")
				}
				if _, ok := child.TryAcquire(1); ok {
					t.Error("left when tried")
				}
				if after := [2]Stats{child.Stats(), parent.Stats()}; after[0].InFlight != before[0].InFlight || after[1].InFlight != before[1].InFlight ||
					after[0].Admitted != before[0].Admitted || after[1].Admitted != before[1].Admitted {
					t.Errorf("took something: %v, then %v", before, after)
				}
			})
		})
	}
}

// What a call has taken before another one closes a lane is given back, in each gate but one
// that a call has left since that did not wait for it.
func TestGate_Do_WithAParent_BacksOut(t *testing.T) {
	for _, another := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			child, parent := newFamily(t)
			time.Sleep(time.Second)
			var seen [mostGates]look
			for i, g := range child.direct {
				seen[i] = look{slots: g.lane.Slots(), now: g.queue.Now()}
			}
			child.direct.admit(context.Background())
			granted, wait := uint64(0), time.Duration(0)
			if another { // leaves the parent, and did not wait for the slot there
				time.Sleep(50 * time.Millisecond)
				_ = parent.Wait(context.Background())
				wait = 50 * time.Millisecond
			}
			child.direct.backOut(context.Background(), 2, 2, &seen)
			if s := child.Stats(); s.InFlight != 0 || s.Admitted != granted {
				t.Errorf("child: %v", s)
			}
			if s := parent.Stats(); s.InFlight != 0 {
				t.Errorf("parent: %v", s)
			}
			began := time.Now()
			if err := child.Wait(context.Background()); err != nil || time.Since(began) != wait {
				t.Errorf("another %v: the next leaves after %v, %v; want %v", another, time.Since(began), err, wait)
			}
		})
	}
}

// A call that waits for the slot of one that backs out, and leaves meanwhile, does not delay
// those after it by that slot.
func TestGate_Do_WithAParent_BacksOutLate(t *testing.T) {
	const ms = time.Millisecond
	synctest.Test(t, func(t *testing.T) {
		child, parent := newFamily(t)
		time.Sleep(time.Second)
		var seen [mostGates]look
		for i, g := range child.direct {
			seen[i] = look{slots: g.lane.Slots(), now: g.queue.Now()}
		}
		began := time.Now()
		child.direct.admit(context.Background())
		time.Sleep(10 * ms)
		for i, want := range []time.Duration{50 * ms, 74 * ms, 100 * ms, 150 * ms} { // and not 50, 100, 150, 200
			if i == 1 {
				child.direct.backOut(context.Background(), 2, 2, &seen)
			}
			if err := parent.Wait(context.Background()); err != nil || time.Since(began) != want {
				t.Errorf("call %d leaves after %v, %v; want %v", i, time.Since(began), err, want)
			}
		}
	})
}

// A caller that waits when a slot comes back late leaves earlier.
func TestGate_Do_WithAParent_BacksOutLate_WakesWaiters(t *testing.T) {
	const ms = time.Millisecond
	synctest.Test(t, func(t *testing.T) {
		child, parent := newFamily(t)
		time.Sleep(time.Second)
		var seen [mostGates]look
		for i, g := range child.direct {
			seen[i] = look{slots: g.lane.Slots(), now: g.queue.Now()}
		}
		began := time.Now()
		child.direct.admit(context.Background())
		time.Sleep(10 * ms)
		left := make(chan time.Duration, 2)
		for range 2 {
			go func() {
				_ = parent.Wait(context.Background())
				left <- time.Since(began)
			}()
		}
		time.Sleep(50 * ms) // one of them has left, at 50 ms
		child.direct.backOut(context.Background(), 2, 2, &seen)
		if first, second := <-left, <-left; first != 50*ms || second != 74*ms {
			t.Errorf("left after %v and %v, want 50 and 74 ms", first, second)
		}
	})
}

// Calls of two children, past the locks and under them: no gate has more in flight than it may,
// and in the end none is, and the parent has granted what its children have.
func TestGate_Do_WithAParent_Stress(t *testing.T) {
	parent, err := New(Config{Concurrency: 3, Rate: Rate{Count: 200_000, Per: time.Second}})
	if err != nil {
		t.Fatal(err)
	}
	var inParent atomic.Int64
	var children []*Gate
	var callers sync.WaitGroup
	for range 2 {
		child, err := New(Config{Concurrency: 2, Rate: Rate{Count: 100_000, Per: time.Second}, Parent: parent})
		if err != nil {
			t.Fatal(err)
		}
		children = append(children, child)
		var inChild atomic.Int64
		for seed := range uint64(4) {
			callers.Go(func() {
				r := rand.New(rand.NewPCG(seed, 7))
				for range 1000 {
					call := func(context.Context) error {
						if inChild.Add(1) > 2 || inParent.Add(1) > 3 {
							t.Error("more in flight than may be")
						}
						inParent.Add(-1)
						inChild.Add(-1)
						return nil
					}
					switch r.IntN(20) {
					case 0:
						parent.PauseUntil(time.Now().Add(time.Microsecond), "")
					case 1:
						_ = child.SetRate(Rate{Count: 50_000 + 50_000*r.Int64N(2), Per: time.Second})
					case 2:
						child.Stats()
					case 3, 4, 5:
						if p, ok := child.TryAcquire(1); ok {
							_ = call(nil)
							p.Release()
						}
					default:
						_ = child.Do(context.Background(), call)
					}
				}
			})
		}
	}
	returns(t, "calls of gates with a parent", callers.Wait)
	sum := uint64(0)
	for _, child := range children {
		s := child.Stats()
		if sum += s.Admitted; s.InFlight != 0 {
			t.Errorf("child: %v", s)
		}
	}
	if s := parent.Stats(); s.InFlight != 0 || s.Admitted != sum || sum == 0 {
		t.Errorf("parent: %v; its children granted %d", s, sum)
	}
}

// The time that a call was in flight counts in each gate by its own clock.
func TestGate_Do_WithAParent_MeasuresHowLongCallsTake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		parent, err := New(Config{Concurrency: 2})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		child, err := New(Config{Concurrency: 2, Parent: parent})
		if err != nil {
			t.Fatal(err)
		}
		_ = child.Do(context.Background(), func(context.Context) error { time.Sleep(time.Second); return nil })
		if child.hold.Mean() != time.Second || parent.hold.Mean() != time.Second {
			t.Errorf("%v in the child, %v in the parent", child.hold.Mean(), parent.hold.Mean())
		}
	})
}

// verbsUnderAParent make one call of 10 ms through a gate, but Wait, which makes none.
var verbsUnderAParent = map[string]func(g *Gate){
	"Do":   func(g *Gate) { _ = g.Do(context.Background(), tenMillis) },
	"Wait": func(g *Gate) { _ = g.Wait(context.Background()); time.Sleep(10 * time.Millisecond) },
	"Acquire": func(g *Gate) {
		p, _ := g.Acquire(context.Background(), 1)
		_ = tenMillis(context.Background())
		p.Release()
	},
	"TryAcquire": func(g *Gate) {
		p, _ := g.TryAcquire(1)
		_ = tenMillis(context.Background())
		p.Release()
	},
	"Retry": func(g *Gate) { _ = Retry(context.Background(), g, tenMillis) },
	"Do that panics": func(g *Gate) {
		defer func() { _ = recover() }()
		_ = g.Do(context.Background(), func(ctx context.Context) error { _ = tenMillis(ctx); panic("f") })
	},
	"Do that exits": func(g *Gate) {
		var calls sync.WaitGroup
		calls.Go(func() {
			_ = g.Do(context.Background(), func(ctx context.Context) error { _ = tenMillis(ctx); runtime.Goexit(); return nil })
		})
		calls.Wait()
	},
}

func tenMillis(context.Context) error {
	time.Sleep(10 * time.Millisecond)
	return nil
}

// A call under a parent returns all that it took, in whichever gate and whoever made it: with
// cost in flight, 100 calls by Do wedged a gate of 100 for ever.
func TestGate_WithAParent_ReturnsCostInFlight(t *testing.T) {
	for verb, call := range verbsUnderAParent {
		for where, units := range map[string][2]Unit{"child": {Cost, Calls}, "parent": {Calls, Cost}, "both": {Cost, Cost}} {
			t.Run(verb+", "+where, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					parent := limits.Must(New(Config{Concurrency: 3, ConcurrencyUnit: units[1]}))
					child := limits.Must(New(Config{Concurrency: 3, ConcurrencyUnit: units[0], Parent: parent}))
					began := time.Now()
					for i := range uint64(20) {
						call(child)
						wantFlight(t, "afterwards", child, parent, 0, i+1)
					}
					if took := time.Since(began); took != 200*time.Millisecond {
						t.Errorf("20 calls of 10 ms took %v", took)
					}
				})
			})
		}
	}
}

// After a pause, each response lets two more calls leave, however the calls are made. The
// answers to calls of Do were not counted: each of them waited 10 s for the one before.
func TestGate_WithAParent_CountsAnswersInASlowStart(t *testing.T) {
	for verb, call := range verbsUnderAParent {
		if verb == "Do that panics" || verb == "Do that exits" {
			continue // no server has answered
		}
		for _, off := range []bool{false, true} {
			for _, above := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s, off %t, parent paused %t", verb, off, above), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						parent := limits.Must(New(Config{Adaptive: Adaptive{Disabled: off}}))
						child := limits.Must(New(Config{Adaptive: Adaptive{Disabled: off}, Parent: parent}))
						paused := child
						if above {
							paused = parent
						}
						paused.PauseUntil(time.Now().Add(time.Second), "")
						time.Sleep(time.Second)
						began := time.Now()
						for range 20 {
							call(child)
						}
						if took := time.Since(began); took != 200*time.Millisecond {
							t.Errorf("20 calls of 10 ms took %v", took)
						}
					})
				})
			}
		}
	}
}

// A gate that learns is told how each of its calls ended, and keeps nothing of them.
func TestGate_WithAParent_LearnsFromAllCalls(t *testing.T) {
	for verb, call := range verbsUnderAParent {
		for _, above := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, parent learns %t", verb, above), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					parent := limits.Must(New(Config{Adaptive: Adaptive{Search: above}}))
					child := limits.Must(New(Config{Adaptive: Adaptive{Search: !above}, Parent: parent}))
					learns := child
					if above {
						learns = parent
					}
					for range 100 {
						time.Sleep(time.Second)
						call(child)
					}
					if n := learns.departures.used; n > 0 {
						t.Errorf("%d calls are in flight, as far as it knows", n)
					}
				})
			})
		}
	}
}
