package sluice_test

import (
	"time"

	"github.com/sluice-go/sluice"
)

// A feature is one that a history of FuzzAdmission has for certain. Where two features
// meet is where most defects were, and a history that draws each of them at random
// rarely has both. Whatever else a history can have, it may have as well.
//
// Reservations are those of package pacer, which has a model of its own. A quota far
// away takes time to answer, and in these models a call takes none: it has a column
// in package internal/promise, like everything outside the core.
type feature int

const (
	noPair         feature = iota // whatever comes
	hasParent                     // of which the gate is not the only child
	hasGrandparent                //
	hasQuota                      // some
	hasCost                       // the limits count it
	noRate                        //
	pause                         // and its end
	rateChange                    //
	emptyBudget                   // retries are refused, calls are spaced by less than the interval
	deadline                      // of contexts
	within                        // AcquireWithin
	settle                        // calls cost something other than they said
	inKeyed                       // gates of a Keyed
	shutdown                      // of gates that are not parents
	features
)

// Operations that only a pair brings, beside those of composite.run.
const (
	changeRate = 16 + iota
	shutDown
)

// drawPair reads what calls cost, and a pair if the first byte is 128 or more. Inputs
// that are older than pairs mean what they did.
func (c *composite) drawPair() {
	first := c.next(256)
	c.settles = first % 3
	if first < 128 {
		return
	}
	c.pair = [2]feature{feature(1 + c.next(int(features)-1)), feature(1 + c.next(int(features)-1))}
	switch {
	case c.has(settle):
		c.settles = 1 + c.settles%2
	case c.has(hasCost):
		c.settles = 0 // so that the rate can count cost, see newNode
	}
}

func (c *composite) has(f feature) bool { return c.pair[0] == f || c.pair[1] == f }

// family returns how many gates there are: 4 has three generations.
func (c *composite) family() int {
	n := c.next(4)
	switch {
	case c.has(hasGrandparent):
		return 4
	case c.has(hasParent):
		return 3
	}
	return n
}

// limitsOfPair changes which limits a gate has, as newNode reads them.
func (c *composite) limitsOfPair(which int) int {
	if c.has(rateChange) || c.has(emptyBudget) {
		which |= 2
	} else if c.has(noRate) {
		which &^= 2
	}
	if c.has(hasQuota) {
		which |= 63 << 2
	}
	return which
}

func (c *composite) quotasOfPair(some int) int {
	if c.has(hasQuota) {
		some |= 1 << c.next(6)
	}
	return some
}

// unitsOfPair changes what the limits of a gate count.
func (c *composite) unitsOfPair(g *node) {
	if c.has(hasCost) {
		if g.roomUnit != sluice.Cost {
			g.room, g.roomUnit = 3*g.room, sluice.Cost
		}
		if c.settles == 0 {
			g.rateUnit = sluice.Cost
		}
	}
	if c.has(rateChange) || c.has(emptyBudget) {
		g.pace.rate, g.pace.burst = wholeRates[c.next(len(wholeRates))], 1
	}
}

// wholeRates have intervals of whole nanoseconds: what becomes of a fraction when the
// rate changes is not promised. None is shorter than the spacing of makeGate.
var wholeRates = []sluice.Rate{{Count: 1000, Per: time.Second}, {Count: 10, Per: time.Second}, {Count: 2, Per: 3 * time.Second}, {Count: 4, Per: time.Second}}

// makeGate makes the gate of a node.
func (c *composite) makeGate(g *node, cfg sluice.Config) {
	if c.has(emptyBudget) {
		cfg.RetryBudget = 5
	}
	if !c.has(inKeyed) {
		g.gate = mustGate(c.T, cfg)
	} else {
		g.keyed = must(sluice.NewKeyed(func(string) (*sluice.Gate, error) {
			gate, err := sluice.New(cfg)
			g.gate = gate
			return gate, err
		}, sluice.KeyedConfig{Idle: 1000 * time.Hour}))
		_ = g.keyed.Use("k", func(*sluice.Gate) error { return nil })
	}
	if c.has(rateChange) {
		g.left = append(g.left, departure{rate: g.pace.rate})
	}
	if c.has(emptyBudget) {
		for range 2 { // the first takes all there is
			a := sluice.NewAttempts(g.gate, sluice.RetryPolicy{Backoff: sluice.Constant(ms)})
			a.Charge()
		}
		time.Sleep(ms) // it counts from the last call, or from the beginning
		c.now = time.Since(c.start)
	}
}

// through calls f as a user of the gate.
func (g *node) through(f func() (*sluice.Permit, error)) (p *sluice.Permit, err error) {
	if g.keyed == nil {
		return f()
	}
	_ = g.keyed.Use("k", func(*sluice.Gate) error {
		p, err = f()
		return nil
	})
	return p, err
}

// operation returns what happens next: one in four times what the pair is about.
func (c *composite) operation() int {
	op := c.next(16)
	if c.has(noPair) || c.next(4) > 0 {
		return op
	}
	switch c.pair[op%2] {
	case pause:
		return 13 + c.next(2)
	case rateChange:
		return changeRate
	case deadline:
		return 4
	case within:
		return 2
	case settle:
		return 15
	case hasCost:
		return 1
	case shutdown:
		return shutDown
	}
	return op
}

func (c *composite) changeRate(g *node) {
	g.pace.rate = wholeRates[c.next(len(wholeRates))]
	g.left = append(g.left, departure{at: c.now, rate: g.pace.rate})
	if err := g.gate.SetRate(withBurst(g.pace.rate, g.pace.burst)); err != nil {
		c.Fatal(err)
	}
}

func (c *composite) shutDown(g *node) {
	if g.isNoParent(c) && c.next(3) == 0 {
		g.closed = true
		g.gate.Close()
	}
}

// slotOfRates is paceModel.slot if the rate changes, without a burst: the last call
// is followed by its weight in intervals of the rate that holds now.
func slotOfRates(past []departure) time.Duration {
	var last departure
	var interval, pause time.Duration
	for _, d := range past {
		switch {
		case d.n > 0:
			last = d
		case d.rate.Count > 0:
			interval = d.rate.Per / time.Duration(d.rate.Count)
		case d.resume:
			pause = min(pause, d.at)
		default:
			pause = max(pause, d.until)
		}
	}
	return max(last.at+time.Duration(last.n)*interval, pause)
}
