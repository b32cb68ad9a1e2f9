package adaptive

import (
	"math"
	"math/rand/v2"
	"testing"
)

// A crowd of 256 fills the queue of a server that wastes its time on those that wait. From then on all that the
// controller measures is that of a full queue, so only a look at fewer calls in flight shows what the server can
// do: without it the controller keeps to a cap of 216, or to half of that, and 8 to 50 calls per second.
func TestController_LooksWhetherFewerCallsAreServedFaster(t *testing.T) {
	for _, c := range []struct {
		slots int
		waste float64
		least float64 // calls per second
	}{
		{216, 1, 75},
		{300, .25, 150},
		{300, .5, 100},
	} {
		r := newRun(t, Config{Unlimited: true}, server{slots: c.slots, delay: func(_ float64, busy int) float64 {
			load := float64(busy) / 16
			return .1*max(1, load)*(1+c.waste*max(0, load-1)) - .05
		}})
		r.callers = c.slots + 40
		r.until(300)
		if g := float64(count(r.granted, 200, 300)) / 100; g < c.least {
			t.Errorf("%+v: %.0f/s were granted: %+v", c, g, r.controller.Belief())
		}
	}
}

// A cap on calls in flight is used to 90 %, whatever the looks cost. The calls take 20 ms to 0.4 s, so the
// quickest one says that most are slow.
func TestController_LooksSeldomWhereFewerCallsAreServedLess(t *testing.T) {
	n := 0
	r := newRun(t, Config{Unlimited: true}, server{slots: 20, service: func() float64 {
		n++
		return .02 + .38*math.Mod(float64(n)*.618, 1)
	}})
	r.callers = 64
	r.until(300)
	if g := float64(count(r.granted, 100, 300)) / 200; g < .9*20/.21 {
		t.Errorf("%.1f/s were granted of %.1f/s: %+v", g, 20/.21, r.controller.Belief())
	}
}

// mostlySlow is a run at a cap of 60 calls, most of which take 0.4 s and some nearly no time, so that looks are made.
func mostlySlow(t *testing.T) *run {
	n := 0
	r := newRun(t, Config{Unlimited: true}, server{slots: 60, service: func() float64 {
		n++
		if n%10 == 0 {
			return .001
		}
		return .4
	}})
	r.rtt, r.callers = .005, 100
	r.until(5)
	c := r.controller
	c.capacity.limit, c.capacity.entry = 60, 60
	c.enter(Capped, 5, Cap)
	return r
}

// A lower bound that comes during a look, and goes, leaves what was learned: not half of it.
func TestController_ABoundEndsALook(t *testing.T) {
	r := mostlySlow(t)
	at := 5.
	for ; !r.controller.latency.looking && at < 100; at += .1 {
		r.until(at)
	}
	if !r.controller.latency.looking {
		t.Fatal("no look in 100 s")
	}
	r.controller.Bound(r.now, 0, 10)
	r.until(at + 100)
	r.controller.Bound(r.now, 0, 0)
	r.until(at + 110)
	if g := float64(count(r.granted, at+102, at+110)) / 8; g < 150 {
		t.Errorf("%.0f/s were granted of 164/s after the bound: %+v", g, r.controller.Belief())
	}
}

// Callers that come in bursts do not use the bound between them, so half of it is no look, and does not stay.
func TestController_BurstsDoNotKeepALook(t *testing.T) {
	r := mostlySlow(t)
	for at := 5.; at < 300; at++ {
		r.callers = 100
		r.until(at + .05)
		r.callers = 25
		r.until(at + 1)
	}
	if c := r.controller; c.latency.looking || c.capacity.limit < 55 {
		t.Errorf("the bound of 60 is %.0f, looking %v", c.capacity.limit, c.latency.looking)
	}
}

// Rounds of many calls in flight are no quicker than those of few. After a silence, when few were in flight, a server
// whose calls take 0.3 to 8 s, by no load, was thought to be slow, and kept to ten calls in flight for minutes.
func TestController_DoesNotTakeTheQuickOfManyForAll(t *testing.T) {
	for seed := range uint64(8) {
		random := rand.New(rand.NewPCG(seed, 1))
		take := sliding(23_000, 60)
		r := newRun(t, Config{}, server{
			take:    func(t float64) bool { return random.Float64() > .002 && take(t) },
			service: func() float64 { return 1.8 * math.Exp(.7*random.NormFloat64()) },
		})
		r.callers = 1150
		slowed := false
		for i := range 300 {
			r.until(float64(i))
			slowed = slowed || r.controller.phase == Slowed
		}
		if n := count(r.granted, 120, 300); slowed || n < 3*23_000*8/10 {
			t.Errorf("%d: %d of 69,000 granted in three minutes, it looked slow: %t", seed, n, slowed)
		}
	}
}

// sliding returns a log of the last span seconds, of which so many calls may be accepted.
func sliding(count int, span float64) func(t float64) bool {
	at, n := make([]float64, count), 0
	return func(t float64) bool {
		if oldest := &at[n%count]; n < count || *oldest <= t-span {
			*oldest = t
			n++
			return true
		}
		return false
	}
}
