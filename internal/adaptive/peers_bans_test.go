package adaptive

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/sluice-go/sluice/internal/testkit/built"
)

// bans returns a bucket that accepts nothing for a while after each rejection, and says so.
func bans(rate, burst, lasts float64) (take func(t float64) bool, retry func(t float64) time.Duration) {
	level, at, until := 0., 0., 0.
	take = func(t float64) bool {
		level = max(0, level-(t-at)*rate)
		at = t
		if level <= burst-1 && t >= until {
			level++
			return true
		}
		if t >= until {
			until = t + lasts
		}
		return false
	}
	return take, func(t float64) time.Duration { return seconds(until - t) }
}

// banned plays an hour of n processes at a server of 20 calls per second that bans, and returns what is
// served of that.
func banned(t *testing.T, n int, lasts float64, seed uint64) float64 {
	take, retry := bans(20, 20, lasts)
	c := newCompany(t, take)
	random := rand.New(rand.NewPCG(seed, 1))
	c.apart = time.Duration(random.IntN(250)) * time.Millisecond
	for range n {
		p := c.join(5)
		p.server.retry = retry
		p.rtt = .03 + .02*random.Float64()
		p.controller = New(Config{Unlimited: true})
		p.peer.Begin(0, p.controller)
		p.server.service = func() float64 { return .02 + .02*random.Float64() }
	}
	c.until(3600)
	return float64(c.granted(0, 3600)) / (20*3600 + 20)
}

// Processes that share a limit use it as well as one process does, although each ban holds all of
// them up and each of them has its own calls rejected.
func TestPeers_Bans(t *testing.T) {
	built.SkipRaced(t)
	for _, c := range []struct {
		n     int
		lasts float64
	}{{2, 5}, {3, 5}, {5, 5}, {2, 30}, {3, 30}, {5, 30}} {
		t.Run(fmt.Sprintf("%d processes, bans of %g s", c.n, c.lasts), func(t *testing.T) {
			for _, seed := range []uint64{0, 7, 8} {
				if share := banned(t, c.n, c.lasts, seed); share < .86 {
					t.Errorf("seed %d: %.3f of the limit is served", seed, share)
				}
			}
		})
	}
}

// What is heard of a ban of another process counts as one of this process: it ends a cycle, and another
// one begins when it has ended.
func TestController_othersBlocked(t *testing.T) {
	blocked := func() *Controller {
		c := New(Config{})
		c.Share(0, .5, 2)
		c.Started(0, 1, 0)
		c.phase, c.costly.low, c.costly.high = Bounding, 5, 20
		c.track(c.phase, 10, Measured)
		c.ledger.sent = 100
		c.costly.looking = true
		return c
	}
	ban := newsOf(t, 10, func(c *Controller) {
		c.phase, c.costly.low, c.costly.high = Bounding, 5, 20
		c.blockage = blockage{on: true, from: point{at: -1}}
		c.until = 30
	})
	over := newsOf(t, 12, func(c *Controller) { c.phase, c.costly.low, c.costly.high = Bounding, 5, 20 })

	c := blocked()
	c.Adopt(10*time.Second, ban, time.Second)
	if got := c.ledger.empty[0]; c.ledger.empties != 1 || got.at != 8 || got.granted != 100 {
		t.Errorf("%d empty points, %+v", c.ledger.empties, got)
	}
	c.Adopt(11*time.Second, ban, 0)
	if c.ledger.empties != 1 {
		t.Error("the same ban counts twice")
	}
	c.correct(12, -7) // others were accepted less than was thought
	if got := c.ledger.empty[0]; c.ledger.sent != 93 || got.granted != 93 || c.cycles.points[0].granted != 93 {
		t.Errorf("after a correction %+v, cycle from %+v", got, c.cycles.points[0])
	}
	c.Adopt(40*time.Second, over, time.Second)
	if k := c.costly; k.start.at != 39 || k.start.granted != 93 || k.looking || k.before.granted != 93 || k.before.took != 39 {
		t.Errorf("after the ban %+v", k)
	}
	c.correct(41, 5)
	if got := c.ledger.empty[0]; got.granted != 93 {
		t.Errorf("a correction after the ban concerns no cycle before it: %+v", got)
	}

	// Its own call was rejected first.
	c = blocked()
	c.blockage.on, c.blockage.from = true, point{at: 7}
	c.Adopt(10*time.Second, ban, time.Second)
	if c.ledger.empties != 0 || c.sharing.from != 7 {
		t.Errorf("%d more empty points, ban since %g", c.ledger.empties, c.sharing.from)
	}

	// The other one never tells that it is over.
	c = blocked()
	c.Adopt(10*time.Second, ban, time.Second)
	c.Started(50*time.Second, 1, 0)
	if c.sharing.await || c.costly.start.at != 50 {
		t.Errorf("%+v, cycle from %+v", c.sharing, c.costly.start)
	}
}

