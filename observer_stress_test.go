package sluice_test

import (
	"context"
	"errors"
	"math/bits"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/limits"
	"github.com/sluice-go/sluice/semaphore"
)

// A tally is an observer that counts what the Stats of a gate count.
type tally struct {
	mu     sync.Mutex
	kinds  map[sluice.EventKind]uint64
	refuse map[string]uint64
	waits  sluice.WaitTime
}

func (c *tally) Observe(e sluice.Event) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.kinds == nil {
		c.kinds, c.refuse = make(map[sluice.EventKind]uint64), make(map[string]uint64)
	}
	c.kinds[e.Kind]++
	switch e.Kind {
	case sluice.EventRefused:
		c.refuse[e.Reason]++
	case sluice.EventGranted:
		i := 0 // did not wait
		if e.Wait > 0 {
			i = max(1, bits.Len64(uint64(e.Wait/time.Microsecond)))
		}
		c.waits[i]++
	}
}

// disagrees returns where c and s have counted differently, when no call is in the
// gate, or "".
func (c *tally) disagrees(s sluice.Stats) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	for reason, n := range s.Refused.All() {
		if c.refuse[reason] != n {
			return "refused"
		}
	}
	switch {
	case c.kinds[sluice.EventGranted] != s.Granted:
		return "granted"
	case c.kinds[sluice.EventReleased] != s.Granted:
		return "released"
	case c.kinds[sluice.EventRetried] != s.Retried:
		return "retried"
	case c.waits != s.Waits:
		return "waits"
	}
	return ""
}

func TestObserver_TallyCanDisagree(t *testing.T) {
	var c tally
	for _, e := range []sluice.Event{
		{Kind: sluice.EventGranted, Wait: 3 * time.Microsecond},
		{Kind: sluice.EventReleased},
		{Kind: sluice.EventRetried},
		{Kind: sluice.EventRefused, Reason: "closed"},
	} {
		c.Observe(e)
	}
	agreed := sluice.Stats{Granted: 1, Retried: 1, Refused: sluice.Refusals{Closed: 1}}
	agreed.Waits[2] = 1
	if d := c.disagrees(agreed); d != "" {
		t.Errorf("disagrees about what is %s", d)
	}
	for want, s := range map[string]sluice.Stats{
		"granted": {Granted: 2, Retried: 1, Refused: agreed.Refused, Waits: agreed.Waits},
		"retried": {Granted: 1, Refused: agreed.Refused, Waits: agreed.Waits},
		"refused": {Granted: 1, Retried: 1, Refused: sluice.Refusals{Busy: 1}, Waits: agreed.Waits},
		"waits":   {Granted: 1, Retried: 1, Refused: agreed.Refused},
	} {
		if d := c.disagrees(s); d != want {
			t.Errorf("%q, want %q", d, want)
		}
	}
	c.Observe(sluice.Event{Kind: sluice.EventReleased})
	if d := c.disagrees(agreed); d != "released" {
		t.Errorf("%q", d)
	}
}

// A watched is some gates that are used in all ways at once, with a tally of each.
type watched struct {
	gates   []*sluice.Gate
	tallies []*tally
	unit    time.Duration // of pauses, deadlines and time in flight
}

// newWatched returns a parent, which may have no observer, three children and a
// gate alone, with different limits.
func newWatched(t testing.TB, unit time.Duration, parentToo bool) *watched {
	w := &watched{unit: unit}
	add := func(cfg sluice.Config) *sluice.Gate {
		c := new(tally)
		cfg.Observer = c.Observe
		g := mustGate(t, cfg)
		w.gates, w.tallies = append(w.gates, g), append(w.tallies, c)
		return g
	}
	rate := sluice.Rate{Count: 2, Per: unit}
	parent := sluice.Config{Name: "all", Concurrency: 6, Rate: withBurst(rate, 5)}
	var all *sluice.Gate
	if parentToo {
		all = add(parent)
	} else {
		all = mustGate(t, parent)
	}
	add(sluice.Config{Name: "child", Concurrency: 2, MaxWaiting: 5, Parent: all})
	add(sluice.Config{Name: "quota", Parent: all, Limits: []sluice.Limit{{Limiter: &bucket{capacity: 5, interval: unit}}}})
	add(sluice.Config{Name: "cost", Concurrency: 4, ConcurrencyUnit: sluice.Cost, Parent: all})
	add(sluice.Config{Name: "alone", Concurrency: 3, Rate: withBurst(rate, 5), MaxWaiting: 10})
	add(sluice.Config{Name: "lent", Semaphore: lent{semaphore.NewWeighted(2)}})
	return w
}

