package sluicehttp_test

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-go/sluice"
	"github.com/sluice-go/sluice/internal/testkit/built"
	"github.com/sluice-go/sluice/sluicehttp"
	"github.com/sluice-go/sluice/sluicehttp/internal/inspect"
	"github.com/sluice-go/sluice/sluicehttp/ratelimit"
	"github.com/sluice-go/sluice/sluicetest"
)

// A word is how a server says no, or something that looks similar.
type word struct {
	name   string
	status int
	header string // lines with | between them; the type is JSON if there is none
	path   string // of the request, or its URL
	sent   string // its body; a GET if there is none
	body   string // of the response

	// When a POST is sent again that is idempotent, and one that is not; 0 for never. A throttle
	// without a time is backed off from for a second, another failure for five.
	idempotent, post time.Duration
}

const (
	second  = time.Second
	another = 5 * time.Second // not a throttle

	xmlType     = "Content-Type: application/xml"
	problemType = "Content-Type: application/problem+json"
	azureBusy   = xmlType + "|X-Ms-Error-Code: ServerBusy|X-Ms-Request-Id: 1"

	call  = `{"jsonrpc":"2.0","id":1,"method":"eth_chainId","params":[]}`
	calls = `[{"jsonrpc":"2.0","id":1,"method":"a"},{"jsonrpc":"2.0","id":2,"method":"b"}]`

	googleForbidden = `{"error": {"code": 403, "message": "x", "errors": [{"domain": "usageLimits", "reason": %q, "message": "x"}]}}`
	googleStatus    = `{"error": {"code": %d, "message": "x", "status": %q, "details": [%s]}}`
	retryInfo       = `{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "2.5s"}`
	shopify         = `{"errors": [{"message": "Throttled", "extensions": {"code": "THROTTLED", "documentation": "https://shopify.dev/api/usage/rate-limits"}}], "extensions": {"cost": {"requestedQueryCost": %v, "actualQueryCost": null, "throttleStatus": {"maximumAvailable": 1000.0, "currentlyAvailable": %v, "restoreRate": %v}}}}`
	problemOf       = `{"type": "https://iana.org/assignments/http-problem-types#%s", "title": "x", "violated-policies": ["daily", "bandwidth"]}`
	infura          = `{"jsonrpc":"2.0","id":1,"error":{"code":-32005,"message":"daily request count exceeded, request rate limited","data":{"rate":{"allowed_rps":1,"backoff_seconds":%v,"current_rps":1.4},"see":"https://infura.io/dashboard"}}}`
	refusedCall     = `{"jsonrpc":"2.0","id":1,"error":{"code":%v,"message":%q}}`
)

