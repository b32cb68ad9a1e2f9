package adaptive

import (
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"
)

// A server is a model of an upstream. Its take is asked in the order of arrival.
type server struct {
	take    func(t float64) bool              // grants a call
	service func() float64                    // seconds
	slots   int                               // calls in flight that it serves at most; 0: any number
	retry   func(t float64) time.Duration     // what a refusal says
	busy    int                               // calls in flight
	delay   func(t float64, busy int) float64 // more service time
}

// A run drives a controller in virtual time with more callers than it ever lets leave.
type run struct {
	t          *testing.T
	controller *Controller
	server     server
	rtt        float64
	callers    int
	out        int // calls whose reply is to come
	now        time.Duration
	replies    []pending // by time
	sent       []float64 // when calls left
	granted    []float64 // when calls were granted
	refused    []float64
}

type pending struct {
	at    time.Duration
	call  Call
	reply Reply
	ended bool // it is the end of service, not the reply
}

func newRun(t *testing.T, cfg Config, s server) *run {
	return &run{t: t, controller: New(cfg), server: s, rtt: .04, callers: 64}
}

func (r *run) add(p pending) {
	i, _ := slices.BinarySearchFunc(r.replies, p, func(a, b pending) int {
		if a.at <= b.at {
			return -1
		}
		return 1
	})
	r.replies = slices.Insert(r.replies, i, p)
}

func seconds(s float64) time.Duration { return time.Duration(s * 1e9) }

// until runs the calls up to an instant.
func (r *run) until(end float64) {
	for {
		at := Never
		if r.out < r.callers {
			at = r.controller.Demand(r.now, r.out)
		}
		if at <= r.now {
			r.leave()
			continue
		}
		if len(r.replies) > 0 && r.replies[0].at <= at {
			at = r.replies[0].at
		}
		if at > seconds(end) {
			r.now = seconds(end)
			return
		}
		r.now = at
		for len(r.replies) > 0 && r.replies[0].at <= r.now {
			p := r.replies[0]
			r.replies = r.replies[1:]
			if p.ended {
				r.server.busy--
				continue
			}
			r.out--
			r.controller.Ended(r.now, p.call, p.reply)
		}
	}
}

// leave sends a call. It is at the server at once, and its reply takes the round trip.
func (r *run) leave() {
	call := r.controller.Started(r.now, 1, r.out)
	r.out++
	t := r.now.Seconds()
	s := &r.server
	r.sent = append(r.sent, t)
	back := r.now + seconds(r.rtt)
	if s.slots > 0 && s.busy >= s.slots || s.take != nil && !s.take(t) {
		r.refused = append(r.refused, t)
		reply := Reply{Outcome: Refused}
		if s.retry != nil {
			reply.RetryAfter = s.retry(t)
		}
		r.add(pending{at: back, call: call, reply: reply})
		return
	}
	took := .01
	if s.service != nil {
		took = s.service()
	}
	if s.delay != nil {
		took += s.delay(t, s.busy)
	}
	s.busy++
	r.granted = append(r.granted, t)
	r.add(pending{at: r.now + seconds(took), ended: true})
	r.add(pending{at: back + seconds(took), call: call})
}

func count(all []float64, from, to float64) int {
	n := 0
	for _, t := range all {
		if t >= from && t < to {
			n++
		}
	}
	return n
}

// bucket returns a token bucket whose rate depends on the time.
func bucket(burst float64, rate func(t float64) float64) func(t float64) bool {
	have, seen := burst, 0.
	return func(t float64) bool {
		have = min(burst, have+rate(t)*(t-seen))
		seen = t
		if have < 1 {
			return false
		}
		have--
		return true
	}
}

func steady(rate float64) func(float64) float64 { return func(float64) float64 { return rate } }