// lent is a semaphore as Config.Semaphore.
type lent struct{ *semaphore.Weighted }

func (l lent) Acquire(ctx context.Context, n int64, longest time.Duration) (limits.Lease, error) {
	return unlost{l, n}, l.Weighted.AcquireWithin(ctx, n, longest)
}

type unlost struct {
	l lent
	n int64
}

func (u unlost) Release()              { u.l.Weighted.Release(u.n) }
func (u unlost) Lost() <-chan struct{} { return nil }

var errServer = errors.New("500")

// use makes a random call, or change.
func (w *watched) use(r *rand.Rand) {
	g := w.gates[r.IntN(len(w.gates))]
	some := func() time.Duration { return time.Duration(r.Int64N(int64(4 * w.unit))) }
	ctx, cancel := context.WithCancel(bg)
	defer cancel()
	switch r.IntN(4) {
	case 0:
		defer time.AfterFunc(some(), cancel).Stop()
	case 1:
		var stop context.CancelFunc
		ctx, stop = context.WithTimeout(ctx, some())
		defer stop()
	}
	n := 1 + r.Int64N(5)
	work := some() / 4
	fails := r.IntN(3) == 0
	call := func(context.Context) error {
		time.Sleep(work)
		if fails {
			return errServer
		}
		return nil
	}
	var p *sluice.Permit
	switch r.IntN(10) {
	case 0, 1:
		g.Do(ctx, call)
	case 2, 3:
		sluice.Retry(ctx, g, sluice.RetryPolicy{Backoff: sluice.Constant(w.unit), Attempts: 3}, call)
	case 4:
		p, _ = g.TryAcquire(n)
	case 5:
		p, _ = g.AcquireWithin(ctx, n, some())
	case 6:
		switch r.IntN(4) {
		case 0:
			g.PauseUntil(time.Now().Add(some()), "some")
		case 1:
			g.Resume()
		case 2:
			g.SetConcurrency(1 + r.Int64N(5))
		case 3:
			p, _ = g.Acquire(ctx, 0)
		}
	default:
		p, _ = g.Acquire(ctx, n)
	}
	if p != nil {
		time.Sleep(work)
		if r.IntN(2) == 0 {
			p.Settle(r.Int64N(9))
		}
		p.Release()
	}
}

// run lets goroutines use the gates so many times each.
func (w *watched) run(seed uint64, goroutines, times int) {
	var wg sync.WaitGroup
	for i := range goroutines {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(seed, uint64(i)))
			for range times {
				time.Sleep(time.Duration(r.Int64N(int64(2 * w.unit))))
				w.use(r)
			}
		})
	}
	wg.Wait()
}

func (w *watched) check(t *testing.T, seed uint64) {
	t.Helper()
	for i, g := range w.gates {
		s := g.Stats()
		if d := w.tallies[i].disagrees(s); d != "" || s.InFlight != 0 {
			t.Errorf("seed %d: events and Stats disagree about what is %s:\n%+v\n%+v", seed, d, w.tallies[i], s)
		}
	}
}

