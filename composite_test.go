package sluice_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice"
)

// A composite is a gate under test with all that may limit it, and a record of
// what was let through.
type composite struct {
	gate, parent *sluice.Gate
	limits       []compositeLimit

	mu     sync.Mutex
	left   []compositeCall
	inside []*sluice.Permit
}

type compositeCall struct {
	at time.Duration
	n  int64
}

// A compositeLimit is a meter of the gate, a second one that is only told what
// was let through, and the most that may pass in any window.
type compositeLimit struct {
	meter, shadow *bucket
	unit          sluice.Unit
}

// FuzzAdmission runs a random history against a gate with a random set of
// limits, in a bubble. After each step every limit must be exactly as if only
// the calls that were let through had ever been made: what was refused,
// cancelled or timed out left no trace. And in no window may more have passed
// than a limit allows.
func FuzzAdmission(f *testing.F) {
	f.Add([]byte{0, 0, 0, 0, 0, 0, 0, 0, 7, 3})
	f.Add([]byte{0xff, 2, 0, 1, 1, 2, 2, 3, 4, 1, 7, 5, 0, 3, 6, 1, 4, 0, 7, 6, 5, 0, 7, 7})
	f.Add([]byte{0x17, 1, 0, 0, 0, 3, 0, 1, 2, 2, 7, 2, 3, 0, 3, 1, 4, 0, 4, 0, 7, 4, 0, 1, 7, 7})
	f.Add([]byte{0x6b, 5, 1, 2, 3, 2, 2, 4, 8, 1, 7, 1, 9, 9, 7, 3, 4, 0, 10, 2, 7, 5, 4, 0, 7, 6})
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) > 200 {
			t.Skip("long enough")
		}
		synctest.Test(t, func(t *testing.T) { runAdmission(t, data) })
	})
}

