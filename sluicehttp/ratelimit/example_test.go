package ratelimit_test

import (
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/sluice-go/sluice/sluicehttp/ratelimit"
)

// When the response arrived.
var now = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

func header(lines ...string) http.Header {
	h := http.Header{}
	for _, line := range lines {
		name, value, _ := strings.Cut(line, ": ")
		h.Add(name, value)
	}
	return h
}

// GitHub refuses with 403 when the limit of the hour is used up.
func Example() {
	h := header("X-RateLimit-Limit: 5000", "X-RateLimit-Remaining: 0", "X-RateLimit-Reset: 1795264200", "X-RateLimit-Resource: core")
	s, warnings := ratelimit.Parse(http.StatusForbidden, h, now)
	fmt.Println("throttled:", s.Throttled, "retry in", s.RetryAt.Sub(now), "from", s.RetrySource)
	for _, l := range s.Limits {
		fmt.Println(l.Name, "has", l.Remaining, "of", l.Max)
	}
	fmt.Println(len(warnings), "warnings")
	// Output:
	// throttled: true retry in 30m0s from X-Ratelimit-Reset
	// core has 0 of 5000
	// 0 warnings
}

// The last call of a window was granted: the next one should wait.
func ExampleInfo_PauseUntil() {
	h := header(`RateLimit-Policy: "burst";q=10;w=1, "daily";q=10000;w=86400`, `RateLimit: "burst";r=0;t=1, "daily";r=812;t=3600`)
	s, _ := ratelimit.Parse(http.StatusOK, h, now)
	at, why := s.PauseUntil()
	fmt.Println("pause for", at.Sub(now), "by", why)
	for _, l := range s.Limits {
		fmt.Println(l.Name, "has", l.Remaining, "of", l.Max, "per", l.Window)
	}
	// Output:
	// pause for 1s by Ratelimit
	// burst has 0 of 10 per 1s
	// daily has 812 of 10000 per 24h0m0s
}

// A malformed value is ignored, with a warning.
func ExampleWarning() {
	h := header("Retry-After-Ms: soon", "Retry-After: 2")
	s, warnings := ratelimit.Parse(http.StatusTooManyRequests, h, now)
	fmt.Println("retry in", s.RetryAt.Sub(now))
	fmt.Println(warnings[0])
	// Output:
	// retry in 2s
	// Retry-After-Ms: not a number: "soon"
}

// A server whose Retry-After is in milliseconds.
func ExampleOptions() {
	options := ratelimit.Options{Millis: []string{"Retry-After"}}
	s, _ := ratelimit.Parse(http.StatusServiceUnavailable, header("Retry-After: 1500"), now, options)
	fmt.Println("retry in", s.RetryAt.Sub(now))
	// Output:
	// retry in 1.5s
}

// Google says in the body when to retry.
func ExampleInfo_body() {
	s, _ := ratelimit.Parse(http.StatusTooManyRequests, header(), now)
	const retryDelay = "2.463586755s" // of the RetryInfo in the body
	if wait, err := time.ParseDuration(retryDelay); err == nil {
		s.RetryAt, s.RetrySource = now.Add(wait), "retryDelay"
	}
	at, why := s.PauseUntil()
	fmt.Println("pause for", at.Sub(now), "by", why)
	// Output:
	// pause for 2.463586755s by retryDelay
}

// Amazon states a rate.
func ExampleInfo_rate() {
	s, _ := ratelimit.Parse(http.StatusOK, header("x-amzn-RateLimit-Limit: 0.5"), now)
	rate := s.Rate
	fmt.Println("one call each", rate.Interval())
	// Output:
	// one call each 2s
}

// A limit on calls in flight.
func ExampleLimit() {
	s, _ := ratelimit.Parse(http.StatusOK, header(`RateLimit-Policy: "pool";q=8;qu="concurrent-requests"`), now)
	for _, l := range s.Limits {
		fmt.Println(l.Name, l.Max, l.Unit)
	}
	// Output:
	// pool 8 concurrent
}
