package recipes

import (
	"context"
	"net/http"
	"testing"
	"time"

	gitlab "gitlab.com/gitlab-org/api/client-go"
	"golang.org/x/time/rate"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/sluicehttp"
	"github.com/sluice-go/sluice/sluicetest"
)

func gitlabClient(base http.RoundTripper, token string) (*gitlab.Client, error) {
	// begin gitlab
	transport, err := sluicehttp.New(base, sluicehttp.Config{
		Gate: sluice.Config{Concurrency: 8, Rate: sluice.Rate{Count: 10, Per: time.Second}},
	})
	if err != nil {
		return nil, err
	}
	return gitlab.NewClient(token,
		gitlab.WithHTTPClient(&http.Client{Transport: transport}),
		gitlab.WithCustomLimiter(rate.NewLimiter(rate.Inf, 0)), // or the client adds one of its own
		gitlab.WithoutRetries(),                                // the transport retries
	)
	// end gitlab
}

func getProject(ctx context.Context, client *gitlab.Client) error {
	_, _, err := client.Projects.GetProject(1, nil, gitlab.WithContext(ctx))
	return err
}

func TestGitLab(t *testing.T) {
	seen := server(t, func(ctx context.Context, base http.RoundTripper) {
		client, err := gitlabClient(base, "token")
		if err != nil {
			t.Fatal(err)
		}
		if err := getProject(ctx, client); err != nil { // from which the client reads the limit
			t.Fatal(err)
		}
		parallel(t, 49, func() error { return getProject(ctx, client) })
	}, sluicetest.Enforce(sluicetest.Limit{Count: 10, Per: time.Second}), sluicetest.On(20, sluicetest.Status(429, "Retry-After: 10")),
		sluicetest.On(40, sluicetest.Status(502)), sluicetest.Header("RateLimit-Limit: 60"), sluicetest.Reply(200, `{"id":1}`, jsonType))
	promised{ok: 50, failed: 2}.check(t, seen)
	if err := seen.CheckSpacing(100 * time.Millisecond); err != nil {
		t.Error(err)
	}
	took(t, seen, 15*time.Second, 16*time.Second) // the client's own limiter would take 75 s
}
