package adaptive

import (
	"math"
	"testing"
	"time"
)

// cycling sends calls at each of the paces until one is refused, and then pauses. take says
// whether a call at an instant is granted.
func cycling(take func(t float64) bool, pause float64, paces ...float64) *cycles {
	var k cycles
	var l ledger
	t := 0.
	l.begin(t)
	k.begin(l.start)
	for _, pace := range paces {
		for {
			t += 1 / pace
			call := Call{sent: t, cost: 1, before: l.sent}
			k.started(t, &l)
			l.started(t, 1)
			if !take(t) {
				at := l.refuse(call)
				k.without(call)
				k.end(at, pace, 1)
				break
			}
		}
		t += pause
	}
	return &k
}

// tank is a bucket that is full at 0.
func tank(rate, burst float64) func(t float64) bool {
	level, last := burst, 0.
	return func(t float64) bool {
		level = min(burst, level+rate*(t-last))
		last = t
		if level < 1 {
			return false
		}
		level--
		return true
	}
}

func TestCycles_FindTheRateOfABucket(t *testing.T) {
	for _, c := range []struct {
		rate, burst, pause float64
		paces              []float64
	}{
		{50, 5, 1, []float64{100, 55, 52}},
		{50, 40, 4, []float64{80, 60}},
		{50, 400, 4, []float64{70, 60, 65}}, // never full again
		{77, 174, 4, []float64{1166, 136, 87}},
		{29, 7, 10, []float64{104, 37, 31}},
		{2000, 100, 1, []float64{8000, 2200}},
	} {
		f := cycling(tank(c.rate, c.burst), c.pause, c.paces...).found
		if !f.good() || math.Abs(f.rate/c.rate-1) > f.error+.02 {
			t.Errorf("%+v: found %+v", c, f)
		}
	}
}

// What a bucket cannot explain, or not well, is not explained.
func TestCycles_FindNothing(t *testing.T) {
	window := func(count, length float64) func(float64) bool {
		number, used := -1., 0.
		return func(t float64) bool {
			if n := math.Floor(t / length); n != number {
				number, used = n, 0
			}
			used++
			return used <= count
		}
	}
	for name, k := range map[string]*cycles{
		"one cycle":             cycling(tank(50, 5), 1, 100),
		"two alike":             cycling(tank(50, 5), 1, 100, 100),
		"nothing granted":       cycling(func(float64) bool { return false }, 1, 100, 50, 70),
		"a window":              cycling(window(100, 60), 60, 20, 10),
		"a rate that has risen": cycling(tank(50, 5), 1, 60, 10000, 9000),
	} {
		if k.found.good() {
			t.Errorf("%s: found %+v", name, k.found)
		}
	}
}

// A pause after each refusal is long beside what is gained by searching on: after a few of
// them the pace is near the rate.
func TestController_FewPausesShowTheRate(t *testing.T) {
	for burst, want := range map[float64]int{2: 6000, 10: 6900, 100: 7500} { // 4765, 6567, 6400 without cycles
		r := newRun(t, Config{}, server{take: bucket(burst, steady(75)), retry: func(float64) time.Duration { return 4 * time.Second }})
		r.until(120)
		if n := len(r.granted); n < want {
			t.Errorf("burst %v: of 9000 calls %d were granted: %+v", burst, n, r.controller.Belief())
		}
	}
}

// A cycle that ended with a window that was used up shows what the window grants at any pace, also if
// calls came slowly at first.
func TestCycles_Window(t *testing.T) {
	const count = 50
	for _, pace := range []float64{60, 100, 400} {
		end := 0. // when the last call was refused
		take := windows(count, 1, 0)
		k := cycling(func(t float64) bool { end = t; return take(t) }, 0, pace)
		if rate := k.window(1 - end); math.Abs(rate-count) > 1 {
			t.Errorf("after a cycle at %v/s and %.2f s of silence the window is taken for %.1f/s", pace, 1-end, rate)
		}
	}
	slow := cycles{next: 1} // one call per second, then 100/s
	slow.past[0] = cycle{parts: [cyclePoints]part{{20.5, 70}, {.5, 50}}, n: 2}
	if rate := slow.window(.5); rate != count {
		t.Errorf("after a slow beginning the window is taken for %.1f/s", rate)
	}
}
