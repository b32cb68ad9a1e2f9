package ratelimit

import (
	"net/http"
	"testing"
	"time"
)

var arrival = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// ordinary are twelve fields that have nothing to do with limits.
func ordinary() http.Header {
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

func github() http.Header {
	h := ordinary()
	h["X-Ratelimit-Limit"] = []string{"5000"}
	h["X-Ratelimit-Remaining"] = []string{"4999"}
	h["X-Ratelimit-Reset"] = []string{"1795264200"}
	h["X-Ratelimit-Used"] = []string{"1"}
	h["X-Ratelimit-Resource"] = []string{"core"}
	return h
}

func openai() http.Header {
	h := ordinary()
	h["X-Ratelimit-Limit-Requests"] = []string{"60"}
	h["X-Ratelimit-Remaining-Requests"] = []string{"59"}
	h["X-Ratelimit-Reset-Requests"] = []string{"1s"}
	h["X-Ratelimit-Limit-Tokens"] = []string{"150000"}
	h["X-Ratelimit-Remaining-Tokens"] = []string{"149984"}
	h["X-Ratelimit-Reset-Tokens"] = []string{"6m0s"}
	return h
}

func ietf() http.Header {
	h := ordinary()
	h["Ratelimit"] = []string{`"default";r=50;t=30`}
	h["Ratelimit-Policy"] = []string{`"default";q=100;w=60`}
	return h
}

// BenchmarkParse reads the header of one response. none has twelve ordinary
// fields, the others those and what is theirs. walk is the floor: to visit each
// of the twelve, and nothing else.
func BenchmarkParse(b *testing.B) {
	b.Run("walk", func(b *testing.B) {
		header, n := ordinary(), 0
		b.ReportAllocs()
		for b.Loop() {
			for key := range header {
				n += len(key)
			}
		}
		if n == 0 {
			b.Fatal("nothing visited")
		}
	})
	for _, bm := range []struct {
		name   string
		header http.Header
		limits int
	}{{"none", ordinary(), 0}, {"family", github(), 1}, {"openai", openai(), 2}, {"ietf", ietf(), 1}} {
		b.Run(bm.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				s, warnings := Parse(200, bm.header, arrival)
				if len(s.Limits) != bm.limits || len(warnings) > 0 {
					b.Fatalf("got %+v, %v", s, warnings)
				}
			}
		})
	}
}
