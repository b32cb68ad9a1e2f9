package presets

import (
	"net/http"
	"strings"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/sluicehttp"
	"github.com/sluice-go/sluice/sluicehttp/internal/inspect"
)

// GitHub returns a Config for the REST and GraphQL APIs of GitHub, also of an Enterprise Server.
// REST, search, search of code, and GraphQL have a gate each, whose key is the host and the name of
// the resource. Requests in flight never exceed the remaining quota of an hour, and the next hour is
// waited for: up to 2 hours. Secondary limits are recognized. A GraphQL query is taken to cost a
// point.
func GitHub() sluicehttp.Config {
	return sluicehttp.Config{
		Key:     githubResource,
		Inspect: inspect.All(inspect.GitHub, inspect.GraphQL),
		Retry:   sluice.RetryPolicy{MaxServerWait: 2 * time.Hour},
		Cost: func(req *http.Request, body []byte) sluice.Costs {
			if strings.HasSuffix(req.URL.Path, "/graphql") {
				return sluice.Costs{"points": 1}
			}
			return nil // one request
		},
	}
}

// githubResource is a Config.Key: each resource has limits of its own.
func githubResource(req *http.Request) string {
	key, path := req.URL.Scheme+"://"+req.URL.Host, req.URL.Path
	switch {
	case strings.HasSuffix(path, "/graphql"):
		return key + " graphql"
	case strings.HasSuffix(path, "/search/code"):
		return key + " code_search"
	case strings.HasPrefix(path, "/search/"), strings.HasPrefix(path, "/api/v3/search/"):
		return key + " search"
	}
	return key
}
