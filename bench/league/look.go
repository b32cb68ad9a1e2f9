package main

import (
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// This file shows what is possible where a server becomes faster and each look for that costs as much as a refusal: in
// the worlds up-… and steady-… of -recovery.

// A looker is an oracle that looks at even intervals. It knows the rate of the first minutes and the burst. A look has
// four times the rate, until a call is refused, or one is granted after more have left than the old rate and twice the
// burst allow. Then it knows the true new rate, and no call was refused.
type looker struct {
	world *World
	every float64 // seconds from a look to the next one
	rate  float64 // that it knows

	next, until time.Duration
	look        time.Duration // when the next look begins
	looking     bool
	asked       float64 // calls of this look
}

// lookTimes is how many times the rate it looks with.
const lookTimes = 4

// newLooker returns one that begins after as many waits as it took refusals to know the rate.
func newLooker(w *World, every float64, refusals int) *looker {
	begin := seconds(float64(refusals) * w.Hint.Value)
	return &looker{world: w, every: every, rate: w.Told, until: begin, look: begin + seconds(every)}
}

// leave implements strategy.
func (k *looker) leave(now time.Duration, _ int, cost float64) (ticket, time.Duration) {
	if at := max(k.next, k.until); at > now {
		return nil, at
	}
	if now >= k.look && !k.looking {
		k.looking, k.asked = true, 0
	}
	pace := k.rate
	if k.looking {
		pace *= lookTimes
		k.asked += cost
	}
	k.next = max(k.next, now-time.Millisecond) + seconds(cost/pace)
	return k.looking, now
}

// done implements strategy.
func (k *looker) done(now time.Duration, t ticket, r reply) {
	l := k.world.Limiters[0]
	switch {
	case r.outcome == refused:
		k.until = max(k.until, now+r.retryAfter)
		k.looking, k.look = false, k.until+seconds(k.every)
	case k.looking && t == true && k.asked > 2*l.Burst+k.rate*(now-k.look).Seconds():
		k.rate, _ = rateIn(l.rates(), now.Seconds())
		k.looking, k.look = false, now+seconds(k.every)
	}
}

// retry implements strategy.
func (k *looker) retry(int, reply) time.Duration { return 0 }

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