func TestController_FindsARate(t *testing.T) {
	for _, c := range []struct{ rate, burst float64 }{{.5, 1}, {3, 3}, {20, 10}, {50, 1}, {300, 30}, {300, 600}, {2000, 200}} {
		r := newRun(t, Config{}, server{take: bucket(c.burst, steady(c.rate))})
		r.callers = 1000
		end := max(60, 300/c.rate)
		r.until(2 * end)
		granted, refused := count(r.granted, end, 2*end), count(r.refused, end, 2*end)
		if g := float64(granted) / (c.rate * end); g < .95 {
			t.Errorf("%g/s, burst %g: %.3f of what is possible was granted", c.rate, c.burst, g)
		}
		if f := float64(refused) / float64(granted); f > .03 {
			t.Errorf("%g/s, burst %g: %d refused of %d", c.rate, c.burst, refused, granted)
		}
	}
}

// A change of the rate is found within 600 calls and 20 round trips, or in the time that
// the pace needs to get there.
func TestController_FollowsTheRate(t *testing.T) {
	for _, factor := range []float64{.2, .5, 2, 5} {
		r := newRun(t, Config{}, server{take: bucket(10, func(at float64) float64 {
			if at < 100 {
				return 30
			}
			return 30 * factor
		})})
		r.until(100)
		calls := len(r.sent)
		end := 100.
		for ; len(r.sent) < calls+600; end++ {
			r.until(end)
		}
		end += 20 * r.rtt
		r.until(end + 20)
		if got := float64(count(r.granted, end, end+20)) / 20; got < .9*30*factor || got > 1.1*30*factor {
			t.Errorf("×%g: %.1f/s, want %g/s", factor, got, 30*factor)
		}
	}
}

func TestController_RecognizesAWindow(t *testing.T) {
	r := newRun(t, Config{Clock: 23 * time.Second}, server{take: windows(100, 60, 37)})
	r.until(60*15 - 23)
	b := r.controller.Belief()
	if b.Phase != Windowed || math.Abs(b.Count-100) > 1 || b.Window != time.Minute {
		t.Fatalf("believes %+v", b)
	}
	if g, f := count(r.granted, 157, 877), count(r.refused, 157, 877); g < 1190 || f > 8 {
		t.Errorf("in twelve windows %d were granted and %d refused", g, f)
	}
}

// windows returns windows of count per length that begin at phase.
func windows(count int, length, phase float64) func(t float64) bool {
	used, number := 0, math.Inf(-1)
	return func(t float64) bool {
		if n := math.Floor((t - phase) / length); n != number {
			used, number = 0, n
		}
		if used >= count {
			return false
		}
		used++
		return true
	}
}

// The first two windows begin somewhere between two polls, so that windows of 10 s to 60 s
// would explain them.
func TestController_AWindowMayBeLongerThanItSeems(t *testing.T) {
	r := newRun(t, Config{}, server{take: windows(175, 60, 35.5)})
	r.until(35.5 + 10*60)
	b := r.controller.Belief()
	if b.Phase != Windowed || math.Abs(b.Count-175) > 2 || b.Window != time.Minute {
		t.Fatalf("believes %+v", b)
	}
	if g, f := count(r.granted, 215.5, 635.5), count(r.refused, 215.5, 635.5); g < 7*175-20 || f > 20 {
		t.Errorf("in seven windows %d were granted and %d refused", g, f)
	}
}

// Polls have found the beginnings of two windows to within 33 s, so the windows may have 10 s to
// 60 s. The shortest length is believed until a call is refused that windows of it would grant.
func TestWindow_LengthIsTheShortest(t *testing.T) {
	w := window{brackets: [2]bracket{{25, 58}, {65, 99}}, n: 2}
	if l := w.period(41); l != 10 {
		t.Fatalf("windows have %v s", l)
	}
	w.length, w.last = 10, 99
	for _, c := range []struct{ at, before, after float64 }{
		{100, 99, 109}, {109, 109, 114}, {113, 109, 114}, {114, 114, 119}, {120, 119, 129}, {159, 159, 219}, {9999, 3699, math.Inf(1)},
	} {
		if before, after := w.begins(c.at); before != c.before || after != c.after {
			t.Errorf("at %v it may begin at %v and %v, want %v and %v", c.at, before, after, c.before, c.after)
		}
	}
}

