package promise

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/sluice-go/sluice"
)

// oneAdmission blocks each limit in turn. A call must not leave then, and must not
// have taken anything from the others; and it starts when the limit is free.
func oneAdmission(c *check) {
	whileAsked(c)
	for i, level := range c.levels() {
		for _, name := range c.blocks(level) {
			c.scene(level.Name+" is held up by "+name, Limits{Interval: c.usual, Room: 4}, func(x *crowd) {
				free := x.block(x.s.Levels[i], name)
				before := x.state()
				x.do(x.ctx, 1, Ask{Within: c.usual / 2}, nil)
				x.finishOf(1)
				if e, _ := x.wantEnded(1); e.err == nil {
					x.errorf("a call left")
				}
				if after := x.state(); after != before {
					x.errorf("a call that was refused took something:\n\t%s, before it\n\t%s", after, before)
				}
				free()
				x.do(x.ctx, 2, Ask{Within: 100 * c.long}, nil)
				x.finish()
				if e, _ := x.wantEnded(2); e.err != nil {
					x.errorf("when the limit was free: %v", e.err)
				}
			})
		}
	}
}

// whileAsked pauses a gate while a call asks a limit that is a round trip away, or cancels
// the call. It must not have taken anything until it starts.
func whileAsked(c *check) {
	for i, level := range c.levels() {
		for _, how := range []string{"is paused", "stays, and the call is cancelled"} {
			c.scene(level.Name+" "+how+" while it asks a quota", Limits{Interval: c.usual, Room: 4}, func(x *crowd) {
				if x.real || x.s.Late == 0 {
					return // there is no such while
				}
				x.do(x.ctx, 0, Ask{}, nil)
				x.finishOf(0)
				x.rest()
				before, end := x.taken(), x.now()+5*c.usual
				ctx, cancel := context.WithCancel(x.ctx)
				defer cancel()
				x.do(ctx, 1, Ask{}, nil)
				if how == "is paused" {
					x.s.Levels[i].PauseUntil(x.start.Add(end), "on purpose")
				} else {
					cancel()
				}
				x.sleep(c.usual)
				if after := x.taken(); after != before {
					x.errorf("a call that has not left took something:\n\t%s, before it\n\t%s", after, before)
				}
				if how == "is paused" {
					x.finishOf(1)
					x.wantLeft(1, end)
				} else if e, _ := x.wantEnded(1); e.err == nil {
					x.errorf("a call left that was cancelled")
				}
			})
		}
	}
}

// levels returns the levels of the subjects, to choose from.
func (c *check) levels() (levels []*Level) {
	c.scene("levels", Limits{Interval: c.usual, Room: 4}, func(x *crowd) { levels = x.s.Levels })
	return levels
}

// blocks returns the names of the ways in which a level can delay a call.
func (c *check) blocks(l *Level) (names []string) {
	names = append(names, "a pause")
	if l.Paced {
		names = append(names, "the rate")
	}
	if l.Roomy {
		names = append(names, "the room in flight")
	}
	for _, q := range l.Quotas {
		names = append(names, q.Name)
	}
	for name := range l.Blocks {
		names = append(names, name)
	}
	return names
}

// block makes a level delay calls, and returns a function that ends that. No other limit
// is used up then.
func (x *crowd) block(l *Level, name string) (free func()) {
	x.do(x.ctx, 0, Ask{}, nil) // a slot that the rate is counted from
	x.finishOf(0)
	switch name {
	case "a pause":
		x.rest()
		l.PauseUntil(time.Now().Add(x.long), "on purpose")
		return l.Resume
	case "the rate":
		x.must(l.SetRate(sluice.Rate{Count: 1, Per: x.long}))
		for _, other := range x.s.Levels {
			if other != l {
				x.sleep(max(0, time.Until(other.Stats().NextSlot)))
			}
		}
		return func() { x.must(l.SetRate(sluice.Rate{Count: 1, Per: x.usual})) }
	case "the room in flight":
		x.must(l.SetConcurrency(1))
		done := make(chan struct{})
		x.do(x.ctx, -1, Ask{}, x.until(done))
		x.awaitLeft(-1)
		x.rest()
		return func() {
			close(done)
			x.finishOf(-1)
			x.must(l.SetConcurrency(4))
		}
	}
	x.rest()
	if undo := l.Blocks[name]; undo != nil {
		return undo()
	}
	for _, q := range l.Quotas {
		if q.Name == name {
			n := q.Left()
			q.Take(n)
			return func() { q.Take(-n) }
		}
	}
	panic("no such block: " + name)
}