// words are what makers document, each with its place.
var words = []word{
	// https://learn.microsoft.com/rest/api/storageservices/common-rest-api-error-codes: 503, which may
	// come from the middle of a write.
	{"Azure Blob, ServerBusy", 503, azureBusy, "/", "x", "<Error><Code>ServerBusy</Code></Error>", second, 0},
	{"Azure Blob, without a body", 503, "X-Ms-Error-Code: ServerBusy", "/", "x", "", second, 0},
	{"Azure Blob, with a time", 503, azureBusy + "|Retry-After: 3", "/", "x", "", 3 * second, 0},
	// https://www.sec.gov/about/webmaster-frequently-asked-questions
	{"words, HTML", 403, "Content-Type: text/html", "/", "x", "<html><title>SEC.gov | Request Rate Threshold Exceeded</title>", second, second},
	{"words, text", 418, "Content-Type: text/plain; charset=utf-8", "/", "x", "Rate-limit exceeded\n", second, second},
	{"words, a title beyond them", 403, "Content-Type: text/html", "/", "x", strings.Repeat(" ", 5000) + "rate limit exceeded", 0, 0},
	// https://developers.facebook.com/docs/graph-api/overview/rate-limiting
	{"Meta, an application", 400, "", "/", "x", `{"error":{"message":"(#4) Application request limit reached","type":"OAuthException","code":4}}`, second, second},
	{"Meta, calls", 400, "", "/", "x", `{"error":{"message":"(#613) Calls to this api have exceeded the rate limit.","code":613}}`, second, second},
	{"words of a server behind it", 500, "", "/", "x", `{"error":"charge: RATE_LIMIT_EXCEEDED"}`, second, 0},
	{"words, a day", 403, "", "/", "x", `{"error":"daily rate limit exceeded"}`, 0, 0},
	{"words, not found", 404, "", "/", "x", `{"error":"rate limit exceeded"}`, 0, 0},
	{"words about limits", 403, "", "/", "x", `{"error":"missing scope","docs":"https://a.test/rate-limits"}`, 0, 0},
	// https://developers.binance.com/docs/binance-spot-api-docs/rest-api/limits
	{"Binance, a ban", 418, "Content-Type: application/json|Retry-After: 3", "/", "x", `{"code":-1003,"msg":"Way too many requests; IP banned until 1659146400000."}`, 3 * second, 3 * second},
	// https://www.mediawiki.org/wiki/API:Etiquette, https://www.mediawiki.org/wiki/Manual:Maxlag_parameter
	{"MediaWiki, lag", 200, "Content-Type: application/json; charset=utf-8|MediaWiki-API-Error: maxlag|Retry-After: 5", "/w/api.php", "", `{"error":{"code":"maxlag","info":"Waiting for 10.64.16.7: 6.4 seconds lagged."}}`, 5 * second, 5 * second},
	{"MediaWiki, a limit", 200, "Content-Type: application/json; charset=utf-8|MediaWiki-API-Error: ratelimited", "/w/api.php", "", `{"error":{"code":"ratelimited","info":"You've exceeded your rate limit."}}`, second, second},
	{"MediaWiki, a title", 200, "Content-Type: application/json; charset=utf-8|MediaWiki-API-Error: invalidtitle", "/w/api.php", "", `{"error":{"code":"invalidtitle"}}`, 0, 0},
	// https://developers.google.com/maps/documentation/geocoding/requests-geocoding#StatusCodes
	{"Google Maps", 200, "", "/maps/api/geocode/json", "", "{\n   \"error_message\" : \"You have exceeded your rate-limit for this API.\",\n   \"results\" : [],\n   \"status\" : \"OVER_QUERY_LIMIT\"\n}", second, second},
	{"Google Maps, a day", 200, "", "/maps/api/geocode/json", "", `{"error_message":"You have exceeded your daily request quota for this API.","status":"OVER_QUERY_LIMIT"}`, 0, 0},
	{"Google Maps, fine", 200, "", "/maps/api/geocode/json", "", `{"results":[],"status":"OK"}`, 0, 0},
	// https://docs.etherscan.io/resources/common-error-messages
	{"Etherscan", 200, "", "/v2/api?chainid=1&module=account&action=balance", "", `{"status":"0","message":"NOTOK","result":"Max calls per sec rate limit reached (5/sec)"}`, second, second},
	{"Etherscan, a day", 200, "", "/api?module=account", "", `{"status":"0","message":"NOTOK","result":"Max daily rate limit reached. 100000 (100%) of 100000 day/limit"}`, 0, 0},
	{"Etherscan, another API", 200, "", "/api?action=balance", "", `{"status":"0","result":"Max rate limit reached"}`, 0, 0},
	// https://learn.microsoft.com/rest/api/storagerp/srp_error_codes_common
	{"Azure Storage Resource Provider", 409, "X-Ms-Error-Code: ResourceCollectionRequestsThrottled", "/", "x", "", second, second},
	// https://learn.microsoft.com/azure/azure-resource-manager/management/request-limits-and-throttling
	{"Azure Resource Manager", 403, "", "/", "x", `{"error":{"code":"SubscriptionRequestsThrottled","message":"x"}}`, second, second},
	{"Azure Resource Manager, 429", 429, "Content-Type: application/json|Retry-After: 7|X-Ms-RateLimit-Remaining-Subscription-Reads: 0", "/", "x", `{"error":{"code":"TooManyRequests","message":"x"}}`, 7 * second, 7 * second},
	// https://learn.microsoft.com/azure/ai-services/openai/quotas-limits
	{"Azure OpenAI", 429, "Content-Type: application/json|Retry-After-Ms: 600|Retry-After: 1", "/", "x", `{"error":{"code":"429","message":"Requests to … have exceeded call rate limit"}}`, 600 * ms, 600 * ms},

	// https://developers.google.com/workspace/drive/api/guides/handle-errors
	{"Google Drive, user", 403, "Content-Type: application/json; charset=UTF-8", "/", "x", fmt.Sprintf(googleForbidden, "userRateLimitExceeded"), second, second},
	{"Google Drive, project", 403, "", "/", "x", fmt.Sprintf(googleForbidden, "rateLimitExceeded"), second, second},
	{"Google Drive, 429", 429, "", "/", "x", fmt.Sprintf(googleForbidden, "rateLimitExceeded"), second, second},
	// https://google.aip.dev/193, https://ai.google.dev/gemini-api/docs/rate-limits
	{"Google, RetryInfo", 429, "", "/", "x", fmt.Sprintf(googleStatus, 429, "RESOURCE_EXHAUSTED", retryInfo), 2500 * ms, 2500 * ms},
	{"Google, RetryInfo, 503", 503, "", "/", "x", fmt.Sprintf(googleStatus, 503, "UNAVAILABLE", retryInfo), 2500 * ms, 0},
	{"Google, exhausted", 400, "", "/", "x", fmt.Sprintf(googleStatus, 400, "RESOURCE_EXHAUSTED", ""), second, second},
	{"Google, ErrorInfo", 403, "", "/", "x", fmt.Sprintf(googleStatus, 403, "PERMISSION_DENIED", `{"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "RATE_LIMIT_EXCEEDED", "domain": "googleapis.com"}`), second, second},
	{"Gemini, a stream without SSE", 429, "", "/", "x", "[" + fmt.Sprintf(googleStatus, 429, "RESOURCE_EXHAUSTED", retryInfo) + "\n]", 2500 * ms, 2500 * ms},

	// https://shopify.dev/docs/api/usage/limits
	{"Shopify", 200, "", "/admin/api/2026-10/graphql.json", "{}", fmt.Sprintf(shopify, 218, 118, 40.0), 2500 * ms, 2500 * ms},
	{"Shopify, there is enough by now", 200, "", "/admin/api/2026-10/graphql.json", "{}", fmt.Sprintf(shopify, 20, 118, 50.0), second, second},
	// https://docs.github.com/graphql/overview/rate-limits-and-query-limits-for-the-graphql-api
	{"GitHub GraphQL", 200, "", "/graphql", "{}", `{"data": null, "errors": [{"type": "RATE_LIMITED", "message": "API rate limit exceeded"}]}`, second, second},
	{"GitHub GraphQL, with a time", 200, "Content-Type: application/json|Retry-After: 9", "/graphql", "{}", `{"errors": [{"type": "RATE_LIMITED"}]}`, 9 * second, 9 * second},
	// https://linear.app/developers/rate-limiting
	{"Linear", 400, "", "/", "{}", `{"errors":[{"message":"Rate limit exceeded","extensions":{"type":"ratelimited","code":"RATELIMITED","statusCode":429}}]}`, second, second},
	{"Linear, with limits", 400, "Content-Type: application/json|X-RateLimit-Requests-Limit: 5|X-RateLimit-Requests-Remaining: 0|X-RateLimit-Requests-Reset: 20", "/", "{}", `{"errors":[{"extensions":{"code":"RATELIMITED"}}]}`, 20 * second, 20 * second},
	{"Linear, 503", 503, "", "/", "{}", `{"errors":[{"message":"Rate limit exceeded","extensions":{"code":"RATELIMITED"}}]}`, second, second},
	{"GraphQL, its own type", 200, "Content-Type: application/graphql-response+json", "/api/graphql", "{}", `{"errors":[{"extensions":{"code":"rate_limited"}}]}`, second, second},
	// https://developer.monday.com/api-reference/docs/error-handling, …/docs/rate-limits
	{"monday.com", 200, "", "https://api.monday.com/v2", "{}", `{"errors":[{"message":"Complexity budget exhausted","extensions":{"code":"COMPLEXITY_BUDGET_EXHAUSTED","retry_in_seconds":7}}]}`, 7 * second, 7 * second},
	{"monday.com, with a time in the header", 200, "Content-Type: application/json; charset=utf-8|Retry-After: 12", "https://api.monday.com/v2", "{}", `{"errors":[{"message":"Complexity budget exhausted","extensions":{"code":"COMPLEXITY_BUDGET_EXHAUSTED","retry_in_seconds":7}}]}`, 12 * second, 12 * second},
	{"monday.com, IP", 200, "", "https://api.monday.com/v2", "{}", `{"errors":[{"extensions":{"code":"IP_RATE_LIMIT_EXCEEDED"}}]}`, second, second},
	{"monday.com, in flight", 200, "", "https://api.monday.com/v2", "{}", `{"errors":[{"extensions":{"code":"maxConcurrencyExceeded"}}]}`, second, second},
	{"monday.com, a minute", 200, "", "https://api.monday.com/v2", "{}", `{"errors":[{"message":"Rate Limit Exceeded","extensions":{"code":"Rate Limit Exceeded","status_code":429}}]}`, second, second},
	{"monday.com, a field", 200, "", "https://api.monday.com/v2", "{}", `{"errors":[{"extensions":{"code":"FIELD_MINUTE_RATE_LIMIT_EXCEEDED","retry_in_seconds":3}}]}`, 3 * second, 3 * second},
	{"monday.com, an old version", 200, "", "https://api.monday.com/v2", "{}", `{"error_code":"ComplexityException","status_code":429,"error_message":"Complexity budget exhausted, query cost 30001 budget remaining 19986 out of 1000000 reset in 3 seconds","errors":["Complexity budget exhausted"]}`, 3 * second, 3 * second},
	{"monday.com, an old version, a field", 200, "", "https://api.monday.com/v2", "{}", `{"error_message":"Concurrency limit exceeded for the field","error_code":"FIELD_LIMIT_EXCEEDED","error_data":{"retry_in_seconds":15},"status_code":429}`, 15 * second, 15 * second},
	{"monday.com, 429", 429, "", "https://api.monday.com/v2", "{}", `{"errors":[{"extensions":{"code":"COMPLEXITY_BUDGET_EXHAUSTED","retry_in_seconds":7}}]}`, 7 * second, 7 * second},
	{"GraphQL, by the query", 200, "", "/api", `{"query":"\n  query A { a }"}`, `{"errors":[{"extensions":{"code":"THROTTLED"}}]}`, second, second},
	{"GraphQL, by a mutation", 200, "", "/api", "{\n \"query\": \"mutation { a }\" }", `{"errors":[{"extensions":{"code":"THROTTLED"}}]}`, second, second},
	{"GraphQL, by its braces", 200, "", "/api", `{"query":"{ a }"}`, `{"errors":[{"extensions":{"code":"THROTTLED"}}]}`, second, second},
	{"GraphQL, by the name of the operation", 200, "", "/api", `{"operationName":"A","variables":{},"query":"query A { a }"}`, `{"errors":[{"extensions":{"code":"THROTTLED"}}]}`, second, second},
	{"GraphQL, a batch of queries", 200, "", "/api", `[{"query":"{ a }"},{"query":"{ b }"}]`, `{"errors":[{"extensions":{"code":"THROTTLED"}}]}`, second, second},
	// Some of it was done.
	{"GraphQL, with data", 200, "", "/graphql", "{}", `{"errors":[{"extensions":{"code":"THROTTLED"}}], "data": {"a": {"id": 1}, "b": null}}`, second, 0},

	// https://eips.ethereum.org/EIPS/eip-1474
	{"JSON-RPC", 200, "", "/v3/key", call, fmt.Sprintf(refusedCall, -32005, "limit exceeded"), second, second},
	{"JSON-RPC, without words", 200, "", "/v3/key", call, fmt.Sprintf(refusedCall, -32005, ""), second, second},
	{"JSON-RPC, the method first", 200, "", "/", `{"method":"a","params":[],"id":1,"jsonrpc":"2.0"}`, fmt.Sprintf(refusedCall, -32005, "limit exceeded"), second, second},
	{"JSON-RPC, with spaces", 200, "", "/", "\n\t{ \"jsonrpc\" : \"2.0\" }", ` { "jsonrpc": "2.0", "error": { "code": -32005, "message": "limit exceeded" } }`, second, second},
	{"JSON-RPC, 500", 500, "", "/", call, fmt.Sprintf(refusedCall, -32005, "limit exceeded"), second, second},
	{"JSON-RPC, 503", 503, "", "/", call, fmt.Sprintf(refusedCall, -32005, "limit exceeded"), second, second},
	{"JSON-RPC, 403", 403, "", "/", call, fmt.Sprintf(refusedCall, -32029, "Too many requests"), second, second},
	// https://docs.metamask.io/services/how-to/avoid-rate-limiting
	{"Infura", 200, "", "/v3/key", call, fmt.Sprintf(infura, 30), 30 * second, 30 * second},
	{"Infura, 429", 429, "", "/v3/key", call, fmt.Sprintf(infura, 30), 30 * second, 30 * second},
	{"Infura, no wait", 200, "", "/v3/key", call, fmt.Sprintf(infura, 0), second, second},
	// https://www.alchemy.com/docs/reference/error-reference
	{"Alchemy", 200, "", "/v2/key", call, fmt.Sprintf(refusedCall, 429, "Your app has exceeded its compute units per second capacity."), second, second},
	// https://www.quicknode.com/docs/platform/error-codes
	{"QuickNode", 200, "", "/", call, fmt.Sprintf(refusedCall, -32007, "50/second request limit reached - reduce calls per second or upgrade your account at quicknode.com"), second, second},
	{"a batch", 200, "", "/", calls, "[" + fmt.Sprintf(refusedCall, -32005, "limit exceeded") + "," + fmt.Sprintf(refusedCall, -32005, "limit exceeded") + "]", second, second},
	{"a batch, with one error", 200, "", "/", calls, fmt.Sprintf(refusedCall, -32005, "limit exceeded"), second, second},
	{"a part of a batch", 200, "", "/", calls, `[{"jsonrpc":"2.0","id":1,"result":"` + strings.Repeat("x", 1000) + `"},` + fmt.Sprintf(refusedCall, -32005, "limit exceeded") + "]", second, 0},

	// https://docs.min.io: the list of minio-go (retry.go)
	{"MinIO, reads", 503, xmlType, "/", "x", "<Error><Code>SlowDownRead</Code><Message>Resource requested is unreadable, please reduce your request rate</Message></Error>", second, second},
	{"MinIO, writes", 503, xmlType, "/", "x", "<Error><Code>SlowDownWrite</Code></Error>", second, second},
	{"MinIO, 429", 429, xmlType, "/", "x", "<Error><Code>TooManyRequests</Code></Error>", second, second},

	// https://datatracker.ietf.org/doc/draft-ietf-httpapi-ratelimit-headers, section 5
	{"quota-exceeded", 400, problemType, "/", "x", fmt.Sprintf(problemOf, "quota-exceeded"), second, second},
	{"quota-exceeded, with a time", 429, problemType + "|Retry-After: 5", "/", "x", fmt.Sprintf(problemOf, "quota-exceeded"), 5 * second, 5 * second},
	{"quota-exceeded, the policy has a time", 403, problemType + `|RateLimit: "bandwidth";r=3;t=9, "other";r=5;t=99`, "/", "x", fmt.Sprintf(problemOf, "quota-exceeded"), 9 * second, 9 * second},
	{"temporary-reduced-capacity", 503, problemType, "/", "x", fmt.Sprintf(problemOf, "temporary-reduced-capacity"), second, 0},
	{"abnormal-usage-detected", 403, problemType + "; charset=utf-8", "/", "x", fmt.Sprintf(problemOf, "abnormal-usage-detected"), second, second},

	// https://docs.slack.dev/apis/web-api/rate-limits
	{"Slack, 200", 200, "Content-Type: application/json; charset=utf-8|X-Slack-Req-Id: 1", "/api/chat.postMessage", "{}", `{"ok":false,"error":"ratelimited"}`, second, second},
	{"Slack, 200, with a time", 200, "Content-Type: application/json|X-Slack-Req-Id: 1|Retry-After: 30", "/api/chat.postMessage", "{}", `{"ok":false,"error":"ratelimited"}`, 30 * second, 30 * second},
	{"Slack, 429", 429, "Content-Type: application/json|Retry-After: 30", "/api/chat.postMessage", "{}", `{"ok":false,"error":"ratelimited"}`, 30 * second, 30 * second},

	// https://discord.com/developers/docs/topics/rate-limits
	{"Discord", 429, "", "/", "x", `{"message": "You are being rate limited.", "retry_after": 0.42, "global": true}`, 420 * ms, 420 * ms},
	{"Discord, rounded in the header", 429, "Content-Type: application/json|Retry-After: 1", "/", "x", `{"retry_after": 0.42, "global": false}`, 420 * ms, 420 * ms},
	{"Discord, the header says more", 429, "Content-Type: application/json|Retry-After: 5", "/", "x", `{"retry_after": 0.42, "global": false}`, 5 * second, 5 * second},
	// https://core.telegram.org/bots/api#responseparameters
	{"Telegram", 429, "", "/", "x", `{"ok":false,"error_code":429,"description":"Too Many Requests: retry after 5","parameters":{"retry_after":5}}`, 5 * second, 5 * second},

	// https://docs.ollama.com/faq#how-does-ollama-handle-concurrent-requests
	{"Ollama", 503, "Content-Type: application/json; charset=utf-8", "/api/chat", "{}", `{"error":"server busy, please try again.  maximum pending requests exceeded"}`, second, second},
	// https://www.meilisearch.com/docs/reference/errors/error_codes#too_many_search_requests
	{"Meilisearch", 503, "Content-Type: application/json|Retry-After: 10", "/indexes/a/search", "{}", `{"message":"Too many search requests running at the same time: 10. Retry after 10s.","code":"too_many_search_requests","type":"system"}`, 10 * second, 10 * second},
	// https://airtable.com/developers/web/api/rate-limits
	{"Airtable", 429, "", "/v0/app1/a", "{}", `{"errors":[{"error":"RATE_LIMIT_REACHED","message":"Rate limit exceeded. Please try again later"}]}`, 30 * second, 30 * second},
	{"Airtable, with a time", 429, "Content-Type: application/json|Retry-After: 3", "/v0/app1/a", "{}", `{"errors":[{"error":"RATE_LIMIT_REACHED"}]}`, 3 * second, 3 * second},
	{"RATE_LIMIT_REACHED elsewhere", 429, "", "/", "{}", `{"error":"RATE_LIMIT_REACHED"}`, second, second},

	// https://docs.github.com/rest/using-the-rest-api/rate-limits-for-the-rest-api
	{"GitHub, secondary", 403, "Content-Type: application/json|X-GitHub-Request-Id: 1", "/", "x", secondary, time.Minute, time.Minute},
	// https://docs.claude.com/en/api/errors
	{"Anthropic", 500, "", "/", "x", `{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}`, second, second},

	// https://docs.stripe.com/rate-limits
	{"Stripe", 429, "Content-Type: application/json|Stripe-Rate-Limited-Reason: global-rate", "/v1/customers", "x", `{"error":{"code":"rate_limit"}}`, second, second},

	{"Stripe, not at once", 429, "Content-Type: application/json|Stripe-Rate-Limited-Reason: global-concurrency|Stripe-Should-Retry: false", "/v1/customers", "x", `{"error":{"code":"rate_limit"}}`, second, second},

	// # Similar words that are no throttle

	// One object is locked by another call, which did nothing.
	{"Stripe, a lock", 429, "Content-Type: application/json|Stripe-Rate-Limited-Reason: resource-specific", "/v1/customers/1", "x", `{"error":{"code":"lock_timeout"}}`, another, another},
	{"Stripe, a lock, by the body", 429, "", "/v1/customers/1", "x", `{"error":{"code":"lock_timeout"}}`, another, another},
	{"Stripe, another status", 402, "Content-Type: application/json|Stripe-Rate-Limited-Reason: global-rate", "/v1/charges", "x", `{"error":{"code":"card_declined"}}`, 0, 0},
	{"Stripe, a lock, no retry", 429, "Content-Type: application/json|Stripe-Should-Retry: false", "/v1/customers/1", "x", `{"error":{"code":"lock_timeout"}}`, 0, 0},

	{"Azure, another 503", 503, "X-Ms-Error-Code: AccountBeingCreated", "/", "x", "", another, 0},
	{"Azure, a timeout", 500, "X-Ms-Error-Code: OperationTimedOut", "/", "x", "", another, 0},
	{"Azure, forbidden", 403, "X-Ms-Error-Code: AuthorizationFailure", "/", "x", "", 0, 0},
	{"Azure Resource Manager, no quota of cores", 409, "", "/", "x", `{"error":{"code":"OperationNotAllowed","message":"Operation could not be completed as it results in exceeding approved Total Regional Cores quota."}}`, 0, 0},
	{"OpenAI, no credit", 429, "", "/", "x", `{"error":{"message":"You exceeded your current quota","type":"insufficient_quota","code":"insufficient_quota"}}`, 0, 0},
	{"Google, forbidden", 403, "", "/", "x", fmt.Sprintf(googleForbidden, "insufficientFilePermissions"), 0, 0},
	{"Google, sharing", 403, "", "/", "x", fmt.Sprintf(googleForbidden, "sharingRateLimitExceeded"), 0, 0},
	{"Google, the day", 403, "", "/", "x", fmt.Sprintf(googleForbidden, "dailyLimitExceeded"), 0, 0},
	{"Google, the day, 429", 429, "", "/", "x", fmt.Sprintf(googleForbidden, "dailyLimitExceeded"), 0, 0},
	{"Google, the quota", 403, "", "/", "x", fmt.Sprintf(googleForbidden, "quotaExceeded"), 0, 0},
	{"Gemini, the day", 429, "", "/", "x", fmt.Sprintf(googleStatus, 429, "RESOURCE_EXHAUSTED", `{"violations": [{"quotaId": "GenerateRequestsPerDayPerProjectPerModel-FreeTier"}]}, `+retryInfo), 0, 0},
	{"Google, a conflict with a time", 409, "", "/", "x", fmt.Sprintf(googleStatus, 409, "ABORTED", retryInfo), 0, 0},
	{"Google, only in the message", 403, "", "/", "x", `{"error": {"code": 403, "message": "rateLimitExceeded"}}`, second, second},
	{"GraphQL, a query that is wrong", 200, "", "/graphql", "{}", `{"errors":[{"message":"Field 'x' does not exist","extensions":{"code":"GRAPHQL_VALIDATION_FAILED"}}]}`, 0, 0},
	{"GraphQL, a query that is wrong, 400", 400, "", "/graphql", "{}", `{"errors":[{"message":"THROTTLED","extensions":{"code":"BAD_USER_INPUT"}}]}`, 0, 0},
	{"GraphQL, as data", 200, "", "/graphql", "{}", `{"data":{"code":"\"errors\" THROTTLED"}}`, 0, 0},
	{"GraphQL elsewhere", 200, "", "/search", "{}", `{"errors":[{"extensions":{"code":"THROTTLED"}}]}`, 0, 0},
	{"a search for a text", 200, "", "/search", `{"query":"query languages"}`, `{"errors":[{"extensions":{"code":"BAD_USER_INPUT"}}]}`, 0, 0},
	{"another search", 200, "", "/search", `{"query":"shoes"}`, `{"errors":[{"extensions":{"code":"THROTTLED"}}]}`, 0, 0},
	{"a search of Elasticsearch", 200, "", "/a/_search", `{"query":{"match_all":{}}}`, `{"errors":[{"extensions":{"code":"THROTTLED"}}]}`, 0, 0},
	{"monday.com, the day", 200, "", "https://api.monday.com/v2", "{}", `{"errors":[{"extensions":{"code":"DAILY_LIMIT_EXCEEDED","status_code":429}}]}`, 0, 0},
	{"monday.com, a query that is too complex", 200, "", "https://api.monday.com/v2", "{}", `{"error_code":"ComplexityException","error_message":"Query has complexity of 2000010, which exceeds max complexity of 1000000"}`, 0, 0},
	{"monday.com, fine", 200, "", "https://api.monday.com/v2", "{}", `{"data":{"text":"\"error_code\" COMPLEXITY_BUDGET_EXHAUSTED"}}`, 0, 0},
	{"GraphQL, no JSON", 200, "Content-Type: text/plain", "/graphql", "{}", `{"errors":[{"extensions":{"code":"THROTTLED"}}]}`, 0, 0},
	{"Shopify, too expensive", 200, "", "/graphql", "{}", `{"errors":[{"message":"x","extensions":{"code":"MAX_COST_EXCEEDED"}}]}`, 0, 0},
	{"JSON-RPC, another error", 200, "", "/", call, fmt.Sprintf(refusedCall, -32000, "limit exceeded"), 0, 0},
	{"Infura, too many results", 200, "", "/", call, fmt.Sprintf(refusedCall, -32005, "query returned more than 10000 results"), 0, 0},
	{"JSON-RPC, a range", 200, "", "/", call, fmt.Sprintf(refusedCall, -32005, "block range limit exceeded"), 0, 0},
	{"Solana, a node is behind", 200, "", "/", call, fmt.Sprintf(refusedCall, -32005, "Node is behind by 42 slots"), 0, 0},
	{"Solana, a slot was skipped", 200, "", "/", call, fmt.Sprintf(refusedCall, -32007, "Slot 1 was skipped, or missing due to ledger jump"), 0, 0},
	{"JSON-RPC, fine", 200, "", "/", call, `{"jsonrpc":"2.0","id":1,"result":{"error":{"code":-32005,"message":"limit exceeded"}}}`, 0, 0},
	{"JSON-RPC, no version", 200, "", "/", call, `{"error":{"code":-32005,"message":"limit exceeded"}}`, 0, 0},
	{"JSON-RPC, another request", 200, "", "/", `{"a":1}`, fmt.Sprintf(refusedCall, -32005, "limit exceeded"), 0, 0},
	{"MinIO, another 503", 503, xmlType, "/", "x", "<Error><Code>XMinioServerNotInitialized</Code></Error>", another, 0},
	{"another problem", 403, problemType, "/", "x", fmt.Sprintf(problemOf, "quota-exceeded-for-good"), 0, 0},
	{"a problem without a type", 403, problemType, "/", "x", `{"title": "iana.org/assignments/http-problem-types#quota-exceeded"}`, 0, 0},
	{"Slack, another error", 200, "Content-Type: application/json|X-Slack-Req-Id: 1", "/", "{}", `{"ok":false,"error":"channel_not_found"}`, 0, 0},
	{"Slack, as text", 200, "Content-Type: application/json|X-Slack-Req-Id: 1", "/", "{}", `{"ok":true,"message":{"text":"\"ratelimited\""}}`, 0, 0},
	{"Slack elsewhere", 200, "", "/", "{}", `{"ok":false,"error":"ratelimited"}`, second, 0},
	{"another 503", 503, "", "/api/chat", "{}", `{"error":"model is loading"}`, another, 0},
	{"another 500", 500, "", "/", "x", `{"error":{"type":"api_error"}}`, another, 0},
	{"not found", 404, "", "/", "x", fmt.Sprintf(googleForbidden, "rateLimitExceeded"), 0, 0},
	{"a redirect", 304, "", "/", "x", "", 0, 0},

	{"cut", 403, "", "/", "x", fmt.Sprintf(googleForbidden, "rateLimitExceeded")[:80], 0, 0},
	{"longer than 64 KiB", 403, "", "/", "x", strings.Repeat(" ", 64<<10) + fmt.Sprintf(googleForbidden, "rateLimitExceeded"), 0, 0},
	{"longer than 64 KiB, 200", 200, "", "/graphql", "{}", `{"errors":[{"extensions":{"code":"THROTTLED"}}],"x":"` + strings.Repeat("x", 64<<10) + `"}`, 0, 0},
	{"wrong types", 403, "", "/", "x", `{"error": [{"errors": {"reason": "quotaExceeded"}}], "errors": "THROTTLED", "jsonrpc": 2}`, 0, 0},
	{"deep", 403, "", "/", "x", `{"error":` + strings.Repeat("[", 20000), 0, 0},
	{"a part of a batch, with spaces", 200, "", "/", " " + calls, `
		[{"jsonrpc":"2.0","id":1,"result":"x"}, ` + fmt.Sprintf(refusedCall, -32005, "limit exceeded") + "]", second, 0},
	{"a list of nothing", 200, "", "/", calls, `[1,null,"error",{"jsonrpc":"2.0","error":null}]`, 0, 0},
}

