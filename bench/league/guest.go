package main

import (
	"math/rand/v2"
	"time"

	"github.com/sluice-go/sluice/bench/league/guests"
)

// The guests come after our own entries.
func init() {
	for _, g := range guests.All {
		if len(choose([]string{g.Name})) > 0 {
			panic("league: a guest has the name of another entry: " + g.Name)
		}
		entries = append(entries, entry{
			name: g.Name, about: g.About,
			make: func(w *World, r *rand.Rand) strategy {
				return guest{g.New(guests.World{Told: w.Told, Rand: r})}
			},
		})
	}
}

// A guest is a strategy of package guests in the event-driven twin.
type guest struct{ guests.Strategy }

func (g guest) leave(now time.Duration, inFlight int, cost float64) (ticket, time.Duration) {
	switch at := g.Leave(now, inFlight, cost); {
	case at <= now:
		return guests.Call{Left: now, InFlight: inFlight, Cost: cost}, 0
	case at == guests.Never:
		return nil, never
	default:
		return nil, at
	}
}

func (g guest) done(now time.Duration, t ticket, r reply) {
	c := t.(guests.Call)
	c.Ended, c.Reply = now, shown(r)
	g.Done(c)
}

func (g guest) retry(n int, r reply) time.Duration { return g.Retry(n, shown(r)) }

// shown is a reply as guests see it.
func shown(r reply) guests.Reply {
	return guests.Reply{OK: r.outcome == granted, Throttled: r.outcome == refused, RetryAfter: max(0, r.retryAfter)}
}
