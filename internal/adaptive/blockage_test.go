package adaptive

import (
	"math"
	"testing"
	"time"
)

// rejected returns a controller at 10/s that was rejected at 1 s.
func rejected() *Controller {
	c := tracking(10)
	c.pace.now, c.refusal = 10, 0
	c.blockage = blockage{on: true, from: point{at: 1}, last: 1, pace: 10, rate: 10}
	return c
}

// The first poll that is rejected is followed by a gap of eight slots or 0.2 s, whichever is less, but two slots at
// least; or of the silence that the last blockage needed. Later gaps are twice as long, from 8 s on three times, and
// ten minutes at most.
func TestBlockage_Gaps(t *testing.T) {
	for _, tc := range []struct {
		name   string
		pace   float64
		polls  int
		gap    float64
		quiet  float64
		costly bool
		want   float64
	}{
		{"eight slots", 100, 0, 0, 0, false, .08},
		{"0.2 s", 10, 0, 0, 0, false, .2},
		{"two slots", 2, 0, 0, 0, false, 1},
		{"the last silence", 10, 0, 0, .9, false, .9},
		{"twice", 10, 1, .2, 0, false, .4},
		{"twice, at 8 s", 10, 1, 8, 1, false, 16},
		{"three times", 10, 1, 8.1, 1, false, 24.3},
		{"twice, if rejections are costly", 10, 1, 31, 1, true, 62},
		{"ten minutes", 10, 1, 250, 1, false, 600},
	} {
		c := rejected()
		c.cfg.Costly = tc.costly
		c.pace.now = tc.pace
		c.blockage.polls, c.blockage.gap, c.blockage.quiet = tc.polls, tc.gap, tc.quiet
		c.blockage.again(c, 2, Call{sent: 2, cost: 1})
		equal(t, tc.name, c.blockage.gap, tc.want)
		equal(t, tc.name+", next", c.next, 2+tc.want)
	}
}

// While rejections are costly, a poll comes 10 ms after the next instant at which a window of a usual length may
// begin, if that is later than half of the gap, or ten seconds, and no later than a quarter of it after the gap.
func TestBlockage_PollsAtUsualWindows(t *testing.T) {
	for _, tc := range []struct{ began, gap, want float64 }{
		{20, 8, 50.01}, // the gap ends at 49 s, and to ask just before would cost all of the window
		{18, 8, 48.01},
		{22, 8, 49},
		{14, 8, 49}, // at 44 s it is too soon
		{20, 120, 80.01},
		{-7, 120, 53.01},
	} {
		c := rejected()
		c.cfg.Costly = true // the gap doubles
		c.phase, c.blockage.polls, c.blockage.gap, c.blockage.quiet = Bounding, 2, tc.gap/2, 1
		c.window.bracket(&c.blockage, Call{sent: tc.began})
		c.blockage.again(c, 41, Call{sent: 41, cost: 1})
		equal(t, "next", c.next, tc.want)
	}
}

// The first poll comes no sooner than the silence of the last blockage, but it does not ask just before a window begins.
func TestBlockage_TheFirstPollWaitsForAUsualWindow(t *testing.T) {
	for _, tc := range []struct{ began, quiet, want float64 }{
		{20, 8.8, 50.01}, // 49.8 s is just before
		{20, 7, 48},
		{16, 8, 49}, // 46 s is too soon, if 8 were needed
	} {
		c := rejected()
		c.phase, c.blockage.quiet = Bounding, tc.quiet
		c.window.bracket(&c.blockage, Call{sent: tc.began})
		c.blockage.again(c, 41, Call{sent: 41, cost: 1})
		equal(t, "next", c.next, tc.want)
	}
}

// After a crowd a poll comes when a second has gone by since the first call, and the next one as soon after it as the gap
// before. HAProxy counts the calls of a second that slides, also those that it rejects, and accepts some at 1.6 s.
func TestBlockage_AfterTheFirstSecond(t *testing.T) {
	for _, tc := range []struct{ at, gap, next, wantGap float64 }{
		{.72, .4, 1.02, .4}, // the gap was to be 0.8 s
		{1.02, .4, 1.82, .8},
		{.55, .2, .95, .4},      // soon enough: the next poll is the one
		{5.82, 3.2, 10.02, 6.4}, // a ban must end between two polls
	} {
		c := rejected()
		c.blockage.crowd, c.blockage.polls, c.blockage.gap = true, 3, tc.gap
		c.blockage.again(c, tc.at, Call{sent: tc.at, cost: 1})
		equal(t, "next", c.next, tc.next)
		equal(t, "gap", c.blockage.gap, tc.wantGap)
	}
}

