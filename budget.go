package sluice

import "time"

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

	// cool is the least spacing of calls after the budget was empty.
	cool time.Duration

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

// succeed notes a success. It reports whether the spacing changed; interval is
// the one at which calls go anyway.
func (b *budget) succeed(first bool, interval time.Duration) bool {
	refund := retryRefund
	if first {
		refund = firstRefund
	}
	b.tokens = min(b.tokens+refund, b.capacity)
	if b.cool == 0 {
		return false
	}
	if b.cool /= 2; b.cool <= interval || b.cool < time.Millisecond {
		b.cool = 0
	}
	return true
}

// empty notes that a retry after backoff could not be paid for. It reports
// whether the spacing changed.
func (b *budget) empty(backoff time.Duration) bool {
	cool := min(max(b.cool, backoff), maxCool)
	changed := cool != b.cool
	b.cool = cool
	return changed
}

// payRetry pays for a retry of a call that left at left. If it cannot, calls
// are spaced out at backoff at least.
func (g *Gate) payRetry(kind failure, left, backoff time.Duration) bool {
	g.queue.Lock()
	cost, paid := retryCost, false
	switch {
	case kind == throttle && g.budget.throttled > left:
		cost = 0
	case kind == timeout:
		cost = timeoutCost
	}
	paid = g.budget.pay(cost)
	if paid && kind == throttle && cost > 0 {
		g.budget.throttled = g.queue.Now()
	}
	slower := !paid && g.budget.empty(backoff)
	g.queue.Unlock()
	if slower {
		g.queue.Change(g.slowDown)
	}
	return paid
}

// succeeded notes that a call succeeded, at its first attempt or later.
func (g *Gate) succeeded(first bool) {
	g.queue.Lock()
	faster := g.budget.succeed(first, g.rate.Interval())
	g.queue.Unlock()
	if faster {
		g.queue.Change(g.slowDown)
	}
}

// slowDown sets the schedule to the configured rate, or to the spacing that an
// empty budget asks for if that is slower. The queue must be locked.
func (g *Gate) slowDown(now time.Duration) {
	rate := g.rate
	if g.budget.cool > rate.Interval() {
		rate = Rate{1, g.budget.cool}
	}
	if count, per := g.schedule.Rate(); rate == (Rate{count, per}) {
		return
	}
	if err := g.schedule.SetRate(now, rate.Count, rate.Per); err != nil {
		// Both rates are valid; only a huge Burst can make the slow one last
		// too long. Then the gate keeps its pace.
		g.budget.cool = 0
	}
}
