package main

import (
	"context"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/gofiber/fiber/v2"
	fiberlimit "github.com/gofiber/fiber/v2/middleware/limiter"
	"github.com/redis/go-redis/v9"
	"github.com/sethvargo/go-limiter/httplimit"
	"github.com/sethvargo/go-limiter/memorystore"
)

// Go limiters that do not run in a bubble: sethvargo reads the clock of the runtime, fiber
// has a clock and a network of its own, redis_rate needs a Redis.
func init() {
	for _, s := range []server{
		sethServer("sethvargo-20in1", 20, 1),
		sethServer("sethvargo-30in10", 30, 10),
		redisRateServer("redisrate-20", redis_rate.PerSecond(20)),
		redisRateServer("redisrate-20b5", redis_rate.Limit{Rate: 20, Burst: 5, Period: time.Second}),
		fiberServer("fiber-20in1", 20, 1, false),
		fiberServer("fiber-30in10", 30, 10, false),
		fiberServer("fiber-slide-30in10", 30, 10, true),
	} {
		s.group = clock
		add(s)
	}
}

func sethServer(name string, n uint64, per float64) server {
	return server{name: name, limiter: "sethvargo/go-limiter", says: "429, X-RateLimit-*, Retry-After as a date", limit: windowOf(float64(n), per),
		start: func(r *real) (string, error) {
			store, err := memorystore.New(&memorystore.Config{Tokens: n, Interval: seconds(per)})
			if err != nil {
				return "", err
			}
			r.cleanup(func() { store.Close(context.Background()) })
			m, err := httplimit.NewMiddleware(store, httplimit.IPKeyFunc())
			if err != nil {
				return "", err
			}
			return r.serve(m.Handle(ok(r.origin)))
		}}
}

func redisRateServer(name string, limit redis_rate.Limit) server {
	return server{name: name, limiter: "go-redis/redis_rate", limit: bucketOf(float64(limit.Rate)/limit.Period.Seconds(), float64(limit.Burst)),
		says:  "GCRA in Redis; 429, RateLimit-Remaining, RateLimit-RetryAfter, as in its README",
		needs: []need{aProgram("redis-server", "apt-get install redis-server")},
		start: func(r *real) (string, error) {
			url, err := r.program(nil, "redis-server", "--port", "@PORT@", "--bind", "127.0.0.1", "--save", "", "--dir", "@DIR@")
			if err != nil {
				return "", err
			}
			db := redis.NewClient(&redis.Options{Addr: url[len("http://"):]})
			r.cleanup(func() { db.Close() })
			l, next := redis_rate.NewLimiter(db), ok(r.origin)
			return r.serve(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
				res, err := l.Allow(req.Context(), "all", limit)
				if err != nil {
					http.Error(w, err.Error(), http.StatusInternalServerError)
					return
				}
				w.Header().Set("RateLimit-Remaining", strconv.Itoa(res.Remaining))
				if res.Allowed == 0 {
					w.Header().Set("RateLimit-RetryAfter", strconv.Itoa(int(res.RetryAfter/time.Second)))
					http.Error(w, http.StatusText(http.StatusTooManyRequests), http.StatusTooManyRequests)
					return
				}
				next.ServeHTTP(w, req)
			}))
		}}
}

func fiberServer(name string, n int, per float64, sliding bool) server {
	s := server{name: name, limiter: "gofiber/fiber limiter", says: "429, Retry-After, X-RateLimit-* of granted ones; whole seconds", limit: windowOf(float64(n), per)}
	var kind fiberlimit.LimiterHandler = fiberlimit.FixedWindow{}
	if sliding {
		s.says, s.limit, kind = "sliding; 429, Retry-After; refused calls count", counterOf(float64(n), per), fiberlimit.SlidingWindow{}
	}
	s.start = func(r *real) (string, error) {
		app := fiber.New(fiber.Config{DisableStartupMessage: true})
		app.Use(fiberlimit.New(fiberlimit.Config{Max: n, Expiration: seconds(per), LimiterMiddleware: kind}))
		app.Get("/", func(c *fiber.Ctx) error {
			r.origin.work()
			return c.SendString("ok")
		})
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return "", err
		}
		served := make(chan struct{})
		go func() {
			app.Listener(l)
			close(served)
		}()
		r.cleanup(func() {
			app.ShutdownWithTimeout(time.Second)
			<-served
		})
		return "http://" + l.Addr().String(), nil
	}
	return s
}
