package sluice_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/internal/testkit/synclog"
	"github.com/sluice-go/sluice/limits"
)

func TestConfig_Parent_LimitsAreShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := mustGate(t, sluice.Config{Name: "all", Concurrency: 3, Rate: tenPerSecond})
		a := mustGate(t, sluice.Config{Name: "a", Concurrency: 2, Parent: all})
		b := mustGate(t, sluice.Config{Name: "b", Rate: sluice.Rate{Count: 5, Per: time.Second}, Parent: all})
		l := synclog.New()
		for i := range 3 {
			l.Call(10+i, func() error { return hold(a, time.Second) })
			l.Call(20+i, func() error { return hold(b, time.Second) })
		}
		time.Sleep(10 * time.Second)
		l.Want(t,
			synclog.At(10, 1000*ms), // left at 0
			synclog.At(20, 1100*ms), // at 100, the rate of all
			synclog.At(11, 1200*ms), // at 200; now all is full, and so is a
			synclog.At(21, 2000*ms), // at 1000, when 10 was back; the next slot of b was at 300
			synclog.At(12, 2100*ms), // at 1100
			synclog.At(22, 2200*ms), // at 1200
		)
		for _, g := range []*sluice.Gate{all, a, b} {
			if s := g.Stats(); s.InFlight != 0 || s.Waiting != 0 || s.Pacing != 0 || s.Granted != s.Waits.Count() {
				t.Errorf("%+v", s)
			}
		}
		if n := all.Stats().Granted; n != 6 {
			t.Errorf("all let %d through", n)
		}
	})
}

func TestConfig_Parent_SlowChildHoardsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := mustGate(t, sluice.Config{Concurrency: 1})
		slow := mustGate(t, sluice.Config{Rate: sluice.Rate{Count: 1, Per: time.Hour}, Parent: all})
		paused := mustGate(t, sluice.Config{Parent: all})
		quick := mustGate(t, sluice.Config{Parent: all})
		paused.PauseUntil(time.Now().Add(time.Hour), "")
		hold(slow, 0)
		ctx, cancel := context.WithCancel(bg)
		var wg sync.WaitGroup
		for range 10 {
			wg.Go(func() { slow.Acquire(ctx, 1) })
			wg.Go(func() { paused.Acquire(ctx, 1) })
		}
		synctest.Wait()
		if s := all.Stats(); s.InFlight != 0 || s.Pacing+s.Waiting != 0 {
			t.Errorf("while its children wait for themselves: %+v", s)
		}
		if _, ok := quick.TryAcquire(1); !ok {
			t.Error("a quick child is held up")
		}
		cancel()
		wg.Wait()
	})
}

// Settle applies to the parent as well, but takes no room there once the permit has
// been released.
func TestConfig_Parent_SettleAfterReleaseTakesNoRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, observer := range []sluice.Observer{nil, newDiary().Observe} {
			all := mustGate(t, sluice.Config{Concurrency: 10, ConcurrencyUnit: sluice.Cost})
			child := mustGate(t, sluice.Config{Parent: all, Observer: observer})
			p, _ := child.Acquire(bg, 5)
			p.Release()
			p.Settle(7)
			if n := all.Stats().InFlight; n != 0 {
				t.Errorf("%d in flight", n)
			}
		}
	})
}