// layer answers with w.
func (w *word) layer() sluicetest.Layer {
	header := strings.Split(w.header, "|")
	if w.header == "" {
		header = []string{"Content-Type: application/json"}
	}
	return sluicetest.Reply(w.status, w.body, header...)
}

// url is where the request is sent.
func (w *word) url() string {
	if strings.HasPrefix(w.path, "/") {
		return "https://a.test" + w.path
	}
	return w.path
}

// A maker that says in its own words that there were too many calls is heard with no configuration.
func TestMakers(t *testing.T) {
	for _, c := range slices.Concat(words, unknownWords) {
		for _, idempotent := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s/%v", c.name, idempotent), func(t *testing.T) {
				retry := sluice.RetryPolicy{Backoff: sluice.Constant(another), ThrottleBackoff: sluice.Constant(second)}
				inWorld(t, sluicehttp.Config{Retry: retry}, layers(sluicetest.On(1, c.layer())), func(w *world) {
					ctx := sluicehttp.WithOverrides(bg, sluicehttp.Overrides{Idempotent: idempotent})
					method, sent, want := "POST", io.Reader(strings.NewReader(c.sent)), c.post
					if c.sent == "" {
						method, sent = "GET", nil
					}
					if idempotent || c.sent == "" {
						want = c.idempotent
					}
					req := request(w, ctx, method, c.url(), sent)
					req.Header.Set("Content-Type", "application/json")
					status, body, err := w.do(req)
					if want > 0 {
						if status != 200 || body != "ok\n" {
							t.Errorf("%d, %.100q, %v", status, body, err)
						}
						w.wantCame(0, want)
						return
					}
					if status != c.status || body != c.body || err != nil {
						t.Errorf("%d, %.100q, %v", status, body, err)
					}
					w.wantCame(0)
				})
			})
		}
	}
}