// A window that was refused as soon as it should have begun has not begun, and is not rolled on.
func TestWindow_WaitsForItsBeginning(t *testing.T) {
	c := New(Config{})
	c.Started(0, 1, 0)
	w := &c.window
	w.begin(c, 175, 10, 109)
	w.last, w.denied, c.blockage.on = 99, true, true
	for at := 109.; at < 159; at++ {
		w.pass(c, at)
		if w.from != 109 || w.wrong > 0 || c.phase != Windowed {
			t.Fatalf("at %v it is %+v", at, *w)
		}
	}
	w.resume(c, Call{sent: 159.1, cost: 1})
	if w.length != 10 || w.from != 159.1 {
		t.Errorf("once may be an incident: windows of %v s, the last one since %v", w.length, w.from)
	}
	w.last, w.from, w.denied = 159.1, 169.1, true
	w.resume(c, Call{sent: 219.2, cost: 1})
	if w.length != 60 || w.from != 219.2 {
		t.Errorf("windows of %v s, the last one since %v", w.length, w.from)
	}
}

// Two windows that are longer than they seem follow one another. Otherwise each was prolonged by an incident of its own.
func TestWindow_IncidentsDoNotProlongIt(t *testing.T) {
	c := New(Config{})
	c.Started(0, 1, 0)
	w := &c.window
	w.begin(c, 100, 10, 0)
	for _, at := range []float64{0, 200, 400} {
		w.from = at
		for range enoughFull {
			w.used = w.count + w.extra
			w.pass(c, w.from+10)
		}
		w.denied = true
		if w.resume(c, Call{sent: w.from + 60, cost: 1}); w.length != 10 {
			t.Errorf("windows of %v s after the incident at %v", w.length, at)
		}
	}
}

// A window that accepts calls after it has refused some is none, but a bucket or a log that slides: after
// four such calls in one window its rate is tracked. At a bucket of 250 a minute 400 of 1,000 calls were
// throttled, and now 60.
func TestWindow_ThatSlides(t *testing.T) {
	begin := func() (*Controller, *window) {
		c := New(Config{})
		c.Started(0, 1, 0)
		c.window.begin(c, 250, 60, 100)
		c.window.used, c.window.denied = 200, true
		return c, &c.window
	}
	c, w := begin()
	for i := range mostSlides {
		if c.phase != Windowed {
			t.Fatalf("after %d calls it is %v", i, c.phase)
		}
		w.resume(c, Call{sent: 130 + float64(i), cost: 1})
	}
	if c.phase != Tracking || math.Abs(c.pace.rate-250./60) > 1e-9 {
		t.Errorf("%v at %v/s, want tracking at 250 a minute", c.phase, c.pace.rate)
	}
	for name, spoil := range map[string]func(w *window) float64{ // returns when the calls leave
		"nothing was refused":         func(w *window) float64 { w.denied = false; return 130 },
		"it has hardly been used":     func(w *window) float64 { w.used = 20; return 130 },
		"it is over in a few seconds": func(*window) float64 { return 155 },
	} {
		c, w := begin()
		at := spoil(w)
		for range 2 * mostSlides {
			w.resume(c, Call{sent: at, cost: 1})
		}
		if c.phase != Windowed {
			t.Errorf("%s: %v", name, c.phase)
		}
	}
	c, w = begin()
	for range 10 { // three in each window
		for range mostSlides - 1 {
			w.resume(c, Call{sent: w.from + 30, cost: 1})
		}
		w.next(c)
		w.used, w.denied = 200, true
	}
	if c.phase != Windowed {
		t.Errorf("three in each window: %v", c.phase)
	}
}

// Two refusals by chance close to each other, while the window is not used up, must not make
// the calls wait for the next one, even if this is a window in which more is tried.
func TestController_ChanceDoesNotEndAWindow(t *testing.T) {
	c := New(Config{})
	c.Started(0, 1, 0)
	c.window.begin(c, 7000, 60, 0)
	c.window.last, c.window.extra, c.window.used = -60, 1, 2000
	for i := range 2 {
		at := seconds(20 + float64(i)/350)
		call := c.Started(at, 1, 0)
		c.Ended(at+seconds(.1), call, Reply{Outcome: Refused})
	}
	if b := c.Belief(); b.Phase != Windowed || !b.Blocked {
		t.Fatalf("it believes %+v", b)
	}
	if at := c.Demand(seconds(20.2), 0); at > seconds(21) {
		t.Errorf("the next call leaves at %v", at)
	}
}

