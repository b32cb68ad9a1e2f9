package sluicehttp_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/sluice-go/sluice/sluicehttp"
	"github.com/sluice-go/sluice/sluicetest"
)

// A 429 from a cache delays only its call, until the cache asks the server again, and teaches nothing.
func TestCachedThrottle(t *testing.T) {
	for _, c := range []struct {
		name   string
		status int
		header []string
		wait   time.Duration
	}{
		{"Age", 429, []string{"Retry-After: 1", "Age: 2", "Cache-Control: public, max-age=10"}, 8 * time.Second},
		{"a hit of age 0", 429, []string{"Retry-After: 1", "Age: 0", "X-Cache: HIT", "Cache-Control: max-age=10"}, 10 * time.Second},
		{"a hit without an age", 429, []string{"X-Cache-Status: HIT", "Cache-Control: max-age=3"}, 3 * time.Second},
		{"RFC 9211", 429, []string{"Cache-Status: ExampleCache; hit; ttl=4", "Cache-Control: max-age=60, s-maxage=4"}, 4 * time.Second},
		{"CloudFront", 429, []string{"X-Cache: Hit from cloudfront", "Age: 1"}, time.Second},
		{"a longer Retry-After", 429, []string{"Retry-After: 20", "Age: 2", "Cache-Control: max-age=10"}, 20 * time.Second},
		{"for browsers", 429, []string{"Retry-After: 2", "Age: 1", "Cache-Control: max-age=14400"}, 2 * time.Second},
		{"limits are outdated", 429, []string{"X-Cache: HIT", "X-RateLimit-Remaining: 0", "X-RateLimit-Limit: 5", "X-RateLimit-Reset: 50"}, time.Second},
		{"503", 503, []string{"Retry-After: 3", "Cf-Cache-Status: HIT", "Age: 1"}, 3 * time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			cached := sluicetest.On(1, sluicetest.Reply(c.status, "Too Many Requests", c.header...))
			inWorld(t, sluicehttp.Config{Retry: seconds}, layers(sluicetest.Path("/kept", cached)), func(w *world) {
				done := make(chan time.Duration)
				go func() {
					w.wantGet("https://a.test/kept", http.StatusOK)
					done <- w.now()
				}()
				time.Sleep(ms)
				w.wantGet("https://a.test/other", http.StatusOK)
				if w.now() != ms {
					t.Errorf("another call waited until %v", w.now())
				}
				if got := <-done; got != c.wait {
					t.Errorf("it waited for %v, want %v", got, c.wait)
				}
				if s := stats(t, w.rt); s.Learned != nil || len(s.Limits) > 0 {
					t.Errorf("learned %v, limits %v", s.Learned, s.Limits)
				}
			})
		})
	}
}

// A cache that has missed has asked the server.
func TestCachedThrottle_Miss(t *testing.T) {
	for _, field := range []string{"X-Cache: MISS", "Age: 0", "X-Cache: Error from cloudfront", "Cf-Cache-Status: DYNAMIC"} {
		refusal := sluicetest.Reply(429, "", "Retry-After: 2", field, "Cache-Control: max-age=10")
		inWorld(t, sluicehttp.Config{Retry: seconds}, layers(sluicetest.On(1, refusal)), func(w *world) {
			w.wantGet("https://a.test/", http.StatusOK)
			w.wantCame(0, 2*time.Second)
		})
	}
}

// A cache that never asks again uses up the attempts of a call.
func TestCachedThrottle_ForGood(t *testing.T) {
	inWorld(t, sluicehttp.Config{Retry: seconds}, layers(sluicetest.Reply(429, "", "Retry-After: 1", "Age: 5")), func(w *world) {
		w.wantGet("https://a.test/", http.StatusTooManyRequests)
		w.wantCame(0, time.Second, 2*time.Second, 3*time.Second)
	})
}
