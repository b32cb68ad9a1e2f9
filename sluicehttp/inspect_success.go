package sluicehttp

import (
	"net/http"
	"strconv"
	"strings"
)

// APIs that throttle with status 200. Each has a place, the paths of its requests or a field of the
// header, because a response with status 200 is not read otherwise.

// place returns the maker whose API the request of c is of, by its path, or 0.
func (c *call) place(resp *http.Response) int {
	path := c.req.URL.Path
	switch {
	case strings.HasSuffix(path, "api.php"):
		if ofMediaWiki(resp) {
			return mediaWikiMaker
		}
	case strings.HasPrefix(path, "/maps/api/"):
		return googleMapsMaker
	case strings.HasPrefix(path, "/0/p"):
		return krakenMaker
	case strings.HasPrefix(path, "/v5/"):
		if len(resp.Header[bybitStatus]) > 0 {
			return bybitMaker
		}
	case strings.HasPrefix(path, "/method/"):
		return vkMaker
	case path == "/sms/json":
		return vonageMaker
	case strings.HasPrefix(path, "/rest/"):
		if strings.HasSuffix(c.req.URL.Host, ".mktorest.com") {
			return marketoMaker
		}
	case path == "/v2":
		if c.req.URL.Host == "api.monday.com" {
			return mondayMaker
		}
	case path == "/api" || path == "/v2/api":
		if strings.Contains(c.req.URL.RawQuery, "module=") {
			return etherscanMaker
		}
	}
	return 0
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

// googleMaps inspects {"status": "OVER_QUERY_LIMIT"}.
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

// etherscan inspects {"status": "0", "message": "NOTOK", "result": "Max rate limit reached"} of
// Etherscan and the explorers that took over its API.
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

// kraken inspects {"error": ["EAPI:Rate limit exceeded"]}, and "EService: Throttled: 1700000000" with
// the time to come back. A private call has a nonce, which is good for one.
// https://docs.kraken.com/api/docs/guides/spot-rest-ratelimits
func kraken(a *answer) {
	var answer struct {
		Error []string `json:"error"`
	}
	if !decode(a.peek(), &answer) || len(answer.Error) == 0 {
		return
	}
	reason := answer.Error[0]
	_, until, throttled := strings.Cut(reason, "Throttled:")
	if !throttled && !strings.HasSuffix(reason, "Rate limit exceeded") {
		return
	}
	a.throttled(reason)
	a.partly = a.resp.Request != nil && strings.HasPrefix(a.resp.Request.URL.Path, "/0/private/")
	a.after(a.until("Retry-After", strings.TrimSpace(until)).Seconds(), "the body")
}

// bybit inspects {"retCode": 10006, "retMsg": "Too many visits!"}. The header says when the limit ends,
// in milliseconds since 1970. https://bybit-exchange.github.io/docs/v5/rate-limit
func bybit(a *answer) {
	var answer struct {
		Code int `json:"retCode"`
	}
	if !decode(a.peek(), &answer) || answer.Code != 10006 && answer.Code != 10018 {
		return
	}
	a.throttled("too many visits")
	a.after(a.until("Retry-After", a.resp.Header.Get("X-Bapi-Limit-Reset-Timestamp")).Seconds(), "X-Bapi-Limit-Reset-Timestamp")
}

const bybitStatus = "X-Bapi-Limit-Status"

// vk inspects {"error": {"error_code": 6, "error_msg": "Too many requests per second"}}; 29 is the
// quota of a day. https://dev.vk.com/en/reference/errors
func vk(a *answer) {
	var answer struct {
		Error struct {
			Code    int    `json:"error_code"`
			Message string `json:"error_msg"`
		} `json:"error"`
	}
	switch {
	case !decode(a.peek(), &answer):
	case answer.Error.Code == 6:
		a.throttled(answer.Error.Message)
	case answer.Error.Code == 29:
		a.final(answer.Error.Message)
	}
}

// vonage inspects the reply to a message that was throttled: {"messages": [{"status": "1",
// "error-text": "Throughput Rate Exceeded - please wait [ 250 ] and retry"}]}, in milliseconds.
// https://developer.vonage.com/en/messaging/sms/guides/troubleshooting-sms
func vonage(a *answer) {
	var answer struct {
		Messages []struct {
			Status string `json:"status"`
			Text   string `json:"error-text"`
		} `json:"messages"`
	}
	if !decode(a.peek(), &answer) {
		return
	}
	for _, m := range answer.Messages {
		if m.Status != "1" {
			a.partly = true // a part of a long message was sent
			continue
		}
		a.throttled(m.Text)
		_, wait, _ := strings.Cut(m.Text, "[")
		wait, _, _ = strings.Cut(wait, "]")
		if n, err := strconv.ParseFloat(strings.TrimSpace(wait), 64); err == nil {
			a.after(n/1000, "error-text")
		}
	}
}

// marketo inspects {"success": false, "errors": [{"code": "606", "message": "Max rate limit '100'
// exceeded with in '20' secs"}]}; 615 is the limit of calls in flight, 607 the quota of a day.
// https://experienceleague.adobe.com/en/docs/marketo-developer/marketo/rest/error-codes
func marketo(a *answer) {
	var answer struct {
		Success bool `json:"success"`
		Errors  []struct {
			Code    string `json:"code"`
			Message string `json:"message"`
		} `json:"errors"`
	}
	if !decode(a.peek(), &answer) || answer.Success {
		return
	}
	for _, e := range answer.Errors {
		switch e.Code {
		case "606", "615":
			a.throttled(e.Message)
		case "607":
			a.final(e.Message)
		}
	}
}

// monday inspects errors of GraphQL at a path that does not say so. In its old versions they have no
// extensions: {"error_code": "ComplexityException", "error_message": "Complexity budget exhausted, …
// reset in 3 seconds"}. The same code, with another message, is a query that is never accepted.
// https://developer.monday.com/api-reference/docs/error-handling
// https://developer.monday.com/api-reference/changelog
func monday(a *answer) {
	if graphQL(a); a.said.Throttled {
		return
	}
	var answer struct {
		Code    string `json:"error_code"`
		Message string `json:"error_message"`
		Data    struct {
			Wait float64 `json:"retry_in_seconds"`
		} `json:"error_data"`
	}
	if !decode(a.peek(), &answer) {
		return
	}
	message := strings.ToLower(answer.Message)
	if throttledQuery(answer.Code) || answer.Code == "ComplexityException" && strings.Contains(message, "budget exhausted") {
		a.throttled(answer.Code)
		a.afterWithHeader(max(answer.Data.Wait, waitInText(message).Seconds()), "the body")
	}
}
