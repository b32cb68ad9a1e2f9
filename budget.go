package sluice

import (
	"time"

	"github.com/sluice-go/sluice/internal/sat"
)

// # Why does a gate count its retries?
//
// A retry is a bet that the failure was an accident. When most calls fail it
// is none, and N callers with 4 attempts each are 4·N calls on a server that
// is down already. So retries are paid from a bucket of tokens that successes
// fill. From full, 20 failures are retried; in the long run one in five calls
// may be a retry that fails again.
//
// Only to refuse the retry makes it worse: a caller that fails at once, and not
// after a backoff, makes its next call at once, so it calls faster than before
// (aws/aws-sdk-go-v2#3413). So an empty budget also spaces out first attempts, at
// the backoff that was not slept. Answers halve this spacing until it is gone.
//
// A budget that only successes mend stays empty where they do not come: after the
// last call of a host, or if the usual answer is a 404. So quiet mends it, too: each
// 30 s in which no call fails halve the spacing and put back a twentieth of the
// tokens. While calls fail nothing comes back, so a server that is down sees no more
// than before. The state is a function of the last event and now; nothing ticks.
const (
	budgetCapacity = 100
	retryCost      = 5  // also after a throttle
	timeoutCost    = 10 // the server may still be working on it
	retryRefund    = 5  // a success after a retry
	firstRefund    = 1  // a success at the first attempt

	quiet      = 30 * time.Second
	quietSteps = 20 // until all tokens are back

	maxSpacing = 30 * time.Second
	minSpacing = time.Millisecond // less is none
)

// A budget is the retry budget of a gate: guarded by the lock of its queue.
type budget struct {
	capacity int // < 0: retries are free

	// What was there at since: tokens, and the least spacing of calls, whatever
	// they weigh and whatever burst is stored, 0 normally. Use at to read them.
	tokens  int
	spacing time.Duration
	since   time.Duration

	left time.Duration // when the last call left

	// throttled is when a throttle was last paid for. Calls that left before, or less
	// than minBackoff later, and are throttled, too, were part of the same burst and
	// pay nothing.
	throttled time.Duration
}

func newBudget(capacity int) budget {
	if capacity == 0 {
		capacity = budgetCapacity
	}
	// Negative: before any call has left. In a bubble calls may leave at the instant at
	// which the gate was made, which is 0.
	return budget{capacity: capacity, tokens: capacity, throttled: -1}
}

// at returns b as quiet has mended it at now.
func (b budget) at(now time.Duration) budget {
	steps := max(0, now-b.since) / quiet
	if steps == 0 {
		return b
	}
	b.since += steps * quiet
	if b.spacing >>= min(steps, 62); b.spacing < minSpacing {
		b.spacing = 0
	}
	switch missing := b.capacity - b.tokens; {
	case missing <= 0:
	case steps >= quietSteps:
		b.tokens = b.capacity
	default:
		step := (b.capacity-1)/quietSteps + 1
		b.tokens += min(step*int(steps), missing)
	}
	return b
}

// pay takes cost and reports whether there was that much.
func (b *budget) pay(cost int) bool {
	switch {
	case b.capacity < 0:
		return true
	case b.tokens < cost:
		return false
	}
	b.tokens -= cost
	return true
}

// refund notes a success.
func (b *budget) refund(first bool) {
	refund := retryRefund
	if first {
		refund = firstRefund
	}
	if b.capacity > 0 {
		b.tokens += min(refund, b.capacity-b.tokens)
	}
}

// halve shortens the spacing after an answer that shows the server at work. Calls
// that go at interval anyway are not slowed down any more.
func (b *budget) halve(interval time.Duration) {
	if b.spacing /= 2; b.spacing <= interval || b.spacing < minSpacing {
		b.spacing = 0
	}
}

// empty notes that a retry after backoff could not be paid for.
func (b *budget) empty(backoff time.Duration) {
	b.spacing = min(max(b.spacing, backoff), maxSpacing)
}