// A blockage without a wait is costly after a second, or five times what a rejection takes; one with a wait after
// three seconds, or eight times.
func TestBlockage_Costly(t *testing.T) {
	for _, tc := range []struct {
		told             bool
		blocked, refusal float64
		want             bool
	}{
		{false, 1, 0, false}, {false, 1.1, 0, true}, {false, 2.5, .5, false}, {false, 2.6, .5, true},
		{true, 3, 0, false}, {true, 3.1, 0, true}, {true, 8, 1, false}, {true, 8.1, 1, true},
	} {
		b := blockage{told: tc.told}
		if got := b.costly(tc.blocked, tc.refusal); got != tc.want {
			t.Errorf("%+v: %t", tc, got)
		}
	}
}

// A process is blocked alone if the others were accepted a third of the rate meanwhile.
func TestBlockage_Mine(t *testing.T) {
	for _, tc := range []struct {
		peers         int64
		crowd         bool
		rate, granted float64
		want          bool
	}{{2, false, 12, 41, true}, {2, false, 12, 39, false}, {1, false, 12, 41, false}, {2, true, 12, 41, false}, {2, false, 0, 41, false}} {
		c := rejected()
		c.sharing.peers, c.pace.rate, c.blockage.crowd = tc.peers, tc.rate, tc.crowd
		if got := c.blockage.mine(c, Call{before: tc.granted}, 10); got != tc.want {
			t.Errorf("%+v: %t", tc, got)
		}
	}
}

// The server was silent until the middle between the last rejected poll and the accepted one. Without a poll that says
// no more than what calls in flight explain, it was not; if it said how long to wait, twice that is a silence.
func TestBlockage_Lull(t *testing.T) {
	for _, tc := range []struct {
		last, sent float64
		told       bool
		want       float64
	}{{1.8, 2.6, false, 1.2}, {1.4, 2.6, false, 0}, {1.4, 2.6, true, 1.6}, {1.4, 1.9, true, 0}, {1.4, 2.1, true, 1.1}} {
		c := rejected()
		c.refusal, c.answer = .2, .5
		c.blockage.last, c.blockage.told = tc.last, tc.told
		equal(t, "lull", c.blockage.lull(c, Call{sent: tc.sent}), tc.want)
	}
	c := rejected()
	c.refusal, c.answer, c.blockage.last = .9, .5, 1.8
	equal(t, "a rejection takes longer than an answer", c.blockage.lull(c, Call{sent: 2.6}), 0)
}

// A poll without a reply counts as accepted after three times what a rejection takes, a millisecond at least.
func TestBlockage_Presumes(t *testing.T) {
	for refusal, want := range map[float64]float64{0: 2.001, .1: 2.3} {
		c := rejected()
		c.refusal, c.blockage.poll = refusal, Call{sent: 2}
		equal(t, "it counts as accepted at", c.blockage.silence(c), want)
	}
}

// What a blockage cost is a third at least of what the last ones did, and costs nothing if the server did not say how
// long, or if two calls were lost.
func TestBlockage_Price(t *testing.T) {
	for _, tc := range []struct {
		sent  float64
		told  bool
		price float64
		want  float64
	}{
		{2.2, true, 0, 1}, // 1.2 s less two slots
		{2.2, false, 0, 0},
		{2.2, true, 4, 1.2},
		{1.39, true, 0, 0}, // 1.9 calls
		{1.41, true, 0, .21},
		{2.4, true, 0, 1.2},
		{2.9, true, 0, 1.7},
	} {
		c := rejected()
		c.blockage.told, c.costly.price = tc.told, tc.price
		c.ledger.mark(c.blockage.from)
		c.unblock(Call{sent: tc.sent, cost: 1})
		equal(t, "price", c.costly.price, tc.want)
		if c.phase != Tracking {
			t.Errorf("%+v: %v", tc, c.phase)
		}
	}
}

