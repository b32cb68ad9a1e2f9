package main

import (
	"math"
	"slices"
	"testing"
	"time"
)

func TestLoop_RunsInOrder(t *testing.T) {
	l := &loop{}
	var ran []int
	for i, at := range []time.Duration{3, 1, 2, 1, 3, 0} {
		l.at(at, func() { ran = append(ran, i) })
	}
	l.at(1, func() { l.at(0, func() { ran = append(ran, 9) }) }) // the past is now
	l.run(2, func() bool { return false })
	if want := []int{5, 1, 3, 9, 2}; !slices.Equal(ran, want) {
		t.Errorf("ran %v, want %v", ran, want)
	}
	if l.now() != 2 {
		t.Errorf("ended at %v, want 2", l.now())
	}
}

func TestLimiter_Take(t *testing.T) {
	type ask struct {
		at, cost float64
		ok       bool
		wait     float64 // of another call of the same cost, right after
	}
	for _, c := range []struct {
		name string
		l    Limiter
		asks []ask
	}{
		{"bucket", Limiter{Kind: "bucket", Rate: 2, Burst: 2}, []ask{
			{0, 1, true, 0}, {0, 1, true, .5}, {.25, 1, false, .25}, {.5, 1, true, .5}, {9, 2, true, 1}, {9, 3, false, math.Inf(1)},
		}},
		{"a bucket whose rate changes keeps its level", Limiter{Kind: "bucket", Rate: 1, Burst: 4, Steps: []Step{{10, 2}}}, []ask{
			{0, 4, true, 4}, {8, 4, true, 3}, {11, 4, true, 2},
		}},
		{"window", Limiter{Kind: "window", Count: 2, Seconds: 10, Phase: 3}, []ask{
			{0, 1, true, 0}, {6, 1, true, 1}, {6.5, 1, false, .5}, {7, 2, true, 10}, {8, 3, false, math.Inf(1)},
		}},
		{"log", Limiter{Kind: "log", Count: 2, Seconds: 10}, []ask{
			{0, 1, true, 0}, {4, 1, true, 6}, {9, 1, false, 1}, {10, 1, true, 4}, {13, 1, false, 1}, {14, 1, true, 6},
		}},
		{"each call during a ban starts it again", Limiter{Kind: "penalty", Rate: 1, Burst: 1, Ban: 5}, []ask{
			{0, 1, true, 1}, {.5, 1, false, 5}, {5, 1, false, 5}, {10, 1, true, 1},
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := newLimiter(c.l)
			for i, a := range c.asks {
				if ok := l.take(a.at, a.cost); ok != a.ok {
					t.Errorf("%d: at %g took %g: %v", i, a.at, a.cost, ok)
				}
				if w := l.wait(a.at, a.cost); math.Abs(w-a.wait) > epsilon && w != a.wait {
					t.Errorf("%d: at %g must wait %g, want %g", i, a.at, w, a.wait)
				}
			}
		})
	}
}

// send sends a call at an instant and notes when its reply is back.
type answer struct {
	at time.Duration
	reply
}

func ask(w *World, at ...float64) []answer {
	l := &loop{}
	u := newUpstream(w, l, newDice(1))
	got := make([]answer, len(at))
	for i, t := range at {
		l.at(seconds(t), func() {
			u.call(&wish{cost: 1}, func(r reply) { got[i] = answer{l.now(), r} })
		})
	}
	l.run(seconds(w.Seconds), func() bool { return false })
	return got
}

func TestUpstream_Call(t *testing.T) {
	base := func() *World {
		w := &World{Seconds: 100, Service: Service{Kind: "constant", Mean: 1}}
		w.Network.RTT = .2
		return w
	}
	check := func(t *testing.T, got answer, at float64, o outcome, retryAfter float64) {
		t.Helper()
		if math.Abs(got.at.Seconds()-at) > 1e-6 || got.outcome != o {
			t.Errorf("reply %v at %v, want %v at %v s", got.outcome, got.at, o, at)
		}
		if retryAfter >= 0 && math.Abs(got.retryAfter.Seconds()-retryAfter) > 1e-6 || retryAfter < 0 && got.retryAfter >= 0 {
			t.Errorf("Retry-After %v, want %v s", got.retryAfter, retryAfter)
		}
	}
	t.Run("a refusal skips the service", func(t *testing.T) {
		w := base()
		w.Limiters = []Limiter{{Kind: "bucket", Rate: .4, Burst: 1}}
		for _, h := range []struct {
			hint Hint
			wait float64
		}{{Hint{Kind: "none"}, -1}, {Hint{Kind: "exact"}, 2.5}, {Hint{Kind: "whole"}, 3}, {Hint{Kind: "fixed", Value: 9}, 9}} {
			w.Hint = h.hint
			got := ask(w, 0, 0)
			check(t, got[0], 1.2, granted, -1)
			check(t, got[1], .2, refused, h.wait)
		}
	})
	t.Run("headers are on each reply", func(t *testing.T) {
		w := base()
		w.Hint.Kind = "headers"
		w.Limiters = []Limiter{{Kind: "window", Count: 5, Seconds: 10}}
		got := ask(w, 0, 2)
		if got[0].remaining != 4 || got[0].reset != 9*time.Second || got[1].remaining != 3 || got[1].reset != 7*time.Second {
			t.Errorf("%+v", got)
		}
	})
	t.Run("in flight lasts to the end of service", func(t *testing.T) {
		w := base()
		w.InFlight = 1
		got := ask(w, 0, .95, 1.05)
		check(t, got[1], 1.15, refused, -1)
		check(t, got[2], 2.25, granted, -1)
	})
	t.Run("a server queues, slows down and refuses", func(t *testing.T) {
		w := base()
		w.Server = &Server{Slots: 1, Queue: 2, Thrash: 1}
		got := ask(w, 0, .1, .2, .3)
		check(t, got[0], 1.2, granted, -1)
		check(t, got[1], 3.2, granted, -1) // one waits when it begins: twice as long
		check(t, got[2], 4.2, granted, -1)
		check(t, got[3], .5, refused, -1)
	})
	t.Run("what an earlier limiter took is given back", func(t *testing.T) {
		w := base()
		w.Limiters = []Limiter{{Kind: "bucket", Rate: 1e-3, Burst: 2}, {Kind: "bucket", Rate: 1, Burst: 1}}
		got := ask(w, 0, .5, 2)
		check(t, got[1], .7, refused, -1)
		check(t, got[2], 3.2, granted, -1)
	})
}
