package sluicehttp_test

import (
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/sluicehttp"
)

// FuzzMakers answers a request with any response. The transport must neither panic nor change the
// body, and no wait that the server asks for may be longer than MaxPause.
func FuzzMakers(f *testing.F) {
	for _, c := range slices.Concat(words, unknownWords) {
		kind := "application/json"
		if c.header != "" {
			kind = c.header
		}
		f.Add(c.status, kind, c.path, c.sent, c.body)
	}
	for _, body := range []string{
		`{"retry_after": 1e300, "global": true}`, `{"retry_after": -1, "global": false}`, `{"parameters": {"retry_after": 1e18}}`,
		`{"error": {"status": "RESOURCE_EXHAUSTED", "details": [{"retryDelay": "2562047h"}]}}`,
		`{"jsonrpc": "2.0", "error": {"code": 429, "data": {"rate": {"backoff_seconds": 1e30}}}}`,
		`{"errors": [{"type": "THROTTLED"}], "extensions": {"cost": {"requestedQueryCost": 1e308, "throttleStatus": {"currentlyAvailable": -1e308, "restoreRate": 1e-308}}}}`,
	} {
		for _, status := range []int{200, 403, 429} {
			f.Add(status, "application/json", "/graphql", call, body)
		}
	}
	f.Fuzz(func(t *testing.T, status int, kind, path, sent, body string) {
		if status < 200 || status > 599 || !strings.HasPrefix(path, "/") {
			t.Skip()
		}
		header := make(http.Header)
		for line := range strings.SplitSeq(kind, "|") {
			name, value, ok := strings.Cut(line, ": ")
			if !ok {
				name, value = "Content-Type", line
			}
			header.Add(name, value)
		}
		const most = 90 * time.Second
		synctest.Test(t, func(t *testing.T) {
			base := roundTripper(func(req *http.Request) (*http.Response, error) {
				return &http.Response{StatusCode: status, Header: header, Body: io.NopCloser(strings.NewReader(body)), ContentLength: int64(len(body))}, nil
			})
			rt := mustTransport(t, base, sluicehttp.Config{MaxPause: most, Retry: sluice.RetryPolicy{MaxServerWait: -1}})
			req, err := http.NewRequestWithContext(sluicehttp.WithOverrides(bg, sluicehttp.Overrides{NoRetry: true}), "POST", "https://a.test/", strings.NewReader(sent))
			if err != nil {
				t.Fatal(err)
			}
			req.URL.Path = path
			resp, err := rt.RoundTrip(req)
			if err != nil {
				t.Fatal(err)
			}
			content, err := io.ReadAll(resp.Body)
			if string(content) != body || err != nil {
				t.Errorf("read %.100q, %v; want %.100q", content, err, body)
			}
			resp.Body.Close()
			if wait := time.Until(stats(t, rt).PausedUntil); wait > most {
				t.Errorf("paused for %v", wait)
			}
		})
	})
}
