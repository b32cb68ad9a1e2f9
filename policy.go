package sluice

import (
	"fmt"
	"math"
	"time"

	"github.com/sluice-go/sluice/internal/defaults"
	"github.com/sluice-go/sluice/limits"
)

// A RetryPolicy says when [RetryValue] tries again. It may serve any number of calls at the same
// time. The zero RetryPolicy is a good one.
type RetryPolicy struct {
	// Attempts is the most attempts, including the first. Attempts that the server throttled do not
	// count, unless it throttles this call and not the others: see RetryValue. 0 means 4, negative
	// no limit.
	Attempts int

	// Backoff computes the wait before a retry; nil means FullJitter from 500 ms to 30 s.
	// ThrottleBackoff is used instead after a throttled call for which the server set no time;
	// nil means FullJitter from 1 s to 30 s. The wait is at least 1 ms.
	Backoff, ThrottleBackoff Backoff

	// MaxElapsed is the longest time from the start of the first attempt to that of a retry; a call
	// gives up without waiting for a later one. The wait for the gate before the first attempt does
	// not count. 0 means 15 min, negative no bound.
	//
	// If MaxElapsed is 0 and MaxServerWait is more than 5 min, a single wait of more than 5 min,
	// for the gate or because a server requests it, does not count, and MaxElapsed does not limit
	// the wait for the gate. A MaxElapsed that is set counts all waits.
	MaxElapsed time.Duration

	// MaxServerWait is the longest wait that a server may request. If it requests more, calls
	// stop immediately with ErrServerWait: the call that got the response, those that wait, and
	// those that come while the rest of the pause is longer. They also stop when the server has
	// throttled all calls for longer than this. 0 means 5 min, negative no bound.
	MaxServerWait time.Duration

	// AttemptTimeout limits each attempt: its context ends then, and it may be retried. 0 or less
	// means no limit (in package sluicehttp 0 means 10 min until the header of the response).
	AttemptTimeout time.Duration

	// Retryable, if set, reports whether an error is worth another attempt. It is not called
	// for errors marked with Permanent, ThrottledFor or ThrottledUntil. nil means that all
	// others are retried.
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