func TestController_RecognizesACap(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 1))
	r := newRun(t, Config{}, server{slots: 10, service: func() float64 { return .3 * math.Exp(.5*rnd.NormFloat64()) }})
	r.until(200)
	if b := r.controller.Belief(); b.Phase != Capped || b.Concurrency < 9 || b.Concurrency > 12 || b.Pace != 0 {
		t.Fatalf("believes %+v", b)
	}
	if f, g := count(r.refused, 100, 200), count(r.granted, 100, 200); f*50 > g {
		t.Errorf("%d refused, %d granted", f, g)
	}
}

// A server that serves ten calls at a time and lets the others wait: more than a few
// waiting calls help nobody.
func TestController_RecognizesOverload(t *testing.T) {
	r := newRun(t, Config{}, server{delay: func(_ float64, busy int) float64 { return .09 * max(1, float64(busy)/10) }})
	r.callers = 500
	r.until(120)
	if b := r.controller.Belief(); b.Phase != Slowed || b.Concurrency < 8 || b.Concurrency > 30 {
		t.Fatalf("believes %+v", b)
	}
}

// The server itself gets slower, whatever the load. That is no reason to call less.
func TestController_DoesNotTakeASlowServerForOverload(t *testing.T) {
	r := newRun(t, Config{}, server{take: bucket(10, steady(40)), delay: func(t float64, _ int) float64 {
		if t > 100 {
			return .3
		}
		return .05
	}})
	r.until(300)
	if g := count(r.granted, 200, 300); g < 3800 {
		t.Errorf("%d of 4000 calls were granted: %+v", g, r.controller.Belief())
	}
}

func TestController_OneRefusalIsChance(t *testing.T) {
	r := newRun(t, Config{}, server{take: bucket(10, steady(20))})
	r.until(100)
	for r.controller.pace.calls > 1 { // begin where no refusal is expected
		r.until(r.now.Seconds() + .01)
	}
	r.until(r.now.Seconds() + .3)
	before := r.controller.Belief()
	call := r.controller.Started(r.now, 1, r.out)
	r.controller.Ended(r.now, call, Reply{Outcome: Refused})
	after := r.controller.Belief()
	if after.Ignored != before.Ignored+1 || after.Rate != before.Rate || after.Changes != before.Changes || after.Blocked {
		t.Errorf("one refusal made %+v of %+v", after, before)
	}
	call = r.controller.Started(r.now, 1, r.out)
	r.controller.Ended(r.now, call, Reply{Outcome: Refused})
	if !r.controller.Belief().Blocked {
		t.Error("a second one changed nothing")
	}
}

// Refusals of calls that were out together are one piece of news.
func TestController_ManyRefusalsAreOneNews(t *testing.T) {
	r := newRun(t, Config{}, server{})
	r.until(2)
	var calls []Call
	for i := range 20 {
		calls = append(calls, r.controller.Started(r.now, 1, i))
	}
	r.controller.Ended(r.now+1, calls[0], Reply{Outcome: Refused})
	rate := r.controller.Belief().Rate
	for _, call := range calls[1:] {
		r.controller.Ended(r.now+1, call, Reply{Outcome: Refused})
	}
	if b := r.controller.Belief(); b.Rate != rate || b.Blockages != 1 || b.Refusals != 20 {
		t.Errorf("after the first %g/s, after all %+v", rate, b)
	}
}

