package promise

import (
	"context"
	"slices"
	"time"

	"github.com/sluice-go/sluice"
)

// exactCancellation lets fifty callers queue and give up. The next call must start as if
// they had never come.
func exactCancellation(c *check) {
	const callers = 50
	for _, how := range []string{"cancel", "time out"} {
		c.scene("fifty callers "+how, Limits{Interval: 10 * c.usual, Room: 1}, func(x *crowd) {
			var within, gap time.Duration
			if how == "time out" {
				within = 5 * c.usual // which is known not to suffice
				if x.s.Roomy() {
					within = 20 * c.usual // which would, if there were room
				}
			}
			if x.s.Paced {
				gap = 10 * c.usual
			}
			done := make(chan struct{})
			x.do(x.ctx, 0, Ask{}, x.until(done))
			if x.real && x.s.Origin == 0 {
				x.awaitLeft(0)
			}
			before, left := x.state(), len(x.departures())
			ctx, cancel := context.WithCancel(x.ctx)
			defer cancel()
			for caller := 1; caller <= callers; caller++ {
				x.do(ctx, caller, Ask{Within: within}, nil)
			}
			if within == 0 {
				cancel()
			}
			for caller := 1; caller <= callers; caller++ {
				x.finishOf(caller)
			}
			if after := x.state(); x.now() < x.origin+gap && after != before && len(x.departures()) == left && (!x.real || left == 1) {
				x.errorf("cancelled calls took something:\n\t%s, before\n\t%s", after, before)
			}
			x.awaitLeft(0)
			close(done)
			x.finishOf(0)
			came := x.now()
			x.do(x.ctx, callers+1, Ask{}, nil)
			x.finish()
			x.wantLeft(callers+1, max(came, x.origin+gap))
			x.nothingInFlight()
			for caller := 1; caller <= callers; caller++ {
				if x.errOf(caller) == nil && x.s.Roomy() {
					x.errorf("call %d gave up and left", caller)
				}
			}
		})
	}
}

// Roomy reports whether the calls in flight are limited.
func (s *Subject) Roomy() bool {
	return slices.ContainsFunc(s.Levels, func(l *Level) bool { return l.Roomy })
}

func (x *crowd) nothingInFlight() {
	for _, l := range x.s.Levels {
		if s := l.Stats(); s.InFlight != 0 || s.Pacing+s.Waiting != 0 {
			x.errorf("%s at the end: %+v", l.Name, s)
		}
	}
}

// firstCome lets callers of different cost queue. They start in that order, and
// nothing overtakes.
func firstCome(c *check) {
	costs := []int64{3, 1, 2, 1, 1, 3, 1}
	for _, room := range []int64{1, 0} {
		c.scene("a queue", Limits{Interval: c.usual, Room: room}, func(x *crowd) {
			if room == 0 && !x.s.Paced {
				return // no call waits
			}
			hold := time.Duration(0)
			if room == 1 {
				hold = c.usual / 2
			}
			var order []int
			for caller := range 8 {
				ask := Ask{}
				if caller > 0 && room == 0 {
					ask.N = costs[caller-1]
				}
				x.do(x.ctx, caller, ask, x.hold(hold))
				order = append(order, caller)
				if caller > 0 && caller < 4 && x.s.Try != nil && x.now() < x.origin+c.usual/2 && x.s.Try() {
					if left := len(x.departures()); left <= caller { // a machine that stalls may have let all start before
						x.errorf("TryAcquire overtook %d callers", caller+1-left)
					}
				}
			}
			x.finish()
			x.wantOrder(order...)
			at := x.origin
			for caller := range 8 {
				x.wantLeft(caller, at)
				switch {
				case !x.s.Paced:
					at += hold
				case x.s.Weighs && room == 0 && caller > 0:
					at += time.Duration(costs[caller-1]) * c.usual
				default:
					at += c.usual
				}
			}
		})
	}
}

// trueToRate lets calls start as fast as they may, from a queue and one after the
// other. The kth leaves k intervals after the first, and no window has more calls than
// the bound in docs/guarantees.md allows.
func trueToRate(c *check) {
	const calls = 25
	c.scene("from a queue", Limits{Interval: c.usual}, func(x *crowd) {
		for caller := range calls {
			x.do(x.ctx, caller, Ask{}, nil)
		}
		x.finish()
		for caller := range calls {
			x.wantLeft(caller, x.origin+time.Duration(caller)*c.usual)
		}
	})
	c.scene("one after the other", Limits{Interval: c.usual, Room: 2}, func(x *crowd) {
		for caller := range calls {
			x.do(x.ctx, caller, Ask{}, x.hold(c.usual/3))
			x.finishOf(caller)
		}
		for caller := range calls {
			x.wantLeft(caller, x.origin+time.Duration(caller)*c.usual)
		}
	})
	c.scene("after idle time", Limits{Interval: c.usual}, func(x *crowd) {
		x.do(x.ctx, 0, Ask{}, nil)
		x.finishOf(0)
		x.sleep(10 * c.usual)
		idle := x.now()
		for caller := 1; caller < 5; caller++ {
			x.do(x.ctx, caller, Ask{}, nil)
		}
		x.finish()
		for caller := 1; caller < 5; caller++ {
			x.wantLeft(caller, idle+time.Duration(caller-1)*c.usual)
		}
	})
	boundedWindows(c, calls)
}

