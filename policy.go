package sluice

import (
	"fmt"
	"math"
	"math/bits"
	"time"

	"github.com/sluice-go/sluice/internal/defaults"
	"github.com/sluice-go/sluice/internal/sat"
	"github.com/sluice-go/sluice/limits"
)

// A RetryPolicy says when [RetryValue] tries again.
type RetryPolicy struct {
	// Attempts is the most attempts, including the first. Attempts that the server throttled do not
	// count, see [RetryValue]. 0 means 4, negative no limit.
	Attempts int

	// Backoff computes the wait before a retry; nil means FullJitter from 500 ms to 30 s.
	// ThrottleBackoff is used instead after a throttled call for which the server set no time;
	// nil means FullJitter from 1 s to 30 s. The wait is at least 1 ms.
	Backoff, ThrottleBackoff Backoff

	// MaxElapsed is the longest time from the start of the first attempt to that of a retry; a call
	// gives up without waiting for a later one. 0 means 15 min, negative no bound.
	//
	// If MaxElapsed is 0 and MaxServerWait is more than 5 min, a single wait of more than 5 min,
	// for the gate or because a server requests it, does not count, and MaxElapsed does not limit
	// the wait for the gate.
	MaxElapsed time.Duration

	// MaxServerWait is the longest wait that a server may request. If it requests more, all calls
	// stop immediately with [ErrServerWait] while the rest of the pause is longer. They also stop
	// when the server has throttled all calls for longer than this. 0 means 5 min, negative no
	// bound.
	MaxServerWait time.Duration

	// AttemptTimeout limits each attempt: its context ends then, and it may be retried. 0 or less
	// means no limit (in package sluicehttp 0 means 10 min).
	AttemptTimeout time.Duration

	// Retryable, if set, reports whether an error that is not marked with Permanent or ThrottledFor
	// is worth another attempt. nil means that all are.
	Retryable func(err error) bool
}

// almostOne is the largest u that a Backoff may be given.
var almostOne = math.Nextafter(1, 0)

const (
	defaultAttempts   = 4
	defaultMaxElapsed = 15 * time.Minute
	minBackoff        = time.Millisecond
)

var (
	defaultBackoff   = FullJitter(500*time.Millisecond, 30*time.Second)
	defaultThrottled = FullJitter(time.Second, 30*time.Second)
)

// withDefaults returns p with every field set: no bound is the largest number.
func (p RetryPolicy) withDefaults() RetryPolicy {
	p.Attempts = orDefault(p.Attempts, defaultAttempts, int(^uint(0)>>1))
	p.MaxElapsed = orDefault(p.MaxElapsed, defaultMaxElapsed, limits.Never)
	p.MaxServerWait = orDefault(p.MaxServerWait, defaults.MaxServerWait, limits.Never)
	if p.Backoff == nil {
		p.Backoff = defaultBackoff
	}
	if p.ThrottleBackoff == nil {
		p.ThrottleBackoff = defaultThrottled
	}
	return p
}

func orDefault[T int | time.Duration](x, zero, negative T) T {
	switch {
	case x == 0:
		return zero
	case x < 0:
		return negative
	}
	return x
}

// A Backoff computes the wait before a retry. retry counts from 1, prev is the wait before the
// previous retry (0 if there was none), and u is a random number, uniform in [0, 1), for the
// jitter. A Backoff must be a pure function, for concurrent use.
type Backoff func(retry int, prev time.Duration, u float64) time.Duration

// FullJitter returns a Backoff that is uniform in [0, x), where x is base, 2·base, 4·base, … up to
// longest. It panics unless 0 < base ≤ longest. (M. Brooker: Exponential Backoff and Jitter, AWS
// Architecture Blog, 2015.)
func FullJitter(base, longest time.Duration) Backoff {
	if base <= 0 || base > longest {
		panic(fmt.Sprintf("sluice: backoff from %v to %v: want 0 < base ≤ longest", base, longest))
	}
	return func(retry int, _ time.Duration, u float64) time.Duration {
		x := double(base, longest, retry)
		return min(x, time.Duration(u*float64(x)))
	}
}

// Constant returns a Backoff that is always d. It panics if d < 0.
func Constant(d time.Duration) Backoff {
	if d < 0 {
		panic(fmt.Sprintf("sluice: negative backoff %v", d))
	}
	return func(int, time.Duration, float64) time.Duration { return d }
}

// double returns base·2^(retry−1), at most longest.
func double(base, longest time.Duration, retry int) time.Duration {
	// A shift that would lose bits is recognised by shifting longest back.
	if shift := max(0, retry-1); shift < 63 && base <= longest>>shift {
		return base << shift
	}
	return longest
}