// A wait that the server has asked for has nothing to do with the part of a process.
func TestController_Share_DuringAPause(t *testing.T) {
	c := New(Config{Unlimited: true})
	call := c.Started(0, 1, 0)
	c.Ended(0, call, Reply{Outcome: Refused, RetryAfter: 30 * time.Second})
	for i, part := range []float64{.5, .2, .001} {
		c.Share(time.Second, part, int64(2+i))
		if at := c.Demand(time.Second, 0); at != 30*time.Second {
			t.Errorf("with a part of %g, the next call starts at %v", part, at)
		}
	}
}

// Two looks of which one lasts longer tell the rate from the burst.
func TestCycles_both(t *testing.T) {
	look := func(rate, burst, took float64) (c cycle) {
		c.full, c.n, c.look = true, 8, took
		for i := range c.n {
			d := took * float64(c.n-i) / float64(c.n)
			c.parts[i] = part{d, min(burst, 2*d*rate) + rate*d}
		}
		return c
	}
	for _, past := range [][2]cycle{
		{look(20, 20, 4), look(20, 20, 12)},
		{look(20, 20, 12), look(20, 20, 4)},
		{look(20, 19, 4), look(20, 20, 12)}, // the counts are blurred: above the rate, they agree nowhere
		{look(20, 21, 4), look(20, 20, 12)},
	} {
		k := cycles{past: past}
		if got := k.both(10, 40, 2); math.Abs(got-20) > .6 {
			t.Errorf("%g/s, want 20", got)
		}
		if got := k.both(25, 40, 2); got != 0 {
			t.Errorf("%g/s is not between the bounds", got)
		}
	}
	for name, past := range map[string][2]cycle{
		"one cycle":        {look(20, 20, 4)},
		"of one length":    {look(20, 20, 10), look(20, 20, 12)},
		"begun by a pause": {look(20, 20, 4), {n: 8, parts: look(20, 20, 12).parts}},
	} {
		if got := (&cycles{past: past}).both(10, 40, 2); got != 0 {
			t.Errorf("%s: %g/s", name, got)
		}
	}
	k := cycles{past: [2]cycle{look(20, 20, 4), look(20, 20, 12)}}
	if got := k.both(20, 10, 2); got != 0 {
		t.Errorf("%g/s between bounds that are none", got)
	}
}

// A look keeps points of the calls before it, and goes on with points of its own.
func TestCycles_look(t *testing.T) {
	for _, before := range []int{0, 1, 5, 100} {
		var k cycles
		k.begin(point{at: -1})
		l := new(ledger)
		for i := range before {
			k.started(float64(i), l)
			l.started(float64(i), 1)
		}
		first := k.points[max(0, k.n-2*pointsBefore)]
		k.look(l.now(200))
		if k.points[0] != first || k.points[k.n-1].at != 200 || k.n > pointsBefore+1 || k.begun {
			t.Errorf("after %d calls %+v", before, k)
		}
		for i := range 3 {
			k.started(float64(201+i), l)
		}
		if k.points[k.n-3].at != 201 || k.points[k.n-1].at != 203 {
			t.Errorf("after %d calls and 3 of the look %+v", before, k)
		}
	}
}

