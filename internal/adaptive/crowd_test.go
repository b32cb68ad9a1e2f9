package adaptive

import (
	"math"
	"slices"
	"testing"
	"time"
)

// After the first refusals of a crowd the pace is that of a search: a server that took 5
// calls of 64 at once sees no second crowd.
func TestController_ACrowdIsFollowedByASearch(t *testing.T) {
	r := newRun(t, Config{Unlimited: true}, server{take: bucket(5, steady(20))})
	r.until(.4)
	if b := r.controller.Belief(); b.Phase != Searching || b.Pace > 30 {
		t.Errorf("after 0.4 s it believes %+v", b)
	}
	r.until(1)
	if n := len(r.sent); n > r.callers+20 {
		t.Errorf("%d callers sent %d calls in a second", r.callers, n)
	}
}

// The refusals of a crowd may come back in any order. Each is one call that the points of
// the ledger counted as granted.
func TestController_RefusalsOfACrowdCorrectTheLedger(t *testing.T) {
	controller := New(Config{Unlimited: true})
	var calls []Call
	for i := range 100 {
		calls = append(calls, controller.Started(0, 1, i))
	}
	for i := 99; i >= 10; i-- { // the first ten are granted
		controller.Ended(seconds(.05+.0001*float64(99-i)), calls[i], Reply{Outcome: Refused})
	}
	if p := controller.ledger.empty[0]; math.Abs(p.granted-10) > 1 {
		t.Errorf("at the first refusal %v were granted, want 10", p.granted)
	}
}

// A crowd fills the queue of a server, which takes a while to work through it. What these
// calls took is not how quick the server is, and the pace does not grow meanwhile.
func TestController_ACrowdIsNoMeasureOfLatency(t *testing.T) {
	const worked = 3. // seconds
	n := 0.
	r := newRun(t, Config{Unlimited: true}, server{slots: 50, delay: func(t float64, _ int) float64 {
		n++
		return max(.05, n*.06-t) // 50 calls of the crowd, one after the other
	}})
	r.until(worked)
	if b := r.controller.Belief(); b.Pace > 20 {
		t.Errorf("the server is still busy with the crowd, and the controller believes %+v", b)
	}
	if base := r.controller.latency.base; base > 0 {
		t.Errorf("the server is still busy with the crowd, and is taken for one that needs %v s", base)
	}
}

// Once all of the crowd are answered, the search begins.
func TestController_TheEndOfACrowdBeginsTheSearch(t *testing.T) {
	r := newRun(t, Config{Unlimited: true}, server{
		take: func(float64) bool { return true }, slots: 20, service: func() float64 { return .1 },
	})
	r.until(.45)
	if b := r.controller.Belief(); b.Phase != Searching || b.Pace < 20 {
		t.Errorf("0.31 s after the last answer: %+v", b)
	}
}

// A poll during the work on a crowd is rejected by a cap. The next one starts when that work is done.
func TestController_TheEndOfACrowdEndsTheGap(t *testing.T) {
	r := newRun(t, Config{Unlimited: true}, server{
		take: func(float64) bool { return true }, slots: 10, service: func() float64 { return .2 },
	})
	r.until(.3)
	if n := len(r.sent); n != r.callers+2 || r.sent[n-1] > .25 {
		t.Errorf("the last answers came after 0.24 s, and calls started at %v", r.sent[r.callers:])
	}
}

// A crowd that was granted two calls and then banned for half a minute has met something
// costly. To search on at 5/s would begin the ban again and again.
func TestController_ABanOfASmallCrowdIsCostly(t *testing.T) {
	take, bans := banning(1, 2, 28)
	r := newRun(t, Config{Unlimited: true}, server{take: take})
	r.callers = 8
	r.until(900)
	if g := len(r.granted); g < 450 {
		t.Errorf("of 900 calls %d were granted, with %d bans: %+v", g, bans(), r.controller.Belief())
	}
}

// A crowd that has used up a window of a second shows nearly what the server grants. The search
// begins there: from 5/s on it had doubled for three seconds, and then to five times the rate.
func TestController_SearchesWhereTheWindowOfACrowdShows(t *testing.T) {
	for _, c := range []struct {
		count   int
		granted int // of ten windows, at least
		refused int // at most
	}{
		{count: 20, granted: 175, refused: 70},
		{count: 50, granted: 430, refused: 50},
		{count: 200, granted: 1450, refused: 230},
	} {
		r := newRun(t, Config{Unlimited: true}, server{take: windows(c.count, 1, .3)})
		r.callers = 64
		r.until(9.7)
		if g, n := len(r.granted), len(r.refused); g < c.granted || n > c.refused {
			t.Errorf("in windows of %d, %d calls were granted and %d refused, want %d and %d: %+v",
				c.count, g, n, c.granted, c.refused, r.controller.Belief())
		}
	}
}

