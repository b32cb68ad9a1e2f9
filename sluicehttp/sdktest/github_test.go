package sdktest

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/google/go-github/v88/github"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/sluicehttp"
	"github.com/sluice-go/sluice/sluicehttp/presets"
	"github.com/sluice-go/sluice/sluicetest"
)

// githubJob is 200 repositories from a server that takes 50 in 2 minutes.
func githubJob(options ...github.ClientOptionsFunc) job {
	return job{
		calls: 200, workers: 8,
		server: func() []sluicetest.Layer {
			limit := sluicetest.Limit{Quota: 50, Window: 2 * time.Minute, HeaderStyle: sluicetest.GitHub}
			return []sluicetest.Layer{
				latency(), limited(limit, 403, "application/json", `{"message":"API rate limit exceeded"}`), sluicetest.Reply(200, `{"name":"r"}`, jsonKind),
			}
		},
		sdk: func(t *testing.T, client *http.Client) call {
			c, err := github.NewClient(append([]github.ClientOptionsFunc{github.WithHTTPClient(client)}, options...)...)
			if err != nil {
				t.Fatal(err)
			}
			return func(ctx context.Context, n int) error {
				_, _, err := c.Repositories.Get(ctx, "o", "r")
				return err
			}
		},
	}
}

// go-github refuses calls itself once it has seen that nothing remains, and never
// asks the transport. WithDisableRateLimitCheck leaves the waiting to the transport.
func TestGitHub(t *testing.T) {
	cfg := &sluicehttp.Config{Inspect: presets.GitHub().Inspect}
	j := githubJob(github.WithDisableRateLimitCheck())
	alone := githubJob().run(t, "go-github alone")
	j.through = cfg
	for _, j.http1 = range []bool{false, true} {
		y := j.run(t, "WithDisableRateLimitCheck")
		j.wantAll(t, y)
		notWorse(t, y, alone)
	}
	with := githubJob()
	with.through = cfg
	if y := with.run(t, "its own check left on"); y.ok == with.calls {
		t.Error("the documentation says that these calls are lost")
	}
}

// The window of GitHub is an hour, longer than a server may ask for by default.
func TestGitHubForAnHour(t *testing.T) {
	j := githubJob(github.WithDisableRateLimitCheck())
	j.calls = 120
	j.server = func() []sluicetest.Layer {
		limit := sluicetest.Limit{Quota: 50, Window: time.Hour, HeaderStyle: sluicetest.GitHub}
		return []sluicetest.Layer{
			latency(), limited(limit, 403, "application/json", `{"message":"API rate limit exceeded"}`), sluicetest.Reply(200, `{"name":"r"}`, jsonKind),
		}
	}
	j.through = &sluicehttp.Config{Inspect: presets.GitHub().Inspect, Retry: sluice.RetryPolicy{MaxServerWait: 2 * time.Hour}}
	j.wantAll(t, j.run(t, "a window of an hour"))
}

// Only the text says that a secondary limit refused, and nothing says for how long.
func TestGitHubsSecondaryLimit(t *testing.T) {
	j := githubJob(github.WithDisableRateLimitCheck())
	j.server = func() []sluicetest.Layer {
		const secondary = `{"message":"You have exceeded a secondary rate limit.","documentation_url":"https://docs.github.com/rest/overview/rate-limits-for-the-rest-api#about-secondary-rate-limits"}`
		refuse := sluicetest.Reply(403, secondary, jsonKind, "X-GitHub-Request-Id: 1")
		return []sluicetest.Layer{latency(), sluicetest.On(100, refuse), sluicetest.Reply(200, `{"name":"r"}`, jsonKind)}
	}
	alone := j.alone().run(t, "go-github alone")
	j.through = &sluicehttp.Config{Inspect: presets.GitHub().Inspect}
	y := j.run(t, "through the transport")
	j.wantAll(t, y)
	if y.ok <= alone.ok {
		t.Errorf("%d succeed, %d alone", y.ok, alone.ok)
	}
}
