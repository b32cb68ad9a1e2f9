package promise

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"
)

// # Why a row for throughput?
//
// A gate that admits nobody breaks no other promise: no call is early, nothing is overtaken,
// nothing is lost. Each of the worst defects so far was such a standstill, of two features that
// were right on their own. So whatever a subject has, callers that make one call after the other
// must get 95 % of the calls that a plain gate with the same rate and limit admits in the same
// bubble: immediately, after each thing that can delay them, and at a server whose limit is to be
// found.
const (
	share   = 0.95
	workers = 8
)

// throughput lets callers make calls as fast as they can. Nothing is judged on the real clock,
// which would judge the machine.
func throughput(c *check) {
	if c.real {
		return
	}
	c.compare("at once", func(x *crowd) int { return x.deliver(100*c.usual, nil) })
	for i, level := range c.levels() {
		for _, name := range c.blocks(level) {
			c.compare(fmt.Sprintf("after %s has held %s up", name, level.Name), func(x *crowd) int { return x.afterBlock(i, name) })
		}
	}
	for i, level := range c.levels() {
		c.compare("after a pause of "+level.Name+" that nobody waited for", func(x *crowd) int {
			x.s.Levels[min(i, len(x.s.Levels)-1)].PauseUntil(time.Now().Add(10*c.usual), "on purpose")
			x.sleep(20 * c.usual)
			return x.deliver(100*c.usual, nil)
		})
	}
	if len(c.ways()) == 0 {
		return // no server answers its calls
	}
	// For a gate that learns the rejection is news: it goes on at half of the rate and is back at it
	// after some fifty calls, in about eight seconds. The calls that it admits then are judged.
	c.compare("after a wait that a server set", func(x *crowd) int {
		wait, said := x.refuse(c.ways()[0], 3)
		x.finish()
		x.sleep(said + wait.After - x.now())
		x.deliver(100*c.usual, nil)
		return x.deliver(100*c.usual, nil)
	})
	c.compare("at a server with a limit", (*crowd).findLimit)
}

// compare plays a scene with the subject and with a plain gate that has the same rate and limit.
// play returns the number of served calls.
func (c *check) compare(name string, play func(x *crowd) int) {
	// The limit in flight is above the need of the rate.
	l := Limits{Interval: c.usual, Room: 4, Policy: c.refusing().Policy}
	var got, most int
	c.scene(name, l, func(x *crowd) {
		if !x.s.Paced {
			l.Interval = 0
		}
		if !x.s.Roomy() {
			l.Room = 0
		}
		x.sleep(max(0, x.origin-x.now()))
		got = play(x)
	})
	twin := *c
	twin.setup = plain
	twin.scene(name+", a plain gate", l, func(x *crowd) { most = play(x) })
	c.wrong = twin.wrong
	if float64(got) < share*float64(most) || most == 0 {
		c.errorf("%s: %d calls were served, %d in a plain gate", name, got, most)
	}
}

// deliver lets callers make one call after the other for a time, and returns how many were served.
// A call takes two intervals. f is the answer of a server to it; nil serves all.
func (x *crowd) deliver(d time.Duration, f func() error) (served int) {
	ctx, cancel := context.WithTimeout(x.ctx, d)
	defer cancel()
	var calls sync.WaitGroup
	var mu sync.Mutex
	for range workers {
		calls.Go(func() {
			for ctx.Err() == nil {
				err := x.s.Do(ctx, Ask{}, func() error {
					if f != nil {
						if err := f(); err != nil {
							return err
						}
					}
					x.sleep(2 * x.usual)
					return nil
				})
				if err != nil {
					x.sleep(x.usual / 10) // it may have failed immediately
					continue
				}
				mu.Lock()
				served++
				mu.Unlock()
			}
		})
	}
	calls.Wait()
	return served
}

// afterBlock is deliver after a block of a level. Callers have waited for its end, unless it is a
// quota that does not ring: they would wait as long as it has named, which is 100 h and more. A plain
// gate has no quotas, and so nothing delays it then.
func (x *crowd) afterBlock(level int, name string) int {
	l := x.s.Levels[min(level, len(x.s.Levels)-1)]
	if !slices.Contains(x.blocks(l), name) {
		return x.deliver(100*x.usual, nil)
	}
	free := x.block(l, name)
	ctx, cancel := context.WithCancel(x.ctx)
	defer cancel()
	silent := slices.ContainsFunc(l.Quotas, func(q Quota) bool { return q.Name == name && !q.Rings })
	for caller := range workers {
		if !silent {
			x.do(ctx, 10+caller, Ask{}, nil)
		}
	}
	x.sleep(20 * x.usual)
	free()
	x.sleep(20 * x.usual)
	return x.deliver(100*x.usual, nil)
}

// findLimit is deliver at a server that serves one call in two intervals, and rejects others
// without a time. The gate has to find that out.
func (x *crowd) findLimit() int {
	s := &limitedServer{interval: 2 * x.usual, burst: 5}
	x.deliver(600*x.usual, s.call)
	return x.deliver(600*x.usual, s.call)
}

// A limitedServer is a token bucket.
type limitedServer struct {
	interval time.Duration
	burst    time.Duration

	mu   sync.Mutex
	next time.Time // when the bucket is full again
}

func (s *limitedServer) call() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	next := s.next
	if next.Before(now) {
		next = now
	}
	if next = next.Add(s.interval); next.Sub(now) > s.burst*s.interval {
		return &ServerWait{}
	}
	s.next = next
	return nil
}
