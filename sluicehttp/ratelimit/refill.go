package ratelimit

import (
	"math"
	"strings"
	"time"
)

// # When does a limit of which nothing remains let a call pass?
//
// A window does at its reset. OpenAI and Anthropic have buckets that refill all the
// time, and say when they are full: 500 requests per minute, none left, reset in
// 60 s. A client that waits for that loses 499 calls; the next one fits after 120 ms:
//
//	until one more = until full / (quota − remaining)
//
// Of tokens it is nearly 0, and says nothing: how many a call needs is not known
// here, and "0" may be up to 499 that were rounded off.
//
// Without a quota the reset of a bucket of requests is waited for, which is never too
// early. A bucket of tokens is one all the same: only a refusal holds up all calls.

// refills reports whether f is a field of a bucket; name is the unit in its name.
// Only those that OpenAI and Anthropic send are. Linear's, X-RateLimit-Requests-Limit,
// are like them, but do not say what their reset is: calls to a window that was
// taken for a bucket come too early, those to a bucket taken for a window only late.
func (f *knownField) refills(name string) bool {
	unitLast := int(f.to) == len(f.key) // X-RateLimit-Limit-Requests
	if !unitLast && lower[f.key[0]] == 'x' {
		return false
	}
	return strings.HasSuffix(name, "requests") || strings.HasSuffix(name, "tokens") || name == "tokens_usage_based"
}

// finished returns the limit that was put together from an answer that came at
// now.
func (l *limit) finished(now time.Time) Limit {
	if l.refills && !l.ResetAt.IsZero() && (l.Quota.known || !l.countsCalls()) {
		l.NextAt = l.ResetAt
		if missing := l.Quota.Float() - l.Remaining.Float(); missing > 1 {
			// Rounded up: never too early.
			full := l.ResetAt.Sub(now)
			l.NextAt = now.Add(min(full, time.Duration(math.Ceil(float64(full)/missing))))
		}
	}
	return l.Limit
}

// countsCalls reports whether l counts requests, as far as is said.
func (l *Limit) countsCalls() bool { return l.Unit == "" || l.Unit == "requests" }

// opensAt returns when a call passes l if nothing remains of it; zero if that is
// not known.
func (l *Limit) opensAt() time.Time {
	switch {
	case l.NextAt.IsZero():
		return l.ResetAt
	case l.countsCalls():
		return l.NextAt
	}
	return time.Time{}
}

// latestReset returns the latest reset of those windows of which nothing remains, and
// where it is from. Of a bucket without a quota nothing better is known.
func latestReset(limits []Limit) (at time.Time, source string) {
	for i := range limits {
		l := &limits[i]
		if l.Remaining.Zero() && (l.NextAt.IsZero() || !l.Quota.known) && l.ResetAt.After(at) {
			at, source = l.ResetAt, l.Source
		}
	}
	return at, source
}

// refilled returns how long it takes from now until each of those buckets of
// requests of which nothing remains has one.
func refilled(limits []Limit, now time.Time) (d time.Duration) {
	for i := range limits {
		if l := &limits[i]; l.Remaining.Zero() && !l.NextAt.IsZero() && l.countsCalls() {
			d = max(d, l.NextAt.Sub(now))
		}
	}
	return d
}
