package main

import (
	"math/rand/v2"
	"time"
)

// A strategy decides when the calls of one process leave. This one runs in the
// event-driven twin; a strategy that needs goroutines, such as a real gate, can drive the
// same upstream from a testing/synctest bubble.
type strategy interface {
	// leave asks whether a call of cost may leave at now, with inFlight others out. If
	// it may, at is not after now, and t comes back in done. If not, at is when to ask
	// again; never: after the next reply.
	leave(now time.Duration, inFlight int, cost float64) (t ticket, at time.Duration)
	// done is the reply to a call.
	done(now time.Duration, t ticket, r reply)
	// retry returns how long a call waits before it queues again after its n-th attempt.
	retry(n int, r reply) time.Duration
}

// A ticket is what a strategy wants to remember of a call.
type ticket any

// play runs a strategy in a world, once.
func play(w *World, e entry, seed uint64) *game {
	l, d := &loop{}, newDice(seed+w.Dice)
	g := &game{world: w, upstream: newUpstream(w, l, d)}
	for i := range max(1, w.Processes) {
		own := rand.New(rand.NewPCG(seed, 1000+uint64(i)))
		c := &client{
			world: w, clock: l, dice: d, upstream: g.upstream, strategy: e.make(w, own),
			log: &log{}, open: map[*wish]struct{}{}, wakeAt: never,
		}
		g.clients = append(g.clients, c)
		l.at(seconds(float64(i)*w.Stagger), c.start)
	}
	l.run(seconds(w.Seconds), g.over)
	g.end = l.now()
	return g
}

// A game is a world with what happened in it.
type game struct {
	world    *World
	upstream *upstream
	clients  []*client
	end      time.Duration
}

// over reports whether all items are done.
func (g *game) over() bool {
	items := g.world.Demand.Items
	if items == 0 {
		return false
	}
	for _, c := range g.clients {
		if c.granted < items {
			return false
		}
	}
	return true
}
