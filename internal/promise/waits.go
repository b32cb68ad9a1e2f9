package promise

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/limits"
)

// neverEarly lets a server throttle a call and set a wait, in each way in which it can. No
// call starts before its end; if the wait is for this call alone, others may.
func neverEarly(c *check) {
	c.scene("PauseUntil", Limits{Interval: c.usual}, func(x *crowd) {
		for _, l := range x.s.Levels {
			end := x.now() + 20*c.usual
			l.PauseUntil(x.start.Add(end), "on purpose")
			caller := len(x.departures())
			x.do(x.ctx, caller, Ask{}, nil)
			x.finishOf(caller)
			x.wantLeft(caller, max(end, x.origin))
		}
	})
	for _, way := range c.ways() {
		c.scene(fmt.Sprintf("a wait set by status %d", way.Status), c.refusing(), func(x *crowd) {
			wait, said := x.refuse(way, 3)
			x.finish()
			all := x.departures()
			if len(all) == 0 {
				x.errorf("no call left")
				return
			}
			for _, d := range all[1:] {
				if d.at < said+wait.After && (d.caller == 0 || !wait.Alone) {
					x.errorf("call %d left at %v, the server said %v at %v", d.caller, d.at, wait.After, said)
				}
			}
			if err := x.errOf(0); x.leftAt(0, 1) < 0 && !errors.Is(err, sluice.ErrBudget) {
				x.errorf("the refused call did not leave again: %v", err)
			}
			if !wait.Alone {
				x.wantLeft(1, said+wait.After)
			}
		})
	}
}

// refusing returns limits for a scene in which a server rejects. There is room for one, so
// that the others cannot start before the server has answered.
func (c *check) refusing() Limits {
	backoff := sluice.Constant(c.usual / 10)
	return Limits{Interval: c.usual, Room: 1, Policy: sluice.RetryPolicy{Backoff: backoff, ThrottleBackoff: backoff}}
}

// ways returns how a server can set a wait for a subject of this setup.
func (c *check) ways() (ways []ServerWait) {
	c.scene("ways", c.refusing(), func(x *crowd) {
		switch ways = x.s.Ways; {
		case x.s.Call == nil:
		case ways == nil:
			ways = []ServerWait{{}}
		}
	})
	return ways
}

// refuse lets call 0 be rejected while so many others wait behind it, and returns the wait
// that the server set, and when it did.
func (x *crowd) refuse(way ServerWait, others int) (wait *ServerWait, said time.Duration) {
	wait = &way
	if wait.After == 0 {
		wait.After = 30 * x.usual
		if x.s.Coarse {
			wait.After = max(time.Second, wait.After)
		}
	}
	ready, spoken := make(chan struct{}), make(chan struct{})
	first := true
	x.call(x.ctx, 0, func() error {
		if !first {
			return nil
		}
		first = false
		_ = x.until(ready)()
		said = x.now()
		close(spoken)
		return wait
	})
	// The others may wait for the end of a pause as well; the order in which they came is known.
	for caller := 1; caller <= others; caller++ {
		x.call(x.ctx, caller, nil)
	}
	close(ready)
	select {
	case <-spoken:
	case <-x.ctx.Done():
	case <-time.After(x.longest()):
		x.errorf("the first call did not leave")
	}
	return wait, said
}

// noHerd lets many callers wait for the end of a pause. They start one interval apart;
// without a rate one starts first, and no more than two for each answer.
func noHerd(c *check) {
	const callers = 16
	type ending struct {
		name string
		end  func(x *crowd, l *Level) time.Duration // returns the time of the end
	}
	for _, how := range []ending{
		{"its end", func(x *crowd, l *Level) time.Duration { return x.now() }},
		{"Resume", func(x *crowd, l *Level) time.Duration { now := x.now(); l.Resume(); return now }},
	} {
		for i, level := range c.levels() {
			c.scene(how.name+" of a pause of "+level.Name, Limits{Interval: c.usual}, func(x *crowd) {
				l := x.s.Levels[i]
				x.rest()
				ends := x.now() + max(20*c.usual, 2*(x.origin-x.now()))
				l.PauseUntil(x.start.Add(ends), "on purpose")
				for caller := range callers {
					x.do(x.ctx, caller, Ask{}, x.hold(c.usual))
				}
				if how.name == "Resume" {
					x.sleep(c.usual)
					ends = max(x.origin, min(ends, how.end(x, l)))
				}
				x.finish()
				x.apart(ends, x.late())
			})
		}
	}
	c.scene("calls without an answer", Limits{Interval: c.usual}, func(x *crowd) {
		if x.s.Paced || x.s.Pace > 0 || x.real {
			return
		}
		x.s.Levels[0].PauseUntil(time.Now().Add(c.usual), "on purpose")
		for caller := range 3 {
			x.do(x.ctx, caller, Ask{}, x.hold(c.long))
		}
		x.finish()
		for caller := range 3 {
			x.wantLeft(caller, c.usual+time.Duration(caller)*10*time.Second)
		}
	})
	noHerdAfterServerWait(c, callers)
}

