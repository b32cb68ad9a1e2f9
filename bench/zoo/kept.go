package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"sync"
	"time"

	slidingwindow "github.com/RussellLuo/slidingwindow"
	"github.com/didip/tollbooth/v7"
	"github.com/failsafe-go/failsafe-go/bulkhead"
	"github.com/failsafe-go/failsafe-go/failsafehttp"
	"github.com/failsafe-go/failsafe-go/ratelimiter"
	"github.com/go-kit/kit/endpoint"
	"github.com/go-kit/kit/ratelimit"
	kithttp "github.com/go-kit/kit/transport/http"
	"github.com/gofiber/fiber/v2"
	"github.com/gofiber/fiber/v2/middleware/adaptor"
	fiberlimiter "github.com/gofiber/fiber/v2/middleware/limiter"
	juju "github.com/juju/ratelimit"
	"github.com/labstack/echo/v4"
	echomiddleware "github.com/labstack/echo/v4/middleware"
	"github.com/sony/gobreaker"
	"github.com/throttled/throttled/v2"
	"github.com/throttled/throttled/v2/store/memstore"
	uber "go.uber.org/ratelimit"
	"golang.org/x/time/rate"
)

// Limiters and configurations that were kept for a test of what Sluice had learned from the others.
func init() {
	for _, s := range []server{
		jujuServer("juju-503-20b10", 20, 10),
		jujuQuantum("juju-quantum-100in10", 100, 10),
		uberServer("uber-50q16", 50, 16),
		uberServer("uber-200q8", 200, 8),
		kitServer("kit-500-20", 20, 20),
		kitDelaying("kit-delay-30", 30),
		russellServer("russell-50in1", 50, 1),
		russellServer("russell-100in10", 100, 10),
		fiberInBubble("fiber-50in10", fiberlimiter.FixedWindow{}, 50, 10),
		fiberInBubble("fiber-200in5", fiberlimiter.FixedWindow{}, 200, 5),
		fiberInBubble("fiber-sliding-100in10", fiberlimiter.SlidingWindow{}, 100, 10),
		breakerServer("gobreaker-20", 20, 20),
		throttledQuota("throttled-120permin-b10", throttled.PerMin(120), 2, 10),
		throttledQuota("throttled-500b50", throttled.PerSec(500), 500, 50),
		throttledQuota("throttled-3b1", throttled.PerSec(3), 3, 1),
		httprateServer("httprate-300in60", 300, 60),
		httprateServer("httprate-5in1", 5, 1),
		httprateServer("httprate-500in1", 500, 1),
		ululeServer("ulule-300in60", 300, 60),
		tollbooth503("tollbooth-503-50b10", 50, 10),
		echoStore("echo-403-5b1", 5, 1),
		smoothWaiting("failsafe-wait-30", 30, 200*time.Millisecond),
		twoLevels("failsafe-20-300in60", 20, 300, 60),
		burstyServer("failsafe-bursty-300in60", 300, 60),
		burstyServer("failsafe-bursty-100in30", 100, 30),
		bulkheadWaiting("bulkhead-wait-6", 6, 300*time.Millisecond),
		sentinelReject("sentinel-50", 50),
		sentinelThrottling("sentinel-queue-20", 20, 500*time.Millisecond),
		sentinelWarmUp("sentinel-warmup-60", 60, 10),
		mennanov("mennanov-20in1", 20, 1),
		mennanov("mennanov-100in10", 100, 10),
		envoy("envoy-headers-10in1", 10, 1, true),
		envoy("envoy-headers-300in60", 300, 60, true),
		goLimiter("golimiter-date-100in10", 100, 10),
		inFlightReq("traefik-inflight-12", 12),
	} {
		s.group = keptGroup
		add(s)
	}
}

