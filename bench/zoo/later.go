package main

import (
	"fmt"
	"math"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/failsafe-go/failsafe-go/adaptivelimiter"
	"github.com/failsafe-go/failsafe-go/failsafehttp"
	chi "github.com/go-chi/chi/v5/middleware"
)

// Limiters and load shedders that were tried later, when Sluice knew those of the other groups. The
// handlers do and say what the source does that their comment names.
func init() {
	for _, s := range []server{
		caddy("caddy-20in1", 20, 1),
		caddy("caddy-30in10", 30, 10),
		djangoREST("drf-120in60", 120, 60),
		pocketBase("pocketbase-30in10", 30, 10),
		envoy("envoy-120in60", 120, 60, false),
		apiserver("k8s-inflight-4", 4),
		{name: "chi-backlog-4", limiter: "go-chi/chi ThrottleBacklog 4, 8, 500 ms", says: "429 at once or after 500 ms in the queue",
			limit: inFlightOf(4, .1), service: .1,
			handler: func(o *origin) http.Handler { return chi.ThrottleBacklog(4, 8, 500*time.Millisecond)(ok(o)) }},
		{name: "failsafe-adaptive-4", limiter: "failsafe-go adaptive limiter, before a queue of 4", says: "429, no header",
			limit: inFlightOf(4, .1), service: .1,
			handler: func(o *origin) http.Handler {
				q := newQueue(4, math.MaxInt16, 0)
				return failsafehttp.NewHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if q.enter(r.Context()) {
						defer q.leave()
						ok(o).ServeHTTP(w, r)
					}
				}), adaptivelimiter.NewBuilder[*http.Response]().WithLimits(1, 8, 4).Build())
			}},
		shedding("shed-429-5", .05, http.StatusTooManyRequests, ""),
		shedding("shed-429-ra-1", .01, http.StatusTooManyRequests, "1"),
		shedding("shed-503-ra-1", .01, http.StatusServiceUnavailable, "1"),
	} {
		s.group = later
		add(s)
	}
}

// A slidingLog grants n in any stretch of per.
type slidingLog struct {
	mu   sync.Mutex
	per  time.Duration
	at   []time.Time // of the calls that it has granted last
	next int         // the oldest of these
}

func newSlidingLog(n int, per float64) *slidingLog {
	return &slidingLog{at: make([]time.Time, n), per: seconds(per)}
}

// take returns 0 if it grants a call, and otherwise how long to wait.
func (l *slidingLog) take() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if wait := l.per - now.Sub(l.at[l.next]); wait > 0 {
		return wait
	}
	l.at[l.next] = now
	l.next = (l.next + 1) % len(l.at)
	return 0
}

// caddy is mholt/caddy-ratelimit: handler.go, rateLimitExceeded.
func caddy(name string, n int, per float64) server {
	return server{name: name, limiter: "caddy-ratelimit (as a handler)", says: "a sliding log; 429, Retry-After", limit: windowOf(float64(n), per),
		handler: func(o *origin) http.Handler {
			l, next := newSlidingLog(n, per), ok(o)
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if wait := l.take(); wait > 0 {
					say(w, http.StatusTooManyRequests, "", "Server", "Caddy", "Retry-After", strconv.FormatFloat(wait.Seconds()+.5, 'f', 0, 64))
					return
				}
				next.ServeHTTP(w, r)
			})
		}}
}

// djangoREST is the SimpleRateThrottle of Django REST framework: throttling.py, and the exception
// Throttled.
func djangoREST(name string, n int, per float64) server {
	return server{name: name, limiter: "Django REST framework (as a handler)", says: "a sliding log; 429, Retry-After", limit: windowOf(float64(n), per),
		handler: func(o *origin) http.Handler {
			l, next := newSlidingLog(n, per), ok(o)
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if wait := l.take(); wait > 0 {
					s := strconv.Itoa(int(math.Ceil(wait.Seconds())))
					unit := "seconds"
					if s == "1" {
						unit = "second"
					}
					say(w, http.StatusTooManyRequests, fmt.Sprintf(`{"detail":"Request was throttled. Expected available in %s %s."}`, s, unit),
						"Content-Type", "application/json", "Retry-After", s)
					return
				}
				next.ServeHTTP(w, r)
			})
		}}
}

