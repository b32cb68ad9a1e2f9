package sluicehttp

import (
	"math"
	"time"

	"github.com/sluice-go/sluice/sluicehttp/ratelimit"
)

// Limit.NextAt says when an empty bucket of requests has one more: the time until the reset divided
// by the missing amount. But some gateways send the fields of OpenAI's buckets for windows. Earlier
// responses distinguish them: for a bucket that quotient is constant, for a window it falls.
//
//	remaining of 20        19     18     10      0
//	bucket, full in        3 s    6 s   30 s   60 s     3 s each
//	window, reset in      60 s   60 s   60 s   60 s     60 s, 30 s, 6 s, 3 s
//
// So the longest quotient counts if it is far from the current one, which may be rounded
// to a second. The Retry-After of a throttling response counts as well. The longest is halved each time
// it is used, so that one odd response is forgotten; a window renews it.
//
// A limit of unknown kind is a bucket if its reset moves, see claims.go. It is
// a window again if a throttled call is told to wait for much longer than a bucket needs, or if
// calls are throttled, one after the other, although each has waited for long enough.

// A refill is the statements of responses about a bucket.
type refill struct {
	longest   time.Duration // quotient
	refusals  int           // one after the other, of a limit that is a bucket by its reset
	refusedAt time.Time
}

// mostRefusals is after how many throttling responses, one after the other, a bucket is a window.
const mostRefusals = 3

// nextOf returns in how much time l has one more, if it is a bucket of requests.
func (c *claim) nextOf(l *ratelimit.Limit, r *reply) (wait time.Duration, bucket bool) {
	switch {
	case !countsCalls(l) || l.NextAt.IsZero() && !c.ofBucket:
		return 0, false
	case !l.NextAt.IsZero():
		return l.NextAt.Sub(r.now), true
	}
	remaining, _ := l.Remaining.Value()
	wait = max(0, l.ResetAt.Sub(r.now)-l.Rounding) // no more is certain
	if missing := c.missing(remaining); missing > 1 {
		wait = time.Duration(math.Ceil(float64(wait) / missing)) // otherwise it may not fit
	}
	return wait, true
}

// noteRefill notes the rate at which a bucket refills according to r.
func (c *claim) noteRefill(l *ratelimit.Limit, r *reply) {
	wait, bucket := c.nextOf(l, r)
	if !bucket {
		return
	}
	told := r.refused && isZero(l.Remaining) && r.source != l.Source
	asked := min(r.retryAt.Sub(r.now), l.ResetAt.Sub(r.now))
	switch {
	case l.NextAt.IsZero():
		if c.inVain(r) || told && (asked-l.Rounding)/2 > wait {
			c.isWindow()
		}
		return
	case told:
		wait = max(wait, asked)
	}
	c.longest = max(c.longest, wait)
}

// inVain reports whether r is one of too many throttling responses, one after the other.
func (c *refill) inVain(r *reply) bool {
	switch {
	case !r.refused:
		c.refusals = 0
	case c.refusals == 0 || !r.sent.Before(c.refusedAt):
		c.refusals++
		c.refusedAt = r.now
	}
	return c.refusals > mostRefusals
}

// opens returns when a bucket of requests of which nothing remains has one more.
func (c *claim) opens(l *ratelimit.Limit, r *reply) (at time.Time, bucket bool) {
	wait, bucket := c.nextOf(l, r)
	if !bucket {
		return at, false
	}
	if c.longest > 2*wait {
		wait = max(wait, min(c.longest, l.ResetAt.Sub(r.now)))
		c.longest /= 2
	}
	return r.now.Add(wait), true
}
