package main

import (
	"math"
	"math/rand/v2"
	"time"
)

// naive sends at once, and again immediately.
type naive struct{}

func (naive) leave(time.Duration, int, float64) (ticket, time.Duration) { return nil, 0 }
func (naive) done(time.Duration, ticket, reply)                         {}
func (naive) retry(int, reply) time.Duration                            { return 0 }

// backoff is naive with the backoff of the AWS SDK's standard mode for each call: full
// jitter of 1 s·2ⁿ, never before the Retry-After. The bound of 20 s is applied after the
// jitter, as the SDK does.
type backoff struct {
	naive
	r *rand.Rand
}

func (b *backoff) retry(n int, r reply) time.Duration {
	return max(fullJitter(n, b.r.Float64()), r.retryAfter)
}

// fullJitter returns the wait after the n-th attempt, for a random u in [0, 1).
func fullJitter(n int, u float64) time.Duration {
	return seconds(math.Min(20, u*math.Pow(2, float64(n-1))))
}

// told spaces calls evenly at a rate that it was told; 1 ms of lateness is caught up.
type told struct {
	backoff
	rate float64
	next time.Duration
}

func newTold(w *World, r *rand.Rand, factor float64) *told {
	rate := math.Inf(1)
	if w.Told > 0 {
		rate = w.Told * factor
	}
	return &told{backoff: backoff{r: r}, rate: rate}
}

func (p *told) leave(now time.Duration, _ int, cost float64) (ticket, time.Duration) {
	if now < p.next {
		return nil, p.next
	}
	p.next = max(p.next, now-time.Millisecond) + seconds(cost/p.rate)
	return nil, 0
}

// aws is the adaptive mode of aws-sdk-go-v2 (aws/retry/adaptive_ratelimit.go), step by
// step: a token bucket before every attempt, off until the first throttle, its rate by
// CUBIC. The SDK gives up after three attempts; like everything here it retries on.
type aws struct {
	backoff
	enabled            bool
	fill, capacity     float64
	tokens             float64
	refilled           float64
	measured, counted  float64
	bucket             float64 // the half second that is being counted begins here
	lastMax, throttled float64
}

const (
	awsSmooth  = .8
	awsBeta    = .7
	awsScale   = .4
	awsMinFill = .5
)

func newAWS(r *rand.Rand) *aws {
	return &aws{backoff: backoff{r: r}, refilled: math.NaN()}
}

func (a *aws) refill(now float64) {
	if !math.IsNaN(a.refilled) {
		a.tokens = math.Min(a.capacity, a.tokens+(now-a.refilled)*a.fill)
	}
	a.refilled = now
}

func (a *aws) leave(now time.Duration, _ int, _ float64) (ticket, time.Duration) {
	if !a.enabled {
		return nil, 0
	}
	a.refill(now.Seconds())
	if a.tokens < 1-epsilon {
		return nil, now + max(time.Microsecond, seconds((1-a.tokens)/a.fill))
	}
	a.tokens--
	return nil, 0
}

func (a *aws) done(t time.Duration, _ ticket, r reply) {
	now := t.Seconds()
	a.measure(now)
	var rate float64
	if r.outcome == refused {
		most := a.measured
		if a.enabled {
			most = math.Min(most, a.fill)
		}
		a.lastMax, a.throttled, a.enabled = most, now, true
		rate = most * awsBeta
	} else {
		window := math.Cbrt(a.lastMax * (1 - awsBeta) / awsScale)
		rate = awsScale*math.Pow(now-a.throttled-window, 3) + a.lastMax
	}
	rate = math.Min(rate, 2*a.measured)
	a.refill(now)
	a.fill, a.capacity = math.Max(rate, awsMinFill), math.Max(rate, 1)
	a.tokens = math.Min(a.tokens, a.capacity)
}

// measure counts attempts per half second.
func (a *aws) measure(now float64) {
	a.counted++
	if half := math.Floor(now*2) / 2; half > a.bucket {
		a.measured = a.measured*(1-awsSmooth) + awsSmooth*a.counted/(half-a.bucket)
		a.counted, a.bucket = 0, half
	}
}
