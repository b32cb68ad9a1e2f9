package sluicetest

import (
	"fmt"
	"net/http"
	"strconv"
	"time"
)

// A LimitState is the state of a [Limit] after a request, for the headers of the response.
type LimitState struct {
	Name string
	// Unit is the counted unit: "requests", or the name of a limit with a Cost.
	Unit string
	// Limit is the number of units per Window, or of requests in flight if Window is 0. Of several
	// parts, this is the one with the fewest left.
	Limit  int64
	Window time.Duration
	// Remaining is the number of further units that may come now, and Reset the time until
	// Remaining is at its maximum.
	Remaining int64
	Reset     time.Duration
	// Throttled reports that this limit rejected the request. Wait is the time until the limit
	// admits it or, if it was admitted, another one of 1 unit; 0 if that is now or never, or
	// depends on when another request ends.
	Wait      time.Duration
	Throttled bool
	// Now is the time of the response.
	Now time.Time
}

// A HeaderStyle writes a LimitState into a header, in the way of a provider. Of several limits of a
// response GitHub writes only the last, the others all. Times are rounded up. If nothing remains,
// Draft10 and GitHub write Wait in place of Reset.
type HeaderStyle func(h http.Header, s LimitState)

// RetryAfter writes the Retry-After of RFC 9110 in seconds, at least 1, only when a request is
// rejected.
func RetryAfter(h http.Header, s LimitState) {
	if s.Throttled {
		h.Set("Retry-After", whole(max(1, seconds(s.Wait))))
	}
}

// GitHub writes X-RateLimit-Limit, -Remaining, -Used, -Reset in seconds since 1970, and -Resource
// with the name of the limit. A rejection has no Retry-After.
func GitHub(h http.Header, s LimitState) {
	h.Set("X-Ratelimit-Limit", whole(s.Limit))
	h.Set("X-Ratelimit-Remaining", whole(s.Remaining))
	h.Set("X-Ratelimit-Used", whole(s.Limit-s.Remaining))
	h.Set("X-Ratelimit-Reset", whole(roundUp(s.Now.Add(s.untilReset())).Unix()))
	h.Set("X-Ratelimit-Resource", s.Name)
}

// OpenAI writes X-RateLimit-Limit-Requests, -Remaining-Requests and -Reset-Requests, a duration
// such as 6m0s or 12ms. When a request is rejected it also writes Retry-After and Retry-After-Ms.
// The name of the limit replaces "requests".
func OpenAI(h http.Header, s LimitState) {
	unit := s.unit()
	h.Set("X-Ratelimit-Limit-"+unit, whole(s.Limit))
	h.Set("X-Ratelimit-Remaining-"+unit, whole(s.Remaining))
	millis := ceilDiv(int64(s.Reset), int64(time.Millisecond))
	h.Set("X-Ratelimit-Reset-"+unit, (time.Duration(millis) * time.Millisecond).String())
	RetryAfter(h, s)
	if s.Throttled {
		h.Set("Retry-After-Ms", whole(max(1, ceilDiv(int64(s.Wait), int64(time.Millisecond)))))
	}
}

// Anthropic writes Anthropic-RateLimit-Requests-Limit, -Remaining and -Reset, a time of RFC 3339,
// and Retry-After. The name of the limit, such as input-tokens, replaces "requests".
func Anthropic(h http.Header, s LimitState) {
	prefix := "Anthropic-Ratelimit-" + s.unit()
	h.Set(prefix+"-Limit", whole(s.Limit))
	h.Set(prefix+"-Remaining", whole(s.Remaining))
	h.Set(prefix+"-Reset", roundUp(s.Now.Add(s.Reset)).UTC().Format(time.RFC3339))
	RetryAfter(h, s)
}

// Draft10 writes RateLimit and RateLimit-Policy as structured fields, as in
// draft-ietf-httpapi-ratelimit-headers from 08 on. Several limits make one list. There is no
// Retry-After. A limit with a Cost has its name as the quota unit.
func Draft10(h http.Header, s LimitState) {
	if s.Window > 0 {
		policy := fmt.Sprintf("%q;q=%d;w=%d", s.Name, s.Limit, seconds(s.Window))
		if s.Unit != "" && s.Unit != "requests" {
			policy += fmt.Sprintf(";qu=%q", s.Unit)
		}
		h.Add("Ratelimit-Policy", policy)
		h.Add("Ratelimit", fmt.Sprintf("%q;r=%d;t=%d", s.Name, s.Remaining, seconds(s.untilReset())))
		return
	}
	h.Add("Ratelimit-Policy", fmt.Sprintf(`%q;q=%d;qu="concurrent-requests"`, s.Name, s.Limit))
	h.Add("Ratelimit", fmt.Sprintf("%q;r=%d", s.Name, s.Remaining))
}

// untilReset is the time that families write as the reset.
func (s LimitState) untilReset() time.Duration {
	if s.Remaining > 0 {
		return s.Reset
	}
	return s.Wait
}

// unit is the name of the limit where a provider writes the unit.
func (s LimitState) unit() string {
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
