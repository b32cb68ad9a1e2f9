package semaphore_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	xsync "golang.org/x/sync/semaphore"

	"github.com/sluice-go/sluice/limits"
	"github.com/sluice-go/sluice/semaphore"
)

// The tests of x/sync itself are in internal/testkit/xsync.

// plainWeighted is what both packages have.
type plainWeighted interface {
	Acquire(ctx context.Context, n int64) error
	TryAcquire(n int64) bool
	Release(n int64)
}

// A twinCall is one Acquire of each.
type twinCall struct {
	n       int64
	cancel  context.CancelFunc
	results [2]outcome
	counted bool // its permits are in twins.held
}

// twins are a semaphore of ours and one of theirs to which the same is done.
type twins struct {
	pair  [2]plainWeighted
	start time.Time
	calls []*twinCall
	held  int64
}

func newTwins(limit int64) *twins {
	return &twins{pair: [2]plainWeighted{semaphore.NewWeighted(limit), xsync.NewWeighted(limit)}, start: time.Now()}
}

func (w *twins) acquire(n int64, deadline time.Duration) *twinCall {
	ctx, cancel := context.WithCancel(bg)
	if deadline != forever {
		ctx, cancel = context.WithTimeout(bg, deadline)
	}
	c := &twinCall{n: n, cancel: cancel}
	w.calls = append(w.calls, c)
	for i, s := range w.pair {
		go func() {
			err := s.Acquire(ctx, n)
			c.results[i].set(result{true, time.Since(w.start), err})
		}()
	}
	synctest.Wait()
	return c
}

func (w *twins) tryAcquire(n int64) (ours, theirs bool) {
	ours, theirs = w.pair[0].TryAcquire(n), w.pair[1].TryAcquire(n)
	if ours {
		w.held += n
	}
	return ours, theirs
}

func (w *twins) release(n int64) {
	w.held -= n
	w.pair[0].Release(n)
	w.pair[1].Release(n)
	synctest.Wait()
}

// differ returns how the outcomes differ, or "". Calls that have returned are
// counted as held.
func (w *twins) differ() string {
	synctest.Wait()
	for i, c := range w.calls {
		ours, theirs := c.results[0].get(), c.results[1].get()
		if ours != theirs {
			return fmt.Sprintf("call #%d, Acquire(%d): ours %v, theirs %v", i, c.n, ours, theirs)
		}
		if ours.over && ours.err == nil && !c.counted {
			c.counted = true
			w.held += c.n
		}
	}
	return ""
}

func (w *twins) end() {
	for _, c := range w.calls {
		c.cancel()
	}
}

// The same history gives the same outcomes, call by call and to the nanosecond. What
// differs on purpose is in the next test.
func TestXSync_SameHistory(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 6))
	outcomes := map[result]int{} // with at = 0: each outcome must occur
	for round := range 500 {
		synctest.Test(t, func(t *testing.T) {
			limit := random.Int64N(6)
			w := newTwins(limit)
			defer w.end()
			for range 60 {
				n := 1 + random.Int64N(max(1, limit))
				switch what := random.IntN(8); {
				case what < 3 && n <= limit:
					deadline := forever
					if random.IntN(3) == 0 { // no two at the same time, where either may be first
						deadline = time.Duration(random.IntN(5))*ms + time.Duration(len(w.calls))
					}
					w.acquire(n, deadline)
				case what == 3:
					if ours, theirs := w.tryAcquire(n); ours != theirs {
						t.Fatalf("round %d: TryAcquire(%d) of %d = %t, theirs %t", round, n, limit, ours, theirs)
					}
				case what == 4 && len(w.calls) > 0:
					w.calls[random.IntN(len(w.calls))].cancel()
				case what == 5 || what == 6:
					w.release(min(n, w.held))
				case what == 7:
					time.Sleep(time.Duration(random.IntN(3)) * ms)
				}
				if d := w.differ(); d != "" {
					t.Fatalf("round %d, limit %d: %s", round, limit, d)
				}
			}
			for _, c := range w.calls {
				r := c.results[0].get()
				outcomes[result{r.over, 0, r.err}]++
			}
		})
	}
	for _, r := range []result{{}, {over: true}, {over: true, err: context.Canceled}, {over: true, err: context.DeadlineExceeded}} {
		if outcomes[r] < 100 {
			t.Errorf("only %d calls ended like this: %v", outcomes[r], r)
		}
	}
}

// The differences that a program notices when it changes from x/sync.
func TestXSync_Differences(t *testing.T) {
	const ours, theirs = 0, 1
	want := func(t *testing.T, c *twinCall, want [2]result) {
		t.Helper()
		synctest.Wait()
		if got := [2]result{c.results[ours].get(), c.results[theirs].get()}; got != want {
			t.Errorf("Acquire(%d): ours, theirs %v; want %v", c.n, got, want)
		}
	}
	for name, f := range map[string]func(t *testing.T, w *twins){
		"more than the limit fails at once instead of with the context": func(t *testing.T, w *twins) {
			c := w.acquire(3, ms)
			want(t, c, [2]result{ours: {true, 0, limits.ErrTooLarge}})
			time.Sleep(ms)
			want(t, c, [2]result{{true, 0, limits.ErrTooLarge}, {true, ms, context.DeadlineExceeded}})
		},
		"nothing is granted at once instead of in turn": func(t *testing.T, w *twins) {
			w.tryAcquire(2)
			w.acquire(1, forever)
			nothing := w.acquire(0, forever)
			want(t, nothing, [2]result{ours: {true, 0, nil}})
			if a, b := w.tryAcquire(0); !a || b {
				t.Errorf("TryAcquire(0): ours %t, theirs %t", a, b)
			}
			time.Sleep(ms)
			w.release(1)
			want(t, nothing, [2]result{{true, 0, nil}, {true, ms, nil}})
		},
		"releasing too much panics and changes nothing": func(t *testing.T, w *twins) {
			for _, s := range w.pair {
				mustPanic(t, "Release", func() { s.Release(1) })
			}
			if a, b := w.tryAcquire(3); a || !b {
				t.Errorf("TryAcquire(3) of 2: ours %t, theirs %t", a, b)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newTwins(2)
				defer w.end()
				f(t, w)
			})
		})
	}
}