// A window that begins with the first call and says nothing has mostly a second. If a poll comes just then, and
// the search does not exceed what the last rejected poll allows, 300 calls take less than 8 s; 5 s are possible.
// With polls at 0.4 and 1.2 s and a search to twice the limit it was 9.
func TestController_AsksWhenTheWindowOfACrowdEnds(t *testing.T) {
	from, used := -1., 0
	take := func(t float64) bool { // begins with a call
		if from < 0 || t >= from+1 {
			from, used = t, 0
		}
		used++
		return used <= 50
	}
	r := newRun(t, Config{Unlimited: true}, server{take: take})
	r.callers = 64
	r.until(1.2)
	if n := count(r.granted, .5, 1.2); n == 0 {
		t.Errorf("a window of a second was asked before its end only: %v", r.sent[64:])
	}
	r.until(20)
	if at := r.granted[299]; at > 8 || len(r.refused) > 60 {
		t.Errorf("300 calls took %v s, %d rejected", at, len(r.refused))
	}
}

// Windows of ten seconds and of a minute that begin with the first call are common as well. With polls at 50 and at
// 110 s, a minute was found after two.
func TestController_AsksWhenALongWindowOfACrowdEnds(t *testing.T) {
	for _, length := range []float64{10, 60} {
		from, used := -1., 0
		take := func(t float64) bool {
			if from < 0 || t >= from+length {
				from, used = t, 0
			}
			used++
			return used <= 300
		}
		r := newRun(t, Config{Unlimited: true, Clock: 7 * time.Second}, server{take: take})
		r.callers = 64
		r.until(2 * length)
		if n := count(r.granted, length, length+2); n == 0 {
			t.Errorf("a window of %v s: granted at %v", length, r.granted[min(300, len(r.granted)-1)])
		}
	}
}

// A server that throttles all calls for five seconds and has granted none before says nothing about a rate: the
// pace stayed at a call per minute, the least, although each was granted.
func TestController_ARateIsNotWhatNobodyWasGranted(t *testing.T) {
	r := newRun(t, Config{}, server{take: func(t float64) bool { return t > 5 }})
	r.callers = 8
	r.until(60)
	if n := count(r.granted, 30, 60); n < 30 {
		t.Errorf("%d calls were granted in half a minute: %+v", n, r.controller.Belief())
	}
}

// A silence of half a second may have been no window, and the server is fast. What it suggests bounds the search
// only until the server has granted more.
func TestController_ASilenceBoundsTheSearchNotForLong(t *testing.T) {
	inBurst := 0
	take := func(t float64) bool {
		inBurst++
		return inBurst <= 16 || t > .7
	}
	r := newRun(t, Config{Unlimited: true}, server{take: take})
	r.callers = 64
	r.until(6)
	if most := r.controller.crowd.most; most == 0 {
		t.Error("the silence did not bound the search, so this shows nothing")
	}
	if n := count(r.granted, 5, 6); n < 600 {
		t.Errorf("%d calls were granted in the sixth second, of a server without a limit", n)
	}
}

// What the first burst was granted is what the bucket holds, and with that the rejections after it show the rate.
// Each costs a second, so 6 s of the limit took longer when each was the middle of two bounds.
func TestController_TheBucketOfACrowdShowsTheRate(t *testing.T) {
	for _, c := range []struct {
		rate, burst float64
		within      float64 // seconds
	}{
		{20, 5, 9},
		{50, 5, 9},
		{50, 10, 9.5},
		{200, 20, 10.5},
	} {
		asks := func(float64) time.Duration { return time.Second }
		r := newRun(t, Config{Unlimited: true}, server{take: bucket(c.burst, steady(c.rate)), retry: asks})
		r.callers = 16
		r.until(20)
		n := int(6 * c.rate)
		if len(r.granted) < n || r.granted[n-1] > c.within {
			t.Errorf("%v/s with a burst of %v: of %d calls %d were granted within %v s, %d rejected", c.rate, c.burst, n, count(r.granted, 0, c.within), c.within, len(r.refused))
		}
	}
}

