package sluice

import (
	"math"
	"time"

	"github.com/sluice-go/sluice/limits"
)

// # The first burst
//
// If all workers of a pool begin at once, their calls are on their way before the first answer says that there is a limit.
// Of 100 calls at a bucket of ten 90 were throttled, and many servers count those as well, or ban who goes on. So a gate
// without a configured limit begins as TCP does (slow start, RFC 5681 and 6928): 14 calls at once, and one more for each
// response. At a fast server that takes two round trips, once.
//
// Nobody waits for slow answers: while calls are without one, twice as many may be every 100 ms. So 100 callers have all
// started after 0.3 s, and 1,000 after 0.62 s, whatever happens.
//
// It is over after 50 responses, or when a throttled call shows the gate what to do instead. Scores of 80 limiters in 25
// seconds, the mean of 32, 64 and 100 callers: 83.6 with 32 calls at first, 83.6 with 20, 84.1 to 84.6 with 13 to 16, 83.1 with
// 12, 84.2 with 10. With 14, a server that accepts 50 per second with a burst of ten rejects 15 calls of 32 callers, and 30
// with 32. Where 32 callers begin at a window of 30, 32 at first is better: it rejects two of them, and the rest follows.

const (
	openingFirst  = 14. // calls at once
	openingEnough = 64. // without an answer: more at once show no more
	openingDouble = 100 * time.Millisecond
)

// An opening bounds the first burst of a gate, a brake. It is guarded by the lock of the gate's queue.
type opening struct {
	window float64       // how many calls may be without an answer, if they have just begun
	out    int64         // how many are
	since  time.Duration // when the last call left that the window had room for
}

func newOpening() *opening { return &opening{window: openingFirst} }

// at returns when there may be that many calls without an answer.
func (o *opening) at(calls float64) time.Duration {
	if calls <= o.window {
		return 0
	}
	return o.since + time.Duration(math.Log2(calls/o.window)*float64(openingDouble))
}

// peek implements brake.
func (o *opening) peek(now time.Duration, _ int64) time.Duration {
	return max(0, o.at(float64(o.out+1))-now)
}

// demand implements brake.
func (o *opening) demand(now time.Duration, _ want) time.Duration { return o.peek(now, 0) }

// started implements brake.
func (o *opening) started(now, _ time.Duration, _ want) {
	if o.out++; float64(o.out) <= o.window {
		o.since = now
	}
}

// answer returns the opening after the end of a call that was not throttled. If it was not granted either, the call was
// cancelled or failed, and the window stays.
func (o *opening) answer(granted bool) *opening {
	if o.leaveOut(); o == nil || !granted {
		return o
	}
	if o.window++; o.window >= openingEnough {
		return nil
	}
	return o
}

// leaveOut ends a call.
func (o *opening) leaveOut() {
	if o != nil {
		o.out = max(0, o.out-1)
	}
}

// forecast implements brake: even without an answer it is soon over.
func (o *opening) forecast(prospect) outlook { return outlook{} }

// asleep implements brake: a new one begins in the same way.
func (o *opening) asleep(_, _ time.Duration) bool { return true }

// cause implements brake.
func (o *opening) cause() limits.Cause { return limits.BySlowStart }
