package sluice_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice"
)

func TestNewRateCountsFromTheLastCallOfAnUnlimitedGate(t *testing.T) {
	for _, at := range []time.Duration{0, time.Second} {
		for n := range int64(3) {
			synctest.Test(t, func(t *testing.T) {
				g := mustGate(t, sluice.Config{})
				if at > 0 {
					g.PauseUntil(time.Now().Add(at), "so that the lane opens at that very instant")
				}
				time.Sleep(at)
				began := time.Now()
				if n > 0 { // 1 leaves past the lock, 2 under it
					if p, err := g.Acquire(context.Background(), n); err == nil {
						p.Release()
					}
				}
				time.Sleep(300 * time.Millisecond)
				if err := g.SetRate(1, time.Second); err != nil {
					t.Fatal(err)
				}
				want := time.Second
				if n == 0 {
					want = 300 * time.Millisecond
				}
				if p, err := g.Acquire(context.Background(), 1); err == nil {
					p.Release()
				}
				if got := time.Since(began); got != want {
					t.Errorf("after a call of %d at %v the next leaves after %v, want %v", n, at, got, want)
				}
			})
		}
	}
}

func TestNothingIsOwedToAnUnlimitedGate(t *testing.T) {
	for _, n := range []int64{1, 2} {
		synctest.Test(t, func(t *testing.T) {
			g := mustGate(t, sluice.Config{Rate: tenPerSecond, BurstTime: time.Second})
			time.Sleep(time.Minute)
			for range 11 {
				if _, ok := g.TryAcquire(1); !ok {
					t.Fatal("the burst is a second, 11 calls")
				}
			}
			g.SetRate(0, 0)
			if _, ok := g.TryAcquire(n); !ok {
				t.Errorf("a call of %d is refused", n)
			}
		})
	}
}
