package sluicehttp

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-go/sluice/sluicehttp/ratelimit"
)

// # What does an error from a cache say?
//
// A CDN may keep a 429 and give it to whoever asks for the same URL, for as long as its Cache-Control says. The
// server has seen none of these requests: they say nothing about its limit, and a gate that learned from them
// found a third of it. Only the call waits, until the cache asks the server again; to ask earlier is in vain.
//
//	first    429  Retry-After: 1                 X-Cache: MISS   Cache-Control: max-age=10
//	1 s      429  Retry-After: 1   Age: 1        X-Cache: HIT    Cache-Control: max-age=10    wait for 9 s
//	10 s     200
//
// Caches say so by Age or, where that is missing or 0, in a field of their own.
var cacheFields = [...]string{"Cache-Status", "X-Cache", "X-Cache-Status", "Cf-Cache-Status", "X-Proxy-Cache", "X-Vercel-Cache"}

// mostFresh is the longest wait for a cache. A max-age may be for browsers only.
const mostFresh = time.Minute

// fromCache completes said, the limits in the header of the error resp, which arrived at now, if that is from a cache.
func (t *Transport) fromCache(resp *http.Response, said *ratelimit.Info, now time.Time) {
	hit := slices.ContainsFunc(cacheFields[:], func(field string) bool {
		values := resp.Header[field]
		return len(values) > 0 && strings.Contains(strings.ToLower(values[0]), "hit")
	})
	if !said.FromCache && hit {
		header := resp.Header.Clone()
		header["Age"] = []string{"1"} // so that only the Retry-After is read
		*said, _ = ratelimit.Parse(resp.StatusCode, header, now, t.cfg.Headers)
	}
	if !said.FromCache {
		return
	}
	age, _ := strconv.Atoi(resp.Header.Get("Age"))
	fresh := time.Duration(min(max(0, maxAge(resp.Header)-max(0, age)), 1<<20)) * time.Second
	if at := now.Add(fresh); fresh > 0 && fresh <= mostFresh && at.After(said.RetryAt) {
		said.RetryAt, said.RetrySource = at, "Cache-Control"
	}
}

// maxAge returns the seconds for which a shared cache keeps a response, 0 if it does not say.
func maxAge(h http.Header) (seconds int) {
	for _, value := range h["Cache-Control"] {
		for part := range strings.SplitSeq(strings.ToLower(value), ",") {
			name, n, _ := strings.Cut(strings.TrimSpace(part), "=")
			age, err := strconv.Atoi(strings.Trim(n, `"`))
			switch {
			case err != nil:
			case name == "s-maxage":
				return age
			case name == "max-age":
				seconds = age
			}
		}
	}
	return seconds
}
