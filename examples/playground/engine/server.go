package engine

import (
	"math"
	"math/rand/v2"
	"time"
)

// A Server is what the calls are sent to. It has a token bucket, which is full at the
// beginning, and can be closed for a while. Times are in seconds, rates per second.
//
// It is a small part of the upstream of bench/league, which is a program and cannot be
// imported. TestLeague compares the results of both.
type Server struct {
	Limit  []Step  // the rate that it accepts, from each time on; none: any
	Burst  float64 // of the bucket; 0: one second of the first rate, at least 1
	Closed [2]float64
	Hint   bool // whether a rejection says when to retry
	RTT    float64
	Jitter float64 // of the way there
	Takes  []Step  // how long it serves a call, from each time on
	Spread float64 // a share of that, up or down
}

// A Step is a value from a time on.
type Step struct {
	At, Value float64
}

// stepAt returns the current value at t and when the next one begins.
func stepAt(steps []Step, t float64) (value, until float64) {
	for _, s := range steps {
		if s.At > t {
			return value, s.At
		}
		value = s.Value
	}
	return value, math.Inf(1)
}

// An outcome is what became of a call that started.
type outcome byte

const (
	out     outcome = iota // still under way at the end
	served                 // a success
	refused                // a 429
)

// A reply is the response. A rejection without a hint has a negative retryAfter.
type reply struct {
	outcome    outcome
	retryAfter time.Duration
}

// upstream is a running Server.
type upstream struct {
	Server
	clock           *clock
	network, random *rand.Rand
	tokens, seen    float64
}

func newUpstream(s Server, c *clock) *upstream {
	u := &upstream{Server: s, clock: c, network: rand.New(rand.NewPCG(1, 1)), random: rand.New(rand.NewPCG(1, 2))}
	if len(s.Limit) > 0 && s.Burst == 0 {
		u.Burst = math.Max(1, s.Limit[0].Value)
	}
	u.tokens = u.Burst
	return u
}

// call sends a call; back runs when its reply has arrived. It is called by events only.
func (u *upstream) call(back func(reply)) {
	there := u.RTT/2 + u.Jitter*u.network.Float64()
	u.clock.after(seconds(there), func() {
		r := u.arrive()
		takes := 0.0
		if r.outcome == served {
			takes, _ = stepAt(u.Takes, u.clock.now().Seconds())
			takes *= 1 + u.Spread*(2*u.random.Float64()-1)
		}
		u.clock.after(seconds(takes+u.RTT/2), func() { back(r) })
	})
}

func (u *upstream) arrive() reply {
	now := u.clock.now().Seconds()
	u.refill(now)
	switch {
	case now >= u.Closed[0] && now < u.Closed[1]:
		return u.refusal(u.Closed[1] - now)
	case len(u.Limit) > 0 && u.tokens < 1-epsilon:
		return u.refusal(u.wait(now))
	}
	u.tokens--
	return reply{outcome: served, retryAfter: -1}
}

// epsilon forgives what adding fractions of a token rounds away.
const epsilon = 1e-9

func (u *upstream) refill(now float64) {
	for u.seen < now {
		rate, until := stepAt(u.Limit, u.seen)
		until = math.Min(until, now)
		u.tokens = math.Min(u.Burst, u.tokens+rate*(until-u.seen))
		u.seen = until
	}
}

// wait returns the time until there is a token.
func (u *upstream) wait(now float64) float64 {
	t, need := now, 1-u.tokens
	for {
		rate, until := stepAt(u.Limit, t)
		if t+need/rate <= until {
			return t + need/rate - now
		}
		need -= rate * (until - t)
		t = until
	}
}

// refusal says when to retry in whole seconds, rounded up, as a Retry-After does.
func (u *upstream) refusal(wait float64) reply {
	r := reply{outcome: refused, retryAfter: -1}
	if u.Hint {
		r.retryAfter = seconds(math.Max(1, math.Ceil(wait-epsilon)))
	}
	return r
}

func seconds(s float64) time.Duration { return time.Duration(math.Round(s * 1e9)) }
