package adaptive

import "testing"

// burst returns a controller without a pace whose calls started at 0, that was rejected at an instant, after so much
// was accepted.
func burst(at, granted float64) *Controller {
	c := New(Config{Unlimited: true})
	c.Started(0, 1, 0)
	c.ledger.sent = granted
	c.blockage = blockage{on: true, crowd: true, from: point{at: at, granted: granted}}
	c.crowded(c.blockage.from)
	return c
}

// After the first rejection of a crowd the search begins at half of the first pace, 10/s. If calls were accepted for
// more than ten seconds, it is at least at half of what was accepted.
func TestCrowd_Begins(t *testing.T) {
	for _, tc := range []struct{ at, granted, want float64 }{{1, 1000, 10}, {10, 1000, 10}, {10.5, 1050, 50}, {12, 1, 10}} {
		c := burst(tc.at, tc.granted)
		equal(t, "pace", c.pace.now, tc.want)
		if c.phase != Searching {
			t.Errorf("%v", c.phase)
		}
		// When the burst is answered it is the first pace, and still half of it after a silence.
		c.crowd.begin(c)
		equal(t, "pace when it is answered", c.pace.now, max(20, tc.want))
		c.pace.now, c.crowd.size = 1, 50
		c.crowd.begin(c)
		equal(t, "after a silence", c.pace.now, 10)
	}
}

// A silence of a tenth of a second, and as long as half of the time until its end, shows the rate: 85 % of what was
// accepted. Where the server says how long to wait, and calls take amounts of another unit, too, 75 %. Fewer than four
// calls show nothing, nor does a silence in which no poll was rejected.
func TestCrowd_Silence(t *testing.T) {
	for _, tc := range []struct {
		name              string
		from, to, granted float64
		polls             int
		told, other       bool
		rate, most        float64
	}{
		{"a poll was rejected", .1, 1, 50, 1, false, false, 42.5, 0},
		{"two were, the last at 0.8 s", .1, 1, 50, 2, false, false, 42.5, 62.5},
		{"none was", .1, 1, 50, 0, false, false, 0, 0},
		{"the server said how long", .1, 1, 50, 0, true, false, 42.5, 0},
		{"and calls take more units", .1, 1, 50, 0, true, true, 37.5, 0},
		{"they do, and it did not", .1, 1, 50, 1, false, true, 42.5, 0},
		{"four calls", .1, 1, 4, 1, false, false, 3.4, 0},
		{"three", .1, 1, 3, 1, false, false, 0, 0},
		{"half of the time", .5, 1, 50, 1, false, false, 42.5, 0},
		{"less", .51, 1, 50, 1, false, false, 0, 0},
		{"a tenth of a second", .05, .151, 50, 1, false, false, .85 * 50 / .151, 0},
		{"less than that", .05, .149, 50, 1, false, false, 0, 0},
	} {
		c := burst(tc.from, tc.granted)
		b := &c.blockage
		b.polls, b.told, b.last, c.other, c.pace.now = tc.polls, tc.told, .8, tc.other, 1
		c.crowd.silent(c, Call{sent: tc.to, cost: 1, before: tc.granted})
		equal(t, tc.name, c.crowd.rate, tc.rate)
		equal(t, tc.name+", most", c.crowd.most, tc.most)
		equal(t, tc.name+", pace", c.pace.now, max(1, tc.rate))
	}
}

// What the last rejected poll allows bounds the search until as many calls were granted at that pace as before the silence.
func TestCrowd_Bound(t *testing.T) {
	k := crowd{most: 60, left: 2}
	for _, tc := range []struct{ pace, want float64 }{{50, 50}, {70, 60}, {80, 60}, {80, 80}} {
		equal(t, "pace", k.bound(tc.pace), tc.want)
	}
}

// A cycle that was granted half of what the burst was, and four calls more at most, is a window, if polls were rejected.
func TestCrowd_Windowed(t *testing.T) {
	for _, tc := range []struct {
		granted, most float64
		want          bool
	}{{50, 60, true}, {25, 60, true}, {24, 60, false}, {54, 60, true}, {55, 60, false}, {50, 0, false}} {
		c := burst(.1, 50)
		c.crowd.size, c.crowd.most = 50, tc.most
		c.cycles.past[1-c.cycles.next] = cycle{n: 1, parts: [cyclePoints]part{{1, tc.granted}}}
		if got := c.crowd.windowed(c); got != tc.want {
			t.Errorf("%+v: %t", tc, got)
		}
	}
}

// A first burst is one of four calls or more that took a second at most.
func TestCrowd_Measure(t *testing.T) {
	for _, tc := range []struct{ took, granted, first, mean float64 }{{1, 4, 4, 2}, {1.1, 40, 0, 0}, {1, 3, 0, 0}, {.1, 50, 50, 25}} {
		c := burst(tc.took, tc.granted)
		c.crowd.measure(c, Call{sent: 2, before: tc.granted})
		equal(t, "granted", c.crowd.first.granted, tc.first)
		equal(t, "per second", c.crowd.mean, tc.mean)
	}
}

