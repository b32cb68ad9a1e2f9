package main

import (
	"context"
	"fmt"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/leaky"
	"github.com/sluice-go/sluice/limits"
	"github.com/sluice-go/sluice/pacer"
	"github.com/sluice-go/sluice/semaphore"
	"github.com/sluice-go/sluice/window"
)

// A subject is a limiter that is shown.
type subject struct {
	name  string // of its file, too
	title string
	point string // what there is to see
	water string // what the water is
	full  float64
	make  func() limiter
}

// until is the length of the pictures. All calls are done by then.
const until = 18 * time.Second

// sixty is the calls that go through all the limiters: some one by one, a
// crowd, some more at less than 5/s, and after some idleness a crowd again.
// From the second crowd on the server is slow.
func sixty() (calls []call) {
	const (
		quick = 300 * time.Millisecond
		slow  = 750 * time.Millisecond
	)
	add := func(n int, first, apart, takes time.Duration) {
		for i := range n {
			calls = append(calls, call{first + time.Duration(i)*apart, takes})
		}
	}
	add(4, 0, 500*time.Millisecond, quick)
	add(20, 1800*time.Millisecond, 0, quick)
	add(12, 7*time.Second, 250*time.Millisecond, quick)
	add(24, 11500*time.Millisecond, 0, slow)
	return calls
}

// paused is when the gate is paused, and until when.
var paused = [2]time.Duration{2900 * time.Millisecond, 4500 * time.Millisecond}

// subjects are the limiters, all of them about 5 per second.
func subjects() []subject { return append(waiting(), deciding()...) }

// waiting are the limiters whose calls wait.
func waiting() []subject {
	return []subject{
		{
			name:  "semaphore",
			title: "Semaphore of 3",
			point: "lets calls out as others come back: quick calls fast, slow ones slowly",
			water: "in flight",
			full:  3,
			make: func() limiter {
				s := semaphore.NewWeighted(3)
				return limiter{
					enter: func(ctx context.Context) (func(), error) {
						return func() { s.Release(1) }, s.Acquire(ctx, 1)
					},
					water: func() float64 { return float64(s.InFlight()) },
				}
			},
		},
		{
			name:  "pacer",
			title: "Pacer, 5 per second",
			point: "one each 200 ms, whatever arrives",
			water: "waiting",
			make:  func() limiter { return paced(1, pacer.Config{}) },
		},
		{
			name:  "bursty",
			title: "Pacer, 5 per second, burst of 5",
			point: "5 at once after idleness, then one each 200 ms",
			water: "waiting",
			make:  func() limiter { return paced(5, pacer.Config{}) },
		},
		{
			name:  "warmup",
			title: "Pacer, 5 per second, warming up",
			point: "slow while cold: at the beginning, and again after idleness",
			water: "waiting",
			make:  func() limiter { return paced(1, pacer.Config{WarmUp: 2 * time.Second}) },
		},
	}
}

// deciding are the limiters that decide immediately, and a gate.
func deciding() []subject {
	return []subject{
		{
			name:  "leaky",
			title: "Leaky bucket of 10, 5 per second",
			point: "answers at once: what does not fit is refused",
			water: "level",
			full:  10,
			make: func() limiter {
				b := limits.Must(leaky.New(limits.Rate{Count: 5, Per: time.Second, Burst: 10}))
				return limiter{
					enter: func(context.Context) (func(), error) {
						if r := b.Take(1); !r.Allowed() {
							return nil, fmt.Errorf("come back in %v", r.RetryAfter)
						}
						return nothing, nil
					},
					water: func() float64 { return b.Take(0).ResetAfter.Seconds() * 5 },
					flows: true,
				}
			},
		},
		{
			name:  "fixed",
			title: "Fixed window, 10 per 2 s",
			point: "6 just before an edge and 10 just after it: 16 within 200 ms",
			water: "used",
			full:  10,
			make: func() limiter {
				c := limits.Must(window.NewFixed(window.Quota{Limit: 10, Window: 2 * time.Second}))
				return blocked(c, func() limits.Result { return c.Take(0) })
			},
		},
		{
			name:  "sliding",
			title: "Sliding window, 10 per 2 s",
			point: "never more than 10 in any 2 s, in the same clumps ever after",
			water: "used",
			full:  10,
			make: func() limiter {
				l := limits.Must(window.NewSliding(window.Quota{Limit: 10, Window: 2 * time.Second}))
				return blocked(l, func() limits.Result { return l.Take(0) })
			},
		},
		{
			name:  "gate",
			title: "Gate: 5 per second, 3 in flight, a pause",
			point: "all limits at one instant; a pause ends at the pace, not in a herd",
			water: "in flight",
			full:  3,
			make:  gated,
		},
	}
}

