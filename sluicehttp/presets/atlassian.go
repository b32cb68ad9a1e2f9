package presets

import (
	"net/http"
	"strings"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/sluicehttp"
	"github.com/sluice-go/sluice/sluicehttp/ratelimit"
)

// Atlassian returns a Config for the REST APIs of Jira and Confluence in the cloud. Each endpoint
// has a gate: its key is the host, the method and the path without ids and keys, but with the
// tenant. A quota of an hour that is used up pauses all of the host, for up to 2 hours.
//
// POSTs that only search or read, such as to /search/jql, may be sent twice.
func Atlassian() sluicehttp.Config {
	return sluicehttp.Config{
		Key:        atlassianEndpoint,
		Idempotent: func(req *http.Request, _ []byte) bool { return toModel(req, atlassianReads...) },
		Inspect:    atlassianQuota,
		Retry:      sluice.RetryPolicy{MaxServerWait: 2 * time.Hour},
	}
}

// atlassianEndpoint is a Config.Key. Apps with OAuth call https://api.atlassian.com/ex/jira/<tenant>/….
func atlassianEndpoint(req *http.Request) string {
	return endpoint(req, []string{"project", "space"}, []string{"jira", "confluence"})
}

// atlassianReads are the ends of paths that a POST only reads from.
var atlassianReads = []string{
	"/search", "/search/jql", "/search/approximate-count", "/issue/bulkfetch", "/changelog/bulkfetch",
	"/jql/parse", "/jql/match", "/expression/eval", "/expression/evaluate", "/expression/analyse",
}

// atlassianQuota is a Config.Inspect: quotas are those of an app, and the other limits are those of an
// endpoint or an issue.
func atlassianQuota(_ *http.Response, _ func() []byte, said *ratelimit.Info) {
	if said.Throttled && strings.Contains(said.Reason, "-quota-") {
		said.Global = true
	}
}
