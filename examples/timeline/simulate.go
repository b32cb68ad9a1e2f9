package main

import (
	"context"
	"slices"
	"sync"
	"testing/synctest"
	"time"
)

// A call arrives at a time, and takes so long once it was let through.
type call struct {
	at, takes time.Duration
}

// A limiter is what calls are sent through.
type limiter struct {
	// enter blocks until the call may start, and returns what to do when it
	// is done; or it returns an error, and the call is lost.
	enter func(ctx context.Context) (done func(), err error)

	// water is the amount that the picture shows as water. It flows
	// if it changes evenly, and otherwise in steps.
	water func() float64
	flows bool
}

// micros is a point in time or a duration, in µs: exact enough, and short to write.
type micros = int64

// A history is what became of the calls. Times count from the beginning.
type history struct {
	Name    string   `json:"name"`
	Arrived []micros `json:"arrived_us"`
	Left    []micros `json:"left_us"`              // in order
	Done    []micros `json:"done_us,omitempty"`    // of the calls in Left
	Refused []micros `json:"refused_us,omitempty"` // when they arrived
	Water   []level  `json:"water,omitempty"`
}

// A level is how high the water stands at a time. Between two levels it
// changes evenly.
type level struct {
	At    micros  `json:"us"`
	Units float64 `json:"n"`
}

// tick is the interval at which the water is looked at. Calls arrive at multiples of it.
const tick = 50 * time.Millisecond

// simulate sends calls through a limiter, and returns what has happened when the time is up. It
// must be called in a bubble. The calls are in order of their arrival, and must be done by then.
func simulate(name string, newLimiter func() limiter, calls []call, until time.Duration) history {
	r := history{Name: name}
	limiter := newLimiter()
	start := time.Now()
	now := func() micros { return time.Since(start).Microseconds() }
	look := func() {
		// Once all goroutines wait, all that can happen at this time has.
		synctest.Wait()
		l := level{now(), limiter.water()}
		if n := len(r.Water); n > 0 && !limiter.flows {
			r.Water = append(r.Water, level{l.At, r.Water[n-1].Units})
		}
		r.Water = append(r.Water, l)
	}
	var (
		mu     sync.Mutex
		during sync.WaitGroup
	)
	for at := time.Duration(0); at <= until; at += tick {
		time.Sleep(at - time.Since(start))
		look()
		for ; len(calls) > 0 && calls[0].at <= at; calls = calls[1:] {
			takes, arrived := calls[0].takes, now()
			r.Arrived = append(r.Arrived, arrived)
			during.Go(func() {
				done, err := limiter.enter(context.Background())
				mu.Lock()
				if err != nil {
					r.Refused = append(r.Refused, arrived)
					mu.Unlock()
					return
				}
				left := now()
				r.Left = append(r.Left, left)
				r.Done = append(r.Done, left+takes.Microseconds())
				mu.Unlock()
				time.Sleep(takes)
				done()
			})
			synctest.Wait() // so that they queue in order
		}
		look()
	}
	during.Wait()
	r.Water = corners(r.Water)
	return r
}

// corners leaves out the levels that lie on the line between their neighbors,
// and those that say the same twice.
func corners(all []level) []level {
	all = slices.Compact(all)
	var kept []level
	for i, b := range all {
		if i > 0 && i+1 < len(all) {
			a, c := kept[len(kept)-1], all[i+1]
			if c.At > a.At && a.At < b.At && b.At < c.At {
				along := a.Units + (c.Units-a.Units)*float64(b.At-a.At)/float64(c.At-a.At)
				if diff := along - b.Units; -1e-9 < diff && diff < 1e-9 {
					continue
				}
			}
		}
		kept = append(kept, b)
	}
	return kept
}
