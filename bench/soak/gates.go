package main

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/ext/peers"
	"github.com/sluice-go/sluice/limits"
)

// mostInParent is the highest concurrency that the parent ever has.
const mostInParent = 6

// soakGates checks the number in flight, pauses, and that nothing is lost.
func soakGates(s *soak, t *tally) {
	parent := limits.Must(sluice.New(sluice.Config{Name: "parent", Concurrency: mostInParent}))
	x := limits.Must(sluice.New(sluice.Config{Name: "x", Concurrency: 3, Parent: parent}))
	y := limits.Must(sluice.New(sluice.Config{Name: "y", Concurrency: 8, ConcurrencyUnit: sluice.Cost, Parent: parent}))
	var out, inX, inY atomic.Int64
	// in is called while a call of n is in flight in g.
	in := func(g *sluice.Gate, n int64, r *rand.Rand) {
		t.started()
		own, most, amount := &inX, int64(3), int64(1)
		if g == y {
			own, most, amount = &inY, 8, n
		}
		if now := out.Add(1); now > mostInParent {
			t.breaks("%d in flight in the parent", now)
		}
		if now := own.Add(amount); now > most {
			t.breaks("%d in flight in %s", now, g.Stats().Name)
		}
		if r.IntN(4) > 0 {
			s.sleep(s.scale(time.Duration(r.Int64N(int64(4 * time.Millisecond)))))
		}
		own.Add(-amount)
		out.Add(-1)
	}
	var all sync.WaitGroup
	all.Go(func() { changeGates(s, t, parent, x) })
	all.Go(func() {
		s.workers(24, 100, func(r *rand.Rand) {
			for !s.over() {
				t.ended(useGate(s, []*sluice.Gate{x, y}[r.IntN(2)], y, r, in))
				if r.IntN(3) == 0 {
					s.sleep(s.scale(time.Duration(r.Int64N(int64(20 * time.Millisecond)))))
				}
			}
		})
	})
	all.Wait()
	for _, g := range []*sluice.Gate{parent, x, y} {
		if stats := g.Stats(); stats.InFlight != 0 || stats.Waiting != 0 {
			t.breaks("afterwards %d are in flight in %s and %d wait", stats.InFlight, stats.Name, stats.Waiting)
		}
		g.Close()
	}
	if limit := int64(10 * time.Second); !s.bubble && t.longest.Load() > limit || s.bubble && t.longest.Load() > 30*limit {
		t.breaks("no call started for %v", time.Duration(t.longest.Load()))
	}
}

// useGate makes one call, in one of the ways that there are.
func useGate(s *soak, g, weighs *sluice.Gate, r *rand.Rand, in func(*sluice.Gate, int64, *rand.Rand)) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if r.IntN(3) == 0 {
		ctx, cancel = context.WithTimeout(ctx, s.scale(time.Duration(r.Int64N(int64(30*time.Millisecond)))))
		defer cancel()
	}
	n := int64(1)
	if g == weighs {
		n += r.Int64N(4)
	}
	switch r.IntN(5) {
	case 0:
		return g.Do(ctx, func(context.Context) error { in(g, 1, r); return nil })
	case 1:
		p, ok := g.TryAcquire(n)
		if !ok {
			return context.DeadlineExceeded
		}
		in(g, n, r)
		p.Release()
		return nil
	case 2:
		return g.Wait(ctx)
	case 3:
		p, err := g.AcquireWithin(ctx, n, s.scale(5*time.Millisecond))
		if errors.Is(err, limits.ErrTimeout) {
			return context.DeadlineExceeded
		}
		if err == nil {
			in(g, n, r)
			p.Release()
		}
		return err
	}
	p, err := g.Acquire(ctx, n)
	if err == nil {
		in(g, n, r)
		p.Release()
	}
	return err
}

// changeGates changes the concurrency of the parent and pauses it. While it is paused for long enough
// no call may start.
func changeGates(s *soak, t *tally, parent, x *sluice.Gate) {
	r := s.dice(99)
	for !s.over() {
		switch r.IntN(4) {
		case 0:
			_ = parent.SetConcurrency(2 + r.Int64N(mostInParent-1))
		case 1:
			_ = x.SetRate(sluice.Rate{Count: 100 + r.Int64N(1000), Per: s.scale(time.Second)})
		case 2:
			_ = x.SetRate(sluice.Rate{})
		case 3:
			parent.PauseUntil(time.Now().Add(s.scale(20*time.Millisecond)), "soak")
			if r.IntN(2) == 0 {
				parent.Resume()
			}
		}
		s.sleep(s.scale(time.Duration(r.Int64N(int64(100 * time.Millisecond)))))
	}
	parent.Resume()
	_ = parent.SetConcurrency(mostInParent)
}

