package main

import (
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// Ways to say no. Each handler says what the real server says, to the letter where its
// source or its documentation shows it; only the limit is as small as a test needs. The
// comments name what was read.
func init() {
	for _, s := range []server{
		ollama("ollama-queue", false),
		ollama("ollama-queue-declared", true),
		haproxyQueue("haproxy-queue-503-4", 4),
		azure(), drive(), linear("linear-20", 72000, 100), hourly(), minio(), jsonRPC(), shopify(),
		problem("problem-quota", http.StatusTooManyRequests, "quota-exceeded", "Request cannot be satisifed as assigned quota has been exceeded"),
		problem("problem-capacity", http.StatusServiceUnavailable, "temporary-reduced-capacity", "Request cannot be satisifed due to temporary server capacity constraints"),
		discord(), traefik(20, 5), fail2ban(),
	} {
		s.group = words
		add(s)
	}
}

// ollama is Ollama with OLLAMA_NUM_PARALLEL=4 and OLLAMA_MAX_QUEUE=8 (512 by default):
// server/sched.go, ErrMaxQueue, and handleScheduleError in server/routes.go.
func ollama(name string, declared bool) server {
	return server{name: name, limiter: "Ollama, queue full", says: "503, JSON", limit: inFlightOf(4, .3), service: .3, declared: declared,
		request: request{http.MethodPost, "/api/generate", "application/json", func(n int) string {
			return fmt.Sprintf(`{"model":"llama3.2","prompt":"%d","stream":false}`, n)
		}},
		handler: func(o *origin) http.Handler {
			q := newQueue(4, 8, 0)
			const json = "application/json; charset=utf-8"
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if !q.enter(r.Context()) {
					say(w, http.StatusServiceUnavailable, `{"error":"server busy, please try again.  maximum pending requests exceeded"}`, "Content-Type", json)
					return
				}
				defer q.leave()
				o.work()
				say(w, http.StatusOK, `{"model":"llama3.2","created_at":"2026-11-27T08:00:00Z","response":"ok","done":true,"done_reason":"stop"}`, "Content-Type", json)
			})
		}}
}

// haproxyQueue is HAProxy with "maxconn n" at the server and "timeout queue 500ms". The text
// is that of its built-in error file.
func haproxyQueue(name string, n int) server {
	return server{name: name, limiter: "HAProxy maxconn, queue 500 ms (as a handler)", says: "503 after 500 ms in the queue", limit: inFlightOf(float64(n), .1), service: .1,
		handler: func(o *origin) http.Handler {
			q := newQueue(n, math.MaxInt16, 500*time.Millisecond)
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if !q.enter(r.Context()) {
					say(w, http.StatusServiceUnavailable, "<html><body><h1>503 Service Unavailable</h1>\nNo server is available to handle this request.\n</body></html>\n",
						"Cache-Control", "no-cache", "Content-Type", "text/html")
					return
				}
				defer q.leave()
				ok(o).ServeHTTP(w, r)
			})
		}}
}

// azure is Azure Blob Storage: "Status and error codes" of its REST API, and responses that
// users have posted (Azure/azure-sdk-for-go#22139).
func azure() server {
	return server{name: "azure-serverbusy-20", limiter: "Azure Blob Storage", says: "503, x-ms-error-code: ServerBusy", limit: bucketOf(20, 20),
		handler: func(o *origin) http.Handler {
			b := newTokens(20, 20)
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				const id = "5f6a1c3e-101e-0008-3080-274dce000000"
				common := []string{"Server", "Windows-Azure-Blob/1.0 Microsoft-HTTPAPI/2.0", "x-ms-request-id", id, "x-ms-version", "2025-11-05"}
				if _, ok := b.take(1); !ok {
					say(w, http.StatusServiceUnavailable, "\ufeff"+`<?xml version="1.0" encoding="utf-8"?><Error><Code>ServerBusy</Code><Message>Operations per second is over the account limit.`+
						"\nRequestId:"+id+"\nTime:"+time.Now().UTC().Format("2006-01-02T15:04:05.0000000Z")+"</Message></Error>",
						append(common, "x-ms-error-code", "ServerBusy", "Content-Type", "application/xml")...)
					return
				}
				o.work()
				say(w, http.StatusOK, "ok\n", append(common, "x-ms-blob-type", "BlockBlob", "Content-Type", "application/octet-stream", "ETag", `"0x8DE2D5C1A2B3C4D"`)...)
			})
		}}
}

