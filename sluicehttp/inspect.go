package sluicehttp

import (
	"bytes"
	"net/http"
	"strings"
	"time"

	"github.com/sluice-go/sluice/sluicehttp/ratelimit"
)

// GitHub is an [Inspector] for the secondary limits of GitHub. They have the status 403 or 429. If
// GitHub does not say when to retry, the wait is a minute, doubled each time.
//
// Every Transport uses GitHub for responses with an X-GitHub-Request-Id.
func GitHub(resp *http.Response, peek func() []byte, said *ratelimit.Info) {
	gitHub(&answer{resp: resp, peek: peek, said: said})
}

func gitHub(a *answer) {
	if a.resp.StatusCode != http.StatusForbidden && a.resp.StatusCode != http.StatusTooManyRequests {
		return
	}
	if !a.said.RetryAt.IsZero() {
		a.said.Throttled = true
		return
	}
	var answer struct {
		Message string `json:"message"`
		URL     string `json:"documentation_url"`
	}
	if !decode(a.peek(), &answer) {
		return
	}
	message := strings.ToLower(answer.Message)
	if strings.Contains(message, "secondary rate limit") || strings.Contains(message, "abuse detection") ||
		strings.HasSuffix(answer.URL, "secondary-rate-limits") || strings.HasSuffix(answer.URL, "#abuse-rate-limits") {
		a.throttled("secondary rate limit")
		a.said.Floor = time.Minute
		return
	}
	a.other = message != ""
}

// GraphQL is an [Inspector] for servers that throttle with an error whose code is THROTTLED or
// RATE_LIMITED, with the status 200, as Shopify and GitHub, or any other from 400, as Linear. The
// wait that follows from Shopify's throttleStatus is respected. A response with data is left alone.
//
// Every Transport uses GraphQL for errors of JSON, and for requests with "graphql" in their path.
// As Config.Inspect it copies up to 64 KiB of every JSON response.
func GraphQL(resp *http.Response, peek func() []byte, said *ratelimit.Info) {
	if resp.StatusCode != http.StatusOK && resp.StatusCode < 400 || !shortJSON(resp) || !bytes.Contains(peek(), []byte(`"errors"`)) {
		return // most responses have no errors
	}
	seen := *said
	a := answer{resp: resp, peek: peek, said: &seen}
	if graphQL(&a); !a.partly {
		*said = seen
	}
}

// Google is an [Inspector] for the APIs of Google, which throttle with any status from 400, and a
// body with a reason such as userRateLimitExceeded or the status RESOURCE_EXHAUSTED. With 429 and
// 503 it reads the retryDelay. It prevents retries when the quota of a day is used up.
//
// Every Transport uses Google for errors of JSON.
func Google(resp *http.Response, peek func() []byte, said *ratelimit.Info) {
	google(&answer{resp: resp, peek: peek, said: said})
}
