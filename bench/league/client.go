package main

import (
	"math"
	"time"
)

// A wish is a call that somebody wants to succeed. It is sent until it does.
type wish struct {
	number int // counts the wishes of its client
	born   time.Duration
	cost   float64
	tries  int
}

// A client is one process: a queue of wishes and a strategy that says when the first of
// them may leave.
type client struct {
	world    *World
	clock    clock
	dice     *dice
	upstream *upstream
	strategy strategy
	log      *log

	queue    []*wish
	open     map[*wish]struct{} // neither fulfilled nor given up
	inFlight int
	wakeAt   time.Duration // of the earliest timer that is set
	left     int           // items that no worker has taken yet; negative: no end
	granted  int
}

// start begins the demand of this process.
func (c *client) start() {
	d := &c.world.Demand
	c.left = -1
	if len(d.Poisson) > 0 {
		c.arrivals()
		return
	}
	workers := d.Workers
	if d.Items > 0 {
		workers = min(workers, d.Items)
		c.left = d.Items - workers
	}
	for range workers {
		c.add()
	}
	c.pump()
}

// arrivals begins the demand of independent callers.
func (c *client) arrivals() {
	c.nextArrival(func() {
		c.add()
		c.pump()
	})
}

// nextArrival schedules the next independent caller, and then those that follow. The
// exponential has no memory, so where the rate changes the wait is drawn again.
func (c *client) nextArrival(come func()) {
	now := c.clock.now().Seconds()
	rate, until := rateIn(c.world.Demand.Poisson, now)
	next := math.Inf(1)
	if rate > 0 {
		next = now + c.dice.demand.ExpFloat64()/rate
	}
	if next >= until {
		c.clock.at(seconds(until), func() { c.nextArrival(come) })
		return
	}
	c.clock.at(seconds(next), func() {
		come()
		c.nextArrival(come)
	})
}

func (c *client) add() {
	w := &wish{number: len(c.log.births), born: c.clock.now(), cost: 1}
	if x := c.world.Cost; x != nil {
		cost := math.Exp(x.Mu + x.Sigma*c.dice.cost.NormFloat64())
		w.cost = math.Round(math.Max(x.Min, math.Min(x.Max, cost)))
	}
	c.log.born(w)
	c.open[w] = struct{}{}
	c.queue = append(c.queue, w)
}

// pump sends what may leave, and sets a timer for what may leave later.
func (c *client) pump() {
	for len(c.queue) > 0 {
		w, now := c.queue[0], c.clock.now()
		t, at := c.strategy.leave(now, c.inFlight, w.cost)
		if at > now {
			c.wake(at)
			return
		}
		c.queue = c.queue[1:]
		c.inFlight++
		c.log.sent++
		c.upstream.call(w, func(r reply) { c.done(w, t, r) })
	}
}

func (c *client) wake(at time.Duration) {
	if at == never || at >= c.wakeAt && c.wakeAt > c.clock.now() {
		return // no instant, or a timer that comes first
	}
	c.wakeAt = at
	c.clock.at(at, func() {
		if c.wakeAt == at {
			c.wakeAt = never
		}
		c.pump()
	})
}

func (c *client) done(w *wish, t ticket, r reply) {
	now := c.clock.now()
	c.inFlight--
	c.strategy.done(now, t, r)
	c.log.reply(now, w, r)
	if r.outcome == granted {
		delete(c.open, w)
		c.granted++
		c.fulfilled()
	} else {
		w.tries++
		c.clock.at(now+c.strategy.retry(w.tries, r), func() {
			c.queue = append(c.queue, w)
			c.pump()
		})
	}
	c.pump()
}

// fulfilled gives the worker that has got its answer something new to do.
func (c *client) fulfilled() {
	switch {
	case len(c.world.Demand.Poisson) > 0:
	case c.left < 0:
		c.add()
	case c.left > 0:
		c.left--
		c.add()
	}
}