func noHerdAfterServerWait(c *check, callers int) {
	if len(c.ways()) == 0 {
		return
	}
	c.scene("the end of a server wait", c.refusing(), func(x *crowd) {
		for _, l := range x.s.Levels {
			if l.Roomy {
				x.must(l.SetConcurrency(1))
			}
		}
		wait, said := x.refuse(c.ways()[0], callers)
		x.awaitPause(said + wait.After)
		for _, l := range x.s.Levels {
			if l.Roomy {
				x.must(l.SetConcurrency(int64(2 * callers)))
			}
		}
		x.finish()
		x.mu.Lock()
		x.left = x.left[1:] // the one that was rejected
		for i := range x.left {
			x.left[i].answered--
		}
		x.mu.Unlock()
		late := x.late()
		if x.s.Pace > 0 { // it has learned from the throttled call
			late = x.long
		}
		x.apart(said+wait.After, late)
	})
}

// awaitPause waits until a gate is paused, or until the pause must be over.
func (x *crowd) awaitPause(end time.Duration) {
	paused := func(l *Level) bool { return !l.Stats().PausedUntil.IsZero() }
	for !slices.ContainsFunc(x.s.Levels, paused) && x.ctx.Err() == nil && x.now() < end {
		x.sleep(50 * time.Microsecond)
	}
	if !x.real && x.now() >= end {
		x.errorf("no gate is paused")
	}
}

// apart checks that the calls did not leave in a herd from a time on. With a rate, the first
// leaves then and each other one an interval after the one before, or so much later.
func (x *crowd) apart(from, late time.Duration) {
	all := x.departures()
	for k, d := range all {
		switch at := from + time.Duration(k)*x.usual; {
		case d.at < from:
			x.errorf("call %d left at %v, before the end of the pause at %v", d.caller, d.at, from)
		case x.s.Paced && d.at < at:
			x.errorf("the call %d places after the first left at %v, before %v", k, d.at, at)
		case x.s.Paced && !x.real && d.at > at+late:
			x.errorf("the call %d places after the first left at %v, later than %v", k, d.at, at+late)
		case !x.s.Paced && x.s.Pace > 0 && k > 0 && d.at <= all[k-1].at && !x.real:
			x.errorf("the call %d places after the first left with the one before, at %v", k, d.at)
		case !x.s.Paced && x.s.Pace == 0 && k > 2*d.answered:
			x.errorf("%d calls had left at %v, after %d answers: a herd", k+1, d.at, d.answered)
			return
		}
	}
}

// neverHopeless makes calls whose wait is known not to fit. They fail before it begins,
// and the error has the wait that was needed. A wait that may end at any time is not a
// reason to reject.
func neverHopeless(c *check) {
	c.scene("a slot", Limits{Interval: c.long}, func(x *crowd) {
		if !x.s.Paced {
			return
		}
		x.do(x.ctx, 0, Ask{}, nil)
		x.finishOf(0)
		need := x.leftAt(0, 0) + c.long - x.now()
		x.wantHopeless(1, c.long/2, need, 0)
		x.behindOne(func() { x.wantHopeless(3, c.long/2, need, c.long) })
	})
	c.scene("a wait that fits", Limits{Interval: 10 * c.usual}, func(x *crowd) {
		if !x.s.Paced || x.real {
			return
		}
		x.do(x.ctx, 0, Ask{}, nil)
		x.finishOf(0)
		x.do(x.ctx, 1, Ask{Within: 10*c.usual + x.s.Late + 1}, nil)
		x.finish()
		x.wantLeft(1, x.leftAt(0, 0)+10*c.usual-x.s.Late)
	})
	for i, level := range c.levels() {
		c.scene("a pause of "+level.Name, Limits{Interval: c.usual}, func(x *crowd) {
			x.rest()
			end := x.now() + c.long
			x.s.Levels[i].PauseUntil(x.start.Add(end), "on purpose")
			x.wantHopeless(1, c.long/2, end-x.now(), 0)
			x.behindOne(func() { x.wantHopeless(3, c.long/2, end-x.now(), c.usual) })
		})
		for _, q := range level.Quotas {
			c.scene(q.Name+" of "+level.Name, Limits{Interval: c.usual}, func(x *crowd) {
				free := x.block(x.s.Levels[i], q.Name)
				defer free()
				x.behindOne(func() { x.wantHopeless(3, c.long/2, c.long/2, 1000*time.Hour) })
			})
		}
		if !level.Roomy {
			continue
		}
		c.scene("room of "+level.Name, Limits{Interval: c.usual, Room: 4}, func(x *crowd) {
			free := x.block(x.s.Levels[i], "the room in flight")
			at := x.now()
			x.do(x.ctx, 1, Ask{Within: 5 * c.usual}, nil)
			x.finishOf(1)
			e, _ := x.wantEnded(1)
			switch {
			case !errors.Is(e.err, context.DeadlineExceeded):
				x.errorf("no room in time: %v", e.err)
			case e.at < at+5*c.usual:
				x.errorf("refused after %v of %v: permits could have come back: %v", e.at-at, 5*c.usual, e.err)
			}
			free()
			x.finish()
		})
	}
	spacingMayEnd(c)
}

