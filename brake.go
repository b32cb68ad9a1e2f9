package sluice

import (
	"math"
	"math/bits"
	"slices"
	"time"

	"github.com/sluice-go/sluice/internal/sat"
	"github.com/sluice-go/sluice/limits"
)

// A brake holds calls up until answers say otherwise. It is used with the queue locked.
type brake interface {
	// demand returns how long a call that wants w has to wait, if nothing is answered meanwhile.
	// That it wants to start may count.
	demand(now time.Duration, w want) time.Duration

	// peek is demand for somebody who only looks. It changes nothing.
	peek(now time.Duration, inFlight int64) time.Duration

	// started records that a call that wanted w starts, which could have at due.
	started(now, due time.Duration, w want)

	// forecast says what is known about when calls will start.
	forecast(p prospect) outlook

	// asleep reports whether it may be forgotten: the last call, and the last pause, which ended at
	// paused, were long ago.
	asleep(now, paused time.Duration) bool

	// cause is the reason for which the calls that it delays wait.
	cause() limits.Cause
}

// A want is the amounts of a call that is to start.
type want struct {
	n        int64
	costs    Costs
	inFlight int64 // other calls
}

// amount returns the amount of unit in w.
func (w want) amount(unit Unit) int64 { return w.costs.amount(unit, w.n) }

// A prospect is calls that are to start.
type prospect struct {
	now      time.Duration
	calls    int64
	inFlight int64         // other calls
	hold     time.Duration // for how long they stay in flight; 0 if that is not known
	each     ExpectedCall
}

// An outlook is what a brake knows about when they start.
type outlook struct {
	limits  []foreseen    // that hold them up
	last    time.Duration // when the last one starts, but an answer may make that much shorter: it is named, and does not count
	unclear bool          // it may also take longer
}

// A foreseen is a limit of a gate, or the like, with its forecast.
type foreseen struct {
	limits.Forecast
	by   limits.Cause
	unit Unit
}

// add adds a forecast to o.
func (o *outlook) add(f limits.Forecast, by limits.Cause, unit Unit) {
	o.limits = append(o.limits, foreseen{f, by, unit})
}

// # Slow start
//
// With a rate, the calls that waited out a pause leave one interval apart. A gate without
// one that let all of them leave when the pause ends would be throttled again. So after a
// throttle calls start as TCP sends segments after a loss (slow start, RFC 5681):
//
//	window   how many calls may be without a response: 1 at first, 1 more for
//	         each response, so twice as many each round trip; above half of the
//	         window at which a call was throttled only 1 more each round trip
//	gap      the least time between two calls: none after the first throttle
//
// A window alone is the wrong measure for a rate: at a server that answers in 20 ms, a
// window of 1 is already 50 calls per second. But the calls that the server took between
// two throttles, divided by the time between them, are the server's rate: at both instants
// its allowance was used up. From the second throttle on that is the pace. It then grows
// with each response, the more slowly the more calls it was measured by.
//
// Two throttles close together measure little, so at least 16 calls lie between the two,
// if there were as many. Of all such pairs among the last throttles the best pace counts:
// the server allowed that much. The mean of all pairs sank and sank at servers that throttle
// single calls for other reasons, because little is sent after each throttle.
//
// A server that asks for a wait much longer than a gap counts by windows: after the wait
// its whole limit is available again, and a pace would only spread the calls over the
// next window. Then there is no gap. (A bucket has room after one gap, at most a second
// more if the server rounds up.) Nor is there one after calls that a published window has
// throttled, however short the rest of it was.
//
// Each call counts once, and only if it left after the last throttle: 64 calls in flight
// that are throttled together are one throttle.
//
// A throttle without a time may mean anything: some servers are overloaded for 1 call in
// 50, whatever the pace. So it counts only if 3 of the last 16 calls were throttled. A
// throttle with a time always counts.
//
// A call without a response delays the next for 10 s at most: a download may take an
// hour, and only the release of its permit shows that it was answered.
const (
	rampStall    = 10 * time.Second
	rampMinGap   = 100 * time.Microsecond // a shorter one is none
	rampMaxGap   = 10 * time.Second
	rampMaxProbe = time.Second // between calls while the server throttles all and sets no time

	rampRefusals = 16 // that are remembered, to measure the pace
	rampSpan     = 16 // calls at least that it is measured by, if there were as many

	// The pace grows e-fold in this many responses: four times as many as were taken
	// between two throttles, within these bounds; four times as many again if the server
	// sets no time, so that there is no pause in which it recovers.
	rampFewest, rampMost = 2, 256

	rampHistory = 16 // among this many responses,
	rampRefused = 3  // this many throttles without a time count; one fewer in a slow start

	rampSleep  = time.Minute
	rampCalm   = 256     // calls without a throttle after which it may be over
	rampEnough = 1 << 20 // a window that is as good as none
)

