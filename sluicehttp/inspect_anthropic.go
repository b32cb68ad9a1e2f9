package sluicehttp

import (
	"net/http"

	"github.com/sluice-go/sluice/sluicehttp/ratelimit"
)

// anthropic knows the API of Anthropic, also behind a gateway. It makes an overloaded_error with
// any status from 500 a throttle; status 529 always is one. It prevents retries of a 429 because of
// the spend limit. It does not see errors within an event stream.
func anthropic(resp *http.Response, peek func() []byte, said *ratelimit.Info) {
	if resp.StatusCode < 500 && (resp.StatusCode != http.StatusTooManyRequests || !said.RetryAt.IsZero()) {
		return
	}
	var answer struct {
		Error struct {
			Type    string `json:"type"`
			Details struct {
				Code string `json:"error_code"`
			} `json:"details"`
		} `json:"error"`
	}
	if !decode(peek(), &answer) {
		return
	}
	switch {
	case answer.Error.Type == "overloaded_error":
		said.Throttled, said.Reason = true, answer.Error.Type
		if said.ShouldRetry == nil {
			said.ShouldRetry = new(true)
		}
	case answer.Error.Details.Code == "enforced_spend_limit_reached":
		said.ShouldRetry, said.Reason = new(false), answer.Error.Details.Code
	}
}