func nothing() {}

// paced is a pacer, whose water is those that wait: the bucket as a queue.
func paced(burst int64, cfg pacer.Config) limiter {
	p, err := pacer.New(sluice.Rate{Count: 5, Per: time.Second, Burst: burst}, cfg)
	if err != nil {
		panic(err)
	}
	return limiter{
		enter: func(ctx context.Context) (func(), error) { return nothing, p.Acquire(ctx, 1) },
		water: func() float64 { return float64(p.Waiting()) },
	}
}

// blocked makes calls wait for l; the water is what is used of it.
func blocked(l limits.Limiter, peek func() limits.Result) limiter {
	g, err := sluice.New(sluice.Config{Limits: []sluice.Limit{{Limiter: l}}})
	if err != nil {
		panic(err)
	}
	return limiter{
		enter: func(ctx context.Context) (func(), error) { return nothing, g.Wait(ctx) },
		water: func() float64 { r := peek(); return float64(r.Limit - r.Remaining) },
	}
}

// gated is a gate that is paused, as by a response 429.
func gated() limiter {
	g, err := sluice.New(sluice.Config{Concurrency: 3, Rate: sluice.Rate{Count: 5, Per: time.Second}})
	if err != nil {
		panic(err)
	}
	end := time.Now().Add(paused[1])
	time.AfterFunc(paused[0], func() { g.PauseUntil(end, "429") })
	return limiter{
		enter: func(ctx context.Context) (func(), error) {
			permit, err := g.Acquire(ctx, 1)
			if err != nil {
				return nil, err
			}
			return permit.Release, nil
		},
		water: func() float64 { return float64(g.Stats().InFlight) },
	}
}

// confused is the calls of the classic confusion, all of which arrive together:
// the first eight are quick, the others are not.
func confused() (calls []call) {
	for i := range 16 {
		takes := 200 * time.Millisecond
		if i >= 8 {
			takes = 1600 * time.Millisecond
		}
		calls = append(calls, call{takes: takes})
	}
	return calls
}

// confusedUntil is when those are done, by either limiter.
const confusedUntil = 10 * time.Second

// confusion is the two that are confused.
func confusion() []subject {
	return []subject{
		{
			name:  "semaphore of 2",
			title: "A semaphore of 2",
			point: "two at once, the next when one is done: 10 per second while calls are quick, 1.25 when they are slow",
			make: func() limiter {
				s := semaphore.NewWeighted(2)
				return limiter{
					enter: func(ctx context.Context) (func(), error) {
						return func() { s.Release(1) }, s.Acquire(ctx, 1)
					},
					water: func() float64 { return float64(s.InFlight()) },
				}
			},
		},
		{
			name:  "rate of 2/s",
			title: "A rate of 2 per second",
			point: "one each half second, however long they take: up to 4 in flight when they are slow",
			make: func() limiter {
				p := limits.Must(pacer.New(sluice.Rate{Count: 2, Per: time.Second}))
				return limiter{
					enter: func(ctx context.Context) (func(), error) { return nothing, p.Acquire(ctx, 1) },
					water: func() float64 { return 0 },
				}
			},
		},
	}
}

// numbers is what all pictures are drawn from.
type numbers struct {
	Confusion []history `json:"confusion"`
	Sixty     []history `json:"sixty"`
	Cold      []history `json:"cold"`
}

// measure runs everything. It must be called in a bubble.
func measure() (n numbers) {
	for _, s := range confusion() {
		r := simulate(s.name, s.make, confused(), confusedUntil)
		r.Water = nil // the picture shows the calls themselves
		n.Confusion = append(n.Confusion, r)
	}
	for _, s := range subjects() {
		n.Sixty = append(n.Sixty, simulate(s.name, s.make, sixty(), until))
	}
	for _, s := range cold() {
		r := simulate(s.name, s.make, make([]call, coldCalls), coldUntil)
		r.Water = nil
		n.Cold = append(n.Cold, r)
	}
	return n
}
