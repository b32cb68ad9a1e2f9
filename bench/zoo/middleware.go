package main

import (
	"net/http"
	"time"

	ginlimit "github.com/JGLTechnologies/gin-rate-limit"
	"github.com/didip/tollbooth/v7"
	"github.com/failsafe-go/failsafe-go/bulkhead"
	"github.com/failsafe-go/failsafe-go/failsafehttp"
	"github.com/failsafe-go/failsafe-go/ratelimiter"
	"github.com/gin-gonic/gin"
	chi "github.com/go-chi/chi/v5/middleware"
	"github.com/go-chi/httprate"
	"github.com/labstack/echo/v4"
	echomiddleware "github.com/labstack/echo/v4/middleware"
	"github.com/throttled/throttled/v2"
	"github.com/ulule/limiter/v3"
	ulule "github.com/ulule/limiter/v3/drivers/middleware/stdlib"
	ululemem "github.com/ulule/limiter/v3/drivers/store/memory"
	"golang.org/x/time/rate"
)

// The rate limiters of Go that read the time by time.Now, each as its documentation shows.
func init() {
	for _, g := range []struct {
		group string
		all   []server
	}{
		{goGroup, []server{
			xtimeServer("xtime-20", 20, 20),
			xtimeServer("xtime-200", 200, 40),
			ululeServer("ulule-20in1", 20, 1),
			ululeServer("ulule-200in1", 200, 1),
			ululeServer("ulule-30in10", 30, 10),
			httprateServer("httprate-20in1", 20, 1),
			httprateServer("httprate-200in1", 200, 1),
			httprateServer("httprate-30in10", 30, 10),
			tollboothServer("tollbooth-20", 20, 20),
			tollboothServer("tollbooth-20b5", 20, 5),
			tollboothServer("tollbooth-200b20", 200, 20),
			throttledServer("throttled-20", 20, 20),
			throttledServer("throttled-20b5", 20, 5),
			throttledServer("throttled-200b20", 200, 20),
			echoServer("echo-20", 20),
			echoServer("echo-200", 200),
			ginServer("gin-20in1", 20, 1),
			ginServer("gin-30in10", 30, 10),
			burstyServer("failsafe-bursty-20in1", 20, 1),
			burstyServer("failsafe-bursty-30in10", 30, 10),
			smoothServer("failsafe-smooth-20", 20),
			smoothServer("failsafe-smooth-200", 200),
			bulkheadServer("bulkhead-10", 10, .1),
		}},
		{moreGroup, []server{
			bulkheadServer("bulkhead-4", 4, usual),
			// Each call that is granted says "Remaining: 0".
			tollboothServer("tollbooth-20b1", 20, 1),
			throttledServer("throttled-20b1", 20, 1),
			noisy(xtimeServer("noisy-xtime-20", 20, 20)),
			noisy(xtimeServer("noisy-xtime-200", 200, 40)),
			noisy(bulkheadServer("noisy-bulkhead-10", 10, .1)),
			chiServer("chi-throttle-10", 10, 0),
			chiServer("chi-throttle-ra-10", 10, time.Second),
		}},
		{short, []server{
			xtimeServer("short-xtime-50", 50, 10),
			throttledServer("short-throttled-50", 50, 10),
			httprateServer("short-httprate-50in1", 50, 1),
			burstyServer("short-bursty-50in1", 50, 1), // says as little as a quota of HashiCorp Vault
		}},
	} {
		for _, s := range g.all {
			if s.group = g.group; s.group == short {
				s.items = 300
			}
			add(s)
		}
	}
}

// ok is the handler behind a middleware.
func ok(o *origin) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		o.work()
		w.Write([]byte("ok\n"))
	})
}

// noisy is a server on a machine with noisy neighbors: in two fifths of all stretches of two
// seconds each call takes 2 to 8 times as long, whatever the load.
func noisy(s server) server {
	s.times = func(mean float64, d *dice) float64 {
		factor := 1.
		if stretch := d.stretch(2 * time.Second); stretch.Float64() < .4 {
			factor = 2 + 6*stretch.Float64()
		}
		return factor * d.around(mean)
	}
	return s
}

func must[T any](x T, err error) T {
	if err != nil {
		panic(err)
	}
	return x
}

func seconds(n float64) time.Duration { return time.Duration(n * float64(time.Second)) }

func xtimeServer(name string, r float64, burst int) server {
	return server{name: name, limiter: "golang.org/x/time/rate", says: "429, no header", limit: bucketOf(r, float64(burst)),
		handler: func(o *origin) http.Handler {
			l, next := rate.NewLimiter(rate.Limit(r), burst), ok(o)
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if !l.Allow() {
					http.Error(w, http.StatusText(http.StatusTooManyRequests), http.StatusTooManyRequests)
					return
				}
				next.ServeHTTP(w, r)
			})
		}}
}