// wait returns how long a call at the head of the queue has to wait if nothing
// but quiet shortens the spacing meanwhile.
func (b *budget) wait(now time.Duration) time.Duration {
	if b.spacing == 0 { // as for nearly all calls: the loop takes longer than the rest of them
		return 0
	}
	for at := now; ; {
		then := b.at(at)
		leaves := at
		if then.spacing > 0 {
			leaves = max(at, b.left+then.spacing)
		}
		if next := then.since + quiet; leaves > next {
			at = next // by then it is shorter
			continue
		}
		return leaves - now
	}
}

// spaced returns how long it takes until the last of calls leaves if the spacing
// stays as it is.
func (b *budget) spaced(now time.Duration, calls int64) time.Duration {
	behind, _, ok := sat.MulDiv(calls-1, int64(b.at(now).spacing), 0, 1)
	if !ok {
		return sat.Max
	}
	return sat.Add(b.wait(now), time.Duration(behind))
}

// leave notes that a call leaves at now.
func (b *budget) leave(now time.Duration) {
	if b.spacing > 0 { // once it is none, calls may pass without the lock again
		*b = b.at(now)
	}
	b.left = now
}

// recovered reports whether nothing is left to mend.
func (b budget) recovered() bool { return b.tokens == b.capacity && b.spacing == 0 }

// payRetry pays for a retry of a call that left at left. If it cannot, calls
// are spaced out at backoff at least.
func (g *Gate) payRetry(kind failure, left, backoff time.Duration) bool {
	g.queue.Lock()
	defer g.queue.Unlock()
	now := g.queue.Now()
	cost := retryCost
	switch {
	case kind == throttle && g.budget.throttled >= 0 && left < g.budget.throttled+minBackoff:
		// Not "left before": in a bubble calls leave, are refused and pay at one
		// instant, or a nanosecond apart if there is a slow start, and each of 64 paid.
		// No retry comes sooner than minBackoff, so no call is free again and again.
		cost = 0
	case kind == timeout:
		cost = timeoutCost
	}
	g.impaired.Store(true)
	g.fail(now)
	if !g.budget.pay(cost) {
		// This wakes no caller: those that wait see the longer wait when they wake.
		g.budget.empty(backoff)
		return false
	}
	if kind == throttle && cost > 0 {
		g.budget.throttled = now
	}
	return true
}

// fail ends the quiet at now.
func (g *Gate) fail(now time.Duration) {
	g.budget = g.budget.at(now)
	g.budget.since = now
}

// failed notes that a call failed that is not retried.
func (g *Gate) failed() {
	if !g.impaired.Load() {
		return
	}
	g.queue.Lock()
	defer g.queue.Unlock()
	g.fail(g.queue.Now())
}

// succeeded notes that a call succeeded, at its first attempt or later.
func (g *Gate) succeeded(first bool) {
	g.mend(func(b *budget) { b.refund(first) })
}

// answered notes that a call failed with a definite answer: the server is well, and
// the call was wrong. It puts back no tokens: that a retry ends so is no reason for
// more of them.
func (g *Gate) answered() { g.mend(func(*budget) {}) }

// mend calls refund and halves the spacing.
func (g *Gate) mend(refund func(b *budget)) {
	if !g.impaired.Load() { // nothing to mend: the way of nearly all calls
		return
	}
	g.queue.Lock()
	defer g.queue.Unlock()
	now := g.queue.Now()
	b := g.budget.at(now)
	refund(&b)
	spaced := g.budget.spacing > 0
	if spaced {
		b.halve(g.rate.Interval())
	}
	g.budget = b
	g.impaired.Store(!b.recovered())
	if spaced {
		// Waiting callers may leave earlier now. The release of the permit would wake
		// them, too, but may come much later.
		g.queue.Advance(now)
		g.queue.Kick()
	}
}
