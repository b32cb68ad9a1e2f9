package main

import (
	"math/rand/v2"
	"slices"
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

// An entry is a strategy of the table: a policy in the event-driven twin, or a library,
// which runs in a bubble.
type entry struct {
	name    string
	make    func(w *World, r *rand.Rand) strategy
	library func(p *process) caller
}

// play plays a game, with the twin or in a bubble.
func (e entry) play(w *World, seed uint64, in bubbler) *game {
	if e.library != nil {
		return playInBubble(w, e, seed, in)
	}
	return play(w, e, seed)
}

var entries = []entry{
	{name: "naive", make: func(*World, *rand.Rand) strategy { return naive{} }},
	{name: "backoff", make: func(_ *World, r *rand.Rand) strategy { return &backoff{r: r} }},
	{name: "pacer-told", make: func(w *World, r *rand.Rand) strategy { return newTold(w, r, 1) }},
	{name: "pacer-double", make: func(w *World, r *rand.Rand) strategy { return newTold(w, r, 2) }},
	{name: "pacer-half", make: func(w *World, r *rand.Rand) strategy { return newTold(w, r, .5) }},
	{name: "aws-adaptive", make: func(_ *World, r *rand.Rand) strategy { return newAWS(r) }},
	{name: "xtime-told", library: xtime(1)},
	{name: "xtime-double", library: xtime(2)},
	{name: "xtime-half", library: xtime(.5)},
	{name: "sluice-told", library: sluiceTold},
}

// choose returns the entries with these names, or all.
func choose(names []string) []entry {
	if len(names) == 0 {
		return entries
	}
	var some []entry
	for _, e := range entries {
		if slices.Contains(names, e.name) {
			some = append(some, e)
		}
	}
	return some
}

// play runs a strategy in a world, once.
func play(w *World, e entry, seed uint64) *game {
	l, d := &loop{}, newDice(seed)
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
