package flight

import (
	"math/rand/v2"
	"sync"
	"testing"
	"time"
)

// More calls can never end than began: the number would wrap, and the gate be full for good.
func TestCounter_DoesNotGoBelowZero(t *testing.T) {
	var c Counter
	c.AddUnlocked(2)
	c.End()
	func() {
		defer func() {
			if recover() == nil {
				t.Error("no panic")
			}
		}()
		c.End()
	}()
	if n := c.Calls(); n != 0 {
		t.Errorf("%d in flight", n)
	}
	if !c.AddUnlocked(1) || c.Passed() != 2 {
		t.Error("what has passed was lost")
	}
}

// Both ways of adding a call take of the same places.
func TestCounter_Places(t *testing.T) {
	var c Counter
	if !c.Add(2) || !c.AddUnlocked(2) || c.Add(2) || c.AddUnlocked(2) {
		t.Error("two calls and no third have a place")
	}
	c.End()
	if !c.Add(2) || c.Calls() != 2 {
		t.Error("a place that was given back is not free")
	}
	if n := c.Passed(); n != 1 {
		t.Errorf("%d passed, want 1", n)
	}
	c.UncountPassed()
	if n := c.Passed(); n != -1 || c.Calls() != 2 {
		t.Errorf("%d passed after a correction, %d in flight; want -1 and 2", n, c.Calls())
	}
	if n := c.Passed(); n != 0 {
		t.Errorf("%d passed, said twice", n)
	}
}

// However many goroutines add calls, there are never more than places.
func TestCounter_Together(t *testing.T) {
	const places = 3
	var c Counter
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 2000 {
				if !c.AddUnlocked(places) {
					continue
				}
				if n := c.Calls(); n < 1 || n > places {
					t.Errorf("%d in flight of %d", n, places)
				}
				c.End()
			}
		})
	}
	all.Wait()
	if n := c.Calls(); n != 0 {
		t.Errorf("%d are left", n)
	}
}

// Few of the first calls of a gate are measured, and in the end one in 64.
func TestHold_Wanted(t *testing.T) {
	var h Hold
	measured := func(calls int) (n int) {
		for range calls {
			if since := time.Duration(rand.Int64N(int64(time.Hour))); h.Wanted(since) {
				h.Add(time.Second)
				n++
			}
		}
		return n
	}
	if n := measured(2); n != 2 {
		t.Errorf("%d of the first 2 calls are measured, want both", n)
	}
	if n := measured(62); n > 30 {
		t.Errorf("%d of the next 62 calls are measured", n)
	}
	measured(10_000)
	if n := measured(64_000); n < 800 || n > 1200 {
		t.Errorf("%d of 64,000 calls are measured, want about 1000", n)
	}
	if h.Mean() != time.Second {
		t.Errorf("the mean is %v, want 1 s", h.Mean())
	}
}
