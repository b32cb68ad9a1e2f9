package sluicehttp

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/sluice-go/sluice/internal/adaptive"
	"github.com/sluice-go/sluice/sluicehttp/ratelimit"
)

// A source returns the remaining quota that a server states after call i at an instant, in seconds, and whether it grants
// the call.
type source func(i int, at float64) (remaining float64, granted bool)

// bucketOf returns a bucket of which a call takes so much. It throttles no call if it limits nothing.
func bucketOf(rate, size, cost float64, limits bool) source {
	level, last := size, 0.
	return func(_ int, at float64) (float64, bool) {
		level, last = min(size, level+rate*(at-last)), at
		if level < cost && limits {
			return 0, false
		}
		level = max(0, level-cost)
		return math.Floor(level), true
	}
}

// A flowTest plays calls at a pace that rises from first to last per second within so many seconds.
type flowTest struct {
	first, last, lasts float64
	jitter             float64 // seconds that a call takes longer to the server, at most
	reset              func(at float64) time.Duration
	rounding           time.Duration
}

// play returns what was found, until a rate was or one before is wrong.
func (c flowTest) play(f *flow, says source, start time.Time) (all []adaptive.Refill, found adaptive.Refill) {
	random := rand.New(rand.NewPCG(1, 2))
	most := ratelimit.Limit{Rounding: c.rounding}
	for i, at := 0, 0.; at < c.lasts && found.Rate == 0 && !found.Wrong; i++ {
		late := .01 + c.jitter*random.Float64()
		remaining, granted := says(i, at+late)
		sent := start.Add(time.Duration(at * 1e9))
		now := sent.Add(time.Duration((late + .01) * 1e9))
		most.ResetAt = now.Add(time.Second)
		if c.reset != nil {
			most.ResetAt = start.Add(c.reset(at + late))
		}
		r := reply{now: now, sent: sent, call: uint16(i + 1), granted: granted, refused: !granted}
		found = f.note(&most, remaining, &r)
		all = append(all, found)
		at += 1 / (c.first + (c.last-c.first)*at/c.lasts)
	}
	return all, found
}

// The rate of a bucket is found before it is empty, also if calls take unequal time. Where the pace is lower, each
// response says that it is full.
func TestFlow_Bucket(t *testing.T) {
	for _, c := range []struct{ rate, size, jitter float64 }{
		{50, 10, 0}, {50, 10, .004}, {20, 5, 0}, {20, 20, .01}, {200, 20, 0}, {3, 10, 0}, {50, 100, .004},
	} {
		test := flowTest{first: c.rate / 2, last: 3 * c.rate, lasts: 400 / c.rate, jitter: c.jitter, rounding: time.Second}
		all, found := test.play(new(flow), bucketOf(c.rate, c.size, 1, true), time.Unix(1e9, 0))
		if !(math.Abs(found.Rate/c.rate-1) <= found.Unsure) || found.Unsure > roughly || found.Proven || found.Wrong {
			t.Errorf("%+v: %+v", c, found)
		}
		full := 0
		for _, r := range all {
			if r.Full {
				full++
			}
		}
		if full < 5 {
			t.Errorf("%+v: %d full of %d", c, full, len(all))
		}
	}
}

// A pace far above the rate empties a bucket before that is known well. The responses say so, and stop saying so in a
// window, in which nothing comes back, and in a bucket that is not soon empty.
func TestFlow_Sinks(t *testing.T) {
	test := flowTest{first: 200, last: 200, lasts: .2, rounding: time.Second}
	for name, c := range map[string]struct {
		says source
		want int
	}{
		"a bucket":       {bucketOf(50, 10, 1, true), 10},
		"a large bucket": {bucketOf(50, 100, 1, true), 0},
		"a window":       {bucketOf(0, 30, 1, true), 2},
	} {
		all, _ := test.play(new(flow), c.says, time.Unix(1e9, 0))
		sinks := 0
		for _, r := range all {
			if r.Sinks {
				sinks++
			}
		}
		if sinks != c.want {
			t.Errorf("%s: %d", name, sinks)
		}
	}
}

// While a bucket fills up, its rate is found as well.
func TestFlow_Rises(t *testing.T) {
	says := bucketOf(50, 20, 1, true)
	f := new(flow)
	for range 15 { // at once
		says(0, 0)
	}
	f.full = 19
	_, found := flowTest{first: 45, last: 45, lasts: 5, rounding: time.Second}.play(f, says, time.Unix(1e9, 0))
	if math.Abs(found.Rate-50) > 50*found.Unsure || found.Unsure > wellKnown || f.used {
		t.Errorf("%+v", found)
	}
}

