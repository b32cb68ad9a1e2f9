package main

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestSlidingLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newSlidingLog(2, 1)
		for i, c := range []struct{ sleep, want time.Duration }{
			{0, 0},
			{300 * time.Millisecond, 0},
			{300 * time.Millisecond, 400 * time.Millisecond}, // of the first
			{400 * time.Millisecond, 0},
			{0, 300 * time.Millisecond}, // of the second
			{300 * time.Millisecond, 0},
			{5 * time.Second, 0},
		} {
			time.Sleep(c.sleep)
			if got := l.take(); got != c.want {
				t.Errorf("call %d: %v, want %v", i, got, c.want)
			}
		}
	})
}
