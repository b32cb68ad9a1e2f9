package main

import (
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"slices"
)

// This file has worlds in which a server becomes ten times as fast, or refuses calls for a minute
// although it has room for them: -recovery. A world has a name, and one variant for each random
// instant. Both are what a client must get over that believed something else before.

// recoveryWorlds returns n variants of each world.
func recoveryWorlds(n int, seed uint64) []*World {
	var all []*World
	add := func(name string, make func(w *World, r *rand.Rand)) {
		for i := range n {
			// All worlds of one variant have the same instants.
			r := rand.New(rand.NewPCG(seed, uint64(i)))
			w := &World{Name: name, Dice: seed*1000 + uint64(i), Span: 5, Limiters: []Limiter{}}
			w.Network.RTT, w.Network.Jitter = .04, .01
			w.Service = Service{Kind: "uniform", Mean: .03, Spread: .1}
			make(w, r)
			all = append(all, w)
		}
	}
	for _, h := range []struct {
		name string
		hint Hint
	}{
		{"bare", Hint{Kind: "none"}}, {"ra5", Hint{Kind: "fixed", Value: 5}},
		{"ra30", Hint{Kind: "fixed", Value: 30}}, {"ra60", Hint{Kind: "fixed", Value: 60}},
	} {
		add("up-"+h.name, func(w *World, r *rand.Rand) { w.faster(h.hint, r, upRate) })
		add("steady-"+h.name, func(w *World, r *rand.Rand) { w.faster(h.hint, r, lowRate) })
	}
	for _, share := range []float64{.05, .25, .5, .8} {
		for _, row := range []bool{false, true} {
			pattern := "random"
			if row {
				pattern = "row"
			}
			name := fmt.Sprintf("%.0f-%s", 100*share, pattern)
			incident := Incident{Seconds: 60, Refused: share, Row: row, RetryAfter: 1}
			add("incident-"+name, func(w *World, r *rand.Rand) { w.impair(incident, r) })
			add("limited-"+name, func(w *World, r *rand.Rand) {
				w.Limiters = []Limiter{{Kind: "bucket", Rate: limitedRate, Burst: 20}}
				w.Told = limitedRate
				w.impair(incident, r)
			})
		}
	}
	add("object", func(w *World, _ *rand.Rand) { w.refuseObject() })
	return all
}

const (
	lowRate, upRate = 5., 50. // of a server that becomes faster
	limitedRate     = 100.    // of one with a limit and an incident
)

// faster makes a server of lowRate that grants rate from a random minute on, for an hour.
func (w *World) faster(h Hint, r *rand.Rand, rate float64) {
	const burst = 20
	w.Seconds, w.Hint, w.Told = 3600, h, lowRate
	at := 600 + 600*r.Float64()
	w.ChangeAt = []float64{at}
	w.Limiters = []Limiter{{Kind: "bucket", Rate: lowRate, Burst: burst, Steps: []Step{{at, rate}}}}
	w.Demand.Workers = 64
	best := lowRate*at + rate*(w.Seconds-at) + burst
	w.Best = &best
}

// impair makes a server that refuses calls for a minute, after some minutes in which it has granted
// all that its limit allows, and then grants all of that again for ten minutes.
func (w *World) impair(i Incident, r *rand.Rand) {
	const workers = 16
	i.At = 180 + 240*r.Float64()
	w.Incidents = []Incident{i}
	w.Demand.Workers = workers
	end := i.At + i.Seconds
	w.ChangeAt, w.Well = []float64{end}, .9
	w.Seconds = end + 600
	rate := workers / (w.Network.RTT + w.Network.Jitter/2 + w.Service.Mean)
	if w.Told > 0 {
		rate = math.Min(rate, w.Told)
	}
	best := rate * w.Seconds
	w.Best = &best
}

// refuseObject makes a batch of calls of which one in ten is about an object that refuses half of
// them, at a server without other limits.
//
// A worker waits before it repeats its call, so no client that waits does all calls in the 10 s that
// the answers take. The ideal is that of an oracle: it knows which refusals are the object's, so each of
// them costs its worker one reply and the first backoff of the default policy, and nobody else anything.
// This object would accept a call as soon without the backoff: a client that repeats at once needs 10.5 s.
func (w *World) refuseObject() {
	const (
		workers, items = 10, 1000
		backoff        = .5 // seconds, the mean of sluice.FullJitter from 1 s
	)
	w.Object = &Object{Of: 10, Refused: .5}
	w.Demand.Workers, w.Demand.Items = workers, items
	w.Service = Service{Kind: "uniform", Mean: .055, Spread: .1}
	reply := w.Network.RTT + w.Network.Jitter/2
	again := float64(items/w.Object.Of) * w.Object.Refused / (1 - w.Object.Refused) // refusals, in the mean
	w.Ideal = (items*(reply+w.Service.Mean) + again*(reply+backoff)) / workers
	w.Told = 100
	w.Seconds = 1000
}

// recovered is what printRecovery says of the runs of a strategy in the variants of a world.
type recovered struct {
	score, refused, after float64 // means
	backs                 []float64
}

// soonEnough is in how many seconds after the end of an incident and the last wait that it told
// nearly all of the throughput should be back.
const soonEnough = 60 + 1

// printRecovery writes a row for each world and strategy.
func printRecovery(w io.Writer, scores []Score) {
	fmt.Fprintln(w, "| world | strategy | score | refused | granted after the change | back, median | nine of ten | within 61 s |")
	fmt.Fprintln(w, "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |")
	type key struct{ world, strategy string }
	all := map[key]*recovered{}
	var order []key
	for _, s := range scores {
		k := key{s.World, s.Strategy}
		r := all[k]
		if r == nil {
			r = &recovered{}
			all[k] = r
			order = append(order, k)
		}
		r.score += s.Score
		r.refused += s.Refused
		r.after += s.After
		back := math.Inf(1)
		if s.Adapt != nil {
			back = *s.Adapt
		}
		r.backs = append(r.backs, back)
	}
	slices.SortStableFunc(order, func(a, b key) int { return indexOf(scores, a.world) - indexOf(scores, b.world) })
	for _, k := range order {
		r := all[k]
		n := float64(len(r.backs))
		slices.Sort(r.backs)
		soon := 0.
		for _, b := range r.backs {
			if b <= soonEnough {
				soon++
			}
		}
		fmt.Fprintf(w, "| %s | %s | %.1f | %.1f %% | %.1f %% | %s | %s | %.0f %% |\n", k.world, k.strategy, r.score/n, 100*r.refused/n,
			100*r.after/n, inSeconds(r.backs[len(r.backs)/2]), inSeconds(r.backs[(len(r.backs)*9)/10]), 100*soon/n)
	}
}

func indexOf(scores []Score, world string) int {
	return slices.IndexFunc(scores, func(s Score) bool { return s.World == world })
}

func inSeconds(x float64) string {
	if math.IsInf(x, 1) {
		return "never"
	}
	return fmt.Sprintf("%.1f s", x)
}
