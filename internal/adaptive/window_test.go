package adaptive

import (
	"math"
	"testing"
)

// windowed returns a controller that believes in windows of count per length, one of which began at 100 s.
func windowed(count, length float64) *Controller {
	c := tracking(10)
	c.refusal = 0
	c.window.begin(c, count, length, 100)
	return c
}

// rose sets the calls after which the pace rises while rejections are costly, and those that have come.
func rose(hold, held float64) func(c *Controller) {
	return func(c *Controller) { c.phase, c.costly.hold, c.blockage.held = Bounding, hold, held }
}

// Two cycles in a row that were accepted the same, to 6 % and two calls, are a window if their paces differ by 15 %.
// Fewer than 16 calls must be equal, and twice so, and fewer than eight are equal by chance. If the pace rose after fewer than 1.3
// times the calls of the cycle before, that may be why they are alike, and it must be twice, too.
func TestWindow_Fits(t *testing.T) {
	for _, tc := range []struct {
		name        string
		before, now float64 // accepted
		paces       float64 // of the cycle now, in terms of the one before
		alike       int     // cycles before that were alike
		change      func(c *Controller)
		want        bool
	}{
		{"alike", 100, 100, 1.2, 0, nil, true},
		{"seven more", 100, 107.9, 1.2, 0, nil, true},
		{"eight more", 100, 108.1, 1.2, 0, nil, false},
		{"eight fewer", 100, 91.9, 1.2, 0, nil, false},
		{"at nearly one pace", 100, 100, 1.16, 0, nil, false},
		{"and slower", 100, 100, .85, 0, nil, true},
		{"nothing before", 0, 1, 1.2, 0, nil, false},
		{"fifteen, once", 15, 15, 1.2, 0, nil, false},
		{"fifteen, twice", 15, 15, 1.2, 1, nil, true},
		{"fifteen and a half", 15, 15.5, 1.2, 1, nil, false},
		{"sixteen", 16, 16, 1.2, 0, nil, true},
		{"eight", 8, 8, 1.2, 1, nil, true},
		{"seven", 7, 7, 1.2, 1, nil, false},
		{"costly from the first", 100, 100, 1.2, 0, func(c *Controller) { c.cfg.Costly = true }, false},
		{"a group", 100, 100, 1.2, 0, func(c *Controller) { c.sharing.peers = 2 }, false},
		{"the pace rose soon", 100, 100, 1.2, 0, rose(129, 130), false},
		{"the pace rose soon, twice", 100, 100, 1.2, 1, rose(129, 130), true},
		{"the pace rose, but not soon", 100, 100, 1.2, 0, rose(130, 131), true},
		{"the pace did not rise", 100, 100, 1.2, 0, rose(129, 129), true},
		{"an incident", 100, 100, 1.2, 0, func(c *Controller) { c.at, c.service = 130, service{since: 100, asked: 1} }, false},
	} {
		c := tracking(10)
		w := &c.window
		w.alike = tc.alike
		w.bracket(&blockage{last: 9}, Call{sent: 10})
		if tc.change != nil {
			tc.change(c)
		}
		got := w.fits(c, costlyCycle{granted: tc.before, active: 10, took: 60, least: 50}, costlyCycle{granted: tc.now, active: 10 * tc.paces, took: 60, least: 50})
		if got != tc.want {
			t.Errorf("%s: %t", tc.name, got)
		}
		if got {
			equal(t, tc.name+", count", w.count, tc.now)
			equal(t, tc.name+", length", w.length, 60)
			equal(t, tc.name+", from", w.from, 10)
			equal(t, tc.name+", used", w.used, 1)
		}
	}
}

// A cycle that is three times as long as the one before was prolonged by an incident: the window has the shortest
// usual length that fits that one.
func TestWindow_Prolonged(t *testing.T) {
	for took, want := range map[float64]float64{24: 15, 26: 77} {
		c := tracking(10)
		c.window.bracket(&blockage{last: 9}, Call{sent: 10})
		if !c.window.fits(c, costlyCycle{100, 10, took, 12}, costlyCycle{100, 20, 77, 70}) {
			t.Fatal("no window")
		}
		equal(t, "length", c.window.length, want)
	}
}