// A request with an Accept-Encoding of its own, such as one that httputil.ReverseProxy passes on, gets a body that
// is packed. It is heard, and passed on as it is.
func TestMakers_Packed(t *testing.T) {
	const json = "Content-Type: application/json"
	long := packed(`{"error":{"message":"API rate limit exceeded"}}` + strings.Repeat(" ", 1<<20))
	for _, c := range []struct {
		name     string
		status   int
		encoding string
		body     string
		want     time.Duration
	}{
		{"a wait", 429, "gzip", packed(`{"retry_after":20}`), 20 * second},
		{"words", 400, "GZIP", packed(`{"error":{"message":"API rate limit exceeded"}}`), second},
		{"other words", 400, "gzip", packed(`{"error":{"message":"unknown field"}}`), 0},
		{"the beginning", 400, "gzip", long, second},
		{"cut off", 400, "gzip", long[:len(long)/2], second},
		{"not packed", 400, "gzip", `{"error":{"message":"API rate limit exceeded"}}`, second},
		{"another encoding", 400, "br", packed(`{"error":{"message":"API rate limit exceeded"}}`), 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg := sluicehttp.Config{Retry: sluice.RetryPolicy{Attempts: 2, ThrottleBackoff: sluice.Constant(second)}}
			faults := layers(sluicetest.On(1, sluicetest.Reply(c.status, c.body, json, "Content-Encoding: "+c.encoding)))
			inWorld(t, cfg, faults, func(w *world) {
				req := request(w, bg, "GET", "https://a.test/", nil)
				req.Header.Set("Accept-Encoding", "gzip, br")
				status, body, err := w.do(req)
				if c.want > 0 {
					if status != 200 || err != nil {
						t.Errorf("%d, %v", status, err)
					}
					w.wantCame(0, c.want)
					return
				}
				if status != c.status || body != c.body || err != nil {
					t.Errorf("%d, %q, %v", status, body, err)
				}
				w.wantCame(0)
			})
		})
	}
}

