package sluice

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-go/sluice/internal/queue"
	"github.com/sluice-go/sluice/internal/schedule"
	"github.com/sluice-go/sluice/limits"
	"github.com/sluice-go/sluice/pacer"
	"github.com/sluice-go/sluice/semaphore"
)

// The tests in this file leave the bubble: the real scheduler, real timers,
// thousands of goroutines that acquire, cancel and give up while the limits
// are changed under them. Afterwards what went in must have come out, and the
// recorded instants at which calls were let through must keep to the bound.

// hammer runs work in thousands of goroutines, some times each, and calls
// change about each millisecond until they are done.
func hammer(t *testing.T, work func(ctx context.Context, r *rand.Rand), change func(r *rand.Rand)) {
	t.Helper()
	goroutines, times := 3000, 6
	if testing.Short() {
		goroutines = 400
	}
	done := make(chan struct{})
	var changes sync.WaitGroup
	changes.Go(func() {
		r := rand.New(rand.NewPCG(1, 2))
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				change(r)
			case <-done:
				return
			}
		}
	})
	var workers sync.WaitGroup
	for i := range goroutines {
		workers.Go(func() {
			r := rand.New(rand.NewPCG(3, uint64(i)))
			for range times {
				ctx, cancel := context.WithCancel(context.Background())
				switch r.IntN(4) {
				case 0:
					time.AfterFunc(time.Duration(r.Int64N(int64(20*time.Millisecond))), cancel)
				case 1:
					ctx, cancel = context.WithTimeout(ctx, time.Duration(r.Int64N(int64(200*time.Millisecond))))
				}
				work(ctx, r)
				cancel()
			}
		})
	}
	workers.Wait()
	close(done)
	changes.Wait()
}

func TestStressSemaphore(t *testing.T) {
	sem := semaphore.NewWeighted(10)
	var held, most atomic.Int64
	hammer(t, func(ctx context.Context, r *rand.Rand) {
		n := 1 + r.Int64N(4)
		ok := false
		switch r.IntN(3) {
		case 0:
			ok = sem.TryAcquire(n)
		case 1:
			ok = sem.AcquireWithin(ctx, n, time.Duration(r.Int64N(int64(50*time.Millisecond)))) == nil
		case 2:
			ok = sem.Acquire(ctx, n) == nil
		}
		if !ok {
			return
		}
		for now := held.Add(n); ; {
			if m := most.Load(); now <= m || most.CompareAndSwap(m, now) {
				break
			}
		}
		held.Add(-n)
		sem.Release(n)
	}, func(r *rand.Rand) {
		if err := sem.SetLimit(1 + r.Int64N(20)); err != nil {
			t.Error(err)
		}
	})
	if got := most.Load(); got > 20 {
		t.Errorf("%d permits were out, the limit never was above 20", got)
	}
	if sem.InFlight() != 0 || sem.Waiting() != 0 {
		t.Errorf("afterwards %d permits are out and %d wait", sem.InFlight(), sem.Waiting())
	}
}

func TestStressPacer(t *testing.T) {
	p := limits.Must(pacer.New(Rate{Count: 20_000, Per: time.Second}))
	hammer(t, func(ctx context.Context, r *rand.Rand) {
		switch r.IntN(4) {
		case 0:
			p.TryAcquire(1)
		case 1:
			p.AcquireWithin(ctx, 1, time.Duration(r.Int64N(int64(50*time.Millisecond))))
		case 2:
			res := p.Reserve(1)
			if r.IntN(2) == 0 {
				res.Cancel()
			}
			if r.IntN(2) == 0 {
				res.Wait(ctx)
			}
			if r.IntN(2) == 0 {
				res.Cancel()
			}
		case 3:
			p.Acquire(ctx, 1)
		}
	}, func(r *rand.Rand) {
		switch r.IntN(20) {
		case 0:
			p.PauseUntil(time.Now().Add(time.Duration(r.Int64N(int64(20 * time.Millisecond)))))
		case 1:
			p.Resume()
		case 2:
			if err := p.SetRate(Rate{Count: 10_000 + r.Int64N(40_000), Per: time.Second}); err != nil {
				t.Error(err)
			}
		}
	})
	// Abandoned reservations may still hold slots; they are used up in time.
	if err := p.Acquire(context.Background(), 1); err != nil {
		t.Error(err)
	}
	if n := p.Waiting(); n != 0 {
		t.Errorf("afterwards %d wait", n)
	}
}

