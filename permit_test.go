package sluice_test

import (
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/sluice-go/sluice"
)

// Acquire makes a permit for each call: beyond 64 bytes it takes a quarter longer.
func TestPermit_IsSmall(t *testing.T) {
	if unsafe.Sizeof(uintptr(0)) != 8 {
		t.Skip("its layout is for 64 bits")
	}
	if size := unsafe.Sizeof(sluice.Permit{}); size > 64 {
		t.Errorf("it takes %d bytes", size)
	}
}

// A caller that releases before it looks at the error loses nothing.
func TestPermit_Release_OfNilDoesNothing(t *testing.T) {
	g := mustGate(t, sluice.Config{Concurrency: 1})
	p, _ := g.Acquire(bg, 1)
	q, ok := g.TryAcquire(1)
	q.Release()
	if s := g.Stats(); ok || s.InFlight != 1 {
		t.Errorf("%v, %+v", ok, s)
	}
	p.Release()
}

func TestPermit_ReleaseAndSettleCountOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := mustGate(t, sluice.Config{Concurrency: 10, ConcurrencyUnit: sluice.Cost, Rate: tenPerSecond, RateUnit: sluice.Cost})
		p, _ := g.Acquire(bg, 4)
		q, _ := g.Acquire(bg, 2) // at 400 ms
		p.Release()
		p.Release()
		if s := g.Stats(); s.InFlight != 2 {
			t.Errorf("released twice: %d in flight, want 2", s.InFlight)
		}
		slot := func() time.Duration { return time.Until(g.Stats().NextSlot) }
		if got := slot(); got != 200*ms {
			t.Errorf("next slot in %v", got)
		}
		q.Settle(12) // debt, beyond the limit of 10 in flight, too
		q.Settle(1)
		if s := g.Stats(); s.InFlight != 12 || slot() != 1200*ms {
			t.Errorf("settled upwards: %d in flight, next slot in %v", s.InFlight, slot())
		}
		p.Settle(1) // after Release: 3 too many were taken
		if s := g.Stats(); s.InFlight != 12 || slot() != 900*ms {
			t.Errorf("settled downwards: %d in flight, next slot in %v", s.InFlight, slot())
		}
		q.Release()
		if s := g.Stats(); s.InFlight != 0 {
			t.Errorf("%d in flight after all was released", s.InFlight)
		}
	})
}