// An accepted call after which nothing was polled shows when a window began to 1.2 s.
func TestWindow_Bracket(t *testing.T) {
	var w window
	w.bracket(&blockage{from: point{at: 5}}, Call{sent: 10})
	w.bracket(&blockage{from: point{at: 9.5}}, Call{sent: 10})
	w.bracket(&blockage{from: point{at: 5}, last: 7, polls: 1}, Call{sent: 10})
	if w.brackets != [2]bracket{{7, 10}, {9.5, 10}} {
		t.Errorf("%v", w.brackets)
	}
	w = window{}
	w.bracket(&blockage{from: point{at: 5}}, Call{sent: 10})
	equal(t, "after", w.brackets[0].after, 8.8)
}

// A window is used three times as fast as its mean.
func TestWindow_Pace(t *testing.T) {
	c := windowed(100, 60)
	equal(t, "pace", c.pace.now, 5)
}

// The next call waits for the next window if half of it is more than what is left.
func TestWindow_Opens(t *testing.T) {
	for _, tc := range []struct{ used, extra, want float64 }{{9.4, 0, 0}, {9.5, 0, 160}, {10, 1, 0}, {10.5, 1, 160}} {
		c := windowed(10, 60)
		c.window.used, c.window.extra = tc.used, tc.extra
		equal(t, "opens", c.window.opens(1), tc.want)
	}
}

// Time passes into the window that it is in. One that was used to a half is the last that accepted anything.
func TestWindow_Pass(t *testing.T) {
	for _, tc := range []struct {
		at, used   float64
		from, last float64
	}{{159.9, 80, 100, 40}, {160, 80, 160, 100}, {290, 80, 280, 100}, {160, 50, 160, 40}, {160, 51, 160, 100}} {
		c := windowed(100, 60)
		c.window.used, c.window.last, c.window.restarts = tc.used, 40, 1
		c.window.pass(c, tc.at)
		equal(t, "from", c.window.from, tc.from)
		equal(t, "last", c.window.last, tc.last)
		if restarted := c.window.restarts == 0; restarted != (tc.last == 100) {
			t.Errorf("%+v: %d", tc, c.window.restarts)
		}
	}
}

// A window of which nothing was accepted has begun when the first call is, if that is later than a tenth of it. Three
// in a row are none: its rate is half.
func TestWindow_Resume(t *testing.T) {
	for _, tc := range []struct{ used, sent, from float64 }{{12, 130, 130}, {12.1, 130, 100}, {0, 106, 106}, {0, 105.9, 100}} {
		c := windowed(100, 60)
		c.window.used = tc.used
		c.window.resume(c, Call{sent: tc.sent, cost: 1})
		equal(t, "from", c.window.from, tc.from)
	}
	c := windowed(100, 60)
	for i := range 3 {
		if c.phase != Windowed {
			t.Errorf("after %d: %v", i, c.phase)
		}
		c.window.resume(c, Call{sent: c.window.from + 30, cost: 1})
	}
	if c.phase != Tracking {
		t.Errorf("after three: %v", c.phase)
	}
	equal(t, "rate", c.pace.rate, 100./2/60)
	c = windowed(100, 60)
	c.window.restarts = 2
	c.window.bounds = costly{low: 5, high: 20}
	c.window.resume(c, Call{sent: 130, cost: 1})
	if c.phase != Bounding {
		t.Errorf("there were bounds: %v", c.phase)
	}
	equal(t, "rate", c.pace.rate, .98*5)
}

// A window that is longer than it seems, twice, has that length: a usual one if it is within 5 %.
func TestWindow_Longer(t *testing.T) {
	for sent, want := range map[float64]float64{118: 20, 122: 20, 118.9: 20, 125: 25, 128: 28, 131: 30} {
		c := windowed(100, 10)
		c.window.last, c.window.seems = 100, 1000
		c.window.from = 110
		c.window.resume(c, Call{sent: sent, cost: 1})
		if math.Abs(sent-100-want) > .05*want {
			want = sent - 100
		}
		equal(t, "length", c.window.length, want)
	}
}