// A ramp is the slow start of a gate after a throttle, a brake. It is
// guarded by the lock of the gate's queue.
type ramp struct {
	weighed bool   // it began at unclear answers, see listener.weigh
	on      bool   // otherwise it only counts the throttles without a time
	windows bool   // a published window has throttled the last call
	history uint64 // the last responses, the latest lowest; 1: throttled without a time

	began time.Duration // when calls were throttled last; calls that started before no longer count
	left  time.Duration // when the last call left
	first time.Duration // and the first since began

	sent, out int64 // calls since began; those of them without a response

	taken    int64     // calls that were answered and not throttled
	refusals []refused // the last ones, oldest first

	window, threshold float64       // calls without a response, now; where doubling ends
	gap               time.Duration // from one call to the next
	growth            float64       // responses in which 1/gap grows e-fold
}

// A refused is the state when calls were refused.
type refused struct {
	at    time.Duration
	taken int64
}

// refuse returns the ramp after the server throttled a call that left at since. asked is
// the wait that the server asked for, 0 if it set no time; surely says that it counts without one.
func (r *ramp) refuse(now, since, asked time.Duration, surely bool) *ramp {
	if r == nil {
		r = new(ramp)
	}
	if since < r.began || r.on && r.sent == 0 { // part of the last throttle, or a pause that became longer
		if r.byWindow(asked) {
			r.gap = 0
		}
		return r
	}
	if asked == 0 && !surely && !r.suspicious() {
		return r
	}
	if r.on {
		r.measure(now, asked)
		r.threshold = max(1, r.window/2)
		r.weighed = r.weighed && surely
	} else {
		r.weighed = surely
		r.on, r.threshold, r.growth = true, math.MaxInt64, rampFewest
	}
	r.refusals = append(r.refusals, refused{now, r.taken})
	if len(r.refusals) > rampRefusals || len(r.refusals) > 2 && r.taken-r.refusals[1].taken >= rampMost {
		r.refusals = slices.Delete(r.refusals, 0, 1)
	}
	r.restart(now)
	return r
}

// restart begins with one call again.
func (r *ramp) restart(now time.Duration) {
	r.window, r.sent, r.out, r.history = 1, 0, 0, 0
	r.began = now + 1 // not now: a call that leaves at this instant may have been throttled at it
}

// suspicious records a throttle without a time and reports whether there were enough
// lately for them to count.
func (r *ramp) suspicious() bool {
	r.history = (r.history<<1 | 1) & (1<<rampHistory - 1)
	n := bits.OnesCount64(r.history)
	return n >= rampRefused || r.on && n == rampRefused-1
}

// measure sets the pace at a throttle.
func (r *ramp) measure(now, asked time.Duration) {
	taken := r.taken - r.refusals[0].taken
	r.growth = 4 * float64(taken) / float64(len(r.refusals))
	if asked == 0 {
		r.growth *= 4
	}
	r.growth = min(max(rampFewest, r.growth), rampMost)
	switch {
	case taken > 0:
		if r.gap = r.best(now); r.byWindow(asked) {
			r.gap = 0
		}
	case asked == 0:
		r.gap = max(r.gap, min(2*max(r.gap, now-r.first), rampMaxProbe))
	}
}

// byWindow reports whether a server that asks for a wait counts by windows, see above.
func (r *ramp) byWindow(asked time.Duration) bool {
	return r.windows || asked > 2*max(time.Second, r.gap)
}

// published records whether it was a published window that has throttled a call.
func (r *ramp) published(window bool) {
	if r == nil {
		return
	}
	if r.windows = window; window {
		r.gap = 0
	}
}

