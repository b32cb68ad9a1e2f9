package ratelimit

import (
	"math"
	"strings"
	"time"
)

// An exhausted window allows a call at its reset. OpenAI and Anthropic have buckets, and
// their reset is when the bucket is full: 500 requests per minute, none left, reset in
// 60 s. The next call fits after 120 ms:
//
//	until one more = until full / (maximum − remaining)
//
// For tokens this is nearly 0 and useless: the tokens of a call are not known here, and 0
// may be rounded. For a bucket of requests without a maximum the reset is used, which is
// never too early.

// refills reports whether f is a field of a bucket; name is the unit in its name. These are
// the fields of OpenAI and Anthropic. Those of Linear (X-RateLimit-Requests-Limit) look
// alike, but their reset is not documented; they are read as windows, because that is late
// at worst.
func (f *knownField) refills(name string) bool {
	unitLast := int(f.to) == len(f.key) // X-RateLimit-Limit-Requests
	if !unitLast && lower[f.key[0]] == 'x' {
		return false
	}
	return strings.HasSuffix(name, "requests") || strings.HasSuffix(name, "tokens") || name == "tokens_usage_based"
}

// finish sets NextAt of a Limit of a response that arrived at now.
func (l *limit) finish(now time.Time) {
	if l.refills && !l.ResetAt.IsZero() && (l.Max.known || !l.countsCalls()) {
		l.NextAt = l.ResetAt
		if missing := l.missing(); missing > 1 {
			// Rounded up, so never too early.
			full := l.ResetAt.Sub(now)
			l.NextAt = now.Add(min(full, time.Duration(math.Ceil(float64(full)/missing))))
		}
	}
}

// latestReset returns the latest reset of the windows, and of the buckets without a maximum,
// of which nothing remains, and its source.
func latestReset(limits []Limit) (at time.Time, source string) {
	for i := range limits {
		l := &limits[i]
		if l.Remaining.isZero() && (l.NextAt.IsZero() || !l.Max.known) && l.ResetAt.After(at) {
			at, source = l.ResetAt, l.Source
		}
	}
	return at, source
}

// refilled returns the time from now until each exhausted bucket of requests has one.
func refilled(limits []Limit, now time.Time) (d time.Duration) {
	for i := range limits {
		if l := &limits[i]; l.Remaining.isZero() && !l.NextAt.IsZero() && l.countsCalls() {
			d = max(d, l.NextAt.Sub(now))
		}
	}
	return d
}
