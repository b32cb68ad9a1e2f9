package sluicehttp

import (
	"time"

	"github.com/sluice-go/sluice/sluicehttp/ratelimit"
)

// # How long until an empty bucket of requests has one more?
//
// Limit.NextAt says so: what is left until the reset, divided by what is missing.
// But some gateways send the fields of OpenAI's buckets for windows, of which
// nothing comes back before the reset. Answers that were seen before tell them
// apart. Of a bucket that quotient is the same in each; of a window it falls:
//
//	remaining of 20        19     18     10      0
//	bucket, full in        3 s    6 s   30 s   60 s     3 s each
//	window, reset in      60 s   60 s   60 s   60 s     60 s, 30 s, 6 s, 3 s
//
// So the longest that was seen holds, if it is far from the present one: rounding
// to a second makes some difference, too. And a refusal of an empty bucket that has
// a Retry-After says it outright. Each time that it was used it is halved, so that
// one odd answer is forgotten; a window renews it with its first answer.

// A refill is what was seen of a bucket.
type refill struct {
	quota   ratelimit.Amount
	longest time.Duration // until there was one more
}

// mostRefills bounds what is kept of one server, which may invent names.
const mostRefills = 8

// noteRefills notes what an answer says of buckets of requests, with st.mu held.
func (st *state) noteRefills(said *ratelimit.Snapshot, now time.Time) {
	for i := range said.Limits {
		l := &said.Limits[i]
		if l.NextAt.IsZero() || !countsCalls(l) {
			continue
		}
		one := l.NextAt.Sub(now)
		if said.Throttled && l.Remaining.Zero() && said.RetryAt.After(now) {
			one = max(one, min(said.RetryAt.Sub(now), l.ResetAt.Sub(now)))
		}
		r, known := st.refills[l.Name]
		switch {
		case !known && len(st.refills) == mostRefills:
			continue
		case st.refills == nil:
			st.refills = make(map[string]refill)
		}
		if r.quota != l.Quota {
			r = refill{quota: l.Quota}
		}
		r.longest = max(r.longest, one)
		st.refills[l.Name] = r
	}
}

// emptyUntil notes what an answer says of buckets, and returns until when no call
// should be sent because of it: said.PauseUntil, or longer if answers before this
// one say so. It is zero after a throttle, for which the gate is paused already.
func (st *state) emptyUntil(said *ratelimit.Snapshot, now time.Time) (at time.Time, source string) {
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
		if l.NextAt.IsZero() || !countsCalls(l) || !l.Remaining.Zero() {
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
