package servers_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/limits"
)

var errUnclear = errors.New("503 Service Unavailable")

// An unclearServer answers unclearly what it does not grant. Calls that it grants take 20 ms more.
type unclearServer struct {
	grants func(now time.Duration) bool
	mark   func(error) error // MaybeThrottled if it is nil

	mu      sync.Mutex
	start   time.Time
	calls   int
	unclear int
}

func (s *unclearServer) call(context.Context) error {
	s.mu.Lock()
	now := time.Since(s.start)
	s.calls++
	granted := s.grants(now)
	if !granted {
		s.unclear++
	}
	s.mu.Unlock()
	time.Sleep(5 * ms)
	switch {
	case granted:
		time.Sleep(20 * ms)
		return nil
	case s.mark != nil:
		return s.mark(errUnclear)
	}
	return sluice.MaybeThrottled(errUnclear)
}

// made returns how many calls were made.
func (s *unclearServer) made() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls
}

// grantsPerSecond is a bucket of rate calls a second, and a burst.
func grantsPerSecond(rate, burst float64) func(time.Duration) bool {
	level, last := 0., time.Duration(0)
	return func(now time.Duration) bool {
		level, last = max(0, level-rate*(now-last).Seconds()), now
		if level+1 > burst {
			return false
		}
		level++
		return true
	}
}

// makeCalls makes n calls by so many workers and returns how many succeeded, and how long it took.
func makeCalls(n, workers int, call func() error) (good int64, took time.Duration) {
	begin := time.Now()
	var left, ok atomic.Int64
	left.Store(int64(n))
	var all sync.WaitGroup
	for range workers {
		all.Go(func() {
			for left.Add(-1) >= 0 {
				if call() == nil {
					ok.Add(1)
				}
			}
		})
	}
	all.Wait()
	return ok.Load(), time.Since(begin)
}

// A server that refuses unclearly is learned like any other, whoever calls: with and without a
// rate that is told, below a parent, with a cost, with workers or all calls at once.
func TestMaybeThrottled_IsLearned(t *testing.T) {
	for name, c := range map[string]struct {
		cfg     sluice.Config
		parent  bool
		workers int
		cost    int64
		refused int // at most
	}{
		"32 workers":                 {sluice.Config{}, false, 32, 1, 100},
		"one call each":              {sluice.Config{}, false, 400, 1, 480},
		"4 workers":                  {sluice.Config{}, false, 4, 1, 180},
		"below a parent":             {sluice.Config{}, true, 32, 1, 100},
		"costs":                      {sluice.Config{}, false, 32, 3, 100},
		"told the rate":              {sluice.Config{Rate: sluice.Rate{Count: 19, Per: time.Second}}, false, 32, 1, 5},
		"told twice the rate":        {sluice.Config{Rate: sluice.Rate{Count: 40, Per: time.Second}}, false, 32, 1, 150},
		"a semaphore":                {sluice.Config{Concurrency: 8}, false, 32, 1, 100},
		"it searches from the start": {sluice.Config{Adaptive: sluice.Adaptive{Search: true}}, false, 32, 1, 100},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				if c.parent {
					c.cfg.Parent = mustGate(t, sluice.Config{Name: "parent"})
				}
				g := mustGate(t, c.cfg)
				s := &unclearServer{grants: grantsPerSecond(20, 10), start: time.Now()}
				good, took := makeCalls(400, c.workers, func() error {
					a := sluice.NewRetryLoop(g, sluice.RetryPolicy{})
					for {
						p, err := a.Next(bg, c.cost)
						if err != nil {
							return err
						}
						again, err := a.Try(bg, p, s.call)
						p.Release()
						if !again {
							return err
						}
					}
				})
				t.Logf("%d of 400 in %v, %d refused, %v", good, took, s.unclear, g.Stats().Learned)
				if good < 396 {
					t.Errorf("%d of 400 calls succeeded", good)
				}
				if took > 26*time.Second { // 19.5 s are possible
					t.Errorf("it took %v", took)
				}
				if s.unclear > c.refused {
					t.Errorf("%d were refused, want at most %d", s.unclear, c.refused)
				}
			})
		})
	}
}

