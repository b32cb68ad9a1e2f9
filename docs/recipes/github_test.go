package recipes

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/google/go-github/v88/github"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/sluicehttp"
	"github.com/sluice-go/sluice/sluicetest"
)

func githubClient(base http.RoundTripper, token string) (*github.Client, error) {
	// begin go-github
	transport, err := sluicehttp.New(base, sluicehttp.Config{
		Inspect: sluicehttp.GitHub, // secondary limits have the status 403
		Retry:   sluice.RetryPolicy{MaxServerWait: 2 * time.Hour},
	})
	if err != nil {
		return nil, err
	}
	return github.NewClient(
		github.WithHTTPClient(&http.Client{Transport: transport}),
		github.WithAuthToken(token),
		github.WithDisableRateLimitCheck(), // the transport waits
	)
	// end go-github
}

func TestGitHub(t *testing.T) {
	limit := sluicetest.Limit{Quota: 20, Window: time.Hour, Family: sluicetest.GitHub, Status: 403}
	server(t, func(ctx context.Context, base http.RoundTripper) {
		client, err := githubClient(base, "token")
		if err != nil {
			t.Fatal(err)
		}
		parallel(t, 50, func() error {
			_, _, err := client.Repositories.Get(ctx, "owner", "name")
			return err
		})
	}, sluicetest.Enforce(limit), sluicetest.Reply(200, `{"name":"name"}`, "Content-Type: application/json"))
}