// behindOne calls f while caller 2 waits, who waits for as long as it takes.
func (x *crowd) behindOne(f func()) {
	if x.real { // it is not known when it has asked
		return
	}
	ctx, cancel := context.WithCancel(x.ctx)
	x.do(ctx, 2, Ask{}, nil)
	x.sleep(4 * x.s.Late) // until it has asked limits that are far away
	f()
	cancel()
	x.finishOf(2)
}

// wantHopeless makes a call that must be rejected immediately, because it would have to wait for
// need, and for up to more because of those ahead of it.
func (x *crowd) wantHopeless(caller int, within, need, more time.Duration) {
	before, at := x.state(), x.now()
	x.do(x.ctx, caller, Ask{Within: within}, nil)
	x.finishOf(caller)
	e, _ := x.wantEnded(caller)
	var wait *limits.WaitError
	switch {
	case !errors.As(e.err, &wait) || !errors.Is(e.err, context.DeadlineExceeded):
		x.errorf("a call that cannot leave within %v: %v", within, e.err)
	case !x.real && e.at != at:
		x.errorf("it took %v to say: %v", e.at-at, e.err)
	case x.real && e.at-at >= within:
		x.errorf("it was not refused before its time was over: %v", e.err)
	case wait.Need > need+more || !x.real && wait.Need < need-x.s.Late:
		x.errorf("it would have had to wait %v, by the error %v", need, wait.Need)
	}
	if after := x.state(); after != before {
		x.errorf("a call that was refused took something:\n\t%s, before it\n\t%s", after, before)
	}
}

// spacingMayEnd checks that the spacing of an empty budget rejects no call in advance.
func spacingMayEnd(c *check) {
	c.scene("the spacing of an empty retry budget", Limits{Interval: c.usual / 10}, func(x *crowd) {
		if x.s.Spend == nil {
			return
		}
		x.do(x.ctx, 0, Ask{}, nil)
		x.finishOf(0)
		x.s.Spend(20 * c.usual)
		at := x.now()
		x.do(x.ctx, 1, Ask{Within: 5 * c.usual}, nil)
		x.finishOf(1)
		if e, _ := x.wantEnded(1); e.err != nil && e.at < at+5*c.usual {
			x.errorf("refused after %v of %v: successes could have ended the spacing: %v", e.at-at, 5*c.usual, e.err)
		}
	})
}

// paidRetries lets every call fail. A call may retry three times, but all calls together
// have a budget.
func paidRetries(c *check) {
	const calls = 60
	constant := sluice.Constant(c.usual / 10)
	c.scene("a server that is down", Limits{Interval: c.usual / 10, Policy: sluice.RetryPolicy{Backoff: constant, ThrottleBackoff: constant}}, func(x *crowd) {
		for caller := range calls {
			x.call(x.ctx, caller, func() error { return ErrDown })
			x.finishOf(caller)
			if x.errOf(caller) == nil {
				x.errorf("call %d succeeded", caller)
			}
		}
		// 100 tokens are 20 retries; some come back in time.
		if n := len(x.departures()); n > calls+20+calls/5 || n < calls {
			x.errorf("%d calls made %d attempts", calls, n)
		}
	})
}

// serverWait lets a server set a longer wait than the policy allows. The call, waiting
// calls and later calls stop immediately.
func serverWait(c *check) {
	limits := c.refusing()
	limits.Policy.MaxServerWait = time.Minute
	c.scene("ten minutes", limits, func(x *crowd) {
		_, said := x.refuse(ServerWait{After: 10 * time.Minute}, 3)
		x.finish()
		x.call(x.ctx, 4, nil)
		x.finish()
		if n := len(x.departures()); n != 1 {
			x.errorf("%d attempts left, want one", n)
		}
		for caller := range 5 {
			e, _ := x.wantEnded(caller)
			if !errors.Is(e.err, sluice.ErrServerWait) {
				x.errorf("call %d: %v", caller, e.err)
			}
			if !x.real && e.at != said {
				x.errorf("call %d stopped at %v, the server said it at %v", caller, e.at, said)
			}
		}
	})
}
