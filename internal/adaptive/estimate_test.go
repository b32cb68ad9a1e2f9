package adaptive

import (
	"math"
	"testing"
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
		return math.Max(1, float64(busy)/3) * (1 + .5*math.Max(0, float64(busy-3))/3)
	}})
	r.callers = 40
	r.until(300)
	if g := float64(count(r.granted, 240, 300)) / 60; g < 2.5 {
		t.Errorf("%.2f/s were granted of 3/s: %+v", g, r.controller.Belief())
	}
}