// drive is the Google Drive API: "Resolve errors", 403: User rate limit exceeded.
func drive() server {
	return server{name: "drive-403-20", limiter: "Google Drive", says: "403, JSON: userRateLimitExceeded", limit: bucketOf(20, 20), request: request{path: "/drive/v3/files/1"},
		handler: func(o *origin) http.Handler {
			b := newTokens(20, 20)
			const json = "application/json; charset=UTF-8"
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if _, ok := b.take(1); !ok {
					say(w, http.StatusForbidden, `{
 "error": {
  "errors": [
   {
    "domain": "usageLimits",
    "reason": "userRateLimitExceeded",
    "message": "User Rate Limit Exceeded"
   }
  ],
  "code": 403,
  "message": "User Rate Limit Exceeded"
 }
}
`, "Content-Type", json, "Vary", "Origin, X-Origin, Referer", "Server", "ESF", "Cache-Control", "private", "X-Content-Type-Options", "nosniff")
					return
				}
				o.work()
				say(w, http.StatusOK, `{"kind":"drive#file","id":"1","name":"f","mimeType":"text/plain"}`, "Content-Type", json, "Server", "ESF")
			})
		}}
}

var query = request{http.MethodPost, "/graphql", "application/json", func(n int) string {
	return fmt.Sprintf(`{"query":"query($id: ID!) { node(id: $id) { id } }","variables":{"id":"%d"}}`, n)
}}

// hasErrors reports whether the answer to a GraphQL or JSON-RPC request is an error.
func hasErrors(status int, body []byte) bool {
	var answer struct{ Error, Errors json.RawMessage }
	return status != http.StatusOK || json.Unmarshal(body, &answer) != nil || answer.Error != nil || answer.Errors != nil
}

// linear is the API of Linear: "Rate limiting" of its documentation (a leaky bucket that is
// refilled at a constant rate, 400 with RATELIMITED, and these header fields in milliseconds
// since 1970), with the answer that vanillagreencom/kendex#1018 has seen. Real limits are
// 1,500 to 5,000 per hour, the maximum of the header being what an hour refills.
func linear(name string, perHour, size float64) server {
	return server{name: name, limiter: "Linear", says: "400, GraphQL: RATELIMITED; X-RateLimit-Requests-*", limit: bucketOf(perHour/3600, size), bursts: true, request: query, refuses: hasErrors,
		handler: func(o *origin) http.Handler {
			requests, complexity := newTokens(perHour/3600, size), newTokens(100*perHour/3600, 100*size)
			whole := func(x float64) string { return strconv.Itoa(int(x)) }
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				left, ok := requests.take(1)
				points := 0.
				if ok {
					points = 1
				}
				pointsLeft, _ := complexity.take(points)
				fields := []string{
					"Content-Type", "application/json; charset=utf-8", "X-Complexity", whole(points),
					"X-RateLimit-Requests-Limit", whole(size), "X-RateLimit-Requests-Remaining", whole(left),
					"X-RateLimit-Requests-Reset", strconv.FormatInt(requests.full().UnixMilli(), 10),
					"X-RateLimit-Complexity-Limit", whole(100 * size), "X-RateLimit-Complexity-Remaining", whole(pointsLeft),
					"X-RateLimit-Complexity-Reset", strconv.FormatInt(complexity.full().UnixMilli(), 10),
				}
				if !ok {
					say(w, http.StatusBadRequest, `{"errors":[{"message":"Rate limit exceeded","extensions":{"type":"ratelimited","code":"RATELIMITED","statusCode":429,"userError":true,"userPresentableMessage":"Rate limit exceeded."}}]}`, fields...)
					return
				}
				o.work()
				say(w, http.StatusOK, `{"data":{"node":{"id":"1"}}}`, fields...)
			})
		}}
}

// hourly is Linear's limit in its real size: 1,700 calls take 8 minutes at best.
func hourly() server {
	s := linear("linear-hour", 1500, 1500)
	s.items = 1700
	return s
}