// Callers that come one by one, and seldom wait, are no reason to call faster.
func TestController_DoesNotGrowWithoutDemand(t *testing.T) {
	for seed := range uint64(5) {
		rnd := rand.New(rand.NewPCG(seed, 2))
		c := New(Config{})
		var now time.Duration
		for now < 10*time.Minute {
			now += time.Duration(rnd.ExpFloat64() * float64(time.Second) / 4)
			for at := c.Demand(now, 0); at > now; at = c.Demand(now, 0) {
				now = at
			}
			call := c.Started(now, 1, 0)
			c.Ended(now, call, Reply{})
		}
		if b := c.Belief(); b.Pace > 40 {
			t.Errorf("seed %d: 4 calls/s made a pace of %.0f/s", seed, b.Pace)
		}
	}
}

func TestController_AnIdleHourChangesNothing(t *testing.T) {
	r := newRun(t, Config{}, server{take: bucket(10, steady(20))})
	r.until(100)
	callers := r.callers
	r.callers = 0
	r.until(101)
	before := r.controller.Belief()
	r.until(3700)
	r.callers = callers
	r.until(3700.01)
	if after := r.controller.Belief(); after.Rate != before.Rate || after.Phase != before.Phase {
		t.Errorf("%+v became %+v", before, after)
	}
	if n := count(r.sent, 3700, 3700.01); n > 1 {
		t.Errorf("%d calls left at once: idle time is not saved up", n)
	}
}

func TestController_KeepsItsBounds(t *testing.T) {
	r := newRun(t, Config{Min: 2, Max: 15, MaxConcurrency: 7}, server{take: bucket(1, steady(.5)), service: func() float64 { return 3 }})
	for end := .1; end < 60; end += .1 {
		r.until(end)
		if b := r.controller.Belief(); b.Pace < 2 || b.Pace > 15 || b.Concurrency > 7 || r.out > 7 {
			t.Fatalf("at %g s %d are out, %+v", end, r.out, b)
		}
	}
	free := newRun(t, Config{Max: 15, Unlimited: true}, server{})
	free.until(20)
	if n := len(free.sent); n < 298 || n > 302 {
		t.Errorf("%d calls in 20 s at a maximum of 15/s", n)
	}
}

func TestController_UnlimitedBeginsAtOnce(t *testing.T) {
	r := newRun(t, Config{Unlimited: true}, server{take: bucket(5, steady(20))})
	r.until(0)
	if len(r.sent) != r.callers {
		t.Errorf("%d of %d callers left at once", len(r.sent), r.callers)
	}
	r.until(60)
	if g, f := count(r.granted, 30, 60), count(r.refused, 30, 60); g < 570 || f > 18 {
		t.Errorf("in 30 s %d of 600 calls were granted, %d refused", g, f)
	}
}

// How fast a crowd came says nothing of the server: after a costly refusal the pace begins
// as that of a search does.
func TestController_ACrowdIsNoMeasurement(t *testing.T) {
	n := 0
	r := newRun(t, Config{Unlimited: true}, server{take: func(t float64) bool {
		n++
		return n <= 10 || t > 40
	}})
	for r.controller.Belief().Phase != Bounding && r.now < time.Minute*3 {
		r.until(r.now.Seconds() + .1)
	}
	if b := r.controller.Belief(); b.Phase != Bounding || b.Rate > 5 {
		t.Errorf("believes %+v, want a rate of 5/s at most", b)
	}
}

// A poll that gets no reply makes room for the next one at once.
func TestController_SurvivesAPollWithoutReply(t *testing.T) {
	c := New(Config{})
	var now time.Duration
	end := func(o Outcome) {
		now = max(now, c.Demand(now, 0))
		call := c.Started(now, 1, 0)
		now += time.Second
		c.Ended(now, call, Reply{Outcome: o})
	}
	end(Granted)
	end(Refused)
	end(Refused)
	if at := c.Demand(now, 0); at == Never || at <= now {
		t.Fatalf("the poll leaves at %v, now is %v", at, now)
	}
	now = c.Demand(now, 0)
	call := c.Started(now, 1, 0)
	if at := c.Demand(now, 1); at < now+time.Second {
		t.Errorf("another poll leaves %v after the first", at-now)
	}
	now += time.Millisecond
	c.Ended(now, call, Reply{Outcome: Unknown})
	if at := c.Demand(now, 0); at > now+time.Second {
		t.Errorf("the next poll leaves %v after the one without a reply", at-now)
	}
}