// Without a pause the bucket also says at which rate a search goes on after its first rejection. The pace of 16 calls
// before was above it, and so was the next estimate: 11 to 14 more calls were rejected.
func TestController_TheBucketOfACrowdEndsTheSearch(t *testing.T) {
	for _, c := range []struct {
		rate, burst float64
		granted     int // in six seconds, at least
		refused     int // with those of the first burst, at most
	}{
		{50, 5, 285, 38}, // 42 were
		{50, 10, 295, 36},
		{50, 20, 315, 36},
		{200, 50, 1160, 35},
	} {
		r := newRun(t, Config{Unlimited: true}, server{take: bucket(c.burst, steady(c.rate))})
		r.callers = 32
		r.until(6)
		if g, n := len(r.granted), len(r.refused); g < c.granted || n > c.refused {
			t.Errorf("%v/s with a burst of %v: %d calls were granted and %d rejected, want %d and %d", c.rate, c.burst, g, n, c.granted, c.refused)
		}
	}
}

// A window that the first burst has used up is no bucket that fills up meanwhile: as such it would grant
// less than half of what it does.
func TestController_TheWindowOfACrowdIsNoBucket(t *testing.T) {
	for _, count := range []int{20, 50, 200} {
		take, phase := windows(count, 1, .3), .3
		asks := func(at float64) time.Duration { return seconds(1 - math.Mod(at+phase, 1) + .001) }
		r := newRun(t, Config{Unlimited: true}, server{take: take, retry: asks})
		for at := 1.; at < 20; at++ {
			r.until(at)
			if rate := r.controller.crowd.explains(r.controller, 1e6).rate; rate > 0 {
				t.Fatalf("a window of %d in a second is explained as a bucket that fills up by %.1f/s", count, rate)
			}
		}
	}
}

// Where a rejection costs half a minute, the bucket of the crowd shows the rate at the next one, too. The middle
// of the bounds, 7/s, cost another half a minute.
func TestController_TheBucketOfACrowdShowsTheRateOfABan(t *testing.T) {
	asks := func(float64) time.Duration { return 30 * time.Second }
	r := newRun(t, Config{Unlimited: true}, server{take: bucket(20, steady(5)), retry: asks})
	r.callers = 64
	r.until(300)
	b := r.controller.Belief()
	if b.Phase != Bounding || b.Pace < 4.75 || b.Pace > 5 || b.Blockages > 2 {
		t.Errorf("at 5/s with a burst of 20, after %d blockages it believes %+v", b.Blockages, b)
	}
}

// A few calls after the pause are too few to tell a bucket that fills up slowly from a window of a second that
// they have used up, as at Airtable. The bucket, at 0.6/s, was believed for five minutes.
func TestController_AFewCallsAreNoBucket(t *testing.T) {
	var last []float64
	until := 0.
	r := newRun(t, Config{Unlimited: true}, server{
		take: func(t float64) bool {
			last = slices.DeleteFunc(last, func(at float64) bool { return at <= t-1 })
			switch {
			case t < until:
				return false
			case len(last) >= 5:
				until = t + 30
				return false
			}
			last = append(last, t)
			return true
		},
		retry: func(t float64) time.Duration { return seconds(until - t + .5) },
	})
	r.callers = 16
	r.until(200)
	if len(r.granted) < 500 {
		t.Errorf("%d of 850 calls in 200 s, %+v", len(r.granted), r.controller.Belief())
	}
}

// A cap on calls in flight that asks for a second is known from the first rejection after the first burst: it has
// as many in flight as that was granted. Four of them took minutes.
func TestController_TheCapOfACrowd(t *testing.T) {
	for _, slots := range []int{4, 10} {
		r := newRun(t, Config{Unlimited: true}, server{
			take: func(float64) bool { return true }, slots: slots, service: func() float64 { return .1 },
			retry: func(float64) time.Duration { return time.Second },
		})
		r.until(25)
		if b := r.controller.Belief(); b.Phase != Capped || b.Concurrency < slots || b.Concurrency > slots+1 || b.Blockages > 2 {
			t.Errorf("of a cap of %d after 25 s: %+v", slots, b)
		}
	}
}

// A search comes to more than three times the pace that a cap allows before its first rejection is back.
func TestController_TheCapOfACrowdThatAQuickSearchMeets(t *testing.T) {
	for _, slots := range []int{30, 40} {
		r := newRun(t, Config{Unlimited: true}, server{
			take: func(float64) bool { return true }, slots: slots, service: func() float64 { return .1 },
		})
		r.rtt = .02
		r.until(3)
		if b := r.controller.Belief(); b.Phase != Capped || b.Concurrency < slots || b.Concurrency > slots+1 {
			t.Errorf("of a cap of %d after 3 s: %+v", slots, b)
		}
	}
}

