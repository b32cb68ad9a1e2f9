package main

import (
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"strings"
	"time"
)

// This file has worlds in which a stranger takes the whole limit, or more, and does not yield: -strangers.
// Such a stranger ignores refusals, and a refusal costs nothing but, in half of the worlds, the second that it asks for.

// besidesSeconds is how long each of these worlds lasts.
const besidesSeconds = 600

// besidesWorlds returns a world for each kind of limiter, limit, hint and stranger.
func besidesWorlds() []*World {
	var all []*World
	for _, kind := range []string{"bucket", "window", "log"} {
		for _, rate := range []float64{20, 100} {
			for _, hint := range []Hint{{Kind: "none"}, {Kind: "fixed", Value: 1}} {
				for _, others := range []string{"1.0x", "1.2x", "2.0x", "greedy"} {
					all = append(all, besides(kind, rate, hint, others))
				}
			}
		}
	}
	return all
}

func besides(kind string, rate float64, hint Hint, others string) *World {
	said := "bare"
	if hint.Kind == "fixed" {
		said = "told"
	}
	w := &World{
		Name: fmt.Sprintf("%s-%g-%s-%s", kind, rate, others, said), Seconds: besidesSeconds, Span: 10, Told: rate,
		Service: Service{Kind: "uniform", Mean: .03, Spread: .1}, Hint: hint, Demand: Demand{Workers: 64},
	}
	w.Network.RTT, w.Network.Jitter = .04, .01
	half := rate / 2 * w.Seconds // an equal share
	w.Best = &half
	if kind == "bucket" {
		w.Limiters = []Limiter{{Kind: kind, Rate: rate, Burst: rate / 2}}
	} else {
		w.Limiters = []Limiter{{Kind: kind, Count: rate, Seconds: 1}}
	}
	w.Strangers = &Strangers{On: w.Seconds, Even: true}
	switch others {
	case "greedy": // as many workers as are served at twice the limit, if none of their calls is refused
		w.Strangers = &Strangers{Workers: int(math.Ceil(2 * rate * (w.Network.RTT + w.Network.Jitter/2 + w.Service.Mean)))}
	default:
		var times float64
		fmt.Sscanf(others, "%gx", &times)
		w.Strangers.Rate = times * rate
	}
	return w
}

// A steady client calls at one pace, whatever is refused, and pauses for as long as a refusal asks.
type steady struct {
	pace        float64
	next, until time.Duration
}

func (s *steady) leave(now time.Duration, _ int, cost float64) (ticket, time.Duration) {
	if at := max(s.next, s.until); at > now {
		return nil, at
	}
	s.next = max(s.next, now-time.Millisecond) + seconds(cost/s.pace)
	return s, now
}

func (s *steady) done(now time.Duration, _ ticket, r reply) {
	if r.outcome == refused && r.retryAfter > 0 {
		s.until = max(s.until, now+r.retryAfter)
	}
}

func (s *steady) retry(int, reply) time.Duration { return 0 }

// tolerable is the share of its calls that a client beside a stranger may have refused.
const tolerable = .3

// enough is the share of an equal share that the client should be granted, where an oracle is.
const enough = .4

// A lot is what a client was granted beside a stranger, as a share of an equal share, and the share of its calls that
// was refused.
type lot struct{ granted, refused float64 }

func (l lot) good() bool { return l.granted >= enough && l.refused <= tolerable }

func (l lot) String() string {
	mark := ""
	if l.good() {
		mark = "**"
	}
	return fmt.Sprintf("%s%.0f/%.0f%s", mark, 100*l.granted, 100*l.refused, mark)
}

// oracle returns the lot, in a world, of the steady client that is granted most of those that have no more than tolerable
// refused. If there is none it is that of the one that has least refused.
func oracle(w *World, seeds int) lot {
	var best lot
	const least, most, step = .02, 4, 1.1
	for share := least; share <= most; share *= step {
		var one lot
		for seed := range seeds {
			s := play(w, entry{make: func(w *World, _ *rand.Rand) strategy {
				return &steady{pace: share * w.Told / 2}
			}}, uint64(seed+1)).score("oracle", uint64(seed+1))
			one.granted += s.Goodput / float64(seeds)
			one.refused += s.Refused / float64(seeds)
		}
		switch tolerated := one.refused <= tolerable; {
		case best == lot{}, tolerated && (best.refused > tolerable || one.granted > best.granted),
			!tolerated && one.refused < best.refused:
			best = one
		}
	}
	return best
}

// printBesides writes a row for each world, with what the oracle and each strategy were granted and refused.
func printBesides(out io.Writer, worlds []*World, scores []Score, seeds int) {
	t := newTable(scores)
	fmt.Fprintf(out, "| world | oracle | %s |\n| --- | ---: |%s\n", strings.Join(t.strategies, " | "), strings.Repeat(" ---: |", len(t.strategies)))
	good, sum := make([]int, len(t.strategies)+1), make([]float64, len(t.strategies)+1)
	for _, w := range worlds {
		best := oracle(w, seeds)
		row := []lot{best}
		for _, s := range t.strategies {
			c := t.cells[[2]string{w.Name, s}]
			row = append(row, lot{c.Goodput / float64(c.runs), c.Refused / float64(c.runs)})
		}
		fmt.Fprintf(out, "| %s |", w.Name)
		for i, l := range row {
			fmt.Fprintf(out, " %v |", l)
			if best.good() {
				sum[i] += l.granted
				if l.good() {
					good[i]++
				}
			}
		}
		fmt.Fprintln(out)
	}
	fmt.Fprint(out, "| where the oracle can: as many |")
	for i := range good {
		fmt.Fprintf(out, " %d, mean %.0f |", good[i], 100*sum[i]/max(1, float64(good[0])))
	}
	fmt.Fprintln(out)
}
