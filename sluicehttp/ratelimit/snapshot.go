package ratelimit

import (
	"net/http"
	"time"

	"github.com/sluice-go/sluice/limits"
)

// A Snapshot is what one response says about limits. Its zero value says
// nothing. It is plain data, which a caller who knows more may change: who
// finds in a body that a call was refused, or until when, sets Throttled and
// RetryAt before asking PauseUntil.
type Snapshot struct {
	// Status is the status of the response.
	Status int

	// Throttled reports that the server refused the call because there were
	// too many, as far as status and header tell: status 429 or 529; 503 with a
	// valid field of the Retry-After family; 403 with such a field or with a
	// limit of which nothing remains. 529 is Anthropic's for a server too busy
	// to take the call. Other APIs say so in the body only: GitHub (its
	// secondary limits), AWS (status 400), GraphQL servers with status 200.
	Throttled bool

	// RetryAt is when the server says to come back, on the local clock, or
	// zero if it does not say. A valid field of the Retry-After family tells,
	// for any status from 300; without one, after a throttle, the latest
	// ResetAt of the windows of which nothing remains. A limit of which
	// something remains did not refuse the call, so its reset is not when to
	// come back; nor is that of a bucket that refills all the time, see Floor.
	// It is never before the time of arrival, and keeps the monotonic reading
	// of that.
	RetryAt time.Time

	// RetrySource is the header field that RetryAt is from.
	RetrySource string

	// ShouldRetry is what the server says about trying again at all.
	ShouldRetry Answer

	// Floor is how long to wait at least if the call was throttled, or its
	// body says so, and RetryAt is zero: one minute if GitHub or GitLab refuse
	// (403, 429) although something remains of the limit they show. It is
	// another limit, then, of which they do not tell more. For a bucket of
	// requests of which nothing remains it is the time until NextAt.
	Floor time.Duration

	// Limits are in order of name, then of partition.
	Limits []Limit

	// Rate is the rate that the server states, or zero.
	Rate limits.Rate

	// Bucket names the group of calls that the limit is for, Scope whom it is
	// for and Reason which limit refused, in the words of the server. A limit
	// of scope "shared" is used up by others, too. Global reports that the
	// limit is for all calls to the server and not only for the bucket.
	Bucket, Scope, Reason string
	Global                bool

	// FromCache reports that the response comes from a cache, which tells
	// what once was so: its rate-limit fields are not read. The Retry-After
	// family and ShouldRetry are.
	FromCache bool
}

// PauseUntil returns until when no more calls should be sent, and the header
// field that says so; the zero time if now is fine, or nobody knows. After a
// throttle that is RetryAt, and after a redirect RetryAt, too. After anything
// else but a redirect it is the latest instant at which a limit of which nothing
// remains lets a call pass: the ResetAt of a window, the NextAt of a bucket of
// requests. Before that the next call would be refused. Other limits do not count:
// a bucket of tokens or the like, because a small call may pass soon and 0 may be
// rounded, and a limit of calls in flight, because there is room when one of them
// comes back.
func (s *Snapshot) PauseUntil() (at time.Time, source string) {
	redirect := 300 <= s.Status && s.Status < 400 && s.Status != http.StatusNotModified
	if s.Throttled || redirect {
		return s.RetryAt, s.RetrySource
	}
	for i := range s.Limits {
		l := &s.Limits[i]
		if l.Remaining.Zero() && l.opensAt().After(at) && !l.Concurrent() {
			at, source = l.opensAt(), l.Source
		}
	}
	return at, source
}

// A Limit is what a response says about one limit.
type Limit struct {
	// Name is the server's, or from the name of the header fields: "default",
	// "core", "requests", "minute". It is empty if there is none.
	Name string

	// Unit is what is counted: "requests", "tokens", "points", "bytes",
	// "concurrent" for calls in flight, or another word of the server; empty
	// if that is not said, and then it is mostly requests.
	Unit string

	// Quota is how much there is per window, Used how much of it is gone and
	// Remaining how much is left.
	Quota, Used, Remaining Amount

	// Window is how long the quota is for; 0 if that is not said.
	Window time.Duration

	// ResetAt is when the limit is as if unused: when a window ends, or when a
	// bucket is full. It is on the local clock and with the monotonic reading
	// of the time of arrival; zero if that is not said. It is never before the
	// time of arrival.
	ResetAt time.Time

	// NextAt says that the limit is a bucket that refills all the time, and is
	// when there will be one more of its Unit than now: what is left until
	// ResetAt, divided by what is missing. What remains may be rounded there,
	// so that 0 can mean some hundred tokens. Zero for a window, of which all
	// comes back at ResetAt; for a limit whose kind is not known; for a bucket
	// without ResetAt; and for one of requests without Quota. A bucket of
	// tokens without Quota has the ResetAt. The package comment says which
	// fields are of buckets.
	NextAt time.Time

	// Partition is the partition key: the part of the server's callers or
	// data that the limit is for. It is a sequence of bytes.
	Partition string

	// Source is the header field that ResetAt is from, or the first one that
	// says something else about the limit.
	Source string
}

// Concurrent reports that the limit is one of calls in flight, and no rate.
func (l *Limit) Concurrent() bool { return l.Unit == concurrent }

// An Answer is what a server says to a question that it may leave open.
type Answer uint8

// The answers. The zero Answer is Unset.
const (
	Unset Answer = iota
	Yes
	No
)

// String returns "unset", "yes" or "no".
func (a Answer) String() string {
	switch a {
	case Yes:
		return "yes"
	case No:
		return "no"
	}
	return "unset"
}

// Parse reads what a response that arrived at now, on the local clock, says
// about limits: it is [Options.Parse] without options.
func Parse(status int, header http.Header, now time.Time) (Snapshot, []Warning) {
	return Options{}.Parse(status, header, now)
}