// refusing is a middleware that says no with this status and text where allow does.
func refusing(allow func() bool, status int, text string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !allow() {
			if text == "" {
				w.WriteHeader(status)
				return
			}
			http.Error(w, text, status)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// jujuServer is what KrakenD does with its max_rate: 503 and no body.
func jujuServer(name string, r float64, burst int64) server {
	return server{name: name, limiter: "juju/ratelimit", says: "503, no header", limit: bucketOf(r, float64(burst)),
		handler: func(o *origin) http.Handler {
			b := juju.NewBucketWithRate(r, burst)
			return refusing(func() bool { return b.TakeAvailable(1) == 1 }, http.StatusServiceUnavailable, "", ok(o))
		}}
}

// jujuQuantum fills its bucket in one piece.
func jujuQuantum(name string, n int64, per float64) server {
	return server{name: name, limiter: "juju/ratelimit, a quantum", says: "429, no header", limit: windowOf(float64(n), per),
		handler: func(o *origin) http.Handler {
			b := juju.NewBucketWithQuantum(seconds(per), n, n)
			return refusing(func() bool { return b.TakeAvailable(1) == 1 }, http.StatusTooManyRequests, "Too Many Requests", ok(o))
		}}
}

// uberServer paces what it grants, and has a queue of so many before it.
func uberServer(name string, r, waiting int) server {
	return server{name: name, limiter: "uber-go/ratelimit behind a queue", says: "delays; 503 where the queue is full", limit: bucketOf(float64(r), 1),
		handler: func(o *origin) http.Handler {
			l, places, next := uber.New(r), make(chan struct{}, waiting), ok(o)
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				select {
				case places <- struct{}{}:
				default:
					http.Error(w, "queue is full", http.StatusServiceUnavailable)
					return
				}
				l.Take()
				<-places
				next.ServeHTTP(w, r)
			})
		}}
}

// kit returns a server of go-kit with this middleware around its endpoint, and no encoder of its own
// for errors: each error is a 500 with its text.
func kit(o *origin, wrap endpoint.Middleware) http.Handler {
	return kithttp.NewServer(wrap(func(context.Context, any) (any, error) {
		o.work()
		return "ok", nil
	}), func(context.Context, *http.Request) (any, error) { return nil, nil }, kithttp.EncodeJSONResponse)
}

func kitServer(name string, r float64, burst int) server {
	return server{name: name, limiter: "go-kit NewErroringLimiter", says: `500, text: "rate limit exceeded"`, limit: bucketOf(r, float64(burst)),
		handler: func(o *origin) http.Handler {
			limited := ratelimit.NewErroringLimiter(rate.NewLimiter(rate.Limit(r), burst))
			return kit(o, limited)
		}}
}

// kitDelaying lets a call wait for half a second at most.
func kitDelaying(name string, r float64) server {
	return server{name: name, limiter: "go-kit NewDelayingLimiter, 500 ms", says: "delays; 500, text of x/time/rate", limit: bucketOf(r, 1),
		handler: func(o *origin) http.Handler {
			limited := ratelimit.NewDelayingLimiter(rate.NewLimiter(rate.Limit(r), 1))
			inner := kit(o, limited)
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				ctx, cancel := context.WithTimeout(r.Context(), 500*time.Millisecond)
				defer cancel()
				inner.ServeHTTP(w, r.WithContext(ctx))
			})
		}}
}

func russellServer(name string, n int64, per float64) server {
	return server{name: name, limiter: "RussellLuo/slidingwindow", says: "429, no header", limit: counterOf(float64(n), per),
		handler: func(o *origin) http.Handler {
			l, _ := slidingwindow.NewLimiter(seconds(per), n, func() (slidingwindow.Window, slidingwindow.StopFunc) { return slidingwindow.NewLocalWindow() })
			return refusing(l.Allow, http.StatusTooManyRequests, "Too Many Requests", ok(o))
		}}
}

