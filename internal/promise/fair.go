package promise

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-go/sluice"
)

// fair lets a gate call next to another one of the same parent, whose calls wait all the time. Each gets
// its share by weight, nothing of the limit is lost, and a few calls do not wait for the many.
func fair(c *check) {
	if c.real {
		return // which would judge the machine
	}
	const units = 400
	c.scene("by weight", Limits{Interval: c.usual}, func(x *crowd) {
		other := x.beside(3)
		if other == nil {
			return
		}
		x.sleep(x.origin - x.now())
		ctx, cancel := context.WithTimeout(x.ctx, units*c.usual+c.usual/2)
		defer cancel()
		var mine, others atomic.Int64
		var all sync.WaitGroup
		for range 5 {
			all.Go(func() { x.repeat(ctx, x.s, &mine) })
			all.Go(func() { x.repeat(ctx, other, &others) })
		}
		all.Wait()
		if sum := mine.Load() + others.Load(); sum < units*98/100 {
			x.errorf("%d calls left in %d intervals", sum, units)
		}
		if got := mine.Load(); got < units/4-units/50 || got > units/4+units/50 {
			x.errorf("%d of %d calls left beside a gate of three times the weight", got, mine.Load()+others.Load())
		}
	})
	c.scene("a few beside many", Limits{Interval: c.usual}, func(x *crowd) {
		other := x.beside(1)
		if other == nil {
			return
		}
		x.sleep(x.origin - x.now())
		var all sync.WaitGroup
		ctx, cancel := context.WithCancel(x.ctx)
		defer all.Wait()
		defer cancel()
		for range 200 {
			all.Go(func() { _ = other.Do(ctx, Ask{}, func() error { return nil }) })
		}
		for caller := range 10 {
			x.sleep(37 * c.usual / 10)
			came := x.now()
			x.do(x.ctx, caller, Ask{}, nil)
			x.finishOf(caller)
			if left := x.leftAt(caller, 0); left < 0 || left > came+2*c.usual+x.late() {
				x.errorf("call %d came at %v and left at %v, behind those that waited", caller, came, left)
			}
		}
	})
}

// next to returns a gate next to the subject, with so many times its weight, or nil if they share no rate.
func (x *crowd) beside(times int64) *Subject {
	if x.s.Beside == nil || !x.s.Paced {
		return nil
	}
	return x.s.Beside(times)
}

// repeat makes calls, one after the other, until ctx is done, and counts them.
func (x *crowd) repeat(ctx context.Context, s *Subject, n *atomic.Int64) {
	for ctx.Err() == nil {
		if s.Do(ctx, Ask{}, func() error { return nil }) == nil {
			n.Add(1)
		} else {
			x.sleep(x.usual / 10) // it may have failed immediately
		}
	}
}

// Beside returns Subject.Beside for a child of parent of that weight.
func Beside(tb testing.TB, l Limits, parent *sluice.Gate, weight int64) func(times int64) *Subject {
	return func(times int64) *Subject {
		g := mustGate(tb, sluice.Config{Name: "other", Parent: parent, Weight: times * weight})
		return OfGate(l, g, NewLevel("other", g))
	}
}

// withClass is a gate for users under a parent, next to a gate for a batch whose calls wait for that.
func withClass(tb testing.TB, l Limits) *Subject {
	const weight = 15
	parent := mustGate(tb, l.Config())
	batch := mustGate(tb, sluice.Config{Name: "batch", Parent: parent, Rate: sluice.Rate{Count: 1, Per: day}})
	users := mustGate(tb, sluice.Config{Name: "users", Parent: parent, Weight: weight})
	g := mustGate(tb, sluice.Config{Name: "user", Parent: users})
	batch.PauseUntil(time.Now().Add(100*day), "a setup")
	ctx, cancel := context.WithCancel(context.Background())
	var waiting sync.WaitGroup
	for range 3 {
		waiting.Go(func() { _ = batch.Wait(ctx) })
	}
	s := OfGate(l, g, NewLevel("user", g), NewLevel("users", users), NewLevel("parent", parent))
	s.Beside = Beside(tb, l, parent, weight)
	s.Close = func() { cancel(); waiting.Wait() }
	return s
}