// No rate is found where what remains is not that of a bucket of the calls, or the reset is that of a window.
func TestFlow_NoBucket(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	window := func(n, per float64) source {
		used, begin := 0., -1.
		return func(_ int, at float64) (float64, bool) {
			if b := math.Floor(at / per); b != begin {
				used, begin = 0, b
			}
			used++
			return max(0, n-used), used <= n
		}
	}
	one, other := bucketOf(20, 20, 1, false), bucketOf(20, 20, 1, false)
	bucket := func() source { return bucketOf(50, 10, 1, true) }
	rising := flowTest{first: 25, last: 150, lasts: 8, rounding: time.Second}
	at := func(reset func(float64) time.Duration, rounding time.Duration) flowTest {
		c := rising
		c.reset, c.rounding = reset, rounding
		return c
	}
	seconds := func(s float64) time.Duration { return time.Duration(s * 1e9) }
	for name, c := range map[string]struct {
		test flowTest
		says source
	}{
		"always the same":     {rising, func(int, float64) (float64, bool) { return 7, true }},
		"nothing, always":     {rising, func(int, float64) (float64, bool) { return 0, true }},
		"at random":           {rising, func(int, float64) (float64, bool) { return float64(random.IntN(10)), true }},
		"less and less":       {rising, func(i int, _ float64) (float64, bool) { return max(0, 50-float64(i)), true }},
		"a window of 1 s":     {rising, window(50, 1)},
		"a window of .1 s":    {rising, window(5, .1)},
		"two buckets in turn": {rising, func(i int, at float64) (float64, bool) { return []source{one, other}[random.IntN(2)](i, at) }},
		"others, in bursts": {rising, func() source {
			says, next := bucket(), .3
			return func(i int, at float64) (float64, bool) {
				for ; at > next; next += .3 {
					for range 4 {
						says(0, at)
					}
				}
				return says(i, at)
			}
		}()},
		"each takes three":          {rising, bucketOf(150, 30, 3, true)},
		"the reset stands":          {at(func(float64) time.Duration { return time.Minute }, 0), bucket()},
		"the reset hardly moves":    {at(func(at float64) time.Duration { return 30*time.Second + seconds(at/4) }, time.Millisecond), bucket()},
		"the reset is of the clock": {at(func(at float64) time.Duration { return seconds(math.Ceil(at + 1)) }, time.Second), bucket()},
		"it is compared with Date":  {at(func(at float64) time.Duration { return seconds(at + 1) }, 2*time.Second), bucket()},
	} {
		if _, found := c.test.play(new(flow), c.says, time.Unix(1e9, 0)); found.Rate > 0 {
			t.Errorf("%s: %+v", name, found)
		}
	}
}

// steep is a pace above the rate of a bucket of 50/s with a burst of 10, that is found on the way.
var steep = flowTest{first: 75, last: 75, lasts: 1, rounding: time.Second}

// Calls that are on their way count as if they had taken their part. If they may need more than is left, that is a debt.
func TestFlow_Debt(t *testing.T) {
	for later, want := range map[float64]float64{0: 0, 1: 0, 4: 2, 10: 8} {
		now := time.Unix(1e9, 0)
		f := flow{full: 9, from: gauge{call: 1, remaining: 9}, bounds: bounds{40, 60}, last: bounds{40, 60}}
		at := gauge{call: 13, sent: now, now: now, remaining: 4}
		if found := f.find(&at, later); found.Rate != 50 || found.Debt != want {
			t.Errorf("%v later: %+v, want a debt of %v", later, found, want)
		}
	}
}

// What has come back while the response was on its way is no debt: a call that is sent now is counted as long after those
// before it. At 50/s with responses of a second a gate stood still for a second each time.
func TestFlow_Debt_SlowResponses(t *testing.T) {
	sent := time.Unix(1e9, 0)
	f := flow{full: 9, from: gauge{call: 1, remaining: 9}, bounds: bounds{40, 60}, last: bounds{40, 60}}
	at := gauge{call: 13, sent: sent, now: sent.Add(time.Second), remaining: 4}
	if found := f.find(&at, 50); found.Rate != 50 || found.Debt != 8 { // 4 - 50 + 40
		t.Errorf("%+v, want a debt of 8", found)
	}
}

// A throttled call is often much quicker than one that is granted. That proves the rate as well.
func TestFlow_Proof_QuickThrottle(t *testing.T) {
	f, start, says := new(flow), time.Unix(1e9, 0), bucketOf(50, 10, 1, true)
	l := ratelimit.Limit{Rounding: time.Second}
	for i, granted := 0, true; granted; i++ {
		var remaining float64
		at := float64(i) / 75
		if remaining, granted = says(i, at); i > 100 {
			t.Fatal("no call is throttled")
		}
		took := 200 * time.Millisecond
		if !granted {
			took = 5 * time.Millisecond
		}
		sent := start.Add(time.Duration(at * 1e9))
		now := sent.Add(took)
		l.ResetAt = now.Add(time.Second)
		if found := f.note(&l, remaining, &reply{now: now, sent: sent, call: uint16(i + 1), granted: granted, refused: !granted}); found.Wrong {
			t.Errorf("call %d: %+v", i, found)
		}
	}
	if f.proven.IsZero() {
		t.Error("not proven")
	}
}