// awaitLeft waits until a caller has left. It looks less often if that takes long.
func (x *crowd) awaitLeft(caller int) {
	since := x.now()
	for limit := since + x.longest(); x.leftAt(caller, 0) < 0; x.sleep(max(x.usual/2, (x.now()-since)/50)) {
		if x.ctx.Err() != nil || x.now() > limit {
			x.errorf("call %d does not leave", caller)
			return
		}
	}
}

func (x *crowd) must(err error) {
	if err != nil {
		x.errorf("%v", err)
	}
}

// conservation lets a crowd succeed, fail, panic, be canceled and time out. Then
// everything must be where it was, and calls that started must have been counted once.
func conservation(c *check) {
	const callers = 60
	c.scene("a crowd", Limits{Interval: c.usual / 10, Room: 3}, func(x *crowd) {
		left := map[string]int64{}
		for _, l := range x.s.Levels {
			for _, q := range l.Quotas {
				left[l.Name+q.Name] = q.Left()
			}
			left[l.Name] = int64(l.Stats().Admitted)
		}
		// Numbers are drawn here: the callers run in any order.
		r := rand.New(rand.NewPCG(13, 1))
		var cancels sync.WaitGroup
		for caller := range callers {
			ctx, cancel := context.WithCancel(x.ctx)
			ask, hold := Ask{}, time.Duration(r.IntN(4))*c.usual/8
			if r.IntN(3) == 0 {
				ask.Within = time.Duration(1+r.IntN(40)) * c.usual / 10
			}
			if r.IntN(3) == 0 {
				after := time.Duration(r.IntN(20)) * c.usual / 10
				cancels.Go(func() { x.sleep(after); cancel() })
			}
			fails, panics := r.IntN(4) == 0, r.IntN(8) == 0
			x.begin(caller, func() (err error) {
				defer cancel()
				defer func() {
					if v := recover(); v != nil {
						err = fmt.Errorf("panic: %v", v)
					}
				}()
				return x.s.Do(ctx, ask, x.attempt(caller, func() error {
					x.sleep(hold)
					if panics && !x.s.Remote { // there it would be a server that does
						panic("a panic of the call")
					}
					if fails {
						return errors.New("an error of the call")
					}
					return nil
				}))
			})
		}
		x.finish()
		cancels.Wait()
		x.wantConserved(left, callers)
	})
}

// wantConserved checks that nothing is in flight, and that each level and quota has counted
// each call that started once. left is their amount before.
func (x *crowd) wantConserved(left map[string]int64, callers int64) {
	ran := int64(len(x.departures()))
	if ran == 0 || ran == callers && !x.real { // a slow machine may cancel none in time
		x.errorf("%d of %d calls left: nothing is shown", ran, callers)
	}
	if x.most > 3 && !x.s.Remote {
		x.errorf("%d in flight, want at most 3", x.most)
	}
	for _, l := range x.s.Levels {
		s := l.Stats()
		if s.InFlight != 0 || s.Pacing+s.Waiting != 0 || s.Unreturned != 0 {
			x.errorf("%s at the end: %+v", l.Name, s)
		}
		if got := int64(s.Admitted) - left[l.Name]; got < ran || got > ran && !x.s.Remote {
			x.errorf("%s let %d calls through, %d left", l.Name, got, ran)
		}
		for _, q := range l.Quotas {
			if got, want := left[l.Name+q.Name]-q.Left(), ran*q.cost(); got < want || got > want && !x.s.Unsure {
				x.errorf("%s: %d calls left, and %d are missing", q.Name, ran, got)
			}
		}
	}
}

func (q Quota) cost() int64 { return max(1, q.Cost) }
