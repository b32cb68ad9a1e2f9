package sluicehttp

import (
	"encoding/json"
	"errors"
	"math"
	"net/http"
	"strings"
	"time"

	"github.com/sluice-go/sluice/sluicehttp/ratelimit"
)

// An answer is a response that is being inspected.
type answer struct {
	resp *http.Response
	peek func() []byte
	said *ratelimit.Info

	// partly reports that the server did a part of the request, so that it must not be sent again
	// unless it is idempotent.
	partly bool

	// other reports that the server names another reason, so that a status such as 403, which may
	// mean too many calls, does not.
	other bool

	// atOnce reports that the server throttled because of the calls in flight at the same time.
	atOnce bool
}

// throttled notes that the server did nothing because there were too many calls.
func (a *answer) throttled(reason string) {
	a.said.Throttled, a.said.Reason = true, reason
}

// untouched notes that the response itself says that nothing was done: a status such as 503 alone
// does not.
func (a *answer) untouched() {
	if a.said.ShouldRetry == nil && a.resp.StatusCode >= 500 {
		a.said.ShouldRetry = new(true)
	}
}

// locked notes that another call is at the same object: there were not too many, and a later attempt
// may succeed. Nothing was done.
func (a *answer) locked(reason string) {
	a.said.Throttled, a.said.Reason = false, reason
	if a.said.ShouldRetry == nil {
		a.said.ShouldRetry = new(true)
	}
}

// final notes that no waiting of minutes ends it.
func (a *answer) final(reason string) {
	a.said.ShouldRetry, a.said.Reason = new(false), reason
}

// after notes that the server wants a wait of some seconds, as source says. A header that says
// more is respected, unless it was only rounded up to a second.
func (a *answer) after(seconds float64, source string) {
	const most = 1e9 // 31 years; Config.MaxPause is less, and a Duration has room for it
	if !(seconds > 0) {
		return
	}
	at := time.Now().Add(time.Duration(math.Round(min(seconds, most) * float64(time.Second))))
	if a.said.RetryAt.Sub(at) < time.Second {
		a.said.RetryAt, a.said.RetrySource = at, source
	}
}

// afterWithHeader is after for a response whose status may be 200: its Retry-After has not been read.
func (a *answer) afterWithHeader(seconds float64, source string) {
	if field := a.resp.Header.Get("Retry-After"); field != "" && a.resp.StatusCode < 300 {
		a.after(a.until("Retry-After", field).Seconds(), "Retry-After")
	}
	a.after(seconds, source)
}

// withHeader returns a maker.looks for errors with a field, whose name is canonical.
func withHeader(name string) func(*http.Response, string) bool {
	return func(resp *http.Response, _ string) bool { return len(resp.Header[name]) > 0 }
}

// never is the maker.looks of those that throttle only with status 200.
func never(*http.Response, string) bool { return false }

// ofType returns a maker.looks for errors with a media type.
func ofType(want string) func(*http.Response, string) bool {
	return func(_ *http.Response, kind string) bool { return kind == want }
}

// mediaType returns the media type of resp, in lower case and without parameters.
func mediaType(resp *http.Response) string {
	kind, _, _ := strings.Cut(resp.Header.Get("Content-Type"), ";")
	return strings.ToLower(strings.TrimSpace(kind))
}

// xmlError reports whether resp is an error with a body of XML.
func xmlError(_ *http.Response, kind string) bool {
	return kind == "text/xml" || kind == "application/xml" || kind == "application/soap+xml"
}

// jsonError reports whether resp is an error with a body of JSON. No maker throttles with 401 or
// 404, and 404 is the most frequent error.
func jsonError(resp *http.Response, kind string) bool {
	if resp.StatusCode == http.StatusNotFound || resp.StatusCode == http.StatusUnauthorized {
		return false
	}
	return kind == "application/json" || strings.HasPrefix(kind, "application/") && strings.HasSuffix(kind, "+json")
}

// shortJSON reports whether resp is JSON that is not too long to be a throttle.
func shortJSON(resp *http.Response) bool {
	if resp.ContentLength > mostPeeked {
		return false
	}
	kind := resp.Header["Content-Type"]
	return len(kind) > 0 && (strings.HasPrefix(kind[0], "application/json") || strings.HasPrefix(kind[0], "application/graphql-response+json"))
}

// decode decodes body into v and reports whether body is JSON. It skips fields of an
// unexpected type.
func decode(body []byte, v any) bool {
	err := json.Unmarshal(body, v)
	_, differs := errors.AsType[*json.UnmarshalTypeError](err)
	return err == nil || differs
}
