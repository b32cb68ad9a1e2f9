package ratelimit

import (
	"net/http"
	"time"

	"github.com/sluice-go/sluice/limits"
)

// An Info has the limits that one response states. Code that reads the body may set Throttled and
// RetryAt before it calls PauseUntil.
type Info struct {
	// Status is the status of the response.
	Status int

	// Throttled reports that the server throttled the call, by status and header: 429 or 529; 503,
	// 420, 430, 508, 509 and 999 with a valid field of the Retry-After family; 403 with such a field
	// or with a limit of which nothing remains.
	Throttled bool

	// RetryAt is when to retry, on the local clock and not before Arrived, or zero if the server does
	// not say. It comes from a valid field of the Retry-After family, for any status from 300.
	// Without one, after a throttle, it is the latest ResetAt of the windows of which nothing
	// remains.
	RetryAt time.Time

	// RetrySource is the header field of RetryAt.
	RetrySource string

	// ShouldRetry is whether the server wants the call to be retried; nil if it
	// does not say.
	ShouldRetry *bool

	// Floor is the minimum wait if the call was throttled and RetryAt is zero: one minute if GitHub
	// or GitLab respond with 403 or 429 although something remains, and the time until NextAt of a
	// bucket of requests of which nothing remains.
	Floor time.Duration

	// Limits are ordered by name, then by partition.
	Limits []Limit

	// Rate is the rate that the server states, or zero.
	Rate limits.Rate

	// Bucket is the group of calls that the limit is for, Scope the calls to which it applies, and
	// Reason which limit throttled, in the words of the server. Global reports that it is for all
	// calls to the server.
	Bucket, Scope, Reason string
	Global                bool

	// Arrived is the now of Parse or, if that is zero, the time of Parse; zero if Parse did not read
	// the clock, because the header has no rate-limit fields.
	Arrived time.Time

	// FromCache reports that the response comes from a cache. Then only the Retry-After family and
	// ShouldRetry are read.
	FromCache bool
}

// concurrent is the unit of limits of calls in flight.
const concurrent = "concurrent"

// PauseUntil returns until when no more calls should be sent, and the header field that says so; or
// the zero time if calls may be sent now or nothing is known.
//
// After a throttle or a redirect that is RetryAt. Otherwise it is the latest time at which an
// exhausted limit allows a call: the ResetAt of a window, the NextAt of a bucket of requests.
// Buckets of LLM tokens and limits of calls in flight do not count.
func (s *Info) PauseUntil() (at time.Time, source string) {
	redirect := 300 <= s.Status && s.Status < 400 && s.Status != http.StatusNotModified
	if s.Throttled || redirect {
		return s.RetryAt, s.RetrySource
	}
	for i := range s.Limits {
		l := &s.Limits[i]
		if l.Remaining.isZero() && l.opensAt().After(at) && l.Unit != concurrent {
			at, source = l.opensAt(), l.Source
		}
	}
	return at, source
}

// A Limit is one limit that a response states.
type Limit struct {
	// Name is from the server or from the names of the header fields: "default",
	// "core", "requests", "minute". It may be empty.
	Name string

	// Unit is the counted unit: "requests", "tokens", "points", "bytes", "concurrent" for calls in
	// flight, or another word of the server. Empty usually means requests.
	Unit string

	// Max is the amount per window or the capacity of a bucket, Used the amount that
	// is gone, and Remaining the amount that is left.
	Max, Used, Remaining Amount

	// Window is the length of the window; 0 if unknown.
	Window time.Duration

	// ResetAt is when a window ends or a bucket is full, on the local clock and not before the
	// response arrived; zero if unknown.
	ResetAt time.Time

	// Rounding is by how much ResetAt may be later than the reset itself: a second for whole
	// seconds, and a second more for an instant that had to be compared with a Date; 0 if the field
	// is more precise.
	Rounding time.Duration

	// NextAt is when a bucket will have one more Unit than now: the time until ResetAt divided by
	// the missing amount, ResetAt if Max is unknown. It is zero for a window, and for a bucket
	// without ResetAt, or of requests without Max.
	NextAt time.Time

	// Partition is the partition key of the limit, in bytes: the callers or data that it is for.
	Partition string

	// Source is the header field of ResetAt or, without that, the first one about the limit.
	Source string
}

// missing returns how much of the maximum does not remain.
func (l *Limit) missing() float64 {
	most, _ := l.Max.Value()
	remaining, _ := l.Remaining.Value()
	return most - remaining
}

// countsCalls reports whether l counts requests, as far as is known.
func (l *Limit) countsCalls() bool { return l.Unit == "" || l.Unit == "requests" }

// opensAt returns when l allows a call if nothing remains of it; zero if unknown.
func (l *Limit) opensAt() time.Time {
	switch {
	case l.NextAt.IsZero():
		return l.ResetAt
	case l.countsCalls():
		return l.NextAt
	}
	return time.Time{}
}
