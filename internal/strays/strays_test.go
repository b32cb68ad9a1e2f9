package strays

import (
	"testing"
	"time"
)

// A few of many calls in flight that are throttled are strays, and surely if they are not the first calls.
func TestCounter(t *testing.T) {
	const s = time.Second
	for _, c := range []struct {
		inFlight, calls int64
		n               int // throttled of them
		few, settled    bool
	}{
		{32, 64, 1, true, true},
		{32, 64, 6, true, true},
		{32, 64, 7, false, false},
		{8, 64, 1, true, true},
		{8, 64, 2, false, false},
		{7, 64, 1, false, true}, // they tell nothing
		{32, 63, 1, true, false},
		{1, 1 << 40, 1, false, false},
	} {
		var k Counter
		if k.Few(s) || k.Settled() {
			t.Error("a zero strays knows of one")
		}
		for range c.n {
			k.Add(10*s, 9*s, c.inFlight, c.calls)
		}
		if got := k.Few(9 * s); got != c.few || k.Settled() != c.settled {
			t.Errorf("%d of %d in flight, after %d calls: few %t, settled %t", c.n, c.inFlight, c.calls, got, k.Settled())
		}
		if k.Few(10*s) != c.few {
			t.Error("a call that left at the instant at which the throttle came is of its flight")
		}
		if k.Few(10*s + 1) {
			t.Error("a call that left after the throttle came is of another flight")
		}
		if k.Alone(9 * s) {
			t.Error("the first stray concerns only itself")
		}
		if k.Add(20*s, 19*s, 32, c.calls+after); !k.Few(19*s) || !k.Settled() {
			t.Errorf("after %d of %d: one in the next flight is no stray", c.n, c.inFlight)
		}
	}
	var k Counter
	for range 7 {
		k.Add(10*s, 9*s, 32, 1000)
	}
	if k.Add(20*s, 19*s, 32, 1063); k.Settled() {
		t.Error("63 calls after a limit showed there is a stray")
	}
	if k.Add(20*s, 19*s, 32, 1064); !k.Settled() {
		t.Error("64 calls after a limit showed there is none")
	}
}

// One throttle of a few calls in flight tells nothing, but no more of them than larger flights are strays.
func TestCounter_SmallFlights(t *testing.T) {
	var k Counter
	at := time.Duration(0)
	flight := func(inFlight int64) bool {
		at += time.Second
		k.Add(at, at-1, inFlight, 1000)
		return k.Few(at - 1)
	}
	for i, c := range []struct {
		inFlight int64
		few      bool
	}{{4, false}, {32, true}, {4, true}, {32, true}, {4, true}, {1, false}, {4, false}, {32, true}} {
		if got := flight(c.inFlight); got != c.few {
			t.Errorf("flight %d, one of %d throttled: a stray %t", i, c.inFlight, got)
		}
	}
}

// After three flights with few throttled calls the next such call concerns only itself, also if few are in
// flight, until one shows a limit, or many of several are throttled.
func TestCounter_Alone(t *testing.T) {
	known := func() (*Counter, time.Duration) {
		k, at := new(Counter), time.Duration(0)
		for flight := range 4 {
			at += time.Second
			if k.Add(at, at-1, 32, 1000); k.Alone(at-1) != (flight == 3) {
				t.Fatalf("flight %d: alone %t", flight, k.Alone(at-1))
			}
		}
		return k, at
	}
	for _, c := range []struct {
		inFlight, n int64
		alone       bool
	}{
		{32, 12, true}, {32, 13, false},
		{16, 6, true}, {16, 7, false},
		{4, 2, true}, {4, 3, false},
		{1, 1, true},
	} {
		k, at := known()
		at += time.Second
		for range c.n {
			k.Add(at, at-1, c.inFlight, 2000)
		}
		if got := k.Alone(at - 1); got != c.alone {
			t.Errorf("%d of %d throttled: alone %t", c.n, c.inFlight, got)
		}
		if at += time.Second; !c.alone {
			if k.Add(at, at-1, 32, 3000); k.Alone(at-1) || !k.Few(at-1) {
				t.Errorf("after %d of %d throttled one of 32 is known to be a stray", c.n, c.inFlight)
			}
		}
	}
	// A third of all calls, however few are in flight when the first of a flight is throttled.
	k, at := known()
	calls := int64(1000)
	for flight := 0; k.Alone(at - 1); flight++ {
		if flight > 2*mean {
			t.Fatal("a third of all calls are strays")
		}
		at += time.Second
		calls += 3
		k.Add(at, at-1, 6, calls)
	}
	// One of ten is not too many.
	k, at = known()
	for range 10 * mean {
		at += time.Second
		calls += 10
		if k.Add(at, at-1, 6, calls); !k.Alone(at - 1) {
			t.Fatal("one of ten calls is no stray")
		}
	}
}

// What a gate learned from a flight is a mistake if few of it were throttled, which is known when a later call is accepted.
func TestCounter_Mistaken(t *testing.T) {
	const s = time.Second
	for n, want := range map[int]bool{1: true, 6: true, 7: false} {
		var k Counter
		for range n {
			k.Add(10*s, 9*s, 32, 40)
		}
		k.Teach(9 * s)
		if k.Mistaken(10 * s) {
			t.Error("a call of the flight tells")
		}
		if got := k.Mistaken(11 * s); got != want {
			t.Errorf("%d of 32 throttled: mistaken %t", n, got)
		}
		if k.Mistaken(11 * s) {
			t.Error("mistaken twice")
		}
		k.Teach(12 * s) // a pause that is of no flight
		if k.Mistaken(13 * s) {
			t.Error("mistaken because of another throttle")
		}
	}
	var few Counter
	few.Add(10*s, 9*s, 7, 40)
	few.Teach(9 * s)
	if few.Mistaken(11 * s) {
		t.Error("one of seven is known to be a stray")
	}
}

// Flights that are as many calls apart as before, and few, are those of an allowance.
func TestCounter_Regular(t *testing.T) {
	for _, c := range []struct {
		calls   []int64 // that had started at each flight
		regular bool
	}{
		{[]int64{39}, false},
		{[]int64{39, 82}, true},
		{[]int64{39, 84}, false}, // 39 and 45
		{[]int64{45, 84}, false},
		{[]int64{39, 69, 100}, true},
		{[]int64{63, 126}, true},
		{[]int64{64, 127}, false},
		{[]int64{10, 20, 30}, true},
		{[]int64{10, 20, 30, 40}, false}, // enough flights that are so regular are strays
	} {
		var k Counter
		for i, calls := range c.calls {
			at := time.Duration(i+1) * time.Second
			k.Add(at, at-1, 32, calls)
		}
		if got := k.Regular(); got != c.regular {
			t.Errorf("flights after %v calls: regular %t", c.calls, got)
		}
	}
}