func ululeServer(name string, n int64, per float64) server {
	return server{name: name, limiter: "ulule/limiter", says: "429, X-RateLimit-*, Reset in unix seconds", limit: windowOf(float64(n), per),
		handler: func(o *origin) http.Handler {
			l := limiter.New(ululemem.NewStore(), limiter.Rate{Period: seconds(per), Limit: n})
			return ulule.NewMiddleware(l).Handler(ok(o))
		}}
}

func httprateServer(name string, n int, per float64) server {
	return server{name: name, limiter: "go-chi/httprate", says: "429, X-RateLimit-*, Retry-After = length of the window", limit: counterOf(float64(n), per),
		handler: func(o *origin) http.Handler {
			return httprate.NewRateLimiter(n, seconds(per), httprate.WithKeyFuncs(httprate.Key("all"))).Handler(ok(o))
		}}
}

func tollboothServer(name string, r float64, burst int) server {
	return server{name: name, limiter: "didip/tollbooth", says: "429, RateLimit-* with Reset: 1", limit: bucketOf(r, float64(burst)),
		handler: func(o *origin) http.Handler {
			return tollbooth.LimitHandler(tollbooth.NewLimiter(r, nil).SetBurst(burst), ok(o))
		}}
}

func throttledServer(name string, r, burst int) server {
	return throttledQuota(name, throttled.PerSec(r), float64(r), burst)
}

func echoServer(name string, r float64) server {
	return server{name: name, limiter: "labstack/echo RateLimiter", says: "429, no header", limit: bucketOf(r, r),
		handler: func(o *origin) http.Handler {
			e := echo.New()
			e.Use(echomiddleware.RateLimiter(echomiddleware.NewRateLimiterMemoryStore(rate.Limit(r))))
			e.GET("/", echo.WrapHandler(ok(o)))
			return e
		}}
}

func ginServer(name string, n uint, per float64) server {
	return server{name: name, limiter: "JGLTechnologies/gin-rate-limit", says: "429, no header; each granted call begins the window anew", limit: windowOf(float64(n), per),
		handler: func(o *origin) http.Handler {
			gin.SetMode(gin.ReleaseMode)
			e := gin.New()
			store := ginlimit.InMemoryStore(&ginlimit.InMemoryOptions{Rate: seconds(per), Limit: n})
			e.GET("/", ginlimit.RateLimiter(store, &ginlimit.Options{
				ErrorHandler: func(c *gin.Context, info ginlimit.Info) {
					c.String(http.StatusTooManyRequests, "Too many requests. Try again in "+time.Until(info.ResetTime).String())
				},
				KeyFunc: func(c *gin.Context) string { return c.ClientIP() },
			}), gin.WrapH(ok(o)))
			return e
		}}
}

func burstyServer(name string, n uint, per float64) server {
	return server{name: name, limiter: "failsafe-go bursty rate limiter", says: "429, no header", limit: windowOf(float64(n), per),
		handler: func(o *origin) http.Handler {
			return failsafehttp.NewHandler(ok(o), ratelimiter.NewBursty[*http.Response](n, seconds(per)))
		}}
}

func smoothServer(name string, r uint) server {
	return server{name: name, limiter: "failsafe-go smooth rate limiter", says: "429, no header", limit: bucketOf(float64(r), 1),
		handler: func(o *origin) http.Handler {
			return failsafehttp.NewHandler(ok(o), ratelimiter.NewSmooth[*http.Response](r, time.Second))
		}}
}

func bulkheadServer(name string, n uint, mean float64) server {
	return server{name: name, limiter: "failsafe-go bulkhead", says: "429, no header", limit: inFlightOf(float64(n), mean), service: mean,
		handler: func(o *origin) http.Handler {
			return failsafehttp.NewHandler(ok(o), bulkhead.New[*http.Response](n))
		}}
}

// chiServer is a Throttle without a backlog, that says how long to wait, if wait is not 0.
func chiServer(name string, n int, wait time.Duration) server {
	says := "429, no header"
	options := chi.ThrottleOpts{Limit: n}
	if wait > 0 {
		says = "429, Retry-After"
		options.RetryAfterFn = func(bool) time.Duration { return wait }
	}
	return server{name: name, limiter: "go-chi/chi Throttle", says: says, limit: inFlightOf(float64(n), .1), service: .1,
		handler: func(o *origin) http.Handler { return chi.ThrottleWithOpts(options)(ok(o)) }}
}
