package promise

import (
	"context"
	"slices"
	"time"

	"github.com/sluice-go/sluice"
)

// exactCancellation lets fifty callers queue and give up. The next call must leave as if
// they had never come.
func exactCancellation(c *check) {
	const callers = 50
	for _, how := range []string{"cancel", "time out"} {
		c.scene("fifty callers "+how, Limits{Interval: 10 * c.unit, Room: 1}, func(x *crowd) {
			var within, gap time.Duration
			if how == "time out" {
				within = 5 * c.unit // which is known not to suffice
				if x.s.Roomy() {
					within = 20 * c.unit // which would, if there were room
				}
			}
			if x.s.Paced {
				gap = 10 * c.unit
			}
			done := make(chan struct{})
			x.do(x.ctx, 0, Ask{}, x.until(done))
			if x.real && x.s.Origin == 0 {
				x.awaitLeft(0)
			}
			before, left := x.state(), len(x.departures())
			ctx, cancel := context.WithCancel(x.ctx)
			defer cancel()
			for who := 1; who <= callers; who++ {
				x.do(ctx, who, Ask{Within: within}, nil)
			}
			if within == 0 {
				cancel()
			}
			for who := 1; who <= callers; who++ {
				x.finishOf(who)
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
			for who := 1; who <= callers; who++ {
				if x.errOf(who) == nil && x.s.Roomy() {
					x.errorf("call %d gave up and left", who)
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

// firstCome lets callers of different weight queue. They leave in that order, and
// nothing overtakes.
func firstCome(c *check) {
	weights := []int64{3, 1, 2, 1, 1, 3, 1}
	for _, room := range []int64{1, 0} {
		c.scene("a queue", Limits{Interval: c.unit, Room: room}, func(x *crowd) {
			if room == 0 && !x.s.Paced {
				return // no call waits
			}
			hold := time.Duration(0)
			if room == 1 {
				hold = c.unit / 2
			}
			var order []int
			for who := range 8 {
				ask := Ask{}
				if who > 0 && room == 0 {
					ask.N = weights[who-1]
				}
				x.do(x.ctx, who, ask, x.hold(hold))
				order = append(order, who)
				if who > 0 && who < 4 && x.s.Try != nil && x.now() < x.origin+c.unit/2 && x.s.Try() {
					x.errorf("TryAcquire overtook %d callers", who)
				}
			}
			x.finish()
			x.wantOrder(order...)
			at := x.origin
			for who := range 8 {
				x.wantLeft(who, at)
				switch {
				case !x.s.Paced:
					at += hold
				case x.s.Weighs && room == 0 && who > 0:
					at += time.Duration(weights[who-1]) * c.unit
				default:
					at += c.unit
				}
			}
		})
	}
}

// trueToRate lets calls leave as fast as they may, from a queue and one after the
// other. The kth leaves k intervals after the first, and no window has more calls than
// the bound in README.md allows.
func trueToRate(c *check) {
	const calls = 25
	c.scene("from a queue", Limits{Interval: c.unit}, func(x *crowd) {
		for who := range calls {
			x.do(x.ctx, who, Ask{}, nil)
		}
		x.finish()
		for who := range calls {
			x.wantLeft(who, x.origin+time.Duration(who)*c.unit)
		}
	})
	c.scene("one after the other", Limits{Interval: c.unit, Room: 2}, func(x *crowd) {
		for who := range calls {
			x.do(x.ctx, who, Ask{}, x.hold(c.unit/3))
			x.finishOf(who)
		}
		for who := range calls {
			x.wantLeft(who, x.origin+time.Duration(who)*c.unit)
		}
	})
	c.scene("after idle time", Limits{Interval: c.unit}, func(x *crowd) {
		x.do(x.ctx, 0, Ask{}, nil)
		x.finishOf(0)
		x.sleep(10 * c.unit)
		idle := x.now()
		for who := 1; who < 5; who++ {
			x.do(x.ctx, who, Ask{}, nil)
		}
		x.finish()
		for who := 1; who < 5; who++ {
			x.wantLeft(who, idle+time.Duration(who-1)*c.unit)
		}
	})
	if c.real {
		return // there a departure may be recorded late, and the next one in time
	}
	c.scene("in any window", Limits{Interval: c.unit}, func(x *crowd) {
		const catchUp = 50 * time.Millisecond // the default of all gates and pacers
		heaviest := int64(1)
		if x.s.Weighs {
			heaviest = 3
		}
		weight := func(who int) int64 { return 1 + int64(who)%heaviest }
		for who := range calls {
			x.do(x.ctx, who, Ask{N: weight(who)}, nil)
			if who%5 == 4 { // idle time in between, which must not be stored
				x.finishOf(who)
				x.sleep(7 * c.unit / 2)
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
				sum += weight(d.who)
				// B + (W + CatchUp)/T + n_max - 1, where the burst B is 1
				if window := d.at - first.at; time.Duration(sum-heaviest)*c.unit > window+catchUp {
					x.errorf("%d permits left within %v from %v on", sum, window, first.at)
				}
			}
		}
	})
}

// changes checks that a new rate, a new limit, a pause and its end reach callers that
// wait already. Without the change they would wait for an hour.
func changes(c *check) {
	c.scene("a new rate", Limits{Interval: c.long}, func(x *crowd) {
		if !x.s.Paced {
			return
		}
		for who := range 5 {
			x.do(x.ctx, who, Ask{}, nil)
		}
		x.sleep(max(0, x.origin-x.now()) + x.s.Late + c.unit)
		x.wantLeft(0, x.origin)
		changed := x.now()
		for _, l := range x.s.Levels {
			if l.Paced {
				x.must(l.SetRate(sluice.Rate{Count: 1, Per: c.unit / 10}))
			}
		}
		x.finish()
		for who := 1; who < 5; who++ {
			x.wantLeft(who, changed+time.Duration(who-1)*c.unit/10)
		}
		x.wantOrder(0, 1, 2, 3, 4)
	})
	for i, level := range c.levels() {
		if !level.Roomy {
			continue
		}
		c.scene("a new limit of "+level.Name, Limits{Interval: c.unit, Room: 9}, func(x *crowd) {
			l, done := x.s.Levels[i], make(chan struct{})
			x.must(l.SetConcurrency(1))
			for who := range 3 {
				x.do(x.ctx, who, Ask{}, x.until(done))
			}
			x.sleep(max(0, x.origin-x.now()) + x.s.Late + 5*c.unit)
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
	for i, level := range c.levels() {
		c.scene("a pause of "+level.Name+" and its end", Limits{Interval: c.unit}, func(x *crowd) {
			l := x.s.Levels[i]
			x.rest()
			l.PauseUntil(time.Now().Add(c.long), "on purpose")
			for who := range 3 {
				x.do(x.ctx, who, Ask{}, nil)
			}
			x.sleep(max(0, x.origin-x.now()) + 3*c.unit)
			if n := len(x.departures()); n != 0 {
				x.errorf("%d calls left during the pause", n)
			}
			resumed := x.now()
			l.Resume()
			x.finish()
			x.wantLeft(0, max(resumed, x.origin))
			x.wantOrderIf(x.s.Paced, 0, 1, 2)
		})
		c.scene("a pause of "+level.Name+" for callers that wait", Limits{Interval: 10 * c.unit}, func(x *crowd) {
			if !x.s.Paced {
				return
			}
			for who := range 3 {
				x.do(x.ctx, who, Ask{}, nil)
			}
			x.sleep(max(0, x.origin-x.now()) + x.s.Late + c.unit)
			end := x.now() + 30*c.unit
			x.s.Levels[i].PauseUntil(x.start.Add(end), "on purpose")
			x.finish()
			x.wantLeft(1, end)
			x.wantLeft(2, end+10*c.unit)
		})
	}
}

// wantOrderIf is wantOrder where calls do not leave at one instant.
func (x *crowd) wantOrderIf(apart bool, want ...int) {
	if apart {
		x.wantOrder(want...)
	}
}
