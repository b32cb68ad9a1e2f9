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

// Nobody waits for slow answers: 32 calls leave at once, and twice as many have left after every 100 ms.
func TestGate_FirstBurst_WithoutAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := mustGate(t, sluice.Config{})
		left := startsOf(t, g, 1000, func(int) error { time.Sleep(time.Minute); return nil })
		for i, at := range left {
			want := time.Duration(max(0, math.Log2(float64(i+1)/32)) * float64(100*time.Millisecond))
			if at < want || at > want+time.Microsecond {
				t.Fatalf("call %d left after %v, want %v", i+1, at, want)
			}
		}
		if left[999] > 500*time.Millisecond {
			t.Errorf("the last one left after %v", left[999])
		}
	})
}

// Each answer lets two calls leave: one in its place and one more. After 32 answers nothing is held back.
func TestGate_FirstBurst_Answered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := mustGate(t, sluice.Config{})
		left := startsOf(t, g, 200, func(int) error { time.Sleep(time.Millisecond); return nil })
		for i, at := range left {
			want := time.Millisecond // then there are 32 answers
			if i < 32 {
				want = 0
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
		if left[36] != 0 || left[37] == 0 {
			t.Errorf("calls 37 and 38 left after %v and %v, want 37 at once: 32, and one for each answer", left[36], left[37])
		}
	})
}

// Whoever configures how many calls may be in flight, or how often they may start, has bounded the burst. A gate that
// must not learn holds nobody back, and calls of a child are counted by its parent.
func TestGate_FirstBurst_Configured(t *testing.T) {
	for name, cfg := range map[string]sluice.Config{
		"concurrency": {Concurrency: 100},
		"rate":        {Rate: sluice.Rate{Count: 1e9, Per: time.Second}},
		"disabled":    {Adaptive: sluice.Adaptive{Disabled: true}},
	} {
		synctest.Test(t, func(t *testing.T) {
			left := startsOf(t, mustGate(t, cfg), 100, func(int) error { time.Sleep(time.Second); return nil })
			if left[99] > time.Microsecond {
				t.Errorf("%s: the last call left after %v", name, left[99])
			}
		})
	}
	synctest.Test(t, func(t *testing.T) {
		parent := mustGate(t, sluice.Config{})
		startsOf(t, parent, 40, func(int) error { return nil })
		left := startsOf(t, mustGate(t, sluice.Config{Parent: parent}), 100, func(int) error { time.Sleep(time.Second); return nil })
		if left[99] != 0 {
			t.Errorf("the last call of a child left after %v", left[99])
		}
	})
}

// Callers who give up, calls whose permits are released without a result, and panics hold nobody back.
func TestGate_FirstBurst_WithoutResults(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := mustGate(t, sluice.Config{})
		ctx, cancel := context.WithCancel(t.Context())
		var permits []*sluice.Permit
		for range 32 {
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
		left := startsOf(t, g, 32, func(int) error { time.Sleep(time.Second); return nil })
		if left[31] != 0 {
			t.Errorf("the last of 32 left after %v", left[31])
		}
	})
}
