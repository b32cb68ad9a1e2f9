package sluicehttp_test

import (
	"cmp"
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
	status int    // 0 means 200
	says   string // "" means hello
}

func (b instant) RoundTrip(req *http.Request) (*http.Response, error) {
	resp := &http.Response{StatusCode: cmp.Or(b.status, 200), ProtoMajor: 1, ProtoMinor: 1, Header: b.header, Body: http.NoBody, Request: req}
	if b.body {
		resp.Body = io.NopCloser(strings.NewReader(cmp.Or(b.says, "hello")))
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
		{"GET", "GET", instant{header: ordinary, body: true}},
		{"POST", "POST", instant{header: ordinary, body: true}},
		{"NoBody", "GET", instant{header: ordinary}},
		{"Limits", "GET", instant{header: family, body: true}},
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

// What a look at the request or at the first bytes of the response costs, where that may be a
// refusal of a known maker, and what it costs to read an error.
func BenchmarkMakers(b *testing.B) {
	kind := http.Header{"Content-Type": {"application/json"}}
	for _, c := range []struct {
		name, path, sent string
		base             instant
	}{
		{"OtherJSON", "/v1/items", `{"a": 1}`, instant{header: kind, body: true, says: `{"id": 1}`}},
		{"OtherText", "/v1/items", `{"a": 1}`, instant{body: true, says: `{"id": 1}`}},
		{"GraphQL", "/graphql", `{"query": "{a}"}`, instant{header: kind, body: true, says: `{"data":{"a":1}}`}},
		{"JSONRPC", "/", `{"jsonrpc":"2.0","method":"a"}`, instant{header: kind, body: true, says: `{"jsonrpc":"2.0","result":1}`}},
		{"ErrorJSON", "/v1/items", `{"a": 1}`, instant{header: kind, body: true, status: 400, says: `{"error":{"code":"bad"}}`}},
		{"ErrorText", "/v1/items", `{"a": 1}`, instant{body: true, status: 400, says: `{"error":{"code":"bad"}}`}},
	} {
		b.Run(c.name, func(b *testing.B) {
			rt, err := sluicehttp.New(c.base)
			if err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for b.Loop() {
				req, err := http.NewRequest("POST", "https://api.example.com"+c.path, strings.NewReader(c.sent))
				if err != nil {
					b.Fatal(err)
				}
				resp, err := rt.RoundTrip(req)
				if err != nil {
					b.Fatal(err)
				}
				io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
			}
		})
	}
}

// The default AttemptTimeout beside none.
func BenchmarkTransport_AttemptTimeout(b *testing.B) {
	for name, timeout := range map[string]time.Duration{"default": 0, "none": -1} {
		b.Run(name, func(b *testing.B) {
			rt := mustTransport(b, instant{}, sluicehttp.Config{Retry: sluice.RetryPolicy{AttemptTimeout: timeout}})
			req := request(b, bg, http.MethodGet, "https://api.example.com/v1/items", nil)
			b.ReportAllocs()
			for b.Loop() {
				resp, err := rt.RoundTrip(req)
				if err != nil {
					b.Fatal(err)
				}
				resp.Body.Close()
			}
		})
	}
}