// A bucket that holds as many is none: two rejections by less end it, and the search goes on.
func TestController_ABucketIsNoCapOfACrowd(t *testing.T) {
	r := newRun(t, Config{Unlimited: true}, server{
		take: bucket(20, steady(100)), service: func() float64 { return .1 },
		retry: func(float64) time.Duration { return 100 * time.Millisecond },
	})
	r.until(60)
	if share := float64(len(r.granted)) / 6000; share < .85 {
		t.Errorf("%.0f %% of 100/s with a burst of 20: %+v", 100*share, r.controller.Belief())
	}
}

// A cap that has become larger is found by doubling what is tried.
func TestController_ACapThatGrows(t *testing.T) {
	r := newRun(t, Config{Unlimited: true}, server{
		take: func(float64) bool { return true }, slots: 10, service: func() float64 { return .1 },
	})
	r.until(10)
	r.server.slots = 60
	r.until(100)
	if b := r.controller.Belief(); b.Phase != Capped || b.Concurrency < 50 {
		t.Errorf("90 s after a cap of 10 has become 60: %+v", b)
	}
}

// A limit that the configured bound holds is not raised, so a rejection lowers it by one.
func TestController_ACapIsNotRaisedBeyondTheBound(t *testing.T) {
	c := New(Config{Unlimited: true, MaxConcurrency: 16})
	c.Started(0, 1, 0)
	k := &c.capacity
	k.enter(c, 0, 16)
	now := time.Duration(0)
	play := func(reply Reply) {
		now += time.Millisecond
		c.Ended(now, c.Started(now, 1, int(k.limit)-1), reply)
	}
	for range 1200 {
		play(Reply{})
	}
	play(Reply{Outcome: Refused, RetryAfter: time.Second})
	if k.limit < 14 || c.phase != Capped {
		t.Errorf("one rejection with 16 in flight has led to %v (%v)", k.limit, c.phase)
	}
}

// Where one call too many costs ten seconds, more in flight is tried the more rarely.
func TestController_ACapWhoseRejectionsAreCostlyIsSeldomTried(t *testing.T) {
	r := newRun(t, Config{Unlimited: true}, server{
		take: func(float64) bool { return true }, slots: 10, service: func() float64 { return .1 },
		retry: func(float64) time.Duration { return 10 * time.Second },
	})
	r.until(40)
	before := len(r.granted)
	r.until(100)
	if share := float64(len(r.granted)-before) / (60 * 10 / .14); share < .8 {
		t.Errorf("%.0f %% of a cap of 10 in a minute: %+v", 100*share, r.controller.Belief())
	}
}

// What a first burst was granted is used up soon in the next window as well. At 5/s, the 200th of 100 a minute came 20 s
// after its window had begun.
func TestController_UsesLongWindowsSoon(t *testing.T) {
	take, end := windows(100, 60, 0), func(t float64) time.Duration { return seconds(60 - math.Mod(t, 60)) }
	r := newRun(t, Config{Unlimited: true}, server{take: take, retry: end})
	r.callers = 16
	r.until(180)
	t.Logf("%.1f s, %d rejected", r.granted[199], len(r.refused))
	if r.granted[199] > 73 || len(r.refused) > 30 {
		t.Errorf("the 200th call was granted after %.1f s, with %d rejected: %+v", r.granted[199], len(r.refused), r.controller.Belief())
	}
}

// Two windows in a row of which as much was accepted show what they are, also if the second one was used so slowly that
// its end cost less than 15 calls. At a rate between the two the next windows were used to two thirds.
func TestController_RecognizesAWindowThatWasNearlyEnough(t *testing.T) {
	for _, count := range []int{20, 25, 30} {
		take := windows(count, 10, 0)
		r := newRun(t, Config{Unlimited: true}, server{take: take, retry: func(t float64) time.Duration {
			return seconds(10 - math.Mod(t, 10))
		}})
		r.callers = 64
		r.until(65)
		if b := r.controller.Belief(); b.Phase != Windowed || len(r.granted) < 7*count {
			t.Errorf("%d: %d granted, %d rejected: %+v", count, len(r.granted), len(r.refused), b)
		}
	}
}
