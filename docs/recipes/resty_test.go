package recipes

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/go-resty/resty/v2"

	"github.com/sluice-go/sluice"
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
	limit := sluicetest.Limit{Count: 10, Per: time.Second, Burst: 1}
	server(t, func(ctx context.Context, base http.RoundTripper) {
		client, err := restyClient(base)
		if err != nil {
			t.Fatal(err)
		}
		parallel(t, 50, func() error {
			resp, err := client.R().SetContext(ctx).Get("https://api.test/items")
			if err == nil && resp.StatusCode() != 200 {
				t.Error(resp.Status())
			}
			return err
		})
	}, sluicetest.Enforce(limit), sluicetest.On(7, sluicetest.Status(503)), sluicetest.Reply(200, "ok"))
}