// The numbers of calls wrap. A bucket that is never quite full again was believed no more after 65,536 calls.
func TestFlow_NumbersWrap(t *testing.T) {
	f, start := new(flow), time.Unix(1e9, 0)
	l := ratelimit.Limit{Rounding: time.Second}
	for i := range 200_000 {
		now := start.Add(time.Duration(i) * time.Millisecond)
		l.ResetAt = now.Add(time.Second)
		remaining := 98.
		if i == 0 {
			remaining = 99
		}
		r := reply{now: now, sent: now.Add(-10 * time.Millisecond), call: max(1, uint16(i+1)), granted: true}
		if found := f.note(&l, remaining, &r); found.Wrong {
			t.Fatalf("call %d: %+v", i, found)
		}
	}
}

// The pace is lowered once. Then the bucket has to be emptied: a call that is throttled when nothing remains proves the
// rate, for a minute, and then for two.
func TestFlow_Proof(t *testing.T) {
	f, now := new(flow), time.Unix(1e9, 0)
	round := func(what string, lowers, proven bool) {
		t.Helper()
		now = now.Add(2 * time.Second)
		f.call, f.from = 0, gauge{}
		_, found := steep.play(f, bucketOf(50, 10, 1, true), now)
		if (found.Rate > 0) != lowers || found.Proven != proven || found.Wrong {
			t.Errorf("%s: %+v", what, found)
		}
	}
	round("first", true, false)
	round("not proven", false, false) // it is emptied
	round("proven", true, true)
	now = now.Add(time.Minute)
	round("after a minute", false, false)
	now = now.Add(time.Minute)
	round("it lasts for two", true, true)
}

// What is not true is believed no longer, for a minute, and then for two. Only the first such response says so.
func TestFlow_Fail(t *testing.T) {
	throttled := func(remaining float64) func(*flow, time.Time) adaptive.Refill {
		return func(f *flow, now time.Time) adaptive.Refill {
			return f.note(&ratelimit.Limit{ResetAt: now.Add(time.Second)}, remaining, &reply{now: now, sent: now.Add(-time.Millisecond), call: f.call + 1, refused: true})
		}
	}
	slower := func(f *flow, now time.Time) adaptive.Refill {
		f.call, f.from, f.used = 0, gauge{}, false
		_, found := flowTest{first: 30, last: 30, lasts: 2, rounding: time.Second}.play(f, bucketOf(20, 10, 1, true), now)
		return found
	}
	for name, then := range map[string]func(*flow, time.Time) adaptive.Refill{
		"throttled when it must be full": throttled(0),
		"throttled with something left":  throttled(1),
		"throttled without a word":       func(f *flow, now time.Time) adaptive.Refill { return f.fail(now) },
		"another rate":                   slower,
	} {
		f, now := new(flow), time.Unix(1e9, 0)
		if _, found := steep.play(f, bucketOf(50, 10, 1, true), now); found.Rate == 0 {
			t.Fatal("there is no rate")
		}
		for _, bar := range []time.Duration{time.Minute, 2 * time.Minute} {
			now = now.Add(time.Second)
			if found := then(f, now); !found.Wrong {
				t.Errorf("%s: %+v", name, found)
			}
			if found := throttled(1)(f, f.barred.Add(-1)); found != (adaptive.Refill{}) {
				t.Errorf("%s: again: %+v", name, found)
			}
			for _, late := range []time.Duration{-2 * time.Second, 0} {
				f.call, f.from, f.used = 0, gauge{}, false
				if _, found := steep.play(f, bucketOf(50, 10, 1, true), f.barred.Add(late)); (found.Rate > 0) != (late == 0) {
					t.Errorf("%s: %v after the bar of %v: %+v", name, late, bar, found)
				}
			}
			now = f.barred.Add(time.Second)
		}
	}
}

// A response that was overtaken, one without a number, one that says that the copy of the caller is good, and a failure
// say nothing.
func TestFlow_Ignored(t *testing.T) {
	now := time.Unix(1e9, 0)
	l := &ratelimit.Limit{ResetAt: now.Add(time.Second), Rounding: time.Second}
	for name, r := range map[string]reply{
		"overtaken": {call: 4, granted: true},
		"unknown":   {call: 0, granted: true},
		"cached":    {call: 6, granted: true, cached: true},
		"failed":    {call: 6},
	} {
		f := new(flow)
		for call := range 5 {
			f.note(l, 9, &reply{call: uint16(call + 1), granted: true, sent: now, now: now})
		}
		r.sent, r.now = now, now
		if found := f.note(l, 9, &r); found != (adaptive.Refill{}) {
			t.Errorf("%s: %+v", name, found)
		}
	}
}
