package sluice

import (
	"math/rand/v2"
	"testing"
	"time"
)

// Few of the first calls of a gate are measured, and in the end one in 64.
func TestHoldTime_Wanted(t *testing.T) {
	var h holdTime
	measured := func(calls int) (n int) {
		for range calls {
			if since := time.Duration(rand.Int64N(int64(time.Hour))); h.wanted(since) {
				h.add(time.Second)
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
	if h.mean() != time.Second {
		t.Errorf("the mean is %v, want 1 s", h.mean())
	}
}