// When all calls have returned, each gate has reported as many events of each kind as it
// has counted, and the same waits.
func TestObserver_EventsAgreeWithStats(t *testing.T) {
	all, refused := make(map[sluice.EventKind]uint64), make(map[string]uint64)
	for seed := range uint64(60) {
		synctest.Test(t, func(t *testing.T) {
			w := newWatched(t, time.Second, seed%4 != 0)
			if seed%3 == 0 {
				g := w.gates[seed%uint64(len(w.gates))]
				time.AfterFunc(15*time.Second, g.Close)
			}
			w.run(seed, 20, 20)
			w.check(t, seed)
			for _, c := range w.tallies {
				for k, n := range c.kinds {
					all[k] += n
				}
				for k, n := range c.refuse {
					refused[k] += n
				}
			}
		})
	}
	for _, k := range []sluice.EventKind{
		sluice.EventQueued, sluice.EventGranted, sluice.EventRefused, sluice.EventPaused,
		sluice.EventResumed, sluice.EventRetried, sluice.EventReleased,
	} {
		if all[k] == 0 {
			t.Errorf("no call was ever %v", k)
		}
	}
	for reason := range (sluice.Refusals{}).All() {
		if reason != "other" && refused[reason] == 0 {
			t.Errorf("no call was ever refused: %v", reason)
		}
	}
	t.Log(all, refused)
}

// TestObserver_Stress is the same on the real scheduler.
func TestObserver_Stress(t *testing.T) {
	for seed := range uint64(2) {
		w := newWatched(t, 200*time.Microsecond, seed == 0)
		w.run(seed, 20, 100)
		w.check(t, seed)
	}
}

// TestObserver_PanicLosesNothing lets the observer panic at each event of a
// story, one after the other. Everything that was held is free afterwards.
func TestObserver_PanicLosesNothing(t *testing.T) {
	ends := errors.New("the observer panics")
	survives := func(f func()) {
		defer func() {
			if r := recover(); r != nil && r != ends {
				panic(r)
			}
		}()
		f()
	}
	try := func(g *sluice.Gate) {
		if p, ok := g.TryAcquire(1); ok {
			p.Release()
		}
	}
	within := func(g *sluice.Gate) {
		if p, err := g.AcquireWithin(bg, 1, 0); err == nil {
			p.Release()
		}
	}
	const most = 100
	for at := range most {
		reported := 0
		synctest.Test(t, func(t *testing.T) {
			var mu sync.Mutex
			observer := func(sluice.Event) {
				mu.Lock()
				defer mu.Unlock()
				if reported++; reported == at+1 {
					panic(ends)
				}
			}
			shared := semaphore.NewWeighted(1)
			all := mustGate(t, sluice.Config{Name: "all", Concurrency: 1, Observer: observer})
			g := mustGate(t, sluice.Config{
				Name: "g", Concurrency: 2, Parent: all, Observer: observer,
				Limits: []sluice.Limit{{Limiter: &bucket{capacity: 1, interval: time.Second}}},
			})
			borrowing := mustGate(t, sluice.Config{Name: "borrowing", Concurrency: 1, Semaphore: lent{shared}, Observer: observer})
			var wg sync.WaitGroup
			for _, g := range []*sluice.Gate{g, all, borrowing} {
				for range 3 {
					wg.Go(func() { survives(func() { hold(g, ms) }) })
				}
				wg.Go(func() { survives(func() { try(g) }) })
				wg.Go(func() { survives(func() { within(g) }) })
				wg.Go(func() {
					survives(func() {
						throttled := false
						sluice.Retry(bg, g, sluice.RetryPolicy{}, func(context.Context) error {
							if throttled {
								return nil
							}
							throttled = true
							return sluice.RetryAfter(errServer, time.Second)
						})
					})
				})
				wg.Go(func() { time.Sleep(1500 * ms); survives(g.Resume) })
			}
			time.Sleep(time.Minute)
			g.Close()
			all.Close()
			borrowing.Close()
			wg.Wait()
			for _, g := range []*sluice.Gate{all, g, borrowing} {
				if s := g.Stats(); s.InFlight != 0 || s.Pacing+s.Waiting != 0 {
					t.Errorf("panic at event %d: %+v", at, s)
				}
			}
			if shared.InFlight() != 0 {
				t.Errorf("panic at event %d: permits stay lent", at)
			}
		})
		if reported <= at { // nothing panicked: that was the whole story
			if at < 40 {
				t.Errorf("only %d events", reported)
			}
			return
		}
	}
	t.Errorf("more than %d events", most)
}
