package ratelimit

import (
	"math"
	"testing"
	"time"
)

// One row for each kind of field, with what PauseUntil makes of it if nothing
// remains and the answer was fine, and what RetryAt and Floor are if it was a 429
// that says no time.
func TestLimit_NextAt(t *testing.T) {
	const never = -1
	ms := time.Millisecond
	for _, tt := range []struct {
		name   string
		header []string
		next   time.Duration // NextAt of the first limit
		pause  time.Duration
		retry  time.Duration
		floor  time.Duration
	}{
		{"OpenAI, requests", []string{"x-ratelimit-limit-requests: 500", "x-ratelimit-remaining-requests: 0", "x-ratelimit-reset-requests: 1m0s"},
			120 * ms, 120 * ms, never, 120 * ms},
		{"OpenAI, tokens", []string{"x-ratelimit-limit-tokens: 60000", "x-ratelimit-remaining-tokens: 0", "x-ratelimit-reset-tokens: 1m0s"},
			ms, never, never, 0},
		{"OpenAI, other tokens", []string{"x-ratelimit-limit-tokens_usage_based: 60000", "x-ratelimit-remaining-tokens_usage_based: 0", "x-ratelimit-reset-tokens_usage_based: 1m0s"},
			ms, never, never, 0},
		{"OpenAI, something remains", []string{"x-ratelimit-limit-requests: 500", "x-ratelimit-remaining-requests: 499", "x-ratelimit-reset-requests: 120ms"},
			120 * ms, never, never, 0},
		{"OpenAI, without a most", []string{"x-ratelimit-remaining-requests: 0", "x-ratelimit-reset-requests: 1m0s"},
			never, time.Minute, time.Minute, 0},
		{"OpenAI, tokens without a most", []string{"x-ratelimit-remaining-tokens: 0", "x-ratelimit-reset-tokens: 1m0s"},
			time.Minute, never, time.Minute, 0},
		{"Anthropic, tokens without a most", []string{"anthropic-ratelimit-output-tokens-remaining: 0", "anthropic-ratelimit-output-tokens-reset: 2026-11-21T12:01:00Z"},
			time.Minute, never, time.Minute, 0},
		{"OpenAI, without a reset", []string{"x-ratelimit-limit-requests: 500", "x-ratelimit-remaining-requests: 0"},
			never, never, never, 0},
		{"OpenAI, most 0", []string{"x-ratelimit-limit-requests: 0", "x-ratelimit-remaining-requests: 0", "x-ratelimit-reset-requests: 1m0s"},
			time.Minute, time.Minute, never, time.Minute},
		{"OpenAI, most 1", []string{"x-ratelimit-limit-requests: 1", "x-ratelimit-remaining-requests: 0", "x-ratelimit-reset-requests: 1m0s"},
			time.Minute, time.Minute, never, time.Minute},
		{"OpenAI, rounded up", []string{"x-ratelimit-limit-requests: 3", "x-ratelimit-remaining-requests: 0", "x-ratelimit-reset-requests: 1s"},
			time.Second/3 + 1, time.Second/3 + 1, never, time.Second/3 + 1},
		{"OpenAI, a most without end", []string{"x-ratelimit-limit-requests: 900000000000000", "x-ratelimit-remaining-requests: 0", "x-ratelimit-reset-requests: 1m0s"},
			1, 1, never, 1},
		{"OpenAI, both", []string{"x-ratelimit-limit-requests: 500", "x-ratelimit-remaining-requests: 0", "x-ratelimit-reset-requests: 1m0s",
			"x-ratelimit-limit-tokens: 60000", "x-ratelimit-remaining-tokens: 0", "x-ratelimit-reset-tokens: 5m0s"},
			120 * ms, 120 * ms, never, 120 * ms},
		{"Anthropic, requests", []string{"anthropic-ratelimit-requests-limit: 50", "anthropic-ratelimit-requests-remaining: 0", "anthropic-ratelimit-requests-reset: 2026-11-21T12:01:00Z"},
			1200 * ms, 1200 * ms, never, 1200 * ms},
		{"Anthropic, input tokens", []string{"anthropic-ratelimit-input-tokens-limit: 60000", "anthropic-ratelimit-input-tokens-remaining: 0", "anthropic-ratelimit-input-tokens-reset: 2026-11-21T12:01:00Z"},
			ms, never, never, 0},
		{"Linear", []string{"x-ratelimit-requests-limit: 50", "x-ratelimit-requests-remaining: 0", "x-ratelimit-requests-reset: 60"},
			never, time.Minute, time.Minute, 0},
		{"Kong", []string{"x-ratelimit-limit-minute: 50", "x-ratelimit-remaining-minute: 0", "x-ratelimit-reset-minute: 60"},
			never, time.Minute, time.Minute, 0},
		{"GitHub", []string{"x-ratelimit-limit: 50", "x-ratelimit-remaining: 0", "x-ratelimit-reset: 60"},
			never, time.Minute, time.Minute, 0},
		{"draft 3", []string{"ratelimit-limit: 50", "ratelimit-remaining: 0", "ratelimit-reset: 60"},
			never, time.Minute, time.Minute, 0},
		{"draft 10", []string{`ratelimit-policy: "requests";q=50;w=60`, `ratelimit: "requests";r=0;t=60`},
			never, time.Minute, time.Minute, 0},
		{"a window by the draft, a bucket by a field of the same name", []string{`ratelimit: "requests";r=0;t=60`, "x-ratelimit-limit-requests: 50", "x-ratelimit-reset-requests: 60"},
			never, time.Minute, time.Minute, 0},
		{"the reset of a bucket with the amounts of a draft", []string{`ratelimit: "requests";r=0`, "x-ratelimit-limit-requests: 50", "x-ratelimit-reset-requests: 60"},
			1200 * ms, 1200 * ms, never, 1200 * ms},
		{"a window and a bucket", []string{"x-ratelimit-limit: 9", "x-ratelimit-remaining: 0", "x-ratelimit-reset: 3",
			"x-ratelimit-limit-requests: 50", "x-ratelimit-remaining-requests: 0", "x-ratelimit-reset-requests: 60"},
			never, 3 * time.Second, 3 * time.Second, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			check := func(what string, at time.Time, want time.Duration) {
				t.Helper()
				if got := at.Sub(arrival); at.IsZero() != (want == never) || want != never && got != want {
					t.Errorf("%s: %v, want %v", what, at, want)
				}
			}
			s, _ := Parse(200, fields(tt.header...), arrival)
			check("NextAt", s.Limits[0].NextAt, tt.next)
			at, _ := s.PauseUntil()
			check("PauseUntil", at, tt.pause)
			s, _ = Parse(429, fields(tt.header...), arrival)
			check("RetryAt", s.RetryAt, tt.retry)
			if s.Floor != tt.floor {
				t.Errorf("Floor: %v, want %v", s.Floor, tt.floor)
			}
			s, _ = Parse(429, fields(append(tt.header, "Retry-After: 7")...), arrival)
			if s.Floor != 0 {
				t.Errorf("Floor beside a Retry-After: %v", s.Floor)
			}
			check("RetryAt with Retry-After", s.RetryAt, 7*time.Second)
		})
	}
}

// That a bucket of tokens is empty, or rounded to it, does not make a 403 a
// throttle. That one of requests is does.
func TestLimit_NextAt_EmptyBucketAnd403(t *testing.T) {
	for unit, want := range map[string]bool{"Requests": true, "Input-Tokens": false} {
		p := "Anthropic-RateLimit-" + unit
		s, _ := Parse(403, fields(p+"-Limit: 500", p+"-Remaining: 0", p+"-Reset: 2026-11-21T12:01:00Z"), arrival)
		if s.Throttled != want {
			t.Errorf("%s: throttled %v", unit, s.Throttled)
		}
	}
}

// The longest wait there is stays in range.
func TestLimit_NextAt_Overflow(t *testing.T) {
	l := limit{Limit: Limit{ResetAt: in(math.MaxInt64), Max: amount("1.000000001"), Remaining: amountOf(0)}, refills: true}
	l.finish(arrival)
	if got := l.NextAt; got.Before(arrival) || got.After(in(math.MaxInt64)) {
		t.Errorf("NextAt %v", got)
	}
}
