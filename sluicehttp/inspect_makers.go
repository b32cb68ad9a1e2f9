package sluicehttp

import (
	"bytes"
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// azure inspects errors of Azure's services by their header: a storage account at its limits
// answers ServerBusy with the status 503. It does not say that nothing was done, so a POST is not
// sent again. https://learn.microsoft.com/rest/api/storageservices/common-rest-api-error-codes
func azure(a *answer) {
	code := a.resp.Header.Get("X-Ms-Error-Code")
	if !tooMany(code) {
		a.other = true
		return
	}
	a.throttled(code)
}

// stripe inspects which limit it was: one of the account, of an endpoint, or of a single object. A
// Stripe-Should-Retry of false with the first two is meant for loops that would come again immediately.
// https://docs.stripe.com/rate-limits
func stripe(a *answer) {
	switch reason := a.resp.Header.Get("Stripe-Rate-Limited-Reason"); {
	case a.resp.StatusCode != http.StatusTooManyRequests:
	case reason == "resource-specific":
		a.locked(reason)
	default:
		a.throttled(reason)
		a.said.ShouldRetry = nil
	}
}

// errorCode inspects {"error": {"code": …, "type": …}}, as of Azure's Resource Manager, whose codes
// are those of its header, OpenAI and Stripe.
// https://learn.microsoft.com/azure/azure-resource-manager/management/request-limits-and-throttling
// https://platform.openai.com/docs/guides/error-codes
// https://docs.stripe.com/error-codes#lock-timeout
func errorCode(a *answer) {
	var answer struct {
		Error struct {
			Code string `json:"code"`
			Type string `json:"type"`
		} `json:"error"`
	}
	if !decode(a.peek(), &answer) {
		return
	}
	switch e := answer.Error; {
	case e.Code == "insufficient_quota" || e.Type == "insufficient_quota":
		a.final("insufficient_quota") // there is no credit
	case tooMany(e.Code) || e.Code == "rate_limit_exceeded":
		a.throttled(e.Code)
	case e.Code == "lock_timeout" && a.resp.StatusCode == http.StatusTooManyRequests:
		a.locked(e.Code)
	}
}

// tooMany reports whether a code of Microsoft means too many calls. OperationTimedOut may be one at
// the limit of an account, too, but need not.
func tooMany(code string) bool {
	return code == "ServerBusy" || code == "TooManyRequests" || strings.HasSuffix(code, "Throttled")
}

// problemTypes is the prefix of the types of draft-ietf-httpapi-ratelimit-headers-10, section 5.
const problemTypes = "iana.org/assignments/http-problem-types#"

// problem inspects application/problem+json with one of these types. The policies that were
// violated may be limits that the header tells when they end.
func problem(a *answer) {
	var answer struct {
		Type     string   `json:"type"`
		Policies []string `json:"violated-policies"`
	}
	if !decode(a.peek(), &answer) {
		return
	}
	_, kind, _ := strings.Cut(answer.Type, problemTypes)
	switch kind {
	case "quota-exceeded", "temporary-reduced-capacity", "abnormal-usage-detected":
	default:
		return
	}
	a.throttled(kind)
	if len(answer.Policies) == 0 {
		return
	}
	a.said.Reason = answer.Policies[0]
	if !a.said.RetryAt.IsZero() {
		return
	}
	for i := range a.said.Limits {
		l := &a.said.Limits[i]
		if slices.Contains(answer.Policies, l.Name) && l.ResetAt.After(a.said.RetryAt) {
			a.said.RetryAt, a.said.RetrySource = l.ResetAt, l.Source
		}
	}
}

// retryAfterInBody inspects a 429 that says in the body how many seconds to wait, more exactly
// than its header, if there is one.
//
//	Discord   {"message": …, "retry_after": 0.42, "global": true}
//	          https://discord.com/developers/docs/topics/rate-limits
//	Telegram  {"ok": false, "error_code": 429, "parameters": {"retry_after": 5}}
//	          https://core.telegram.org/bots/api#responseparameters
func retryAfterInBody(a *answer) {
	if a.resp.StatusCode != http.StatusTooManyRequests {
		return
	}
	var answer struct {
		RetryAfter *float64 `json:"retry_after"`
		Global     *bool    `json:"global"`
		Parameters struct {
			RetryAfter float64 `json:"retry_after"`
		} `json:"parameters"`
	}
	if !decode(a.peek(), &answer) {
		return
	}
	if answer.RetryAfter != nil && answer.Global != nil {
		a.after(*answer.RetryAfter, "retry_after")
		a.said.Global = a.said.Global || *answer.Global
	}
	a.after(answer.Parameters.RetryAfter, "retry_after")
}

// ollama inspects the 503 of a server whose queue is full. The request did not get into it.
// https://docs.ollama.com/faq#how-does-ollama-handle-concurrent-requests
func ollama(a *answer) {
	if a.resp.StatusCode == http.StatusServiceUnavailable {
		a.throttled("the queue is full")
		a.untouched()
	}
}

// airtable inspects {"errors": [{"error": "RATE_LIMIT_REACHED", …}]}. The header names no time, but then a
// base accepts nothing for 30 s. https://airtable.com/developers/web/api/rate-limits
func airtable(a *answer) {
	var answer struct {
		Errors []struct {
			Error string `json:"error"`
		} `json:"errors"`
	}
	if a.resp.StatusCode != http.StatusTooManyRequests || !decode(a.peek(), &answer) {
		return
	}
	if len(answer.Errors) > 0 && answer.Errors[0].Error == "RATE_LIMIT_REACHED" && a.said.RetryAt.IsZero() {
		a.after(30, "RATE_LIMIT_REACHED")
	}
}

// meilisearch inspects the 503 of a server whose queue of searches is full. The search was not begun.
// https://www.meilisearch.com/docs/reference/errors/error_codes#too_many_search_requests
func meilisearch(a *answer) {
	if a.resp.StatusCode == http.StatusServiceUnavailable {
		a.throttled("the queue is full")
		a.untouched()
	}
}

// envoy inspects responses of a proxy that has not passed the request on, because there are too many
// for the server behind it. https://www.envoyproxy.io/docs/envoy/latest/configuration/http/http_filters/router_filter
func envoy(a *answer) {
	a.throttled("the proxy is at its limit")
	a.untouched()
}

// mashery inspects errors of the gateway of that name, whose status is 403: too many calls in a second,
// or in a longer period, mostly a day.
// https://support.mashery.com/docs/read/mashery_api/20_reporting/error_codes
func mashery(a *answer) {
	code := a.resp.Header.Get(masheryError)
	if strings.HasSuffix(code, "_OVER_QPS") {
		a.throttled(code)
		return
	}
	a.other = true
}

// qualys inspects 409, with which that server blocks calls: too many in a period, whose wait is in the header, or
// at the same time. https://docs.qualys.com/en/vm/api/scans/get_started/get_started.htm
func qualys(a *answer) {
	if a.resp.StatusCode != http.StatusConflict {
		return
	}
	number := func(field string) int {
		n, err := strconv.Atoi(a.resp.Header.Get(field))
		if err != nil {
			return -1
		}
		return n
	}
	if wait := number(qualysWait); wait > 0 {
		a.throttled("blocked")
		a.after(float64(wait), qualysWait)
	} else if most := number("X-Concurrency-Limit-Limit"); most > 0 && number("X-Concurrency-Limit-Running") >= most {
		a.throttled("too many at the same time")
	}
}

const qualysWait = "X-Ratelimit-Towait-Sec"

const masheryError = "X-Mashery-Error-Code"

// meta inspects a field that says in how many minutes calls for a business are accepted again:
// {"123": [{"type": "ads_management", "estimated_time_to_regain_access": 19, …}]}.
// https://developers.facebook.com/docs/graph-api/overview/rate-limiting#headers-2
func meta(a *answer) {
	var usage map[string][]struct {
		Minutes float64 `json:"estimated_time_to_regain_access"`
	}
	var answer struct {
		Error struct {
			Code int `json:"code"`
		} `json:"error"`
	}
	if !decode(a.peek(), &answer) || !slices.Contains([]int{4, 17, 32, 613}, answer.Error.Code) && answer.Error.Code/100 != 800 {
		return // the field is in all responses, and about all that the business uses
	}
	if !decode([]byte(a.resp.Header.Get(metaUsage)), &usage) {
		return
	}
	minutes := 0.
	for _, kinds := range usage {
		for _, kind := range kinds {
			minutes = max(minutes, kind.Minutes)
		}
	}
	if minutes > 0 {
		a.throttled("a limit for the business")
		a.after(60*minutes, metaUsage)
	}
}

const metaUsage = "X-Business-Use-Case-Usage"

// exchange inspects a fault of Exchange Web Services, whose status is 500: the mailbox has too many
// requests, of which this one was not begun.
// https://learn.microsoft.com/exchange/client-developer/exchange-web-services/ews-throttling-in-exchange
func exchange(a *answer) {
	a.throttled("ErrorServerBusy")
	a.untouched()
	_, wait, _ := bytes.Cut(a.peek(), []byte(`BackOffMilliseconds">`))
	wait, _, _ = bytes.Cut(wait, []byte("<"))
	if n, err := strconv.ParseFloat(string(wait), 64); err == nil {
		a.after(n/1000, "BackOffMilliseconds")
	}
}

// slack inspects {"ok": false, "error": "ratelimited"}, which Slack sends with 429 or 200.
// https://docs.slack.dev/apis/web-api/rate-limits
func slack(a *answer) {
	var answer struct {
		OK    *bool  `json:"ok"`
		Error string `json:"error"`
	}
	if decode(a.peek(), &answer) && answer.OK != nil && !*answer.OK && answer.Error == "ratelimited" {
		a.throttled(answer.Error)
		a.untouched()
	}
}

// A rpcReply is the reply of a server to a call of JSON-RPC.
type rpcReply struct {
	Version string `json:"jsonrpc"`
	Error   *struct {
		Code    float64 `json:"code"`
		Message string  `json:"message"`
		Data    struct {
			Rate struct {
				Backoff float64 `json:"backoff_seconds"`
			} `json:"rate"`
		} `json:"data"`
	} `json:"error"`
}

// jsonRPC inspects a response of JSON-RPC 2.0, or a batch of them, with any status. If a part of a
// batch was throttled, the others were not.
func jsonRPC(a *answer) {
	replies := []rpcReply{{}}
	body := bytes.TrimSpace(a.peek())
	if len(body) > 0 && body[0] == '[' {
		if !decode(body, &replies) {
			return
		}
	} else if !decode(body, &replies[0]) {
		return
	}
	throttled := 0
	for i := range replies {
		if r := &replies[i]; r.Version == "2.0" && r.throttled() {
			throttled++
			a.after(r.Error.Data.Rate.Backoff, "backoff_seconds")
		}
	}
	if throttled == 0 {
		return
	}
	a.throttled("the call exceeds a limit")
	if throttled < len(replies) {
		a.partly = true
		return
	}
	a.untouched()
}

// throttled reports whether the call was throttled because there were too many. -32005 is that in
// EIP-1474 ("Limit exceeded"), and the others at some providers. But the numbers are free for all:
// for Infura -32005 is also a query with too many results, for Solana a node that is behind, so
// the message has a say.
//
//	-32005  "daily request count exceeded, request rate limited"  Infura, Tenderly, Chainstack
//	        https://eips.ethereum.org/EIPS/eip-1474, https://docs.metamask.io/services/how-to/avoid-rate-limiting
//	-32007  "50/second request limit reached"  QuickNode
//	-32029, -32090  "Too many requests …"  others
//	429     Alchemy: https://www.alchemy.com/docs/reference/error-reference
func (r *rpcReply) throttled() bool {
	if r.Error == nil {
		return false
	}
	switch r.Error.Code {
	case 429:
		return true
	case -32005, -32007, -32029, -32090:
	default:
		return false
	}
	message := strings.ToLower(r.Error.Message)
	within := func(word string) bool { return strings.Contains(message, word) }
	if slices.ContainsFunc([]string{"result", "range", "block", "logs", "response", "size", " gas"}, within) {
		return false // of one query
	}
	return message == "" && r.Error.Code == -32005 ||
		slices.ContainsFunc([]string{"limit", "too many", "exceed", "throttl", "capacity", "per second"}, within)
}

// A shopifyCost has the fields of a response of Shopify with the cost of a query and the remaining
// points. https://shopify.dev/docs/api/usage/limits
type shopifyCost struct {
	Requested float64 `json:"requestedQueryCost"`
	Status    struct {
		Available float64 `json:"currentlyAvailable"`
		Rate      float64 `json:"restoreRate"`
	} `json:"throttleStatus"`
}

// wait returns the seconds until the query is affordable, or 0 if that is unknown.
func (c *shopifyCost) wait() float64 {
	if missing := c.Requested - c.Status.Available; missing > 0 && c.Status.Rate > 0 {
		return missing / c.Status.Rate
	}
	return 0
}

// graphQL inspects errors of GraphQL with any status. With data the query was carried out in part.
//
//	Shopify  200, extensions.code THROTTLED, and extensions.cost beside the errors
//	GitHub   200, type RATE_LIMITED: https://docs.github.com/graphql/overview/rate-limits-and-query-limits-for-the-graphql-api
//	Linear   400, extensions.code RATELIMITED: https://linear.app/developers/rate-limiting
//	monday   200, extensions.code COMPLEXITY_BUDGET_EXHAUSTED and extensions.retry_in_seconds
func graphQL(a *answer) {
	var answer struct {
		Data   json.RawMessage `json:"data"`
		Errors []struct {
			Type       string `json:"type"`
			Extensions struct {
				Code string  `json:"code"`
				Type string  `json:"type"`
				Wait float64 `json:"retry_in_seconds"`
			} `json:"extensions"`
		} `json:"errors"`
		Extensions struct {
			Cost shopifyCost `json:"cost"`
		} `json:"extensions"`
	}
	if !decode(a.peek(), &answer) {
		return
	}
	throttled, wait := false, 0.
	for _, e := range answer.Errors {
		if slices.ContainsFunc([]string{e.Type, e.Extensions.Code, e.Extensions.Type}, throttledQuery) {
			throttled, wait = true, max(wait, e.Extensions.Wait)
		}
	}
	if !throttled {
		return
	}
	a.throttled("the body says throttled")
	a.after(answer.Extensions.Cost.wait(), "throttleStatus")
	a.afterWithHeader(wait, "retry_in_seconds")
	if len(answer.Data) > 0 && string(answer.Data) != "null" {
		a.partly = true
		return
	}
	a.untouched()
}

// throttledQuery reports whether a code of a GraphQL error means too many calls.
func throttledQuery(code string) bool {
	switch code = strings.ToUpper(code); code {
	case "THROTTLED", "RATE_LIMITED", "RATELIMITED", "RATE_LIMIT", "TOO_MANY_REQUESTS",
		"COMPLEXITY_BUDGET_EXHAUSTED", "FIELD_LIMIT_EXCEEDED", "MAXCONCURRENCYEXCEEDED", "RATE LIMIT EXCEEDED":
		return true
	}
	return strings.HasSuffix(code, "RATE_LIMIT_EXCEEDED") // also IP_…, FIELD_MINUTE_…
}

// A googleError is an error of an API of Google. Older ones have errors, newer ones a status and
// details: https://google.aip.dev/193
type googleError struct {
	Error struct {
		Status string `json:"status"`
		Errors []struct {
			Reason string `json:"reason"`
		} `json:"errors"`
		Details []struct {
			Reason     string `json:"reason"`
			RetryDelay string `json:"retryDelay"`
			Violations []struct {
				QuotaID string `json:"quotaId"`
			} `json:"violations"`
		} `json:"details"`
	} `json:"error"`
}

// google inspects errors of Google.
//
//	https://developers.google.com/workspace/drive/api/guides/handle-errors
//	https://cloud.google.com/bigquery/docs/error-messages
//	https://ai.google.dev/gemini-api/docs/rate-limits
func google(a *answer) {
	if a.resp.StatusCode < 400 {
		return
	}
	// Gemini answers a stream that was asked for without SSE with a list, also in errors.
	answers := []googleError{{}}
	body := bytes.TrimSpace(a.peek())
	if len(body) > 0 && body[0] == '[' {
		if !decode(body, &answers) {
			return
		}
	} else if !decode(body, &answers[0]) {
		return
	}
	for i := range answers {
		answers[i].inspect(a)
	}
}

func (g *googleError) inspect(a *answer) {
	reasons := make([]string, 0, 8)
	var delay time.Duration
	for _, e := range g.Error.Errors {
		reasons = append(reasons, e.Reason)
	}
	for _, d := range g.Error.Details {
		reasons = append(reasons, d.Reason)
		if wait, err := time.ParseDuration(d.RetryDelay); err == nil {
			delay = max(delay, wait)
		}
		for _, v := range d.Violations {
			// The delay that is sent with it is that of another limit.
			if strings.Contains(v.QuotaID, "PerDay") {
				reasons = append(reasons, "dailyLimitExceeded")
			}
		}
	}
	tooMany := g.Error.Status == "RESOURCE_EXHAUSTED"
	for _, reason := range reasons {
		switch reason {
		case "dailyLimitExceeded", "dailyLimitExceededUnreg":
			a.final(reason) // until midnight in California
			return
		case "rateLimitExceeded", "userRateLimitExceeded", "rateLimitExceededUnreg", "userRateLimitExceededUnreg",
			"RATE_LIMIT_EXCEEDED", "concurrentLimitExceeded", "servingLimitExceeded":
			tooMany = true
			a.said.Reason = reason
		}
	}
	status := a.resp.StatusCode
	if tooMany || delay > 0 && (status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable) {
		a.said.Throttled = true
		if at := time.Now().Add(delay); delay > 0 && at.After(a.said.RetryAt) { // not earlier than the header says
			a.said.RetryAt, a.said.RetrySource = at, "retryDelay"
		}
		return
	}
	a.other = a.other || g.Error.Status != "" || len(g.Error.Errors) > 0
}