// minio is MinIO: ErrSlowDownRead in cmd/api-errors.go, writeErrorResponse in
// cmd/api-response.go, which has a Retry-After for SlowDown but none for SlowDownRead.
func minio() server {
	return server{name: "minio-slowdownread-50", limiter: "MinIO", says: "503, XML: SlowDownRead", limit: bucketOf(50, 50), request: request{path: "/bucket/object"},
		handler: func(o *origin) http.Handler {
			b := newTokens(50, 50)
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				const id, host = "187B6A4F0E5C2D19", "dd9025bab4ad464b049177c95eb6ebf374d3b3fd1af9251148b658df7ac2e3e8"
				common := []string{"Server", "MinIO", "Accept-Ranges", "bytes", "Vary", "Origin", "X-Amz-Request-Id", id, "X-Amz-Id-2", host,
					"Strict-Transport-Security", "max-age=31536000; includeSubDomains", "X-Content-Type-Options", "nosniff", "X-Xss-Protection", "1; mode=block"}
				if _, ok := b.take(1); !ok {
					say(w, http.StatusServiceUnavailable, `<?xml version="1.0" encoding="UTF-8"?>`+"\n"+
						`<Error><Code>SlowDownRead</Code><Message>Resource requested is unreadable, please reduce your request rate</Message>`+
						`<Key>object</Key><BucketName>bucket</BucketName><Resource>/bucket/object</Resource><RequestId>`+id+`</RequestId><HostId>`+host+`</HostId></Error>`,
						append(common, "Content-Type", "application/xml")...)
					return
				}
				o.work()
				say(w, http.StatusOK, "ok\n", append(common, "Content-Type", "text/plain", "ETag", `"d36f8f9425c4a8000ad9c4a97185aca5"`)...)
			})
		}}
}