// pocketBase is the rate limiter of PocketBase: apis/middlewares_rate_limit.go. Its window begins
// anew at each call that it grants, in whole seconds.
func pocketBase(name string, n int, per int64) server {
	return server{name: name, limiter: "PocketBase (as a handler)", says: "429, JSON; each granted call begins the window anew", limit: windowOf(float64(n), float64(per)),
		handler: func(o *origin) http.Handler {
			var mu sync.Mutex
			var left int
			var last int64
			next := ok(o)
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				mu.Lock()
				now := time.Now().Unix()
				if now-last >= per {
					left = n
				}
				granted := left > 0
				if granted {
					left, last = left-1, now
				}
				mu.Unlock()
				if !granted {
					say(w, http.StatusTooManyRequests, `{"data":{},"message":"Too Many Requests.","status":429}`, "Content-Type", "application/json")
					return
				}
				next.ServeHTTP(w, r)
			})
		}}
}

// envoy is Envoy with its rate limit service: it counts, also what it refuses, in units of the wall clock. With headers it
// has enable_x_ratelimit_headers: DRAFT_VERSION_03, which are in each answer.
func envoy(name string, n, per int64, headers bool) server {
	says := "429, X-Envoy-Ratelimited; windows of the wall clock"
	if headers {
		says = "429, x-ratelimit-limit: n, n;w=s; windows of the wall clock"
	}
	return server{name: name, limiter: "Envoy's rate limit service (as a handler)", says: says, limit: alignedOf(float64(n), float64(per)),
		handler: func(o *origin) http.Handler {
			var mu sync.Mutex
			var window, used int64
			next := ok(o)
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				mu.Lock()
				now := time.Now().Unix()
				if now/per != window {
					window, used = now/per, 0
				}
				used++
				granted, left := used <= n, max(0, n-used)
				mu.Unlock()
				if headers {
					w.Header().Set("Server", "envoy")
					w.Header().Set("X-Ratelimit-Limit", fmt.Sprintf("%d, %d;w=%d", n, n, per))
					w.Header().Set("X-Ratelimit-Remaining", strconv.FormatInt(left, 10))
					w.Header().Set("X-Ratelimit-Reset", strconv.FormatInt(per-now%per, 10))
				}
				if !granted {
					say(w, http.StatusTooManyRequests, "", "Server", "envoy", "X-Envoy-Ratelimited", "true")
					return
				}
				next.ServeHTTP(w, r)
			})
		}}
}

// apiserver is the server of Kubernetes with --max-requests-inflight and without priorities:
// pkg/server/filters/maxinflight.go.
func apiserver(name string, n int) server {
	return inFlightServer(name, "Kubernetes, max-requests-inflight (as a handler)", "429, Retry-After: 1", n,
		"Too many requests, please try again later.\n", "Content-Type", "text/plain; charset=utf-8", "Retry-After", "1")
}

// inFlightServer serves n calls of 100 ms at a time, and refuses others with 429, body and fields.
func inFlightServer(name, limiter, says string, n int, body string, fields ...string) server {
	return server{name: name, limiter: limiter, says: says, limit: inFlightOf(float64(n), .1), service: .1,
		handler: func(o *origin) http.Handler {
			q, next := newQueue(n, 0, 0), ok(o)
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if !q.enter(r.Context()) {
					say(w, http.StatusTooManyRequests, body, fields...)
					return
				}
				defer q.leave()
				next.ServeHTTP(w, r)
			})
		}}
}

// shedding is a server that refuses a share of all calls at random, however many there are, as one
// does with a few bad instances behind a balancer, or one that sheds load by chance.
func shedding(name string, share float64, status int, retryAfter string) server {
	says := fmt.Sprintf("no limit; %v %% answered at once by %d", share*100, status)
	if retryAfter != "" {
		says += ", Retry-After: " + retryAfter
	}
	const service = .1
	return server{name: name, limiter: "none", says: says, limit: openTo(defaultWorkers, service+2*leastDelay+meanJitter), service: service,
		handler: func(o *origin) http.Handler {
			next := ok(o)
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if o.chance(share) {
					if retryAfter != "" {
						w.Header().Set("Retry-After", retryAfter)
					}
					w.WriteHeader(status)
					return
				}
				next.ServeHTTP(w, r)
			})
		}}
}