// A call that must not be retried teaches its gate all the same, by whatever it reports.
func TestMaybeThrottled_TeachesWithoutRetries(t *testing.T) {
	for name, call := range map[string]func(g *sluice.Gate, s *unclearServer) error{
		"Do": func(g *sluice.Gate, s *unclearServer) error { return g.Do(bg, s.call) },
		"a permit": func(g *sluice.Gate, s *unclearServer) error {
			p, err := g.Acquire(bg, 1)
			if err != nil {
				return err
			}
			defer p.Release()
			err = s.call(bg)
			p.Done(err)
			return err
		},
		"permanent": func(g *sluice.Gate, s *unclearServer) error {
			return sluice.Retry(bg, g, func(ctx context.Context) error { return sluice.Permanent(s.call(ctx)) })
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := mustGate(t, sluice.Config{})
				s := &unclearServer{grants: grantsPerSecond(20, 10), start: time.Now()}
				good, _ := makeCalls(400, 32, func() error { return call(g, s) })
				if s.calls != 400 || good < 345 {
					t.Errorf("%d calls were made and %d succeeded", s.calls, good)
				}
				if l := g.Stats().Learned; l == nil || l.Pace < 15 || l.Pace > 25 {
					t.Errorf("it has learned %v", l)
				}
			})
		})
	}
}

// A server that is down is asked as often as before, whether its answers are unclear or failures.
func TestMaybeThrottled_OfAServerThatIsDown(t *testing.T) {
	for name, mark := range map[string]func(error) error{
		"unclear": sluice.MaybeThrottled, "failures": func(err error) error { return err },
	} {
		for _, calls := range []int{20, 100} {
			synctest.Test(t, func(t *testing.T) {
				g := mustGate(t, sluice.Config{})
				s := &unclearServer{grants: func(time.Duration) bool { return false }, mark: mark, start: time.Now()}
				makeCalls(calls, calls, func() error { return sluice.Retry(bg, g, s.call) })
				if want := calls + 20; s.calls != want { // the retry budget
					t.Errorf("%s: %d calls of a server that is down for %d, want %d", name, s.calls, calls, want)
				}
				if l := g.Stats().Learned; l != nil {
					t.Errorf("%s: it has learned %v", name, l)
				}
			})
		}
	}
}

// A server that fails one call of twenty is as fast as if its answers were clear failures.
func TestMaybeThrottled_OfAServerThatFails(t *testing.T) {
	var took [2]time.Duration
	for i, mark := range []func(error) error{sluice.MaybeThrottled, func(err error) error { return err }} {
		synctest.Test(t, func(t *testing.T) {
			g := mustGate(t, sluice.Config{})
			rng := rand.New(rand.NewPCG(1, 2))
			s := &unclearServer{grants: func(time.Duration) bool { return rng.Float64() >= .05 }, mark: mark, start: time.Now()}
			good, t1 := makeCalls(20_000, 32, func() error { return sluice.Retry(bg, g, s.call) })
			if took[i] = t1; good < 19_990 { // by chance four attempts of a call fail
				t.Errorf("%d of 20,000 succeeded", good)
			}
			if l := g.Stats().Learned; l != nil {
				t.Errorf("it has learned %v", l)
			}
		})
	}
	if took[0] > took[1]*11/10 {
		t.Errorf("unclear answers take %v, clear ones %v", took[0], took[1])
	}
}

// A server that fails half of the calls at random has no limit. A gate believes so for a moment,
// and then forgets what it has learned.
func TestMaybeThrottled_IsForgottenIfWrong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := mustGate(t, sluice.Config{})
		rng := rand.New(rand.NewPCG(1, 2))
		s := &unclearServer{grants: func(time.Duration) bool { return rng.Float64() >= .5 }, start: time.Now()}
		_, took := makeCalls(2000, 32, func() error { return g.Do(bg, s.call) })
		if l := g.Stats().Learned; l != nil {
			t.Errorf("it has learned %v", l)
		}
		if took > time.Minute { // 1.2 s are possible; then nothing is believed for more than a minute
			t.Errorf("it took %v", took)
		}
	})
}

// What others said clearly is not forgotten with it.
func TestMaybeThrottled_KeepsWhatIsClear(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := mustGate(t, sluice.Config{})
		limit := grantsPerSecond(20, 5)
		rng := rand.New(rand.NewPCG(1, 2))
		s := &unclearServer{grants: func(time.Duration) bool { return rng.Float64() >= .3 }, start: time.Now()}
		makeCalls(600, 16, func() error {
			return g.Do(bg, func(ctx context.Context) error {
				s.mu.Lock()
				granted := limit(time.Since(s.start))
				s.mu.Unlock()
				if !granted {
					time.Sleep(5 * ms)
					return sluice.ThrottledFor(errUnclear, 0)
				}
				return s.call(ctx)
			})
		})
		if l := g.Stats().Learned; l == nil || l.Pace > 30 {
			t.Errorf("it has learned %v", l)
		}
	})
}