// A recorder is the admitter of a gate that records when it let which call through.
type recorder struct {
	admitter
	at []time.Duration
}

func (r *recorder) Admit(now, due time.Duration, n int64) time.Duration {
	wait := r.admitter.Admit(now, due, n)
	if wait == 0 {
		r.at = append(r.at, now)
	}
	return wait
}

func TestStressGate(t *testing.T) {
	const burst, fastest = 3, 50 * time.Microsecond
	g, err := New(Config{Name: "stress", Concurrency: 20, Rate: Rate{Count: 20_000, Per: time.Second, Burst: burst}})
	if err != nil {
		t.Fatal(err)
	}
	rec := &recorder{admitter: admitter{&g.turnstile}}
	g.lane.Close() // all of them are to come by the recorder
	g.queue.Init(rec, queue.Config{Refuse: g.room.refuse})

	var granted, inFlight, most atomic.Int64
	enter := func() {
		granted.Add(1)
		for now := inFlight.Add(1); ; {
			if m := most.Load(); now <= m || most.CompareAndSwap(m, now) {
				break
			}
		}
		inFlight.Add(-1)
	}
	hammer(t, func(ctx context.Context, r *rand.Rand) {
		var p *Permit
		switch r.IntN(4) {
		case 0:
			p, _ = g.TryAcquire(1)
		case 1:
			p, _ = g.AcquireWithin(ctx, 1, time.Duration(r.Int64N(int64(50*time.Millisecond))))
		case 2:
			p, _ = g.Acquire(ctx, 1)
		case 3:
			// Half of the calls fail; what the retries do to the budget and
			// the rate is part of the mess.
			Retry(ctx, g, func(context.Context) error {
				enter()
				if r.IntN(2) == 0 {
					return errors.New("no luck")
				}
				return nil
			}, RetryPolicy{Attempts: 2, Backoff: Constant(time.Millisecond)})
			return
		}
		if p == nil {
			return
		}
		enter()
		p.Release()
		if r.IntN(10) == 0 {
			p.Release()
		}
	}, func(r *rand.Rand) {
		switch r.IntN(20) {
		case 0:
			g.PauseUntil(time.Now().Add(time.Duration(r.Int64N(int64(20*time.Millisecond)))), "stress")
		case 1:
			g.Resume()
		case 2:
			if err := g.SetRate(Rate{Count: 1, Per: fastest + time.Duration(r.Int64N(int64(100*time.Microsecond)))}); err != nil {
				t.Error(err)
			}
		case 3, 4:
			if err := g.SetConcurrency(1 + r.Int64N(30)); err != nil {
				t.Error(err)
			}
		case 5:
			g.Stats()
			g.Estimate(1000)
		}
	})

	s := g.Stats()
	if s.InFlight != 0 || s.Pacing != 0 || s.Waiting != 0 {
		t.Errorf("afterwards: %+v", s)
	}
	if int64(s.Admitted) != granted.Load() || len(rec.at) != int(s.Admitted) || s.Waits.Count() != s.Admitted {
		t.Errorf("%d calls were let through, Stats says %d, %d waits", granted.Load(), s.Admitted, s.Waits.Count())
	}
	if got := most.Load(); got > 30 {
		t.Errorf("%d in flight, the limit never was above 30", got)
	}
	// permits in any window W ≤ B + (W + C)/T: for each call only the windows
	// of up to 2,000 calls, which is where a bunch would show.
	for i := range rec.at {
		for j := i; j < min(len(rec.at), i+2000); j++ {
			window := rec.at[j] - rec.at[i]
			if bound := burst + int((window+schedule.DefaultCatchUp)/fastest) + 1; j-i+1 > bound {
				t.Fatalf("%d calls within %v, at most %d may be", j-i+1, window, bound)
			}
		}
	}
	if err := g.Shutdown(context.Background()); err != nil {
		t.Error(err)
	}
}