// fiberInBubble has a clock that ticks once in a second.
func fiberInBubble(name string, algorithm fiberlimiter.LimiterHandler, n int, per float64) server {
	s := server{name: name, limiter: "Fiber limiter, a window", says: "429, X-RateLimit-* in seconds, Retry-After", limit: windowOf(float64(n), per)}
	if (algorithm == fiberlimiter.SlidingWindow{}) {
		s.limiter, s.limit = "Fiber limiter, SlidingWindow", counterOf(float64(n), per)
	}
	s.handler = func(o *origin) http.Handler {
		app := fiber.New(fiber.Config{DisableStartupMessage: true})
		app.Use(fiberlimiter.New(fiberlimiter.Config{Max: n, Expiration: seconds(per), LimiterMiddleware: algorithm}))
		app.Get("/", func(c *fiber.Ctx) error {
			o.work()
			return c.SendString("ok\n")
		})
		h := adaptor.FiberApp(app)
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			r = r.Clone(r.Context())
			r.RequestURI, r.RemoteAddr = "/", "127.0.0.1:1"
			h.ServeHTTP(w, r)
		})
	}
	return s
}

// breakerServer has a breaker before the bucket: after six throttled calls in a row it rejects all for 5 s.
func breakerServer(name string, r float64, burst int) server {
	return server{name: name, limiter: "a bucket behind sony/gobreaker", says: "429; after 6 in a row 503 for 5 s", limit: bucketOf(r, float64(burst)),
		handler: func(o *origin) http.Handler {
			l, next := rate.NewLimiter(rate.Limit(r), burst), ok(o)
			errLimited := errors.New("limited")
			b := gobreaker.NewCircuitBreaker(gobreaker.Settings{Timeout: 5 * time.Second})
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, err := b.Execute(func() (any, error) {
					if !l.Allow() {
						return nil, errLimited
					}
					next.ServeHTTP(w, r)
					return nil, nil
				})
				switch {
				case err == errLimited:
					http.Error(w, http.StatusText(http.StatusTooManyRequests), http.StatusTooManyRequests)
				case err != nil:
					http.Error(w, err.Error(), http.StatusServiceUnavailable)
				}
			})
		}}
}

func throttledQuota(name string, quota throttled.Rate, perSecond float64, burst int) server {
	return server{name: name, limiter: "throttled/throttled", says: "GCRA; 429, X-RateLimit-*, Retry-After", limit: bucketOf(perSecond, float64(burst)),
		handler: func(o *origin) http.Handler {
			l := must(throttled.NewGCRARateLimiterCtx(must(memstore.NewCtx(1024)), throttled.RateQuota{MaxRate: quota, MaxBurst: burst - 1}))
			return (&throttled.HTTPRateLimiterCtx{RateLimiter: l, VaryBy: &throttled.VaryBy{Path: true}}).RateLimit(ok(o))
		}}
}

func tollbooth503(name string, r float64, burst int) server {
	s := tollboothServer(name, r, burst)
	s.says = "503, RateLimit-* with Reset: 1"
	s.handler = func(o *origin) http.Handler {
		return tollbooth.LimitHandler(tollbooth.NewLimiter(r, nil).SetBurst(burst).SetStatusCode(http.StatusServiceUnavailable), ok(o))
	}
	return s
}

// echoStore has the DenyHandler of Echo's documentation, which says 403 and JSON, in the place of its 429.
func echoStore(name string, r float64, burst int) server {
	return server{name: name, limiter: "labstack/echo RateLimiter, with a DenyHandler", says: "403, JSON, no header", limit: bucketOf(r, float64(burst)),
		handler: func(o *origin) http.Handler {
			e := echo.New()
			e.Use(echomiddleware.RateLimiterWithConfig(echomiddleware.RateLimiterConfig{
				Store: echomiddleware.NewRateLimiterMemoryStoreWithConfig(echomiddleware.RateLimiterMemoryStoreConfig{Rate: rate.Limit(r), Burst: burst}),
				DenyHandler: func(c echo.Context, _ string, _ error) error {
					return c.JSON(http.StatusForbidden, map[string]string{"message": "rate limit exceeded"})
				},
			}))
			e.GET("/", echo.WrapHandler(ok(o)))
			return e
		}}
}

