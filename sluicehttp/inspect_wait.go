package sluicehttp

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-go/sluice/sluicehttp/ratelimit"
)

// waitsFor notes when to call again, if a statement of an error says so and the header does not.
//
//	{"errcode": "M_LIMIT_EXCEEDED", "error": "Too Many Requests", "retry_after_ms": 2000}
//	    https://spec.matrix.org/latest/client-server-api/#rate-limiting
//	{"fault": {"code": 900800, …, "nextAccessTime": "2026-Sep-12 20:00:00+0000 UTC"}}
//	    https://apim.docs.wso2.com/en/latest/troubleshooting/error-handling/
//	{"error_id": 502, …, "error_message": "too many requests from this IP, more requests available in 55 seconds"}
//	    https://api.stackexchange.com/docs/throttle
//	{"Error": "Too many requests.", "RateLimitResetTime": "2026-11-21T12:02:00.0000000Z"}
//	    https://developer.sellercloud.com/dev-article/rest-api-rate-limiting
//	{"errors": [{"detail": "… Please try again after Sat, 21 Nov 2026 12:02:00 GMT or email …"}]}
//	    https://github.com/rust-lang/crates.io/blob/main/src/rate_limiter.rs
//	{"ErrorCode": 36, "ThrottleSeconds": 20, "ErrorStatus": "ThrottleLimitExceededMinutes", …}
//	    https://bungie-net.github.io/#Exceptions-PlatformErrorCodes
//
// The field counts before the message. A message that says minutes or hours in words is often the same
// whenever it is sent ("try again in an hour"), so only seconds count there, and times such as 1m20s.
func (a *answer) waitsFor(all []statement) {
	limits := *a.said
	limits.Throttled = false // so that PauseUntil looks at the limits
	if at, _ := limits.PauseUntil(); !at.IsZero() {
		return
	}
	wait, soonest := time.Duration(0), time.Duration(0)
	for i := range all {
		field := waitField(all[i].key)
		if field == "" {
			continue
		}
		if n, err := strconv.ParseFloat(all[i].raw, 64); field == "Retry-After" && err == nil && n > 3600 && n < 5e8 && !strings.Contains(all[i].key, "sec") {
			continue // milliseconds, or a quota
		}
		d := a.until(field, all[i].raw)
		if d <= 0 && !clock(all[i].text) {
			d = duration(all[i].text)
		}
		switch {
		case d <= 0:
		case strings.HasPrefix(all[i].key, "reset") || strings.HasPrefix(all[i].key, "rate"): // of each of several limits
			if soonest == 0 || d < soonest {
				soonest = d
			}
		default:
			wait = max(wait, d)
		}
	}
	if wait == 0 {
		wait = soonest
	}
	if wait == 0 {
		for i := range all {
			wait = max(wait, waitInText(all[i].text), a.dateInText(all[i].raw))
		}
	}
	if wait > 0 {
		a.said.RetryAt, a.said.RetrySource = time.Now().Add(wait), "the body"
	}
}

// waitField returns the field of a header that means the same as a key of a body, in words; "" if
// there is none.
func waitField(key string) string {
	key = strings.ReplaceAll(key, " ", "")
	for _, name := range []string{"retryafter", "retryin", "retryat", "waittime", "wait", "backoff", "resetin", "resetsin", "resetafter", "resetat", "resetsat", "resettime",
		"ratereset", "ratelimitreset", "ratelimitresetat", "ratelimitresettime", "nextaccesstime", "throttleseconds"} {
		rest, found := strings.CutPrefix(key, name)
		if !found {
			continue
		}
		switch rest {
		case "", "s", "sec", "secs", "second", "seconds":
			return "Retry-After"
		case "ms", "millis", "milliseconds":
			return "Retry-After-Ms"
		}
	}
	return ""
}

// until returns how long it is until the time value of a field, or 0.
func (a *answer) until(field, value string) time.Duration {
	now := time.Now()
	header := http.Header{field: {value}, "Date": a.resp.Header["Date"]}
	said, _ := ratelimit.Parse(http.StatusTooManyRequests, header, now)
	return said.RetryAt.Sub(now) // negative if there is none
}

// waitInText returns the wait after words such as "try again in", or 0.
func waitInText(text string) time.Duration {
	for _, words := range []string{"try again in", "retry in", "retry after", "retrying in", "available in", "wait", "reset in", "resets in"} {
		_, rest, found := strings.Cut(text, words)
		if !found {
			continue
		}
		if strings.HasSuffix(words, "after") && clock(rest) {
			continue // a time of the day
		}
		if d := duration(strings.TrimLeft(strings.TrimPrefix(rest, " for"), " :~")); d > 0 {
			return d
		}
	}
	return 0
}

// dateInText returns how long it is until the date after words such as "try again after", or 0.
func (a *answer) dateInText(raw string) time.Duration {
	for _, words := range []string{"try again after ", "try again at ", "retry after ", "retry at "} {
		_, rest, found := strings.Cut(raw, words)
		if !found {
			continue
		}
		word, _, _ := strings.Cut(rest, " ")
		for _, date := range []string{rest[:min(len(rest), len(http.TimeFormat))], strings.TrimRight(word, ".,;")} {
			if !strings.Contains(date, ":") {
				continue // a number, without a unit
			}
			if d := a.until("Retry-After", date); d > 0 {
				return d
			}
		}
	}
	return 0
}

// clock reports whether s begins with a time such as 14:30:00.
func clock(s string) bool {
	s = strings.TrimLeft(s, " :~")
	_, err := time.Parse(time.TimeOnly, s[:min(len(s), len(time.TimeOnly))])
	return err == nil
}

// duration returns the time at the beginning of s: "55 seconds", "2.5s", "1m20s", "250 ms", "00:01:20".
func duration(s string) (d time.Duration) {
	if t, err := time.Parse(time.TimeOnly, s[:min(len(s), len(time.TimeOnly))]); err == nil {
		return t.Sub(t.Truncate(24 * time.Hour))
	}
	for range 4 { // hours, minutes, seconds, and parts of one
		digits := len(s) - len(strings.TrimLeft(s, "0123456789."))
		n, err := strconv.ParseFloat(s[:digits], 64)
		if err != nil {
			return d
		}
		s = strings.TrimLeft(s[digits:], " ")
		letters := len(s) - len(strings.TrimLeft(s, "abcdefghijklmnopqrstuvwxyz"))
		unit := time.Duration(0)
		switch s[:letters] {
		case "ms", "millisecond", "milliseconds":
			unit = time.Millisecond
		case "s", "sec", "secs", "second", "seconds":
			unit = time.Second
		case "m":
			unit = time.Minute
		case "h":
			unit = time.Hour
		default:
			return d
		}
		d += time.Duration(min(n, 1e5) * float64(unit))
		s = s[letters:]
	}
	return d
}
