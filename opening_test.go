package sluice_test

import (
	"context"
	"errors"
	"math"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/semaphore"
)

// startsOf lets n callers make a call each through g at once, and returns when each of them left, in order.
func startsOf(t *testing.T, g *sluice.Gate, n int, call func(i int) error) []time.Duration {
	t.Helper()
	began, left := time.Now(), make([]time.Duration, 0, n)
	var mu sync.Mutex
	var all sync.WaitGroup
	for range n {
		all.Go(func() {
			_ = g.Do(t.Context(), func(context.Context) error {
				mu.Lock()
				i := len(left)
				left = append(left, time.Since(began))
				mu.Unlock()
				return call(i)
			})
		})
	}
	all.Wait()
	return left
}

// Nobody waits for slow answers: 14 calls leave at once, and twice as many have left after every 100 ms.
func TestGate_FirstBurst_WithoutAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := mustGate(t, sluice.Config{})
		left := startsOf(t, g, 1000, func(int) error { time.Sleep(time.Minute); return nil })
		for i, at := range left {
			want := time.Duration(max(0, math.Log2(float64(i+1)/14)) * float64(100*time.Millisecond))
			if at < want || at > want+time.Microsecond {
				t.Fatalf("call %d left after %v, want %v", i+1, at, want)
			}
		}
		if left[999] > 620*time.Millisecond {
			t.Errorf("the last one left after %v", left[999])
		}
	})
}

// Each answer lets two calls leave: one in its place and one more. After 50 answers nothing is held back.
func TestGate_FirstBurst_Answered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := mustGate(t, sluice.Config{})
		left := startsOf(t, g, 200, func(int) error { time.Sleep(time.Millisecond); return nil })
		for i, at := range left {
			want := 3 * time.Millisecond // then there are 50 answers
			for round, end := range []int{14, 14 + 28, 14 + 28 + 56} {
				if i < end {
					want = min(want, time.Duration(round)*time.Millisecond)
				}
			}
			if at != want {
				t.Fatalf("call %d left after %v, want %v", i+1, at, want)
			}
		}
		for i, at := range startsOf(t, g, 500, func(int) error { time.Sleep(time.Second); return nil }) {
			if at != 0 {
				t.Fatalf("call %d left after %v, although the first burst is over", i+1, at)
			}
		}
	})
}

// A burst that comes after single calls is the first one: they show nothing of a limit.
func TestGate_FirstBurst_AfterSingleCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := mustGate(t, sluice.Config{})
		for range 5 {
			startsOf(t, g, 1, func(int) error { time.Sleep(time.Second); return nil })
		}
		left := startsOf(t, g, 64, func(int) error { time.Sleep(time.Second); return nil })
		if left[18] != 0 || left[19] == 0 {
			t.Errorf("calls 19 and 20 left after %v and %v, want 19 at once: 14, and one for each answer", left[18], left[19])
		}
	})
}

// Whoever configures how many calls may be in flight, or how often they may start, also later, has bounded the burst. A gate
// that must not learn holds nobody back.
func TestGate_FirstBurst_Configured(t *testing.T) {
	for name, cfg := range map[string]sluice.Config{
		"concurrency": {Concurrency: 100},
		"rate":        {Rate: sluice.Rate{Count: 1e9, Per: time.Second}},
		"disabled":    {Adaptive: sluice.Adaptive{Disabled: true}},
		"semaphore":   {Semaphore: lent{semaphore.NewWeighted(100)}},
		"later rate":  {Name: "rate"}, "later concurrency": {Name: "concurrency"},
	} {
		synctest.Test(t, func(t *testing.T) {
			g := mustGate(t, cfg)
			switch cfg.Name {
			case "rate":
				_ = g.SetRate(sluice.Rate{Count: 1e9, Per: time.Second})
			case "concurrency":
				_ = g.SetConcurrency(100)
			}
			left := startsOf(t, g, 100, func(int) error { time.Sleep(time.Second); return nil })
			if left[99] > time.Microsecond {
				t.Errorf("%s: the last call left after %v", name, left[99])
			}
		})
	}
}

// The calls of children are bounded by their parent, once.
func TestGate_FirstBurst_OfChildren(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		parent := mustGate(t, sluice.Config{})
		first, second := mustGate(t, sluice.Config{Parent: parent}), mustGate(t, sluice.Config{Parent: parent})
		left := startsOf(t, first, 64, func(int) error { time.Sleep(time.Second); return nil })
		if left[13] != 0 || left[14] == 0 || left[63] > 220*time.Millisecond {
			t.Errorf("of the first child calls 14, 15 and 64 left after %v, %v and %v", left[13], left[14], left[63])
		}
		if left := startsOf(t, second, 100, func(int) error { time.Sleep(time.Second); return nil }); left[99] > 0 {
			t.Errorf("then the last of the second left after %v", left[99])
		}
	})
}

// A call that takes long does not end the bounds, nor do calls that get no answer.
func TestGate_FirstBurst_BesideALongCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := mustGate(t, sluice.Config{})
		long, err := g.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer long.Release()
		startsOf(t, g, 40, func(int) error { return context.Canceled })
		time.Sleep(time.Minute)
		left := startsOf(t, g, 100, func(int) error { time.Sleep(time.Second); return nil })
		if left[12] != 0 || left[13] == 0 || left[99] > 290*time.Millisecond {
			t.Errorf("calls 13, 14 and 100 left after %v, %v and %v", left[12], left[13], left[99])
		}
	})
}

// Callers who give up, calls whose permits are released without a result, and panics hold nobody back.
func TestGate_FirstBurst_WithoutResults(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := mustGate(t, sluice.Config{})
		ctx, cancel := context.WithCancel(t.Context())
		var permits []*sluice.Permit
		for range 14 {
			p, err := g.Acquire(ctx)
			if err != nil {
				t.Fatal(err)
			}
			permits = append(permits, p)
		}
		var all sync.WaitGroup
		for range 50 {
			all.Go(func() {
				if _, err := g.Acquire(ctx); !errors.Is(err, context.Canceled) {
					t.Errorf("error %v", err)
				}
			})
		}
		synctest.Wait()
		cancel()
		all.Wait()
		for _, p := range permits {
			p.Release()
		}
		left := startsOf(t, g, 14, func(int) error { time.Sleep(time.Second); return nil })
		if left[13] != 0 {
			t.Errorf("the last of 14 left after %v", left[13])
		}
	})
}
