package sluicehttp

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
)

const mostWords = 4 << 10 // bytes: who throttles says so at the beginning, if not in its title

// tooManyWords are the words for too many calls in errors of servers that are not known, in lower
// case and with blanks for underscores and hyphens.
//
//	403  <title>SEC.gov | Request Rate Threshold Exceeded</title>
//	     https://www.sec.gov/about/webmaster-frequently-asked-questions
//	400  {"error": {"message": "(#4) Application request limit reached", "type": "OAuthException", "code": 4}}
//	     https://developers.facebook.com/docs/graph-api/overview/rate-limiting
//	400  {"error": {"code": 613, "message": "(#613) Calls to this api have exceeded the rate limit."}}
var tooManyWords = []string{
	"too many requests", "too many calls",
	"rate limit exceeded", "rate limit reached", "rate limit has been", "rate limited", "ratelimited",
	"secondary rate limit", "exceeded the rate limit", "exceeded your rate limit", "exceeded rate limit",
	"request rate threshold exceeded", "request limit reached", "reduce your request rate",
}

var blanks = strings.NewReplacer("_", " ", "-", " ")

// longWords are those for a limit that ends in hours at the earliest.
var longWords = []string{"daily", "per day", "24 hour", "monthly", "per month"}

// inWords inspects errors whose text says that there were too many calls. A server that fails may
// repeat the words of another one behind it, after it did a part of the request.
func inWords(a *answer) {
	if a.said.Throttled || a.said.ShouldRetry != nil || a.other {
		return // a maker has said more
	}
	text := a.peek()
	words := blanks.Replace(strings.ToLower(string(text[:min(len(text), mostWords)])))
	within := func(s string) bool { return strings.Contains(words, s) }
	if !slices.ContainsFunc(tooManyWords, within) || slices.ContainsFunc(longWords, within) {
		return
	}
	a.throttled("the body says so")
	a.partly = a.resp.StatusCode >= 500
}

// wordy reports whether resp is an error whose text inWords reads: what is missing or not allowed is
// not throttled.
func wordy(resp *http.Response, kind string) bool {
	switch resp.StatusCode {
	case http.StatusUnauthorized, http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusGone:
		return false
	}
	return kind == "text/html" || kind == "text/plain" || jsonError(resp, kind)
}

// mediaWiki inspects an error of MediaWiki, whose status is 200. A server whose replicas are behind
// says for how long to wait. https://www.mediawiki.org/wiki/API:Etiquette
func mediaWiki(a *answer) {
	code := a.resp.Header.Get(mediaWikiError)
	a.throttled(code)
	if wait, err := strconv.Atoi(a.resp.Header.Get("Retry-After")); err == nil {
		a.after(float64(wait), "Retry-After")
	}
}

const mediaWikiError = "Mediawiki-Api-Error"

// ofMediaWiki reports whether resp is a throttle of MediaWiki.
func ofMediaWiki(resp *http.Response) bool {
	code := resp.Header[mediaWikiError]
	return len(code) > 0 && (code[0] == "maxlag" || code[0] == "ratelimited")
}

// googleMaps inspects {"status": "OVER_QUERY_LIMIT"}, with status 200.
// https://developers.google.com/maps/documentation/geocoding/requests-geocoding#StatusCodes
func googleMaps(a *answer) {
	var answer struct {
		Status  string `json:"status"`
		Message string `json:"error_message"`
	}
	if !decode(a.peek(), &answer) || answer.Status != "OVER_QUERY_LIMIT" {
		return
	}
	if strings.Contains(answer.Message, "daily") {
		a.final(answer.Status)
		return
	}
	a.throttled(answer.Status)
}

// toGoogleMaps reports whether the request of c is one of Google's older APIs for maps.
func (c *call) toGoogleMaps() bool { return strings.HasPrefix(c.req.URL.Path, "/maps/api/") }

// etherscan inspects {"status": "0", "message": "NOTOK", "result": "Max rate limit reached"}, with
// status 200, of Etherscan and the explorers that took over its API.
// https://docs.etherscan.io/resources/common-error-messages
func etherscan(a *answer) {
	var answer struct {
		Status string `json:"status"`
		Result string `json:"result"`
	}
	switch {
	case !decode(a.peek(), &answer) || answer.Status != "0" || !strings.Contains(answer.Result, "rate limit reached"):
	case strings.Contains(answer.Result, "daily"):
		a.final("the quota of a day")
	default:
		a.throttled(answer.Result)
	}
}

// toEtherscan reports whether the request of c is of Etherscan's API.
func (c *call) toEtherscan() bool {
	path := c.req.URL.Path
	return (path == "/api" || path == "/v2/api") && strings.Contains(c.req.URL.RawQuery, "module=")
}