// Nothing leaves before the end of a pause that the server has asked for.
func TestController_ObeysPauses(t *testing.T) {
	r := newRun(t, Config{}, server{take: bucket(5, steady(10)), retry: func(t float64) time.Duration { return 3 * time.Second }})
	r.until(120)
	for _, f := range r.refused {
		from := f + r.rtt
		if n := count(r.sent, from+1e-6, from+3-1e-6); n > 0 {
			t.Fatalf("%d calls left in the 3 s after the refusal that arrived at %g s", n, from)
		}
	}
	if len(r.refused) < 3 {
		t.Fatalf("only %d refusals", len(r.refused))
	}
}

func TestController_IsAFunctionOfItsInput(t *testing.T) {
	history := func() string {
		rnd := rand.New(rand.NewPCG(3, 3))
		r := newRun(t, Config{}, server{take: bucket(20, steady(30)), service: rnd.Float64})
		r.until(100)
		return fmt.Sprint(r.sent, r.controller.Belief())
	}
	if first, second := history(), history(); first != second {
		t.Error("two runs differ")
	}
}

// Costs only change the unit: what a controller does with calls that cost 1000 is what it does
// with calls that cost 1.
func TestController_CountsCost(t *testing.T) {
	one, thousand := New(Config{}), New(Config{})
	have, now := 20., time.Duration(0)
	for range 5000 {
		a, b := one.Demand(now, 0), thousand.Demand(now, 0)
		if d := a - b; d < -1000 || d > 1000 {
			t.Fatalf("at %v one may leave at %v, the other at %v", now, a, b)
		}
		step := max(a, b, now)
		have = min(20, have+30*(step-now).Seconds())
		now = step
		call, d := one.Started(now, 1, 0), thousand.Started(now, 1000, 0)
		reply := Reply{Outcome: Refused}
		if have >= 1 {
			have--
			reply.Outcome = Granted
		}
		now += time.Millisecond
		have = min(20, have+.03)
		one.Ended(now, call, reply)
		thousand.Ended(now, d, reply)
	}
	if a, b := one.Belief().Rate, thousand.Belief().Rate/1000; math.Abs(a/b-1) > 1e-3 || a < 25 || a > 35 {
		t.Errorf("%g/s of cost 1, %g/s of cost 1000, want some 30", a, b)
	}
}

func TestController_DoesNotAllocate(t *testing.T) {
	c := New(Config{})
	now := time.Duration(0)
	i := 0
	if n := testing.AllocsPerRun(1000, func() {
		now = max(now, c.Demand(now, 0))
		call := c.Started(now, 1, 0)
		i++
		reply := Reply{}
		if i%50 == 0 {
			reply.Outcome = Refused
		}
		c.Ended(now, call, reply)
	}); n != 0 {
		t.Errorf("%g allocations per call", n)
	}
}

func BenchmarkController(b *testing.B) {
	b.ReportAllocs()
	c := New(Config{})
	now := time.Duration(0)
	for i := range b.N {
		c.Demand(now, 8)
		now = max(now, c.Demand(now, 8))
		call := c.Started(now, 1, 8)
		reply := Reply{}
		if i%200 == 0 {
			reply.Outcome = Refused
		}
		c.Ended(now, call, reply)
	}
}

// Refusals may follow the calls in flight by chance. If fewer in flight are refused as
// often, they are not the reason.
func TestController_GivesUpAWrongCap(t *testing.T) {
	r := newRun(t, Config{}, server{take: bucket(10, steady(50))})
	r.until(30)
	k := &r.controller.capacity
	r.controller.phase = Capped
	k.limit, k.entry, k.full, k.bad, k.falls = 60, 60, 0, 0, 0
	began := len(r.refused)
	r.until(40)
	if n := len(r.refused) - began; r.controller.phase == Capped || n > 700 {
		t.Errorf("after %d refusals it believes %+v", n, r.controller.Belief())
	}
}

