package sluice

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-go/sluice/internal/schedule"
)

// A call that passes without the lock takes its place before it is certain that it is
// in time, and another may decide under the lock meanwhile. Together they must not take
// more places than there are: if the lane is open again before the first looks at it,
// both leave.
func TestLane_PlacesAreTakenOnce(t *testing.T) {
	g, err := New(Config{Concurrency: 1})
	if err != nil {
		t.Fatal(err)
	}
	r := (*rule)(g)
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
			if g.flight.addUnlocked(places) {
				g.flight.uncountPassed()
				g.flight.leave()
			}
		}
	})
	for end := time.Now().Add(300 * time.Millisecond); time.Now().Before(end); {
		g.queue.Lock()
		now := g.queue.Now()
		if r.Admit(now, now, 1) == 0 {
			if g.flight.calls() > places {
				over++
			}
			g.flight.leave()
		}
		g.queue.Unlock()
	}
	close(done)
	others.Wait()
	if over > 0 {
		t.Errorf("%d times there were more in flight than places", over)
	}
	if n := g.flight.calls(); n != 0 {
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
	if v != schedule.Leave || !g.flight.addUnlocked(slots.Places()) {
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
	if n := g.inFlight(); n != 0 {
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

// More calls can never end than began: the number would wrap, and the gate be full for good.
func TestLane_FlightDoesNotGoBelowZero(t *testing.T) {
	var f flight
	f.addUnlocked(2)
	f.leave()
	func() {
		defer func() {
			if recover() == nil {
				t.Error("no panic")
			}
		}()
		f.leave()
	}()
	if n := f.calls(); n != 0 {
		t.Errorf("%d in flight", n)
	}
	if !f.addUnlocked(1) || f.passed() != 2 {
		t.Error("what has passed was lost")
	}
}