// Of a window that slides, a few calls are accepted after it has rejected some: a tenth of it must have been used, and
// two calls, and its end be more than a tenth away.
func TestWindow_Slides(t *testing.T) {
	for _, tc := range []struct {
		used, sent float64
		want       int
	}{{13, 120, 1}, {12, 120, 0}, {13, 153.9, 1}, {13, 154.1, 0}} {
		c := windowed(100, 60)
		c.window.used, c.window.denied = tc.used, true
		c.window.resume(c, Call{sent: tc.sent, cost: 1})
		if c.window.slides != tc.want {
			t.Errorf("%+v: %d", tc, c.window.slides)
		}
	}
}

// A window that is used up to nine tenths is asked for when the next begins: 10 ms after it, and half of what a
// rejection takes. Otherwise no later than that.
func TestWindow_Poll(t *testing.T) {
	for _, tc := range []struct {
		used, next, refusal, want float64
	}{{90, 101, 0, 160.01}, {90, 101, .2, 160.11}, {89, 101, 0, 101}, {89, 999, 0, 160}} {
		c := windowed(100, 60)
		c.window.used, c.refusal = tc.used, tc.refusal
		equal(t, "poll", c.window.poll(c, 100.5, tc.next), tc.want)
	}
	// A window that has not begun when it should have: soon after that the gap is as long as it has been, 0.1 s at least.
	for _, tc := range []struct{ t, gap, want, wantGap float64 }{
		{100.05, 30, 100.15, .1}, {103, 30, 106, 3}, {105.9, 30, 111.8, 5.9}, {107, 30, 130, 30}, {103, 1, 104, 1},
	} {
		c := windowed(100, 60)
		c.window.last, c.window.denied, c.window.used = 40, true, 9
		c.blockage.gap = tc.gap
		equal(t, "poll", c.window.poll(c, tc.t, 130), tc.want)
		equal(t, "gap", c.blockage.gap, tc.wantGap)
	}
	c := windowed(100, 60)
	c.window.last, c.window.denied, c.window.used = 40, true, 10
	equal(t, "a tenth of it was accepted, so it has begun", c.window.poll(c, 103, 130), 130)
}

// After two full windows in a row that began when they should, one that seems longer was an incident. More is tried at
// most every 16 windows, and after four windows in a row of which less was accepted it is something else.
func TestWindow_Wrong(t *testing.T) {
	c := windowed(100, 60)
	w := &c.window
	w.seems, w.used = 90, 100
	w.next(c)
	equal(t, "after one", w.seems, 90)
	w.used = 100
	w.next(c)
	equal(t, "after two", w.seems, 0)
	c = windowed(100, 60)
	w = &c.window
	for i := range 4 {
		if c.phase != Windowed {
			t.Errorf("after %d: %v", i, c.phase)
		}
		w.used, w.denied = 70-10*float64(i), true
		w.next(c)
	}
	if c.phase != Tracking {
		t.Errorf("after four: %v", c.phase)
	}
	equal(t, "rate", c.pace.rate, 40./60)
	c = windowed(100, 60)
	w = &c.window
	w.extra, w.patience, w.used, w.denied = 1, 12, 100, true
	w.next(c)
	if w.patience != 16 {
		t.Errorf("more is tried after %d windows", w.patience)
	}
	w.extra, w.used, w.patience = 0, 99.5, 1
	w.next(c)
	equal(t, "a window is full to half a call, and more is tried", w.extra, 1)
}

// Four calls that are accepted after others of their window were rejected show that it slides.
func TestWindow_SlidesFourTimes(t *testing.T) {
	for slides, want := range map[int]Phase{2: Windowed, 3: Tracking} { // before this one
		c := windowed(100, 60)
		c.window.used, c.window.denied, c.window.slides = 50, true, slides
		if c.window.resume(c, Call{sent: 120, cost: 1}); c.phase != want {
			t.Errorf("after %d: %v, want %v", slides+1, c.phase, want)
		}
	}
}