func TestConfig_Parent_FullOneWastesNoSlotOfItsChild(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		quota := &bucket{capacity: 10, interval: time.Hour}
		all := mustGate(t, sluice.Config{Name: "all", Concurrency: 1})
		child := mustGate(t, sluice.Config{
			Name: "child", Concurrency: 5, Rate: sluice.Rate{Count: 1, Per: time.Minute}, Parent: all,
			Limits: []sluice.Limit{{Name: "q", Limiter: quota}},
		})
		p, _ := all.Acquire(bg, 1)
		if _, ok := child.TryAcquire(1); ok {
			t.Error("passed a full parent")
		}
		if _, err := child.AcquireWithin(bg, 1, time.Second); !errors.Is(err, limits.ErrTimeout) || err.Error() != "sluice: child: all: waited for the concurrency of 1 as long as allowed" {
			t.Errorf("AcquireWithin: %v", err)
		}
		ctx, cancel := context.WithTimeout(bg, time.Second)
		defer cancel()
		if _, err := child.Acquire(ctx, 1); err != context.DeadlineExceeded {
			t.Errorf("Acquire: %v", err)
		}
		if s := child.Stats(); s.InFlight != 0 || s.Granted != 0 || time.Until(s.NextSlot) > 0 || quota.missing() != 0 {
			t.Errorf("%d tokens gone, %+v", quota.missing(), s)
		}
		p.Release()
		if _, ok := child.TryAcquire(1); !ok {
			t.Error("a slot was wasted")
		}
		if quota.missing() != 1 || all.Stats().InFlight != 1 {
			t.Errorf("%d tokens gone, %+v", quota.missing(), all.Stats())
		}
	})
}

// If a child is paused, slowed down, resized or closed while its first call queues in
// the parent, the call gives up its place there, and others move up.
func TestConfig_Parent_ChildChangesWhileItsHeadQueues(t *testing.T) {
	for name, c := range map[string]struct {
		change func(g *sluice.Gate)
		want   synclog.Left // of the child's call
	}{
		"pause":  {func(g *sluice.Gate) { g.PauseUntil(time.Now().Add(time.Minute), "") }, synclog.At(1, time.Minute+time.Second)},
		"closed": {func(g *sluice.Gate) { g.Close() }, synclog.Failed(1, time.Second, limits.ErrClosed)},
		"slower": {func(g *sluice.Gate) { g.SetRate(sluice.Rate{Count: 1, Per: 10 * time.Second}) }, synclog.At(1, 10*time.Second)},
		"resized": {func(g *sluice.Gate) {
			g.Acquire(bg, 0)
			g.SetConcurrency(1)
			time.AfterFunc(time.Minute, func() { g.SetConcurrency(2) })
		}, synclog.At(1, time.Minute+time.Second)},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				all := mustGate(t, sluice.Config{Concurrency: 2})
				g := mustGate(t, sluice.Config{Concurrency: 2, Rate: sluice.Rate{Count: 1, Per: time.Nanosecond}, Parent: all})
				other := mustGate(t, sluice.Config{Parent: all})
				mine, _ := g.Acquire(bg, 1) // stays in flight: of the child one is free
				theirs, _ := all.Acquire(bg, 1)
				l := synclog.New()
				l.Call(1, enter(g, bg))
				l.Call(2, enter(other, bg))
				time.Sleep(time.Second)
				c.change(g)
				time.Sleep(time.Second)
				theirs.Release() // room for one: 1 if it still may, else 2
				time.Sleep(5 * time.Second)
				if got := l.Sofar(); len(got) == 0 || got[len(got)-1] != synclog.At(2, 2*time.Second) {
					t.Errorf("the other child: %v", got)
				}
				all.SetConcurrency(10)
				time.Sleep(time.Hour)
				l.Want(t, c.want, synclog.At(2, 2*time.Second))
				mine.Release()
			})
		})
	}
}