// The mark alone changes nothing, and clear ones beside it count.
func TestMaybeThrottled_Marks(t *testing.T) {
	if sluice.MaybeThrottled(nil) != nil {
		t.Error("MaybeThrottled(nil) is an error")
	}
	err := sluice.MaybeThrottled(errUnclear)
	if err.Error() != errUnclear.Error() || !errors.Is(err, errUnclear) {
		t.Errorf("the error became %v", err)
	}
	for name, c := range map[string]struct {
		err   error
		calls int
		why   error
	}{
		"a failure":            {sluice.MaybeThrottled(errUnclear), 4, sluice.ErrAttempts},
		"permanent inside":     {sluice.MaybeThrottled(sluice.Permanent(errUnclear)), 1, sluice.ErrPermanent},
		"permanent outside":    {sluice.Permanent(sluice.MaybeThrottled(errUnclear)), 1, sluice.ErrPermanent},
		"a clear wait inside":  {sluice.MaybeThrottled(sluice.ThrottledFor(errUnclear, time.Hour)), 1, sluice.ErrServerWait},
		"a clear wait outside": {sluice.ThrottledFor(sluice.MaybeThrottled(errUnclear), time.Hour), 1, sluice.ErrServerWait},
		"later":                {sluice.MaybeThrottled(sluice.RetryAfter(errUnclear, 24*time.Hour)), 1, sluice.ErrServerWait},
	} {
		synctest.Test(t, func(t *testing.T) {
			calls := 0
			got := sluice.Retry(bg, mustGate(t, sluice.Config{}), func(context.Context) error { calls++; return c.err })
			if calls != c.calls || !errors.Is(got, c.why) || !errors.Is(got, errUnclear) {
				t.Errorf("%s: %d calls, %v", name, calls, got)
			}
		})
	}
}

// A gate that must not learn starts slowly where it believes that calls are refused, and retries
// them without paying. It is wrong about the server in 1 of 100 runs, so the middle one of three is judged.
func TestMaybeThrottled_WithoutLearning(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var good []int64
		for range 3 {
			g := mustGate(t, sluice.Config{Adaptive: sluice.Adaptive{Disabled: true}})
			s := &unclearServer{grants: grantsPerSecond(20, 10), start: time.Now()}
			n, took := makeCalls(400, 32, func() error { return sluice.Retry(bg, g, s.call) })
			t.Logf("%d of 400 succeeded in %v, %d were refused", n, took, s.unclear)
			if took > 40*time.Second {
				t.Errorf("took %v", took)
			}
			good = append(good, n)
		}
		if slices.Sort(good); good[1] < 396 {
			t.Errorf("%d of 400 succeeded", good)
		}
	})
}

// A pause that a server asks for clearly holds while unclear answers come, and closing ends it all.
func TestMaybeThrottled_PauseAndClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := mustGate(t, sluice.Config{})
		s := &unclearServer{grants: grantsPerSecond(20, 10), start: time.Now()}
		done := make(chan int64)
		go func() {
			good, _ := makeCalls(10_000, 32, func() error { return sluice.Retry(bg, g, s.call) })
			done <- good
		}()
		time.Sleep(5 * time.Second)
		g.PauseUntil(time.Now().Add(10*time.Second), "maintenance")
		time.Sleep(time.Second)
		before := s.made()
		time.Sleep(8 * time.Second)
		if n := s.made(); n != before {
			t.Errorf("%d calls in the pause", n-before)
		}
		time.Sleep(6 * time.Second)
		if s.made() == before {
			t.Error("none after the pause")
		}
		g.Close()
		<-done
		if err := g.Do(bg, s.call); !errors.Is(err, limits.ErrClosed) {
			t.Errorf("after the end: %v", err)
		}
		if n := g.Stats().InFlight; n != 0 {
			t.Errorf("%d in flight", n)
		}
	})
}

// A limit that falls is followed, as if the server said that it refuses.
func TestMaybeThrottled_FollowsALowerLimit(t *testing.T) {
	for _, c := range []struct{ burst, lower float64 }{
		{10, 50}, {10, 33}, {10, 10}, {6, 10}, {8, 10}, {20, 10}, {8, 5}, {10, 5}, {20, 5},
	} {
		lower := c.lower
		synctest.Test(t, func(t *testing.T) {
			g := mustGate(t, sluice.Config{})
			before, after := grantsPerSecond(100, c.burst), grantsPerSecond(lower, 10)
			s := &unclearServer{start: time.Now(), grants: func(now time.Duration) bool {
				if now < 40*time.Second {
					return before(now)
				}
				return after(now)
			}}
			n := 4000 + int(lower*60)
			good, took := makeCalls(n, 32, func() error { return sluice.Retry(bg, g, s.call) })
			if good < int64(n)-4 || took > 120*time.Second {
				t.Errorf("to %v per second, burst %v: %d of %d in %v, %d refused, %v", lower, c.burst, good, n, took, s.unclear, g.Stats().Learned)
			}
		})
	}
}

