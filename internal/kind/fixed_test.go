package kind

import (
	"math"
	"testing"
	"time"

	"github.com/sluice-go/sluice/limits"
)

// days are days in UTC.
func days(wall int64) (start, end int64) {
	const day = int64(24 * time.Hour)
	start = wall - wall%day
	if wall < start {
		start -= day
	}
	return start, start + day
}

func TestFixed_TakeAnchored(t *testing.T) {
	q := Fixed{Limit: 3, Window: 10 * sec}
	for name, steps := range map[string][]step{
		"the window begins with the first call": {
			{at: 3, n: 0, allowed: true, left: 3},
			{at: 4, n: 4, wait: -1, left: 3}, // and not with a rejected one
			{at: 5, n: 1, allowed: true, left: 2, reset: 10},
			{at: 14, n: 2, allowed: true, reset: 1},
			{at: 14, n: 1, wait: 1, reset: 1},
			{at: 14, n: 4, wait: -1, reset: 1},
			{at: 14, n: 0, allowed: true, reset: 1},
			{at: 15, n: 0, allowed: true, left: 3},
			{at: 19, n: 3, allowed: true, reset: 10}, // and the next one with the next call
			{at: 28, n: 1, wait: 1, reset: 1},
		},
		"the clock steps back: nothing minted, nothing lost": {
			{at: 100, n: 2, allowed: true, left: 1, reset: 10},
			{at: 95, n: 1, allowed: true, reset: 15},
			{at: 95, n: 1, wait: 15, reset: 15},
			{at: 109, n: 1, wait: 1, reset: 1},
			{at: 110, n: 3, allowed: true, reset: 10},
		},
	} {
		var f FixedState
		for _, s := range steps {
			check(t, name, s, q.Take(&f, time.Duration(s.at)*sec, 0, s.n), 3)
		}
	}
}

// What a Fixed lets through around an edge, as the doc of window says, and a Sliding does not.
func TestFixed_TakeTwiceTheLimitAtAnEdge(t *testing.T) {
	anchored := Fixed{Limit: 10, Window: 60 * sec}
	daily := Fixed{Limit: 10, Edges: days}
	for _, q := range []*Fixed{&anchored, &daily} {
		var f FixedState
		var h SlidingState
		midnight := time.Date(2024, 5, 6, 0, 0, 0, 0, time.UTC).UnixNano()
		at := 100 * sec
		if q.Edges == nil {
			q.Take(&f, at-q.Window, 0, 1) // where the window is anchored
		}
		fixed, sliding := 0, 0
		for _, now := range []time.Duration{at - 1, at} {
			for range 20 {
				if q.Take(&f, now, midnight+int64(now-at), 1).Allowed() {
					fixed++
				}
				if (Sliding{10, 60 * sec}).Take(&h, now, 1).Allowed() {
					sliding++
				}
			}
		}
		if want := map[*Fixed]int{&anchored: 19, &daily: 20}[q]; fixed != want || sliding != 10 {
			t.Errorf("%v: %d calls within a nanosecond, want %d; %d of the Sliding", q, fixed, want, sliding)
		}
	}
}

func TestFixed_TakeLongestWindow(t *testing.T) {
	for _, window := range []time.Duration{30 * 24 * time.Hour, math.MaxInt64} {
		for _, start := range []time.Duration{0, math.MinInt64 / 2, math.MaxInt64 - 2*sec} {
			q := Fixed{Limit: 2, Window: window}
			var f FixedState
			q.Take(&f, start, 0, 2)
			if got := q.Take(&f, start+sec, 0, 1); got.Allowed() || got.RetryAfter != window-sec {
				t.Errorf("window of %v from %v: %+v", window, start, got)
			}
		}
	}
}

func TestFixed_Adjust(t *testing.T) {
	for _, q := range []Fixed{{Limit: 3, Window: 24 * time.Hour}, {Limit: 3, Edges: days}} {
		var f FixedState
		hour := func(h int) (time.Duration, int64) {
			return time.Duration(h) * time.Hour, int64(h) * int64(time.Hour)
		}
		adjust := func(h int, delta int64) {
			now, wall := hour(h)
			q.Adjust(&f, now, wall, delta, 0)
		}
		want := func(h int, n int64, allowed bool, left int64) {
			t.Helper()
			now, wall := hour(h)
			before := f
			if got := q.Take(&f, now, wall, n); got.Allowed() != allowed || got.Remaining != left {
				t.Errorf("%v: %d at %d h: %+v", q, n, h, got)
			} else if !allowed && f != before {
				t.Errorf("%v: a refusal changed the state", q)
			}
		}
		adjust(0, -1)
		want(0, 1, true, 2)
		adjust(1, 5)
		want(1, 1, false, 0)
		adjust(1, -3)
		want(1, 1, false, 0)
		adjust(1, -1)
		want(1, 1, true, 0)
		adjust(1, math.MinInt64)
		want(1, 0, true, 3)
		want(1, 3, true, 0)
		adjust(2, math.MaxInt64)
		adjust(2, math.MaxInt64)
		want(23, 1, false, 0)
		adjust(23, -math.MaxInt64)
		adjust(23, 1)
		adjust(60, -1) // of a window that has ended
		want(60, 3, true, 0)
		adjust(120, 4) // begins a window
		want(120, 1, false, 0)
	}
}