// soakRate checks the bound of the README: in a time W at most 1 + (W + MaxCatchUp)/T calls start.
func soakRate(s *soak, t *tally) {
	interval := s.scale(5 * time.Millisecond)
	g := limits.Must(sluice.New(sluice.Config{Name: "rate", Rate: sluice.Rate{Count: 1, Per: interval}}))
	defer g.Close()
	began := time.Now()
	var count atomic.Int64
	s.workers(4, 200, func(r *rand.Rand) {
		for !s.over() {
			err := g.Wait(context.Background())
			t.started()
			if n, most := count.Add(1), 2+int64((time.Since(began)+20*time.Millisecond)/interval); n > most {
				t.breaks("%d calls where %d may start", n, most)
			}
			t.ended(err)
		}
	})
	took := time.Since(began)
	share := float64(count.Load()) * float64(interval) / float64(took)
	t.note("%.1f %% of the rate was used", 100*share)
	if s.bubble && share < .95 {
		t.breaks("%.2f of the rate was used", share)
	}
}

// errThrottled is the answer of a limit that no gate knows.
var errThrottled = errors.New("throttled")

// A bucket is that limit: of rate per second, with a burst of a second.
type bucket struct {
	mu     sync.Mutex
	rate   float64
	tokens float64
	at     time.Time
}

func (b *bucket) take() (wait time.Duration, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	b.tokens = min(b.rate, b.tokens+now.Sub(b.at).Seconds()*b.rate)
	b.at = now
	if b.tokens < 1 {
		return time.Duration((1 - b.tokens) / b.rate * float64(time.Second)), false
	}
	b.tokens--
	return 0, true
}

// A store connects gates of one process, and fails now and then.
type store struct {
	groups peers.Groups
	began  time.Time
	mu     sync.Mutex
	dice   *rand.Rand
}

var errAway = errors.New("the store is away")

func (s *store) Exchange(ctx context.Context, group string, r peers.Report) (peers.Reply, error) {
	s.mu.Lock()
	away := s.dice.IntN(20) == 0
	s.mu.Unlock()
	if away {
		return peers.Reply{}, errAway
	}
	return s.groups.Exchange(time.Since(s.began).Microseconds()+1, group, r), ctx.Err()
}

// soakPeers checks that gates that learn a limit together use it, and that few calls are throttled.
func soakPeers(s *soak, t *tally) {
	const rate = 20.
	limit := &bucket{rate: rate, at: time.Now()}
	shared := &store{began: time.Now(), dice: s.dice(300)}
	var throttled, granted atomic.Int64
	var gates []*sluice.Gate
	for range 3 {
		gates = append(gates, limits.Must(sluice.New(sluice.Config{Name: "shared", Adaptive: sluice.Adaptive{Search: true, Peers: shared}})))
	}
	began := time.Now()
	s.workers(6, 301, func(r *rand.Rand) {
		g := gates[r.IntN(len(gates))]
		for !s.over() {
			t.ended(g.Do(context.Background(), func(context.Context) error {
				t.started()
				s.sleep(time.Duration(20+r.IntN(60)) * time.Millisecond)
				if wait, ok := limit.take(); !ok {
					throttled.Add(1)
					return sluice.ThrottledFor(errThrottled, wait)
				}
				granted.Add(1)
				return nil
			}))
		}
	})
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	for _, g := range gates {
		if err := g.Shutdown(ctx); err != nil {
			t.breaks("Shutdown: %v", err)
		}
	}
	used := float64(granted.Load()) / rate / time.Since(began).Seconds()
	share := float64(throttled.Load()) / float64(max(1, t.calls.Load()))
	t.note("%.0f %% of the limit was used, %.1f %% of the calls were throttled", 100*used, 100*share)
	if time.Since(began) > 10*time.Minute && (used < .5 || share > .2) {
		t.breaks("%.2f of the limit was used, and %.2f of the calls were throttled", used, share)
	}
}