func runAdmission(t *testing.T, data []byte) {
	next := func(n int) int {
		if len(data) == 0 {
			return 0
		}
		b := data[0]
		data = data[1:]
		return int(b) % n
	}
	start := time.Now()
	c := &composite{}
	which := next(256)
	cfg := sluice.Config{Name: "c"}
	if which&1 != 0 {
		cfg.Concurrency = int64(1 + next(4))
	}
	if which&2 != 0 {
		cfg.Rate, cfg.Burst = sluice.Rate{Count: 7, Per: time.Second}, int64(1+next(3))
	}
	for i, l := range []compositeLimit{
		{&bucket{capacity: 10, interval: 300 * ms}, &bucket{capacity: 10, interval: 300 * ms}, sluice.Cost},
		{&bucket{capacity: 3, interval: time.Second}, &bucket{capacity: 3, interval: time.Second}, sluice.Calls},
		{&bucket{capacity: 50, interval: time.Minute}, &bucket{capacity: 50, interval: time.Minute}, sluice.Cost},
	} {
		if which&(4<<i) != 0 {
			c.limits = append(c.limits, l)
			cfg.Quotas = append(cfg.Quotas, sluice.Quota{Name: "q", Meter: l.meter, Counts: l.unit})
		}
	}
	parentRate := sluice.Rate{Count: 11, Per: time.Second}
	if which&32 != 0 {
		c.parent = mustGate(t, sluice.Config{Concurrency: 3, Rate: parentRate})
		cfg.Parent = c.parent
	}
	c.gate = mustGate(t, cfg)

	var cancels []context.CancelFunc
	var wg sync.WaitGroup
	try := func(n int64, acquire func() (*sluice.Permit, error)) {
		wg.Go(func() {
			p, err := acquire()
			if err != nil {
				return
			}
			c.mu.Lock()
			defer c.mu.Unlock()
			c.left = append(c.left, compositeCall{time.Since(start), n})
			c.inside = append(c.inside, p)
			for _, l := range c.limits {
				if wait, err := l.shadow.Admit(bg, unitOf(l.unit, n)); wait != 0 || err != nil {
					t.Errorf("a call of %d was let through that its quota refuses: %v, %v", n, wait, err)
				}
			}
		})
		synctest.Wait()
	}
	check := func() {
		t.Helper()
		synctest.Wait()
		c.mu.Lock()
		defer c.mu.Unlock()
		for i, l := range c.limits {
			l.meter.mu.Lock()
			got := l.meter.full
			l.meter.mu.Unlock()
			// Compared as seen from now on: both in the past are both full.
			if now := time.Now(); !got.Equal(l.shadow.full) && (got.After(now) || l.shadow.full.After(now)) {
				t.Fatalf("quota %d is full at %v, by what was let through at %v", i, got.Sub(start), l.shadow.full.Sub(start))
			}
		}
		s := c.gate.Stats()
		if s.InFlight != int64(len(c.inside)) || s.Granted != uint64(len(c.left)) {
			t.Fatalf("%d in flight and %d let through, want %d and %d", s.InFlight, s.Granted, len(c.inside), len(c.left))
		}
		if cfg.Concurrency > 0 && s.InFlight > cfg.Concurrency {
			t.Fatalf("%d in flight of %d", s.InFlight, cfg.Concurrency)
		}
		if c.parent != nil {
			if p := c.parent.Stats(); p.InFlight != s.InFlight || p.Granted != s.Granted {
				t.Fatalf("the parent has %d in flight and let %d through: %+v", p.InFlight, p.Granted, s)
			}
		}
	}

	for len(data) > 0 {
		switch op := next(11); op {
		case 0, 1:
			n, ctx := int64(1+next(12)), bg
			ctx, cancel := context.WithCancel(ctx)
			cancels = append(cancels, cancel)
			try(n, func() (*sluice.Permit, error) { return c.gate.Acquire(ctx, n) })
		case 2:
			n, d := int64(1+next(6)), time.Duration(next(256))*20*ms
			try(n, func() (*sluice.Permit, error) { return c.gate.AcquireWithin(bg, n, d) })
		case 3:
			if len(cancels) > 0 {
				cancels[next(len(cancels))]()
			}
		case 4, 5:
			c.mu.Lock()
			if len(c.inside) > 0 {
				i := next(len(c.inside))
				p := c.inside[i]
				c.inside = slices.Delete(c.inside, i, i+1)
				c.mu.Unlock()
				p.Release()
			} else {
				c.mu.Unlock()
			}
		case 6:
			n := int64(1 + next(4))
			try(n, func() (*sluice.Permit, error) {
				if p, ok := c.gate.TryAcquire(n); ok {
					return p, nil
				}
				return nil, sluice.ErrTimeout
			})
		case 7, 8:
			time.Sleep([]time.Duration{1, 3 * ms, 50 * ms, 142 * ms, 300 * ms, time.Second, 7 * time.Second, time.Hour}[next(8)])
		case 9:
			g := c.gate
			if c.parent != nil && next(2) == 0 {
				g = c.parent
			}
			g.PauseUntil(time.Now().Add(time.Duration(next(50))*100*ms), "")
		case 10:
			c.gate.Resume()
		}
		check()
	}

	for _, cancel := range cancels {
		cancel()
	}
	time.Sleep(time.Minute) // the longest AcquireWithin is over
	synctest.Wait()
	wg.Wait()
	check()
	if s := c.gate.Stats(); s.Pacing != 0 || s.Waiting != 0 || s.Stranded != 0 {
		t.Fatalf("at the end: %+v", s)
	}

	slices.SortFunc(c.left, func(a, b compositeCall) int { return int(a.at - b.at) })
	for i := range c.left {
		var calls, cost int64
		for j := i; j < len(c.left); j++ {
			calls, cost = calls+1, cost+c.left[j].n
			window := c.left[j].at - c.left[i].at
			over := func(what string, used, burst int64, interval time.Duration) {
				if most := burst + int64(window/interval); used > most {
					t.Fatalf("%d %s in %v, at most %d may be", used, what, window, most)
				}
			}
			if cfg.Rate.Count > 0 {
				over("calls", calls, cfg.Burst, cfg.Rate.Interval())
			}
			if c.parent != nil {
				over("calls of the parent", calls, 1, parentRate.Interval())
			}
			for _, l := range c.limits {
				if l.unit == sluice.Cost {
					over("units", cost, l.meter.capacity, l.meter.interval)
				} else {
					over("calls of a quota", calls, l.meter.capacity, l.meter.interval)
				}
			}
		}
	}
}

func unitOf(u sluice.Unit, n int64) int64 {
	if u == sluice.Cost {
		return n
	}
	return 1
}
