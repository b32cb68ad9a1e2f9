package sluice

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-go/sluice/limits"
)

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
			if st.InFlight != 0 || st.Waiting+st.Pacing != 0 || st.Granted != uint64(s.entered.Load()) {
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
	if !g.flight.addUnlocked(1) {
		t.Fatal("no place")
	}
	g.PauseUntil(time.Now().Add(time.Hour), "test") // closes the lane for longer than the test
	g.loseSlot()
	if s := g.Stats(); s.Granted != 0 || s.InFlight != 0 {
		t.Errorf("%d granted, %d in flight", s.Granted, s.InFlight)
	}
}
