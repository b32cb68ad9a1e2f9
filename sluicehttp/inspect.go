package sluicehttp

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/sluice-go/sluice/sluicehttp/ratelimit"
)

// GitHub is an [Inspector] for the secondary limits of GitHub. It refuses with
// the status 403 or 429, and only the text tells that apart from a call that is
// forbidden. If GitHub says no time either, it is a minute, doubled for each
// refusal that follows such a wait, as GitHub asks for.
func GitHub(resp *http.Response, peek func() []byte, said *ratelimit.Snapshot) {
	if resp.StatusCode != http.StatusForbidden && resp.StatusCode != http.StatusTooManyRequests {
		return
	}
	if !said.RetryAt.IsZero() {
		said.Throttled = true
		return
	}
	var answer struct {
		Message string `json:"message"`
		URL     string `json:"documentation_url"`
	}
	if !decode(peek(), &answer) {
		return
	}
	message := strings.ToLower(answer.Message)
	if strings.Contains(message, "secondary rate limit") || strings.Contains(message, "abuse detection") ||
		strings.HasSuffix(answer.URL, "secondary-rate-limits") || strings.HasSuffix(answer.URL, "#abuse-rate-limits") {
		said.Throttled, said.Reason, said.Floor = true, "secondary rate limit", time.Minute
	}
}

// GraphQL is an [Inspector] for servers that refuse with the status 200 and an
// error whose code is THROTTLED or RATE_LIMITED, such as Shopify's, GitHub's and
// Linear's. It reads JSON answers with that status that are no streams, up to
// 64 KiB, so it costs those who use it a copy of them.
func GraphQL(resp *http.Response, peek func() []byte, said *ratelimit.Snapshot) {
	kind := resp.Header.Get("Content-Type")
	if resp.StatusCode != http.StatusOK || !strings.HasPrefix(kind, "application/json") && !strings.HasPrefix(kind, "application/graphql-response+json") {
		return
	}
	body := peek()
	if !bytes.Contains(body, []byte(`"errors"`)) {
		return // most are fine, and long
	}
	var answer struct {
		Errors []struct {
			Type       string `json:"type"`
			Extensions struct {
				Code string `json:"code"`
			} `json:"extensions"`
		} `json:"errors"`
	}
	if !decode(body, &answer) {
		return
	}
	for _, e := range answer.Errors {
		switch strings.ToUpper(e.Extensions.Code + e.Type) {
		case "THROTTLED", "RATE_LIMITED", "RATELIMITED":
			said.Throttled, said.Reason = true, "the answer says throttled"
		}
	}
}

// Google is an [Inspector] for the APIs of Google, which say in the body how long
// to wait after the statuses 429 and 503: {"error": {"details": [{"retryDelay":
// "2.463586755s"}]}}.
func Google(resp *http.Response, peek func() []byte, said *ratelimit.Snapshot) {
	if resp.StatusCode != http.StatusTooManyRequests && resp.StatusCode != http.StatusServiceUnavailable {
		return
	}
	var answer struct {
		Error struct {
			Details []struct {
				RetryDelay string `json:"retryDelay"`
			} `json:"details"`
		} `json:"error"`
	}
	if !decode(peek(), &answer) {
		return
	}
	for _, d := range answer.Error.Details {
		delay, err := time.ParseDuration(d.RetryDelay)
		if err != nil || delay <= 0 {
			continue
		}
		said.Throttled = true
		if at := time.Now().Add(delay); at.After(said.RetryAt) { // never earlier than the header says
			said.RetryAt, said.RetrySource = at, "retryDelay"
		}
	}
}

// decode decodes body into v as far as it can, and reports whether body is JSON. A
// field of another type than expected is left out: it hides no other.
func decode(body []byte, v any) bool {
	err := json.Unmarshal(body, v)
	_, differs := errors.AsType[*json.UnmarshalTypeError](err)
	return err == nil || differs
}
