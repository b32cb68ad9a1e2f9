package sluicehttp

import (
	"time"

	"github.com/sluice-go/sluice/sluicehttp/ratelimit"
)

// Limit.NextAt says when an empty bucket of requests has one more: the time until the reset
// divided by what is missing. But some gateways send the fields of OpenAI's buckets for
// windows. Earlier responses distinguish them: for a bucket that quotient is constant, for a
// window it falls.
//
//	remaining of 20        19     18     10      0
//	bucket, full in        3 s    6 s   30 s   60 s     3 s each
//	window, reset in      60 s   60 s   60 s   60 s     60 s, 30 s, 6 s, 3 s
//
// So the longest quotient counts if it is far from the current one, which may be rounded
// to a second. The Retry-After of a refusal counts as well. The longest is halved each time
// it is used, so that one odd response is forgotten; a window renews it.

// A refill is what earlier responses said about a bucket.
type refill struct {
	most    ratelimit.Amount
	longest time.Duration // until there was one more
}

// mostRefills bounds the memory for a server that invents names.
const mostRefills = 8

// noteRefills notes what a response says about buckets of requests, with st.mu held.
func (st *state) noteRefills(said *ratelimit.Info, now time.Time) {
	for i := range said.Limits {
		l := &said.Limits[i]
		if l.NextAt.IsZero() || !countsCalls(l) {
			continue
		}
		one := l.NextAt.Sub(now)
		if said.Throttled && isZero(l.Remaining) && said.RetryAt.After(now) {
			one = max(one, min(said.RetryAt.Sub(now), l.ResetAt.Sub(now)))
		}
		r, known := st.refills[l.Name]
		switch {
		case !known && len(st.refills) == mostRefills:
			continue
		case st.refills == nil:
			st.refills = make(map[string]refill)
		}
		if r.most != l.Max {
			r = refill{most: l.Max}
		}
		r.longest = max(r.longest, one)
		st.refills[l.Name] = r
	}
}

// emptyUntil notes what a response says about buckets, and returns until when no call should
// be sent: said.PauseUntil, or later according to earlier responses. It is zero after a
// throttle, which pauses the gate anyway.
func (st *state) emptyUntil(said *ratelimit.Info, now time.Time) (at time.Time, source string) {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.noteRefills(said, now)
	if said.Throttled {
		return at, source
	}
	if at, source = said.PauseUntil(); at.IsZero() {
		return at, source
	}
	for i := range said.Limits {
		l := &said.Limits[i]
		if l.NextAt.IsZero() || !countsCalls(l) || !isZero(l.Remaining) {
			continue
		}
		r := st.refills[l.Name]
		if r.longest <= 2*l.NextAt.Sub(now) {
			continue
		}
		if until := now.Add(min(r.longest, l.ResetAt.Sub(now))); until.After(at) {
			at, source = until, l.Source
		}
		r.longest /= 2
		st.refills[l.Name] = r
	}
	return at, source
}
