package recipes

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/go-resty/resty/v2"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/limits"
	"github.com/sluice-go/sluice/sluicehttp"
	"github.com/sluice-go/sluice/sluicetest"
)

func restyClient(base http.RoundTripper) (*resty.Client, error) {
	// begin resty
	transport, err := sluicehttp.New(base, sluicehttp.Config{
		Gate:  sluice.Config{Concurrency: 8, Rate: sluice.Rate{Count: 10, Per: time.Second}},
		Retry: sluice.RetryPolicy{AttemptTimeout: 10 * time.Second}, // in place of SetTimeout
	})
	if err != nil {
		return nil, err
	}
	client := resty.New().SetTransport(transport) // without SetRetryCount: the transport retries
	// end resty
	return client, nil
}

func TestResty(t *testing.T) {
	limit := sluicetest.Limit{Count: 10, Per: time.Second}
	seen := server(t, func(ctx context.Context, base http.RoundTripper) {
		client, err := restyClient(base)
		if err != nil {
			t.Fatal(err)
		}
		parallel(t, 50, func() error {
			resp, err := client.R().SetContext(ctx).Get("https://api.test/items")
			if err == nil && (resp.StatusCode() != 200 || resp.Request.Attempt != 1) {
				t.Error(resp.Status(), resp.Request.Attempt)
			}
			return err
		})
	}, sluicetest.Enforce(limit), sluicetest.On(7, sluicetest.Status(503)), sluicetest.On(9, sluicetest.Delay(limits.Never)), sluicetest.Reply(200, "ok"))
	promised{ok: 50, failed: 2}.check(t, seen) // the transport sends these two again
	if err := seen.CheckSpacing(100 * time.Millisecond); err != nil {
		t.Error(err)
	}
}

// A POST that may have been carried out is not sent twice, a throttled one is.
func TestResty_Post(t *testing.T) {
	seen := server(t, func(ctx context.Context, base http.RoundTripper) {
		client, err := restyClient(base)
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range []int{200, 500, 200} {
			resp, err := client.R().SetContext(ctx).SetBody(map[string]int{"n": 1}).Post("https://api.test/items")
			if err != nil || resp.StatusCode() != want {
				t.Errorf("%v, %v, want %d", resp.Status(), err, want)
			}
		}
	}, sluicetest.Script(sluicetest.Status(429, "Retry-After: 1"), nil, sluicetest.Status(500)))
	promised{ok: 2, failed: 2}.check(t, seen)
}