// best returns the shortest mean gap between two throttles, the one now among
// them, that are far enough apart.
func (r *ramp) best(now time.Duration) time.Duration {
	gap, to := rampMaxGap, refused{now, r.taken}
	for end := len(r.refusals) - 1; end >= 0; end-- {
		for begin := end; begin >= 0; begin-- {
			from := r.refusals[begin]
			if n := to.taken - from.taken; n >= rampSpan || begin == 0 && n > 0 {
				gap = min(gap, (to.at-from.at)/time.Duration(n))
				break
			}
		}
		to = r.refusals[end]
	}
	return gap
}

// peek implements brake.
func (r *ramp) peek(now time.Duration, _ int64) time.Duration {
	if !r.on {
		return 0
	}
	at := max(r.began, r.left) + r.gap
	if float64(r.out) >= math.Floor(r.window) {
		at = max(at, r.left+rampStall)
	}
	return max(0, at-now)
}

// demand implements brake.
func (r *ramp) demand(now time.Duration, _ want) time.Duration { return r.peek(now, 0) }

// forecast implements brake, as if the window and the gap stayed as they are. It is not 0 if some of
// the calls have to wait for a response.
func (r *ramp) forecast(p prospect) outlook {
	if !r.on {
		return outlook{}
	}
	var paced time.Duration
	if r.gap > 0 {
		behind, _, ok := sat.MulDiv(p.calls-1, int64(r.gap), 0, 1)
		if !ok {
			return outlook{last: sat.Max, unclear: true}
		}
		paced = sat.Add(max(0, max(r.began, r.left)+r.gap-p.now), time.Duration(behind))
	}
	window := int64(min(math.Floor(r.window), rampEnough))
	last := int64(sat.Add(time.Duration(r.out), time.Duration(p.calls-1)))
	rounds, _, ok := sat.MulDiv(last/window, int64(max(1, p.hold)), 0, 1)
	if !ok {
		rounds = int64(sat.Max)
	}
	lasts := max(paced, time.Duration(rounds))
	return outlook{last: lasts, unclear: lasts > 0}
}

// asleep implements brake.
func (r *ramp) asleep(now, paused time.Duration) bool {
	return !r.on || now-max(r.began, r.left, paused) >= rampSleep
}

// cause implements brake.
func (r *ramp) cause() limits.Cause { return limits.BySlowStart }

// started implements brake.
func (r *ramp) started(now, _ time.Duration, _ want) {
	if !r.on {
		return
	}
	if r.left = now; r.sent == 0 {
		r.first = now
	}
	r.sent++
	r.out++
}

// answeredFree is answer for a call that left before there was a ramp.
func (r *ramp) answeredFree() *ramp {
	if r == nil || r.on {
		return r
	}
	if r.shift(); r.history == 0 {
		return nil
	}
	return r
}

// shift records the response to a call that was not throttled.
func (r *ramp) shift() { r.history = r.history << 1 & (1<<rampHistory - 1) }

// leaveOut ends a call that left at since and was throttled. What that means for other calls, if
// anything, is said by refuse.
func (r *ramp) leaveOut(since time.Duration) {
	if r != nil && since >= r.began {
		r.out = max(0, r.out-1)
	}
}

// answer returns the ramp after the response to a call that left at since and was
// not throttled. fine is true for a success and for a definite answer; after a failure
// the window does not grow. The ramp is over when it holds back less than the
// concurrency limit of the gate, places.
func (r *ramp) answer(since time.Duration, fine bool, places int64) *ramp {
	if r == nil || since < r.began {
		return r
	}
	if r.shift(); !r.on && r.history == 0 {
		return nil
	}
	if r.out == 0 {
		return r
	}
	r.out--
	r.taken++
	if !fine {
		return r
	}
	switch {
	case r.window >= r.threshold:
		r.window += 1 / r.window
	case r.gap > 0:
		r.window = r.threshold // the gap keeps them apart
	default:
		r.window++
	}
	if r.gap -= time.Duration(float64(r.gap) / r.growth); r.gap < rampMinGap {
		r.gap = 0
	}
	if r.gap == 0 && r.sent >= rampCalm && r.window >= min(float64(places), rampEnough) {
		return nil
	}
	return r
}
