package adaptive

import (
	"math"
	"testing"
	"time"
)

// Two units in five seconds after a hundred in ten: what was granted before the change is no
// measurement of the rate after it.
func TestLedger_SlopeEndsAtAChange(t *testing.T) {
	var l ledger
	l.begin(0)
	l.mark(point{at: 10, granted: 100})
	l.mark(point{at: 20, granted: 200})
	if rate, _ := l.slope(point{at: 22, granted: 220}, 50, 1); math.Abs(rate-10) > .1 {
		t.Errorf("at a steady rate of 10/s the slope is %g", rate)
	}
	if rate, _ := l.slope(point{at: 25, granted: 202}, 12, 1); rate > 1 {
		t.Errorf("after a fall to .4/s the slope is %g", rate)
	}
}

// A server that serves few calls at a time, and these slowly if others wait, is overloaded
// before the first 32 answers are back.
func TestController_RecognizesOverloadFromTheFirstCallsOn(t *testing.T) {
	r := newRun(t, Config{}, server{delay: func(_ float64, busy int) float64 {
		return max(1, float64(busy)/3) * (1 + .5*max(0, float64(busy-3))/3)
	}})
	r.callers = 40
	r.until(300)
	if g := float64(count(r.granted, 240, 300)) / 60; g < 2.5 {
		t.Errorf("%.2f/s were granted of 3/s: %+v", g, r.controller.Belief())
	}
}

// A window of 50 in a second, which begins with a call, asks for a wait of a second, however soon it ends.
func TestController_AWaitOfWholeSecondsIsNotAllSilence(t *testing.T) {
	for _, count := range []int{50, 100, 200} {
		used, end := 0, 0.
		r := newRun(t, Config{Unlimited: true}, server{
			take: func(t float64) bool {
				if t >= end {
					used, end = 0, t+1
				}
				used++
				return used <= count
			},
			retry: func(float64) time.Duration { return time.Second },
		})
		r.until(100)
		if share := float64(len(r.granted)) / float64(100*count); share < .75 {
			t.Errorf("of a window of %d in a second %.0f %% were used: %+v", count, 100*share, r.controller.Belief())
		}
	}
}