// jsonRPC is a node of Ethereum or of one of its relatives: -32005, "limit exceeded", of
// EIP-1474, in a 200.
func jsonRPC() server {
	return server{name: "jsonrpc-32005-20", limiter: "JSON-RPC, EIP-1474", says: "200 with error -32005", limit: bucketOf(20, 20), refuses: hasErrors,
		request: request{http.MethodPost, "/", "application/json", func(n int) string {
			return fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"eth_getBlockByNumber","params":["0x%x",false]}`, n, n)
		}},
		handler: func(o *origin) http.Handler {
			b := newTokens(20, 20)
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				var call struct {
					ID json.RawMessage `json:"id"`
				}
				if err := json.NewDecoder(r.Body).Decode(&call); err != nil {
					say(w, http.StatusOK, `{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"parse error"}}`, "Content-Type", "application/json")
					return
				}
				if _, ok := b.take(1); !ok {
					say(w, http.StatusOK, fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32005,"message":"limit exceeded"}}`, call.ID), "Content-Type", "application/json")
					return
				}
				o.work()
				say(w, http.StatusOK, fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"number":"0x1"}}`, call.ID), "Content-Type", "application/json")
			})
		}}
}

// shopify is Shopify's GraphQL Admin API: "API limits" of its documentation. A standard shop
// has 2,000 points, of which 100 come back in each second; a query here costs 5.
func shopify() server {
	const cost, most, rate = 5, 2000, 100
	return server{name: "shopify-throttled-20", limiter: "Shopify", says: "200, GraphQL: THROTTLED with throttleStatus", limit: bucketOf(rate/cost, most/cost), bursts: true, refuses: hasErrors,
		request: request{http.MethodPost, "/admin/api/2026-10/graphql.json", query.contentType, query.body},
		handler: func(o *origin) http.Handler {
			b := newTokens(rate, most)
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				left, ok := b.take(cost)
				actual, result := "null", `"errors":[{"message":"Throttled","extensions":{"code":"THROTTLED","documentation":"https://shopify.dev/api/usage/rate-limits"}}]`
				if ok {
					o.work()
					actual, result = strconv.Itoa(cost), `"data":{"node":{"id":"1"}}`
				}
				say(w, http.StatusOK, fmt.Sprintf(`{%s,"extensions":{"cost":{"requestedQueryCost":%d,"actualQueryCost":%s,"throttleStatus":{"maximumAvailable":%.1f,"currentlyAvailable":%d,"restoreRate":%.1f}}}}`,
					result, cost, actual, float64(most), int(left), float64(rate)), "Content-Type", "application/json; charset=utf-8")
			})
		}}
}

// problem is a problem type of draft-ietf-httpapi-ratelimit-headers-11, section 5, with the
// status and the title, misspelled, of its example. It has no RateLimit field: a server that
// sends one is among the packages of npm.
func problem(name string, status int, kind, title string) server {
	return server{name: name, limiter: "application/problem+json", says: fmt.Sprintf("%d, %s", status, kind), limit: bucketOf(20, 20),
		handler: func(o *origin) http.Handler {
			b := newTokens(20, 20)
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if _, granted := b.take(1); !granted {
					say(w, status, fmt.Sprintf(`{"type":"https://iana.org/assignments/http-problem-types#%s","title":%q,"violated-policies":["permin"]}`, kind, title),
						"Content-Type", "application/problem+json")
					return
				}
				ok(o).ServeHTTP(w, r)
			})
		}}
}

// discord is one route of Discord: "Rate Limits" of its documentation. Reset-After and the
// body have fractions, Retry-After is in whole seconds.
func discord() server {
	const n, per = 10, 2 * time.Second
	return server{name: "discord-10in2", limiter: "Discord", says: "429, X-RateLimit-*, body with retry_after", limit: windowOf(n, per.Seconds()),
		request: request{http.MethodPost, "/api/v10/channels/1/messages", "application/json", func(n int) string { return fmt.Sprintf(`{"content":"%d"}`, n) }},
		handler: func(o *origin) http.Handler {
			var mu sync.Mutex
			var end time.Time
			left := n
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				mu.Lock()
				now := time.Now()
				if !now.Before(end) {
					left, end = n, now.Add(per)
				}
				granted := left > 0
				if granted {
					left--
				}
				wait := end.Sub(now).Seconds()
				fields := []string{
					"Content-Type", "application/json", "Via", "1.1 google",
					"X-RateLimit-Limit", strconv.Itoa(n), "X-RateLimit-Remaining", strconv.Itoa(left),
					"X-RateLimit-Reset", fmt.Sprintf("%.3f", float64(end.UnixMilli())/1000), "X-RateLimit-Reset-After", fmt.Sprintf("%.3f", wait),
					"X-RateLimit-Bucket", "80c17d2f203122d936070c88c8d10f33",
				}
				mu.Unlock()
				if !granted {
					say(w, http.StatusTooManyRequests, fmt.Sprintf(`{"message": "You are being rate limited.", "retry_after": %.3f, "global": false}`, wait),
						append(fields, "Retry-After", strconv.Itoa(int(math.Ceil(wait))), "X-RateLimit-Scope", "user")...)
					return
				}
				o.work()
				say(w, http.StatusOK, `{"id":"1","channel_id":"1","content":"ok"}`, fields...)
			})
		}}
}

// traefik is the middleware RateLimit of Traefik 3: pkg/middlewares/ratelimiter, in_memory_limiter.go and
// rate_limiter.go. A call that would wait for more than half an interval is rejected, others wait.
func traefik(average, burst int) server {
	return server{name: fmt.Sprintf("traefik-%db%d", average, burst), limiter: "Traefik RateLimit", says: "429, X-Retry-In, Retry-After in whole seconds", limit: bucketOf(float64(average), float64(burst)),
		handler: func(o *origin) http.Handler {
			l, next := rate.NewLimiter(rate.Limit(average), burst), ok(o)
			longest := time.Second / time.Duration(2*average)
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				reserved := l.Reserve()
				wait := reserved.Delay()
				if wait > longest {
					reserved.Cancel()
					say(w, http.StatusTooManyRequests, http.StatusText(http.StatusTooManyRequests),
						"Retry-After", fmt.Sprintf("%.0f", math.Ceil(wait.Seconds())), "X-Retry-In", wait.String())
					return
				}
				time.Sleep(wait)
				next.ServeHTTP(w, r)
			})
		}}
}

// fail2ban is a server with a bucket, and a firewall as fail2ban with maxretry = 10, findtime and
// bantime = 10 s that answers 403.
func fail2ban() server {
	return server{name: "fail2ban-403-20", limiter: "a bucket, and fail2ban", says: "429; after 10 of them in 10 s, for 10 s, 403", limit: bucketOf(20, 20),
		handler: func(o *origin) http.Handler {
			const most, lasts = 10, 10 * time.Second
			tokens, next := newTokens(20, 20), ok(o)
			var mu sync.Mutex
			var found []time.Time
			var until time.Time
			throttled := func() (status int) {
				mu.Lock()
				defer mu.Unlock()
				now := time.Now()
				if now.Before(until) {
					return http.StatusForbidden
				}
				if _, ok := tokens.take(1); ok {
					return 0
				}
				for len(found) > 0 && now.Sub(found[0]) > lasts {
					found = found[1:]
				}
				if found = append(found, now); len(found) > most {
					found, until = nil, now.Add(lasts)
				}
				return http.StatusTooManyRequests
			}
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if status := throttled(); status > 0 {
					http.Error(w, http.StatusText(status), status)
					return
				}
				next.ServeHTTP(w, r)
			})
		}}
}
