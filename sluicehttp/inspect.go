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

// GitHub is an [Inspector] for the secondary limits of GitHub. They have the status 403 or
// 429, and only the body distinguishes them from a forbidden call. If GitHub does not say
// when to retry, the wait is a minute, doubled for each further throttle, as GitHub documents.
func GitHub(resp *http.Response, peek func() []byte, said *ratelimit.Info) {
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

// GraphQL is an [Inspector] for servers that throttle with the status 200 and an error whose
// code is THROTTLED or RATE_LIMITED, such as Shopify, GitHub and Linear. It copies up to
// 64 KiB of every JSON response with that status.
func GraphQL(resp *http.Response, peek func() []byte, said *ratelimit.Info) {
	kind := resp.Header.Get("Content-Type")
	if resp.StatusCode != http.StatusOK || !strings.HasPrefix(kind, "application/json") && !strings.HasPrefix(kind, "application/graphql-response+json") {
		return
	}
	body := peek()
	if !bytes.Contains(body, []byte(`"errors"`)) {
		return // most responses have no errors
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
			said.Throttled, said.Reason = true, "the body says throttled"
		}
	}
}

// Google is an [Inspector] for the APIs of Google, whose responses with status 429 or 503 say
// in the body how long to wait: {"error": {"details": [{"retryDelay": "2.463586755s"}]}}.
func Google(resp *http.Response, peek func() []byte, said *ratelimit.Info) {
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
		if at := time.Now().Add(delay); at.After(said.RetryAt) { // not earlier than the header says
			said.RetryAt, said.RetrySource = at, "retryDelay"
		}
	}
}

// decode decodes body into v and reports whether body is JSON. It skips fields of an
// unexpected type.
func decode(body []byte, v any) bool {
	err := json.Unmarshal(body, v)
	_, differs := errors.AsType[*json.UnmarshalTypeError](err)
	return err == nil || differs
}