// A minute in which most calls fail leaves nothing behind.
func TestMaybeThrottled_OfAnOutageThatEnds(t *testing.T) {
	for _, share := range []float64{.5, .7, .8} {
		synctest.Test(t, func(t *testing.T) {
			g := mustGate(t, sluice.Config{})
			rng := rand.New(rand.NewPCG(1, 2))
			s := &unclearServer{start: time.Now(), grants: func(now time.Duration) bool {
				return now > time.Minute || rng.Float64() >= share
			}}
			stop := time.Now().Add(4 * time.Minute)
			makeCalls(1_000_000, 8, func() error {
				if time.Now().After(stop) {
					return nil
				}
				return sluice.Retry(bg, g, s.call)
			})
			before := s.made()
			_, took := makeCalls(8000, 8, func() error { return sluice.Retry(bg, g, s.call) })
			if s.made()-before != 8000 || took > 30*time.Second { // 25 s are possible
				t.Errorf("%v: three minutes later 8000 calls take %v, %v", share, took, g.Stats().Learned)
			}
		})
	}
}

// A crowd at a server that is down is granted nothing that it does not use.
func TestMaybeThrottled_CrowdTakesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := mustGate(t, sluice.Config{})
		s := &unclearServer{grants: func(time.Duration) bool { return false }, start: time.Now()}
		makeCalls(400, 400, func() error { return sluice.Retry(bg, g, s.call) })
		if stats := g.Stats(); s.calls != 420 || stats.Admitted != 420 || stats.Retried != 20 {
			t.Errorf("%d calls, %d granted, %d retried; want 420, 420 and 20", s.calls, stats.Admitted, stats.Retried)
		}
	})
}

// What was restored is no evidence of these answers, and stays.
func TestMaybeThrottled_KeepsWhatWasRestored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		old := mustGate(t, sluice.Config{})
		s := &unclearServer{grants: grantsPerSecond(20, 10), start: time.Now(), mark: func(err error) error { return sluice.ThrottledFor(err, 0) }}
		makeCalls(600, 32, func() error { return sluice.Retry(bg, old, s.call) })
		g := mustGate(t, sluice.Config{})
		if err := g.Restore(old.Snapshot()); err != nil {
			t.Fatal(err)
		}
		down := &unclearServer{grants: func(time.Duration) bool { return false }, start: time.Now()}
		makeCalls(60, 8, func() error { return g.Do(bg, down.call) })
		if l := g.Stats().Learned; l == nil || l.Pace < 10 || l.Pace > 30 {
			t.Errorf("after an outage: %v", l)
		}
	})
}

// Most pages are forbidden, and nobody asked for a wait: each is asked for, at a pace that is slow
// only as long as it is not known that this does not help.
func TestMaybeThrottled_OfMostCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := mustGate(t, sluice.Config{})
		rng := rand.New(rand.NewPCG(1, 2))
		s := &unclearServer{
			start: time.Now(), grants: func(time.Duration) bool { return rng.Float64() >= .8 },
			mark: func(err error) error { return sluice.MaybeThrottled(sluice.Permanent(err)) },
		}
		forbidden := atomic.Int64{}
		good, took := makeCalls(4000, 16, func() error {
			err := sluice.Retry(bg, g, s.call)
			if errors.Is(err, sluice.ErrPermanent) {
				forbidden.Add(1)
			}
			return err
		})
		if n := good + forbidden.Load(); n < 3980 || took > 4*time.Minute {
			t.Errorf("%d of 4000 were answered in %v", n, took)
		}
	})
}

// A time inside the mark is clear, also where the gate believes that such answers are refusals.
func TestMaybeThrottled_ATimeInsideIsClear(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := mustGate(t, sluice.Config{})
		s := &unclearServer{grants: grantsPerSecond(20, 10), start: time.Now()}
		makeCalls(400, 32, func() error { return sluice.Retry(bg, g, s.call) })
		begin := time.Now()
		_ = g.Do(bg, func(context.Context) error {
			return sluice.MaybeThrottled(sluice.ThrottledFor(errUnclear, 30*time.Second))
		})
		_ = g.Do(bg, nothing)
		if waited := time.Since(begin); waited < 30*time.Second {
			t.Errorf("the next call waited %v", waited)
		}
	})
}
