package sluicehttp

import (
	"net/http"

	"github.com/sluice-go/sluice/sluicehttp/ratelimit"
)

// Anthropic is an [Inspector] for the API of Anthropic, also behind a gateway. An
// overloaded_error is a throttle with any status from 500 on; the status 529 is one
// without this Inspector, too. A 429 because the spend limit is reached is not
// retried: it lasts until the next month. Anthropic reads the body of answers from 500
// on, and of a 429 without Retry-After. It does not see errors in a stream of events,
// which come after a status of 200.
func Anthropic(resp *http.Response, peek func() []byte, said *ratelimit.Snapshot) {
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
		if said.ShouldRetry == ratelimit.Unset {
			said.ShouldRetry = ratelimit.Yes
		}
	case answer.Error.Details.Code == "enforced_spend_limit_reached":
		said.ShouldRetry, said.Reason = ratelimit.No, answer.Error.Details.Code
	}
}