// A window whose only call is returned has no anchor.
func TestFixed_AdjustLeavesNoAnchor(t *testing.T) {
	q := Fixed{Limit: 3, Window: 10 * sec}
	var f FixedState
	q.Take(&f, 0, 0, 2)
	q.Adjust(&f, 0, 0, -2, 0)
	q.Take(&f, 9*sec, 0, 3)
	if got := q.Take(&f, 10*sec, 0, 1); got.RetryAfter != 9*sec {
		t.Errorf("%+v", got)
	}
}

// What is returned after midnight is not of the day before, should that come
// again.
func TestFixed_AdjustAfterTheEnd(t *testing.T) {
	q := Fixed{Limit: 3, Edges: days}
	var f FixedState
	midnight := 24 * time.Hour
	q.Take(&f, 0, int64(midnight-1), 3)
	q.Adjust(&f, 1, int64(midnight), -1, 0)
	if got := q.Take(&f, 2, int64(midnight-1), 1); got.Allowed() {
		t.Errorf("%+v", got)
	}
}

// A clock is a wall clock that someone sets, and the monotonic one.
type clock struct {
	now  time.Duration
	wall time.Time
}

func (c *clock) pass(d time.Duration) { c.now += d; c.wall = c.wall.Add(d) }
func (c *clock) set(d time.Duration)  { c.wall = c.wall.Add(d) }

// The cases of the design comment, and some more: after each step the clock is
// set and a call made.
func TestFixed_ClockIsSet(t *testing.T) {
	const day, hour = 24 * time.Hour, time.Hour
	type act struct {
		pass, set time.Duration
		n         int64
		left      int64         // remaining, -1 if rejected
		wait      time.Duration // of a rejection
	}
	for name, c := range map[string]struct {
		begin string // on the 2nd
		acts  []act
	}{
		"back within the day": {"09:00", []act{
			{n: 3, left: 0},
			{set: -hour, n: 1, left: -1, wait: 16 * hour},
			{pass: 16*hour - 1, n: 1, left: -1, wait: 1},
			{pass: 1, n: 3, left: 0}, // 25 hours in all
		}},
		"back over midnight": {"23:00", []act{
			{n: 3, left: 0},
			{pass: 70 * time.Minute, n: 1, left: 2},                   // 00:10
			{set: -hour, n: 1, left: 1},                               // 23:10: nothing lost
			{n: 1, left: 0},                                           //
			{n: 1, left: -1, wait: day + 50*time.Minute},              // nothing minted
			{pass: 50 * time.Minute, n: 1, left: -1, wait: day},       // 00:00 again: still the 3rd
			{pass: day, n: 3, left: 0},                                // the 4th
			{pass: 2 * day, set: -2 * day, n: 1, left: -1, wait: day}, // no call meanwhile
		}},
		"back over midnight, exhausted before": {"23:59", []act{
			{n: 3, left: 0},
			{pass: time.Minute, n: 0, left: 3},                      // the 3rd, and nothing was taken
			{set: -1, n: 1, left: -1, wait: 1},                      // the 2nd again
			{pass: 1, n: 3, left: 0},                                // the 3rd
			{set: -1, n: 1, left: -1, wait: day + 1},                // stays
			{set: -time.Hour, n: 0, left: 0},                        //
			{set: 2 * time.Hour, n: 1, left: -1, wait: 23*hour + 1}, // and no clock mints it
		}},
		"back by a day, for good": {"12:00", []act{
			{n: 3, left: 0},
			{set: -day, n: 1, left: -1, wait: 36 * hour}, // at midnight it is the 2nd again, and so it lasts till its end
			{pass: 12 * hour, n: 1, left: -1, wait: day},
			{pass: day, n: 3, left: 0},
		}},
		"back by ten days, for good": {"12:00", []act{
			{n: 3, left: 0},
			{pass: hour, set: -10 * day, n: 1, left: -1, wait: 23 * hour}, // a day after it began
			{pass: 23*hour - 1, n: 1, left: -1, wait: 1},
			{pass: 1, n: 3, left: 0},          // noon: the day the clock shows
			{n: 1, left: -1, wait: 12 * hour}, // which ends as days do
			{pass: 12 * hour, n: 3, left: 0},  //
			{pass: 12 * hour, n: 1, left: -1, wait: 12 * hour},
		}},
		"a year ahead for a moment": {"12:00", []act{
			{n: 3, left: 0},
			{set: 365 * day, n: 2, left: 1}, // looks like a machine that slept
			{set: -365 * day, n: 1, left: 0},
			{n: 1, left: -1, wait: day}, // a day, not a year
			{pass: day, n: 3, left: 0},
		}},
		"forward within the day": {"01:00", []act{
			{n: 3, left: 0},
			{set: 22 * hour, n: 1, left: -1, wait: hour},
			{pass: hour, n: 3, left: 0},
		}},
		"asleep for a week": {"12:00", []act{
			{n: 3, left: 0},
			{set: 7 * day, n: 3, left: 0}, // the monotonic clock stood still
			{n: 1, left: -1, wait: 12 * hour},
		}},
	} {
		begin, err := time.Parse("2006-01-02 15:04", "2024-05-02 "+c.begin)
		if err != nil {
			t.Fatal(err)
		}
		q := Fixed{Limit: 3, Edges: days}
		clock := clock{wall: begin}
		var f FixedState
		for i, a := range c.acts {
			clock.pass(a.pass)
			clock.set(a.set)
			got := q.Take(&f, clock.now, clock.wall.UnixNano(), a.n)
			want := limits.Result{Limit: 3, Remaining: max(0, a.left), ResetAfter: got.ResetAfter}
			if a.left < 0 {
				want.RetryAfter, want.ResetAfter = a.wait, a.wait
			}
			if got != want {
				t.Errorf("%s: step %d, %v: %+v, want %+v", name, i, clock.wall, got, want)
			}
		}
	}
}