// Where refusals say how long to wait, two that do not are of something else, such as a proxy.
func TestController_RefusalsThatSayLessAreChance(t *testing.T) {
	may := func(told int, refusals int) bool {
		k := chance{}
		k.init()
		for range told {
			k.may(true, true)
		}
		for range refusals - 1 {
			k.may(false, false)
		}
		return k.may(false, false)
	}
	if may(0, 2) {
		t.Error("two refusals in a row are chance, although none ever said how long to wait")
	}
	if !may(3, 2) {
		t.Error("two refusals in a row are no chance, although others said how long to wait")
	}
	if may(3, 4) {
		t.Error("four refusals in a row are chance")
	}
}

// If refusals cost a second each, an estimate that may be far too low is tested sooner than
// one that is nearly exact.
func TestController_TestsAVagueRateSooner(t *testing.T) {
	span := func(unsure float64) float64 {
		c := New(Config{})
		c.Started(0, 1, 0)
		c.costly.price, c.pace.unsure = 1, unsure
		c.track(c.phase, 50, Measured)
		return c.pace.span
	}
	if vague, exact := span(.2), span(.01); vague > 500 || exact < 2000 {
		t.Errorf("it waits %v calls if it is unsure, %v if not", vague, exact)
	}
}

// A poll just before a window may begin would be refused, and the one after it would be
// much later than that instant.
func TestController_PollsWhenAWindowMayBegin(t *testing.T) {
	c := New(Config{})
	c.Started(0, 1, 0)
	c.phase = Bounding
	c.window.bracket(&blockage{}, Call{sent: 13.2})
	c.blockage = blockage{on: true, polls: 2, gap: 12.8, quiet: 6}
	c.blockage.again(c, 33.2, Call{sent: 33.1, cost: 1}) // the gap is 38.4 s now
	if c.next < 73.2 || c.next > 73.3 {
		t.Errorf("the next poll is at %v, want a minute after the last window began", c.next)
	}
}

// The calls that have made a server slow may still be refused, because they fill its queue.
// That is no news: fewer calls leave already.
func TestController_RefusalsOfAnOverloadAreOldNews(t *testing.T) {
	c := New(Config{})
	call := c.Started(0, 1, 0)
	c.phase = Tracking
	c.latency.cut(c, 40, 20)
	for range 3 {
		c.Ended(seconds(.1), call, Reply{Outcome: Refused})
	}
	if b := c.Belief(); b.Phase != Slowed || b.Blocked {
		t.Errorf("it believes %+v", b)
	}
}

// Peek changes nothing and agrees with Demand, which counts the demand.
func TestController_Peek(t *testing.T) {
	slotted := func(*Controller) {}
	capped := func(c *Controller) { c.capacity.limit = 3 }
	paused := func(c *Controller) { c.until = 3 }
	polling := func(c *Controller) {
		c.blockage.on, c.blockage.polling, c.blockage.poll, c.refusal = true, true, Call{sent: 1}, .5
	}
	windowed := func(c *Controller) { c.phase, c.window = Windowed, window{count: 1, length: 10, used: 1} }
	for _, tc := range []struct {
		name     string
		set      func(*Controller)
		now      time.Duration
		inFlight int
		want     time.Duration
		asked    bool
		held     int
	}{
		{"before the slot", slotted, 50 * time.Millisecond, 1, 103092784, true, 0},
		{"after the slot", slotted, second, 1, second, false, 0},
		{"below the cap", capped, second, 2, second, false, 0},
		{"at the cap", capped, 0, 3, Never, false, 1},
		{"in a pause", paused, second, 1, 3 * second, false, 0},
		{"one call asks", polling, 2 * second, 1, 2500 * time.Millisecond, false, 0},
		{"the window is used up", windowed, 2 * second, 1, 10 * second, true, 0},
		{"in the next window", windowed, 11 * second, 1, 11 * second, false, 0},
	} {
		c := paced(t)
		tc.set(c)
		before := *c
		if got := c.Peek(tc.now, tc.inFlight); got != tc.want {
			t.Errorf("%s: Peek returns %v, want %v", tc.name, got, tc.want)
		}
		if !reflect.DeepEqual(before, *c) {
			t.Errorf("%s: Peek has changed the controller", tc.name)
		}
		if got := c.Demand(tc.now, tc.inFlight); got != tc.want || c.asked != tc.asked || c.capacity.held != tc.held {
			t.Errorf("%s: Demand returns %v, asked %v, held %d; want %v, %v, %d",
				tc.name, got, c.asked, c.capacity.held, tc.want, tc.asked, tc.held)
		}
	}
}

