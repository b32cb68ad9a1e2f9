package main

import (
	"math/rand/v2"
	"sync"
	"time"
)

// dice are the random numbers of a run. Each purpose has its own, so that two clients meet
// the same service times although one of them sends more calls.
type dice struct {
	mu     sync.Mutex
	random *rand.Rand
	seed   uint64
}

const (
	forNetwork = iota + 1
	forService
	forChance
	forStart
)

func newDice(seed uint64, purpose uint64) *dice {
	return &dice{random: rand.New(rand.NewPCG(seed, purpose)), seed: seed}
}

// float returns a number in [0, 1).
func (d *dice) float() float64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.random.Float64()
}

// norm returns a number that is normally distributed.
func (d *dice) norm() float64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.random.NormFloat64()
}

// around returns the mean ± 70 %.
func (d *dice) around(mean float64) float64 { return mean * (1 + .7*(2*d.float()-1)) }

// stretch returns random numbers that are the same for all calls of a stretch of time.
func (d *dice) stretch(length time.Duration) *rand.Rand {
	return rand.New(rand.NewPCG(d.seed, uint64(time.Now().UnixNano()/int64(length))))
}

// An origin is what is behind a limiter: it takes time, and may fail.
type origin struct {
	server           *server
	service, chances *dice
}

func newOrigin(s *server, seed uint64) *origin {
	return &origin{s, newDice(seed, forService), newDice(seed, forChance)}
}

// work takes as long as a call takes.
func (o *origin) work() {
	if o.server.times != nil {
		time.Sleep(seconds(o.server.times(o.server.mean(), o.service)))
		return
	}
	time.Sleep(seconds(o.service.around(o.server.mean())))
}

// chance reports true for a share of its calls.
func (o *origin) chance(share float64) bool { return share > 0 && o.chances.float() < share }
