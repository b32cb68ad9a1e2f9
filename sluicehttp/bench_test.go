package sluicehttp_test

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/sluicehttp"
)

// instant is a base transport that answers at once, without a connection.
type instant struct {
	header http.Header
	body   bool
}

func (b instant) RoundTrip(req *http.Request) (*http.Response, error) {
	resp := &http.Response{StatusCode: 200, ProtoMajor: 1, ProtoMinor: 1, Header: b.header, Body: http.NoBody, Request: req}
	if b.body {
		resp.Body = io.NopCloser(strings.NewReader("hello"))
	}
	return resp, nil
}

func benchmark(b *testing.B, rt http.RoundTripper, method string) {
	req, err := http.NewRequest(method, "https://api.example.com/v1/items", nil)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		resp, err := rt.RoundTrip(req)
		if err != nil {
			b.Fatal(err)
		}
		io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
	}
}

// What the transport costs a request beside its base.
func BenchmarkRoundTrip(b *testing.B) {
	ordinary := http.Header{"Content-Type": {"application/json"}, "Date": {"Sat, 21 Nov 2026 12:00:00 GMT"}, "Content-Length": {"5"}}
	family := ordinary.Clone()
	family.Set("X-RateLimit-Limit", "5000")
	family.Set("X-RateLimit-Remaining", "4999")
	family.Set("X-RateLimit-Reset", "3600")
	for _, c := range []struct {
		name, method string
		base         instant
	}{
		{"GET", "GET", instant{ordinary, true}},
		{"POST", "POST", instant{ordinary, true}},
		{"NoBody", "GET", instant{ordinary, false}},
		{"Limits", "GET", instant{family, true}},
	} {
		b.Run(c.name+"/base", func(b *testing.B) { benchmark(b, c.base, c.method) })
		b.Run(c.name+"/sluice", func(b *testing.B) {
			rt, err := sluicehttp.New(c.base, sluicehttp.Config{Gate: sluice.Config{
				Concurrency: 100, Rate: sluice.Rate{Count: 1e9, Per: time.Second},
			}})
			if err != nil {
				b.Fatal(err)
			}
			benchmark(b, rt, c.method)
		})
	}
}
