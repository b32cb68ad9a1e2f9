package sluicehttp_test

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/sluicehttp"
)

// A server that sends any header that is read, with any value, causes no panic, no pause beyond
// MaxPause, and no standstill: in a gate that does not learn a pace from the refusals, each request
// is sent within two of these, that of its route and that of its host.
func TestTransport_HostileHeaders(t *testing.T) {
	responses := 6_000 // 600,000 take 40 s, ten times that with -race
	if os.Getenv("SLUICE_FULL") == "long" {
		responses = 600_000
	}
	const each = 2_000
	for seed := range responses / each {
		synctest.Test(t, func(t *testing.T) { hostileServer(t, uint64(seed), each) })
	}
}

func hostileServer(t *testing.T, seed uint64, requests int) {
	const most = 90 * time.Second
	r := rand.New(rand.NewPCG(seed, 28))
	h := anyHeader{r}
	base := roundTripper(func(req *http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: h.status(), Header: h.header(), Body: io.NopCloser(strings.NewReader("")), Request: req}, nil
	})
	cfg := sluicehttp.Config{MaxPause: most, Retry: sluice.RetryPolicy{MaxServerWait: -1}}
	switch seed % 3 {
	case 1:
		cfg.Cost = func(*http.Request, []byte) sluice.Costs { return sluice.Costs{"tokens": 1 + r.Int64N(1000)} }
	case 2:
		cfg.Published = sluicehttp.Published{Spread: 1, Reserve: .1}
	}
	learns := seed%2 > 0
	cfg.Gate.Adaptive.Disabled = !learns
	rt := mustTransport(t, base, cfg)
	defer rt.Close()
	ctx := sluicehttp.WithOverrides(t.Context(), sluicehttp.Overrides{NoRetry: true})
	for n := range requests {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://a.test/"+h.of("a", "b", "c"), nil)
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		resp, err := rt.RoundTrip(req)
		if err != nil {
			t.Fatalf("seed %d, request %d: %v", seed, n, err)
		}
		resp.Body.Close()
		if wait := time.Since(began); wait > 2*most && !learns {
			t.Fatalf("seed %d: request %d was sent after %v", seed, n, wait)
		}
		for s := range rt.Gates() {
			if left := time.Until(s.PausedUntil); left > most {
				t.Fatalf("seed %d, request %d: %s is paused for %v", seed, n, s.Name, left)
			}
		}
		time.Sleep(time.Duration(r.Int64N(int64(2 * time.Second))))
	}
}

// An anyHeader draws the responses of a hostile server.
type anyHeader struct{ r *rand.Rand }

func (h anyHeader) of(values ...string) string { return values[h.r.IntN(len(values))] }

func (h anyHeader) status() int {
	return [...]int{200, 200, 200, 200, 304, 403, 404, 420, 429, 429, 430, 500, 503, 529}[h.r.IntN(14)]
}

func (h anyHeader) header() http.Header {
	header := make(http.Header)
	for range h.r.IntN(5) {
		name := h.of("Retry-After", "Retry-After-Ms", "X-Retry-After", "X-Ms-Retry-After-Ms", "RateLimit", "RateLimit-Policy",
			"RateLimit-Limit", "RateLimit-Remaining", "RateLimit-Reset", "X-RateLimit-Limit", "X-RateLimit-Remaining",
			"X-RateLimit-Reset", "X-RateLimit-Reset-After", "X-RateLimit-Bucket", "X-RateLimit-Scope", "X-RateLimit-Global",
			"X-RateLimit-Resource", "X-RateLimit-Limit-Requests", "X-RateLimit-Remaining-Requests", "X-RateLimit-Reset-Requests",
			"X-RateLimit-Remaining-Tokens", "X-RateLimit-Limit-Tokens", "X-RateLimit-Reset-Tokens",
			"Anthropic-RateLimit-Requests-Remaining", "Anthropic-RateLimit-Requests-Reset", "X-Should-Retry", "Date", "Age", "Via",
			"X-Shopify-Shop-Api-Call-Limit", "X-HubSpot-RateLimit-Daily-Remaining", "X-App-Usage")
		header[http.CanonicalHeaderKey(name)] = append(header[http.CanonicalHeaderKey(name)], h.value())
	}
	return header
}

func (h anyHeader) value() string {
	switch h.r.IntN(6) {
	case 0:
		return fmt.Sprint(h.r.IntN(100))
	case 1:
		return time.Now().Add(time.Duration(h.r.Int64N(int64(time.Hour)))).UTC().Format(http.TimeFormat)
	case 2:
		return fmt.Sprint(time.Now().Unix() + h.r.Int64N(1000))
	case 3:
		raw := make([]byte, h.r.IntN(20))
		for i := range raw {
			raw[i] = byte(h.r.IntN(256))
		}
		return string(raw)
	}
	return h.of("0", "-1", "1", "1e300", "-1e300", "NaN", "Inf", "9223372036854775807", "18446744073709551616", "0.0000001",
		"2562047h47m16s", "1s", "6m0s", "-5ms", "Fri, 31 Dec 9999 23:59:59 GMT", "9999-12-31T23:59:59Z", "0001-01-01T00:00:00Z",
		"253402300800", "253402300800000", "true", "false", "global", "user", `"default";r=0;t=9223372036854775807`,
		`"a";r=-1;t=-1, "b";r=1e9`, `"default";q=1;w=999999999999999`, `"x";q=0;w=0`, "40/0", "0/0", "-1/40", `{"call_count":1e99}`,
		"GET", "", " ", ",,,,", "100, 100;w=60, 1000;w=3600", strings.Repeat("9", 400), strings.Repeat(`"a";r=0,`, 300))
}