// All of a burst were in flight together if it took less than half of an answer, and were four at least.
func TestCrowd_Places(t *testing.T) {
	for _, tc := range []struct{ took, granted, answer, want float64 }{{.1, 10, .3, 10}, {.1, 10, .2, 0}, {.1, 10, .21, 10}, {.1, 4, .3, 4}, {.1, 3, .3, 0}} {
		c := New(Config{})
		c.meanCost, c.answer, c.crowd.first = 1, tc.answer, part{tc.took, tc.granted}
		equal(t, "places", c.crowd.places(c), tc.want)
	}
}

// The bucket that the burst has emptied explains a cycle at one rate, to half a call. That is believed if it is half
// more than a window would have granted, and if half a call changes it by no more than half.
func TestCrowd_Explains(t *testing.T) {
	for _, tc := range []struct {
		name  string
		first part
		mean  float64
		last  part
		most  float64
		peers int64
		rate  float64
		error float64
	}{
		{"a cycle of two seconds", part{.1, 6}, 30, part{2, 100}, 1000, 0, 94.5 / 1.9, .1},
		{"a window would have granted nearly as many", part{.1, 6}, 33.2, part{2, 100}, 1000, 0, 0, 0},
		{"or not quite", part{.1, 6}, 33.1, part{2, 100}, 1000, 0, 94.5 / 1.9, .1},
		{"it is above all that is possible", part{.1, 6}, 30, part{2, 100}, 49, 0, 0, 0},
		{"of a group nothing is known", part{.1, 6}, 30, part{2, 100}, 1000, 2, 0, 0},
		{"a short cycle", part{.05, 1.5}, 1, part{.1, 2}, 1000, 0, 20, .25},
		{"one that is too short", part{.05, 1.5}, 1, part{.1, 1.4}, 1000, 0, 0, 0},
	} {
		c := New(Config{})
		c.meanCost, c.sharing.peers = 1, tc.peers
		c.crowd.first, c.crowd.mean = tc.first, tc.mean
		c.cycles.past[1-c.cycles.next] = cycle{n: 1, parts: [cyclePoints]part{tc.last}}
		f := c.crowd.explains(c, tc.most)
		if d := f.rate - tc.rate; d < -1e-3 || d > 1e-3 {
			t.Errorf("%s: %v/s, want %v", tc.name, f.rate, tc.rate)
		}
		if d := f.error - tc.error; d < -1e-3 || d > 1e-3 {
			t.Errorf("%s: an error of %v, want %v", tc.name, f.error, tc.error)
		}
	}
}

// A silence after a crowd has cost as many calls as the pace would have made, but no more than it was granted before,
// if it was shorter than ten seconds. One that was granted three calls has lost nothing, unless the silence is longer
// and was not announced.
func TestCrowd_Lost(t *testing.T) {
	for _, tc := range []struct {
		granted, blocked float64
		told             bool
		want             float64
	}{
		{20, 1, false, 10}, {20, 5, false, 20}, {20, 11, false, 110}, {4, 5, false, 4}, {3, 5, false, 0}, {3, 9.9, false, 0}, {3, 10, false, 100}, {3, 20, true, 0}, {4, 20, true, 200},
	} {
		c := burst(.1, tc.granted)
		c.blockage.told = tc.told
		equal(t, "lost", c.crowdLost(Call{before: tc.granted}, tc.blocked), tc.want)
	}
}

// The bursts of windows that begin with the first call end after 1, 10 and 60 s, and a poll comes 20 ms later; without a
// burst only after 60. In a group only the first is asked for, and one that ended just now is not: by a tenth, or a second.
func TestCrowd_Ends(t *testing.T) {
	for _, tc := range []struct {
		at    float64
		peers int64
		want  float64
	}{{.5, 0, 1.02}, {.9, 0, 1.02}, {.93, 0, 10.02}, {9, 0, 10.02}, {9.03, 0, 60.02}, {59, 0, 60.02}, {.5, 2, 1.02}} {
		c := burst(.1, 10)
		c.sharing.peers = tc.peers
		equal(t, "the next poll", c.firstEnds(tc.at), tc.want)
	}
	alone := burst(.1, 10)
	alone.blockage.crowd = false
	equal(t, "the next poll without a burst", alone.firstEnds(.5), 60.02)
	for at, peers := range map[float64]int64{60: 0, 2: 2} {
		c := burst(.1, 10)
		if c.sharing.peers = peers; c.firstEnds(at) < 1e9 {
			t.Errorf("at %v s with %d peers it asks at %v", at, peers, c.firstEnds(at))
		}
	}
}
