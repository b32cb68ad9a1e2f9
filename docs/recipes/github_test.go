package recipes

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/google/go-github/v88/github"

	"github.com/sluice-go/sluice/sluicehttp"
	"github.com/sluice-go/sluice/sluicehttp/presets"
	"github.com/sluice-go/sluice/sluicetest"
)

func githubClient(base http.RoundTripper, token string) (*github.Client, error) {
	// begin go-github
	transport, err := sluicehttp.New(base, presets.GitHub())
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
	const secondary = `{"message":"You have exceeded a secondary rate limit. Please wait a few minutes before you try again.","documentation_url":"https://docs.github.com/rest/using-the-rest-api/rate-limits-for-the-rest-api#about-secondary-rate-limits"}`
	layers := map[string][]sluicetest.Layer{
		"limited":           {sluicetest.Enforce(sluicetest.Limit{Quota: 20, Window: time.Hour, HeaderStyle: sluicetest.GitHub, Status: 403})},
		"limited secondary": {sluicetest.On(30, sluicetest.Reply(403, secondary, "Content-Type: application/json"))},
		"failing":           {sluicetest.On(30, sluicetest.Status(502))},
	}
	for name, want := range map[string]promised{
		"limited":           {ok: 50}, // nothing is refused
		"limited secondary": {ok: 50, failed: 1},
		"failing":           {ok: 50, failed: 1},
	} {
		t.Run(name, func(t *testing.T) {
			seen := server(t, func(ctx context.Context, base http.RoundTripper) {
				client, err := githubClient(base, "token")
				if err != nil {
					t.Fatal(err)
				}
				parallel(t, 50, func() error {
					_, _, err := client.Repositories.Get(ctx, "owner", "name")
					return err
				})
			}, append(layers[name], sluicetest.Delay(50*time.Millisecond), sluicetest.Reply(200, `{"name":"name"}`, "Content-Type: application/json"))...)
			want.check(t, seen)
			if name == "limited" {
				took(t, seen, 2*time.Hour, 2*time.Hour+5*time.Minute)
			}
		})
	}
}
