package bench

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/failsafe-go/failsafe-go/failsafehttp"
	"github.com/gojek/heimdall/v7/httpclient"
	"github.com/hashicorp/go-retryablehttp"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/sluicehttp"
)

// inMemory is a base transport that answers immediately, with a short body.
type inMemory struct{ header http.Header }

func (m inMemory) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Body != nil {
		_ = req.Body.Close()
	}
	return &http.Response{
		Status: "200 OK", StatusCode: http.StatusOK,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: m.header, Body: io.NopCloser(strings.NewReader("hello")), ContentLength: 5,
		Request: req,
	}, nil
}

// ordinary is a header that says nothing of limits.
var ordinary = http.Header{
	"Content-Length": {"5"},
	"Content-Type":   {"application/json; charset=utf-8"},
	"Date":           {"Sat, 21 Nov 2026 12:00:00 GMT"},
	"Cache-Control":  {"private"},
	"Etag":           {`"33a64df551425fcc55e4d42a148795d9f25f89d4"`},
	"Server":         {"nginx"},
	"Vary":           {"Accept-Encoding"},
	"X-Request-Id":   {"6b0f2a1e"},
}

// limited is ordinary with one family of fields about limits.
func limited() http.Header {
	h := ordinary.Clone()
	h.Set("X-RateLimit-Limit", "5000")
	h.Set("X-RateLimit-Remaining", "4999")
	h.Set("X-RateLimit-Reset", "3600")
	return h
}

// BenchmarkTransportOverhead sends a GET that is answered immediately, and reads the
// answer to its end. What is above plain is what a transport costs.
//
// sluice caps the concurrency, paces, may retry, and reads the header fields of
// limits; limited/sluice has some to read. The others retry, and no more.
// retryablehttp and heimdall come with an http.Client of their own, so client,
// one around plain, is their floor; heimdall is not a RoundTripper, so other
// clients cannot use it.
func BenchmarkTransportOverhead(b *testing.B) {
	base := inMemory{ordinary}
	b.Run("plain", func(b *testing.B) { roundTrips(b, base.RoundTrip) })
	b.Run("client", func(b *testing.B) { roundTrips(b, (&http.Client{Transport: base}).Do) })
	b.Run("sluice", func(b *testing.B) { roundTrips(b, newSluiceTransport(b, base).RoundTrip) })
	b.Run("failsafehttp", func(b *testing.B) {
		roundTrips(b, failsafehttp.NewRoundTripper(base, failsafehttp.NewRetryPolicyBuilder().Build()).RoundTrip)
	})
	b.Run("retryablehttp", func(b *testing.B) {
		c := retryablehttp.NewClient()
		c.HTTPClient = &http.Client{Transport: base}
		c.Logger = nil
		roundTrips(b, (&retryablehttp.RoundTripper{Client: c}).RoundTrip)
	})
	b.Run("heimdall", func(b *testing.B) {
		c := httpclient.NewClient(httpclient.WithHTTPClient(&http.Client{Transport: base}), httpclient.WithRetryCount(3))
		roundTrips(b, c.Do)
	})
	b.Run("limited/plain", func(b *testing.B) { roundTrips(b, inMemory{limited()}.RoundTrip) })
	b.Run("limited/sluice", func(b *testing.B) { roundTrips(b, newSluiceTransport(b, inMemory{limited()}).RoundTrip) })
}

func newSluiceTransport(b *testing.B, base http.RoundTripper) *sluicehttp.Transport {
	rt, err := sluicehttp.New(base, sluicehttp.Config{Gate: sluice.Config{
		Concurrency: 1024,
		Rate:        sluice.Rate{Count: perNano, Per: time.Second},
	}})
	if err != nil {
		b.Fatal(err)
	}
	return rt
}

// roundTrips makes requests by send. Each goroutine has one Request and uses it
// again, which all of these allow.
func roundTrips(b *testing.B, send func(*http.Request) (*http.Response, error)) {
	each(b, func(n int) {
		req, err := http.NewRequest(http.MethodGet, "https://api.example.com/v1/items/17", nil)
		if err != nil {
			b.Error(err)
			return
		}
		got := 0
		for range n {
			resp, err := send(req)
			if err != nil {
				b.Error(err)
				return
			}
			if read, err := io.Copy(io.Discard, resp.Body); read == 5 && err == nil && resp.Body.Close() == nil {
				got++
			}
		}
		grants(b, got, n)
	})
}

// BenchmarkTransportBare is an http.Client whose transport has no limit configured: it reads
// what the server says about limits and throttles, and may retry. client has none. The
// others retry, and no more.
func BenchmarkTransportBare(b *testing.B) {
	base := inMemory{ordinary}
	do := func(rt http.RoundTripper) func(*http.Request) (*http.Response, error) {
		return (&http.Client{Transport: rt}).Do
	}
	b.Run("client", func(b *testing.B) { roundTrips(b, do(base)) })
	b.Run("sluice", func(b *testing.B) {
		rt, err := sluicehttp.New(base)
		if err != nil {
			b.Fatal(err)
		}
		roundTrips(b, do(rt))
	})
	b.Run("failsafehttp", func(b *testing.B) {
		roundTrips(b, do(failsafehttp.NewRoundTripper(base, failsafehttp.NewRetryPolicyBuilder().Build())))
	})
}