// # The retry budget
//
// A retry is a bet that the failure was an accident. If most calls fail, N callers with
// 4 attempts each are 4·N calls on a server that is already down. So retries are paid
// from a bucket of tokens that successes fill: from full, 20 failures are retried; in
// the long run one call in five may be a retry that fails again.
//
// Refusing the retry alone makes it worse: a caller that fails immediately, and not after a
// backoff, makes its next call at once (aws/aws-sdk-go-v2#3413). So an empty budget
// also spaces out first attempts, by the backoff that was not slept. Answers halve this
// spacing until it is gone. A server that still answers a quarter of the calls is not down: its
// calls are not retried, but they are not spaced out, either. Of one that failed every second call
// at random a gate with spacing had a fifth of the calls served, and without half.
//
// Where successes do not come, after the last call of a host or if the usual answer is
// a 404, quiet mends the budget: every 30 s in which no call fails halve the spacing and
// put back a twentieth of the tokens. While calls fail nothing comes back, so a server
// that is down sees no more calls. The state is a function of the last event and now;
// nothing ticks.
const (
	budgetCapacity = 100
	retryCost      = 5  // also after a throttle
	timeoutCost    = 10 // the server may still be working on it
	retryRefund    = 5  // a success after a retry
	firstRefund    = 1  // a success at the first attempt

	quiet      = 30 * time.Second
	quietSteps = 20 // until all tokens are back

	// Calls are spaced out if fewer than so many of the last 16 ended well.
	fewWell = 4

	maxSpacing = 30 * time.Second
	minSpacing = time.Millisecond // less is none
)

// failure is the kind of error of an attempt.
type failure int

const (
	plain failure = iota
	throttle
	timeout
	learned // a throttle that the learner of the gate deals with: it spaces calls out itself
	alone   // a throttle of one call for its own sake
	crowd   // an unclear answer, as others got that were in flight at the same time: see payLate
)

// A budget is the retry budget of a gate. It is guarded by the lock of the queue.
type budget struct {
	capacity int // < 0: retries are free

	// The state at since: tokens, and the least time between calls, whatever their
	// cost and the burst, 0 normally. Use at to read them.
	tokens  int
	spacing time.Duration
	since   time.Duration

	left time.Duration // when the last call left

	history uint16 // the ends of the last calls, the latest lowest; 1: well

	// throttled is when a retry after a throttle was last paid for. Throttled calls
	// that left before, or less than minBackoff later, were part of the same burst and
	// pay nothing.
	throttled time.Duration
}

func newBudget(capacity int) budget {
	if capacity == 0 {
		capacity = budgetCapacity
	}
	// Negative: before any call has left. In a bubble calls may start at the instant at
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

// refund puts back tokens.
func (b *budget) refund(tokens int) {
	if b.capacity > 0 {
		b.tokens += min(tokens, b.capacity-b.tokens)
	}
}

// halve halves the spacing after an answer that shows the server at work. A spacing of
// no more than interval, which calls keep anyway, ends.
func (b *budget) halve(interval time.Duration) {
	if b.spacing /= 2; b.spacing <= interval || b.spacing < minSpacing {
		b.spacing = 0
	}
}

// note notes how a call ended.
func (b *budget) note(well bool) {
	b.history <<= 1
	if well {
		b.history |= 1
	}
}

// empty records that a retry after backoff could not be paid for.
func (b *budget) empty(backoff time.Duration) {
	if bits.OnesCount16(b.history) >= fewWell {
		return
	}
	b.spacing = min(max(b.spacing, backoff), maxSpacing)
}

// peek implements brake: how long a call has to wait if only quiet shortens the spacing meanwhile.
func (b *budget) peek(now time.Duration, _ int64) time.Duration {
	if b.spacing == 0 { // as for nearly all calls
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

// demand implements brake.
func (b *budget) demand(now time.Duration, _ want) time.Duration { return b.peek(now, 0) }

// started implements brake. Once the spacing is none, calls may pass without the lock again.
func (b *budget) started(now, _ time.Duration, _ want) { *b = b.at(now) }

// forecast implements brake, as if the spacing stayed as it is.
func (b *budget) forecast(p prospect) outlook {
	behind, _, ok := sat.MulDiv(p.calls-1, int64(b.at(p.now).spacing), 0, 1)
	if !ok {
		return outlook{last: sat.Max}
	}
	return outlook{last: sat.Add(b.peek(p.now, 0), time.Duration(behind))}
}

// asleep implements brake.
func (b *budget) asleep(now, _ time.Duration) bool { return b.at(now).spacing == 0 }

// cause implements brake.
func (b *budget) cause() limits.Cause { return limits.ByRetryBudget }

// recovered reports whether nothing is left to mend.
func (b budget) recovered() bool { return b.tokens == b.capacity && b.spacing == 0 }