// smoothWaiting lets a call wait for some time.
func smoothWaiting(name string, r uint, longest time.Duration) server {
	return server{name: name, limiter: "failsafe-go smooth rate limiter that waits", says: "delays; 429, no header", limit: bucketOf(float64(r), 1),
		handler: func(o *origin) http.Handler {
			return failsafehttp.NewHandler(ok(o), ratelimiter.NewSmoothBuilder[*http.Response](r, time.Second).WithMaxWaitTime(longest).Build())
		}}
}

// twoLevels grants r in a second, and n in a longer time.
func twoLevels(name string, r, n uint, per float64) server {
	return server{name: name, limiter: "two bursty limiters of failsafe-go", says: "429, no header; the second limit is the stricter one", limit: windowOf(float64(n), per),
		handler: func(o *origin) http.Handler {
			return failsafehttp.NewHandler(ok(o), ratelimiter.NewBursty[*http.Response](r, time.Second), ratelimiter.NewBursty[*http.Response](n, seconds(per)))
		}}
}

func bulkheadWaiting(name string, n uint, longest time.Duration) server {
	return server{name: name, limiter: "failsafe-go bulkhead that waits", says: "delays; 429, no header", limit: inFlightOf(float64(n), .1), service: .1,
		handler: func(o *origin) http.Handler {
			return failsafehttp.NewHandler(ok(o), bulkhead.NewBuilder[*http.Response](n).WithMaxWaitTime(longest).Build())
		}}
}

// passes counts calls in stretches of half a second of the wall clock, as Sentinel does.
type passes struct {
	stretch     int64
	now, before [2]float64 // of this stretch and the one before; of the two before that
}

func (p *passes) roll() {
	for now := time.Now().UnixMilli() / 500; p.stretch < now; p.stretch++ {
		if now-p.stretch > 4 {
			p.stretch = now - 4
		}
		p.before = [2]float64{p.now[1], p.before[0]}
		p.now = [2]float64{0, p.now[0]}
	}
}

// sentinelReject is a flow rule of sentinel-golang with TokenCalculateStrategy Direct and
// ControlBehavior Reject: core/flow/tc_default.go, behind its adapter for Gin, which says 429.
func sentinelReject(name string, n float64) server {
	return server{name: name, limiter: "Sentinel, reject (as a handler)", says: "429, no header; 2 stretches of 500 ms", limit: windowOf(n, 1),
		handler: func(o *origin) http.Handler {
			var mu sync.Mutex
			var p passes
			return refusing(func() bool {
				mu.Lock()
				defer mu.Unlock()
				if p.roll(); p.now[0]+p.now[1]+1 > n {
					return false
				}
				p.now[0]++
				return true
			}, http.StatusTooManyRequests, "", ok(o))
		}}
}

// sentinelThrottling is one with ControlBehavior Throttling: core/flow/tc_throttling.go.
func sentinelThrottling(name string, n float64, longest time.Duration) server {
	return server{name: name, limiter: "Sentinel, throttling (as a handler)", says: "delays; 429, no header", limit: bucketOf(n, 1),
		handler: func(o *origin) http.Handler {
			var mu sync.Mutex
			var last time.Time
			return refusing(func() bool {
				mu.Lock()
				now := time.Now()
				at := last.Add(seconds(1 / n))
				if at.Before(now) {
					at = now
				}
				if at.Sub(now) > longest {
					mu.Unlock()
					return false
				}
				last = at
				mu.Unlock()
				time.Sleep(time.Until(at))
				return true
			}, http.StatusTooManyRequests, "", ok(o))
		}}
}