// packed returns text as gzip.
func packed(text string) string {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	w.Write([]byte(text)) // to memory, which does not fail
	w.Close()
	return b.String()
}

// A configured inspector has the last word.
func TestMakers_ConfiguredLast(t *testing.T) {
	drive := fmt.Sprintf(googleForbidden, "rateLimitExceeded")
	wantTries(t, sluicehttp.Config{Inspect: never}, 403, drive, []string{"Content-Type: application/json"}, 0)
	wantTries(t, sluicehttp.Config{Inspect: inspect.GitHub}, 403, drive, []string{"Content-Type: application/json"}, 0, second)
	wantTries(t, sluicehttp.Config{NoRetryThrottled: true}, 403, drive, []string{"Content-Type: application/json"}, 0)
}

// Discord's body may pause all calls to the server, whatever their key.
func TestMakers_Global(t *testing.T) {
	for body, want := range map[string]time.Duration{
		`{"retry_after": 2.5, "global": true}`:  2500 * ms,
		`{"retry_after": 2.5, "global": false}`: 0,
	} {
		cfg := sluicehttp.Config{Key: func(req *http.Request) string { return req.URL.Path }}
		faults := layers(sluicetest.On(1, sluicetest.Reply(429, body, "Content-Type: application/json")))
		inWorld(t, cfg, faults, func(w *world) {
			ctx := sluicehttp.WithOverrides(bg, sluicehttp.Overrides{NoRetry: true})
			if status, _, err := w.get(ctx, "https://a.test/a"); status != 429 || err != nil {
				t.Errorf("%d, %v", status, err)
			}
			w.wantGet("https://a.test/b", 200)
			w.wantCame(0, want)
		})
	}
}

