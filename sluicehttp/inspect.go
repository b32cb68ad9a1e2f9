package sluicehttp

import (
	"bytes"
	"net/http"
	"strings"
	"time"

	"github.com/sluice-go/sluice/sluicehttp/internal/inspect"
	"github.com/sluice-go/sluice/sluicehttp/ratelimit"
)

func init() {
	inspect.AWS, inspect.GitHub, inspect.Google = inspected(aws), inspected(gitHub), inspected(google)
	inspect.Anthropic, inspect.GraphQL = anthropic, graphQLAnywhere
}

// inspected returns a Config.Inspect that uses f for all responses.
func inspected(f func(a *answer)) inspect.Func {
	return func(resp *http.Response, peek func() []byte, said *ratelimit.Info) {
		f(&answer{resp: resp, peek: peek, said: said})
	}
}

// gitHub knows the secondary limits of GitHub. They have the status 403 or 429. If GitHub does not
// say when to retry, the wait is a minute, doubled each time.
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

// graphQLAnywhere is graphQL for all responses, whatever the path of the request. It copies up to
// 64 KiB of every JSON response.
func graphQLAnywhere(resp *http.Response, peek func() []byte, said *ratelimit.Info) {
	if resp.StatusCode != http.StatusOK && resp.StatusCode < 400 || !shortJSON(resp) || !bytes.Contains(peek(), []byte(`"errors"`)) {
		return // most responses have no errors
	}
	seen := *said
	a := answer{resp: resp, peek: peek, said: &seen}
	if graphQL(&a); !a.partly {
		*said = seen
	}
}
