package main

import (
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// This file shows what is possible where a server becomes faster and each look for that costs as much as a rejected call:
// in the worlds up-… and steady-… of -recovery.

// A looker is a steady client, and an oracle, that looks at even intervals. It knows the rate of the first minutes and the burst. A look has
// four times the rate, until a call is refused, or one is granted after more have left than the old rate and twice the
// burst allow. Then it knows the true new rate, and no call was refused.
type looker struct {
	steady
	world   *World
	every   float64       // seconds from a look to the next one
	rate    float64       // that it knows
	look    time.Duration // when the next look begins
	looking bool
	asked   float64 // calls of this look
}

// lookTimes is how many times the rate it looks with.
const lookTimes = 4

// newLooker returns one that begins after a wait for each rejection that it needs to know the rate.
func newLooker(w *World, every float64, refusals int) *looker {
	begin := seconds(float64(refusals) * w.Hint.Value)
	return &looker{steady: steady{until: begin}, world: w, every: every, rate: w.Told, look: begin + seconds(every)}
}

// leave implements strategy.
func (k *looker) leave(now time.Duration, inFlight int, cost float64) (ticket, time.Duration) {
	looking := k.looking || now >= k.look
	k.pace = k.rate
	if looking {
		k.pace *= lookTimes
	}
	t, at := k.steady.leave(now, inFlight, cost)
	if t == nil {
		return nil, at
	}
	if k.looking = looking; looking {
		k.asked += cost
	}
	return looking, at
}

// done implements strategy.
func (k *looker) done(now time.Duration, t ticket, r reply) {
	k.steady.done(now, t, r)
	l := k.world.Limiters[0]
	switch {
	case r.outcome == refused:
		k.looking, k.asked, k.look = false, 0, k.until+seconds(k.every)
	case k.looking && t == true && k.asked > 2*l.Burst+k.rate*(now-k.look).Seconds():
		k.rate, _ = rateIn(l.rates(), now.Seconds())
		k.looking, k.asked, k.look = false, 0, now+seconds(k.every)
	}
}

// printLooks writes what such oracles score with looks at several intervals, in the worlds up-ra… and steady-ra…, with one
// seed.
func printLooks(out io.Writer, worlds []*World) {
	intervals := []float64{150, 300, 600, 900, 1200, 1800}
	isLook := func(w *World) bool {
		return strings.HasPrefix(w.Name, "up-ra") || strings.HasPrefix(w.Name, "steady-ra")
	}
	if !slices.ContainsFunc(worlds, isLook) {
		return
	}
	fmt.Fprint(out, "\n| oracle in | refusals at first |")
	for _, every := range intervals {
		fmt.Fprintf(out, " every %g s |", every)
	}
	fmt.Fprintf(out, "\n| --- | ---: |%s\n", strings.Repeat(" ---: |", len(intervals)))
	for i, w := range worlds {
		if !isLook(w) || i > 0 && worlds[i-1].Name == w.Name {
			continue
		}
		for _, refusals := range []int{0, 2} {
			fmt.Fprintf(out, "| %s | %d |", w.Name, refusals)
			for _, every := range intervals {
				var sum, n float64
				for _, one := range worlds {
					if one.Name != w.Name {
						continue
					}
					e := entry{make: func(w *World, _ *rand.Rand) strategy { return newLooker(w, every, refusals) }}
					sum += play(one, e, 1).score("looker", 1).Score
					n++
				}
				fmt.Fprintf(out, " %.1f |", sum/n)
			}
			fmt.Fprintln(out)
		}
	}
}
