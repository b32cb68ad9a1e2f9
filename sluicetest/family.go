package sluicetest

import (
	"fmt"
	"net/http"
	"strconv"
	"time"
)

// A Standing is how a client stands with a [Limit], this request included.
type Standing struct {
	// Name is that of the limit, or "default".
	Name string
	// Limit is how many requests there may be per Window, or in flight if
	// Window is 0. Of a limit that is several it is the one with the fewest
	// left.
	Limit  int64
	Window time.Duration
	// Remaining is how many more may come now, Reset how long it takes until
	// there are as many as there can be.
	Remaining int64
	Reset     time.Duration
	// Wait is how long it takes until the next request is let in, 0 if that is
	// now or when another has ended. Refused says that this one was not.
	Wait    time.Duration
	Refused bool
	// Now is the time by the clock of the server, which [Skew] makes wrong.
	Now time.Time
}

// A Family writes how a client stands into a header, the way a provider does.
// Those below round up what they round, so that a client that obeys is never
// early. When nothing is left they tell the Wait instead of the Reset, except for
// OpenAI and Anthropic, whose buckets refill all the time and whose reset is when
// they are full. Any function of this shape is a Family.
type Family func(h http.Header, s Standing)

// RetryAfter is the Retry-After of RFC 9110 in seconds, at least 1, when a
// request is refused, and nothing else.
func RetryAfter(h http.Header, s Standing) {
	if s.Refused {
		h.Set("Retry-After", whole(max(1, seconds(s.Wait))))
	}
}

// RetryAfterDate is RetryAfter as a date.
func RetryAfterDate(h http.Header, s Standing) {
	if s.Refused {
		h.Set("Retry-After", roundUp(s.Now.Add(s.Wait)).UTC().Format(http.TimeFormat))
	}
}

// RetryAfterEpoch is RetryAfter as the seconds since 1970 at which to come back,
// as Docker Hub has it.
func RetryAfterEpoch(h http.Header, s Standing) {
	if s.Refused {
		h.Set("Retry-After", whole(roundUp(s.Now.Add(s.Wait)).Unix()))
	}
}

// RetryAfterMillis is RetryAfter with a Retry-After-Ms beside it.
func RetryAfterMillis(h http.Header, s Standing) {
	RetryAfter(h, s)
	if s.Refused {
		h.Set("Retry-After-Ms", whole(max(1, ceilDiv(int64(s.Wait), int64(time.Millisecond)))))
	}
}

// GitHub is X-RateLimit-Limit, -Remaining, -Used, -Reset in seconds since 1970,
// and -Resource with the name of the limit. As at GitHub a refusal has no
// Retry-After; its status there is 403 or 429.
func GitHub(h http.Header, s Standing) {
	h.Set("X-Ratelimit-Limit", whole(s.Limit))
	h.Set("X-Ratelimit-Remaining", whole(s.Remaining))
	h.Set("X-Ratelimit-Used", whole(s.Limit-s.Remaining))
	h.Set("X-Ratelimit-Reset", whole(roundUp(s.Now.Add(s.resets())).Unix()))
	h.Set("X-Ratelimit-Resource", s.Name)
}

// OpenAI is x-ratelimit-limit-requests, -remaining-requests and
// -reset-requests, which is a duration such as 6m0s or 12ms, with
// RetryAfterMillis. The name of the limit, such as tokens, stands instead of
// requests.
func OpenAI(h http.Header, s Standing) {
	unit := s.unit()
	h.Set("X-Ratelimit-Limit-"+unit, whole(s.Limit))
	h.Set("X-Ratelimit-Remaining-"+unit, whole(s.Remaining))
	millis := ceilDiv(int64(s.Reset), int64(time.Millisecond))
	h.Set("X-Ratelimit-Reset-"+unit, (time.Duration(millis) * time.Millisecond).String())
	RetryAfterMillis(h, s)
}

// Anthropic is anthropic-ratelimit-requests-limit, -remaining and -reset, which
// is a time of RFC 3339, with RetryAfter. The name of the limit stands instead
// of requests.
func Anthropic(h http.Header, s Standing) {
	prefix := "Anthropic-Ratelimit-" + s.unit()
	h.Set(prefix+"-Limit", whole(s.Limit))
	h.Set(prefix+"-Remaining", whole(s.Remaining))
	h.Set(prefix+"-Reset", roundUp(s.Now.Add(s.Reset)).UTC().Format(time.RFC3339))
	RetryAfter(h, s)
}

// Draft10 is RateLimit and RateLimit-Policy as structured fields, the way of
// draft-ietf-httpapi-ratelimit-headers from 08 on. Several limits make one
// list. Drafts have no Retry-After here: the client is to read t.
func Draft10(h http.Header, s Standing) {
	if s.Window > 0 {
		h.Add("Ratelimit-Policy", fmt.Sprintf("%q;q=%d;w=%d", s.Name, s.Limit, seconds(s.Window)))
		h.Add("Ratelimit", fmt.Sprintf("%q;r=%d;t=%d", s.Name, s.Remaining, seconds(s.resets())))
		return
	}
	h.Add("Ratelimit-Policy", fmt.Sprintf(`%q;q=%d;qu="concurrent-requests"`, s.Name, s.Limit))
	h.Add("Ratelimit", fmt.Sprintf("%q;r=%d", s.Name, s.Remaining))
}

// Draft7 is RateLimit as a dictionary and RateLimit-Policy, the way of draft 07.
func Draft7(h http.Header, s Standing) {
	h.Set("Ratelimit-Policy", s.policy())
	h.Set("Ratelimit", fmt.Sprintf("limit=%d, remaining=%d, reset=%d", s.Limit, s.Remaining, seconds(s.resets())))
}

// Draft3 is RateLimit-Limit with its window, -Remaining and -Reset in seconds,
// the way of the drafts until 06.
func Draft3(h http.Header, s Standing) {
	limit := whole(s.Limit)
	if s.Window > 0 {
		limit += ", " + s.policy()
	}
	h.Set("Ratelimit-Limit", limit)
	h.Set("Ratelimit-Remaining", whole(s.Remaining))
	h.Set("Ratelimit-Reset", whole(seconds(s.resets())))
}

// resets is the time after which to look again.
func (s Standing) resets() time.Duration {
	if s.Remaining > 0 {
		return s.Reset
	}
	return s.Wait
}

// policy is a policy as the drafts until 07 write it.
func (s Standing) policy() string {
	if s.Window == 0 {
		return whole(s.Limit)
	}
	return fmt.Sprintf("%d;w=%d", s.Limit, seconds(s.Window))
}

// unit is the name of the limit where a provider writes what is counted.
func (s Standing) unit() string {
	if s.Name == "default" {
		return "Requests"
	}
	return s.Name
}

func whole(n int64) string { return strconv.FormatInt(n, 10) }

// seconds rounds up.
func seconds(d time.Duration) int64 { return ceilDiv(int64(d), int64(time.Second)) }

// roundUp returns the first full second at or after t.
func roundUp(t time.Time) time.Time {
	if full := t.Truncate(time.Second); full.Before(t) {
		return full.Add(time.Second)
	}
	return t
}
