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
// Refusing the retry alone makes it worse: callers that fail at once, instead
// of after a backoff, come back with their next call at once, and call faster
// than before (aws/aws-sdk-go-v2#3413). So an empty budget also spaces out
// first attempts, at the backoff that was not slept, until successes halve
// that away.
const (
	budgetCapacity = 100
	retryCost      = 5  // also after a throttle
	timeoutCost    = 10 // the server may still be working on it
	retryRefund    = 5  // a success after a retry
	firstRefund    = 1  // a success at the first attempt

	maxCool = 30 * time.Second
)

// A budget is the retry budget of a gate: guarded by the lock of its queue.
type budget struct {
	tokens, capacity int // capacity < 0: retries are free

	// cool is the least spacing of calls after the budget was empty, whatever
	// they weigh and whatever burst is stored; 0 normally. left is when the
	// last call left.
	cool, left time.Duration

	// throttled is when a throttle was last paid for. Calls that left before
	// and are throttled, too, were part of the same burst and pay nothing.
	throttled time.Duration
}

func newBudget(capacity int) budget {
	if capacity == 0 {
		capacity = budgetCapacity
	}
	return budget{tokens: capacity, capacity: capacity}
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

// succeed notes a success. Calls that go at interval anyway are not slowed
// down any more.
func (b *budget) succeed(first bool, interval time.Duration) {
	refund := retryRefund
	if first {
		refund = firstRefund
	}
	if b.capacity > 0 {
		b.tokens += min(refund, b.capacity-b.tokens)
	}
	if b.cool /= 2; b.cool <= interval || b.cool < time.Millisecond {
		b.cool = 0
	}
}

// empty notes that a retry after backoff could not be paid for. It reports
// whether calls are now spaced further.
func (b *budget) empty(backoff time.Duration) bool {
	before := b.cool
	b.cool = min(max(b.cool, backoff), maxCool)
	return b.cool > before
}

// wait returns how long a call has to wait that has ahead others before it.
func (b *budget) wait(now time.Duration, ahead int64) time.Duration {
	if b.cool == 0 {
		return 0
	}
	behind, _, ok := sat.MulDiv(ahead, int64(b.cool), 0, 1)
	if !ok {
		return sat.Max
	}
	return sat.Add(max(0, b.left+b.cool-now), time.Duration(behind))
}

// payRetry pays for a retry of a call that left at left. If it cannot, calls
// are spaced out at backoff at least.
func (g *Gate) payRetry(kind failure, left, backoff time.Duration) bool {
	g.queue.Lock()
	cost := retryCost
	switch {
	case kind == throttle && g.budget.throttled > left:
		cost = 0
	case kind == timeout:
		cost = timeoutCost
	}
	g.impaired.Store(true)
	paid, slower := g.budget.pay(cost), false
	if !paid {
		slower = g.budget.empty(backoff)
	} else if kind == throttle && cost > 0 {
		g.budget.throttled = g.queue.Now()
	}
	g.queue.Unlock()
	if slower {
		g.lookAgain()
	}
	return paid
}

// lookAgain applies a change of the spacing to those who wait.
func (g *Gate) lookAgain() { g.queue.Change(func(time.Duration) {}) }

// succeeded notes that a call succeeded, at its first attempt or later.
func (g *Gate) succeeded(first bool) {
	if !g.impaired.Load() { // nothing to mend: the way of nearly all calls
		return
	}
	g.queue.Lock()
	spaced := g.budget.cool > 0
	g.budget.succeed(first, g.rate.Interval())
	g.impaired.Store(g.budget.cool > 0 || g.budget.tokens < g.budget.capacity)
	g.queue.Unlock()
	if spaced {
		g.lookAgain()
	}
}