// A 403 whose maker names another reason says nothing about the rate, however many come at once:
// such as half of the objects of a store.
func TestMakers_OtherReasons(t *testing.T) {
	for name, forbidden := range map[string]sluicetest.Layer{
		"S3":     sluicetest.Reply(403, "<Error><Code>AccessDenied</Code></Error>", xmlType),
		"Azure":  sluicetest.Status(403, "X-Ms-Error-Code: AuthorizationPermissionMismatch"),
		"Google": sluicetest.Reply(403, fmt.Sprintf(googleForbidden, "insufficientFilePermissions"), "Content-Type: application/json"),
		"GitHub": sluicetest.Reply(403, `{"message": "Resource not accessible by integration"}`, "Content-Type: application/json", "X-GitHub-Request-Id: 1"),
	} {
		t.Run(name, func(t *testing.T) {
			faults := layers(sluicetest.Delay(10*ms), sluicetest.Path("/mine", sluicetest.Delay(10*ms)), sluicetest.Path("/yours", forbidden))
			inWorld(t, sluicehttp.Config{}, faults, func(w *world) {
				var wg sync.WaitGroup
				for i := range 16 {
					path, status := "/mine", 200
					if i%2 == 0 {
						path, status = "/yours", 403
					}
					wg.Go(func() {
						for range 25 {
							w.wantGet("https://a.test"+path, status)
						}
					})
				}
				wg.Wait()
				if n, learned := len(w.srv.Record().Requests), stats(t, w.rt).Learned; n != 400 || learned != nil || w.now() > 510*ms { // two of 16 wait for a first answer
					t.Errorf("%d requests in %v, learned %v", n, w.now(), learned)
				}
			})
		})
	}
}

