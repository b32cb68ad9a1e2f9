package bench

import (
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/sluice-go/sluice/sluicehttp/ratelimit"
)

// BenchmarkParse reads what the header of a response says about limits. family:
// twelve ordinary fields, and five of GitHub's. none: just the twelve. plain is
// what one writes for one server: look three fields up and convert them, and
// Retry-After, with no word on clocks, dates or mistakes.
func BenchmarkParse(b *testing.B) {
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	b.Run("family", func(b *testing.B) {
		header := ordinaryHeader()
		header.Set("X-RateLimit-Limit", "5000")
		header.Set("X-RateLimit-Remaining", "4999")
		header.Set("X-RateLimit-Used", "1")
		header.Set("X-RateLimit-Reset", "1795264200")
		header.Set("X-RateLimit-Resource", "core")
		parses(b, header, now, 1)
	})
	b.Run("none", func(b *testing.B) { parses(b, ordinaryHeader(), now, 0) })
}

func parses(b *testing.B, header http.Header, now time.Time, limits int) {
	b.Run("sluice", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if s, _ := ratelimit.Parse(http.StatusOK, header, now); len(s.Limits) != limits {
				b.Fatalf("got %+v", s)
			}
		}
	})
	b.Run("plain", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			found := 0
			for _, name := range [...]string{"X-Ratelimit-Limit", "X-Ratelimit-Remaining", "X-Ratelimit-Reset", "Retry-After"} {
				if v := header.Get(name); v != "" {
					if _, err := strconv.ParseInt(v, 10, 64); err != nil {
						b.Fatal(err)
					}
					found++
				}
			}
			if found != 3*limits {
				b.Fatalf("found %d fields", found)
			}
		}
	})
}

func ordinaryHeader() http.Header {
	return http.Header{
		"Access-Control-Allow-Origin": {"*"},
		"Cache-Control":               {"private, max-age=60, s-maxage=60"},
		"Connection":                  {"keep-alive"},
		"Content-Encoding":            {"gzip"},
		"Content-Type":                {"application/json; charset=utf-8"},
		"Date":                        {"Sat, 21 Nov 2026 12:00:00 GMT"},
		"Etag":                        {`W/"9f86d081884c7d65"`},
		"Server":                      {"nginx"},
		"Strict-Transport-Security":   {"max-age=31536000; includeSubdomains; preload"},
		"Vary":                        {"Accept, Authorization, Cookie"},
		"X-Content-Type-Options":      {"nosniff"},
		"X-Request-Id":                {"1234:5678:9abc"},
	}
}