// boundedWindows checks the bound on the calls in any window.
func boundedWindows(c *check, calls int) {
	if c.real {
		return // there a departure may be recorded late, and the next one in time
	}
	c.scene("in any window", Limits{Interval: c.usual}, func(x *crowd) {
		heaviest := int64(1)
		if x.s.Weighs {
			heaviest = 3
		}
		cost := func(caller int) int64 { return 1 + int64(caller)%heaviest }
		for caller := range calls {
			x.do(x.ctx, caller, Ask{N: cost(caller)}, nil)
			if caller%5 == 4 { // idle time in between, which must not be stored
				x.finishOf(caller)
				x.sleep(7 * c.usual / 2)
			}
		}
		x.finish()
		all := x.departures()
		if len(all) != calls {
			x.errorf("%d calls left, want %d", len(all), calls)
		}
		for i, first := range all {
			sum := int64(0)
			for _, d := range all[i:] {
				sum += cost(d.caller)
				// B + (W + MaxCatchUp)/T + n_max - 1, where the burst B is 1
				if window := d.at - first.at; time.Duration(sum-heaviest)*c.usual > window+catchUp {
					x.errorf("%d permits left within %v from %v on", sum, window, first.at)
				}
			}
		}
	})
}

// catchUp is the default of all gates and pacers.
const catchUp = 50 * time.Millisecond

// changes checks that a new rate, a new limit, a pause and its end reach callers that
// wait already. Without the change they would wait for an hour.
func changes(c *check) {
	c.scene("a new rate", Limits{Interval: c.long}, func(x *crowd) {
		if !x.s.Paced {
			return
		}
		for caller := range 5 {
			x.do(x.ctx, caller, Ask{}, nil)
		}
		x.sleep(max(0, x.origin-x.now()) + x.s.Late + c.usual)
		x.awaitLeft(0)
		x.wantLeft(0, x.origin)
		changed := x.now()
		for _, l := range x.s.Levels {
			if l.Paced {
				x.must(l.SetRate(sluice.Rate{Count: 1, Per: c.usual / 10}))
			}
		}
		x.finish()
		for caller := 1; caller < 5; caller++ {
			at := changed + time.Duration(caller-1)*c.usual/10
			if x.real { // what was late by our fault is caught up, so slots may count from earlier
				at = max(changed, at-catchUp)
			}
			x.wantLeft(caller, at)
		}
		x.wantOrder(0, 1, 2, 3, 4)
	})
	for i, level := range c.levels() {
		if !level.Roomy {
			continue
		}
		c.scene("a new limit of "+level.Name, Limits{Interval: c.usual, Room: 9}, func(x *crowd) {
			l, done := x.s.Levels[i], make(chan struct{})
			x.must(l.SetConcurrency(1))
			for caller := range 3 {
				x.do(x.ctx, caller, Ask{}, x.until(done))
			}
			x.sleep(max(0, x.origin-x.now()) + x.s.Late + 5*c.usual)
			if n := len(x.departures()); n != 1 {
				x.errorf("%d calls left, and there was room for one", n)
			}
			changed := x.now()
			x.must(l.SetConcurrency(3))
			x.awaitLeft(1)
			x.awaitLeft(2)
			x.wantLeft(1, changed)
			close(done)
			x.finish()
			x.wantOrderIf(x.s.Paced, 0, 1, 2)
		})
	}
	changedPauses(c)
}

// changedPauses is changes for pauses.
func changedPauses(c *check) {
	for i, level := range c.levels() {
		c.scene("a pause of "+level.Name+" and its end", Limits{Interval: c.usual}, func(x *crowd) {
			l := x.s.Levels[i]
			x.rest()
			l.PauseUntil(time.Now().Add(c.long), "on purpose")
			for caller := range 3 {
				x.do(x.ctx, caller, Ask{}, nil)
			}
			x.sleep(max(0, x.origin-x.now()) + 3*c.usual)
			if n := len(x.departures()); n != 0 {
				x.errorf("%d calls left during the pause", n)
			}
			resumed := x.now()
			l.Resume()
			x.finish()
			x.wantLeft(0, max(resumed, x.origin))
			x.wantOrderIf(x.s.Paced, 0, 1, 2)
		})
		c.scene("a pause of "+level.Name+" for callers that wait", Limits{Interval: 10 * c.usual}, func(x *crowd) {
			if !x.s.Paced {
				return
			}
			for caller := range 3 {
				x.do(x.ctx, caller, Ask{}, nil)
			}
			x.sleep(max(0, x.origin-x.now()) + x.s.Late + c.usual)
			end := x.now() + 30*c.usual
			x.s.Levels[i].PauseUntil(x.start.Add(end), "on purpose")
			if x.real && len(x.departures()) > 1 {
				return // the machine stalled, and the second left before the pause
			}
			x.finish()
			x.wantLeft(1, end)
			x.wantLeft(2, end+10*c.usual)
		})
	}
}

// wantOrderIf is wantOrder where calls do not leave at the same time.
func (x *crowd) wantOrderIf(apart bool, want ...int) {
	if apart {
		x.wantOrder(want...)
	}
}