// An object that is locked holds up the calls to it, and no others: one call in ten goes to an object
// that refuses every second call.
func TestMakers_LockedObject(t *testing.T) {
	for range 5 { // backoffs are random
		var hot atomic.Int64
		lock := sluicetest.When(func(_ int, r *http.Request) bool {
			return r.URL.Path == "/hot" && hot.Add(1)%2 == 0
		}, sluicetest.Reply(429, `{"error":{"code":"lock_timeout"}}`, "Content-Type: application/json"))
		inWorld(t, sluicehttp.Config{}, layers(sluicetest.Delay(20*ms), lock), func(w *world) {
			var wg sync.WaitGroup
			for i := range 1000 {
				wg.Go(func() {
					time.Sleep(time.Duration(i) * 10 * ms)
					if i%10 == 0 {
						_, _, _ = w.get(bg, "https://a.test/hot") // which may give up
						return
					}
					began := w.now()
					w.wantGet("https://a.test/cold", 200)
					if took := w.now() - began; took != 20*ms {
						w.Errorf("call %d took %v", i, took)
					}
				})
			}
			wg.Wait()
			if learned := stats(t, w.rt).Learned; learned != nil {
				t.Errorf("learned %v", learned)
			}
		})
	}
}

// What the configured makers are in the table is what the transport takes them for.
func TestMakers_Places(t *testing.T) {
	if table, used := sluicehttp.MakersInSuccess(); !slices.Equal(table, used) {
		t.Errorf("the makers %v refuse with status 200, and %v are asked", table, used)
	}
}

