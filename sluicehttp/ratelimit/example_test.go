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

// GitHub refuses with 403 when the hour's calls are used up.
func Example() {
	h := header("X-RateLimit-Limit: 5000", "X-RateLimit-Remaining: 0", "X-RateLimit-Reset: 1795264200", "X-RateLimit-Resource: core")
	s, warnings := ratelimit.Parse(http.StatusForbidden, h, now)
	fmt.Println("throttled:", s.Throttled, "come back in", s.RetryAt.Sub(now), "says", s.RetrySource)
	for _, l := range s.Limits {
		fmt.Println(l.Name, "has", l.Remaining, "of", l.Quota)
	}
	fmt.Println(len(warnings), "warnings")
	// Output:
	// throttled: true come back in 30m0s says X-Ratelimit-Reset
	// core has 0 of 5000
	// 0 warnings
}

// The last call is granted: better not to send the next.
func ExampleSnapshot_PauseUntil() {
	h := header(`RateLimit-Policy: "burst";q=10;w=1, "daily";q=10000;w=86400`, `RateLimit: "burst";r=0;t=1, "daily";r=812;t=3600`)
	s, _ := ratelimit.Parse(http.StatusOK, h, now)
	at, why := s.PauseUntil()
	fmt.Println("pause for", at.Sub(now), "by", why)
	for _, l := range s.Limits {
		fmt.Println(l.Name, "has", l.Remaining, "of", l.Quota, "per", l.Window)
	}
	// Output:
	// pause for 1s by Ratelimit
	// burst has 0 of 10 per 1s
	// daily has 812 of 10000 per 24h0m0s
}

// What cannot be used is told, and does no harm.
func ExampleWarning() {
	h := header("Retry-After-Ms: soon", "Retry-After: 2")
	s, warnings := ratelimit.Parse(http.StatusTooManyRequests, h, now)
	fmt.Println("come back in", s.RetryAt.Sub(now))
	fmt.Println(warnings[0])
	// Output:
	// come back in 2s
	// Retry-After-Ms: not a number: "soon"
}

// A server means milliseconds by its Retry-After, which nobody can guess.
func ExampleOptions() {
	options := ratelimit.Options{Times: map[string]ratelimit.TimeForm{"Retry-After": ratelimit.Millis}}
	s, _ := options.Parse(http.StatusServiceUnavailable, header("Retry-After: 1500"), now)
	fmt.Println("come back in", s.RetryAt.Sub(now))
	// Output:
	// come back in 1.5s
}

// Google says in the body when to come back.
func ExampleTimeForm_Wait() {
	s, _ := ratelimit.Parse(http.StatusTooManyRequests, header(), now)
	const retryDelay = "2.463586755s" // of the RetryInfo in the body
	if wait, err := ratelimit.Guess.Wait(retryDelay, now); err == nil {
		s.RetryAt, s.RetrySource = now.Add(wait), "retryDelay"
	}
	at, why := s.PauseUntil()
	fmt.Println("pause for", at.Sub(now), "by", why)
	// Output:
	// pause for 2.463586755s by retryDelay
}

// Amazon states a rate, which a gate can take as it is.
func ExampleSnapshot_rate() {
	s, _ := ratelimit.Parse(http.StatusOK, header("x-amzn-RateLimit-Limit: 0.5"), now)
	rate := s.Rate
	fmt.Println("one call each", rate.Interval())
	// Output:
	// one call each 2s
}

// How many calls may be in flight is no rate.
func ExampleLimit_Concurrent() {
	s, _ := ratelimit.Parse(http.StatusOK, header(`RateLimit-Policy: "pool";q=8;qu="concurrent-requests"`), now)
	for _, l := range s.Limits {
		fmt.Println(l.Name, l.Quota, l.Concurrent())
	}
	// Output:
	// pool 8 true
}