func TestFixed_Decide(t *testing.T) {
	r := Fixed{Limit: 5}
	for _, v := range []struct {
		used, n, after int64
		want           limits.Result
	}{
		{0, 0, 0, limits.Result{Limit: 5, Remaining: 5}},
		{0, 5, 5, limits.Result{Limit: 5, ResetAfter: sec}},
		{3, 2, 5, limits.Result{Limit: 5, ResetAfter: sec}},
		{3, 3, 3, limits.Result{Limit: 5, Remaining: 2, RetryAfter: sec, ResetAfter: sec}},
		{3, 6, 3, limits.Result{Limit: 5, Remaining: 2, RetryAfter: limits.Never, ResetAfter: sec}},
		{7, 1, 7, limits.Result{Limit: 5, RetryAfter: sec, ResetAfter: sec}},
		{7, 0, 7, limits.Result{Limit: 5, ResetAfter: sec}},
	} {
		if after, got := r.Decide(v.used, sec, v.n); after != v.after || got != v.want {
			t.Errorf("%d beside %d: %d, %+v; want %d, %+v", v.n, v.used, after, got, v.after, v.want)
		}
	}
}

func TestFixed_Idle(t *testing.T) {
	const hour = time.Hour
	anchored, daily := Fixed{Limit: 3, Window: hour}, Fixed{Limit: 3, Edges: days}
	var a, d FixedState
	if !anchored.Idle(&a, 0, 0) || !daily.Idle(&d, 0, 0) {
		t.Error("what was never used is not idle")
	}
	anchored.Take(&a, hour, 0, 1)
	daily.Take(&d, 18*hour, int64(18*hour), 1)
	for _, v := range []struct {
		now             time.Duration
		anchored, daily bool
	}{
		{18 * hour, true, false}, {24 * hour, true, false}, // over, but the clock may be put back
		{42*hour - 1, true, false}, {42 * hour, true, true},
	} {
		if got := anchored.Idle(&a, v.now, 0); got != v.anchored {
			t.Errorf("anchored, at %v: %v", v.now, got)
		}
		if got := daily.Idle(&d, v.now, int64(v.now)); got != v.daily {
			t.Errorf("daily, at %v: %v", v.now, got)
		}
	}
	if anchored.Idle(&a, 2*hour-1, 0) || !anchored.Idle(&a, 2*hour, 0) || daily.Idle(&d, 50*hour, int64(20*hour)) {
		t.Error("in its window it is idle, or after it is not")
	}
}