// What two looks of a group say depends on what is known before.
func TestCostly_lookedTogether(t *testing.T) {
	look := func(took float64) (c cycle) { // at 20/s, with a burst of 20
		c.full, c.n, c.look = true, 2, took
		c.parts[0], c.parts[1] = part{took, 20 + 20*took}, part{took / 2, 15 + 10*took}
		return c
	}
	pause := look(8)
	pause.full, pause.look = false, 0
	for name, test := range map[string]struct {
		before cycle
		believed,
		burst float64
		rate, holds float64
	}{
		"unlike":                            {look(4), 16, 0, 19.7, 22},
		"alike":                             {look(8), 16, 0, 16, 52},
		"the first one":                     {pause, 16, 0, 16, 0},
		"nothing before":                    {cycle{}, 16, 0, 16, 0},
		"alike, and the burst was too high": {look(8), 19, 40, 19, 29},
		"alike, and the burst is known":     {look(8), 16, 20, 20, 20},
	} {
		c := New(Config{})
		c.Share(0, .5, 2)
		c.meanCost = 1
		c.blockage = blockage{rate: test.believed, pace: 30}
		c.costly.burst = test.burst
		c.cycles.past = [2]cycle{test.before, look(8)}
		got := c.costly.lookedTogether(c)
		if math.Abs(got-test.rate) > .3 || math.Abs(c.costly.burst-test.holds) > 3 || !c.costly.slow {
			t.Errorf("%s: %g/s, burst %g, slow %v", name, got, c.costly.burst, c.costly.slow)
		}
	}
}

// A process that its own rejection misleads, and that hears of the rate that another one has measured, does
// not return to the bounds before.
func TestController_Adopt_WhatFellForAMoment(t *testing.T) {
	c := New(Config{})
	c.Share(0, .5, 2)
	c.Started(0, 1, 0)
	c.phase, c.costly.low, c.costly.high = Bounding, 5, 40
	c.track(c.phase, 20, Measured)
	c.service = service{rate: 20, phase: Bounding, bounds: c.costly, begin: 0, since: 600, asked: 30}
	c.at = 601
	c.track(Bounding, 10, Measured)
	if !c.service.fell {
		t.Fatalf("%+v", c.service)
	}
	slow := newsOf(t, 20, func(c *Controller) { c.phase, c.costly.low, c.costly.high, c.costly.slow = Bounding, 19, 21, true })
	c.Adopt(630*time.Second, slow, 0)
	c.service.paced(c, 631)
	if k := c.costly; k.low != 19 || k.high != 21 || !k.slow || c.why != Shared {
		t.Errorf("%+v, why %v", k, c.why)
	}
}

// A group of gates that began with a crowd, and so know no pace, gets out of a ban that each call begins again: what
// was granted before it is not what others are granted now.
func TestPeers_ACrowdThatIsBannedAsksSeldom(t *testing.T) {
	for _, ban := range []float64{5, 30} {
		for _, n := range []int{2, 4} {
			until, take := -1., bucket(20, steady(20))
			c := newCompany(t, func(t float64) bool {
				if t >= until && take(t) {
					return true
				}
				until = t + ban
				return false
			})
			c.cfg.Unlimited = true
			for range n {
				c.join(8)
			}
			c.until(300)
			if g, f := c.granted(0, 300), c.refused(0, 300); g < 1000 || f > 100 {
				t.Errorf("%d processes, ban of %v s: %d granted, %d rejected", n, ban, g, f)
			}
		}
	}
}

// A process that is banned alone does not keep up its ban, although the others are granted calls.
func TestPeers_AProcessThatIsBannedAloneAsksSeldom(t *testing.T) {
	for _, ban := range []float64{5, 20, 60} {
		c := newCompany(t, bucket(10, steady(50)))
		for range 4 {
			c.join(8)
		}
		until, rejected, granted := -1., 0, 0
		c.procs[0].server.take = func(t float64) bool {
			switch {
			case t <= 30:
				return c.take(t)
			case until < 0 || t < until: // each call begins the ban again
				until = t + ban
				rejected++
				return false
			}
			granted++
			return c.take(t)
		}
		c.until(330)
		if rejected > 40 || granted < 1000 {
			t.Errorf("a ban of %v s: %d calls rejected, %d made after it", ban, rejected, granted)
		}
	}
}