// sentinelWarmUp is one with TokenCalculateStrategy WarmUp and a cold factor of 3:
// core/flow/tc_warm_up.go. It grants a third at first, and all after so many seconds of as much.
func sentinelWarmUp(name string, n, period float64) server {
	return server{name: name, limiter: "Sentinel, warm-up (as a handler)", says: "429, no header; a third of the rate at first", limit: bucketOf(n, 1),
		handler: func(o *origin) http.Handler {
			const cold = 3
			var mu sync.Mutex
			var p passes
			warning := math.Floor(period * n / (cold - 1))
			most := warning + math.Floor(2*period*n/(1+cold))
			slope := (cold - 1) / n / (most - warning)
			var stored float64
			var filled int64
			return refusing(func() bool {
				mu.Lock()
				defer mu.Unlock()
				p.roll()
				if now := time.Now().Unix(); now > filled {
					passed := p.now[1] + p.before[0]
					if stored < warning || stored > warning && passed < math.Floor(n/cold) {
						stored = math.Min(most, stored+float64(now-filled)*n)
					}
					stored = math.Max(0, stored-passed)
					filled = now
				}
				granted := n
				if stored >= warning {
					granted = 1 / ((stored-warning)*slope + 1/n)
				}
				if p.now[0]+p.now[1]+1 > granted+1e-9 {
					return false
				}
				p.now[0]++
				return true
			}, http.StatusTooManyRequests, "", ok(o))
		}}
}

// mennanov is the SlidingWindow of mennanov/limiters: slidingwindow.go. It also counts what it
// refuses, up to n + 1 in each window of the clock.
func mennanov(name string, n float64, per float64) server {
	return server{name: name, limiter: "mennanov/limiters SlidingWindow (as a handler)", says: "429, no header; counts refusals, too", limit: counterOf(n, per),
		handler: func(o *origin) http.Handler {
			var mu sync.Mutex
			var window int64
			var previous, current float64
			length := int64(seconds(per))
			return refusing(func() bool {
				mu.Lock()
				defer mu.Unlock()
				now := time.Now().UnixNano()
				if w := now / length; w != window {
					if previous = 0; w == window+1 {
						previous = current
					}
					window, current = w, 0
				}
				current++
				left := float64(length-now%length) / float64(length)
				return math.Min(previous, n+1)*left+math.Min(current, n+1)-n < 1e-9
			}, http.StatusTooManyRequests, "Too Many Requests", ok(o))
		}}
}

// goLimiter is the memorystore of sethvargo/go-limiter behind its httplimit, which read a clock of
// their own: X-RateLimit-Reset and Retry-After are dates.
func goLimiter(name string, n int, per float64) server {
	return server{name: name, limiter: "sethvargo/go-limiter (as a handler)", says: "429, X-RateLimit-* and Retry-After with a date", limit: windowOf(float64(n), per),
		handler: func(o *origin) http.Handler {
			var mu sync.Mutex
			var start time.Time
			var last time.Duration
			left, next := n, ok(o)
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				mu.Lock()
				now := time.Now()
				if start.IsZero() {
					start = now
				}
				tick := now.Sub(start) / seconds(per)
				if tick > last {
					last, left = tick, n
				}
				granted := left > 0
				if granted {
					left--
				}
				reset := start.Add((tick + 1) * seconds(per)).UTC().Format(time.RFC1123)
				w.Header().Set("X-RateLimit-Limit", strconv.Itoa(n))
				w.Header().Set("X-RateLimit-Remaining", strconv.Itoa(left))
				w.Header().Set("X-RateLimit-Reset", reset)
				mu.Unlock()
				if !granted {
					w.Header().Set("Retry-After", reset)
					http.Error(w, http.StatusText(http.StatusTooManyRequests), http.StatusTooManyRequests)
					return
				}
				next.ServeHTTP(w, r)
			})
		}}
}

// inFlightReq is the middleware InFlightReq of Traefik: the connlimit of vulcand/oxy.
func inFlightReq(name string, n int) server {
	return inFlightServer(name, "Traefik InFlightReq (as a handler)", "429, text", n, fmt.Sprintf("max connections reached: %d", n))
}
