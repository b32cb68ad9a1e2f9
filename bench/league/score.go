package main

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// A log is what one process saw.
type log struct {
	sent    int
	births  []arrival // of wishes, by time
	replies []arrival // by time
	waits   []float64 // from wish to success
}

type arrival struct {
	at      float64
	cost    float64
	outcome outcome
}

func (l *log) born(w *wish) {
	l.births = append(l.births, arrival{at: w.born.Seconds(), cost: w.cost})
}

func (l *log) reply(now time.Duration, w *wish, r reply) {
	l.replies = append(l.replies, arrival{now.Seconds(), w.cost, r.outcome})
	if r.outcome == granted {
		l.waits = append(l.waits, (now - w.born).Seconds())
	}
}

// A Score is what one run is worth. README.md says how each figure is computed.
type Score struct {
	World    string   `json:"world"`
	Strategy string   `json:"strategy"`
	Seed     uint64   `json:"seed"`
	Score    float64  `json:"score"`
	Goodput  float64  `json:"goodput"`
	Refused  float64  `json:"refused"`
	P99      float64  `json:"p99_s"`
	Adapt    *float64 `json:"adapt_s"` // nil: never
	After    float64  `json:"after,omitempty"`
	Jain     float64  `json:"jain"`
	Harm     float64  `json:"harm"`

	adapts    []float64 // one for each change; NaN: never
	processes int
}

func (g *game) score(strategy string, seed uint64) Score {
	s := Score{World: g.world.Name, Strategy: strategy, Seed: seed}
	s.Goodput = g.goodput()
	s.Refused = g.refused()
	s.Score = 100 * math.Min(1, s.Goodput) * (1 - s.Refused)
	s.P99 = g.p99()
	s.adapts = g.adapt()
	s.Adapt = slowest(s.adapts)
	if n := len(g.world.ChangeAt); n > 0 {
		s.After = g.after(g.world.ChangeAt[n-1])
	}
	s.Jain, s.processes = g.jain(), len(g.clients)
	if u := g.upstream; u.strangersAsked > 0 {
		s.Harm = float64(u.strangersRefused) / float64(u.strangersAsked)
	}
	return s
}

// grantedIn returns the cost that was granted to a process in [from, to).
func (l *log) grantedIn(from, to float64) float64 {
	sum := 0.0
	for _, r := range l.replies {
		if r.outcome == granted && r.at >= from && r.at < to {
			sum += r.cost
		}
	}
	return sum
}

func (g *game) goodput() float64 {
	w := g.world
	var got, wanted float64
	for _, c := range g.clients {
		got += c.log.grantedIn(0, math.Inf(1))
		for _, b := range c.log.births {
			wanted += b.cost
		}
	}
	switch {
	case w.Demand.Items > 0 && g.over():
		return w.Ideal / g.end.Seconds()
	case w.Demand.Items > 0:
		return w.Ideal / w.Seconds * got / float64(w.Demand.Items*len(g.clients))
	case w.Best != nil:
		return got / *w.Best
	}
	return got / wanted
}

func (g *game) refused() float64 {
	var sent, no int
	for _, c := range g.clients {
		sent += c.log.sent
		for _, r := range c.log.replies {
			if r.outcome == refused {
				no++
			}
		}
	}
	return float64(no) / float64(max(1, sent))
}

// p99 counts wishes that are still open with their age, so that a strategy cannot look
// quick by never serving some.
func (g *game) p99() float64 {
	var waits []float64
	for _, c := range g.clients {
		waits = append(waits, c.log.waits...)
		for w := range c.open {
			waits = append(waits, (g.end - w.born).Seconds())
		}
	}
	if len(waits) == 0 {
		return 0
	}
	slices.Sort(waits)
	return waits[len(waits)*99/100]
}

// jain returns Jain's index of fairness over what the processes got in the last third.
func (g *game) jain() float64 {
	var sum, squares float64
	for _, c := range g.clients {
		x := c.log.grantedIn(g.world.Seconds*2/3, math.Inf(1))
		sum += x
		squares += x * x
	}
	if squares == 0 {
		return 0
	}
	return sum * sum / (float64(len(g.clients)) * squares)
}

// adapt returns, for each change, how long it took until a span began in which the
// strategy did well.
func (g *game) adapt() []float64 {
	w := g.world
	var replies []arrival
	for _, c := range g.clients {
		replies = append(replies, c.log.replies...)
	}
	slices.SortStableFunc(replies, func(a, b arrival) int { return cmp.Compare(a.at, b.at) })
	changes := w.ChangeAt
	if len(changes) == 0 {
		changes = []float64{0}
	}
	var all []float64
	for _, change := range changes {
		found := math.NaN()
		for step := 0; ; step++ {
			from := change + float64(step)*w.Span/10
			if from+w.Span > w.Seconds+epsilon {
				break
			}
			if g.well(replies, from, from+w.Span) {
				found = from - change
				break
			}
		}
		all = append(all, found)
	}
	return all
}

// after returns what was granted from the last change on, as a share of what could be.
func (g *game) after(change float64) float64 {
	got := 0.0
	for _, c := range g.clients {
		got += c.log.grantedIn(change, math.Inf(1))
	}
	return got / g.reference(change, g.world.Seconds)
}

// well reports whether in [from, to) at least 80 % of what is possible was granted, or what the
// world says, and at most 20 % of the calls refused.
func (g *game) well(replies []arrival, from, to float64) bool {
	var got, all, no float64
	first, _ := slices.BinarySearchFunc(replies, from, func(a arrival, t float64) int { return cmp.Compare(a.at, t) })
	for _, r := range replies[first:] {
		if r.at >= to {
			break
		}
		all++
		switch r.outcome {
		case granted:
			got += r.cost
		case refused:
			no++
		}
	}
	return got >= cmp.Or(g.world.Well, .8)*g.reference(from, to) && no <= .2*all
}

// reference returns the cost that could be granted in [from, to).
func (g *game) reference(from, to float64) float64 {
	w := g.world
	for _, l := range w.Limiters {
		if len(l.Steps) == 0 {
			continue
		}
		sum := 0.0
		for t := from; t < to-epsilon; {
			rate, until := rateIn(l.rates(), t)
			until = math.Min(until, to)
			sum += rate * (until - t)
			t = until
		}
		return sum
	}
	if w.Best != nil {
		return *w.Best / w.Seconds * (to - from)
	}
	sum := 0.0
	for _, c := range g.clients {
		for _, b := range c.log.births {
			if b.at >= from && b.at < to {
				sum += b.cost
			}
		}
	}
	return sum
}

func slowest(adapts []float64) *float64 {
	most := 0.0
	for _, a := range adapts {
		if math.IsNaN(a) {
			return nil
		}
		most = math.Max(most, a)
	}
	return &most
}