// A response with status 200 that is fine is not held up: it is returned when its first bytes are
// there, and passes through as it arrives.
func TestMakers_FineIsNotHeldUp(t *testing.T) {
	for name, c := range map[string]struct {
		path, sent, header string
		parts              []string
		held               time.Duration
	}{
		"another API":              {"/", `{"a":1}`, "", []string{`{"a":`, `1}`}, 0},
		"GraphQL":                  {"/graphql", "{}", "", []string{`{"data":{"a":`, `1}}`}, 0},
		"JSON-RPC":                 {"/", call, "", []string{`{"jsonrpc":"2.0","result":[`, `1]}`}, 0},
		"Slack":                    {"/", "{}", "X-Slack-Req-Id: 1", []string{`{"ok":true,`, `"a":1}`}, 0},
		"GraphQL, errors in data":  {"/graphql", "{}", "", []string{`{"data":{"errors":[`, `1]}}`}, 0},
		"GraphQL, late":            {"/graphql", "{}", "", []string{`{`, `"data":{"a":1}}`}, second},
		"GraphQL, a refusal, late": {"/graphql", "{}", "", []string{`{`, `"errors":[{"extensions":{"code":"THROTTLED"}}]}`}, second},
		"a batch, late":            {"/", call, "", []string{`[`, `{"jsonrpc":"2.0","result":1}]`}, second},
		"GraphQL, many bytes":      {"/graphql", "{}", "", []string{`{"extensions":"` + strings.Repeat("x", 600), `"}`}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			slow := sluicetest.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				if key, value, ok := strings.Cut(c.header, ": "); ok {
					w.Header().Set(key, value)
				}
				for i, part := range c.parts {
					if i > 0 {
						time.Sleep(10 * second)
					}
					fmt.Fprint(w, part)
					w.(http.Flusher).Flush()
				}
			}))
			inWorld(t, sluicehttp.Config{}, layers(slow), func(w *world) {
				req := request(w, bg, "POST", "https://a.test"+c.path, strings.NewReader(c.sent))
				resp, err := w.client.Do(req)
				if err != nil {
					t.Fatal(err)
				}
				if w.now() != c.held {
					t.Errorf("held up for %v, want %v", w.now(), c.held)
				}
				content := new(strings.Builder)
				if err := copyAndClose(content, resp.Body); err != nil || content.String() != strings.Join(c.parts, "") {
					t.Errorf("read %q, %v", content, err)
				}
				if w.now() != 10*second {
					t.Errorf("the body ended at %v", w.now())
				}
				w.wantCame(0)
			})
		})
	}
}

// 400 calls of 8 workers against a bucket of 20 per second with a burst of 20, whose refusals are
// those of a maker: none is lost, and it takes little longer than it must.
func TestMakers_Bucket(t *testing.T) {
	for i, c := range words {
		if built.Raced() && i%4 > 0 {
			continue // it takes ten times as long, and no maker has goroutines
		}
		if c.idempotent == 0 || c.idempotent == another && c.post == 0 || c.idempotent >= 5*second {
			continue // no throttle, or one that says to wait for as long after each refusal
		}
		t.Run(c.name, func(t *testing.T) {
			header := func(h http.Header, s sluicetest.LimitState) {
				if !s.Throttled {
					return
				}
				h.Set("Content-Type", "application/json")
				for line := range strings.SplitSeq(c.header, "|") {
					if key, value, ok := strings.Cut(line, ": "); ok {
						h.Set(key, value)
					}
				}
			}
			limit := sluicetest.Limit{Count: 20, Per: second, Burst: 20, Status: c.status, Body: " " + c.body, HeaderStyle: header} // the space keeps Enforce from setting the type
			var lost, refused int
			var took time.Duration
			inWorld(t, sluicehttp.Config{}, layers(sluicetest.Enforce(limit), sluicetest.Delay(20*ms)), func(w *world) {
				work := make(chan int)
				results := make(chan bool)
				for range 8 {
					go func() {
						for range work {
							ctx := sluicehttp.WithOverrides(bg, sluicehttp.Overrides{Idempotent: c.post == 0})
							req := request(w, ctx, "POST", c.url(), strings.NewReader(c.sent))
							status, body, err := w.do(req)
							results <- err == nil && status == 200 && body == "ok\n"
						}
					}()
				}
				go func() {
					for i := range 400 {
						work <- i
					}
					close(work)
				}()
				for range 400 {
					if !<-results {
						lost++
					}
				}
				took, refused = w.now(), w.srv.Record().Throttled()
				synctest.Wait()
			})
			t.Logf("%d lost, %d refused, %v", lost, refused, took)
			if lost > 4 || took > 35*second {
				t.Errorf("%d lost, %d refused, in %v of 19 s", lost, refused, took)
			}
		})
	}
}

// A shop with 1,000 points that gets 50 per second, and queries of 100 points: its throttleStatus
// says when there are enough, and nothing is configured.
func TestMakers_Shopify(t *testing.T) {
	var mu sync.Mutex
	available, last, refused := 1000.0, time.Time{}, 0
	shop := sluicetest.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		now := time.Now()
		if !last.IsZero() {
			available = min(1000, available+50*now.Sub(last).Seconds())
		}
		last = now
		w.Header().Set("Content-Type", "application/json; charset=utf-8")
		if available < 100 {
			refused++
			fmt.Fprintf(w, shopify, 100, available, 50.0)
			return
		}
		available -= 100
		fmt.Fprintf(w, `{"data":{"shop":{"name":"x"}},"extensions":{"cost":{"requestedQueryCost":100,"actualQueryCost":100,"throttleStatus":{"maximumAvailable":1000.0,"currentlyAvailable":%v,"restoreRate":50.0}}}}`, available)
	}))
	inWorld(t, sluicehttp.Config{}, layers(sluicetest.Delay(20*ms), shop), func(w *world) {
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				for range 25 {
					_, body, err := w.do(request(w, bg, "POST", "https://a.test/admin/api/2026-10/graphql.json", strings.NewReader(`{"query":"{shop{name}}"}`)))
					if err != nil || !strings.HasPrefix(body, `{"data"`) {
						t.Errorf("%s, %v", body, err)
					}
				}
			})
		}
		wg.Wait()
		t.Logf("%d refused, %v", refused, w.now())
		if ideal := 380 * second; w.now() > ideal*105/100 || refused > 40 {
			t.Errorf("%d refused, %v of %v", refused, w.now(), ideal)
		}
	})
}

// never is an inspector that prevents retries.
func never(_ *http.Response, _ func() []byte, said *ratelimit.Info) { said.ShouldRetry = new(false) }

func copyAndClose(to io.Writer, body io.ReadCloser) error {
	_, err := io.Copy(to, body)
	return errors.Join(err, body.Close())
}