func TestConfig_Parent_ChangesReachChildren(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := mustGate(t, sluice.Config{Name: "all", Rate: sluice.Rate{Count: 1, Per: 10 * time.Second}})
		a := mustGate(t, sluice.Config{Name: "a", Parent: all})
		b := mustGate(t, sluice.Config{Name: "b", Parent: all})
		l := synclog.New()
		for i := range 2 {
			l.Call(10+i, enter(a, bg))
			l.Call(20+i, enter(b, bg))
		}
		l.Call(30, func() error { _, err := a.AcquireWithin(bg, 1, time.Minute); return err })
		time.Sleep(time.Second)
		all.SetRate(sluice.Rate{Count: 1000, Per: time.Second}) // 20 now, 11 and 21 each 1 ms later, 30 behind 11
		time.Sleep(time.Second)
		l.Want(t, synclog.At(10, 0), synclog.At(20, 1000*ms), synclog.At(11, 1001*ms), synclog.At(21, 1002*ms), synclog.At(30, 1003*ms))

		all.PauseUntil(time.Now().Add(time.Minute), "")
		var wait *limits.WaitError
		if _, err := b.AcquireWithin(bg, 1, time.Second); !errors.As(err, &wait) || wait.Need != time.Minute || wait.By != "all" {
			t.Errorf("child of a paused parent: %v", err)
		}
		all.Close()
		if _, err := b.Acquire(bg, 1); !errors.Is(err, limits.ErrClosed) {
			t.Errorf("child of a closed parent: %v", err)
		}
	})
}

func TestConfig_Parent_ThreeGenerations(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		root := mustGate(t, sluice.Config{Rate: tenPerSecond, Limits: []sluice.Limit{{Name: "root", Limiter: &bucket{capacity: 100, interval: time.Hour}}}})
		mid := mustGate(t, sluice.Config{Concurrency: 2, Parent: root})
		var leaves []*sluice.Gate
		for range 3 {
			leaves = append(leaves, mustGate(t, sluice.Config{Concurrency: 1, Parent: mid}))
		}
		var wg sync.WaitGroup
		start := time.Now()
		for i := range 30 {
			wg.Go(func() { hold(leaves[i%3], 450*ms) })
		}
		wg.Wait()
		// Two in flight for 450 ms each, an interval apart: pairs each 450 ms.
		if got, want := time.Since(start), 14*450*ms+100*ms+450*ms; got != want {
			t.Errorf("took %v, want %v", got, want)
		}
		for _, g := range append(leaves, mid, root) {
			if s := g.Stats(); s.InFlight != 0 {
				t.Errorf("%+v", s)
			}
		}
	})
}

func TestConfig_Parent_SettleAndEstimate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := mustGate(t, sluice.Config{Rate: tenPerSecond, RateUnit: sluice.Cost})
		g := mustGate(t, sluice.Config{Parent: all})
		p, _ := g.Acquire(bg, 10)
		p.Settle(5)
		p.Release()
		p.Release()
		if d := time.Until(all.Stats().NextSlot); d != 500*ms || all.Stats().InFlight != 0 {
			t.Errorf("the parent's next slot is in %v", d)
		}
		if f := g.Estimate(11); f.First != 500*ms || f.Last != 1500*ms || f.LimitedBy != limits.ByRate {
			t.Errorf("%+v", f)
		}
		if _, err := sluice.New(sluice.Config{Parent: mustGate(t, sluice.Config{Semaphore: shared{}})}); err == nil {
			t.Error("a parent with Permits")
		}
	})
}

// A call that waits in its parent's queue takes nothing of its limits while its own gate is
// paused meanwhile: they are asked once, when it can leave.
func TestConfig_Parent_LimitsAreAskedWhenTheGatesBelowCould(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := mustGate(t, sluice.Config{Concurrency: 1})
		b := &bucket{capacity: 5, interval: time.Hour}
		g := mustGate(t, sluice.Config{Parent: all, Limits: []sluice.Limit{{Name: "b", Limiter: b}}})
		first, err := all.Acquire(bg, 1)
		if err != nil {
			t.Fatal(err)
		}
		l := synclog.New()
		l.Call(1, enter(g, bg))
		synctest.Wait()
		g.PauseUntil(time.Now().Add(10*time.Second), "")
		time.Sleep(time.Second)
		first.Release()
		synctest.Wait()
		if n := b.asks(); n != 0 {
			t.Errorf("asked %d times while the gate is paused", n)
		}
		time.Sleep(time.Hour)
		if l.Want(t, synclog.At(1, 10*time.Second)); b.asks() != 1 {
			t.Errorf("asked %d times", b.asks())
		}
	})
}