// A call that is woken late costs the next one nothing.
func TestController_Late(t *testing.T) {
	for late, want := range map[time.Duration]time.Duration{0: 222 * time.Millisecond, 20 * time.Millisecond: 203 * time.Millisecond} {
		c := paced(t)
		now := 120 * time.Millisecond // its slot came at 103 ms
		c.Late(late)
		c.Started(now, 1, 0)
		next := c.Demand(now, 0)
		if d := next - want; d < -5*time.Millisecond || d > 5*time.Millisecond {
			t.Errorf("late by %v: the next one leaves at %v, want about %v", late, next, want)
		}
	}
}

func TestController_Settle(t *testing.T) {
	c := paced(t)
	before := c.Demand(0, 0)
	c.Settle(0, 0, 1)
	if got := c.Demand(0, 0) - before; got < 90*time.Millisecond || got > 110*time.Millisecond {
		t.Errorf("a call that cost 1 more holds the next one up for %v", got)
	}
	c.Settle(0, 0, -2)
	if got := c.Demand(0, 0); got > 0 || c.ledger.sent != 0 {
		t.Errorf("a call that cost nothing holds the next one up until %v", got)
	}
}

func TestController_Resume(t *testing.T) {
	c := paced(t)
	call := c.Started(second, 1, 0)
	c.Ended(second, call, Reply{Outcome: Refused, RetryAfter: time.Hour})
	if at := c.Demand(second, 0); at < time.Hour {
		t.Fatalf("asked for an hour, asks again at %v", at)
	}
	c.Resume(2 * second)
	if at := c.Demand(2*second, 0); at > 2*second {
		t.Errorf("asks again at %v", at)
	}
}

func TestController_Asleep(t *testing.T) {
	c := paced(t)
	if c.Asleep(59*second, time.Minute) || !c.Asleep(60*second, time.Minute) {
		t.Error("not a minute after the last call")
	}
	call := c.Started(70*second, 1, 0)
	c.Ended(70*second, call, Reply{Outcome: Refused, RetryAfter: time.Hour})
	if c.Asleep(time.Hour, time.Minute) {
		t.Error("while the server has asked for a pause")
	}
}

// Two cycles of a bucket may be accepted the same by chance, and look like a window. At its pace the bucket accepts one call
// between two bans: each ban seemed to begin another window, for ever.
func TestController_AWindowOfWhichNothingIsAcceptedIsNone(t *testing.T) {
	r := newRun(t, Config{}, server{take: withBan(bucket(1, steady(13)), 10)})
	r.until(450)
	r.controller.window.begin(r.controller, 1072, 140, 450)
	r.until(900)
	if n := count(r.granted, 700, 900); n < 600 {
		t.Errorf("%d calls were granted in 200 s: %+v", n, r.controller.Belief())
	}
}

// A server rejects all calls for a minute. Of 118 in ten seconds, 118 in a minute or two were believed from then on, whether
// windows were known before or not.
func TestController_AnIncidentDoesNotProlongTheWindow(t *testing.T) {
	for _, from := range []float64{17, 25, 34, 45} {
		window := windows(118, 10, 0)
		r := newRun(t, Config{}, server{
			take:  func(t float64) bool { return window(t) && (t < from || t > from+60) },
			retry: func(float64) time.Duration { return time.Second },
		})
		r.callers = 6
		r.until(300)
		if n := count(r.granted, 200, 300); n < 1000 {
			t.Errorf("%d calls were granted in 100 s: %+v", n, r.controller.Belief())
		}
	}
}