// More than 15 lost calls, in a silence that is costly, are.
func TestBlockage_BecomesCostly(t *testing.T) {
	for _, tc := range []struct {
		sent float64
		told bool
		want Phase
	}{{1.2 + 1.49, false, Tracking}, {1.2 + 1.51, false, Bounding}, {1.2 + 2.9, true, Tracking}, {1.2 + 3.1, true, Bounding}} {
		c := rejected()
		c.blockage.told, c.blockage.polls = tc.told, 1
		c.ledger.mark(c.blockage.from)
		c.unblock(Call{sent: tc.sent, cost: 1})
		if c.phase != tc.want {
			t.Errorf("accepted at %v, told %t: %v, want %v", tc.sent, tc.told, c.phase, tc.want)
		}
	}
}

// Two rejected polls show a silence that the next blockage begins with, if rejections stay costly.
func TestBlockage_Quiet(t *testing.T) {
	for polls, want := range map[int]float64{1: 0, 2: 4} {
		c := rejected()
		c.phase = Bounding
		c.costly.low, c.costly.high = 5, 20
		c.blockage.polls, c.blockage.last = polls, 3
		c.unblock(Call{sent: 7, cost: 1, before: 5})
		equal(t, "quiet", c.blockage.quiet, want)
	}
}

// The full minute is that of the clock on the wall.
func TestController_Minute(t *testing.T) {
	c := New(Config{Clock: 50 * time.Second})
	equal(t, "at 5 s", c.minute(5), 10)
	equal(t, "at 15 s", c.minute(15), 70)
}

// A poll after a rejection comes a slot later, at the pace that it has shown.
func TestController_block_NextCall(t *testing.T) {
	c := tracking(10)
	c.block(2, Call{sent: 1.9, cost: 1, before: 15, pace: 10}, point{at: 1.9, granted: 15, sent: 15}, false)
	if want := 2 + 1/c.pace.now; math.Abs(c.next-want) > 1e-9 {
		t.Errorf("%v, want %v", c.next, want)
	}
	c = tracking(10)
	c.until = 7
	c.block(2, Call{sent: 1.9, cost: 1, before: 15, pace: 10}, point{at: 1.9, granted: 15, sent: 15}, true)
	equal(t, "after a pause", c.next, 7)
}

// A process whose peers are accepted asks with the same gap ten times, and then it is banned alone.
func TestBlockage_Turns(t *testing.T) {
	for polls, want := range map[int]float64{9: 1, 10: 2} { // before this one
		c := rejected()
		c.sharing.peers, c.blockage.polls, c.blockage.gap, c.blockage.quiet = 2, polls, 1, 1
		c.blockage.again(c, 2, Call{sent: 2, cost: 1, before: 1000})
		equal(t, "gap", c.blockage.gap, want)
	}
}

// Half of a silence of more than 75 s is tried after two blockages that one poll has ended, after 32 at most if it was
// too short before.
func TestShorter_Begins(t *testing.T) {
	for _, tc := range []struct {
		enough, fails int
		quiet, want   float64
	}{{9, 0, 75, 75}, {9, 0, 76, 38}, {2, 0, 80, 40}, {1, 0, 80, 80}, {32, 4, 80, 40}, {32, 9, 80, 40}, {31, 9, 80, 80}} {
		s := shorter{enough: tc.enough, fails: tc.fails}
		equal(t, "silence", s.begins(tc.quiet), tc.want)
	}
}

// A rate that is known and a minute that is used up: 300 calls at 20/s, and then none for 45 s. With gaps that grow by
// a factor of three, and a poll at the full minute of the clock, the next call came after 116 s.
func TestBlockage_AsksWhenAMinuteEnds(t *testing.T) {
	short, minute := windows(20, 1, 0), windows(300, 60, 0)
	r := newRun(t, Config{Unlimited: true, Clock: 4 * time.Second}, server{take: func(t float64) bool { return short(t) && minute(t) }})
	r.callers = 32
	r.until(180)
	if n := count(r.granted, 60, 61); n == 0 || len(r.granted) < 850 {
		t.Errorf("%d of 900 granted, %d in the first second of the second minute: %+v", len(r.granted), n, r.controller.Belief())
	}
}
