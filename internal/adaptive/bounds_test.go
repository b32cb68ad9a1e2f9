package adaptive

import (
	"math"
	"testing"
	"time"
)

func TestController_Bound(t *testing.T) {
	c := paced(t)
	c.Bound(0, 2, 0)
	if b := c.Belief(); b.Pace != 2 {
		t.Errorf("%+v", b)
	}
	for _, none := range []float64{0, -1, math.NaN()} {
		if c.Bound(0, none, 0); !math.IsInf(c.cfg.Max, 1) {
			t.Errorf("%v: %v", none, c.cfg.Max)
		}
	}
}

// A maximum counts calls, of whatever they cost in the mean, or cost; of this process, while all
// that share the limit are paced together.
func TestController_Most(t *testing.T) {
	for _, ofCost := range []bool{false, true} {
		c := New(Config{Max: 2, MaxCost: ofCost})
		c.TakeOver(0, Past{Rate: 1000, Calls: 10, Cost: 1000})
		c.Share(0, .25, 4)
		want := 4 * 2 * 100.
		if ofCost {
			want = 4 * 2
		}
		if b := c.Belief(); c.most() != want || b.Pace*4 > want*1.001 {
			t.Errorf("of cost %v: at most %v, want %v; %+v", ofCost, c.most(), want, b)
		}
	}
}

// A rate that was lowered for a while does not hold up calls after that: the pace is what was
// learned before, and the next call does not wait for its slot at the lower rate.
func TestController_Bound_LowerForAWhile(t *testing.T) {
	for _, search := range []bool{false, true} {
		c := paced(t)
		if search {
			c = New(Config{Start: 10})
			c.Started(0, 1, 0)
		}
		pace, next := c.Belief().Pace, c.Demand(0, 0)
		c.Bound(0, 1./3600, 0)
		if at := c.Demand(0, 0); at < time.Minute-time.Millisecond {
			t.Errorf("search %v: at a rate of 1/h the next call leaves at %v, want a minute, the least pace", search, at)
		}
		c.Bound(0, 100, 0)
		if b := c.Belief(); b.Pace < pace {
			t.Errorf("search %v: the pace is %v, and was %v", search, b.Pace, pace)
		}
		if at := c.Demand(0, 0); at > next+time.Microsecond {
			t.Errorf("search %v: the next call leaves at %v, want %v", search, at, next)
		}
	}
}

// A configured bound of the calls in flight holds from now on, and what was learned of the
// server's is not lost while a lower one holds.
func TestController_Bound_Concurrency(t *testing.T) {
	want := func(c *Controller, configured, want int) {
		t.Helper()
		c.Bound(0, 0, configured)
		if got := c.capacity.bound(); got != want {
			t.Errorf("%v: with %d configured, the bound is %d, want %d", c.phase, configured, got, want)
		}
	}
	c := paced(t)
	want(c, 2, 2)
	want(c, 10, 10)
	want(c, 0, math.MaxInt)
	want(c, 3, 3)
	if b := c.Belief(); b.Concurrency != 3 {
		t.Errorf("%+v", b)
	}
	for _, phase := range []Phase{Capped, Slowed} {
		c := paced(t)
		c.phase, c.capacity.limit = phase, 8
		want(c, 20, 8)
		want(c, 2, 2)
		want(c, 10, 8)
		want(c, 0, 8)
	}
	capped := paced(t)
	capped.phase, capped.capacity.limit = Capped, 8
	capped.Bound(0, 0, 2)
	if capped.capacity.move(capped, +1); capped.capacity.limit != 8 {
		t.Errorf("a bound that was not reached has moved to %v", capped.capacity.limit)
	}
	small := New(Config{MaxConcurrency: 2})
	if err := small.Restore(capped.Snapshot()); err != nil {
		t.Fatal(err)
	}
	want(small, 2, 2)
	want(small, 0, 8)
}

func TestController_AtMax(t *testing.T) {
	c := paced(t)
	now := time.Duration(0)
	for i := range 1000 {
		if i < 50 && c.AtMax() {
			t.Fatalf("after %d calls", i)
		}
		now = max(now, c.Demand(now, 0))
		c.Ended(now, c.Started(now, 1, 0), Reply{})
	}
	if !c.AtMax() {
		t.Error("not after 1,000")
	}
}
